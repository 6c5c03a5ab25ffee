"""Threads and memory: five ladders, each of rungs that compute the same thing and access memory differently.

add     C = A + B with one thread per element: which thread computes which element.
stride  every stride-th float copied: sectors of global memory.
banks   words of shared memory read at a stride: banks, with and without padding.
branch  Two branches: lanes of a warp that disagree, and warps whose lanes agree.
layout  NCHW to NHWC: an index becomes an address.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.i18n import mark
from kernels.memory import cpu, reference
from kernels.memory.shape import (
    TILE_COLS,
    TILE_ROWS,
    AddShape,
    BanksShape,
    BranchShape,
    LayoutShape,
    MemoryShape,
    StrideShape,
    parser,
)
from kernels.model.launch import ceil, launch
from kernels.model.preset import Preset
from kernels.model.program import INPUT, OUTPUT, Buffer, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules
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
    A, B, C = (Buffer(b, OUTPUT if b == "C" else INPUT, (s.M, s.N)) for b in "ABC")
    return A, B, C


def build_vector(s: AddShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    step = launch(
        "memory/01_vector_add.cu",
        (ceil(s.elements, block),),
        block,
        ("A", "B", "C", *_ints(s.elements)),
        cpu.vector_add,
    )
    return Program(_add_buffers(s), (step,))


def build_matrix(s: AddShape, tiles: Tiles) -> Program:
    tile = tiles["TILE"]
    step = launch(
        "memory/02_matrix_add.cu",
        (ceil(s.N, tile), ceil(s.M, tile)),
        (tile, tile),
        ("A", "B", "C", *_ints(s.M, s.N)),
        cpu.matrix_add,
    )
    return Program(_add_buffers(s), (step,))


def build_transposed(s: AddShape, tiles: Tiles) -> Program:
    tile = tiles["TILE"]
    step = launch(
        "memory/03_matrix_add_transposed.cu",
        (ceil(s.M, tile), ceil(s.N, tile)),
        (tile, tile),
        ("A", "B", "C", *_ints(s.M, s.N)),
        cpu.matrix_add_transposed,
    )
    return Program(_add_buffers(s), (step,))


def vector_rules(s: AddShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"M*N": s.elements}, tiles["BLOCK"], "BLOCK")


def matrix_rules(s: AddShape, tiles: Tiles) -> Iterator[str]:
    if ceil(s.M, tiles["TILE"]) > MAX_GRID_YZ:
        yield broken(f"M <= {MAX_GRID_YZ}*TILE (grid.y)", s.M)


def transposed_rules(s: AddShape, tiles: Tiles) -> Iterator[str]:
    if ceil(s.N, tiles["TILE"]) > MAX_GRID_YZ:
        yield broken(f"N <= {MAX_GRID_YZ}*TILE (grid.y)", s.N)


# One rounding of one sum: float32 is within 2^-24 of the exact sum.
ADD = Ladder(
    name="add",
    shape=AddShape,
    parse=parser(AddShape),
    reference=reference.add,
    presets={
        p.key: p
        for p in (
            Preset("add-toy", mark("Toy 12×20"), AddShape(12, 20), mark("small enough to follow every thread")),
            Preset("add-ragged", "1,001×1,003", AddShape(1001, 1003), mark("extents that no block size divides")),
            Preset("add-4096", "4,096²", AddShape(4096, 4096), mark("larger than every cache")),
            Preset(
                "add-resnet50-res2-n32",
                mark("ResNet-50 res2 shortcut, N=32"),
                AddShape(32 * 256, 56 * 56),
                mark(
                    "ResNet-50 (arXiv 1512.03385), the sum at the end of a conv2_x block: 256 maps of 56 x 56, batch 32"
                ),
            ),
        )
    },
    rungs=(
        Rung(
            name="add/vector",
            title=mark("vector add"),
            idea=mark(
                "The matrix is one long vector, with one thread per element. The floats of a warp are contiguous."
            ),
            build=build_vector,
            cost=cost,
            rules=vector_rules,
            tolerance=2.0**-23,
            tiles={"BLOCK": BLOCKS},
            not_on_cpu=mark(
                "NumPy has no thread index; without it this is the same sum in the same order as row after row"
            ),
        ),
        Rung(
            name="add/matrix",
            title=mark("matrix add, x along the row"),
            idea=mark(
                "Blocks are squares of threads. threadIdx.x counts columns, so the floats of a warp are contiguous."
            ),
            build=build_matrix,
            cost=cost,
            rules=matrix_rules,
            tolerance=2.0**-23,
            tiles={"TILE": TILES},
            cpu_title=mark("matrix add, row after row"),
        ),
        Rung(
            name="add/matrix-transposed",
            title=mark("matrix add, x down the column"),
            idea=mark("threadIdx.x counts rows. Each lane of a warp accesses a different sector (32 bytes)."),
            build=build_transposed,
            cost=cost,
            rules=transposed_rules,
            tolerance=2.0**-23,
            tiles={"TILE": TILES},
            cpu_title=mark("matrix add, column after column"),
        ),
    ),
)


# -- stride ----------------------------------------------------------------------------------------
def build_stride(s: StrideShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    step = launch(
        "teaching/01_strided_copy.cu", (ceil(s.n, block),), block, ("x", "y", *_ints(s.n, s.stride)), cpu.strided_copy
    )
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
            Preset("stride-toy", mark("Toy: one warp, stride 2"), StrideShape(32, 2), mark("one warp")),
            *(
                Preset(
                    f"stride-{stride}",
                    mark("stride {stride}"),
                    StrideShape(1 << 23, stride),
                    mark("2^23 floats copied: larger than the L2 cache at every stride"),
                    {"stride": stride},
                )
                for stride in STRIDES
            ),
        )
    },
    rungs=(
        Rung(
            name="stride/copy",
            title=mark("strided copy"),
            idea=mark(
                "One thread per float copied. Of x, every stride-th float is read: more sectors are fetched for the "
                "same number of floats."
            ),
            build=build_stride,
            cost=cost,
            rules=stride_rules,
            tolerance=0.0,  # a copy is exact
            tiles={"BLOCK": BLOCKS},
            cpu_title=mark("strided copy"),
        ),
    ),
)


# -- banks -----------------------------------------------------------------------------------------
def _build_banks(pad: int):
    def build(s: BanksShape, tiles: Tiles) -> Program:
        block = tiles["BLOCK"]
        step = launch(
            "memory/04_shared_stride.cu",
            (ceil(s.n, block),),
            block,
            ("x", "y", *_ints(s.n, s.stride, s.turns)),
            cpu.shared_stride,
            {"PAD": pad},
        )
        return Program((Buffer("x", INPUT, (TILE_ROWS, TILE_COLS)), Buffer("y", OUTPUT, (s.n,))), (step,))

    return build


def thread_rules(s: BanksShape | BranchShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule of kernels with one thread for each of n elements."""
    yield from index_rules({"n": s.n}, tiles["BLOCK"], "BLOCK")


