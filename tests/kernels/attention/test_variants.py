"""The variants of attention without a GPU: results at any shape and tile size, bytes, races, faults, rules."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import ladder as attention_ladder
from kernels.attention import variants
from kernels.attention.reference import attention as reference
from kernels.attention.shape import MASKS, AttentionShape, parse_attention
from kernels.attention.traffic import requested_bytes, tiles_visited
from kernels.engines import cpu, emulator
from kernels.model.program import INPUT, RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees
from kernels.runner import run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import verified_output

RUNGS = {rung.name.partition("/")[2]: rung for rung in variants.RUNGS}
SMALL = {
    "flash-variants": {"Br": 32, "Bc": 8},
    "flash-mma-variants": {"Br": 16, "Bc": 16, "WM": 16},
    "flash-wgmma-variants": {"Br": 128, "Bc": 64},
    "flash-decode": {"PART": 8, "THREADS": 32, "BATCH": 1},
}
DTYPE = {"flash-variants": "fp32", "flash-mma-variants": "fp16", "flash-wgmma-variants": "bf16", "flash-decode": "bf16"}
KINDS = (
    AttentionShape(1, 4, 9, 20, causal=1, M=33, kv_heads=2),
    AttentionShape(1, 2, 30, 12, causal=1, window=7),
    AttentionShape(1, 1, 11, 8, M=30, softcap=2.0, mask="bias"),
    AttentionShape(1, 2, 14, 9, M=21, mask="bool", causal=1),
    AttentionShape(1, 1, 9, 4, M=5, causal=1),  # the first queries see no key
)

# Several tiles of queries and of keys: a window whose first tile is not that of the cache, a tile without keys, two types.
WIDE = (
    AttentionShape(1, 4, 200, 64, causal=1, M=330, kv_heads=2, window=100, dtype="fp16"),
    AttentionShape(1, 1, 260, 40, causal=1, scale=-0.3, M=90, softcap=5, dtype="bf16"),
    AttentionShape(1, 1, 150, 64, M=190, mask="bool", dtype="bf16"),
    AttentionShape(1, 1, 70, 128, M=150, window=60, mask="bias", dtype="fp16"),
)


def of(name: str, s: AttentionShape) -> AttentionShape:
    """Returns a shape of the type that a rung is tested with. The copy engine needs rows of a multiple of 16 bytes."""
    return s.with_(dtype=DTYPE[name], d=-(-s.d // 8) * 8 if "wgmma" in name else s.d)


@st.composite
def shapes(draw, most: int = 20, d: int = 20) -> AttentionShape:
    """Draws shapes with any of the variants; at least one."""
    groups, N = draw(st.integers(1, 2)), draw(st.integers(1, most))
    found = AttentionShape(
        draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 2)),
        N,
        draw(st.integers(1, d)),
        causal=draw(st.integers(0, 1)),
        scale=draw(st.sampled_from([0.0, -0.5])),
        M=draw(st.integers(1, most)),
        kv_heads=groups,
        window=draw(st.sampled_from([0, 1, 5, 40])),
        softcap=draw(st.sampled_from([0.0, 1.5])),
        mask=draw(st.sampled_from(MASKS)),
    )
    return found if found.variants else found.with_(M=N + 1)


# -- the shape -------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(shapes())
def test_the_shape_counts_its_pairs_and_reads_back(s):
    spans = [(s.begin_key(i), s.end_key(i)) for i in range(s.N)]
    assert s.pairs == s.heads * sum(max(0, end - begin) for begin, end in spans)
    assert parse_attention(",".join(f"{name}={value}" for name, value in s.params().items())) == s
    assert AttentionShape(**s.params()) == s


def test_one_shape_has_one_description():
    plain = AttentionShape(2, 4, 8, 16)
    assert AttentionShape(2, 4, 8, 16, M=8, kv_heads=4) == plain and not plain.variants
    with pytest.raises(ShapeError, match="H % kv_heads == 0, got 4 % 3"):
        plain.with_(kv_heads=3)
    with pytest.raises(ShapeError, match="softcap must not be below 0"):
        plain.with_(softcap=-1)


def test_bytes_of_a_cache_are_those_of_its_heads_and_window():
    s = AttentionShape(1, 32, 1, 128, causal=1, dtype="fp16", M=8192, kv_heads=8)
    ends = 2 * 2 * 32 * 128
    assert s.bytes == ends + 2 * 2 * 8 * 8192 * 128
    assert s.with_(window=100).bytes == ends + 2 * 2 * 8 * 100 * 128


# -- the reference ---------------------------------------------------------------------------------------
def inputs_of(s: AttentionShape, seed: int = 0):
    return seeded_inputs([b for b in variants.buffers(s) if b.role == INPUT], seed)


@settings(max_examples=15)
@given(shapes(most=6, d=4))
def test_the_reference_is_the_definition_pair_by_pair(s):
    inputs = inputs_of(s)
    Q, K, V = (inputs[name].astype("f8") for name in "QKV")
    found, _ = reference(s, **inputs)
    for b, h, i in np.ndindex(s.B, s.H, s.N):
        g, terms = h // s.sharing, {}
        for j in range(s.keys):
            position = i + s.keys - s.N
            hidden = (s.causal and j > position) or (s.window and abs(j - position) >= s.window)
            if hidden or (s.mask == "bool" and not inputs["mask"][i, j]):
                continue
            score = float(np.float32(s.factor)) * (Q[b, h, i] @ K[b, g, j])
            score = s.softcap * np.tanh(score / s.softcap) if s.softcap else score
            terms[j] = np.exp(score + (inputs["mask"][i, j] if s.mask == "bias" else 0))
        total = sum(terms.values())
        expected = sum(p / total * V[b, g, j] for j, p in terms.items()) if terms else np.zeros(s.d)
        np.testing.assert_allclose(found[b, h, i], expected, rtol=1e-9, atol=1e-12)


# -- results ---------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("s", KINDS, ids=str)
def test_both_engines_agree_with_the_reference_and_the_requested_bytes_are_counted(name, s):
    s, tiles = s.with_(dtype=DTYPE[name], d=16), RUNGS[name].default_tiles | SMALL[name]
    verified_output(cpu, RUNGS[name], s, tiles)
    total = run(RUNGS[name].name, s, engine="emulator", tiles=tiles).counters.total  # verifies each element
    counted = sum(total[name] for name in ("bytes_ld", "bytes_st", "bulk_bytes_ld"))
    assert counted == requested_bytes(RUNGS[name], s, tiles)


@needs_nvrtc
@pytest.mark.parametrize(("s", "tiles"), [*zip(WIDE, (SMALL["flash-wgmma-variants"], {}) * 2, strict=True)], ids=str)
def test_several_tiles_by_wgmma_agree(s, tiles):
    verified_output(emulator, RUNGS["flash-wgmma-variants"], s, tiles)


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=4)
@given(s=shapes(most=40), small=st.booleans())
def test_any_shape(name, s, small):
    s = of(name, s)
    if not any(RUNGS[name].rules(s, RUNGS[name].default_tiles)):
        verified_output(emulator, RUNGS[name], s, SMALL[name] if small else None)


@settings(max_examples=15)
@given(s=shapes(most=60))
def test_numpy_at_any_shape(s):
    for rung in RUNGS.values():
        if not any(rung.rules(s, rung.default_tiles)) and "mma" not in rung.name:  # they need 16 bits
            verified_output(cpu, rung, s)


@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    s = of(name, KINDS[0].with_(mask="bool"))
    tiles = SMALL[name] if name != "flash-decode" else {"PART": 32, "THREADS": 64, "BATCH": 2}
    rung_runs.same_in_any_order(lambda options: verified_output(emulator, RUNGS[name], s, tiles, options=options))


@needs_nvrtc
def test_numpy_stores_the_same_parts_as_the_kernel():
    """So that either may compute what the merge reads."""
    s, rung = KINDS[0].with_(dtype="fp32"), RUNGS["flash-decode"]
    program, inputs = rung.build(s, rung.check(s, SMALL["flash-decode"])), inputs_of(s)
    sessions = cpu.Session(program, inputs), emulator.Session(program, inputs, rung_runs.UNCOUNTED)
    for session in sessions:
        session.verify_run()
    for name in ("part_m", "part_l", "part_o"):
        np.testing.assert_allclose(*(session.fetch(name) for session in sessions), rtol=1e-4, atol=1e-5, err_msg=name)


# -- bytes -----------------------------------------------------------------------------------------------


@needs_nvrtc
def test_tiles_outside_of_a_window_are_not_loaded():
    whole = AttentionShape(1, 1, 64, 8, causal=1, M=65)
    narrow = whole.with_(window=8)
    counted = [
        run("attention/flash-variants", s, engine="emulator", tiles=SMALL["flash-variants"]).counters.total["bytes_ld"]
        for s in (whole, narrow)
    ]
    tiles = [tiles_visited(s, 32, 8) for s in (whole, narrow)]
    assert tiles == [5 + 9, 5 + 6]
    assert counted[0] - counted[1] == 2 * 4 * narrow.d * 3 * 8  # K and V of the second block: three tiles of 8 keys


# -- rules -----------------------------------------------------------------------------------------------
@every(
    ("rung", "fields", "rule"),
    [
        ("flash", {"M": 9}, "M == N, got 9"),
        ("flash-mma", {"dtype": "fp16", "kv_heads": 1}, "kv_heads == H, got 1"),
        ("naive", {"window": 3}, r"window == 0 \(none\), got 3"),
        ("cublas", {"softcap": 2.5}, r"softcap == 0 \(none\), got 2.5"),
        ("fused", {"mask": "bool"}, "mask == none, got bool"),
        ("library", {"softcap": 2.0}, "scaled_dot_product_attention has none"),
        ("flash-variants", {}, "one of M, kv_heads, window, softcap and mask must be set"),
        ("flash-decode", {"N": 65, "M": 9}, r"H/kv_heads\*N <= 64, got 65"),
    ],
)
def test_a_rung_that_lacks_a_variant_names_its_rule(rung, fields, rule):
    s = AttentionShape(1, 2, 8, 4).with_(**fields)
    with pytest.raises(RuleError, match=rule):
        attention_ladder.LADDER.rung(f"attention/{rung}").check(s, None)


# -- faults ----------------------------------------------------------------------------------------------
WINDOW, CACHE = KINDS[1].with_(H=1), AttentionShape(1, 2, 1, 8, M=50, kv_heads=1)
FAULTS = {  # what is wrong: (the rung, its shape, the launch, original code, faulty code)
    "a part that is not rescaled": ("flash-decode", CACHE, 1, "o += rescale * part_o", "o += part_o"),
    "the last part left out": ("flash-decode", CACHE, 1, "part < parts; ++part) {", "part < parts - 1; ++part) {"),
    "no barrier before the softmax": (
        "flash-decode",
        CACHE,
        0,
        "  __syncthreads();\n\n  // The softmax",
        "\n  // The softmax",
    ),
    "the first tile of a window left out": ("flash-variants", WINDOW, 0, "/ Bc * Bc;", "/ Bc * Bc + Bc;"),
    "heads of keys in the wrong order": (
        "flash-mma-variants",
        KINDS[0],
        0,
        "shared_head(blockIdx.y, sharing)",
        "(blockIdx.y % (gridDim.y / sharing))",
    ),
    "a window's first tile, at the start of the keys": (
        "flash-wgmma-variants",
        WIDE[0],
        0,
        "int key = key_begin + tile * Bc;",
        "int key = tile * Bc;",
    ),
    "no base for a row without keys": ("flash-variants", KINDS[4], 0, "new_m == -INFINITE ? 0.0f : new_m", "new_m"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_kernel_is_detected(fault):
    name, s, nth, right, wrong = FAULTS[fault]
    s, rung = s.with_(dtype="fp16" if "mma" in name else "fp32"), RUNGS[name]
    tiles = {"PART": 16, "THREADS": 64, "BATCH": 2} if name == "flash-decode" else SMALL[name]
    program = rung.build(s, rung.check(s, tiles))
    inputs = inputs_of(s)
    with np.errstate(all="ignore"):
        rung_runs.assert_fault_in_launch_is_detected(rung, s, program, inputs, nth, right, wrong)


# -- a bias that hides every key of a row ------------------------------------------------------------------
BIASED = {
    "flash-variants": ("fp32", np.float32),
    "flash-mma-variants": ("fp16", np.float16),
    "flash-wgmma-variants": ("bf16", ml_dtypes.bfloat16),
    "flash-decode": ("fp32", np.float32),
    "flash-decode-ring": ("bf16", ml_dtypes.bfloat16),
}


@needs_nvrtc
@pytest.mark.parametrize("name", BIASED)
def test_a_row_of_the_lowest_bias_is_the_mean_of_its_values(name):
    """PyTorch adds the bias in float32: the scores are lost, and all keys have the same weight. FP16 keeps the scores."""
    dtype, kind = BIASED[name]
    rung = attention_ladder.LADDER.rung(f"attention/{name}")
    s = AttentionShape(1, 2, 9, 16, M=70, mask="bias", dtype=dtype)
    limits = ml_dtypes.finfo(kind)
    inputs = inputs_of(s)
    bias = inputs["mask"].astype(np.float32)
    bias[0], bias[1, 3:], bias[2] = limits.min, limits.min, limits.max
    if dtype != "fp16":
        bias[3] = -1e10
    inputs["mask"] = bias.astype(kind)
    values = inputs["V"].astype(np.float64)
    lost = (0, 2) if dtype == "fp16" else (0, 2, 3)
    for engine in (cpu, emulator):
        out = verified_output(engine, rung, s, SMALL.get(name), inputs).astype(np.float64)
        if dtype == "fp16":
            assert np.abs(out[:, :, lost]).max() > 0.05
        else:
            error = np.abs(out[:, :, lost] - values.mean(axis=2, keepdims=True)).max()
            assert error < (1e-6 if dtype == "fp32" else 4e-3)
    ref, scale = reference(s, **inputs)
    for row in lost:
        wrong = ref.copy()
        wrong[:, :, row] = 0
        assert not agrees(wrong, ref, scale, rung.tolerance), row


def test_a_bias_that_hides_some_keys_leaves_the_others():
    """The lowest number beside 0 is a mask: the hidden keys have no weight."""
    s = AttentionShape(1, 1, 5, 8, M=20, mask="bias")
    inputs = inputs_of(s)
    inputs["mask"] = np.where(np.arange(20) % 3, np.finfo(np.float32).min, np.zeros((5, 1))).astype("f4")
    seen = {name: x[:, :, ::3] for name, x in inputs.items() if name in "KV"}
    expected, _ = reference(AttentionShape(1, 1, 5, 8, M=7), inputs["Q"], **seen)
    for name in ("flash-variants", "flash-decode"):
        out = verified_output(cpu, RUNGS[name], s, SMALL[name], inputs)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_a_bias_of_minus_infinity_hides_a_row():
    """Its result is 0, as before; a whole row of the lowest number is not hidden."""
    s = AttentionShape(1, 1, 3, 8, M=20, mask="bias")
    inputs = inputs_of(s)
    inputs["mask"] = np.array([[-np.inf], [np.finfo(np.float32).min], [0]], "f4") + np.zeros((3, 20), "f4")
    for name in ("flash-variants", "flash-decode"):
        for engine in (cpu, emulator):
            out, _ = rung_runs.computed(engine, RUNGS[name], s, SMALL[name], inputs)
            assert not out[0, 0, 0].any()
            np.testing.assert_allclose(out[0, 0, 1], inputs["V"][0, 0].mean(axis=0), atol=1e-6)
