# ruff: noqa: E741  # O and l are the names of the paper
"""O = softmax(scale * Q K^T) V as loops for the CPU: four orders over the same pairs, compiled by Numba.

Q, K, V and O [heads, N, d] are float32 arrays, row-major. Sums are float32, in the order written here (no
fastmath). A maximum of the row is subtracted before every exponential. If causal, query i sees keys 0 .. i.
`prange` divides its iterations among the threads. Each row of O is computed by one thread. Numba is slow to
import: import this file only to run a loop.
"""

from functools import cache

import numpy as np
from numba import carray, get_thread_id, njit, prange, types  # pyright: ignore[reportPrivateImportUsage]  # documented
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.gemm import cpu_loops as gemm_cpu_loops

DEEP = 32  # columns of K transposed at a time: scratch of one size for any d
MOST_BLOCK, MOST_SIDE = 256, 128  # the longest side of a block, and of a tile of flash attention
# Floats of scratch on a thread's stack: 32 KB for a block, 81 KB for a tile.
FOR_BLOCK, FOR_KEYS, FOR_TILE = DEEP * MOST_BLOCK, DEEP * MOST_SIDE, MOST_SIDE * MOST_SIDE
NOTHING, ONE = np.float32(-np.inf), np.float32(1)
HOW = {"cache": True, "error_model": "numpy"}  # division by a sum of 0 gives NaN, no exception


# Naive: the definition, head after head. All scores of a head, S [N, N]; their softmax in place; times V.
# What limits it: S is written and read several times. A score is one sum along a row of Q and a row of K, a
# result one down a column of V. Each addition waits for the one before, and the compiler vectorizes none.
@njit(parallel=True, **HOW)
def naive(Q, K, V, O, scale, causal, S):
    heads, N, d = Q.shape
    for head in range(heads):
        q, k, v, o = Q[head], K[head], V[head], O[head]
        for turn in prange(N):
            i = folded(turn, N)
            for j in range(i + 1 if causal else N):
                S[i, j] = scale * along(q[i], k[j])
        for turn in prange(N):
            i = folded(turn, N)
            softmax(S[i, : i + 1 if causal else N])
        for turn in prange(N):
            i = folded(turn, N)
            for x in range(d):
                sum = np.float32(0)
                for j in range(i + 1 if causal else N):
                    sum += S[i, j] * v[j, x]
                o[i, x] = sum


# Blocked: the same three steps, both products in blocks of BLOCK queries by BLOCK keys. Each element loaded of K
# and V is used BLOCK times. The additions of an innermost loop belong to different sums: they are vectorized.
# What limits it: each step still reads or writes all of S; and exponentials, which are not vectorized.
@njit(parallel=True, **HOW)
def blocked(Q, K, V, O, scale, causal, BLOCK, S):
    heads, N, _ = Q.shape
    blocks = (N + BLOCK - 1) // BLOCK
    for head in range(heads):
        q, k, v, o = Q[head], K[head], V[head], O[head]
        for turn in prange(blocks):
            block_of_scores(q, k, scale, causal, BLOCK, folded(turn, blocks) * BLOCK, S)
        for turn in prange(N):
            i = folded(turn, N)
            softmax(S[i, : i + 1 if causal else N])
        for turn in prange(blocks):
            block_of_values(v, o, causal, BLOCK, folded(turn, blocks) * BLOCK, S)


@njit(**HOW)
def block_of_scores(q, k, scale, causal, BLOCK, i0, S):
    # Numba gives an intrinsic its first argument.
    Kt = carray(on_stack(FOR_BLOCK), (DEEP, BLOCK))  # pyright: ignore[reportCallIssue]
    N = len(q)
    i1 = min(i0 + BLOCK, N)
    for j0 in range(0, i1 if causal else N, BLOCK):
        square(q[i0:i1], k[j0 : min(j0 + BLOCK, N)], scale, Kt, S[i0:i1], j0)