def _banks_rung(name: str, title: str, idea: str, pad: int) -> Rung:
    return Rung(
        name=f"banks/{name}",
        title=title,
        idea=idea,
        build=_build_banks(pad),
        cost=cost,
        rules=thread_rules,
        tolerance=1e-5,
        tiles={"BLOCK": BLOCKS},
        not_on_cpu=mark("a processor has no shared memory and no banks"),
    )


BANKS = Ladder(
    name="banks",
    shape=BanksShape,
    parse=parser(BanksShape),
    reference=reference.banks,
    presets={
        p.key: p
        for p in (
            Preset("banks-toy", mark("Toy: one warp, stride 2"), BanksShape(32, 2), mark("one warp, one turn")),
            *(
                Preset(
                    f"banks-{stride}",
                    mark("stride {stride}"),
                    BanksShape(1 << 18, stride, 64),
                    mark("2,048 reads of shared memory by each of 2^18 threads: they take nearly all of the time"),
                    {"stride": stride},
                )
                for stride in BANK_STRIDES
            ),
        )
    },
    rungs=(
        _banks_rung(
            "plain",
            mark("rows of 32 words"),
            mark("Lanes read a tile at a stride. If the stride is even, lanes access the same banks."),
            0,
        ),
        _banks_rung(
            "padded",
            mark("rows padded to 33"),
            mark("One unused word follows each row. The words of a column are then in different banks."),
            1,
        ),
    ),
)


