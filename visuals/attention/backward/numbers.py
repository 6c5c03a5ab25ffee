"""The numbers of attention's backward pass for the stage, in the order of the kernels' sums and with their rounding."""

# ruff: noqa: E741  # O and L are the names of the paper
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.tensor_cores import MMA
from visuals.attention.flash_numbers import _rounded as rounded
from visuals.attention.flash_numbers import add_product, fma
from visuals.attention.plan import LOG2E
from visuals.scene.requests import LANES

MAX_TERMS = 4096  # of a sum; above, several terms are added at once
Head = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Tile:
    """A tile of queries and keys, float32 [queries, keys]: sums of Q K^T without the scale, P, dP = dO V^T and dS."""

    sums: np.ndarray
    P: np.ndarray
    dP: np.ndarray
    dS: np.ndarray


class Numbers:
    """All numbers of one head. head: Q, K, V, dO, O float32 [N, d] and L [N]. `halves`: "" or the type to which P and dS are
    rounded before they are multiplied on tensor cores. `binary`: exponentials are powers of 2."""

    def __init__(self, s: AttentionBackwardShape, head: Head, halves: str = "", binary: bool = True):
        self.s, self.head, self.halves, self.binary = s, head, halves, binary
        self.scale = np.float32(s.factor)
        self.depth = MMA if halves else 1
        self.D = row_dots(head["dO"], head["O"])

    def visible(self, queries: range, keys: range) -> np.ndarray:
        """Returns bool [queries, keys]: whether the query sees the key."""
        everywhere = np.ones((len(queries), len(keys)), bool)
        return (np.array(keys) <= np.array(queries)[:, None]) if self.s.causal else everywhere

    def tile(self, queries: range, keys: range) -> Tile:
        """Returns the numbers of a tile; both ranges lie inside the head."""
        Q, dO, L, D = (
            x[queries.start : queries.stop] for x in (self.head["Q"], self.head["dO"], self.head["L"], self.D)
        )
        K, V = (self.head[name][keys.start : keys.stop] for name in "KV")
        zeros = np.zeros((len(queries), len(keys)), np.float32)
        sums, dP = (add_product(zeros, a, b.T, self.depth) for a, b in ((Q, K), (dO, V)))
        with np.errstate(over="ignore"):
            if self.binary:
                P = exp2(fma(sums, self.scale * LOG2E, -(L * LOG2E)[:, None]))
            else:
                P = np.exp(fma(sums, self.scale, -L[:, None]))
        P = np.where(self.visible(queries, keys), P, np.float32(0)).astype(np.float32)
        return Tile(sums, P, dP, P * (dP - D[:, None]))

    def add_columns(self, sums: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns sums + weights^T rows, the weights rounded as the kernel rounds them: float32 [keys, d]."""
        return add_product(sums, rounded(weights, self.halves).T, rows, self._terms(len(rows)))

    def add_rows(self, sums: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns sums + weights rows: float32 [queries, d]."""
        return add_product(sums, rounded(weights, self.halves), rows, self._terms(len(rows)))

    def _terms(self, terms: int) -> int:
        return self.depth * max(1, -(-terms // MAX_TERMS))

    def stored(self, sums: np.ndarray, factor: float | np.floating = 1) -> np.ndarray:
        """Returns what is stored of sums: multiplied by the factor, rounded to the shape's type."""
        return rounded(np.float32(factor) * sums, self.halves)


def exp2(x: np.ndarray) -> np.ndarray:
    """Returns 2^x, float32, rounded once; results below 2^-126 are 0, as in the kernels."""
    y = np.exp2(x.astype(np.float64)).astype(np.float32)
    return np.where(y < np.finfo(np.float32).tiny, np.float32(0), y)


def row_dots(dO: np.ndarray, O: np.ndarray) -> np.ndarray:
    """Returns D, float32 [N]: as 07_row_dots.cu, a lane adds every 32nd column, then the lanes exchange their sums."""
    pad = -dO.shape[1] % LANES
    a, b = (np.pad(x, ((0, 0), (0, pad))) for x in (dO, O))
    lanes = np.zeros((len(a), LANES), np.float32)
    for first in range(0, a.shape[1], LANES):
        lanes = fma(a[:, first : first + LANES], b[:, first : first + LANES], lanes)
    distance = LANES // 2
    while distance:
        lanes = lanes + lanes[:, np.arange(LANES) ^ distance]
        distance //= 2
    return lanes[:, 0]


def key_gradients(n: Numbers, keys: range, query_tiles: list[range]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sums of dK (without the scale) and of dV of some keys, float32 [keys, d], over tiles of queries in turn."""
    dK, dV = np.zeros((2, len(keys), n.s.d), np.float32)
    for queries in query_tiles:
        t = n.tile(queries, keys)
        dV = n.add_columns(dV, t.P, n.head["dO"][queries.start : queries.stop])
        dK = n.add_columns(dK, t.dS, n.head["Q"][queries.start : queries.stop])
    return dK, dV


def query_gradients(n: Numbers, queries: range, key_tiles: list[range], atomic: bool) -> np.ndarray:
    """Returns dQ of some queries, float32 [queries, d], over tiles of keys in turn. `atomic`: each tile's part is multiplied
    by the scale and added to memory, else the sum is kept and multiplied at the end."""
    dQ = np.zeros((len(queries), n.s.d), np.float32)
    for keys in key_tiles:
        dQ = next_dQ(n, dQ, n.tile(queries, keys).dS, keys, atomic)
    return dQ if atomic else n.stored(dQ, n.scale)


def next_dQ(n: Numbers, dQ: np.ndarray, dS: np.ndarray, keys: range, atomic: bool) -> np.ndarray:
    """Returns dQ after one tile of keys more."""
    rows = n.head["K"][keys.start : keys.stop]
    if not atomic:
        return n.add_rows(dQ, dS, rows)
    return dQ + n.scale * n.add_rows(np.zeros_like(dQ), dS, rows)
