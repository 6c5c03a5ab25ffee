"""Number formats against NumPy's and ml_dtypes' own types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.precision import formats
from kernels.precision.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, TF32
from tests.helpers.offenders import every

TYPES = {
    FP32: np.float32,
    FP16: np.float16,
    BF16: ml_dtypes.bfloat16,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32}
every_type = pytest.mark.parametrize("f", TYPES, ids=lambda f: f.name)
# float32: ml_dtypes rounds float64 in two steps, by way of float32.
numbers = st.one_of(
    st.floats(width=32), st.floats(-2.0, 2.0, width=32), st.floats(-500.0, 500.0, width=32), st.just(-0.0)
)


@every_type
@given(x=numbers)
def test_rounding_is_that_of_the_type(f, x):
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.float32(x).astype(TYPES[f]).astype(np.float64)
    actual = formats.rounded(x, f)
    np.testing.assert_array_equal(actual, expected)
    if not np.isnan(expected):
        assert np.signbit(actual) == np.signbit(expected)


@every_type
def test_a_pattern_is_its_value_and_back(f):
    """Every pattern of 8 bits; of longer ones every 61st, and those around zero, infinity and NaN."""
    count, step = 2**f.bits, 1 if f.bits == 8 else 61 * 2 ** (f.bits - 16)
    infinity = (2**f.exponent_bits - 1) << f.mantissa_bits
    edges = [n % count for edge in (0, infinity, infinity + count // 2) for n in range(edge - 3, edge + 4)]
    patterns = [*range(0, count, step), *edges]
    with np.errstate(invalid="ignore"):
        stored = np.array(patterns, UNSIGNED[f.bits]).view(TYPES[f]).astype(np.float64)
    for pattern, expected in zip(patterns, stored.tolist(), strict=True):
        value = formats.value(pattern, f)
        assert value == expected or (np.isnan(value) and np.isnan(expected))
        if not np.isnan(value):
            assert formats.pattern(value, f) == pattern


@every_type
def test_limits_are_those_of_the_type(f):
    info = ml_dtypes.finfo(TYPES[f])
    assert f.max == float(info.max) and f.tiny == float(info.smallest_subnormal)
    assert f.epsilon == float(info.eps) and f.bits == info.bits


@given(x=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_tf32_keeps_ten_bits_of_the_mantissa(x):
    bits = np.float32(x).view(np.uint32)
    even = bits >> 13 & 1
    expected = ((bits + 0xFFF + even) & 0xFFFFE000).view(np.float32)
    np.testing.assert_array_equal(formats.rounded(x, TF32), np.float64(expected))


@every("f", FORMATS.values(), ids=lambda f: f.name)
def test_a_saturated_value_is_the_largest(f):
    np.testing.assert_array_equal(formats.rounded([4 * f.max, -np.inf, 1.0], f, saturate=True), [f.max, -f.max, 1.0])


def test_losses_are_shares_of_the_values_that_are_not_zero():
    x = np.array([0.0, 2.0**-30, 2.0**-24, 1.0, 1e6])
    lost = formats.losses(x, FP16)
    assert (lost.underflow, lost.subnormal, lost.overflow) == (0.25, 0.25, 0.25)
    assert formats.losses(x, FP16, scale=2.0**10).underflow == 0
    assert formats.losses(np.zeros(3), FP16) == formats.Losses(0, 0, 0)