# -- branch ----------------------------------------------------------------------------------------
def _build_branch(grouped: int):
    def build(s: BranchShape, tiles: Tiles) -> Program:
        block = tiles["BLOCK"]
        step = launch(
            "memory/07_branch.cu",
            (ceil(s.n, block),),
            block,
            ("x", "y", *_ints(s.n, s.rounds)),
            cpu.branch,
            {"GROUPED": grouped},
        )
        return Program((Buffer("x", INPUT, (s.n,)), Buffer("y", OUTPUT, (s.n,))), (step,))

    return build


def _branch_rung(name: str, title: str, idea: str, grouped: int) -> Rung:
    return Rung(
        name=f"branch/{name}",
        title=title,
        idea=idea,
        build=_build_branch(grouped),
        cost=cost,
        rules=thread_rules,
        tolerance=1e-6,
        tiles={"BLOCK": BLOCKS},
        not_on_cpu=mark("a processor has no warps whose lanes could disagree"),
    )


BRANCH = Ladder(
    name="branch",
    shape=BranchShape,
    parse=parser(BranchShape),
    reference=reference.branch,
    presets={
        p.key: p
        for p in (
            Preset("branch-toy", mark("Toy: two warps, 2 rounds"), BranchShape(64, 2), mark("small enough to follow every lane")),
            Preset("branch-large", mark("2^22 threads, 256 rounds"), BranchShape(1 << 22, 256), mark("the multiply-adds take nearly all of the time")),
        )
    },
    rungs=(
        _branch_rung("lanes", mark("branches inside a warp"), mark("Even lanes take one branch, odd lanes the other. Each warp runs both."), 0),
        _branch_rung("warps", mark("one branch per warp"), mark("The elements are regrouped: all lanes of a warp take the same branch."), 1),
    ),
)  # fmt: skip


# -- layout ----------------------------------------------------------------------------------------
def _build_layout(source: str, cpu_function):
    def build(s: LayoutShape, tiles: Tiles) -> Program:
        block = tiles["BLOCK"]
        step = launch(
            f"memory/{source}.cu",
            (ceil(s.elements, block),),
            block,
            ("x", "y", *_ints(s.N, s.C, s.H, s.W)),
            cpu_function,
        )
        x, y = Buffer("x", INPUT, (s.N, s.C, s.H, s.W)), Buffer("y", OUTPUT, (s.N, s.H, s.W, s.C))
        return Program((x, y), (step,))

    return build


def layout_rules(s: LayoutShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"N*C*H*W": s.elements}, tiles["BLOCK"], "BLOCK")


def _layout_rung(name: str, title: str, idea: str, source: str, cpu_function, cpu_title: str) -> Rung:
    return Rung(
        name=f"layout/{name}",
        title=title,
        idea=idea,
        build=_build_layout(source, cpu_function),
        cost=cost,
        rules=layout_rules,
        tolerance=0.0,  # a copy is exact
        tiles={"BLOCK": BLOCKS},
        cpu_title=cpu_title,
    )


LAYOUT = Ladder(
    name="layout",
    shape=LayoutShape,
    parse=parser(LayoutShape),
    reference=reference.layout,
    presets={
        p.key: p
        for p in (
            Preset("layout-toy", mark("Toy 2×3×2×4"), LayoutShape(2, 3, 2, 4), mark("small enough to count")),
            Preset("layout-photos", mark("32 photos"), LayoutShape(32, 3, 224, 224), mark("a batch of 32 colour pictures of 224 x 224")),
            Preset("layout-res2-n32", "ResNet-50 res2, N=32", LayoutShape(32, 64, 56, 56), mark("ResNet-50 (arXiv 1512.03385), maps of stage conv2_x, batch 32")),
            Preset("layout-res5-n32", "ResNet-50 res5, N=32", LayoutShape(32, 512, 7, 7), mark("ResNet-50 (arXiv 1512.03385), maps of stage conv5_x, batch 32")),
        )
    },
    rungs=(
        _layout_rung("along-w", mark("NCHW to NHWC, threads along w"), mark("A warp reads contiguous floats and writes floats that are C apart."), "05_to_nhwc", cpu.to_nhwc, mark("NCHW to NHWC, channel after channel")),
        _layout_rung("along-c", mark("NCHW to NHWC, threads along c"), mark("A warp writes contiguous floats and reads floats that are H*W apart."), "06_to_nhwc_along_c", cpu.to_nhwc_along_c, mark("NCHW to NHWC, row of pixels after row")),
    ),
)  # fmt: skip

LADDERS = (ADD, STRIDE, BANKS, BRANCH, LAYOUT)
