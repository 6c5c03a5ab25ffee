"""The attention ladder without a GPU: results at any shape and tile size and for any scores, races, rules."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import ladder as attention_ladder
from kernels.attention.shape import AttentionShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.model.program import RuleError
from kernels.runner import check_memory, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc, resources
from tests.helpers.hard_scores import CORRUPTED, adversarial, corrupted, side_by_side, stacked
from tests.helpers.offenders import every
from tests.helpers.rung_runs import verified_output
from tests.helpers.shapes import attention_shapes

pytestmark = needs_nvrtc
RUNGS = {rung.name: rung for rung in (*attention_ladder.RUNGS, attention_ladder.CUBLAS)}
OUR_RUNGS = [rung.name for rung in attention_ladder.RUNGS]
FLASH = ("attention/flash", "attention/flash-registers")
TOY = AttentionShape(1, 1, 8, 4)
# Tiles that extend beyond every side, several heads, tiles with some and with only hidden keys.
RAGGED = AttentionShape(2, 2, 75, 37, causal=1)
SMALL = {"attention/flash": {"Br": 4, "Bc": 8}, "attention/flash-registers": {"Br": 32, "Bc": 8}}


# -- results at any shape ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", OUR_RUNGS)
@settings(max_examples=4)
@given(shape=attention_shapes())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape):
    verified_output(emulator, RUNGS[name], shape)


@pytest.mark.parametrize("name", FLASH)
@settings(max_examples=4)
@given(shape=attention_shapes())
def test_small_tiles_agree_with_the_reference_at_any_shape(name, shape):
    """Uses many tiles of keys per row, so that earlier sums are rescaled many times."""
    verified_output(emulator, RUNGS[name], shape, SMALL[name])


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=15)
@given(shape=attention_shapes(max_extent=90, max_d=128))
def test_cpu_agrees_with_the_reference_at_any_shape(name, shape):
    assert verified_output(cpu, RUNGS[name], shape).dtype == np.float32


@pytest.mark.parametrize("name", OUR_RUNGS)
@pytest.mark.parametrize("d", [33, 128])
def test_wide_heads(name, d):
    """Covers loads with and without float4, one row tile and more, and fewer rows per lane for more columns."""
    verified_output(emulator, RUNGS[name], AttentionShape(1, 1, 67, d, causal=1))


@pytest.mark.parametrize("name", RUNGS)
def test_cpu_and_kernel_agree(name):
    both = (verified_output(engine, RUNGS[name], RAGGED, SMALL.get(name)) for engine in (emulator, cpu))
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)


# -- hard scores --------------------------------------------------------------------------------------
KINDS = ["logits of 1e4", "all equal", "one hot", "rising", "falling", "values of every size"]


@pytest.mark.parametrize("name", RUNGS)
def test_hard_scores_stay_finite_and_right(name):
    shape, inputs = side_by_side(KINDS, AttentionShape(1, 2, 45, 16, causal=1, scale=1))
    for engine in (emulator, cpu):
        verified_output(engine, RUNGS[name], shape, SMALL.get(name), inputs)


def test_hard_scores_have_the_stated_sizes():
    shape = AttentionShape(1, 2, 45, 16, scale=1)
    for kind, size in (("logits of 1e4", 1e4), ("one hot", 1e4), ("falling", 4e5)):
        inputs = adversarial(kind, shape)
        assert np.abs(inputs["Q"] @ inputs["K"].swapaxes(2, 3)).max() > size / 2, kind


def same_where_not_finite(out: np.ndarray, ref: np.ndarray, case: str = "") -> None:
    np.testing.assert_array_equal(np.isnan(out), np.isnan(ref), case)
    np.testing.assert_allclose(out, ref, rtol=2e-5, atol=2e-5, err_msg=case)


@pytest.mark.parametrize("name", RUNGS)
def test_infinities_and_nans_give_what_the_reference_gives(name):
    """A key of -infinity is a mask. With small tiles, the first tile has only such keys.

    A row is NaN (0 / 0) if all its keys are -infinity. It is NaN too if one score is +infinity.
    """
    for causal in (0, 1):
        one = AttentionShape(1, 2, 21, 8, causal=causal)
        inputs_of_cases = [corrupted(case, one) for case in CORRUPTED]
        shape, inputs = stacked(one, inputs_of_cases)  # one launch computes all cases: no head depends on another
        ref, _ = attention_ladder.reference(shape, **inputs)
        for case, ref_of_case, of_case in zip(CORRUPTED, ref, inputs_of_cases, strict=True):
            assert np.isnan(ref_of_case).any() or not np.isfinite(of_case[CORRUPTED[case][0]]).all()
        for engine in (emulator, cpu):
            with np.errstate(all="ignore"):
                out, _ = rung_runs.computed(engine, RUNGS[name], shape, SMALL.get(name), inputs)
            for case, out_of_case, ref_of_case in zip(CORRUPTED, out, ref, strict=True):
                same_where_not_finite(out_of_case, ref_of_case, case)


# -- races, faults -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", OUR_RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    s, tiles = RAGGED.with_(B=1, H=1, N=43), SMALL.get(name)
    rung_runs.same_in_any_order(lambda options: verified_output(emulator, RUNGS[name], s, tiles, options=options))


FAULTS = {  # what is wrong: (the kernel, original code, faulty code)
    "old sums not shrunk": ("flash", "o[n] *= rescale;", ";"),
    "a hidden key seen": ("flash", "if (key_tile + thread_col >=\n", "if (key_tile + thread_col >\n"),
    "the first barrier": ("flash-registers", "__syncthreads();  // K is loaded", "// K is loaded"),
    "no base for rows of -infinity": ("flash-registers", "new_m == -INFINITE ? 0.0f : new_m", "new_m"),
    "a key of the next tile": ("flash-registers", "row < rows_left ? d - col : 0", "d - col"),
    "one group too few": ("fused", "BLOCK / d, dim", "BLOCK / d + 1, dim"),
    "the maximum left out": ("fused", "m = block_reduce<larger>(m, partial);", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault, at small tiles."""
    which, right, wrong = FAULTS[fault]
    rung = RUNGS[f"attention/{which}"]
    shape = RAGGED.with_(B=1, H=1, causal=int(fault != "a key of the next tile"))
    program = rung.build(shape, rung.check(shape, SMALL.get(rung.name)))
    (step,) = program.steps
    inputs = seeded_inputs(program.of_role("input"))
    if "-infinity" in fault:
        inputs["Q"][..., 0] = 1
        inputs["K"][:, :, :16, 0] = -np.inf
    memory = rung_runs.memory_of(program, inputs)
    with np.errstate(all="ignore"):
        result = rung_runs.relaunched(step, rung_runs.replace_once(wrong, right), memory)
    if result is None:
        return
    ref, scale = attention_ladder.reference(shape, **inputs)
    finite = np.isfinite(ref)
    exceeds = np.abs(memory.array("O") - ref)[finite] > rung.tolerance * scale[finite]
    assert result.races or exceeds.any() or np.isnan(memory.array("O"))[finite].any()


