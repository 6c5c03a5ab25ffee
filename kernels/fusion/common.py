"""Buffers, launches of groups of blocks, their bytes, and rules that the rungs of the fusion ladder share.

For a page: kernels.fusion.ladder.PLANS[rung name](shape, tiles).parts lists a rung's launches. Each has the blocks it
computes, the bytes it reads and writes if caches are perfect, and its FLOPs. The text of its kernel is
kernels.sources.text(part.launch.source). A Measurement's `parts_ms` has the measured times of the launches under the
same names, and its `timeline` the bytes allocated, step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.conv.implicit import implicit_shared, threads
from kernels.fusion import cpu
from kernels.fusion.codegen import Group
from kernels.fusion.shape import OPERATIONS, ChainShape, Extents, Stage
from kernels.i18n import tr
from kernels.model.fast_division import magic
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, Launch, Program, Tiles
from kernels.model.rules import max_rules
from kernels.model.rung import Cost

MAX_VALUES = 2**30  # in one tensor: a thread's next index must stay below 2^31
WARP = 32
BLOCK, FOURS = 256, 1  # threads of a block, float4 of a thread, if they are no tile sizes of the rung
MAPS_STRUCT = np.dtype(
    [(name, np.int32) for name in "N C H W K P Q R stride pad".split()]
    + [
        (f"{divisor}_{part}", dtype)
        for divisor in ("by_Q", "by_PQ", "by_K")
        for part, dtype in (("multiplier", np.uint32), ("shift", np.int32))
    ]
)
# Of a convolution as a matrix product: `ConvMaps` of kernels/fusion/cuda/conv_product.cuh.
CONV_MAPS_STRUCT = np.dtype(
    [*MAPS_STRUCT.descr]
    + [
        (f"{divisor}_{part}", dtype)
        for divisor in ("by_RR", "by_R")
        for part, dtype in (("multiplier", np.uint32), ("shift", np.int32))
    ]
)
# Blocks with a hand-written kernel in kernels/fusion/cuda, in the order of the files.
HAND_WRITTEN = ("conv", "bias", "bn", "relu", "add", "maxpool", "avgpool", "gap")


@dataclass(frozen=True)
class Part:
    """One launch of a rung. `blocks` are the numbers (from 0) of the blocks it computes.

    `reads` and `writes` are its bytes of HBM if caches are perfect. `flops` counts padding like other values.
    """

    launch: Launch
    blocks: tuple[int, ...]
    reads: int
    writes: int
    flops: int

    @property
    def bytes(self) -> int:
        return self.reads + self.writes


@dataclass(frozen=True)
class Plan:
    """A rung at a shape, from which `Rung.build` makes its Program."""

    buffers: tuple[Buffer, ...]
    parts: tuple[Part, ...]

    @property
    def program(self) -> Program:
        return Program(self.buffers, tuple(part.launch for part in self.parts))


# -- buffers -------------------------------------------------------------------------------------------------
def buffers(s: ChainShape) -> tuple[Buffer, ...]:
    """Returns x, every tensor of every block (ChainShape.tensors), and y. A variance is positive."""
    tensors = (
        Buffer(name, INPUT, stage.tensors[tensor], positive=tensor == "var")
        for stage, names in zip(s.stages, s.tensors, strict=True)
        for tensor, name in names.items()
    )
    return Buffer("x", INPUT, s.x_shape), *tensors, Buffer("y", OUTPUT, s.y_shape)


@dataclass(frozen=True)
class ComputedBlock:
    """A block as a rung computes it: the buffers of its tensors, and the numbers of the chain's blocks it replaces."""

    stage: Stage
    tensors: tuple[str, ...]
    blocks: tuple[int, ...]


def computed_blocks(s: ChainShape) -> tuple[ComputedBlock, ...]:
    """Returns every block of the chain, unchanged."""
    return tuple(
        ComputedBlock(stage, tuple(names.values()), (stage.at,))
        for stage, names in zip(s.stages, s.tensors, strict=True)
    )


# -- launches ------------------------------------------------------------------------------------------------
def plan(s: ChainShape, blocks: Sequence[ComputedBlock], groups: Sequence[Group], tiles: Tiles) -> Plan:
    """Returns a plan with one launch for each group of the blocks.

    The kernel of a group is generated. The kernel of a single block is hand-written. Maps between launches are named
    "t<number of the last block before>".
    """
    plan_buffers, parts, from_ = list(buffers(s)), [], "x"
    for group in groups:
        members = [blocks[n] for n in group.blocks]
        last = members[-1]
        to = "y" if group is groups[-1] else f"t{last.blocks[-1] + 1}"
        if to != "y":
            plan_buffers.append(Buffer(to, WORKSPACE, last.stage.after))
        parts.append(_part(group, members, from_, to, tiles))
        from_ = to
    return Plan(tuple(plan_buffers), with_labels(parts))


