"""Sums in few bits: against additions one by one in the type itself. Energies: the percentages of the course."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.ladders import find
from kernels.precision import energy, sums
from kernels.precision.formats import BF16, FP16, FP32

TYPES = {FP16: np.float16, FP32: np.float32, BF16: ml_dtypes.bfloat16}


@pytest.mark.parametrize("f", TYPES, ids=lambda f: f.name)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 200))
def test_each_addition_is_rounded(f, seed, n):
    x = sums.terms(seed)[:n]
    dtype, total, expected = TYPES[f], TYPES[f](0), []
    for term in x:
        total = dtype(total + dtype(term))
        expected.append(float(total))
    np.testing.assert_array_equal(sums.running(x, f), expected)


@given(seed=st.integers(0, 2**32 - 1))
def test_parts_are_better_than_one_sum(seed):
    x = sums.terms(seed)
    exact = x.sum()
    parts, whole = sums.in_parts(x)[-1], sums.running(x, FP16)[-1]
    assert abs(parts - exact) < 1e-3 * exact < 0.5 * exact < abs(whole - exact)


def test_terms_are_exact_in_both_short_formats():
    x = sums.terms()
    assert len(x) == 2**sums.MAX_POWER
    for dtype in (np.float16, ml_dtypes.bfloat16):
        np.testing.assert_array_equal(x.astype(dtype).astype(np.float64), x)


def test_a_sum_in_fp16_stops_at_2048():
    found = sums.measured()
    assert found["fp16"][-1] == found["fp16"][-2] == 2048 and found["bf16"][-1] == 256
    assert found["fp32"][-1] == found["exact"][-1]


def test_promotion_keeps_a_sum_of_fp8_products_exact_to_a_thousandth():
    found = sums.fp8_measured()
    off = {name: np.abs(found[name] - found["exact"]) / found["exact"] for name in sums.FP8_WAYS}
    short = 2 ** np.arange(sums.MAX_POWER + 1) <= sums.PROMOTED
    np.testing.assert_array_equal(off["fp8"][short], off["promoted"][short])
    assert off["promoted"].max() < 1e-3 < 0.1 < off["fp8"][-1]


def test_the_overheads_follow_from_the_energies():
    found = {one.name: round(100 * one.overhead) for one in energy.INSTRUCTIONS}
    assert found == {"HFMA": 2000, "HDP4A": 500, "HMMA": 27}
    per_mac = [one.pj_per_mac for one in energy.INSTRUCTIONS]
    assert per_mac == sorted(per_mac, reverse=True)
    for one in energy.INSTRUCTIONS:
        assert find(one.rung).name == one.rung
