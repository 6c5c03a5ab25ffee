"""INT8 quantisation: exact where it must be, bounded elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.precision import quantize
from kernels.precision.quantize import CALIBRATIONS, by_channel, by_extremes, of_range

seeds = st.integers(0, 2**32 - 1)


def values(seed: int, shape=(7, 5), offset: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3) + offset


@settings(max_examples=20)
@given(seed=seeds, symmetric=st.booleans(), offset=st.floats(-100, 100))
def test_values_in_the_range_are_wrong_by_half_a_step_at_most(seed, symmetric, offset):
    x = values(seed, offset=offset)
    q = by_extremes(x, symmetric)
    # The rounded zero point costs a clamped end up to half a step more.
    assert np.abs(q.dequantize(q.quantize(x)) - x).max() <= q.scale.max() * (0.5 if symmetric else 1.0) * (1 + 1e-9)


@settings(max_examples=20)
@given(seed=seeds, symmetric=st.booleans())
def test_zero_is_exact(seed, symmetric):
    q = by_extremes(np.abs(values(seed)) + 1, symmetric)
    assert q.dequantize(q.quantize(np.zeros(3))).tolist() == [0, 0, 0]


@settings(max_examples=20)
@given(seed=seeds)
def test_a_scale_for_each_channel_is_never_coarser(seed):
    x = values(seed) * np.array([1.0, 10, 100, 0, 1e3, 1e-3, 1])[:, None]
    whole, channels = by_extremes(x, True), by_channel(x)
    assert channels.scale.shape == (7,)
    assert (channels.scale[np.abs(x).max(axis=1) > 0] <= whole.scale * (1 + 1e-12)).all()
    assert quantize.error(x, channels) <= quantize.error(x, whole) * (1 + 1e-9)


@settings(max_examples=20)
@given(seed=seeds, symmetric=st.booleans())
def test_the_calibration_by_error_is_the_best(seed, symmetric):
    x = values(seed, (40, 10))
    x[0, 0] *= 50  # an outlier
    errors = {name: quantize.error(x, calibrate(x, symmetric)) for name, calibrate in CALIBRATIONS.items()}
    assert errors["error"] <= errors["extremes"] * (1 + 1e-9)


@pytest.mark.parametrize("symmetric", [True, False])
@settings(max_examples=20)
@given(seed=seeds)
def test_the_product_of_whole_numbers_is_that_of_the_dequantised(seed, symmetric):
    a, b = values(seed, (4, 9), 1.0), values(seed + 1, (9, 3))
    qa = by_extremes(a, symmetric)
    for qb in (by_channel(b, axis=1), by_extremes(b, symmetric)):
        expected = qa.dequantize(qa.quantize(a)) @ qb.dequantize(qb.quantize(b))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(quantize.product(a, b, qa, qb), expected, rtol=1e-9, atol=1e-9 * scale)


def test_equal_values_have_a_scale():
    q = of_range(0.0, 0.0, symmetric=False)
    assert q.scale == 1 and q.dequantize(q.quantize(np.zeros(2))).tolist() == [0, 0]