def source(group: Group) -> str:
    """Returns the source of a group's kernel."""
    first, *others = group.kinds
    return group.source if others or group.is_product else f"fusion/{HAND_WRITTEN.index(first) + 1:02}_{first}.cu"


def _part(group: Group, members: Sequence[ComputedBlock], from_: str, to: str, tiles: Tiles) -> Part:
    stages = [block.stage for block in members]
    before, after = stages[0].before, stages[-1].after
    eps = (np.float32(stage.block.eps) for stage in stages if stage.block.kind == "bn")
    struct = conv_maps(stages) if group.is_product else maps(stages)
    args = (from_, *(name for block in members for name in block.tensors), to, struct, *eps)
    read_shapes = (before, *(shape for stage in stages for shape in stage.tensors.values()))
    return Part(
        _launch(group, after, args, tiles),
        tuple(at for block in members for at in block.blocks),
        4 * sum(map(math.prod, read_shapes)),
        4 * math.prod(after),
        flops(group, stages),
    )


def _launch(group: Group, after: Extents, args: tuple[Arg, ...], tiles: Tiles) -> Launch:
    """Returns the launch of a group that writes maps of the extents `after`."""
    text, run, (N, K, P, Q) = source(group), cpu.group(group.kinds), after
    if group.is_product:
        grid = ceil(N * P * Q, tiles["BN"]), ceil(K, tiles["BM"])
        return launch(text, grid, threads(tiles), args, run, tiles, implicit_shared(tiles))
    count = {"": ceil(math.prod(after), 4 * tiles.get("FOURS", FOURS)), "gap": WARP * math.prod(after)}
    block = tiles.get("BLOCK", BLOCK)
    grid = ceil(count.get(group.core, math.prod(after)), block)
    return launch(text, (grid,), block, args, run)


def conv_maps(stages: Sequence[Stage]) -> np.void:
    """Returns `ConvMaps` of kernels/fusion/cuda/conv_product.cuh for blocks whose first is a convolution."""
    R = stages[0].block.R
    divisors = (v for m in map(magic, (R * R, R)) for v in (m.multiplier, m.shift))
    return np.array([(*maps(stages).tolist(), *divisors)], CONV_MAPS_STRUCT)[0]


def maps(stages: Sequence[Stage]) -> np.void:
    """Returns `Maps` of kernels/fusion/cuda/fusion.cuh for blocks that share a kernel."""
    before, after = stages[0].before, stages[-1].after
    core = next((stage.block for stage in stages if not stage.block.pointwise), stages[0].block)
    divisor = (v for m in map(magic, (after[3], after[2] * after[3], after[1])) for v in (m.multiplier, m.shift))
    return np.array([(*before, *after[1:], core.R, core.stride, core.pad, *divisor)], MAPS_STRUCT)[0]


def flops(group: Group, stages: Sequence[Stage]) -> int:
    """Returns the FLOPs of a group. A prologue is computed again for every window that contains a value."""
    prologue = 0
    if group.prologue:
        core = stages[len(group.prologue)]
        is_gap = group.core == "gap"
        values = math.prod(core.before) if is_gap else math.prod(core.after) * core.block.R**2
        prologue = values * sum(OPERATIONS[group.kinds[n]] for n in group.prologue)
    return prologue + sum(stage.flops for stage in stages[len(group.prologue) :])


def with_labels(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Returns the parts with a label for the second launch of a name: "relu 2"."""
    counts: dict[str, int] = {}
    out = []
    for part in parts:
        name = part.launch.entry
        counts[name] = counts.get(name, 0) + 1
        label = f"{name} {counts[name]}" if counts[name] > 1 else ""
        out.append(replace(part, launch=replace(part.launch, label=label)))
    return tuple(out)


# -- cost and rules --------------------------------------------------------------------------------------------
def cost_of(plan: Callable[[ChainShape, Tiles], Plan]) -> Callable[[ChainShape, Program], Cost]:
    """Returns a cost function: FLOPs and bytes of a plan's launches, and the bytes of the maps between them."""

    def cost(s: ChainShape, program: Program) -> Cost:
        parts = plan(s, {"BLOCK": 256, "FOURS": 1}).parts  # tiles change neither
        return Cost(sum(part.flops for part in parts), sum(part.bytes for part in parts), program.nbytes(WORKSPACE))

    return cost


def rules(s: ChainShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules on sizes: an index is an int, and a thread computes its next index in advance."""
    yield from max_rules(tr("values of x"), math.prod(s.x_shape), MAX_VALUES)
    for stage in s.stages:
        block = {"n": stage.at + 1, "kind": stage.block.kind}
        if "w" in stage.tensors:
            yield from max_rules(
                tr("weights of block {n} ({kind})", **block), math.prod(stage.tensors["w"]), MAX_VALUES
            )
        values = math.prod(stage.after) * (WARP if stage.block.kind == "gap" else 1)
        yield from max_rules(tr("values after block {n} ({kind})", **block), values, MAX_VALUES)
