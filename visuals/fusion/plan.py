"""What the scene of a chain is made of: the shape that fits the stage, small whole numbers, and what the kernels of a rung
make of them: every buffer from the emulator, every value on its way through the registers of a launch by NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.fusion import codegen
from kernels.fusion import cpu as fusion_cpu
from kernels.fusion.common import Part
from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import TENSORS, ChainShape
from kernels.model.program import INPUT, Program
from kernels.model.shape import ShapeError

Arrays = Mapping[str, np.ndarray]
SIDE, MAPS = 4, 2  # rows and columns of a scaled-down map, or one more where they are odd; maps
FOLD = "fold"
SMALL = 128  # values of x that are shown whole
GAMMAS, SQUARES = (0.5, 1, 1.5, 2), (0.25, 1, 4)


# -- the shape on the stage ----------------------------------------------------------------------------
def shown(s: ChainShape) -> ChainShape:
    """The shape on the stage: `s` where it is small, else one image, few maps and as few rows and columns as the
    windows of its chain take. Blocks, windows, strides and padding stay, and odd sizes odd."""
    if s.N == 1 and math.prod(s.x_shape) <= SMALL and max(b.K for b in s.blocks) <= MAPS:
        return s
    words = [str(replace(b, K=min(b.K, MAPS))) for b in s.blocks]
    start = [min(extent, SIDE + extent % 2) for extent in (s.H, s.W)]
    for more in range(max(s.H, s.W) + 1):
        H, W = (min(extent, first + more) for extent, first in zip((s.H, s.W), start, strict=True))
        try:
            return ChainShape(1, min(s.C, MAPS), H, W, " ".join(words))
        except ShapeError:
            continue
    raise AssertionError("its own rows and columns fit")


@lru_cache(maxsize=64)
def inputs(s: ChainShape) -> Arrays:
    """Small whole numbers for every input, the same at each call. Of batch norm gamma may be a half, and var + eps is a
    square, so that its gain is a short number too."""
    rng = np.random.default_rng(3)
    made = {"x": rng.integers(-4, 5, s.x_shape)}
    for stage, names in zip(s.stages, s.tensors, strict=True):
        for tensor, name in names.items():
            size, eps = stage.tensors[tensor], stage.block.eps
            if tensor == "gamma":
                made[name] = rng.choice(GAMMAS, size)
            elif tensor == "var":
                made[name] = rng.choice([v for v in SQUARES if v > eps], size) - eps
            else:
                made[name] = rng.integers(-2, 3, size)
    return {name: array.astype(np.float32) for name, array in made.items()}


# -- a rung, run -----------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Ran:
    """A rung at a shape, executed: its launches, every buffer after them, what was counted (None where the kernels could
    not be compiled here, and their twins ran)."""

    parts: tuple[Part, ...]
    arrays: Arrays
    counters: Counters | None


@lru_cache(maxsize=64)
def ran(s: ChainShape, rung: str, tiles: tuple[tuple[str, int], ...]) -> Ran:
    plan = PLANS[rung](s, dict(tiles))
    program, given = plan.program, inputs(s)
    try:
        session = emulator.Session(program, dict(given), Options())
        session.verify_run()
        arrays = {b.name: np.array(session.memory.array(b.name)) for b in program.buffers}
        return Ran(plan.parts, arrays, session.counters)
    except CompilerMissing:
        return Ran(plan.parts, _by_twins(program, given), None)


def _by_twins(program: Program, given: Arrays) -> Arrays:
    arrays = {b.name: given[b.name] if b.role == INPUT else np.empty(b.shape, b.dtype) for b in program.buffers}  # fmt: skip
    for step in program.steps:
        step.twin(*(arrays[a] if isinstance(a, str) else a for a in step.args))
    return arrays


# -- a launch, block by block ------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Member:
    """A block as a launch computes it: the names of what it reads beside the maps, those arrays, its eps, and the maps
    before and after it, float32 [1, C, H, W]."""

    kind: str
    names: tuple[str, ...]
    given: tuple[np.ndarray, ...]
    eps: float
    before: np.ndarray
    after: np.ndarray

    def of_map(self, cells: np.ndarray) -> np.ndarray:
        """The map of each flat cell of `after`."""
        return np.asarray(cells) // math.prod(self.after.shape[2:]) % self.after.shape[1]

    @property
    def gain(self) -> np.ndarray:
        """Of a batch norm: gamma / sqrt(var + eps), [C]."""
        gamma, _, _, var = self.given
        return gamma / np.sqrt(var + np.float32(self.eps))


@dataclass(frozen=True, eq=False)
class Walk:
    """What a launch that is no fold does: the buffer it reads, its members, the buffer it writes, its struct Maps."""

    part: Part
    group: codegen.Group
    source: str
    members: tuple[Member, ...]
    target: str
    maps: np.void

    @property
    def front(self) -> tuple[Member, ...]:
        return tuple(self.members[n] for n in self.group.prologue)

    @property
    def core(self) -> Member | None:
        return self.members[len(self.group.prologue)] if self.group.core else None

    @property
    def tail(self) -> tuple[Member, ...]:
        return tuple(self.members[n] for n in self.group.epilogue)

    @property
    def result(self) -> np.ndarray:
        return self.members[-1].after

    def window(self, i: int) -> np.ndarray:
        """Flat cells of the source under the window of output i of a pool: those of its map that are there."""
        _, _, P, Q = self.core.after.shape
        C, H, W = self.core.before.shape[1:]
        R, stride, pad = (int(self.maps[name]) for name in ("R", "stride", "pad"))
        plane, p, q = i // (P * Q), i // Q % P, i % Q
        h, w = (at * stride - pad + np.arange(R) for at in (p, q))
        h, w = h[(h >= 0) & (h < H)], w[(w >= 0) & (w < W)]
        own = (h[:, None] * W + w).ravel()
        if self.group.core != "conv":
            return plane * H * W + own
        return (np.arange(C)[:, None] * H * W + own).ravel()


def walk(part: Part, arrays: Arrays) -> Walk:
    """A launch taken apart. The last map is what the kernel wrote."""
    launch = part.launch
    kinds = codegen.of_source(launch.source).kinds if launch.source.startswith(codegen.PREFIX) else (launch.entry,)  # fmt: skip
    source, *names, target = (a for a in launch.args if isinstance(a, str))
    maps, *eps = (a for a in launch.args if not isinstance(a, str))
    names, eps, value, members = iter(names), iter(eps), arrays[source], []
    for n, kind in enumerate(kinds):
        own = tuple(next(names) for _ in TENSORS.get(kind, ()))
        given = tuple(arrays[name] for name in own)
        scalar = next(eps) if kind == "bn" else np.float32(0)
        last = n == len(kinds) - 1
        after = arrays[target] if last else _after(kind, value, given, maps, scalar)
        members.append(Member(kind, own, given, float(scalar), value, after))
        value = after
    return Walk(part, codegen.Group(0, kinds), source, tuple(members), target, maps)


def _after(kind: str, x: np.ndarray, given, maps: np.void, eps: np.float32) -> np.ndarray:
    """One block alone, by its twin."""
    N, C, H, W = x.shape
    made = {"conv": [maps["K"], maps["P"], maps["Q"]], "gap": [C, 1, 1]}
    pooled = [C, maps["P"], maps["Q"]] if kind in ("maxpool", "avgpool") else [C, H, W]
    y = np.empty((N, *map(int, made.get(kind, pooled))), np.float32)
    fusion_cpu.group((kind,))(x, *given, y, maps, *([eps] if kind == "bn" else ()))
    return y


def is_fold(part: Part) -> bool:
    return part.launch.entry == FOLD
