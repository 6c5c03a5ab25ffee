"""The works that both a processor and a GPU do, and their sizes: those of the recordings, and more where the times cross."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernels import records
from kernels.conv.presets import CONV_PADDING
from kernels.conv.shape import ConvShape
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark
from kernels.ladders import find, ladder_of
from kernels.model.program import Program, RuleError
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from kernels.model.verify import agrees, by_output
from kernels.runner import inputs_of

MAX_MACS = 2e9  # of a work that is measured on this processor: larger ones take seconds
MAX_RECORDED_MACS = 7e10  # of a work that is recorded
PADDED = {preset.shape for preset in CONV_PADDING.values()}  # no processor has recorded them
NONE, PINNED, PAGEABLE = COPIES = ("none", "pinned", "pageable")  # which copies count


@dataclass(frozen=True)
class Work:
    """A work. `gpu` and `cpu`: the rungs that do it; `size(shape)`: the number on the axis; `takes(shape)`: which recorded
    shapes are its sizes; `more`: the parameters of other shapes."""

    key: str
    title: str
    axis: str
    gpu: str
    cpu: str
    cpu_title: str
    size: Callable[[Any], int]
    takes: Callable[[Any], bool]
    more: tuple[Mapping[str, int], ...] = ()
    max_macs: float = MAX_MACS

    @property
    def rung(self) -> Rung:
        return find(self.gpu)

    def program(self, shape: Shape) -> Program:
        """Returns what the processor runs."""
        rung = find(self.cpu)
        return rung.build(shape, rung.default_tiles)

    def gpu_program(self, shape: Shape) -> Program:
        return self.rung.build(shape, self.rung.default_tiles)

    def shape(self, params: Row) -> Shape:
        return ladder_of(self.gpu).shape(**params)


@dataclass(frozen=True)
class Point:
    """A size of a work."""

    shape: Shape
    size: int

    @property
    def macs(self) -> float:
        return self.shape.macs


def _square(s: GemmShape) -> bool:
    return s.M == s.N == s.K and s.dtype == "fp32" and not s.beta


def _layer(s: ConvShape) -> bool:
    return s.groups == 1 and s.mode == "cross-correlation" and s.macs > 500


WORKS: Mapping[str, Work] = {
    work.key: work
    for work in (
        Work("gemm", mark("matrix product n × n"), mark("rows and columns n"), "gemm/bank-free", "gemm/cublas", mark("NumPy’s BLAS"),
             lambda s: s.M, _square, tuple({"M": n, "N": n, "K": n} for n in (24, 32, 48, 96))),
        Work("conv", mark("convolution"), mark("multiply-adds"), "conv/implicit-gemm", "conv/im2col-cublas",
             mark("im2col and NumPy’s BLAS"), lambda s: s.macs, _layer,
             tuple({"N": n, "C": 1, "H": 32, "W": 32, "K": 6, "R": 5, "S": 5} for n in (8, 32, 128)), 2e8),
        Work("add", mark("sum of two matrices"), mark("elements"), "add/vector", "add/vector", mark("NumPy’s sum"),
             lambda s: s.elements, lambda s: True, tuple({"M": n, "N": n} for n in (32, 64, 128, 256, 512, 2048))),
    )
}  # fmt: skip


@cache
def points(key: str) -> tuple[Point, ...]:
    """Returns the sizes of a work, smallest first. RuleError for an unknown work."""
    if key not in WORKS:
        raise RuleError(f"no work {key}; there are: {', '.join(WORKS)}")
    work = WORKS[key]
    found: dict[int, Shape] = {}
    for shape in _shapes(work):
        if shape.macs <= MAX_RECORDED_MACS:
            found.setdefault(work.size(shape), shape)
    return tuple(Point(found[size], size) for size in sorted(found))


def _shapes(work: Work) -> Iterator[Shape]:
    yield from map(work.shape, work.more)
    tiles = dict(work.rung.default_tiles)
    for row in records.everything():
        if (row["rung"], row["mode"], row["tiles"]) == (work.gpu, "cold", tiles) and row.get("copies_ms"):
            shape = work.shape(row["shape"])
            if work.takes(shape) and shape not in PADDED:
                yield shape


def at(key: str, size: int) -> Point:
    """Returns the size of a work that is nearest in ratio."""
    return min(points(key), key=lambda point: max(point.size, size) / min(point.size, size))


def live(key: str) -> Sequence[Point]:
    """Returns the sizes that are measured on this machine."""
    return [point for point in points(key) if point.macs <= WORKS[key].max_macs]


# -- what both sides compute -----------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """The arrays of a size, the same each time, and its float64 result with the error scale."""

    key: str
    point: Point
    inputs: Mapping[str, np.ndarray]
    reference: np.ndarray
    scale: np.ndarray

    @property
    def work(self) -> Work:
        return WORKS[self.key]

    def verify(self, out: np.ndarray, side: str) -> None:
        """Raises RuntimeError if the result of a side disagrees with the reference."""
        if not agrees(out, self.reference, self.scale, self.work.rung.tolerance):
            where = f"{self.key} at {self.point.shape}"
            raise RuntimeError(f"{where}: the {side}'s result disagrees with the reference")


def case(key: str, point: Point) -> Case:
    """Returns the arrays of a size of a work."""
    ladder, program = ladder_of(WORKS[key].gpu), WORKS[key].gpu_program(point.shape)
    given = inputs_of(ladder, point.shape, program)
    names = tuple(b.name for b in program.outputs)
    ((reference, scale),) = by_output(ladder.reference(point.shape, **given), names).values()
    return Case(key, point, given, reference, scale)
