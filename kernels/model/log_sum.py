"""The log-sum-exp of rows from their maxima and sums."""

from __future__ import annotations

import numpy as np


def log_sum_exp(m: np.ndarray, l: np.ndarray) -> np.ndarray:  # noqa: E741  # the names of the paper
    """Returns m + log(l), where l is the sum of exp(x - m) and m the maximum of a row. As in PyTorch, a row with +infinity
    gives +infinity: there x - m is NaN. A NaN in the row, which is its maximum then, gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.isposinf(m), m, m + np.log(l))