@njit(**HOW)
def block_of_values(v, o, causal, BLOCK, i0, S):
    N = len(v)
    i1 = min(i0 + BLOCK, N)
    o[i0:i1] = 0
    for j0 in range(0, i1 if causal else N, BLOCK):
        for i in range(i0, i1):
            add(S[i, j0 : min(j0 + BLOCK, i + 1 if causal else N)], v[j0:], o[i])


# Fused: a query at a time, its scores, their softmax, the mean of the values. Each thread has one row of S,
# rows [THREADS, N], which stays in the fastest cache.
# What limits it: every query reads all of K and V, and a score is one sum in one order, as in naive.
@njit(parallel=True, **HOW)
def fused(Q, K, V, O, scale, causal, rows):
    heads, N, _ = Q.shape
    for turn in prange(heads * N):
        head, i = turn // N, folded(turn % N, N)
        row = rows[get_thread_id(), : i + 1 if causal else N]
        for j in range(len(row)):
            row[j] = scale * along(Q[head, i], K[head, j])
        softmax(row)
        O[head, i] = 0
        add(row, V[head], O[head, i])


# Flash: Br queries are compared with one tile of Bc keys after the other. Each query has a running maximum m and
# a running sum l. If a tile has a larger maximum, l and O are rescaled before the tile is added. S is one tile.
# What limits it: exponentials are not vectorized. Each tile of keys reads and writes O once more, which is slow
# if Bc is small. Flash attention saves passes over S, but a CPU's caches can hold S up to large N.
@njit(parallel=True, **HOW)
def flash(Q, K, V, O, scale, causal, Br, Bc):
    heads, N, _ = Q.shape
    tiles = (N + Br - 1) // Br
    for turn in prange(heads * tiles):
        head, i0 = turn // tiles, folded(turn % tiles, tiles) * Br
        tile_of_queries(Q[head, i0 : i0 + Br], K[head], V[head], O[head, i0 : i0 + Br], scale, causal, i0, Bc)


@njit(**HOW)
def tile_of_queries(q, k, v, o, scale, causal, i0, Bc):
    rows, N = len(q), len(k)
    Kt = carray(on_stack(FOR_KEYS), (DEEP, Bc))  # pyright: ignore[reportCallIssue]  # as above
    S = carray(on_stack(FOR_TILE), (rows, Bc))  # pyright: ignore[reportCallIssue]
    m, l = carray(on_stack(MOST_SIDE), (rows,)), carray(on_stack(MOST_SIDE), (rows,))
    m[:], l[:], o[:] = NOTHING, 0, 0
    for j0 in range(0, min(i0 + rows, N) if causal else N, Bc):
        j1 = min(j0 + Bc, N)
        square(q, k[j0:j1], scale, Kt, S, 0)
        for i in range(rows):
            seen = max(0, min(j1, i0 + i + 1 if causal else N) - j0)
            l[i], m[i] = mended(S[i, :seen], v[j0:], o[i], m[i], l[i])
    for i in range(rows):
        scaled(o[i], ONE / l[i])


# Adds a tile to the running sums of a query. Returns the new (l, m).
@njit(**HOW)
def mended(s, v, o, m, l):
    most = largest(s, m)
    base = np.float32(0) if most == NOTHING else most  # all scores so far are -infinity
    shrink = np.exp(m - base)
    scaled(o, shrink)
    l = l * shrink + exponentials(s, base)
    add(s, v, o)
    return l, most


# -- functions that several of them use ------------------------------------------------------------
# Scratch on the stack of the running thread, as a GPU's thread has registers. It stays in the fastest cache.
# Nothing is allocated, and the scratch is released when the call returns.
@intrinsic(prefer_literal=True)
def on_stack(typing, floats):
    size = floats.literal_value  # a constant above: known at compile time

    def generate(context, builder, signature, args):
        return cgutils.alloca_once(builder, context.get_value_type(types.float32), size)

    return types.CPointer(types.float32)(floats), generate