# -- tile sizes and rules -----------------------------------------------------------------------------
@settings(max_examples=6)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    rung = data.draw(st.sampled_from(attention_ladder.RUNGS))
    shape = data.draw(attention_shapes(max_d=70))
    rung_runs.runs_or_names_its_rule(rung, shape, rung_runs.some_tiles(data, rung, shape), "<=|==|whole warps")


@pytest.mark.parametrize("rung", attention_ladder.RUNGS, ids=lambda r: r.name)
def test_every_choice_is_in_a_legal_set_and_precompiled_sets_are_legal(rung):
    for s in (TOY, AttentionShape(1, 1, 2048, 64), AttentionShape(1, 1, 2048, 128)):
        rung_runs.each_choice_is_legal(rung, s)
        sets = list(rung.tile_sets(s))
        assert sets[0] == rung.default_tiles and len(sets) > len(rung.sets or ())


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("rung", attention_ladder.RUNGS, ids=lambda r: r.name)
def test_no_kernel_spills(rung, d):
    """Checks every precompiled set of tile sizes."""
    shape = AttentionShape(1, 1, 256, d)
    steps = {(t.source, t.defines) for tiles in rung.tile_sets(shape) for t in rung.build(shape, tiles).steps}
    for source, defines in steps:
        info = resources(source, defines)
        assert info["spill_bytes"] == 0 and 0 < info["registers"] <= 255, (source, defines)


