"""Flash attention on tensor cores without a GPU: results at any shape, type and tile size and for any scores, races,
bank conflicts, memory, spills; and cuBLAS's rung in the same types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import ladder as attention_ladder
from kernels.attention import tensor_cores as attention_tensor_cores
from kernels.attention.reference import TOLERANCE
from kernels.attention.shape import AttentionShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.launch import Options
from kernels.model.program import INPUT, RuleError
from kernels.runner import seeded_inputs
from tests.helpers.emulated import archived, needs_nvrtc, resources
from tests.helpers.hard_scores import CORRUPTED, adversarial, corrupted, side_by_side, stacked
from tests.helpers.offenders import every
from tests.helpers.rung_runs import (
    computed,
    each_choice_is_legal,
    memory_of,
    relaunched,
    replace_once,
    runs_or_names_its_rule,
    same_in_any_order,
    some_tiles,
    verified_output,
)
from tests.helpers.shapes import attention_shapes

pytestmark = needs_nvrtc
(RUNG,) = attention_tensor_cores.RUNGS
BOTH = {"flash-mma": RUNG, "cublas": attention_ladder.CUBLAS}
HALVES = ("fp16", "bf16")
SMALL = {"Br": 16, "Bc": 16, "WM": 16}  # many tiles of keys per row
# Tiles that extend beyond every side, several heads, tiles with some and with only hidden keys.
RAGGED = AttentionShape(1, 2, 75, 40, causal=1, dtype="fp16")
halves = st.sampled_from(HALVES)


def small_of(name: str) -> dict[str, int]:
    return SMALL if name == "flash-mma" else {}


# -- results at any shape ---------------------------------------------------------------------------
@settings(max_examples=5)
@given(shape=attention_shapes(max_extent=90, max_d=128), dtype=halves, tiles=st.sampled_from([{}, SMALL]))
def test_emulator_agrees_with_the_reference_at_any_shape(shape, dtype, tiles):
    verified_output(emulator, RUNG, shape.with_(dtype=dtype), tiles)


@pytest.mark.parametrize("name", BOTH)
@settings(max_examples=15)
@given(shape=attention_shapes(max_extent=90, max_d=128), dtype=halves)
def test_cpu_agrees_with_the_reference_at_any_shape(name, shape, dtype):
    expected = {"fp16": "float16", "bf16": "bfloat16"}[dtype]
    assert verified_output(cpu, BOTH[name], shape.with_(dtype=dtype), small_of(name)).dtype.name == expected


@pytest.mark.parametrize(("d", "dtype"), [(33, "fp16"), (64, "bf16"), (96, "fp16"), (128, "bf16")])
def test_wide_heads(d, dtype):
    """Covers copies with and without 16 bytes; Q kept in registers and loaded again; warps of 32 rows and of 16."""
    verified_output(emulator, RUNG, AttentionShape(1, 1, 150, d, causal=1, dtype=dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_unfused_baseline_agrees_in_the_emulator(dtype):
    verified_output(emulator, attention_ladder.CUBLAS, RAGGED.with_(dtype=dtype))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("dtype", HALVES)
def test_cpu_and_kernel_agree(name, dtype):
    """Some elements differ by one rounding to the type, of a weight or of O."""
    shape = RAGGED.with_(dtype=dtype)
    emulated, computed_on_cpu = (
        verified_output(engine, BOTH[name], shape, small_of(name)) for engine in (emulator, cpu)
    )
    step = {"fp16": 2.0**-10, "bf16": 2.0**-7}[dtype]
    differences = np.abs(emulated.astype("f8") - computed_on_cpu.astype("f8"))
    assert (differences <= step * (1 + np.abs(emulated.astype("f8")))).all() and (differences == 0).mean() > 0.97


def test_sums_are_fp32_and_p_has_16_bits():
    """With 4,100 equal keys, l in FP16 would stop at 2,048. Values of 1 + 2^-10, exact in FP16, are the exact result.

    A second run has 130 keys in the emulator.
    """
    shape = AttentionShape(1, 1, 4100, 8, dtype="fp16")
    inputs = {name: np.zeros(shape.qkv_shape, "f2") for name in "QK"}
    inputs["V"] = np.full(shape.qkv_shape, 1 + 2.0**-10, "f2")
    out, _ = computed(cpu, RUNG, shape, inputs=inputs)
    np.testing.assert_array_equal(out, inputs["V"])
    short_shape = shape.with_(N=130)
    inputs = {name: x[:, :, :130] for name, x in inputs.items()}
    out, _ = computed(emulator, RUNG, short_shape, inputs=inputs)
    np.testing.assert_array_equal(out, inputs["V"])


# -- hard scores --------------------------------------------------------------------------------------
KINDS = ["logits of 1e4", "logits of 1e9", "all equal", "one hot", "rising", "falling", "large values of small weights"]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", BOTH)
def test_hard_scores_stay_finite_and_right(name, dtype):
    shape, inputs = side_by_side(KINDS, AttentionShape(1, 2, 45, 16, causal=1, scale=1, dtype=dtype))
    for engine in (emulator, cpu):
        verified_output(engine, BOTH[name], shape, small_of(name), inputs)


def test_hard_scores_have_the_stated_sizes():
    shape = AttentionShape(1, 2, 45, 16, scale=1, dtype="fp16")
    for kind, size in (("logits of 1e4", 1e4), ("logits of 1e9", 1e9), ("one hot", 1e4), ("falling", 4e5)):
        inputs = adversarial(kind, shape)
        logits = inputs["Q"].astype("f8") @ inputs["K"].astype("f8").swapaxes(2, 3)
        assert np.abs(logits).max() > size / 2 and np.isfinite(logits).all(), kind


@pytest.mark.parametrize("dtype", HALVES)
def test_negative_scale_reverses_the_order(dtype):
    """The maximum is then that of the smallest product: Q's signs are flipped, for scores of any size."""
    shape = AttentionShape(1, 1, 70, 24, scale=-1, dtype=dtype)
    verified_output(emulator, RUNG, shape, SMALL, adversarial("logits of 1e4", shape))


