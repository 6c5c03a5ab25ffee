"""Sums of FP8 products: what Hopper's tensor cores keep and lose."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernels.model.fp8_sums import DEPTH, FRACTION, added, cut, exponents


def products(seed: int, n: int = DEPTH) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 2.0 ** rng.integers(-4, 5, n)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_sum_loses_less_than_one_unit_for_each_number(seed):
    x, total = products(seed), np.array(products(seed + 1, 1)[0])
    largest = max(np.abs(x).max(), abs(total))
    unit = 2.0 ** (np.floor(np.log2(largest)) - FRACTION)
    result = added(total, x)
    assert abs(result - (total + x.sum())) < (DEPTH + 1) * unit + abs(result) * 2.0**-FRACTION
    assert result == cut(result)


@given(seed=st.integers(0, 2**32 - 1))
def test_order_and_sign_of_the_products_change_nothing(seed):
    x, total = products(seed), np.array(1.5)
    assert added(total, x) == added(total, x[::-1]) == -added(-total, -x)


def test_small_whole_numbers_are_exact():
    rng = np.random.default_rng(0)
    sums, x = rng.integers(-9, 9, (5, 7)).astype(float), rng.integers(-9, 10, (5, 7, DEPTH)).astype(float)
    np.testing.assert_array_equal(added(sums, x), sums + x.sum(axis=-1))


def test_a_product_below_the_last_bit_is_lost():
    one = np.array(1.0)
    kept, lost = 2.0**-FRACTION, 2.0 ** (-FRACTION - 1)
    assert added(one, np.array([kept])) == 1 + kept and added(one, np.array([lost])) == 1
    assert added(np.array(0.0), np.array([lost])) == lost  # nothing larger is there


def test_zeros_have_the_smallest_exponent():
    assert exponents(np.array([0.0, 1.0, -0.75, 448.0])).tolist()[1:] == [0, -1, 8]
    assert added(np.zeros(3), np.zeros((3, DEPTH))).tolist() == [0, 0, 0]
