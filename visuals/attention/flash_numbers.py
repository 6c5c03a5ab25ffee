"""Flash attention in numbers: the state of a block after each tile of keys.

Registers cannot be traced: m, l, the factors and O are computed here in the kernel's order, each rounded to float32 once.
Values that the kernel stores (P in shared memory, O in global memory) come from the emulator's trace if there is one; m,
l and O are then computed from that P.
"""

# ruff: noqa: E741  # O and l are the names of the paper
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.attention.tensor_cores import MMA
from kernels.engines import emulator
from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from visuals.attention.parts import lanes_sum
from visuals.attention.plan import LOG2E, Plan
from visuals.scene.arithmetic import matmul_in_kernel_order

CHUNK = 4096  # keys at a time, of those not computed tile by tile
MAX_TRACED_WORK = 2**17  # multiply-adds of a launch; larger ones take too long to trace


@dataclass(frozen=True)
class Tile:
    """A tile of keys from j0 on, and the state of each row after it: float32 [rows, Bc], [rows], [rows, d]."""

    j0: int
    products: np.ndarray  # scores before masking
    scores: np.ndarray  # -inf where hidden
    m: np.ndarray
    shrink: np.ndarray
    P: np.ndarray  # as used in the product
    parts: np.ndarray  # [rows, lanes]: each lane's part of l
    l: np.ndarray  # the sum of the parts
    shrunk: np.ndarray  # O times the factor
    O: np.ndarray  # not divided by l yet

    @property
    def hidden(self) -> np.ndarray:
        return np.isneginf(self.scores) & np.isfinite(self.products)


@dataclass(frozen=True)
class BlockResult:
    """A block's queries from q0 on, computed over all its tiles."""

    q0: int
    Q: np.ndarray  # float32 [rows, d], as in shared memory: times the factor unless halves
    factor: float  # of the scores; includes log2 e if exponentials are powers of 2
    visited: int  # tiles in all
    tiles: tuple[Tile, ...]  # those computed one by one
    last: Tile  # the state after all tiles
    O: np.ndarray  # float32 [rows, d], divided


@dataclass(frozen=True)
class Stored:
    """What a block stored in the emulator: P [tiles, Br, Bc], O [queries of the head, d], NaN where it stored nothing."""

    P: np.ndarray
    O: np.ndarray


def fma(a: np.ndarray, b: np.ndarray | np.floating, c: np.ndarray) -> np.ndarray:
    """Returns a * b + c, float32, rounded once."""
    return (np.float64(a) * b + c).astype(np.float32)