HUGE = 2**31 - 1
RULES = [
    ("attention/naive", TOY.with_(dtype="fp16"), {}, "dtype must be fp32, got fp16"),
    ("attention/flash-registers", TOY.with_(dtype="bf16"), {}, "dtype must be fp32, got bf16"),
    ("attention/flash", TOY.with_(B=70_000), {}, r"B\*H \(grid\) <= 65535, got 70000"),
    ("attention/naive", TOY.with_(N=2_000_000), {}, r"N <= 65535\*BLOCK \(grid.y\), got 2000000"),
    ("attention/blocked", TOY.with_(H=60_000, N=60_000), {}, r"B\*H\*N must stay below 2\^31 - 32, got 3600000000"),
    ("attention/cublas", TOY.with_(N=HUGE - 2), {}, r"B\*H\*N must stay below 2\^31 - 4, got"),
    ("attention/flash-registers", TOY.with_(N=HUGE), {}, r"N must stay below 2\^31 - 128, got"),
    ("attention/fused", TOY.with_(d=129), {}, "d <= 128, got 129"),
    ("attention/flash", TOY.with_(d=200), {}, "d <= 128, got 200"),
    ("attention/flash-registers", TOY.with_(d=1000), {}, "d <= 128, got 1000"),
    (
        "attention/fused",
        TOY.with_(N=60_000),
        {},
        r"4\*\(N \+ d \+ BLOCK\) bytes of shared memory <= 232448, got 241040",
    ),
    ("attention/flash", TOY, {"Br": 4, "Bc": 32, "DP": 1}, "no tile size 'DP'"),
    ("attention/flash", TOY, {"Br": 5}, "Br must be one of 4, 8, 16, 32, got 5"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    with pytest.raises(RuleError, match=message):
        RUNGS[name].check(shape, tiles)


# -- memory and cost --------------------------------------------------------------------------------
@every("name", RUNGS)
def test_only_unfused_rungs_allocate_s_and_p(name):
    shape = AttentionShape(1, 2, 8192, 64)
    rung = RUNGS[name]
    program = rung.build(shape, rung.default_tiles)
    square = 4 * 2 * 8192**2
    unfused = name not in ("attention/fused", *FLASH)
    assert program.nbytes("workspace") == (2 * square if unfused else 0)
    cost = rung.cost(shape, program)
    assert cost.workspace_bytes == program.nbytes("workspace")
    assert cost.bytes == shape.bytes + (4 * square if unfused else 0)
    assert cost.flops == shape.flops
    causal = rung.cost(shape.with_(causal=1), program).flops
    assert causal == shape.flops if name == "attention/cublas" else causal < 0.51 * shape.flops


def test_s_larger_than_memory_is_refused_with_its_bytes():
    shape = AttentionShape(64, 16, 32_768, 64)
    rung = RUNGS["attention/naive"]
    program = rung.build(shape, rung.check(shape, None))
    with pytest.raises(RuleError, match=r"needs ([\d,]+) bytes of memory for the cpu engine") as info:
        check_memory("cpu", shape, [program])
    bytes_in_message = int(re.search(r"needs ([\d,]+) bytes", str(info.value))[1].replace(",", ""))
    assert bytes_in_message > program.nbytes() > 2 * 4 * 64 * 16 * 32_768**2


@every("name", RUNGS)
def test_cpu_engine_allocates_the_predicted_bytes(name):
    """S and P if used, and less than one of them besides. Flash attention on the CPU allocates only tiles."""
    shape = AttentionShape(1, 2, 300, 32)
    rung = RUNGS[name]
    program = rung.build(shape, rung.default_tiles)
    session = cpu.Session(program, seeded_inputs(program.of_role("input")))
    session.verify_run()
    extra_bytes = session.memory.workspace - rung.cost(shape, program).workspace_bytes
    assert 0 <= extra_bytes < 4 * 300**2


# -- savings of each step of the ladder ------------------------------------------------------------------
def counted(name: str, s: AttentionShape, tiles=None) -> dict[str, int]:
    rung = RUNGS[name]
    program = rung.build(s, rung.check(s, tiles))
    session = emulator.Session(program, seeded_inputs(program.of_role("input")), Options())
    session.verify_run()
    return session.counters.total


def test_each_step_of_the_ladder_saves_what_it_says():
    """Checks the claims of the kernels' headers with counters, at one head of N = 128, d = 64."""
    shape = AttentionShape(1, 1, 128, 64)
    total = {name: counted(name, shape) for name in OUR_RUNGS}

    def of(name, counter):
        return total[f"attention/{name}"].get(counter, 0)

    assert of("blocked", "sectors_ld") * 3 < of("naive", "sectors_ld")
    for name in ("fused", "flash", "flash-registers"):  # only O, no S and P
        assert of(name, "bytes_st") == 4 * 128 * 64 < of("naive", "bytes_st") / 4
    assert of("flash", "sectors_ld") * 4 < of("fused", "sectors_ld")
    assert of("flash-registers", "shared_requests_ld") * 16 < of("flash", "shared_requests_ld")
    assert of("flash-registers", "bank_conflicts_ld") == of("flash-registers", "bank_conflicts_st") == 0


def test_tiles_of_hidden_keys_are_skipped():
    shape = AttentionShape(1, 1, 96, 16)
    for name in FLASH:
        full, causal = (counted(name, shape.with_(causal=c), SMALL[name])["flops_fp"] for c in (0, 1))
        assert causal < 0.7 * full
