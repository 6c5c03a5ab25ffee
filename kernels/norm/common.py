"""Helpers of the norm ladders: widths of loads, parts of a channel, costs and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernels.i18n import tr
from kernels.libraries import torch as torch_library
from kernels.model.fast_division import magic
from kernels.model.launch import ceil
from kernels.model.program import Program, Tiles
from kernels.model.rules import OTHER_REGISTERS, REGISTERS, index_rules, max_rules
from kernels.model.rung import Cost, Rung
from kernels.model.shape import Shape
from kernels.norm.reference import TOLERANCE
from kernels.norm.shape import EPS, FLOAT, NHWC, MapsShape, RowsShape

BLOCKS = (256, 1024, 512, 128, 32, 8, 4)  # powers of two: a tree halves them
WHOLE_WARPS = (256, 512, 1024, 128, 64, 32)
GRIDS = (1056, 528, 2112, 264, 12, 3)  # blocks of a launch: 8 for each of the 132 SMs of an H200, by default
MAX_PARTS = 64  # of a channel: each thread of the second launch merges all of them
MAX_COUNT = 2**24  # up to here float32 counts without a gap
EPSILON = np.float32(EPS)
MAGIC = np.dtype([("multiplier", "u4"), ("shift", "i4")])  # Magic of kernels/cuda/magic.cuh


def width(extent: int) -> int:
    """Returns how many floats a thread loads at once: 4 where each run of `extent` floats is whole float4, else 1."""
    return 1 if extent % 4 else 4


def divider(divisor: int) -> np.generic:
    """Returns the argument of a kernel that divides by a number."""
    m = magic(divisor)
    return np.array([(m.multiplier, m.shift)], MAGIC)[0]


def ints(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(v) for v in values)


def parts_of(total: int, wanted: int, least: int) -> tuple[int, int]:
    """Returns (parts, size of a part) of `total` numbers: as many parts as wanted, each of at least `least` numbers, none
    of them empty."""
    size = max(ceil(total, max(wanted, 1)), min(least, total))
    return ceil(total, size), size


# -- cost ----------------------------------------------------------------------------------------------
def cost_of(reads: int, writes: int, operations: int) -> Callable[[MapsShape | RowsShape, Program], Cost]:
    """Returns a cost: so many reads and writes of tensors of the size of x, so many operations an element.

    Every pass over x counts, because beyond the caches each comes from HBM. The vectors of means, factors and partial
    sums are left out of the bytes: they are small and stay in caches."""

    def cost(s: MapsShape | RowsShape, program: Program) -> Cost:
        workspace = program.nbytes("workspace")
        return Cost(operations * s.elements, FLOAT * (reads + writes) * s.elements, workspace)

    return cost


def library_cost(s: Shape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the minimum traffic. A library's own passes are not known."""
    return Cost(s.flops, s.bytes, None)


# -- rules ---------------------------------------------------------------------------------------------
def layout_rules(s: MapsShape, layout: str) -> Iterator[str]:
    if s.layout != layout:
        yield tr("layout must be {layout}, got {got}", layout=layout, got=s.layout)


def channel_rules(s: MapsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of a kernel with one block per channel."""
    yield from index_rules({"N*H*W": s.count}, tiles["BLOCK"], "BLOCK")


def count_rules(s: MapsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule of a kernel that counts the numbers of a channel in float32."""
    yield from max_rules("N*H*W", s.count, MAX_COUNT)


def flat_rules(s: MapsShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"N*C*H*W": s.elements}, 16 * tiles["BLOCK"])


def row_rules(s: RowsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule on N: a thread's last index may be BLOCK beyond the row."""
    yield from index_rules({"N": s.N}, tiles["BLOCK"])


def counted_row_rules(s: RowsShape, tiles: Tiles) -> Iterator[str]:
    yield from max_rules("N", s.N, MAX_COUNT)


def warp_rules(s: RowsShape, tiles: Tiles) -> Iterator[str]:
    yield from max_rules(tr("N (a row in 32*PER registers)"), s.N, 32 * tiles["PER"])
    yield from index_rules({"M": s.M}, tiles["WARPS"])


def register_rules(s: RowsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule that a row fits into the registers of a block."""
    yield from max_rules(tr("N (a row in BLOCK*PER registers)"), s.N, tiles["BLOCK"] * tiles["PER"])


def grid_rules(s: RowsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of a kernel whose blocks take one row after the other."""
    yield from register_rules(s, tiles)
    yield from index_rules({"M": s.M}, tiles["BLOCKS"], "BLOCKS")
    registers = tiles["BLOCK"] * (4 * tiles["PER"] + OTHER_REGISTERS)
    yield from max_rules(tr("BLOCK*(4*PER + {other}) registers", other=OTHER_REGISTERS), registers, REGISTERS)


def all_rules(*rules: Callable) -> Callable[..., Iterator[str]]:
    def rules_of(s: Shape, tiles: Tiles) -> Iterator[str]:
        for rule in rules:
            yield from rule(s, tiles)

    return rules_of


def no_rules(s: Shape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def in_nchw(s: MapsShape, tiles: Tiles) -> Iterator[str]:
    yield from layout_rules(s, "nchw")


def in_nhwc(s: MapsShape, tiles: Tiles) -> Iterator[str]:
    yield from layout_rules(s, NHWC)


# -- rungs ---------------------------------------------------------------------------------------------
def library_rung(name: str, title: str, idea: str, build: Callable, library: str = "PyTorch") -> Rung:
    return Rung(
        name,
        title,
        idea,
        build,
        library_cost,
        no_rules,
        TOLERANCE,
        library=library,
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )
