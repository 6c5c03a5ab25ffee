"""GemmShape: valid and invalid values, derived sizes; its presets; and input values of each type."""

from __future__ import annotations

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.gemm import ladder as gemm_ladder
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape, parse_gemm
from kernels.model import values
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.program import INPUT, Buffer, RuleError
from kernels.model.shape import ShapeError
from kernels.records.jsontext import canonical
from kernels.runner import seeded_inputs
from tests.helpers.offenders import every

extents = st.integers(1, 2**20)
factors = st.floats(-1e6, 1e6, width=32)


@given(extents, extents, extents, factors, factors, st.sampled_from(["fp32", "fp16", "bf16"]))
def test_shape_survives_json_and_text(M, N, K, alpha, beta, dtype):
    s = GemmShape(M, N, K, alpha, beta, dtype)
    assert GemmShape(**json.loads(canonical(s.params()))) == s
    assert parse_gemm(",".join(f"{name}={value}" for name, value in s.params().items())) == s
    assert s.with_(M=M) == s and f"M{M} N{N} K{K}" in str(s)
    assert s.flops == 2 * s.macs == 2 * M * N * K
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.M = 1


def test_whole_factors_and_floats_are_the_same_shape():
    assert GemmShape(1, 2, 3, 1, 0) == GemmShape(1, 2, 3) == parse_gemm("M=1, N=2, K=3")
    assert canonical(GemmShape(1, 2, 3, 1, 0).params()) == canonical(GemmShape(1, 2, 3).params())
    assert str(GemmShape(1, 2, 3, 2, 0.5, "fp16")) == "M1 N2 K3 alpha 2 beta 0.5 fp16"


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        (GemmShape(2, 3, 5), 4 * (10 + 15 + 6)),
        (GemmShape(2, 3, 5, beta=1), 4 * (10 + 15 + 12)),
        (GemmShape(2, 3, 5, dtype="bf16"), 2 * 25 + 4 * 6),
        (GemmShape(2, 3, 5, beta=-1, dtype="int8"), 25 + 4 * 12),
    ],
)
def test_bytes_equal_those_of_the_buffers(shape, nbytes):
    assert shape.bytes == nbytes == sum(b.nbytes for b in gemm_ladder.common.buffers(shape))


@every(
    ("fields", "message"),
    [
        ({"M": 0}, r"M must be in 1 .. 2147483647, got 0"),
        ({"K": 1.5}, "K must be a whole number, got 1.5"),
        ({"alpha": float("nan")}, "alpha must be finite in float32, got nan"),
        ({"beta": 1e39}, "beta must be finite in float32"),
        ({"alpha": "1"}, "alpha must be a number, got '1'"),
        ({"beta": True}, "beta must be a number, got True"),
        ({"dtype": "fp8"}, "dtype must be one of fp32, fp16, bf16, int8, got 'fp8'"),
        ({"dtype": "int8", "alpha": 0.5}, "alpha must be a whole number if dtype is int8, got 0.5"),
        ({"dtype": "int8", "K": 131_072}, r"K\*\|alpha\| <= 131071 if dtype is int8"),
        ({"dtype": "int8", "K": 70_000, "alpha": -2}, r"got 70000\*2"),
    ],
)
def test_invalid_shape_is_explained(fields, message):
    with pytest.raises(ShapeError, match=message):
        GemmShape(**({"M": 1, "N": 1, "K": 1} | fields))


@every(
    ("text", "message"),
    [
        ("M=1,N=2", "missing K"),
        ("M=1,N=2,K=3,L=4", "no field 'L'; there are: M, N, K, alpha, beta, dtype"),
        ("M=1,N=2,K=3,M=4", "M is given twice"),
        ("M=x,N=2,K=3", "M must be a whole number, got 'x'"),
        ("M=1,N=2,K=3,beta=x", "beta must be a number, got 'x'"),
        ("M", "expected NAME=VALUE"),
    ],
)
def test_malformed_text_is_explained(text, message):
    with pytest.raises(ShapeError, match=message):
        parse_gemm(text)


def test_presets_cover_every_kind_and_have_a_rung():
    shapes = [p.shape for p in GEMM_PRESETS.values()]
    assert len(set(shapes)) == len(shapes)
    assert {s.dtype for s in shapes} == set(ELEMENT_BYTES) and {s.beta for s in shapes} == {0, 1}
    for key, preset in GEMM_PRESETS.items():
        assert preset.key == key and preset.source and preset.label
        assert [r for r in gemm_ladder.LADDER.rungs if not any(r.rules(preset.shape, r.default_tiles))], key


# -- values -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_seeded_values_have_the_type_of_their_buffer(dtype):
    shape = GemmShape(50, 60, 70, beta=1, dtype=dtype)
    buffers = [b for b in gemm_ladder.common.buffers(shape) if b.role == INPUT]
    arrays = seeded_inputs(buffers, 7)
    for b in buffers:
        array = arrays[b.name]
        assert (array.dtype, array.shape) == (np.dtype(b.dtype), b.shape)
        values_f64 = array.astype("f8")
        assert len(np.unique(values_f64)) > 100 and abs(values_f64.mean()) < 0.1 * values_f64.std()
        np.testing.assert_array_equal(array, seeded_inputs(buffers, 7)[b.name])
        if dtype == "int8":
            assert (values_f64.min(), values_f64.max()) == (-127, 127)


@every(
    ("dtype", "value", "message"),
    [
        ("int8", [1, 128], r"whole numbers in -128 .. 127 \(int8\)"),
        ("int8", [0.5, 1], "whole numbers"),
        ("int32", [1, np.nan], "whole numbers"),
        ("float16", [1, 70_000], "finite in float16"),
        ("bfloat16", [1, np.inf], "finite in bfloat16"),
        ("float32", [1, 2, 3], r"must have shape \(2,\), got \(3,\)"),
        ("float32", ["a", "b"], "must hold numbers"),
    ],
)
def test_invalid_values_are_named(dtype, value, message):
    with pytest.raises(RuleError, match=message):
        values.checked(Buffer("A", INPUT, (2,), dtype), np.array(value))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32"])
def test_valid_values_are_converted(dtype):
    for value in (np.array([-3, 7]), np.array([-3.0, 7.0]), np.array([-3, 7], ml_dtypes.bfloat16)):
        checked = values.checked(Buffer("A", INPUT, (2,), dtype), value)
        assert checked.dtype == np.dtype(dtype) and checked.astype("f8").tolist() == [-3, 7]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32"])
def test_poison_is_never_a_valid_result(dtype):
    full = np.full(3, values.poison(dtype), dtype).astype("f8")
    assert np.isnan(full).all() or (full == np.iinfo(dtype).min).all()
