"""The data of a chain's scene: the shape that fits the stage, small whole numbers as inputs, and the results of a
rung's kernels. The emulator computes every buffer. NumPy computes every value in the registers of a launch."""

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
from kernels.fusion import codegen, cpu
from kernels.fusion.common import Part
from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import TENSORS, ChainShape
from kernels.model.program import INPUT, Program
from kernels.model.shape import ShapeError

Arrays = Mapping[str, np.ndarray]
SIDE, MAPS = 4, 2  # rows and columns of a scaled-down map, or one more if they are odd; maps
FOLD = "fold"
SMALL = 128  # an x of up to so many values is not scaled down
GAMMAS, SQUARES = (0.5, 1, 1.5, 2), (0.25, 1, 4)


# -- the shape on the stage ----------------------------------------------------------------------------
def stage_shape(s: ChainShape) -> ChainShape:
    """Returns the shape on the stage: `s` if it is small. Otherwise it has one image, few maps, and as few rows
    and columns as the windows of its chain need. Blocks, windows, strides and padding stay. Odd sizes stay
    odd."""
    if s.N == 1 and math.prod(s.x_shape) <= SMALL and max(b.K for b in s.blocks) <= MAPS:
        return s
    block_texts = [str(replace(b, K=min(b.K, MAPS))) for b in s.blocks]
    start = [min(extent, SIDE + extent % 2) for extent in (s.H, s.W)]
    for more in range(max(s.H, s.W) + 1):
        H, W = (min(extent, first + more) for extent, first in zip((s.H, s.W), start, strict=True))
        try:
            return ChainShape(1, min(s.C, MAPS), H, W, " ".join(block_texts))
        except ShapeError:
            continue
    raise AssertionError("its own rows and columns fit")


@lru_cache(maxsize=64)
def inputs(s: ChainShape) -> Arrays:
    """Returns small whole numbers for every input, the same at each call. For batch norm, gamma may be a half and
    var + eps is a square, so that its gain is a short number too."""
    rng = np.random.default_rng(3)
    arrays: dict[str, np.ndarray] = {"x": rng.integers(-4, 5, s.x_shape)}
    for stage, names in zip(s.stages, s.tensors, strict=True):
        for tensor, name in names.items():
            size, eps = stage.tensors[tensor], stage.block.eps
            if tensor == "gamma":
                arrays[name] = rng.choice(GAMMAS, size)
            elif tensor == "var":
                arrays[name] = rng.choice([v for v in SQUARES if v > eps], size) - eps
            else:
                arrays[name] = rng.integers(-2, 3, size)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


# -- a rung, run -----------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class RungRun:
    """A rung executed at a shape: its launches, every buffer after them, and the counters (None if the kernels
    could not be compiled and the CPU implementations ran)."""

    parts: tuple[Part, ...]
    arrays: Arrays
    counters: Counters | None


@lru_cache(maxsize=64)
def run_rung(s: ChainShape, rung: str, tiles: tuple[tuple[str, int], ...]) -> RungRun:
    plan = PLANS[rung](s, dict(tiles))
    program, input_arrays = plan.program, inputs(s)
    try:
        session = emulator.Session(program, dict(input_arrays), Options())
        session.verify_run()
        arrays = {b.name: np.array(session.memory.array(b.name)) for b in program.buffers}
        return RungRun(plan.parts, arrays, session.counters)
    except CompilerMissing:
        return RungRun(plan.parts, _by_cpu(program, input_arrays), None)


def _by_cpu(program: Program, input_arrays: Arrays) -> Arrays:
    arrays = {b.name: input_arrays[b.name] if b.role == INPUT else np.empty(b.shape, b.dtype) for b in program.buffers}
    for step in program.launches:
        step.cpu(*(arrays[a] if isinstance(a, str) else a for a in step.args))
    return arrays


