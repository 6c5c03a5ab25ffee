"""What all rungs of the GEMM ladder share: buffers, arguments, cost, and the rules in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.gemm import cpu
from kernels.gemm.shape import GemmShape
from kernels.libraries import cublas
from kernels.model.dtypes import INPUT_DTYPE, RESULT_DTYPE
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, LibraryCall, Program
from kernels.model.rules import MOST_GRID_YZ
from kernels.model.rung import Cost
from kernels.model.shape import INT_MAX


def buffers(s: GemmShape) -> tuple[Buffer, ...]:
    """A [M,K], B [K,N], C [M,N], and C0 [M,N] where beta is not 0."""
    of, result = INPUT_DTYPE[s.dtype], RESULT_DTYPE[s.dtype]
    A, B = Buffer("A", INPUT, (s.M, s.K), of), Buffer("B", INPUT, (s.K, s.N), of)
    C0, C = Buffer("C0", INPUT, (s.M, s.N), result), Buffer("C", OUTPUT, (s.M, s.N), result)
    return (A, B, C0, C) if s.beta else (A, B, C)


def arguments(s: GemmShape) -> tuple[Arg, ...]:
    """(A, B, C0, C, M, N, K, alpha, beta) as every kernel of the ladder takes them; alpha and beta have C's
    type. Where beta is 0 no kernel reads C0, and C stands in its place."""
    factor = np.dtype(RESULT_DTYPE[s.dtype]).type
    extents = (np.int32(s.M), np.int32(s.N), np.int32(s.K))
    return ("A", "B", "C0" if s.beta else "C", "C", *extents, factor(s.alpha), factor(s.beta))


def one_launch(
    s: GemmShape,
    source: str,
    grid: tuple[int, int],
    block: tuple[int, int],
    twin: Callable[..., None],
    defines: Mapping[str, int],
    shared: int = 0,
) -> Program:
    """One launch of kernels/gemm/cuda/`source`."""
    step = launch(f"gemm/{source}", grid, block, arguments(s), twin, defines, shared)
    return Program(buffers(s), (step,))


def one_call(s: GemmShape, routine: str = "cublas_gemm", twin=cpu.library, bind=cublas.gemm) -> Program:
    """One call of cuBLAS, which adds in place: where beta is not 0 C0 is copied to C first, a step of its own."""
    A, B, C0, *rest = arguments(s)
    call = LibraryCall(routine, (A, B, "C", *rest), twin, bind)
    copy = (LibraryCall("copy", (C0, "C"), cpu.copy, cublas.copy),) if s.beta else ()
    return Program(buffers(s), (*copy, call))


def cost(s: GemmShape, program: Program) -> Cost:
    """FLOPs of the product; HBM bytes if caches are perfect: inputs in, output out, workspace out and in."""
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


def extent_rules(s: GemmShape, bm: int, bn: int, bk: int = 1, rows: str = "BM") -> Iterator[str]:
    """Blocks of bm rows along grid.y; no index of a tile that sticks out may pass 2^31."""
    if ceil(s.M, bm) > MOST_GRID_YZ:
        yield f"M <= {MOST_GRID_YZ}*{rows} (grid.y), got {s.M}"
    for name, extent, tile in (("M", s.M, bm), ("N", s.N, bn), ("K", s.K, bk)):
        if extent > INT_MAX - tile:
            yield f"{name} must stay below 2^31 - {tile}, got {extent}"
