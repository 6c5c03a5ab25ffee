"""Shapes of the lesson on threads and memory, one class per ladder, validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, TypeVar

from kernels.model.shape import INT_MAX, Shape, integer, parse

SECTOR = 32  # bytes: the unit in which global memory is loaded
TILE_ROWS, TILE_COLS = 96, 32  # of the table in memory/04_shared_stride.cu
READS_PER_TURN = 32  # words each thread reads in one turn there


@dataclass(frozen=True)
class MemoryShape(Shape):
    """Whole numbers by name, each at least 1 and at most MOST. Raises ShapeError, which names the broken rule.

    Each shape has `macs`, a measure of its work: the elements written, one operation or copy each.
    """

    MAX: ClassVar[dict[str, int]] = {}

    def __post_init__(self):
        for f in fields(self):
            self._check((f.name,), integer, 1, self.MAX.get(f.name, INT_MAX))

    def __str__(self) -> str:
        return " ".join(f"{name} {value}" for name, value in self.params().items())


@dataclass(frozen=True)
class AddShape(MemoryShape):
    """C = A + B, all [M, N], float32, row-major. A vector is a matrix of one row."""

    M: int
    N: int

    @property
    def elements(self) -> int:
        return self.M * self.N

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def flops(self) -> int:
        return self.elements

    @property
    def bytes(self) -> int:
        """Each input read once, the output written once."""
        return 3 * 4 * self.elements

    def __str__(self) -> str:
        return f"{self.M}x{self.N}"


@dataclass(frozen=True)
class StrideShape(MemoryShape):
    """y[i] = x[i * stride] for i < n, float32: the first column of a matrix x [n, stride]."""

    n: int
    stride: int

    @property
    def macs(self) -> int:
        return self.n

    @property
    def extent(self) -> int:
        """Elements of x."""
        return self.n * self.stride

    @property
    def flops(self) -> int:
        return 0

    @property
    def sectors(self) -> int:
        """Sectors of x that contain an element read: all sectors if the stride is below 8 floats, else one per element."""
        return min(self.n, (self.n - 1) * self.stride * 4 // SECTOR + 1)

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: the whole sectors read, and the output."""
        return SECTOR * self.sectors + 4 * self.n


@dataclass(frozen=True)
class BanksShape(MemoryShape):
    """y[i] = the sum of 32 * turns words of a table x [96, 32] in shared memory, float32, for i < n: in turn t
    those of column e % 32 in the 32 rows from e // 32 + (i // 32 + t) % 32 on, where e = i % 32 * stride."""

    MAX: ClassVar[dict[str, int]] = {"stride": TILE_COLS, "turns": 65_536}
    n: int
    stride: int
    turns: int = 1

    @property
    def macs(self) -> int:
        return self.n * READS_PER_TURN * self.turns

    @property
    def flops(self) -> int:
        return self.macs

    @property
    def bytes(self) -> int:
        """Of HBM: the table read once, the output written once."""
        return 4 * (TILE_ROWS * TILE_COLS + self.n)


@dataclass(frozen=True)
class LayoutShape(MemoryShape):
    """y [N, H, W, C] = x [N, C, H, W], float32: a tensor with its axes reordered."""

    N: int
    C: int
    H: int
    W: int

    @property
    def elements(self) -> int:
        return self.N * self.C * self.H * self.W

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def flops(self) -> int:
        return 0

    @property
    def bytes(self) -> int:
        return 2 * 4 * self.elements

    def __str__(self) -> str:
        return f"N{self.N} C{self.C} {self.H}x{self.W}"


@dataclass(frozen=True)
class BranchShape(MemoryShape):
    """y[i] of x[i] for i < n, float32, by `rounds` multiply-adds: one recurrence for even i, another for odd i."""

    MAX: ClassVar[dict[str, int]] = {"rounds": 65_536}
    n: int
    rounds: int

    @property
    def macs(self) -> int:
        return self.n * self.rounds

    @property
    def flops(self) -> int:
        return 2 * self.macs

    @property
    def bytes(self) -> int:
        """The input read once, the output written once."""
        return 2 * 4 * self.n


Parsed = TypeVar("Parsed", bound=MemoryShape)


def parser(cls: type[Parsed]) -> Callable[[str], Parsed]:
    """Returns a function that parses "n=1024,stride=2" into the shape. It raises ShapeError if the text is malformed."""
    names = [f.name for f in fields(cls)]
    needed = [f.name for f in fields(cls) if f.default is MISSING]
    return lambda text: cls(**parse(text, names, needed))
