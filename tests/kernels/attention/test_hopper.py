"""Attention by wgmma without a GPU: results at any shape and for any scores, orders of the warps, races, needed waits,
bytes of the copy engine, rules, spills."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.attention import hopper
from kernels.attention.reference import attention
from kernels.attention.shape import AttentionShape
from kernels.engines import emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, launch
from kernels.model.program import INPUT, RuleError
from kernels.model.verify import agrees
from kernels.runner import seeded_inputs
from tests.helpers.emulated import needs_nvrtc, resources
from tests.helpers.hard_scores import CORRUPTED, corrupted, side_by_side, stacked
from tests.helpers.offenders import every
from tests.helpers.rung_runs import computed, legal, memory_of, same_in_any_order, verified_output
from tests.helpers.shapes import attention_shapes

pytestmark = needs_nvrtc
RUNGS = {rung.name.removeprefix("attention/"): rung for rung in hopper.RUNGS}
SMALL = {"wgmma": {"Bc": 64}}  # several tiles for each block; two consumers
SMALL |= {name: {"Br": 128, "STAGES": 2} for name in RUNGS if name != "wgmma"}
HALVES = ("fp16", "bf16")
# Tiles that extend beyond every side, several heads, tiles with some and with only hidden keys.
RAGGED = AttentionShape(1, 3, 200, 72, causal=1, dtype="fp16")
KINDS = ["logits of 1e4", "logits of 1e9", "all equal", "one hot", "rising", "falling", "large values of small weights"]
every_rung = pytest.mark.parametrize("name", RUNGS)
# The first rung, one with its products and weights in another order, and one that keeps a maximum.
SOFTMAXES = pytest.mark.parametrize("name", ["wgmma", "wgmma-balanced", "wgmma-persistent"])
PERSISTENT = pytest.mark.parametrize("name", ["wgmma-balanced", "wgmma-persistent"])


def wide(data, most: int = 210) -> AttentionShape:
    """Draws a shape whose rows begin at multiples of 16 bytes."""
    shape = data.draw(attention_shapes(max_extent=most, max_d=16))
    return shape.with_(d=8 * shape.d, B=1, dtype=data.draw(st.sampled_from(HALVES)))


# -- results --------------------------------------------------------------------------------------------
@every_rung
@settings(max_examples=2)
@given(data=st.data())
def test_agrees_with_the_reference_at_any_shape(name, data):
    verified_output(emulator, RUNGS[name], wide(data), SMALL[name])


@every_rung
def test_default_tiles_agree(name):
    verified_output(emulator, RUNGS[name], RAGGED.with_(d=128, H=1, dtype="bf16"))


@pytest.mark.parametrize(
    ("name", "tiles"),
    [("wgmma-consumers", {}), *((f"wgmma-{name}", {"Br": 192, "STAGES": 2}) for name in ("balanced", "persistent"))],
)
def test_three_and_four_consumers_agree(name, tiles):
    verified_output(emulator, RUNGS[name], RAGGED.with_(d=64, N=600, H=1), tiles)


def test_large_heads_have_two_consumers():
    """More have too few registers at d = 128, except three with tiles of 64 keys."""
    rung = RUNGS["wgmma-overlap"]
    for d, tiles, threads in ((64, {}, 640), (128, {}, 384), (128, {"Br": 192, "Bc": 64}, 512)):
        (step,) = rung.build(RAGGED.with_(d=d), rung.default_tiles | tiles).steps
        assert step.block[0] == threads


@pytest.mark.parametrize(
    "causal, tiles, threads",
    [
        (0, {}, 512),
        (1, {}, 384),
        (1, {"Br": 192, "Bc": 80, "STAGES": 2}, 512),
        (0, {"Br": 128, "Bc": 128, "STAGES": 2}, 384),
    ],
)
def test_persistent_blocks_of_large_heads_have_three_consumers_or_two_if_causal(causal, tiles, threads):
    rung = RUNGS["wgmma-persistent"]
    (step,) = rung.build(RAGGED.with_(d=128, causal=causal), rung.default_tiles | tiles).steps
    assert step.block[0] == threads


@pytest.mark.parametrize("causal", [0, 1])
def test_persistent_blocks_agree_with_large_heads(causal):
    verified_output(emulator, RUNGS["wgmma-persistent"], RAGGED.with_(d=128, N=401, H=1, causal=causal, dtype="bf16"))


@PERSISTENT
@pytest.mark.parametrize("blocks, causal", [(1, 1), (3, 0)])
def test_a_block_computes_several_tiles(name, blocks, causal):
    """Of 300 queries there are three tiles: the middle one has no other tile to be computed with."""
    rung, s = RUNGS[name], RAGGED.with_(N=300, H=2, causal=causal)
    program = rung.build(s, rung.default_tiles | SMALL[name] | {"BLOCKS": blocks})
    assert program.steps[0].grid == (blocks, 1, 1)
    inputs = seeded_inputs(program.of_role(INPUT))
    out = emulator.Session(program, inputs, Options(races=True)).verify_run()
    assert agrees(out, *attention(s, **inputs), rung.tolerance)


@SOFTMAXES
def test_hard_scores_stay_finite_and_right(name):
    for dtype in HALVES:
        s = AttentionShape(1, 2, 85, 16, causal=1, scale=1, dtype=dtype)
        shape, inputs = side_by_side(KINDS, s)
        verified_output(emulator, RUNGS[name], shape, SMALL[name], inputs)


@SOFTMAXES
def test_infinities_and_nans_give_what_the_reference_gives(name):
    one = AttentionShape(1, 1, 85, 8, causal=1, dtype="fp16")
    shape, inputs = stacked(one, [corrupted(case, one) for case in CORRUPTED])
    ref, _ = attention(shape, **inputs)
    with np.errstate(all="ignore"):
        out, _ = computed(emulator, RUNGS[name], shape, SMALL[name], inputs)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(ref))
    np.testing.assert_allclose(out.astype("f8"), ref, rtol=4e-3, atol=4e-3)


def scores(first: float, last: float, s: AttentionShape) -> dict[str, np.ndarray]:
    """Returns Q, K and V whose scores rise evenly from the first key to the last, up to rounding to 16 bits."""
    inputs = seeded_inputs(
        [b for b in RUNGS["wgmma"].build(s, {"Br": 64, "Bc": 64, "STAGES": 2}).buffers if b.role == INPUT]
    )
    inputs["Q"][...] = 0
    inputs["K"][...] = 0
    inputs["Q"][..., 0] = 1
    inputs["K"][..., 0] = np.linspace(first, last, s.N)
    return inputs


RISES = {  # scores of the first and last key: how often a tile after the first has another maximum
    "never": (0, 5),  # all within 2^8 of the first maximum
    "once": (0, 8),
    "in every tile": (0, 60),
    "never, but negative": (-60, -57),  # a negative maximum is not kept
    "from negative": (-40, 12),
}
ONE_HEAD = AttentionShape(1, 1, 256, 8, scale=1, dtype="fp16")


@pytest.mark.parametrize("rise", RISES)
def test_a_maximum_is_kept_until_scores_exceed_it_by_far(rise):
    tiles = {"Br": 192, "Bc": 80, "STAGES": 2}
    verified_output(emulator, RUNGS["wgmma-persistent"], ONE_HEAD, tiles, scores(*RISES[rise], ONE_HEAD))


def test_a_maximum_that_is_kept_saves_the_rescaling():
    rung = RUNGS[name := "wgmma-persistent"]

    def instructions(rise):
        program = rung.build(ONE_HEAD, rung.default_tiles | SMALL[name])
        session = emulator.Session(program, scores(*RISES[rise], ONE_HEAD), Options())
        session.verify_run()
        return session.counters.total["warp_instructions"]

    assert instructions("never") < instructions("once") < instructions("in every tile")


@every_rung
def test_warp_order_changes_nothing_and_no_races(name):
    shape = RAGGED.with_(scale=-0.25, H=2)
    same_in_any_order(lambda options: verified_output(emulator, RUNGS[name], shape, SMALL[name], options=options))


@pytest.mark.parametrize("name", ["wgmma-ping-pong", "wgmma-persistent"])
def test_one_warpgroup_at_a_time_changes_nothing(name):
    """Also no copy or turn comes too early for another warpgroup."""
    same_in_any_order(
        lambda options: verified_output(emulator, RUNGS[name], RAGGED, SMALL[name], options=options),
        ("forward", "turns"),
    )


# -- waits ----------------------------------------------------------------------------------------------
FAULTS = {  # what is wrong: (rung, original code, faulty code, message)
    "K not waited for": ("wgmma-consumers", "wait(full_k + stage, parity);", ";", "before the copy that writes it"),
    "V not waited for": ("wgmma-consumers", "wait(full_v + stage, parity);", ";", "before the copy that writes it"),
    "Q not waited for": ("wgmma-consumers", "wait(full_q, 0);", ";", "before the copy that writes it"),
    "a stage not empty": ("wgmma-consumers", "wait(empty_k + stage, parity ^ 1);", ";", "arrivals at an mbarrier|still"),
    "S not waited for": ("wgmma-overlap", "wait_sums<1>(s);", "wait_sums<2>(s);", "may still run"),
    "O not waited for": ("wgmma-overlap", "wait_sums<0>(o);\n    if", "pin(o);\n    if", "may still run"),
    "no fence": ("wgmma", "pin(o), pin(p);\n  begin_products();", ";", "no wgmma.fence"),
    "signs not published": ("wgmma", "publish_writes();\n  warpgroup_barrier", "warpgroup_barrier", "no fence.proxy.async"),
    "a turn not passed": ("wgmma-ping-pong", "    pass_turn(warpgroup);\n    wait_sums<0>(s);\n    pin", "    wait_sums<0>(s);\n    pin", "deadlock"),
    "a place not empty": ("wgmma-persistent", "wait(empty_q + place, round / 2 % 2 ^ 1);", ";", "arrivals at an mbarrier|still"),
    "the next Q not waited for": ("wgmma-persistent", "wait(full_q + round % 2, round / 2 % 2);", ";", "before the copy that writes it"),
    "no first turn": ("wgmma-ping-pong", "if (warpgroup == CONSUMERS - 1) pass_turn(warpgroup);", ";", "deadlock"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_every_wait_is_needed(fault):
    name, right, wrong, message = FAULTS[fault]
    rung = RUNGS[name]
    # One block computes all tiles of queries. It needs few keys to wait for the place of a third one.
    H, N = (3, 60) if fault == "a place not empty" else (1, 300)
    s = AttentionShape(1, H, N, 64, scale=-1, dtype="fp16")
    blocks = {"BLOCKS": 1} if "BLOCKS" in rung.tiles else {}
    (step,) = (program := rung.build(s, rung.default_tiles | SMALL[name] | blocks)).steps
    text = sources.translation_unit(step.source)
    assert right in text
    ptx = compile.compile_ptx(text.replace(right, wrong), "kernel.cu", precompiled.options(step.defines, step.source))
    memory = memory_of(program, seeded_inputs(program.of_role(INPUT)))
    with pytest.raises(EmulatorError, match=message):
        launch(ptx, step.entry, step.grid, step.block, step.args, memory, step.shared, Options())


# -- counters -------------------------------------------------------------------------------------------
def test_consumers_share_each_tile_of_keys():
    """A block of one warpgroup loads K and V for 64 queries, one with two consumers for 128."""
    s = AttentionShape(1, 1, 256, 64, dtype="fp16")
    row = 2 * 64  # bytes
    for name, blocks in (("wgmma", 4), ("wgmma-consumers", 2), ("wgmma-balanced", 2), ("wgmma-persistent", 2)):
        rung = RUNGS[name]
        program = rung.build(s, rung.default_tiles | SMALL[name])
        session = emulator.Session(program, seeded_inputs(program.of_role(INPUT)), Options())
        session.verify_run()
        total = session.counters.total
        assert total["bulk_bytes_ld"] == row * 256 * (1 + 2 * blocks), name
        assert total["flops_mma"] == s.flops and total["bytes_st"] == row * 256


@PERSISTENT
def test_tiles_of_hidden_keys_are_not_loaded(name):
    s = AttentionShape(1, 1, 256, 64, causal=1, dtype="fp16")
    rung = RUNGS[name]
    program = rung.build(s, rung.default_tiles | SMALL[name])
    session = emulator.Session(program, seeded_inputs(program.of_role(INPUT)), Options())
    session.verify_run()
    assert session.counters.total["bulk_bytes_ld"] == 2 * 64 * (256 + 2 * (128 + 256))


# -- rules ----------------------------------------------------------------------------------------------
RULES = [
    ("wgmma", {"dtype": "fp32"}, {}, "dtype must be fp16 or bf16, got fp32"),
    ("wgmma", {"d": 12}, {}, "d % 8 == 0, got 12 % 8"),
    ("wgmma-overlap", {"d": 136}, {}, "d <= 128, got 136"),
    ("wgmma-overlap", {"d": 128}, {"Br": 128, "Bc": 176}, "bytes of shared memory <= 232448, got"),
    (
        "wgmma-persistent",
        {"d": 128},
        {"Br": 128, "Bc": 128, "STAGES": 3},
        r"2\*Br .*bytes of shared memory <= 232448, got",
    ),
    ("wgmma-balanced", {"B": 70_000}, {}, r"B\*H \(grid\) <= 65535, got 70000"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    s = AttentionShape(**{"B": 1, "H": 1, "N": 8, "d": 8, "dtype": "fp16"} | shape)
    with pytest.raises(RuleError, match=message):
        RUNGS[name].check(s, tiles)


@every_rung
@pytest.mark.parametrize("d", [8, 64, 128])
def test_every_legal_set_fits_into_shared_memory(name, d):
    s = AttentionShape(1, 1, 2048, d, dtype="fp16")
    for tiles in legal(RUNGS[name], s):
        (step,) = RUNGS[name].build(s, tiles).steps
        emulator.check(step)
        assert step.shared <= 227 * 1024 and step.block[0] <= 640


@every_rung
@pytest.mark.parametrize("d", [128])
def test_no_kernel_spills(name, d):
    s = AttentionShape(1, 1, 256, d, dtype="fp16")
    for tiles in RUNGS[name].tile_sets(s):
        (step,) = RUNGS[name].build(s, tiles).steps
        assert resources(step.source, step.defines)["spill_bytes"] == 0


@every_rung
def test_a_rung_says_which_gpus_run_it(name):
    assert RUNGS[name].needs == "Of all GPUs, only those of compute capability 9.0 run it."