# Takes rows from both ends in turn. If causal, late rows see more keys, and every thread should get some of them.
@njit(**HOW)
def folded(turn, turns):
    return turns - 1 - turn // 2 if turn % 2 else turn // 2


# A row times a row: one sum, one addition after the other.
@njit(**HOW)
def along(a, b):
    sum = np.float32(0)
    for x in range(len(a)):
        sum += a[x] * b[x]
    return sum


# A square of scores, s[:, j0 + j] = scale * q k^T. k is first transposed to Kt [DEEP, keys], so that the
# innermost loop adds to adjacent scores.
@njit(**HOW)
def square(q, k, scale, Kt, s, j0):
    rows, d = q.shape
    keys = len(k)
    for x0 in range(0, d, DEEP):
        deep = min(DEEP, d - x0)
        for j in range(keys):
            for x in range(deep):
                Kt[x, j] = k[j, x0 + x]
        for i in range(rows):
            out = s[i, j0 : j0 + keys]
            if x0 == 0:
                out[:] = 0
            for x in range(deep):
                factor, column = scale * q[i, x0 + x], Kt[x]
                for j in range(keys):
                    out[j] += factor * column[j]


# o += p v for a row p: the innermost loop uses adjacent elements.
@njit(**HOW)
def add(p, v, o):
    for j in range(len(p)):
        factor, row = p[j], v[j]
        for x in range(len(o)):
            o[x] += factor * row[x]


@njit(**HOW)
def scaled(row, factor):
    for j in range(len(row)):
        row[j] *= factor


# Ignores NaN.
@njit(**HOW)
def largest(row, most):
    for j in range(len(row)):
        if row[j] > most:
            most = row[j]
    return most


# exp(row - most) in place, and the sum. A NaN score gives NaN.
@njit(**HOW)
def exponentials(row, most):
    sum = np.float32(0)
    for j in range(len(row)):
        row[j] = np.exp(row[j] - most)
        sum += row[j]
    return sum


@njit(**HOW)
def softmax(row):
    scaled(row, ONE / exponentials(row, largest(row, NOTHING)))


# The library: NumPy's BLAS for both products, with all of S between them, and NumPy's own vectorized exponential
# on one thread. What limits it: every step reads or writes all of S.
def blas(Q, K, V, O, scale, causal, S):
    for q, k, v, o in zip(Q, K, V, O, strict=True):
        np.matmul(q, k.T, out=S)
        S *= scale
        for i in range(len(q) if causal else 0):
            S[i, i + 1 :] = NOTHING
        S -= S.max(axis=1, keepdims=True)
        np.exp(S, out=S)
        S /= S.sum(axis=1, keepdims=True)
        np.matmul(S, v, out=o)


# -- running them ----------------------------------------------------------------------------------
LOOPS = {"naive": naive, "blocked": blocked, "fused": fused, "flash": flash}


def run(name: str, THREADS: int, Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, *rest) -> None:
    """Run one on THREADS threads. Q, K, V and O are [B, H, N, d], `rest` are its parameters from `scale` on."""
    arrays = [x.reshape(-1, *x.shape[2:]) for x in (Q, K, V, O)]
    if name == "blas":
        with gemm_cpu_loops.library(THREADS), np.errstate(invalid="ignore", over="ignore"):
            return blas(*arrays, *rest)
    gemm_cpu_loops.parallel(LOOPS[name], THREADS, *arrays, *rest)


@cache
def prepare(name: str) -> None:
    """Compile it, or load it from Numba's cache on disk, by computing the attention of one query to itself."""
    tiles = {"blocked": (np.int64(1),), "flash": (np.int64(1), np.int64(1))}.get(name, ())
    scratch = () if name == "flash" else (np.ones((1, 1), np.float32),)
    run(name, 1, *np.ones((4, 1, 1, 1, 1), np.float32), np.float32(1), np.int64(0), *tiles, *scratch)
