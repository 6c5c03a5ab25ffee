"""Attention's backward pass without a GPU: results at any shape, type and tile size and for hard scores, races, faults,
rules, memory, and what each rung saves."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.backward.ladder import LADDER
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.launch import Options
from kernels.model.program import Launch, RuleError
from kernels.model.verify import agrees
from kernels.runner import VerificationError, inputs_of, run
from tests.helpers import rung_runs
from tests.helpers.emulated import archived, needs_nvrtc, resources
from tests.helpers.hard_scores import side_by_side
from tests.helpers.offenders import every
from tests.helpers.rung_runs import verified_outputs
from tests.helpers.shapes import attention_shapes

pytestmark = needs_nvrtc
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs if not rung.library}
MMA, HOPPER = "flash-mma", "flash-wgmma"
HALVES = MMA, HOPPER  # their tensors have 16 bits
ATOMIC = "flash"
SMALL = {  # many tiles in both directions
    "naive": {"TILE": 8},
    "recompute": {"BLOCK": 128},
    "flash": {"Br": 8, "Bc": 16},
    "flash-two-kernels": {"Br": 8, "Bc": 16},
    MMA: {"Br": 16, "Bc": 16, "WM": 16},
    HOPPER: {"STAGES": 2},
}
TOY = AttentionBackwardShape(1, 1, 8, 4)
# Tiles that extend beyond every side, several heads, tiles with some and with only hidden keys.
RAGGED = AttentionBackwardShape(2, 1, 45, 37, causal=1)


def of_rung(name: str, s: AttentionBackwardShape, dtype: str = "fp16") -> AttentionBackwardShape:
    """Returns the shape in a type that the rung has, with a d that it can run."""
    if name == HOPPER:
        s = s.with_(d=min(-(-s.d // 8) * 8, 64))
    return s.with_(dtype=dtype) if name in HALVES else s


def backward_shapes(**limits) -> st.SearchStrategy[AttentionBackwardShape]:
    return attention_shapes(**limits).map(lambda s: AttentionBackwardShape(**s.params()))


# -- results at any shape ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(shape=backward_shapes(max_extent=36), dtype=st.sampled_from(["fp16", "bf16"]), small=st.booleans())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape, dtype, small):
    verified_outputs(emulator, RUNGS[name], of_rung(name, shape, dtype), SMALL[name] if small else None)


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=12)
@given(shape=backward_shapes(max_extent=80, max_d=128), dtype=st.sampled_from(["fp16", "bf16"]))
def test_cpu_agrees_with_the_reference_at_any_shape(name, shape, dtype):
    outputs = verified_outputs(cpu, RUNGS[name], of_rung(name, shape, dtype), SMALL[name])
    kinds = {"fp16": "float16", "bf16": "bfloat16"}
    assert {out.dtype.name for out in outputs.values()} == {kinds[dtype] if name in HALVES else "float32"}
    assert list(outputs) == ["dQ", "dK", "dV"]


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("d", [33, 128])
def test_wide_heads(name, d):
    """Covers copies with and without 16 bytes, one tile and more, and fewer keys of a warp for more columns."""
    verified_outputs(emulator, RUNGS[name], of_rung(name, AttentionBackwardShape(1, 1, 67, d, causal=1)))


@pytest.mark.parametrize("name", RUNGS)
def test_cpu_and_kernel_agree(name):
    s = of_rung(name, AttentionBackwardShape(1, 1, 21, 6, causal=1))
    emulated, computed = (verified_outputs(engine, RUNGS[name], s, SMALL[name]) for engine in (emulator, cpu))
    near = {"rtol": 2e-3, "atol": 2e-3} if name in HALVES else {"rtol": 1e-4, "atol": 1e-5}
    for gradient, out in emulated.items():
        np.testing.assert_allclose(out.astype("f4"), computed[gradient].astype("f4"), **near)


def test_a_result_with_one_wrong_gradient_gets_no_time(monkeypatch):
    rung = RUNGS["naive"]
    s = AttentionBackwardShape(1, 1, 9, 4)
    step = rung.build(s, rung.default_tiles).steps[-1]
    original = type(step).__getattribute__

    def wrong(self, name):
        if name == "cpu" and original(self, "label") == "key_gradients":
            right = original(self, name)

            def compute(P, X, Y, *rest):
                right(P, X, Y, *rest)
                Y.flat[-1] += 0.01

            return compute
        return original(self, name)

    monkeypatch.setattr(type(step), "__getattribute__", wrong)
    with pytest.raises(VerificationError, match="dK of attention-backward/naive"):
        run(rung.name, s, engine="cpu", measure=False)


# -- hard scores --------------------------------------------------------------------------------------
KINDS = ["logits of 1e4", "all equal", "one hot", "rising", "falling", "values of every size"]


@pytest.mark.parametrize("name", RUNGS)
def test_hard_scores_stay_finite_and_right(name):
    kinds = [kind for kind in KINDS if name not in HALVES or kind != "values of every size"]  # beyond the range of FP16
    one = of_rung(name, AttentionBackwardShape(1, 1, 37, 16, causal=1, scale=1))
    s, hard = side_by_side(kinds, one)
    inputs = inputs_of(LADDER, s, RUNGS[name].build(s, RUNGS[name].default_tiles))
    hard["dO"] = inputs["dO"]
    hard |= LADDER.derive(s, hard)
    for engine in (emulator, cpu):
        outputs = verified_outputs(engine, RUNGS[name], s, SMALL[name], hard)
        assert all(np.isfinite(out.astype("f4")).all() for out in outputs.values())


@every("name", RUNGS)
def test_equal_keys_share_the_gradient(name):
    """With equal rows of K, P is 1/N everywhere: dV is the mean of dO for every key."""
    s = of_rung(name, AttentionBackwardShape(1, 1, 19, 8))
    rung = RUNGS[name]
    free = inputs_of(LADDER, s, rung.build(s, rung.default_tiles))
    free = {key: free[key] for key in ("Q", "K", "V", "dO")}
    free["K"][...] = free["K"][:, :, :1]
    outputs = verified_outputs(cpu, rung, s, SMALL[name], free | LADDER.derive(s, free))
    mean = free["dO"].astype("f8").mean(axis=2, keepdims=True)
    dV = outputs["dV"].astype("f8")
    np.testing.assert_allclose(dV, np.broadcast_to(mean, dV.shape), atol=2e-3 if name in HALVES else 1e-6)


# -- races, orders, faults -------------------------------------------------------------------------------
def in_order(name: str, s: AttentionBackwardShape, tiles, options: Options) -> np.ndarray:
    """Returns the gradients that every run gives the same bits: all, but dQ if it is added atomically."""
    outputs = verified_outputs(emulator, RUNGS[name], s, tiles, options=options)
    return np.stack([out for key, out in outputs.items() if name != ATOMIC or key != "dQ"])


@pytest.mark.parametrize("name", RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    s = of_rung(name, RAGGED.with_(B=1, N=37, d=21))
    rung_runs.same_in_any_order(lambda options: in_order(name, s, SMALL[name], options))


FAULTS = {  # what is wrong: (rung, entry, original code, faulty code)
    "D left out": ("naive", "softmax_gradient", "(dS[key] - row_d)", "dS[key]"),
    "hidden keys keep their weight": ("naive", "softmax_gradient", "if (key < keys)", "if (key < N)"),
    "the first query": ("recompute", "recompute_keys", "causal ? key : 0", "causal ? key + 1 : 0"),
    "one group too few": ("recompute", "recompute_queries", "group < BLOCK / d", "group < BLOCK / d - 1"),
    "the barrier before dS": ("flash", "flash_backward", "__syncthreads();  // P is there", "// P is there"),
    "dQ stored, not added": ("flash", "flash_backward", "atomicAdd(&dQ[(size_t)query * d + dim], scale * dq[i][n]);",
                   "dQ[(size_t)query * d + dim] = scale * dq[i][n];"),
    "hidden queries seen": ("flash-two-kernels", "flash_keys", "tile_p[query * PITCH_P + key] = visible ? p : 0.0f",
                            "tile_p[query * PITCH_P + key] = p"),
    "keys outside keep their weight": ("flash-two-kernels", "flash_queries", "visible ? p[i][n] : 0.0f", "p[i][n]"),
    "P instead of dS": (MMA, "flash_mma_keys", "as_factor(left, ds, 2 * n);", "as_factor(left, p, 2 * n);"),
    "the rows of O of another warp": (HOPPER, "flash_wgmma_queries", "tile_do + warp_row * DP, O + rows,", "tile_do + warp_row * DP, O + rows + 8 * d,"),
    "a stage released too early": (HOPPER, "flash_wgmma_keys", "if (last >= 0) ring.release(last);", "ring.release(ring.stage);"),
    "the sums of the first tile": (HOPPER, "flash_wgmma_keys", "left_ds, q, last >= 0", "left_ds, q, 0"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault, at small tiles."""
    name, entry, right, wrong = FAULTS[fault]
    rung = RUNGS[name]
    N = 330 if name == HOPPER else RAGGED.N  # several tiles
    s = of_rung(name, RAGGED.with_(B=1, N=N, causal=int("outside" not in fault)))
    program = rung.build(s, rung.check(s, SMALL[name]))
    inputs = inputs_of(LADDER, s, program)
    if "outside" in fault:  # L below -128 makes exp(0 - L) infinite
        inputs["Q"][..., 0], inputs["K"][..., 0] = 30, -30
        inputs |= LADDER.derive(s, inputs)
    memory = rung_runs.memory_of(program, inputs)
    races = []
    for step in program.steps:
        change = rung_runs.replace_once(wrong, right) if step.entry == entry else str
        with np.errstate(all="ignore"):
            result = rung_runs.relaunched(step, change, memory, "out-of-bounds|never written|still reads")
        if result is None:
            return
        races += result.races
    reference = LADDER.reference(s, **inputs)
    assert races or not all(
        agrees(memory.array(key), ref, scale, rung.tolerance) for key, (ref, scale) in reference.items()
    )