@pytest.mark.parametrize("dtype", HALVES)
def test_infinities_and_nans_give_what_the_reference_gives(dtype):
    """A key of -infinity is a mask. With small tiles, the first tile has only such keys.

    A row is NaN (0 / 0) if all its keys are -infinity. It is NaN too if one score is +infinity.
    """
    tolerance = {"fp16": 4e-3, "bf16": 3e-2}[dtype]
    for name, causal in itertools.product(BOTH, (0, 1)):
        one = AttentionShape(1, 1, 37, 8, causal=causal, dtype=dtype)
        shape, inputs = stacked(one, [corrupted(case, one) for case in CORRUPTED])
        ref, _ = attention_ladder.reference(shape, **inputs)
        for engine in (emulator, cpu):
            with np.errstate(all="ignore"):
                out, _ = computed(engine, BOTH[name], shape, small_of(name), inputs)
            np.testing.assert_array_equal(np.isnan(out), np.isnan(ref))
            np.testing.assert_allclose(out.astype("f8"), ref, rtol=tolerance, atol=tolerance)


# -- the scale of the error ---------------------------------------------------------------------------
@pytest.mark.parametrize("dtype, bits", [("fp16", 11), ("bf16", 8)])
def test_scale_allows_one_rounding_of_p_and_little_more(dtype, bits):
    """Weights wrong by half a step of the type are within the tolerance, weights wrong by sixteen steps are not."""
    shape = AttentionShape(1, 2, 60, 16, dtype=dtype)
    inputs = seeded_inputs(RUNG.build(shape, RUNG.default_tiles).of_role(INPUT))
    ref, scale = attention_ladder.reference(shape, **inputs)
    Q, K, V = (inputs[name].astype("f8") for name in "QKV")
    p = np.exp(Q @ K.swapaxes(2, 3) / 4)
    p /= p.sum(axis=3, keepdims=True)
    signs = np.sign(V.sum(axis=3))[:, :, None]  # the worst case: all errors have the sign that adds up
    for steps, within in ((0.5, True), (16, False)):
        errors = np.abs((p * (1 + steps * 2.0 ** (1 - bits) * signs)) @ V - ref)
        assert (errors <= TOLERANCE * scale).all() == within


