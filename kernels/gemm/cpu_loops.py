"""C = A x B as loop nests for the CPU: the same 2*M*N*K FLOPs in three orders, compiled by Numba.

A [M, K], B [K, N] and C [M, N] are float32 arrays, row-major. Neighbours in a row are adjacent in memory.
Neighbours in a column are a whole row apart. Sums are float32, as on the GPU, in the order written here (no
fastmath). `prange` divides its iterations among the threads. Each element of C is computed by one thread.
Numba is slow to import: import this file only to run a loop.
"""

import threading
from collections.abc import Callable
from functools import cache

import numpy as np
from numba import get_thread_id, njit, prange, set_num_threads  # pyright: ignore[reportPrivateImportUsage]  # documented
from threadpoolctl import ThreadpoolController

from kernels.model.program import RuleError


# Naive, the order of the textbook: one element of C after the other, each a row of A times a column of B.
# What limits it: each step down a column loads another cache line and uses 4 bytes of it. Each addition
# waits for the one before: a float sum keeps its order, so the compiler vectorizes none of it.
@njit(parallel=True, cache=True)
def naive(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    for row in prange(M):
        for col in range(N):
            sum = np.float32(0)
            for k in range(K):
                sum += A[row, k] * B[k, col]
            C[row, col] = sum


# Reordered: the two inner loops are exchanged. One element of A times a row of B is added to a row of C:
# the innermost loop reads and writes adjacent elements. Whole cache lines are used, and the additions
# belong to different sums, so the compiler vectorizes them.
# What limits it: every row of C reads all of B. If B is larger than a cache, B is loaded M times.
@njit(parallel=True, cache=True)
def reordered(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    for row in prange(M):
        for col in range(N):
            C[row, col] = 0
        for k in range(K):
            factor = A[row, k]
            for col in range(N):
                C[row, col] += factor * B[k, col]


# Blocked: C in squares of BLOCK x BLOCK. For each, squares of A and B are copied to scratch, as a GPU's
# thread block copies tiles to shared memory. The reordered loops multiply them there: each element loaded
# is used BLOCK times. As, Bs and Cs [THREADS, BLOCK, BLOCK] are the scratch of each thread.
# What limits it: a small BLOCK loads often and has short loops, too short for vectors below 8. With a
# large BLOCK the three squares exceed the cache, and there are few squares to divide among the threads.
@njit(parallel=True, cache=True)
def blocked(A, B, C, As, Bs, Cs):
    M, K = A.shape
    N = B.shape[1]
    BLOCK = Cs.shape[1]
    across = (N + BLOCK - 1) // BLOCK
    for square in prange((M + BLOCK - 1) // BLOCK * across):
        own = get_thread_id()
        a, b, c = As[own], Bs[own], Cs[own]
        row0, col0 = square // across * BLOCK, square % across * BLOCK
        rows, cols = min(BLOCK, M - row0), min(BLOCK, N - col0)
        c[:] = 0
        for k0 in range(0, K, BLOCK):
            deep = min(BLOCK, K - k0)
            a[:rows, :deep] = A[row0 : row0 + rows, k0 : k0 + deep]
            b[:deep, :cols] = B[k0 : k0 + deep, col0 : col0 + cols]
            for row in range(rows):
                for k in range(deep):
                    factor = a[row, k]
                    for col in range(BLOCK):  # beyond cols too: never read, and a fixed length compiles better
                        c[row, col] += factor * b[k, col]
        C[row0 : row0 + rows, col0 : col0 + cols] = c[:rows, :cols]


# The library: the same loops after years of tuning, with tiles for every level of cache and one for the
# registers, written in assembly for this CPU.
def blas(A, B, C):
    np.matmul(A, B, out=C)


# -- running them ----------------------------------------------------------------------------------
LOOPS = {"naive": naive, "reordered": reordered, "blocked": blocked}
_one_at_a_time = threading.Lock()  # Numba's default threads end the process if two callers run at once


def run(name: str, THREADS: int, *arrays: np.ndarray) -> None:
    """Run a loop nest on THREADS threads.

    Numba stores the number of threads for each calling thread. A library has one number for the whole process.
    The number is set for every run, and the library's is restored.
    """
    if name == "blas":
        with library(THREADS):
            return blas(*arrays)
    parallel(LOOPS[name], THREADS, *arrays)


def parallel(nest: Callable[..., None], THREADS: int, *args: object) -> None:
    """Call a nest that Numba compiled, on THREADS threads."""
    with _one_at_a_time:
        set_num_threads(int(THREADS))
        nest(*args)


@cache
def prepare(name: str) -> None:
    """Compile the nest, or load it from Numba's cache on disk, by multiplying two numbers."""
    matrices, scratch = np.ones((3, 1, 1), np.float32), np.ones((3, 1, 1, 1), np.float32)
    run(name, 1, *matrices, *(scratch if name == "blocked" else ()))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def library(THREADS: int):
    """Returns a context in which NumPy's BLAS uses THREADS threads. Raises RuleError if its number cannot be set."""
    if not _libraries().lib_controllers:
        raise RuleError("NumPy's BLAS here takes no number of threads (Apple's Accelerate, say)")
    return _libraries().limit(limits=int(THREADS))