# -- tile sizes and rules -----------------------------------------------------------------------------
@settings(max_examples=5)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    name = data.draw(st.sampled_from(list(RUNGS)))
    rung, shape = RUNGS[name], of_rung(name, data.draw(backward_shapes(max_extent=30, max_d=70)))
    tiles = rung_runs.some_tiles(data, rung, shape)
    broken = next(iter(rung.rules(shape, tiles)), None)
    if broken is None:
        verified_outputs(emulator, rung, shape, tiles)
    else:
        assert re.search(r"(<=|==|whole warps).*, got ", broken), broken
        with pytest.raises(RuleError, match=re.escape(broken)):
            rung.check(shape, tiles)


@every("name", RUNGS)
def test_every_choice_is_in_a_legal_set_and_precompiled_sets_are_legal(name):
    rung = RUNGS[name]
    for s in (TOY, AttentionBackwardShape(1, 1, 2048, 64), AttentionBackwardShape(1, 1, 2048, 128)):
        s = of_rung(name, s)
        rung_runs.each_choice_is_legal(rung, s)
        sets = list(rung.tile_sets(s))
        assert sets[0] == rung.default_tiles and len(sets) > len(rung.sets or ())


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("name", RUNGS)
def test_no_kernel_spills(name, d):
    """Checks every precompiled set of tile sizes."""
    s = of_rung(name, AttentionBackwardShape(1, 1, 256, d))
    steps = {(t.source, t.defines) for tiles in RUNGS[name].tile_sets(s) for t in RUNGS[name].build(s, tiles).steps}
    for source, defines in steps:
        info = resources(source, defines)
        assert info["spill_bytes"] == 0 and 0 < info["registers"] <= 255, (source, defines)


