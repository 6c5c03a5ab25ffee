"""Buffers, arguments, cost and rules that all rungs of the GEMM ladder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.gemm import cpu
from kernels.gemm.shape import GemmShape
from kernels.libraries import cublas
from kernels.model.dtypes import INPUT_DTYPE, RESULT_DTYPE
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, LibraryCall, Program
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules
from kernels.model.rung import Cost


def buffers(s: GemmShape) -> tuple[Buffer, ...]:
    """Return A [M,K], B [K,N], C [M,N], and C0 [M,N] if beta is not 0."""
    dtype, result = INPUT_DTYPE[s.dtype], RESULT_DTYPE[s.dtype]
    A, B = Buffer("A", INPUT, (s.M, s.K), dtype), Buffer("B", INPUT, (s.K, s.N), dtype)
    C0, C = Buffer("C0", INPUT, (s.M, s.N), result), Buffer("C", OUTPUT, (s.M, s.N), result)
    return (A, B, C0, C) if s.beta else (A, B, C)


def arguments(s: GemmShape) -> tuple[Arg, ...]:
    """Returns (A, B, C0, C, M, N, K, alpha, beta), the arguments of every kernel of the ladder.

    alpha and beta have C's type. If beta is 0, no kernel reads C0, and C is passed instead of it.
    """
    factor = np.dtype(RESULT_DTYPE[s.dtype]).type
    extents = (np.int32(s.M), np.int32(s.N), np.int32(s.K))
    return ("A", "B", "C0" if s.beta else "C", "C", *extents, factor(s.alpha), factor(s.beta))


def one_launch(
    s: GemmShape,
    source: str,
    grid: tuple[int, int],
    block: tuple[int, int],
    cpu_function: Callable[..., None],
    defines: Mapping[str, int],
    shared: int = 0,
    cpu_name: str = "",
) -> Program:
    """Returns a program that is one launch of kernels/gemm/cuda/`source`."""
    step = launch(f"gemm/{source}", grid, block, arguments(s), cpu_function, defines, shared, cpu_name)
    return Program(buffers(s), (step,))


def one_call(s: GemmShape, routine: str = "cublas_gemm", cpu_function=cpu.library, bind=cublas.gemm) -> Program:
    """Returns a program that is one call of cuBLAS.

    cuBLAS adds to C in place. If beta is not 0, a separate step copies C0 to C first.
    """
    A, B, C0, *rest = arguments(s)
    call = LibraryCall(routine, (A, B, "C", *rest), cpu_function, bind, "product")
    copy = (LibraryCall("copy", (C0, "C"), cpu.copy, cublas.copy),) if s.beta else ()
    return Program(buffers(s), (*copy, call))


def cost(s: GemmShape, program: Program) -> Cost:
    """Returns the FLOPs of the product and its HBM bytes if caches are perfect.

    The inputs are read once, the output is written once, the workspace is written and read once.
    """
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


def extent_rules(s: GemmShape, bm: int, bn: int, bk: int = 1, rows: str = "BM", names=("M", "N", "K")) -> Iterator[str]:
    """Yields the rules on M, N and K: blocks of bm rows along grid.y, and tile indices below 2^31.

    A tile may extend beyond the matrix, so its indices may be larger than the matrix. `names` are those of the rows, the
    columns and the depth in the sentences.
    """
    if ceil(s.M, bm) > MAX_GRID_YZ:
        yield broken(f"{names[0]} <= {MAX_GRID_YZ}*{rows} (grid.y)", s.M)
    for name, extent, tile in zip(names, (s.M, s.N, s.K), (bm, bn, bk), strict=True):
        yield from index_rules({name: extent}, tile)
