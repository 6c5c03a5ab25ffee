"""The works that both a processor and a GPU do, and their recorded sizes: the GPU's times and the copies of the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels import records
from kernels.i18n import mark
from kernels.ladders import find, ladder_of
from kernels.model.program import Program
from kernels.model.rung import Rung

MAX_MACS = 2e9  # of a work that is measured on this processor: larger ones take seconds
NONE, PINNED, PAGEABLE = COPIES = ("none", "pinned", "pageable")  # which copies count


@dataclass(frozen=True)
class Work:
    """A work. `gpu` and `cpu`: the rungs that do it; `size(shape)`: the number on the axis; `takes(shape)`: which recorded
    shapes are its sizes."""

    key: str
    title: str
    axis: str
    gpu: str
    cpu: str
    cpu_title: str
    size: Callable[[Any], int]
    takes: Callable[[Any], bool]
    max_macs: float = MAX_MACS

    @property
    def rung(self) -> Rung:
        return find(self.gpu)

    def program(self, shape: Any) -> Program:
        """Returns what the processor runs."""
        rung = find(self.cpu)
        return rung.build(shape, rung.default_tiles)

    def shape(self, params: Mapping[str, Any]) -> Any:
        return ladder_of(self.gpu).shape(**params)


@dataclass(frozen=True)
class Point:
    """A recorded size. Times are ms: the kernel, a launch with its wait, and the copies in and back by memory."""

    shape: Any
    size: int
    kernel_ms: float
    call_ms: float
    copies_ms: Mapping[str, tuple[float, float]]
    device: str
    date: str

    def gpu_ms(self, copies: str = NONE, repeats: int = 1) -> float:
        """Returns the time of `repeats` runs on data that is copied once: a call and a wait, the kernels, the copies."""
        return self.call_ms + repeats * self.kernel_ms + self.copy_ms(copies)

    def copy_ms(self, copies: str) -> float:
        return sum(self.copies_ms[copies]) if copies != NONE else 0.0


def _square(s: Any) -> bool:
    return s.M == s.N == s.K and s.dtype == "fp32" and not s.beta


def _layer(s: Any) -> bool:
    return s.groups == 1 and s.mode == "cross-correlation" and s.macs > 500


WORKS: Mapping[str, Work] = {
    work.key: work
    for work in (
        Work("gemm", mark("matrix product n × n"), mark("rows and columns n"), "gemm/bank-free", "gemm/cublas", mark("NumPy’s BLAS"),
             lambda s: s.M, _square),
        Work("conv", mark("convolution"), mark("multiply-adds"), "conv/implicit-gemm", "conv/im2col-cublas",
             mark("im2col and NumPy’s BLAS"), lambda s: s.macs, _layer, 2e8),
        Work("add", mark("sum of two matrices"), mark("elements"), "add/vector", "add/vector", mark("NumPy’s sum"),
             lambda s: s.elements, lambda s: True),
    )
}  # fmt: skip


@cache
def points(key: str) -> tuple[Point, ...]:
    """Returns the recorded sizes of a work, smallest first: the kernel with its usual tiles and overwritten caches."""
    work, found = WORKS[key], {}
    tiles = dict(work.rung.default_tiles)
    for row in records.recordings():
        if (row["rung"], row["mode"], row["tiles"]) != (work.gpu, "cold", tiles) or not row.get("copies_ms"):
            continue
        shape = work.shape(row["shape"])
        if work.takes(shape):
            found.setdefault(work.size(shape), _point(work, shape, row))
    return tuple(found[size] for size in sorted(found))


def _point(work: Work, shape: Any, row: Mapping[str, Any]) -> Point:
    copies = {
        memory: (row["copies_ms"][f"h2d_{memory}"], row["copies_ms"][f"d2h_{memory}"])
        for memory in (PINNED, PAGEABLE)
    }
    call = row["ceilings"]["launch_sync_us"] / 1e3
    kernel = max(row["median_ms"] - row.get("event_floor_ms", 0.0), 1e-4)
    return Point(shape, work.size(shape), kernel, call, copies, row["device"], row["date"])


def at(key: str, size: int) -> Point:
    """Returns the recorded size of a work that is nearest in ratio."""
    found = points(key)
    return min(found, key=lambda point: max(point.size, size) / min(point.size, size))


def live(key: str) -> Sequence[Point]:
    """Returns the sizes that are measured on this processor."""
    return [point for point in points(key) if point.shape.macs <= WORKS[key].max_macs]
