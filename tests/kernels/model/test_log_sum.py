# ruff: noqa: E741  # O and L are the names of the paper
"""The log-sum-exp of rows with infinities and NaN is that of PyTorch: of the reference and of the NumPy kernels."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.attention.lse import cpu as lse_cpu
from kernels.attention.lse.reference import attention_lse
from kernels.attention.lse.shape import LseShape
from kernels.cross_entropy import cpu, reference
from kernels.cross_entropy.shape import CrossEntropyShape

ROWS = np.array([[1, 2, 3], [1, np.inf, 3], [np.inf, np.inf, 0], [1, np.nan, 2], [np.nan, np.inf, 1]], np.float32)
EXPECTED = [np.log(np.exp([1.0, 2.0, 3.0]).sum()), np.inf, np.inf, np.nan, np.nan]  # torch.logsumexp


@pytest.mark.parametrize("kernel", ["softmax_rows", "two_pass", "online", "reference", "saved"])
def test_cross_entropy(kernel):
    labels, (loss, lse) = np.zeros(5, np.int32), np.empty((2, 5), np.float32)
    with np.errstate(all="ignore"):
        if kernel == "softmax_rows":
            cpu.softmax_rows(ROWS, np.empty_like(ROWS), lse, 3)
        elif kernel == "reference":
            found = reference.forward(CrossEntropyShape(5, 3), ROWS, labels)
            lse, loss = found["lse"][0], found["loss"][0]
        elif kernel == "saved":
            lse = reference.log_sum_exp(ROWS)
        else:
            getattr(cpu, kernel)(ROWS, labels, loss, lse, 3)
    np.testing.assert_allclose(lse, EXPECTED, rtol=1e-6)
    if kernel in ("two_pass", "online", "reference"):  # log_softmax of a row with an infinity is NaN
        assert np.isnan(loss).tolist() == [False, True, True, True, True]


def test_attention():
    """Products that exceed float32 are infinite."""
    s = LseShape(1, 1, 2, 2)
    Q = np.array([[[[1e30, 0], [1, 0]]]], np.float32)
    K, V = np.full((2, 1, 1, 2, 2), 1e30, np.float32)
    for compute in (lse_cpu.flash(2, 1), lse_cpu.flash(2, 2)):
        O, L = np.empty_like(Q), np.empty((1, 1, 2), np.float32)
        with np.errstate(all="ignore"):
            compute(Q, K, V, O, L, 2, 2, np.float32(s.factor), 0)
        assert np.isposinf(L[0, 0, 0]) and np.isfinite(L[0, 0, 1])
        assert np.isnan(O[0, 0, 0]).all() and np.isfinite(O[0, 0, 1]).all()
    S = np.array([[[[np.inf, 1], [1, 2]]]], np.float32)
    P, L = np.empty_like(S), np.empty((1, 1, 2), np.float32)
    with np.errstate(all="ignore"):
        lse_cpu.softmax(S, P, L, 2, 2, 0)
    assert np.isposinf(L[0, 0, 0]) and np.isfinite(L[0, 0, 1]) and np.isnan(P[0, 0, 0]).all()
    found = attention_lse(s, Q, K, V)["L"][0]
    assert np.isfinite(found).all()  # float64 holds 1e60
