"""A fully connected layer and its backward products: three matrix products with different operands transposed.

linear          y = x W^T + b.
linear-dinput   dx = dy W.
linear-dweight  dW = dy^T x, and db, the column sums of dy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.linear import cpu, library, reference
from kernels.linear.presets import DINPUT_PRESETS, DWEIGHT_PRESETS, LINEAR_PRESETS
from kernels.linear.reference import TOLERANCE
from kernels.linear.shape import InputGradientShape, LinearShape, WeightGradientShape, parser
from kernels.model.launch import ampere, ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, Launch, LibraryCall, Program, Tiles
from kernels.model.rules import (
    MAX_GRID_YZ,
    MAX_SHARED,
    broken,
    fetch_rules,
    index_rules,
    multiple_rules,
    register_rules,
    shared_rules,
    thread_rules,
)
from kernels.model.rung import Cost, Ladder, Rung

LINEAR, DINPUT, DWEIGHT = "linear", "linear-dinput", "linear-dweight"
BLOCKS = (16, 32, 8)  # a side of the naive kernels' blocks
BLOCK = 256  # threads of the kernels that copy and add


# -- buffers and extents ---------------------------------------------------------------------------------
def linear_buffers(s: LinearShape, *others: Buffer) -> tuple[Buffer, ...]:
    inputs = Buffer("x", INPUT, (s.M, s.K)), Buffer("W", INPUT, (s.N, s.K)), Buffer("b", INPUT, (s.N,))
    return (*inputs, Buffer("y", OUTPUT, (s.M, s.N)), *others)


def dinput_buffers(s: InputGradientShape, *others: Buffer) -> tuple[Buffer, ...]:
    inputs = Buffer("dy", INPUT, (s.M, s.N)), Buffer("W", INPUT, (s.N, s.K))
    return (*inputs, Buffer("dx", OUTPUT, (s.M, s.K)), *others)


def dweight_buffers(s: WeightGradientShape, *others: Buffer) -> tuple[Buffer, ...]:
    inputs = Buffer("dy", INPUT, (s.M, s.N)), Buffer("x", INPUT, (s.M, s.K))
    outputs = Buffer("dW", OUTPUT, (s.N, s.K)), Buffer("db", OUTPUT, (s.N,))
    return (*inputs, *outputs, *others)


BUFFERS = {LINEAR: linear_buffers, DINPUT: dinput_buffers, DWEIGHT: dweight_buffers}


def extents(ladder: str, s: LinearShape) -> tuple[tuple[str, int], tuple[str, int], tuple[str, int]]:
    """Returns (name, extent) of the rows, the columns and the terms of a ladder's product."""
    M, N, K = ("M", s.M), ("N", s.N), ("K", s.K)
    return {LINEAR: (M, N, K), DINPUT: (M, K, N), DWEIGHT: (N, K, M)}[ladder]


def _ints(s: LinearShape) -> tuple[np.int32, ...]:
    return np.int32(s.M), np.int32(s.N), np.int32(s.K)


# -- programs: naive ---------------------------------------------------------------------------------------
NAIVE = {  # by ladder: file, arguments, NumPy implementation
    LINEAR: ("01_linear_naive", ("x", "W", "b", "y"), cpu.linear_naive),
    DINPUT: ("04_dinput_naive", ("dy", "W", "dx"), cpu.dinput_naive),
    DWEIGHT: ("06_dweight_naive", ("dy", "x", "dW"), cpu.dweight_naive),
}


def _build_naive(ladder: str):
    source, names, cpu_function = NAIVE[ladder]

    def build(s: LinearShape, tiles: Tiles) -> Program:
        side, ((_, rows), (_, cols), _) = tiles["BLOCK"], extents(ladder, s)
        grid = ceil(cols, side), ceil(rows, side)
        args = *names, *_ints(s)
        product = launch(f"linear/{source}.cu", grid, (side, side), args, cpu_function, tiles)
        sums = (_column_sums(s),) if ladder == DWEIGHT else ()
        return Program(BUFFERS[ladder](s), (product, *sums))

    return build