# -- races, banks, faults --------------------------------------------------------------------------------
@pytest.mark.parametrize(("d", "tiles"), [(40, {}), (37, SMALL), (40, {"Bc": 16, "STAGES": 3})])
def test_warp_order_changes_nothing_and_no_races(d, tiles):
    shape = RAGGED.with_(N=140, H=1, d=d)
    same_in_any_order(lambda options: verified_output(emulator, RUNG, shape, tiles, options=options))


FAULTS = {  # what is wrong: (original code, faulty code)
    "the maximum of two lanes": ("tile_m = fmaxf(tile_m, __shfl_xor_sync(~0u, tile_m, 2));", ";"),
    "the first barrier": ("wait_groups<STAGES - 2>();\n  __syncthreads();", "wait_groups<STAGES - 2>();"),
    "no base for rows of -infinity": ("m[i][lower] == -INFINITE ? 0.0f : m[i][lower]", "m[i][lower]"),
    "the sign of the scale": ("scale < 0 ? 0x80008000 : 0", "0"),
    "far scores as near ones": ("if (farthest < FAR) return;", "return;"),
    "rows beyond N": ("row < rows_left);", "true);"),
    "K where V belongs": ("load_transposed(v,", "load_matrices(v,"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault, at small tiles."""
    right, wrong = FAULTS[fault]
    scale = -0.5 if "sign" in fault else 1.0 if "far" in fault else 0.0
    shape = RAGGED.with_(H=1, causal=int(fault != "rows beyond N"), scale=scale)
    tiles = {"Br": 32, "Bc": 16, "WM": 16}
    program = RUNG.build(shape, RUNG.check(shape, tiles))
    inputs = seeded_inputs(program.of_role(INPUT))
    if "-infinity" in fault:
        inputs["Q"][..., 0] = 1
        inputs["K"][:, :, :16, 0] = -np.inf
    if "far" in fault:
        inputs = adversarial("logits of 1e9", shape)
    memory = memory_of(program, inputs)
    with np.errstate(all="ignore"):
        result = relaunched(program.steps[0], replace_once(wrong, right), memory)
    if result is None:
        return
    ref, scale = attention_ladder.reference(shape, **inputs)
    finite, out = np.isfinite(ref), memory.array("O").astype("f8")
    errors = np.abs(out - ref)[finite] > RUNG.tolerance * scale[finite]
    assert result.races or errors.any() or np.isnan(out)[finite].any()


def test_padded_rows_have_no_bank_conflicts():
    """Without the padding there are conflicts."""
    shape = AttentionShape(1, 1, 64, 64, dtype="fp16")
    program = RUNG.build(shape, RUNG.check(shape, {"Br": 64}))
    (step,) = program.steps

    def conflicts(change) -> int:
        memory = memory_of(program, seeded_inputs(program.of_role(INPUT)))
        total = relaunched(step, change, memory, count=True).counters.total
        return total.get("bank_conflicts_ld", 0) + total.get("bank_conflicts_st", 0)

    assert conflicts(lambda text: text) == 0
    assert conflicts(replace_once("PITCH = DP;", "PITCH = DP + 8;")) > 1000


# -- counters -------------------------------------------------------------------------------------------
def counted(s: AttentionShape, tiles=None) -> dict[str, int]:
    program = RUNG.build(s, RUNG.check(s, tiles))
    session = emulator.Session(program, seeded_inputs(program.of_role(INPUT)), Options())
    session.verify_run()
    return session.counters.total


def test_all_products_run_on_tensor_cores_without_waste():
    shape = AttentionShape(1, 1, 256, 64, dtype="fp16")
    total = counted(shape)
    assert total["flops_mma"] == shape.flops
    assert total["bytes_st"] == 2 * 256 * 64  # only O, no S and P
    assert total["flops_fp"] < shape.flops / 10


def test_tiles_of_hidden_keys_are_skipped_by_each_warp():
    """Of 8 x 8 squares of 32 queries and keys, a causal run multiplies those on and below the diagonal: 36 of 64."""
    shape = AttentionShape(1, 1, 256, 32, dtype="bf16")
    full, causal = (counted(shape.with_(causal=c), {"Bc": 32})["flops_mma"] for c in (0, 1))
    assert causal * 64 == full * 36


# -- tile sizes and rules -----------------------------------------------------------------------------
@settings(max_examples=6)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    shape = data.draw(attention_shapes(max_d=70)).with_(dtype=data.draw(halves))
    runs_or_names_its_rule(RUNG, shape, some_tiles(data, RUNG, shape), "<=|==|whole warps")


@pytest.mark.parametrize("d", [4, 64, 128])
def test_every_choice_is_in_a_legal_set_and_precompiled_sets_are_legal(d):
    shape = AttentionShape(1, 1, 2048, d, dtype="fp16")
    each_choice_is_legal(RUNG, shape)
    sets = list(RUNG.tile_sets(shape))
    assert sets == [RUNG.default_tiles, *(RUNG.default_tiles | dict(tiles) for tiles in RUNG.sets)]


@pytest.mark.parametrize("d", [64, 128])
def test_no_kernel_spills(d):
    """Checks every precompiled set of tile sizes."""
    shape = AttentionShape(1, 1, 256, d, dtype="fp16")
    for tiles in RUNG.tile_sets(shape):
        (step,) = RUNG.build(shape, tiles).steps
        info = resources(step.source, step.defines)
        assert info["spill_bytes"] == 0 and 0 < info["registers"] <= 255, tiles


RULES = [
    ("flash-mma", {"dtype": "fp32"}, {}, "dtype must be fp16 or bf16, got fp32"),
    ("flash-mma", {"d": 129}, {}, "d <= 128, got 129"),
    ("flash-mma", {"B": 70_000}, {}, r"B\*H \(grid\) <= 65535, got 70000"),
    ("flash-mma", {"N": 2**31 - 1}, {}, r"N must stay below 2\^31 - 128, got"),
    ("flash-mma", {}, {"Br": 16}, "Br % WM == 0, got 16 % 32"),
    (
        "flash-mma",
        {"d": 128},
        {"Bc": 128, "STAGES": 3},
        r"2\*\(Br \+ 2\*STAGES\*Bc\)\*\(DP \+ 8\) bytes of shared memory <= 232448, got 243712",
    ),
    (
        "flash-mma",
        {"d": 128},
        {"Br": 256},
        r"WM\*\(2\*Bc \+ 3\*DP\)/64 \+ 31 registers <= 128 \(512 threads\), got 159",
    ),
    ("flash-mma", {}, {"Bc": 8}, "Bc must be one of 16, 32, 64, 128, got 8"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    s = AttentionShape(**{"B": 1, "H": 1, "N": 8, "d": 4, "dtype": "fp16"} | shape)
    with pytest.raises(RuleError, match=message):
        BOTH[name].check(s, tiles)


# -- memory -----------------------------------------------------------------------------------------
def test_unfused_rung_stores_s_in_fp32_and_p_in_16_bits():
    shape = AttentionShape(1, 2, 8192, 64, dtype="fp16")
    square = 2 * 8192**2
    for name, workspace in (("flash-mma", 0), ("cublas", 4 * square + 2 * square)):
        rung = BOTH[name]
        program = rung.build(shape, rung.default_tiles)
        cost = rung.cost(shape, program)
        assert program.nbytes("workspace") == cost.workspace_bytes == workspace
        assert cost.bytes == shape.bytes + 2 * workspace


def test_committed_kernels_are_small_and_match_the_rung():
    presets = attention_ladder.LADDER.presets.values()
    shapes = [p.shape for p in presets if p.shape.dtype in HALVES and not p.shape.variants]
    default_tiles = [(s, RUNG.default_tiles) for s in shapes]
    first = {s.dtype: s for s in reversed(shapes)}.values()
    names = {
        precompiled.archive_entry(step.source, step.defines)[1]
        for s, tiles in (*default_tiles, *((s, tiles) for s in first for tiles in RUNG.tile_sets(s)))
        for step in RUNG.build(s, tiles).steps
    }
    committed = archived("attention")
    assert {name for name in committed if name.startswith("06_flash_mma.")} == names
    assert sum(committed[name] for name in names) < 400_000