# -- a launch, block by block ------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Member:
    """A block as a launch computes it: the names of what it reads beside the maps, those arrays, its eps, and the
    maps before and after it, float32 [1, C, H, W]."""

    kind: str
    names: tuple[str, ...]
    params: tuple[np.ndarray, ...]
    eps: float
    before: np.ndarray
    after: np.ndarray

    def of_map(self, cells: np.ndarray) -> np.ndarray:
        """Returns the map of each flat cell of `after`."""
        return np.asarray(cells) // math.prod(self.after.shape[2:]) % self.after.shape[1]

    @property
    def gain(self) -> np.ndarray:
        """Returns gamma / sqrt(var + eps) of a batch norm, [C]."""
        gamma, _, _, var = self.params
        return gamma / np.sqrt(var + np.float32(self.eps))


@dataclass(frozen=True, eq=False)
class BlockLaunch:
    """A launch that computes blocks (not a fold): the buffer it reads, its members, the buffer it writes, its
    struct Maps."""

    part: Part
    group: codegen.Group
    source: str
    members: tuple[Member, ...]
    target: str
    maps: np.void

    @property
    def prologue(self) -> tuple[Member, ...]:
        return tuple(self.members[n] for n in self.group.prologue)

    @property
    def has_core(self) -> bool:
        """Returns whether a block is not computed number by number: a convolution or a pool."""
        return bool(self.group.core)

    @property
    def core(self) -> Member:
        """Returns that block, of a launch that has one."""
        return self.members[len(self.group.prologue)]

    @property
    def epilogue(self) -> tuple[Member, ...]:
        return tuple(self.members[n] for n in self.group.epilogue)

    @property
    def result(self) -> np.ndarray:
        return self.members[-1].after

    def window(self, i: int) -> np.ndarray:
        """Returns the flat cells of the source under the window of output i of a pool, without those outside its
        map."""
        _, _, P, Q = self.core.after.shape
        C, H, W = self.core.before.shape[1:]
        R, stride, pad = (int(self.maps[name]) for name in ("R", "stride", "pad"))
        plane, p, q = i // (P * Q), i // Q % P, i % Q
        h, w = (start * stride - pad + np.arange(R) for start in (p, q))
        h, w = h[(h >= 0) & (h < H)], w[(w >= 0) & (w < W)]
        inner = (h[:, None] * W + w).ravel()
        if self.group.core != "conv":
            return plane * H * W + inner
        return (np.arange(C)[:, None] * H * W + inner).ravel()


def block_launch(part: Part, arrays: Arrays) -> BlockLaunch:
    """Returns the blocks of a launch. The last map is the one that the kernel wrote."""
    launch = part.launch
    generated = launch.source.startswith(codegen.PREFIXES)
    group = codegen.parse_source(launch.source) if generated else codegen.Group(0, (launch.entry,))
    kinds = group.kinds
    source, *names, target = (a for a in launch.args if isinstance(a, str))
    maps, *eps = (a for a in launch.args if not isinstance(a, str))
    assert isinstance(maps, np.void)  # the struct
    names, scalars, value, members = iter(names), iter([np.float32(np.array(one)) for one in eps]), arrays[source], []
    for n, kind in enumerate(kinds):
        param_names = tuple(next(names) for _ in TENSORS.get(kind, ()))
        params = tuple(arrays[name] for name in param_names)
        scalar = next(scalars) if kind == "bn" else np.float32(0)
        last = n == len(kinds) - 1
        after = arrays[target] if last else _after(kind, value, params, maps, scalar)
        members.append(Member(kind, param_names, params, float(scalar), value, after))
        value = after
    return BlockLaunch(part, group, source, tuple(members), target, maps)


def _after(kind: str, x: np.ndarray, params, maps: np.void, eps: np.float32) -> np.ndarray:
    """Returns the output of one block alone, by its CPU implementation."""
    N, C, H, W = x.shape
    shapes = {"conv": [maps["K"], maps["P"], maps["Q"]], "gap": [C, 1, 1]}
    pooled = [C, maps["P"], maps["Q"]] if kind in ("maxpool", "avgpool") else [C, H, W]
    y = np.empty((N, *map(int, shapes.get(kind, pooled))), np.float32)
    cpu.group((kind,))(x, *params, y, maps, *([eps] if kind == "bn" else ()))
    return y


def is_fold(part: Part) -> bool:
    return part.launch.entry == FOLD