def _column_sums(s: LinearShape) -> Launch:
    args = "dy", "db", np.int32(s.M), np.int32(s.N)
    return launch("linear/07_column_sums.cu", (ceil(s.N, BLOCK),), BLOCK, args, cpu.column_sums, {"BLOCK": BLOCK})


# -- programs: tiles ---------------------------------------------------------------------------------------
TILED = {  # by ladder: file, operands, NumPy implementation without and with parts
    LINEAR: ("02_linear_tile", ("x", "W", "b"), cpu.linear_tile, cpu.linear_parts),
    DINPUT: ("05_dinput_tile", ("dy", "W"), cpu.dinput_tile, cpu.dinput_parts),
    DWEIGHT: ("08_dweight_tile", ("dy", "x"), cpu.dweight_tile, cpu.dweight_parts),
}
RESULTS = {LINEAR: ("y",), DINPUT: ("dx",), DWEIGHT: ("dW", "db")}


def threads(tiles: Tiles) -> int:
    return tiles["BM"] // tiles["TM"] * (tiles["BN"] // tiles["TN"])


def stages_bytes(tiles: Tiles) -> int:
    """Returns the bytes of both padded tiles, STAGES times."""
    return 4 * tiles["STAGES"] * tiles["BK"] * (tiles["BM"] + tiles["BN"] + 8)


def _product(
    ladder: str,
    s: LinearShape,
    tiles: Tiles,
    results: tuple[Arg, ...],
    cpu_function: Callable[..., None],
    cpu_name: str,
) -> Launch:
    source, operands, *_ = TILED[ladder]
    (_, rows), (_, cols), _ = extents(ladder, s)
    grid = ceil(cols, tiles["BN"]), ceil(rows, tiles["BM"]), tiles["SPLITS"]
    args = *operands, *results, *_ints(s)
    return launch(f"linear/{source}.cu", grid, threads(tiles), args, cpu_function, tiles, stages_bytes(tiles), cpu_name)


def _build_tile(ladder: str):
    def build(s: LinearShape, tiles: Tiles) -> Program:
        cpu_function = TILED[ladder][2](tiles["BM"], tiles["BN"], tiles["BK"])
        whole = {**tiles, "SPLITS": 1}
        step = _product(ladder, s, whole, RESULTS[ladder], cpu_function, "blocked_product")
        return Program(BUFFERS[ladder](s), (step,))

    return build


def _build_split(ladder: str):
    def build(s: LinearShape, tiles: Tiles) -> Program:
        outputs = {b.name: b for b in BUFFERS[ladder](s) if b.role == OUTPUT}
        parts = {
            name: Buffer(f"{name}_parts", WORKSPACE, (tiles["SPLITS"], *outputs[name].shape))
            for name in RESULTS[ladder]
        }
        names = tuple(part.name for part in parts.values())
        product = _product(ladder, s, tiles, names, TILED[ladder][3](tiles["BK"]), "product_parts")
        adds = [_add_parts(outputs[name], parts[name], tiles, ladder == LINEAR) for name in RESULTS[ladder]]
        if len(adds) > 1:
            adds = [replace(step, label=f"{step.entry} of {step.args[2]}") for step in adds]
        return Program(BUFFERS[ladder](s, *parts.values()), (product, *adds))

    return build


def _add_parts(result: Buffer, parts: Buffer, tiles: Tiles, has_bias: bool) -> Launch:
    count = result.nbytes // 4
    bias, cpu_function = ("b", cpu.add_parts_and_bias) if has_bias else (parts.name, cpu.add_parts)
    args = parts.name, bias, result.name, np.int64(count), np.int32(result.shape[-1])
    defines = {"BLOCK": BLOCK, "SPLITS": tiles["SPLITS"], "BIAS": int(has_bias)}
    return launch("linear/03_add_parts.cu", (ceil(count, BLOCK),), BLOCK, args, cpu_function, defines)