def test_what_is_compiled_ahead_does_not_spill():
    listed = precompiled.ptx_archive.listed(precompiled.FOLDER, "attention")
    ours = {name for name in archived("attention") if name[:2] in ("07", "08", "09", "10", "11", "12")}
    assert len(ours) > 40 and all(listed[name]["spill_bytes"] == 0 for name in ours)


HUGE = 2**31 - 1
RULES = [
    ("naive", TOY.with_(dtype="fp16"), {}, "dtype must be fp32, got fp16"),
    (MMA, TOY, {}, "dtype must be fp16 or bf16, got fp32"),
    ("flash", TOY.with_(B=70_000), {}, r"B\*H \(grid\) <= 65535, got 70000"),
    ("naive", TOY.with_(N=3_000_000), {}, r"N <= 65535\*TILE \(grid.y\), got 3000000"),
    ("flash", TOY.with_(H=60_000, N=60_000), {}, r"B\*H\*N must stay below 2\^31 - 4, got 3600000000"),
    ("flash-two-kernels", TOY.with_(N=HUGE), {}, r"N must stay below 2\^31 - 64, got"),
    ("recompute", TOY.with_(d=129), {}, "d <= 128, got 129"),
    ("flash", TOY.with_(d=1000), {}, "d <= 128, got 1000"),
    (MMA, TOY.with_(d=200, dtype="bf16"), {}, "d <= 128, got 200"),
    (HOPPER, TOY, {}, "dtype must be fp16 or bf16, got fp32"),
    (HOPPER, TOY.with_(d=72, dtype="bf16"), {}, "d <= 64, got 72"),
    (HOPPER, TOY.with_(d=12, dtype="fp16"), {}, "d % 8 == 0, got 12 % 8"),
    (
        "recompute",
        TOY.with_(N=30_000),
        {},
        r"4\*\(2\*N \+ 2\*d \+ 2\*BLOCK\) bytes of shared memory <= 232448, got 242080",
    ),
    ("flash", TOY, {"Br": 8}, r"Br % \(8\*Bc/WK\) == 0, got 8 % 16"),
    ("flash", TOY, {"Br": 5}, "Br must be one of 8, 16, 32, 64, got 5"),
    (MMA, TOY.with_(dtype="fp16"), {"Br": 16}, "Br % WM == 0, got 16 % 32"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    with pytest.raises(RuleError, match=message):
        RUNGS[name].check(shape, tiles)


# -- memory and cost --------------------------------------------------------------------------------
@every("name", RUNGS)
@every("N", [256, 4096])
def test_only_the_naive_rung_needs_memory_that_grows_with_n_squared(name, N):
    s, rung = of_rung(name, AttentionBackwardShape(1, 2, N, 64)), RUNGS[name]
    program = rung.build(s, rung.default_tiles)
    row_dots, squares = 4 * 2 * N, 2 * 4 * 2 * N**2
    workspace = row_dots + (squares if name == "naive" else 0)
    cost = rung.cost(s, program)
    assert program.nbytes("workspace") == workspace == cost.workspace_bytes
    passes = (
        9 * squares // 2 if name == "naive" else 0
    )  # P: written twice, read twice; dS: written twice, read three times
    assert cost.bytes == s.bytes + 2 * row_dots + passes
    products = 5 if name in ("naive", "flash") else 7
    assert cost.flops == 2 * products * 2 * N * N * 64 and s.flops == 2 * 5 * 2 * N * N * 64


@pytest.mark.parametrize("name", RUNGS)
def test_cpu_engine_allocates_the_predicted_bytes(name):
    """Less than one N x N matrix besides. Flash attention on the CPU allocates only tiles."""
    s, rung = of_rung(name, AttentionBackwardShape(1, 2, 300, 32)), RUNGS[name]
    program = rung.build(s, rung.default_tiles)
    session = cpu.Session(program, inputs_of(LADDER, s, program))
    session.verify_run()
    extra = session.memory.workspace - rung.cost(s, program).workspace_bytes
    assert 0 <= extra < 4 * 300**2 + 2 * 4 * 2 * 300 * 32 * 4  # and copies of 16-bit inputs in FP32


# -- savings of each step of the ladder ------------------------------------------------------------------
def counted(name: str, s: AttentionBackwardShape, tiles=None) -> dict[str, int]:
    rung = RUNGS[name]
    program = rung.build(s, rung.check(s, tiles))
    session = emulator.Session(program, inputs_of(LADDER, s, program), Options())
    session.verify_run()
    return session.counters.total


def test_each_step_of_the_ladder_saves_what_it_says():
    """Checks the claims of the kernels' headers with counters, at one head of N = 64, d = 32."""
    s = AttentionBackwardShape(1, 1, 64, 32)
    total = {name: counted(name, s) for name in RUNGS if name not in HALVES}
    gradients = 4 * 3 * 64 * 32
    squares = 2 * 4 * 64**2
    assert total["naive"]["bytes_st"] == gradients + 4 * 64 + 2 * squares
    for name in ("recompute", "flash-two-kernels"):  # only D and the gradients
        assert total[name]["bytes_st"] == gradients + 4 * 64
    assert total["flash-two-kernels"]["sectors_ld"] * 4 < total["recompute"]["sectors_ld"]
    products = {name: total[name]["flops_fp"] / (2 * 64 * 64 * 32) for name in total}
    assert 5 < products["flash"] < 5.6 < 7 < products["flash-two-kernels"] < 7.6
    for name in ("flash", "flash-two-kernels"):
        assert total[name].get("bank_conflicts_ld", 0) == total[name].get("bank_conflicts_st", 0) == 0


@pytest.mark.parametrize("name", ["flash", "flash-two-kernels"])
def test_tiles_of_hidden_pairs_are_skipped(name):
    s = AttentionBackwardShape(1, 1, 64, 16)
    full, causal = (counted(name, s.with_(causal=c), SMALL[name])["flops_fp"] for c in (0, 1))
    assert causal < 0.7 * full


@pytest.mark.parametrize("entry", ["flash_mma_keys", "flash_mma_queries"])
def test_tensor_cores_read_shared_memory_without_conflicts(entry):
    s, rung = AttentionBackwardShape(1, 1, 64, 32, dtype="fp16"), RUNGS[MMA]
    program = rung.build(s, rung.check(s, {"Br": 64}))
    session = emulator.Session(program, inputs_of(LADDER, s, program), Options())
    session.verify_run()
    step = next(step for step in program.steps if isinstance(step, Launch) and step.entry == entry)
    assert step.shared <= 227 * 1024
    assert session.counters.total.get("bank_conflicts_ld", 0) == 0
