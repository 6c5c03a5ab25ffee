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

from kernels.attention.shape import AttentionShape
from kernels.attention.tensor_cores import MMA
from kernels.engines import emulator
from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from visuals.attention.parts import lanes_sum
from visuals.attention.plan import LOG2E, Plan
from visuals.scene.arithmetic import sums_of

PIECE = 4096  # keys of what is not walked tile by tile
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
    parts: np.ndarray  # [rows, lanes]: what each lane of a row has of l
    l: np.ndarray  # of all of them together
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
    visited: int  # tiles in all
    tiles: tuple[Tile, ...]  # those that were walked one by one
    last: Tile  # what is known after all
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
    tiles: int | None = None,
    stored: Stored | None = None,
) -> Walk:
    """Some queries of one block over all tiles that the block looks at: the first `tiles` (None: all) one by one, the
    rest, of which only the end is asked for, in longer pieces. head: Q, K, V, float32 [N, d]."""
    visited, own = plan.visited(s, queries.start // plan.Br), slice(queries.start % plan.Br, None)
    alone = visited if tiles is None or stored else min(tiles, visited)
    factor = np.float32(s.factor) * (LOG2E if plan.binary else np.float32(1))
    Q = head["Q"][queries.start : queries.stop]
    if not plan.halves:
        Q = factor * Q
    elif factor < 0:  # the sign goes to Q
        Q, factor = -Q, -factor
    now, out = None, []
    for n in range(alone):
        P = None if stored is None else stored.P[n, own][: len(Q)]
        keys = range(n * plan.Bc, (n + 1) * plan.Bc)
        now = _mended(s, plan, head, queries, Q, keys, now, factor, P)
        out.append(now)
    for start in range(alone * plan.Bc, visited * plan.Bc, PIECE):
        keys = range(start, min(start + PIECE, visited * plan.Bc))
        now = _mended(s, plan, head, queries, Q, keys, now, factor, None, len(keys))
    last = now.O / now.l[:, None] if stored is None else stored.O[queries.start : queries.stop]
    return Walk(queries.start, Q, float(factor), visited, tuple(out), now, _rounded(last, plan.halves))


def _mended(
    s, plan: Plan, head, queries: range, Q, keys: range, old: Tile | None, factor, P, depth: int = 0
) -> Tile:
    """What is known once `keys` have passed, after what was known before; P where it is known. Sums of `depth` terms at
    once, or as the kernel makes them."""
    depth = depth or (MMA if plan.halves else 1)
    past = max(0, keys.stop - s.N)
    K, V = (np.pad(head[name][keys.start : keys.stop], ((0, past), (0, 0))) for name in "KV")
    products = sums_of(Q, K.T, min(depth, s.d), "fp32")
    i, j = np.array(queries)[:, None], np.array(keys)
    scores = np.where((j >= s.N) | ((j > i) & bool(s.causal)), np.float32(-np.inf), products)
    tall, exp = scores * factor if plan.halves else scores, np.exp2 if plan.binary else np.exp
    nothing = (
        np.full(len(Q), -np.inf, np.float32),
        np.zeros((len(Q), plan.lanes), np.float32),
        np.zeros_like(Q),
    )
    m, parts, O = nothing if old is None else (old.m, old.parts, old.O)
    most = np.maximum(m, tall.max(axis=1))
    shrink = exp(m - most)
    P = exp(tall - most[:, None]) if P is None else P
    for first in range(0, len(keys), plan.lanes):
        by = shrink[:, None] if first == 0 else np.float32(1)
        parts = fma(parts, by, P[:, first : first + plan.lanes])
    shrunk, P = O * shrink[:, None], _rounded(P, plan.halves)
    l = lanes_sum(parts, plan.lanes)
    return Tile(keys.start, products, scores, most, shrink, P, parts, l, shrunk, added(shrunk, P, V, depth))


def _rounded(x: np.ndarray, halves: str) -> np.ndarray:
    """float32, as a type of 16 bits holds it where one is named."""
    return x.astype(INPUT_DTYPE[halves]).astype(np.float32) if halves else x


def added(O: np.ndarray, P: np.ndarray, V: np.ndarray, depth: int) -> np.ndarray:
    """float32: O + P V, `depth` terms at a time, each sum rounded once."""
    P, V = P.astype(np.float64), V.astype(np.float64)
    for k in range(0, len(V), depth):
        O = (O + P[:, k : k + depth] @ V[k : k + depth]).astype(np.float32)
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