# -- programs: libraries -------------------------------------------------------------------------------------
def build_cublas_linear(s: LinearShape, tiles: Tiles) -> Program:
    fill = launch(
        "linear/09_bias_rows.cu",
        (ceil(s.M * s.N, BLOCK),),
        BLOCK,
        ("b", "y", np.int32(s.M), np.int32(s.N)),
        cpu.bias_rows,
        {"BLOCK": BLOCK},
    )
    return Program(linear_buffers(s), (fill, _sgemm(s, ("x", "W", "y"), cpu.linear_library, library.linear)))


def build_cublas_dinput(s: InputGradientShape, tiles: Tiles) -> Program:
    return Program(dinput_buffers(s), (_sgemm(s, ("dy", "W", "dx"), cpu.dinput_library, library.dinput),))


def build_cublas_dweight(s: WeightGradientShape, tiles: Tiles) -> Program:
    product = _sgemm(s, ("dy", "x", "dW"), cpu.dweight_library, library.dweight)
    args = "dy", "db", np.int32(s.M), np.int32(s.N)
    sums = LibraryCall("cublas_sgemv", args, cpu.sums_library, library.column_sums, "product_with_ones")
    return Program(dweight_buffers(s), (product, sums))


def _sgemm(s: LinearShape, names: tuple[str, ...], cpu_function, bind) -> LibraryCall:
    return LibraryCall("cublas_sgemm", (*names, *_ints(s)), cpu_function, bind, "product")


def _build_torch(ladder: str, bind):
    def build(s: LinearShape, tiles: Tiles) -> Program:
        buffers = BUFFERS[ladder](s)
        routine = f"torch_{ladder.replace('-', '_')}"
        return Program(buffers, (LibraryCall(routine, tuple(b.name for b in buffers), None, bind),))

    return build


# -- rules and cost ------------------------------------------------------------------------------------------
def _naive_rules(ladder: str):
    def rules(s: LinearShape, tiles: Tiles) -> Iterator[str]:
        yield from _extent_rules(ladder, s, tiles["BLOCK"], tiles["BLOCK"], 1, "BLOCK")

    return rules


def _tile_rules(ladder: str):
    """Returns the rules of a tiled product. The copies of a tile depend on whether it is transposed."""

    def rules(s: LinearShape, tiles: Tiles) -> Iterator[str]:
        yield from multiple_rules(tiles, ("BM", "WM"), ("BN", "WN"), ("WM", "TM"), ("WN", "TN"), ("TM", 4), ("TN", 4))
        yield from _warp_rules(tiles)
        yield from thread_rules("(BM/TM)*(BN/TN)", threads(tiles))
        yield from register_rules(tiles, threads(tiles))
        yield from _copy_rules(ladder, tiles)
        yield from shared_rules("4*STAGES*BK*(BM + BN + 8)", stages_bytes(tiles), MAX_SHARED)
        margin = tiles["BK"] * tiles["STAGES"] * tiles.get("SPLITS", 1)
        yield from _extent_rules(ladder, s, tiles["BM"], tiles["BN"], margin, "BM")
        if "SPLITS" in tiles:
            (_, rows), (_, cols), _ = extents(ladder, s)
            yield from index_rules({tr("{formula} (grid.x)", formula="results / BLOCK"): ceil(rows * cols, BLOCK)}, 0)

    return rules


def _warp_rules(tiles: Tiles) -> Iterator[str]:
    """Yields the rules of a warp's tile: 32 lanes, in pairs."""
    WM, WN, TM, TN = (tiles[name] for name in ("WM", "WN", "TM", "TN"))
    if WM * WN != 32 * TM * TN:
        yield tr(
            "WM*WN == 32*TM*TN (32 lanes per warp), got {left} and {right}", left=f"{WM}*{WN}", right=f"32*{TM}*{TN}"
        )
    elif WM // TM % 2:
        yield tr("WM/TM % 2 == 0 (lanes in pairs), got {got}", got=f"{WM}/{TM}")


