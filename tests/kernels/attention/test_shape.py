"""AttentionShape: valid and invalid values, derived sizes; its presets; the reference and its error scale."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import ladder as attention_ladder
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import TOLERANCE
from kernels.attention.reference import attention as reference
from kernels.attention.shape import DTYPES, AttentionShape, parse_attention
from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.presets import GEMM_PRESETS
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import ShapeError
from kernels.records import availability
from kernels.records.jsontext import canonical
from kernels.runner import seeded_inputs
from tests.helpers.offenders import every
from tests.helpers.shapes import attention_shapes

extents = st.integers(1, 2**12)
scales = st.floats(-1e6, 1e6, width=32)


@given(extents, extents, extents, extents, st.integers(0, 1), scales, st.sampled_from(DTYPES))
def test_shape_survives_json_and_text(B, H, N, d, causal, scale, dtype):
    s = AttentionShape(B, H, N, d, causal, scale, dtype)
    assert AttentionShape(**json.loads(canonical(s.params()))) == s
    assert parse_attention(",".join(f"{name}={value}" for name, value in s.params().items())) == s
    assert s.with_(N=N) == s and f"B{B} H{H} N{N} d{d}" in str(s)
    assert s.flops == 2 * s.macs
    assert s.with_(causal=0).flops == 4 * B * H * N * N * d
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.N = 1


def test_causal_counts_visible_pairs():
    for N in (1, 2, 7):
        pairs = sum(1 for i in range(N) for j in range(N) if j <= i)
        assert AttentionShape(2, 3, N, 5, causal=1).flops == 4 * 2 * 3 * 5 * pairs


def test_default_scale_is_one_over_the_root_of_d():
    assert AttentionShape(1, 1, 1, 64).factor == 1 / 8
    assert AttentionShape(1, 1, 1, 64, scale=-2).factor == -2
    assert AttentionShape(1, 1, 1, 3, True, 1) == parse_attention("B=1, H=1, N=1, d=3, causal=1, scale=1")
    assert str(AttentionShape(1, 2, 3, 4, 1, 0.5, "fp16")) == "B1 H2 N3 d4 causal scale 0.5 fp16"


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_equal_those_of_the_buffers(dtype):
    s = AttentionShape(2, 3, 5, 7, dtype=dtype)
    assert s.bytes == ELEMENT_BYTES[dtype] * 4 * 2 * 3 * 5 * 7
    assert s.bytes == sum(b.nbytes for b in attention_ladder.parts.buffers(s))


@every(
    ("fields", "message"),
    [
        ({"N": 0}, r"N must be in 1 .. 2147483647, got 0"),
        ({"d": 1.5}, "d must be a whole number, got 1.5"),
        ({"causal": 2}, "causal must be 0 or 1, got 2"),
        ({"scale": float("nan")}, "scale must be finite in float32, got nan"),
        ({"scale": "1"}, "scale must be a number, got '1'"),
        ({"dtype": "int8"}, "dtype must be one of fp32, fp16, bf16, got 'int8'"),
    ],
)
def test_invalid_shape_is_explained(fields, message):
    with pytest.raises(ShapeError, match=message):
        AttentionShape(**({"B": 1, "H": 1, "N": 1, "d": 1} | fields))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B=1,H=1,N=2", "missing d"),
        ("B=1,H=1,N=2,d=3,K=4", "no field 'K'; there are: B, H, N, d, causal, scale, dtype, M, "),
        ("B=1,H=1,N=2,d=3,N=4", "N is given twice"),
        ("B=1,H=1,N=2,d=3,scale=x", "scale must be a number, got 'x'"),
    ],
)
def test_malformed_text_is_explained(text, message):
    with pytest.raises(ShapeError, match=message):
        parse_attention(text)


VARIANTS = {"attention/flash-variants", "attention/flash-decode"}


def test_presets_cover_every_kind_and_fp32_presets_have_rungs():
    shapes = [p.shape for p in ATTENTION_PRESETS.values()]
    assert len(set(shapes)) == len(shapes)
    assert {s.dtype for s in shapes} == set(DTYPES) and {s.causal for s in shapes} == {0, 1}
    assert not set(ATTENTION_PRESETS) & (set(CONV_PRESETS) | set(GEMM_PRESETS))
    for key, preset in ATTENTION_PRESETS.items():
        assert preset.key == key and preset.source and preset.label
        if preset.shape.dtype == "fp32":
            supported = {
                r.name for r in availability.supported_rungs(attention_ladder.LADDER, "emulator", preset.shape)
            }
            plain = {r.name for r in (*attention_ladder.RUNGS, attention_ladder.CUBLAS)}
            assert supported <= VARIANTS and supported if preset.shape.variants else supported == plain, key


# -- the reference ----------------------------------------------------------------------------------
def inputs_of(s: AttentionShape, seed: int = 0) -> dict[str, np.ndarray]:
    return seeded_inputs([b for b in attention_ladder.parts.buffers(s) if b.role == "input"], seed)


@settings(max_examples=30)
@given(shape=attention_shapes(max_extent=7, max_d=5), seed=st.integers(0, 99))
def test_reference_equals_the_definition_key_by_key(shape, seed):
    inputs = inputs_of(shape, seed)
    Q, K, V = (inputs[name].astype("f8") for name in "QKV")
    ref, scale = reference(shape, **inputs)
    assert ref.shape == scale.shape == shape.qkv_shape and (scale >= np.abs(ref)).all()
    factor = float(np.float32(shape.factor))
    for b, h, i in np.ndindex(shape.B, shape.H, shape.N):
        keys = range(i + 1 if shape.causal else shape.N)
        logits = [factor * sum(Q[b, h, i] * K[b, h, j]) for j in keys]
        sizes = [abs(factor) * sum(abs(Q[b, h, i] * K[b, h, j])) for j in keys]
        p = [math.exp(x - max(logits)) for x in logits]
        p = [x / sum(p) for x in p]
        np.testing.assert_allclose(ref[b, h, i], sum(w * V[b, h, j] for w, j in zip(p, keys, strict=True)), atol=1e-13)
        mean = sum(w * a for w, a in zip(p, sizes, strict=True))
        terms = (w * abs(V[b, h, j]) * (1 + a + mean) for w, a, j in zip(p, sizes, keys, strict=True))
        np.testing.assert_allclose(scale[b, h, i], sum(terms), rtol=1e-10)


def test_reference_does_not_depend_on_chunk_size(monkeypatch):
    shape = AttentionShape(2, 2, 33, 6, causal=1)
    inputs = inputs_of(shape)
    at_once = reference(shape, **inputs)
    monkeypatch.setattr("kernels.attention.reference.CHUNK", 70)
    for at_once_value, chunked_value in zip(at_once, reference(shape, **inputs), strict=True):
        np.testing.assert_allclose(at_once_value, chunked_value, rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_scale_allows_float32_errors_and_little_more(size):
    """Scores wrong by one part in 2^24 of their terms, as a float32 sum may be, are within the tolerance.

    Scores wrong by a thousandth are not. At size 30 the logits are about 10^4.
    """
    shape = AttentionShape(1, 2, 50, 16)
    inputs = {name: size * x if name != "V" else x for name, x in inputs_of(shape).items()}
    ref, scale = reference(shape, **inputs)
    for relative, within in ((2.0**-24, True), (1e-3, False)):
        rng = np.random.default_rng(1)
        Q, K, V = (inputs[name].astype("f8") for name in "QKV")
        logits, sizes = (f(Q) @ f(K).swapaxes(2, 3) / 4 for f in (np.asarray, np.abs))
        logits += relative * sizes * rng.choice([-1, 1], logits.shape)
        p = np.exp(logits - logits.max(axis=3, keepdims=True))
        out = p @ V / p.sum(axis=3, keepdims=True)
        assert (np.abs(out - ref) <= TOLERANCE * scale).all() == within
