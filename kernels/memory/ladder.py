"""Threads and memory: four ladders, each of rungs that compute the same thing and access memory differently.

add     C = A + B with one thread per element: which thread computes which element.
stride  every stride-th float copied: sectors of global memory.
banks   words of shared memory read at a stride: banks, with and without padding.
layout  NCHW to NHWC: an index becomes an address.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.memory import cpu, reference
from kernels.memory.shape import (
    TILE_COLS,
    TILE_ROWS,
    AddShape,
    BanksShape,
    LayoutShape,
    MemoryShape,
    StrideShape,
    parser,
)
from kernels.model.launch import ceil, launch
from kernels.model.preset import Preset
from kernels.model.program import INPUT, OUTPUT, Buffer, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, index_rules
from kernels.model.rung import Cost, Ladder, Rung

BLOCKS = (256, 64, 128, 512)
TILES = (32, 16, 8)
STRIDES = (1, 2, 3, 4, 8, 16, 32)
BANK_STRIDES = (1, 2, 3, 4, 5, 8, 12, 16, 32)


def _ints(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(v) for v in values)


def cost(s: MemoryShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, 0)


# -- add -------------------------------------------------------------------------------------------
def _add_buffers(s: AddShape) -> tuple[Buffer, Buffer, Buffer]:
    return tuple(Buffer(b, OUTPUT if b == "C" else INPUT, (s.M, s.N)) for b in "ABC")


def build_vector(s: AddShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    step = launch(
        "memory/01_vector_add.cu", (ceil(s.elements, block),), block,
        ("A", "B", "C", *_ints(s.elements)), cpu.vector_add,
    )  # fmt: skip
    return Program(_add_buffers(s), (step,))


def build_matrix(s: AddShape, tiles: Tiles) -> Program:
    tile = tiles["TILE"]
    step = launch(
        "memory/02_matrix_add.cu", (ceil(s.N, tile), ceil(s.M, tile)), (tile, tile),
        ("A", "B", "C", *_ints(s.M, s.N)), cpu.matrix_add,
    )  # fmt: skip
    return Program(_add_buffers(s), (step,))


def build_transposed(s: AddShape, tiles: Tiles) -> Program:
    tile = tiles["TILE"]
    step = launch(
        "memory/03_matrix_add_transposed.cu",
        (ceil(s.M, tile), ceil(s.N, tile)), (tile, tile),
        ("A", "B", "C", *_ints(s.M, s.N)), cpu.matrix_add_transposed,
    )  # fmt: skip
    return Program(_add_buffers(s), (step,))


def vector_rules(s: AddShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"M*N": s.elements}, tiles["BLOCK"], "BLOCK")


def matrix_rules(s: AddShape, tiles: Tiles) -> Iterator[str]:
    if ceil(s.M, tiles["TILE"]) > MAX_GRID_YZ:
        yield f"M <= {MAX_GRID_YZ}*TILE (grid.y), got {s.M}"


def transposed_rules(s: AddShape, tiles: Tiles) -> Iterator[str]:
    if ceil(s.N, tiles["TILE"]) > MAX_GRID_YZ:
        yield f"N <= {MAX_GRID_YZ}*TILE (grid.y), got {s.N}"


# One rounding of one sum: float32 is within 2^-24 of the exact sum.
ADD = Ladder(
    name="add",
    shape=AddShape,
    parse=parser(AddShape),
    reference=reference.add,
    presets={
        p.key: p
        for p in (
            Preset("add-toy", "Toy 12×20", AddShape(12, 20), "small enough to follow every thread"),
            Preset("add-ragged", "1,001×1,003", AddShape(1001, 1003), "extents that no block divides"),
            Preset("add-4096", "4,096²", AddShape(4096, 4096), "beyond every cache"),
            Preset(
                "add-resnet50-res2-n32", "ResNet-50 res2 shortcut, N=32", AddShape(32 * 256, 56 * 56),
                "ResNet-50 (arXiv 1512.03385), the sum at the end of a conv2_x block: 256 maps of 56 x 56, batch 32",
            ),
        )
    },
    rungs=(
        Rung(
            name="add/vector",
            title="vector add",
            idea="The matrix as one long vector, a thread an element: a warp's floats lie side by side.",
            build=build_vector,
            cost=cost,
            rules=vector_rules,
            tolerance=2.0**-23,
            tiles={"BLOCK": BLOCKS},
        ),
        Rung(
            name="add/matrix",
            title="matrix add, x along the row",
            idea="Squares of threads; threadIdx.x counts columns, so a warp's floats lie side by side.",
            build=build_matrix,
            cost=cost,
            rules=matrix_rules,
            tolerance=2.0**-23,
            tiles={"TILE": TILES},
        ),
        Rung(
            name="add/matrix-transposed",
            title="matrix add, x down the column",
            idea="threadIdx.x counts rows: each lane of a warp wants a sector of its own.",
            build=build_transposed,
            cost=cost,
            rules=transposed_rules,
            tolerance=2.0**-23,
            tiles={"TILE": TILES},
        ),
    ),
)  # fmt: skip


# -- stride ----------------------------------------------------------------------------------------
def build_stride(s: StrideShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    step = launch(
        "teaching/01_strided_copy.cu", (ceil(s.n, block),), block,
        ("x", "y", *_ints(s.n, s.stride)), cpu.strided_copy,
    )  # fmt: skip
    return Program((Buffer("x", INPUT, (s.extent,)), Buffer("y", OUTPUT, (s.n,))), (step,))


def stride_rules(s: StrideShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"n": s.n}, tiles["BLOCK"], "BLOCK")


STRIDE = Ladder(
    name="stride",
    shape=StrideShape,
    parse=parser(StrideShape),
    reference=reference.stride,
    presets={
        p.key: p
        for p in (
            Preset("stride-toy", "Toy: a warp, stride 2", StrideShape(32, 2), "one warp"),
            *(
                Preset(
                    f"stride-{stride}", f"stride {stride}", StrideShape(1 << 23, stride),
                    "2^23 floats kept: beyond the L2 at every stride",
                )
                for stride in STRIDES
            ),
        )
    },
    rungs=(
        Rung(
            name="stride/copy",
            title="strided copy",
            idea="A thread a float, every stride-th one read: the sectors fetched grow, the floats kept do not.",
            build=build_stride,
            cost=cost,
            rules=stride_rules,
            tolerance=0.0,  # a copy is exact
            tiles={"BLOCK": BLOCKS},
        ),
    ),
)  # fmt: skip


# -- banks -----------------------------------------------------------------------------------------
def _build_banks(pad: int):
    def build(s: BanksShape, tiles: Tiles) -> Program:
        block = tiles["BLOCK"]
        step = launch(
            "memory/04_shared_stride.cu", (ceil(s.n, block),), block,
            ("x", "y", *_ints(s.n, s.stride, s.turns)), cpu.shared_stride, {"PAD": pad},
        )  # fmt: skip
        return Program((Buffer("x", INPUT, (TILE_ROWS, TILE_COLS)), Buffer("y", OUTPUT, (s.n,))), (step,))

    return build


def banks_rules(s: BanksShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"n": s.n}, tiles["BLOCK"], "BLOCK")


def _banks_rung(name: str, title: str, idea: str, pad: int) -> Rung:
    return Rung(
        name=f"banks/{name}",
        title=title,
        idea=idea,
        build=_build_banks(pad),
        cost=cost,
        rules=banks_rules,
        tolerance=1e-5,
        tiles={"BLOCK": BLOCKS},
    )


BANKS = Ladder(
    name="banks",
    shape=BanksShape,
    parse=parser(BanksShape),
    reference=reference.banks,
    presets={
        p.key: p
        for p in (
            Preset("banks-toy", "Toy: a warp, stride 2", BanksShape(32, 2), "one warp, one turn"),
            *(
                Preset(
                    f"banks-{stride}", f"stride {stride}", BanksShape(1 << 18, stride, 64),
                    "2,048 reads of shared memory by each of 2^18 threads: nothing else takes time beside them",
                )
                for stride in BANK_STRIDES
            ),
        )
    },
    rungs=(
        _banks_rung("plain", "rows of 32 words", "Lanes read a tile at a stride; even strides share banks.", 0),
        _banks_rung(
            "padded", "rows padded to 33", "One unused word behind each row: a column leans across all banks.", 1
        ),
    ),
)  # fmt: skip


# -- layout ----------------------------------------------------------------------------------------
def _build_layout(source: str, cpu_function):
    def build(s: LayoutShape, tiles: Tiles) -> Program:
        block = tiles["BLOCK"]
        step = launch(
            f"memory/{source}.cu", (ceil(s.elements, block),), block,
            ("x", "y", *_ints(s.N, s.C, s.H, s.W)), cpu_function,
        )  # fmt: skip
        x, y = Buffer("x", INPUT, (s.N, s.C, s.H, s.W)), Buffer("y", OUTPUT, (s.N, s.H, s.W, s.C))
        return Program((x, y), (step,))

    return build


def layout_rules(s: LayoutShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"N*C*H*W": s.elements}, tiles["BLOCK"], "BLOCK")


def _layout_rung(name: str, title: str, idea: str, source: str, cpu_function) -> Rung:
    return Rung(
        name=f"layout/{name}",
        title=title,
        idea=idea,
        build=_build_layout(source, cpu_function),
        cost=cost,
        rules=layout_rules,
        tolerance=0.0,  # a copy is exact
        tiles={"BLOCK": BLOCKS},
    )


LAYOUT = Ladder(
    name="layout",
    shape=LayoutShape,
    parse=parser(LayoutShape),
    reference=reference.layout,
    presets={
        p.key: p
        for p in (
            Preset("layout-toy", "Toy 2×3×2×4", LayoutShape(2, 3, 2, 4), "small enough to count"),
            Preset("layout-photos", "32 photos", LayoutShape(32, 3, 224, 224), "a batch of 32 colour pictures of 224 x 224"),
            Preset("layout-res2-n32", "ResNet-50 res2, N=32", LayoutShape(32, 64, 56, 56), "ResNet-50 (arXiv 1512.03385), maps of stage conv2_x, batch 32"),
            Preset("layout-res5-n32", "ResNet-50 res5, N=32", LayoutShape(32, 512, 7, 7), "ResNet-50 (arXiv 1512.03385), maps of stage conv5_x, batch 32"),
        )
    },
    rungs=(
        _layout_rung("along-w", "NCHW to NHWC, threads along w", "A warp reads side by side and writes C floats apart.", "05_to_nhwc", cpu.to_nhwc),
        _layout_rung("along-c", "NCHW to NHWC, threads along c", "A warp writes side by side and reads H*W floats apart.", "06_to_nhwc_along_c", cpu.to_nhwc_along_c),
    ),
)  # fmt: skip

LADDERS = (ADD, STRIDE, BANKS, LAYOUT)
