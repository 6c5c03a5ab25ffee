"""What all rungs of the GEMM ladder share: buffers, arguments, cost, and the rules in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels import twins
from kernels.ladders.common import MOST_GRID_YZ, WARP, ceil, launch, most_rules
from kernels.program import (
    INPUT,
    MOST_STATIC_SHARED,
    OUTPUT,
    WORKSPACE,
    Arg,
    Buffer,
    Cost,
    LibraryCall,
    Program,
    Tiles,
)
from kernels.shapes import INT_MAX, RESULT_DTYPE, GemmShape

MOST_THREADS = 1024  # CUDA's limits from here on
MOST_REGISTERS = 255
REGISTERS = 65_536  # of an SM
OTHER_REGISTERS = 32  # addresses, counters
INPUT_DTYPE = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}


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
    """One launch of kernels/cuda/gemm/`source`."""
    step = launch(f"gemm/{source}", grid, block, arguments(s), twin, defines, shared)
    return Program(buffers(s), (step,))


def one_call(s: GemmShape, routine: str) -> Program:
    """One call of cuBLAS, which adds in place: where beta is not 0 C0 is copied to C first, a step of its own."""
    A, B, C0, *rest = arguments(s)
    call = LibraryCall(routine, (A, B, "C", *rest), twins.library)
    copy = (LibraryCall("copy", (C0, "C"), twins.copy),) if s.beta else ()
    return Program(buffers(s), (*copy, call))


def cost(s: GemmShape, program: Program) -> Cost:
    """FLOPs of the product; HBM bytes if caches are perfect: inputs in, output out, workspace out and in."""
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


# -- rules: each yields, in words, what a shape or a choice of tiles breaks -----------------------------
def dtype_rules(s: GemmShape, *dtypes: str) -> Iterator[str]:
    if s.dtype not in dtypes:
        yield f"dtype must be {' or '.join(dtypes)}, got {s.dtype}"


def extent_rules(s: GemmShape, bm: int, bn: int, bk: int = 1, rows: str = "BM") -> Iterator[str]:
    """Blocks of bm rows along grid.y; no index of a tile that sticks out may pass 2^31."""
    if ceil(s.M, bm) > MOST_GRID_YZ:
        yield f"M <= {MOST_GRID_YZ}*{rows} (grid.y), got {s.M}"
    for name, extent, tile in (("M", s.M, bm), ("N", s.N, bn), ("K", s.K, bk)):
        if extent > INT_MAX - tile:
            yield f"{name} must stay below 2^31 - {tile}, got {extent}"


def thread_rules(rule: str, threads: int) -> Iterator[str]:
    """`rule` is the number of threads as a formula of the tile sizes: whole warps, one block's worth."""
    if threads > MOST_THREADS:
        yield f"{rule} threads <= {MOST_THREADS}, got {threads}"
    if threads % WARP or not threads:
        yield f"{rule} threads must be whole warps of {WARP}, got {threads}"


def multiple_rules(tiles: Tiles, *pairs: tuple[str, str | int]) -> Iterator[str]:
    """The first of each pair must be a multiple of its second, a tile size or a number."""
    for name, of in pairs:
        by = tiles[of] if isinstance(of, str) else of
        if tiles[name] % by:
            got = f"{tiles[name]} % {by}" if isinstance(of, str) else tiles[name]
            yield f"{name} % {of} == 0, got {got}"


def fetch_rules(tiles: Tiles, threads: int, rows: str, cols: str, width: int) -> Iterator[str]:
    """A tile rows x cols is fetched `width` elements to a thread, by all threads, in whole rounds of whole rows."""
    across, each = tiles[cols] // width, f"/{width}" if width > 1 else ""
    if tiles[cols] % width or threads % across:
        yield f"threads % ({cols}{each}) == 0, got {threads} % ({tiles[cols]}{each})"
    elif tiles[rows] * across % threads:
        yield f"{rows}*{cols}{each} % threads == 0, got {tiles[rows]}*{tiles[cols]}{each} % {threads}"


def register_rules(tiles: Tiles, threads: int) -> Iterator[str]:
    """Sums and what they are made of must stay in registers; some are needed beside them."""
    tm, tn = tiles["TM"], tiles["TN"]
    need, most = tm * tn + tm + tn + OTHER_REGISTERS, min(MOST_REGISTERS, REGISTERS // max(threads, 1))
    if need > most:
        yield f"TM*TN + TM + TN + {OTHER_REGISTERS} registers <= {most} ({threads} threads), got {need}"


def shared_rules(formula: str, nbytes: int, most: int = MOST_STATIC_SHARED) -> Iterator[str]:
    yield from most_rules(f"{formula} bytes of shared memory", nbytes, most)
