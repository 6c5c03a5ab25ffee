"""Sums of FP8 products: what Hopper's tensor cores keep and lose, and sums of an H200 bit by bit."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.model.fp8_sums import DEPTH, FRACTION, MIN_EXPONENT, added, cut, exponents, product

FLOAT8 = ml_dtypes.float8_e4m3fn
FIXTURE = Path(__file__).parents[2] / "fixtures" / "fp8_sums_h200.npz"


def factors(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-5, 6, shape)).astype(FLOAT8).astype(np.float64)


@pytest.mark.parametrize("kind", ["normal", "wide"])
def test_the_sums_are_those_of_an_h200(kind):
    """C [24, 24] of gemm-8bit/wgmma-fp8, K = 256: numbers of one size, and 2^-5 to 2^5 times as large."""
    with np.load(FIXTURE) as found:
        A, B, C = (found[f"{name}_{kind}"] for name in "ABC")
    np.testing.assert_array_equal(product(A.view(FLOAT8), B.view(FLOAT8)), C)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_sum_loses_less_than_one_unit_for_each_number(seed):
    a, b, total = factors(seed, DEPTH), factors(seed + 1, DEPTH), np.array(factors(seed + 2, 1)[0])
    largest = max(4 * np.abs(a * b).max(), abs(total))  # the factors' exponents add up to at most that of 4 times
    unit = 2.0 ** (np.floor(np.log2(max(largest, 2.0**-12))) - FRACTION)
    result = added(total, a, b)
    assert abs(result - (total + (a * b).sum())) <= (DEPTH + 1) * unit + abs(result) * 2.0 ** (1 - FRACTION)
    assert result == cut(result)


@given(seed=st.integers(0, 2**32 - 1))
def test_order_and_sign_of_the_products_change_nothing(seed):
    a, b, total = factors(seed, DEPTH), factors(seed + 1, DEPTH), np.array(1.5)
    assert added(total, a, b) == added(total, a[::-1], b[::-1]) == -added(-total, -a, b)


def test_small_whole_numbers_are_exact():
    rng = np.random.default_rng(0)
    sums, a, b = (rng.integers(-3, 4, shape).astype(float) for shape in ((5, 7), (5, 1, DEPTH), (7, DEPTH)))
    np.testing.assert_array_equal(added(sums, a, b), sums + (a * b).sum(axis=-1))


def test_a_product_below_the_last_bit_is_lost():
    one = np.array(1.0)
    kept, lost = 2.0 ** (MIN_EXPONENT - 7), 2.0 ** (MIN_EXPONENT - 8)
    assert added(one, np.array([2.0**MIN_EXPONENT]), np.array([2.0**-7])) == 1 + kept
    assert added(one, np.array([2.0**MIN_EXPONENT]), np.array([2.0**-8])) == 1
    assert added(np.array(0.0), np.array([2.0**MIN_EXPONENT]), np.array([2.0**-8])) == lost


def test_promoted_sums_are_those_of_pieces():
    A, B = factors(0, 3, 300), factors(1, 4, 300)
    pieces = [product(A[:, k : k + 128], B[:, k : k + 128]) for k in (0, 128, 256)]
    np.testing.assert_array_equal(product(A, B, 128), pieces[0] + pieces[1] + pieces[2])


def test_zeros_have_the_smallest_exponent():
    assert exponents(np.array([0.0, 1.0, -0.75, 448.0])).tolist()[1:] == [0, -1, 8]
    assert added(np.zeros(3), np.zeros((3, DEPTH)), np.zeros((3, DEPTH))).tolist() == [0, 0, 0]