def compute_block(
    s: SelfAttentionShape,
    plan: Plan,
    head: Mapping[str, np.ndarray],
    queries: range,
    tiles: int | None = None,
    stored: Stored | None = None,
) -> BlockResult:
    """Returns some queries of one block, computed over all tiles that the block visits. The first `tiles` (None: all) are
    computed one by one, the rest in chunks of CHUNK keys. head: Q, K, V, float32 [N, d]."""
    visited, block_rows = plan.visited(s, queries.start // plan.Br), slice(queries.start % plan.Br, None)
    single_tiles = visited if tiles is None or stored else min(tiles, visited)
    factor = np.float32(s.factor) * (LOG2E if plan.binary else np.float32(1))
    Q = head["Q"][queries.start : queries.stop]
    if not plan.halves:
        Q = factor * Q
    elif factor < 0:  # the sign goes to Q
        Q, factor = -Q, -factor
    current, results = None, []
    for n in range(single_tiles):
        P = None if stored is None else stored.P[n, block_rows][: len(Q)]
        keys = range(n * plan.Bc, (n + 1) * plan.Bc)
        current = _next_tile(s, plan, head, queries, Q, keys, current, factor, P)
        results.append(current)
    for start in range(single_tiles * plan.Bc, visited * plan.Bc, CHUNK):
        keys = range(start, min(start + CHUNK, visited * plan.Bc))
        current = _next_tile(s, plan, head, queries, Q, keys, current, factor, None, len(keys))
    assert current is not None  # a block visits at least one tile
    last = current.O / current.l[:, None] if stored is None else stored.O[queries.start : queries.stop]
    return BlockResult(queries.start, Q, float(factor), visited, tuple(results), current, _rounded(last, plan.halves))


def _next_tile(
    s, plan: Plan, head, queries: range, Q, keys: range, old: Tile | None, factor, P, depth: int = 0
) -> Tile:
    """Returns the state after `keys`, from the state before (`old`, None at the start). P: from the trace, or None. Sums add
    `depth` terms at once; 0: as many as the kernel."""
    depth = depth or (MMA if plan.halves else 1)
    past = max(0, keys.stop - s.N)
    K, V = (np.pad(head[name][keys.start : keys.stop], ((0, past), (0, 0))) for name in "KV")
    products = matmul_in_kernel_order(Q, K.T, min(depth, s.d), "fp32")
    i, j = np.array(queries)[:, None], np.array(keys)
    scores = np.where((j >= s.N) | ((j > i) & bool(s.causal)), np.float32(-np.inf), products)
    scaled, exp = scores * factor if plan.halves else scores, np.exp2 if plan.binary else np.exp
    initial = (np.full(len(Q), -np.inf, np.float32), np.zeros((len(Q), plan.lanes), np.float32), np.zeros_like(Q))
    m, parts, O = initial if old is None else (old.m, old.parts, old.O)
    new_m = np.maximum(m, scaled.max(axis=1))
    shrink = exp(m - new_m)
    P = exp(scaled - new_m[:, None]) if P is None else P
    for first in range(0, len(keys), plan.lanes):
        factor_of_old = shrink[:, None] if first == 0 else np.float32(1)
        parts = fma(parts, factor_of_old, P[:, first : first + plan.lanes])
    shrunk, P = O * shrink[:, None], _rounded(P, plan.halves)
    l = lanes_sum(parts, plan.lanes)
    return Tile(keys.start, products, scores, new_m, shrink, P, parts, l, shrunk, add_product(shrunk, P, V, depth))


def _rounded(x: np.ndarray, halves: str) -> np.ndarray:
    """Returns x as float32, rounded to the 16-bit type `halves` if not ""."""
    return x.astype(INPUT_DTYPE[halves]).astype(np.float32) if halves else x


def add_product(O: np.ndarray, P: np.ndarray, V: np.ndarray, depth: int) -> np.ndarray:
    """Returns O + P V, float32, with `depth` terms at a time, each sum rounded once."""
    P, V = P.astype(np.float64), V.astype(np.float64)
    for k in range(0, len(V), depth):
        O = (O + P[:, k : k + depth] @ V[k : k + depth]).astype(np.float32)
    return O


# -- the emulator -----------------------------------------------------------------------------------
def stored_by(s: SelfAttentionShape, plan: Plan, head: Mapping[str, np.ndarray], block: int) -> Stored | None:
    """Returns what a block of attention/flash stores in the emulator. None for other rungs, if the trace would take too
    long, or if there is no compiler for these tile sizes."""
    blocks = -(-s.N // plan.Br)
    work = 2 * blocks * plan.visited(s, blocks - 1) * plan.Br * plan.Bc * plan.DP
    if plan.rung != "attention/flash" or work > MAX_TRACED_WORK:
        return None
    inputs = tuple((name, np.ascontiguousarray(head[name]).tobytes()) for name in "QKV")
    try:
        return _stored(s.with_(B=1, H=1), plan.Br, plan.Bc, plan.DP, inputs, block)
    except CompilerMissing:
        return None


@lru_cache(maxsize=16)
def _stored(s: SelfAttentionShape, Br: int, Bc: int, DP: int, inputs_bytes: tuple, block: int) -> Stored:
    rung = find("attention/flash")
    program = rung.build(s, rung.check(s, {"Br": Br, "Bc": Bc}))
    inputs = {name: np.frombuffer(data, np.float32).reshape(s.qkv_shape) for name, data in inputs_bytes}
    trace, _ = emulator.trace_launch(program, 0, inputs, block)
    name = np.array(trace.buffers)[trace.buffer]
    first = Br * DP + Bc * (DP + 1) + Bc * DP  # the start of Ps in shared memory
    stored = trace.write & (name == "shared") & (trace.element >= first)
    order = np.argsort(trace.element[stored], kind="stable")
    P = trace.value[stored][order].reshape(Br * Bc, -1).T.reshape(-1, Br, Bc)
    O = np.full((s.N, s.d), np.nan, np.float32)
    stored = trace.write & (name == "O")
    O.ravel()[trace.element[stored]] = trace.value[stored]
    return Stored(P, O)
