"""Flash attention in numbers: what a block knows after each tile of keys.

Registers cannot be traced: m, l, the factors and O are computed here as the kernel computes them, in its order, each
rounded to float32 once. What the kernel stores (P in shared memory, O in global memory) comes from the emulator's trace
of it where one is given, and m, l and O are then made of that P.
"""

# ruff: noqa: E741  # O and l are the names of the paper
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.compile import CompilerMissing
from kernels.ladders import find
from kernels.ladders.attention_tensor import MMA
from kernels.ladders.gemm_parts import INPUT_DTYPE
from kernels.shapes_attention import AttentionShape
from visuals.scenes.attention_plan import LOG2E, Plan
from visuals.scenes.attention_steps import lanes_sum
from visuals.scenes.gemm_steps import sums_of

MOST_WORK = 2**17  # multiply-adds of a launch that is traced while a reader waits


@dataclass(frozen=True)
class Tile:
    """A tile of keys from j0 on, and what is known of each row when it is done: float32 [rows, Bc], [rows], [rows, d]."""

    j0: int
    products: np.ndarray  # scores before any is hidden
    scores: np.ndarray  # -inf where hidden
    m: np.ndarray
    shrink: np.ndarray
    P: np.ndarray  # as it is multiplied
    l: np.ndarray  # of all the row's lanes together
    shrunk: np.ndarray  # O times the factor
    O: np.ndarray  # not divided by l yet

    @property
    def hidden(self) -> np.ndarray:
        return np.isneginf(self.scores) & np.isfinite(self.products)


@dataclass(frozen=True)
class Walk:
    """The walk of a block's queries from q0 on over all its tiles."""

    q0: int
    Q: np.ndarray  # float32 [rows, d], as shared memory has it: times the factor, but for halves
    factor: float  # of the scores, log2 e in it where exponents are powers of 2
    tiles: tuple[Tile, ...]
    O: np.ndarray  # float32 [rows, d], divided


@dataclass(frozen=True)
class Stored:
    """What the emulator saw a block store: P [tiles, Br, Bc], O [queries of the head, d], NaN where it stored none."""

    P: np.ndarray
    O: np.ndarray


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32: a * b + c, rounded once."""
    return (np.float64(a) * b + c).astype(np.float32)


def walk(
    s: AttentionShape,
    plan: Plan,
    head: Mapping[str, np.ndarray],
    queries: range,
    stored: Stored | None = None,
) -> Walk:
    """Some queries of one block over all tiles that the block looks at. head: Q, K, V, float32 [N, d]."""
    Bc, block = plan.Bc, queries.start // plan.Br
    tiles = plan.visited(s, block)
    pad = ((0, max(0, tiles * Bc - s.N)), (0, 0))
    K, V = (np.pad(head[name], pad)[: tiles * Bc] for name in "KV")
    factor = np.float32(s.factor) * (LOG2E if plan.binary else np.float32(1))
    Q = head["Q"][queries.start : queries.stop]
    if not plan.halves:
        Q = factor * Q
    elif factor < 0:  # the sign goes to Q
        Q, factor = -Q, -factor
    products = sums_of(Q, K.T, MMA if plan.halves else 1, "fp32")
    i, j = np.array(queries)[:, None], np.arange(tiles * Bc)
    scores = np.where((j >= s.N) | ((j > i) & bool(s.causal)), np.float32(-np.inf), products)
    exp, by = (np.exp2, factor if plan.halves else np.float32(1)) if plan.binary else (np.exp, np.float32(1))
    own = slice(queries.start % plan.Br, queries.start % plan.Br + len(queries))
    m, parts = np.full(len(Q), -np.inf, np.float32), np.zeros((len(Q), plan.lanes), np.float32)
    O = np.zeros((len(Q), s.d), np.float32)
    out = []
    for n in range(tiles):
        at = slice(n * Bc, (n + 1) * Bc)
        tall = scores[:, at] * by
        most = np.maximum(m, tall.max(axis=1))
        shrink = exp(m - most)
        P = exp(tall - most[:, None]) if stored is None else stored.P[n, own]
        for first in range(0, Bc, plan.lanes):
            parts = fma(
                parts, shrink[:, None] if first == 0 else np.float32(1), P[:, first : first + plan.lanes]
            )
        shrunk = O = O * shrink[:, None]
        held = P.astype(INPUT_DTYPE[plan.halves]).astype(np.float32) if plan.halves else P
        O = added(O, held, V[at], MMA if plan.halves else 1)
        m, l = most, lanes_sum(parts, plan.lanes)
        out.append(Tile(n * Bc, products[:, at], scores[:, at], m, shrink, held, l, shrunk, O))
    last = O / l[:, None] if stored is None else stored.O[queries.start : queries.stop]
    last = last.astype(INPUT_DTYPE[plan.halves]).astype(np.float32) if plan.halves else last
    return Walk(queries.start, Q, float(factor), tuple(out), last)


def added(O: np.ndarray, P: np.ndarray, V: np.ndarray, depth: int) -> np.ndarray:
    """float32: O + P V, `depth` terms at a time, each sum rounded once."""
    for k in range(0, len(V), depth):
        O = (O + P[:, k : k + depth].astype(np.float64) @ V[k : k + depth]).astype(np.float32)
    return O


# -- the emulator -----------------------------------------------------------------------------------
def stored_by(s: AttentionShape, plan: Plan, head: Mapping[str, np.ndarray], block: int) -> Stored | None:
    """What a block of attention/flash stores, as the emulator executed it. None for other rungs, where that takes long,
    or where there is no compiler for these tile sizes."""
    blocks = -(-s.N // plan.Br)
    work = 2 * blocks * plan.visited(s, blocks - 1) * plan.Br * plan.Bc * plan.DP
    if plan.rung != "attention/flash" or work > MOST_WORK:
        return None
    given = tuple((name, np.ascontiguousarray(head[name]).tobytes()) for name in "QKV")
    try:
        return _stored(s.with_(B=1, H=1), plan.Br, plan.Bc, plan.DP, given, block)
    except CompilerMissing:
        return None


@lru_cache(maxsize=16)
def _stored(s: AttentionShape, Br: int, Bc: int, DP: int, given: tuple, block: int) -> Stored:
    found = find("attention/flash")
    program = found.build(s, found.check(s, {"Br": Br, "Bc": Bc}))
    inputs = {name: np.frombuffer(data, np.float32).reshape(s.qkv_shape) for name, data in given}
    trace, _ = emulator.trace_launch(program, 0, inputs, block)
    name = np.array(trace.buffers)[trace.buffer]
    first = Br * DP + Bc * (DP + 1) + Bc * DP  # where Ps begins in shared memory
    at = trace.write & (name == "shared") & (trace.element >= first)
    order = np.argsort(trace.element[at], kind="stable")
    P = trace.value[at][order].reshape(Br * Bc, -1).T.reshape(-1, Br, Bc)
    O = np.full((s.N, s.d), np.nan, np.float32)
    at = trace.write & (name == "O")
    O.ravel()[trace.element[at]] = trace.value[at]
    return Stored(P, O)
