"""An embedding and its gradient in float64, and the tokens of each distribution."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from kernels.embedding.shape import EQUAL, ZIPF, EmbeddingBackwardShape, EmbeddingShape
from kernels.model.verify import Reference

TOLERANCE = 1e-5  # of the sum of absolute values, for the gradient; rows are copied exactly
MAX_COUNTED = 2**20  # tokens of a vocabulary whose probabilities are listed


def forward(s: EmbeddingShape, tokens: np.ndarray, table: np.ndarray) -> Reference:
    """Returns (y, scale), float64 [M, d]: the rows of the table, and their absolute values."""
    y = table[tokens].astype(np.float64)
    return y, np.abs(y)


def backward(s: EmbeddingBackwardShape, tokens: np.ndarray, dy: np.ndarray) -> Reference:
    """Returns (dtable, scale), float64 [V, d]: the sums of the rows of dy by token, and those of absolute values."""
    order = np.argsort(tokens, kind="stable")
    found, start = np.unique(tokens[order], return_index=True)
    rows = dy[order].astype(np.float64)
    dtable, scale = np.zeros((2, s.V, s.d))
    dtable[found] = np.add.reduceat(rows, start, axis=0)
    scale[found] = np.add.reduceat(np.abs(rows, out=rows), start, axis=0)
    return dtable, scale


def distributed(s: EmbeddingShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the tokens of the shape's distribution, made from uniform ones."""
    tokens = inputs["tokens"]
    if s.tokens == ZIPF:  # the logarithm of token + 1 is uniform
        share = (tokens + 0.5) / s.V
        return {"tokens": np.minimum((s.V + 1.0) ** share - 1, s.V - 1).astype(np.int32)}
    if s.tokens == EQUAL:
        return {"tokens": np.full_like(tokens, tokens[0])}
    return {}


@cache
def rows_used(s: EmbeddingShape) -> int:
    """Returns how many rows of the table M random tokens are expected to name: with the probabilities p of the tokens, the
    sum of 1 - (1 - p)^M. Of a vocabulary above MAX_COUNTED, at most: M or V."""
    if s.tokens == EQUAL:
        return 1
    if s.V > MAX_COUNTED:
        return min(s.M, s.V)
    uniform = {"tokens": np.arange(s.V, dtype=np.int32)}
    _, counts = np.unique((uniform | distributed(s, uniform))["tokens"], return_counts=True)
    return max(1, round(float(np.sum(1 - (1 - counts / s.V) ** s.M))))
