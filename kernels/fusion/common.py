"""What the rungs of the fusion ladder share: buffers, launches of a group of blocks, what each moves, the rules.

For a page: kernels.fusion.ladder.PLANS[rung name](shape, tiles).parts lists a rung's launches, each with the blocks it
computes, the bytes it reads and writes if caches are perfect, and its FLOPs; the text of its kernel is
kernels.sources.text(part.launch.source). Measured times of the launches, under the same names, are a Measurement's
`parts_ms`; bytes allocated, step by step, its `timeline`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.fusion import cpu
from kernels.fusion.codegen import Group
from kernels.fusion.shape import OPERATIONS, ChainShape, Stage
from kernels.model.fast_division import magic
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, Program, Tiles
from kernels.model.rules import most_rules
from kernels.model.rung import Cost

MOST_VALUES = 2**30  # of one tensor: a thread's next place must stay below 2^31
WARP = 32
MAPS_STRUCT = np.dtype(
    [(name, np.int32) for name in "N C H W K P Q R stride pad".split()]
    + [
        (f"{by}_{part}", dtype)
        for by in ("by_Q", "by_PQ", "by_K")
        for part, dtype in (("multiplier", np.uint32), ("shift", np.int32))
    ]
)
# Hand-written, in kernels/fusion/cuda: a block alone.
ALONE = ("conv", "bias", "bn", "relu", "add", "maxpool", "avgpool", "gap")


@dataclass(frozen=True)
class Part:
    """One launch of a rung: `blocks` are the numbers (from 0) of those it computes; bytes of HBM that it `reads` and
    `writes` if caches are perfect; `flops` it executes, padding counted as if it were there."""

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
    """A rung at a shape: what `Rung.build` makes its Program of."""

    buffers: tuple[Buffer, ...]
    parts: tuple[Part, ...]

    @property
    def program(self) -> Program:
        return Program(self.buffers, tuple(part.launch for part in self.parts))


# -- buffers -------------------------------------------------------------------------------------------------
def buffers(s: ChainShape) -> tuple[Buffer, ...]:
    """x, every tensor of every block (ChainShape.tensors), and y. A variance is positive."""
    tensors = (
        Buffer(name, INPUT, stage.tensors[tensor], positive=tensor == "var")
        for stage, names in zip(s.stages, s.tensors, strict=True)
        for tensor, name in names.items()
    )
    return Buffer("x", INPUT, s.x_shape), *tensors, Buffer("y", OUTPUT, s.y_shape)


@dataclass(frozen=True)
class Placed:
    """A block as a rung computes it: the buffers of its tensors, and the numbers of the chain's blocks it stands for."""

    stage: Stage
    tensors: tuple[str, ...]
    blocks: tuple[int, ...]


def placed(s: ChainShape) -> tuple[Placed, ...]:
    """Every block of the chain, as it is asked for."""
    return tuple(
        Placed(stage, tuple(names.values()), (stage.at,))
        for stage, names in zip(s.stages, s.tensors, strict=True)
    )


# -- launches ------------------------------------------------------------------------------------------------
def plan(s: ChainShape, of: Sequence[Placed], groups: Sequence[Group], tiles: Tiles) -> Plan:
    """A launch for each group of the blocks `of`: the kernel written for it, or where it is a block alone the
    hand-written one. Maps between launches are "t<number of the last block before>"."""
    held, parts, from_ = list(buffers(s)), [], "x"
    for group in groups:
        some = [of[n] for n in group.blocks]
        last = some[-1]
        to = "y" if group is groups[-1] else f"t{last.blocks[-1] + 1}"
        if to != "y":
            held.append(Buffer(to, WORKSPACE, last.stage.after))
        parts.append(_part(group, some, from_, to, tiles))
        from_ = to
    return Plan(tuple(held), told_apart(parts))


def source(group: Group) -> str:
    """The kernel of a group."""
    first, *others = group.kinds
    return group.source if others else f"fusion/{ALONE.index(first) + 1:02}_{first}.cu"


def _part(group: Group, some: Sequence[Placed], from_: str, to: str, tiles: Tiles) -> Part:
    stages = [block.stage for block in some]
    before, after = stages[0].before, stages[-1].after
    eps = (np.float32(stage.block.eps) for stage in stages if stage.block.kind == "bn")
    args = (from_, *(name for block in some for name in block.tensors), to, maps(stages), *eps)
    threads = {"": ceil(math.prod(after), 4 * tiles["FOURS"]), "gap": WARP * math.prod(after)}
    grid = ceil(threads.get(group.core, math.prod(after)), tiles["BLOCK"])
    read = (before, *(shape for stage in stages for shape in stage.tensors.values()))
    return Part(
        launch(source(group), (grid,), tiles["BLOCK"], args, cpu.group(group.kinds)),
        tuple(at for block in some for at in block.blocks),
        4 * sum(map(math.prod, read)),
        4 * math.prod(after),
        flops(group, stages),
    )


def maps(stages: Sequence[Stage]) -> np.void:
    """What kernels/fusion/cuda/fusion.cuh calls `Maps`, for blocks that share a kernel."""
    before, after = stages[0].before, stages[-1].after
    core = next((stage.block for stage in stages if not stage.block.pointwise), stages[0].block)
    by = (v for m in map(magic, (after[3], after[2] * after[3], after[1])) for v in (m.multiplier, m.shift))
    return np.array((*before, *after[1:], core.R, core.stride, core.pad, *by), MAPS_STRUCT)[()]


def flops(group: Group, stages: Sequence[Stage]) -> int:
    """A prologue is computed for every window that holds a value, again and again where windows overlap."""
    prologue = 0
    if group.prologue:
        core = stages[len(group.prologue)]
        whole = group.core == "gap"
        values = math.prod(core.before) if whole else math.prod(core.after) * core.block.R**2
        prologue = values * sum(OPERATIONS[group.kinds[n]] for n in group.prologue)
    return prologue + sum(stage.flops for stage in stages[len(group.prologue) :])


def told_apart(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The second launch of a name gets a label: "relu 2"."""
    seen: dict[str, int] = {}
    out = []
    for part in parts:
        name = part.launch.entry
        seen[name] = seen.get(name, 0) + 1
        label = f"{name} {seen[name]}" if seen[name] > 1 else ""
        out.append(replace(part, launch=replace(part.launch, label=label)))
    return tuple(out)


# -- cost and rules --------------------------------------------------------------------------------------------
def cost_of(plan: Callable[[ChainShape, Tiles], Plan]) -> Callable[[ChainShape, Program], Cost]:
    """What the launches of a plan execute and move, and the maps between them."""

    def cost(s: ChainShape, program: Program) -> Cost:
        parts = plan(s, {"BLOCK": 256, "FOURS": 1}).parts  # they change neither
        return Cost(
            sum(part.flops for part in parts), sum(part.bytes for part in parts), program.nbytes(WORKSPACE)
        )

    return cost


def rules(s: ChainShape, tiles: Tiles) -> Iterator[str]:
    """Places are counted by int, and a thread looks one turn ahead."""
    yield from most_rules("values of x", math.prod(s.x_shape), MOST_VALUES)
    for stage in s.stages:
        where = f"block {stage.at + 1} ({stage.block.kind})"
        if "w" in stage.tensors:
            yield from most_rules(f"weights of {where}", math.prod(stage.tensors["w"]), MOST_VALUES)
        values = math.prod(stage.after) * (WARP if stage.block.kind == "gap" else 1)
        yield from most_rules(f"values after {where}", values, MOST_VALUES)
