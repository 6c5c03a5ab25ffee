"""Recorder of a scene's steps, and helpers for its matrices, reads and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from visuals.scene.parts import Captions, Read, Reading, Tensor, Write

StepKinds = Mapping[str, tuple[int, str]]  # kind of step: (which line of the source is lit, caption template)


@dataclass
class Recorder:
    """Recorder of steps: the caption, writes, reads and bytes of each. `put`, `copy` and `look` add to the last
    step."""

    steps_by_kind: StepKinds
    kinds: list[int] = field(default_factory=list)
    args: list[tuple[float, ...]] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)  # bytes: global read, written, shared
    _values: dict = field(default_factory=lambda: defaultdict(list))
    _copies: dict = field(default_factory=lambda: defaultdict(list))
    _reads: dict = field(default_factory=lambda: defaultdict(dict))

    def step(self, kind: str, *args: float, read: int = 0, written: int = 0, shared: int = 0) -> None:
        self.kinds.append(list(self.steps_by_kind).index(kind))
        self.args.append(args)
        self.moved.append((int(read), int(written), int(shared)))

    @property
    def now(self) -> int:
        return len(self.kinds) - 1

    def put(self, target: str, values: np.ndarray, cells: np.ndarray | None = None) -> None:
        """Record that the step writes numbers; without `cells`, into all cells in their order."""
        values = np.ravel(values).astype(np.float32)
        self._values[target].append(
            (self.now, np.arange(values.size) if cells is None else np.ravel(cells), values)
        )

    def copy(self, target: str, source: str, index: np.ndarray, cells: np.ndarray | None = None) -> None:
        """Record that the step copies cells of `source`; -1 becomes a zero."""
        index = np.ravel(index)
        self._copies[target, source].append(
            (self.now, np.arange(index.size) if cells is None else np.ravel(cells), index)
        )

    def look(self, source: str, cells: np.ndarray) -> None:
        """Record that the step reads cells without copying them."""
        self._reads[source][self.now] = np.unique(np.ravel(cells))

    # -- parts of a scene ---------------------------------------------------------------------------
    @property
    def steps(self) -> int:
        return len(self.kinds)

    def writes(self) -> tuple[Write, ...]:
        out = []
        for target, events in self._values.items():
            steps, cells, values = self._joined(events)
            out.append(Write(target, steps, values, cells=cells))
        for (target, source), events in self._copies.items():
            steps, cells, index = self._joined(events)
            out.append(Write(target, steps, source=source, index=index, cells=cells))
        return tuple(out)

    @staticmethod
    def _joined(events: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        steps, cells, more = zip(*events, strict=True)
        count = [len(c) for c in cells]
        return np.repeat(steps, count), np.concatenate(cells).astype(int), np.concatenate(more)

    def reads(self) -> tuple[Read, ...]:
        none = np.zeros(0, int)
        return tuple(
            read_per_step(name, [cells.get(t, none) for t in range(self.steps)])
            for name, cells in self._reads.items()
        )

    def captions(self) -> Captions:
        return Captions(
            tuple(words for _, words in self.steps_by_kind.values()), np.array(self.kinds), table(self.args)
        )

    def marks(self) -> np.ndarray:
        """Return int64[steps]: which line of the source is lit."""
        return np.array([mark for mark, _ in self.steps_by_kind.values()])[self.kinds]

    def readings(self, prefix: str, tiles: bool = True) -> tuple[Reading, ...]:
        """Return readings of the bytes that the kernels' threads have requested so far."""
        totals = [n if n[-1] < 2**31 else n.astype(np.float32) for n in np.cumsum(self.moved, axis=0).T]
        labels = ("bytes read from global memory", "written to it", "to and from shared memory")
        return tuple(
            Reading(f"{prefix}{label}" if n == 0 else label, values, "predicted")
            for n, (label, values) in enumerate(zip(labels, totals, strict=True))
            if n < 2 or tiles
        )


def matrix(
    name: str, role: str, size: tuple[int, int], at: tuple[int, int], whole: tuple[int, int],
    values: np.ndarray | None = None,
) -> Tensor:  # fmt: skip
    """Return a matrix of which `size` rows and columns, from index `at` on, are shown."""
    flat = None if values is None else np.ravel(values)
    note = part_note(*zip(at, size, whole, strict=True))
    return Tensor(name, name, name, role, 1, *size, flat, (0, *at), note, partial=size != whole)


def part_note(*axes: tuple[int, int, int], plane: str = "") -> str:
    """Returns the size of a tensor and which part of it is visible. An axis is (first, count, of). With `plane`, what
    a plane is, the first axis counts planes; it is left out if there is only one."""
    if plane and axes[0][2] == 1:
        axes, plane = axes[1:], ""
    sizes = [f"{of:,}" for _, _, of in axes]
    if all(count == of for _, count, of in axes):
        return f"{axes[0][2]} {plane}s of {' × '.join(sizes[1:])}" if plane else " × ".join(sizes)
    ranges = ", ".join(f"{first:,}–{first + count - 1:,}" for first, count, _ in axes)
    return f"part {ranges} of {' × '.join(sizes)}"


def read_at_steps(name: str, steps: int, cells_at: list) -> Read:
    count = np.zeros(steps + 1, int)
    for t, cells in cells_at:
        count[t + 1] = len(cells)
    return Read(name, np.cumsum(count), np.concatenate([cells for _, cells in cells_at]))


def table(args: list[tuple]) -> np.ndarray:
    """Return float64[steps, n]: the numbers of each step, filled up with zeros."""
    width = max(map(len, args))
    return np.array([(*row, *[0] * (width - len(row))) for row in args], float)


def read_per_step(source: str, cells: Sequence[np.ndarray]) -> Read:
    """Return a Read of these cells at each step."""
    start = np.cumsum([0, *(len(c) for c in cells)])
    return Read(source, start, np.concatenate([np.asarray(c, int) for c in cells]))