def _copy_rules(ladder: str, tiles: Tiles) -> Iterator[str]:
    count = threads(tiles)
    if ladder == DWEIGHT:
        yield from fetch_rules(tiles, count, "BK", "BM", 4)
        if count < tiles["BM"]:
            yield broken("threads >= BM (one for each column of dy)", f"{count} and {tiles['BM']}")
    else:
        yield from fetch_rules(tiles, count, "BM", "BK", 1)
    if ladder == LINEAR:
        yield from fetch_rules(tiles, count, "BN", "BK", 1)
    else:
        yield from fetch_rules(tiles, count, "BK", "BN", 4)


def _extent_rules(ladder: str, s: LinearShape, bm: int, bn: int, margin: int, side: str) -> Iterator[str]:
    """Yields the rules on rows, columns and terms: blocks of bm rows along grid.y, and indices below 2^31."""
    rows, cols, terms = extents(ladder, s)
    if ceil(rows[1], bm) > MAX_GRID_YZ:
        yield broken(f"{rows[0]} <= {MAX_GRID_YZ}*{side} (grid.y)", rows[1])
    for (name, extent), tile in zip((rows, cols, terms), (bm, bn, margin), strict=True):
        yield from index_rules({name: extent}, tile)


def library_rules(s: LinearShape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: the library says itself what it supports."""
    return ()


def cost(s: LinearShape, program: Program) -> Cost:
    """Returns the FLOPs of the products and the HBM bytes if caches are perfect: each tensor once, the workspace twice."""
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


def library_cost(s: LinearShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the minimum traffic. What a library moves itself is not known."""
    return Cost(s.flops, s.bytes, None)


# -- rungs -----------------------------------------------------------------------------------------------------
# Sizes for matrices of about 1,000 rows and columns: large tiles would leave SMs without a block.
TILES = {
    "BM": (64, 32, 128),
    "BN": (128, 64, 32, 256),
    "BK": (16, 8, 32),
    "WM": (32, 64),
    "WN": (64, 32, 16),
    "TM": (8, 4),
    "TN": (8, 4, 16),
    "STAGES": (3, 2, 4),
}
SPLITS = {"SPLITS": (4, 2, 8, 16, 32)}
SMALL = {"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4, "STAGES": 2}  # to watch
LARGE = {"BM": 128, "BN": 128, "WM": 64, "WN": 32}
SQUARE = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "TN": 4}
LOW = {"BM": 32, "BN": 64, "WM": 32, "WN": 16, "TM": 4, "TN": 4}  # for batches of 32
# At most so many rows, and at least so many weights. Measured: 32, and 1,000 x 2,048.
LOW_ROWS, LOW_WEIGHTS = 32, 2**16
IDEAS = {  # by ladder: what its tiled kernel does with the operands
    LINEAR: mark("Tiles of x and W are both transposed while they are copied to shared memory."),
    DINPUT: mark("The tile of dy is transposed while it is copied. W has the right order already."),
    DWEIGHT: mark("Tiles of dy and x are copied as they are. db is added up from the tiles of dy."),
}
NAIVE_IDEAS = {
    LINEAR: mark("The definition. The lanes of a warp read 32 rows of W, K floats apart."),
    DINPUT: mark("The definition. Each number is read again for each result that needs it."),
    DWEIGHT: mark("The definition, and a second kernel with one thread per column of dy."),
}
SPLIT_IDEAS = {
    LINEAR: mark(
        "The sum over K is cut into parts, so that small results have many blocks. A second launch adds them."
    ),
    DINPUT: mark(
        "The sum over N is cut into parts, so that small results have many blocks. A second launch adds them."
    ),
    DWEIGHT: mark("The sum over M is cut into parts, so that few weights have many blocks. Further launches add them."),
}


def _faster(ladder: str) -> Callable[[LinearShape], Tiles]:
    """Returns tile sizes of a sum in parts for few rows: low tiles and many parts, or few parts of the short sum over M."""

    def found(s: LinearShape) -> Tiles:
        if s.M > LOW_ROWS or s.N * s.K < LOW_WEIGHTS:
            return {}
        return {"SPLITS": 2} if ladder == DWEIGHT else LOW | {"SPLITS": 8}

    return found


def _rungs(ladder: str) -> tuple[Rung, ...]:
    rules = _tile_rules(ladder)
    naive = Rung(
        f"{ladder}/naive",
        mark("one thread per result"),
        NAIVE_IDEAS[ladder],
        _build_naive(ladder),
        cost,
        _naive_rules(ladder),
        TOLERANCE,
        {"BLOCK": BLOCKS},
        sets=({"BLOCK": 8},),
        cpu_title=mark("naive loop (NumPy einsum)"),
    )
    tile = Rung(
        f"{ladder}/tile",
        mark("register tiles"),
        IDEAS[ladder],
        _build_tile(ladder),
        cost,
        rules,
        TOLERANCE,
        TILES,
        sets=(SMALL, LARGE, SQUARE),
        capability=ampere,
        cpu_title=mark("blocked, BLAS in each block"),
        cpu_tiles=("BM", "BN", "BK"),
    )
    split = Rung(
        f"{ladder}/split",
        mark("register tiles, the sum in parts"),
        SPLIT_IDEAS[ladder],
        _build_split(ladder),
        cost,
        rules,
        TOLERANCE,
        TILES | SPLITS,
        sets=(SMALL | {"SPLITS": 2}, {"SPLITS": 2}, LARGE, SQUARE, LOW | {"SPLITS": 8}),
        faster=_faster(ladder),
        capability=ampere,
        cpu_title=mark("parts of the sums, then added"),
        cpu_tiles=("BK", "SPLITS"),
    )
    return naive, tile, split


def _libraries(ladder: str, build_cublas, bind, torch_idea: str) -> tuple[Rung, ...]:
    cublas = Rung(
        f"{ladder}/cublas",
        mark("cuBLAS FP32"),
        mark("The vendor’s library, FP32 throughout (TF32 off)."),
        build_cublas,
        library_cost,
        library_rules,
        TOLERANCE,
        library="cuBLAS",
        cpu_title=mark("NumPy BLAS"),
    )
    torch = Rung(
        f"{ladder}/torch",
        mark("PyTorch"),
        torch_idea,
        _build_torch(ladder, bind),
        library_cost,
        library_rules,
        TOLERANCE,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )
    return cublas, torch


OURS = {ladder: _rungs(ladder) for ladder in (LINEAR, DINPUT, DWEIGHT)}
LIBRARIES = {
    LINEAR: _libraries(
        LINEAR,
        build_cublas_linear,
        library.Linear,
        mark("torch.addmm, which torch.nn.functional.linear calls, in FP32 (TF32 off)."),
    ),
    DINPUT: _libraries(
        DINPUT,
        build_cublas_dinput,
        library.InputGradient,
        mark("torch.mm, as the backward pass of a linear layer calls it, in FP32 (TF32 off)."),
    ),
    DWEIGHT: _libraries(
        DWEIGHT,
        build_cublas_dweight,
        library.WeightGradient,
        mark("torch.mm and torch.sum, as the backward pass of a linear layer calls them, in FP32 (TF32 off)."),
    ),
}


def _ladder(name: str, shape: type[LinearShape], reference_function, presets) -> Ladder:
    return Ladder(
        name=name,
        work=mark("the product"),
        shape=shape,
        parse=parser(shape),
        reference=reference_function,
        presets=presets,
        rungs=(*OURS[name], *LIBRARIES[name]),
        swept=(f"{name}-gpt2-qkv", f"{name}-resnet50"),
    )


LADDERS = (
    _ladder(LINEAR, LinearShape, reference.forward, LINEAR_PRESETS),
    _ladder(DINPUT, InputGradientShape, reference.dinput, DINPUT_PRESETS),
    _ladder(DWEIGHT, WeightGradientShape, reference.dweight, DWEIGHT_PRESETS),
)
