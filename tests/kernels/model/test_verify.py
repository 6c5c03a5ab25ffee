"""The error of a result is finite and strict where the exact value is 0, and numbers below 2^-126 are verified too."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.conv.shape import ConvShape
from kernels.elementwise.shape import ResidualShape
from kernels.gemm.shape import GemmShape
from kernels.model.verify import agrees, relative_error
from kernels.runner import compare
from tests.helpers.offenders import every

ZEROS, ONES = np.zeros(4), np.ones(4)


@every(
    ("out", "ref", "scale", "error", "right"),
    [
        (ONES * 1.5, ONES, ONES, 0.5, False),
        (ZEROS, ZEROS, ZEROS, 0.0, True),
        (ZEROS, ZEROS, ONES, 0.0, True),
        (1e-7 * ONES, ZEROS, ONES, 1e-7, True),  # a sum of terms that cancel
        (1e-7 * ONES, 1e-17 * ONES, ONES, 1e-7, True),
        (1e-3 * ONES, ZEROS, ONES, 1e-3, False),
        (1e-7 * ONES, 1e-4 * ONES, ONES, 0.999, False),  # a result that is far from 0 for its scale
        (ONES, ZEROS, ZEROS, 1e-5 * 2.0**137, False),
        (1e-39 * ONES, ZEROS, ZEROS, 1e-5 * 1e-39 * 2.0**137, False),
    ],
)
def test_the_error_at_a_zero_is_relative_to_the_terms(out, ref, scale, error, right):
    assert relative_error(out.astype("f4"), ref, scale, 1e-5) == pytest.approx(error, rel=1e-5)
    assert agrees(out.astype("f4"), ref, scale, 1e-5) == right


def test_without_a_scale_the_error_at_a_zero_is_absolute():
    assert relative_error(3 * ONES, ZEROS) == 6.0 and relative_error(ZEROS, ZEROS) == 0.0
    assert relative_error(np.array([np.nan]), ONES[:1]) == np.inf


CANCELS = {
    "a sum": ("residual/scalar", ResidualShape(1, 1, 1, 8), {"a": np.ones((1, 1, 1, 8)), "b": -np.ones((1, 1, 1, 8))}),
    "a product": ("gemm/naive", GemmShape(4, 4, 2), {"A": np.tile([1.0, -1.0], (4, 1)), "B": np.full((2, 4), 0.1)}),
    "a convolution by FFT": (
        "conv/fft",
        ConvShape(1, 1, 8, 8, 1, 3, 3),
        {"x": np.ones((1, 1, 8, 8)), "w": np.tile([1.0, -1.0, 0.0], 3).reshape(1, 1, 3, 3)},
    ),
}


@pytest.mark.parametrize("case", CANCELS)
@pytest.mark.parametrize("engine", ["cpu", "emulator"])
def test_a_result_that_cancels_has_a_small_error(case, engine):
    """It was infinite or 1e8. JSON has no infinity."""
    name, shape, inputs = CANCELS[case]
    (result,) = compare([name], shape, inputs, engine, measure=False)
    assert 0 <= result.error < 1e-6


@pytest.mark.parametrize("engine", ["cpu", "emulator"])
@pytest.mark.parametrize("other", [1e-39, 0.3])
def test_products_of_subnormal_numbers_are_right(engine, other):
    """PyTorch keeps numbers below 2^-126 in float32. Products of two become 0, and others are rounded to 2^-149."""
    shape = GemmShape(8, 8, 8)
    rng = np.random.default_rng(0)
    inputs = {"A": 1e-39 * rng.standard_normal((8, 8)), "B": other * rng.standard_normal((8, 8))}
    (result,) = compare(["gemm/naive"], shape, inputs, engine, measure=False)
    assert np.any(result.output) == (other == 0.3) and result.error < 1e-3
    flushed = np.zeros_like(result.output)
    a, b = (inputs[key].astype("f4").astype("f8") for key in "AB")
    assert agrees(flushed, a @ b, np.abs(a) @ np.abs(b), 1e-5) == (other == 1e-39)
