"""Recorder of a scene's steps, and helpers for its matrices, reads and tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernels.i18n import decimal, mark, tr
from visuals.scene.parts import Captions, Cells, Lanes, Number, Read, Reading, Tensor, Write

if TYPE_CHECKING:  # the site's NumPy has no numpy.typing
    from numpy.typing import ArrayLike

PLANES = {"channel": mark("{n} channels of {size}"), "plane": mark("{n} planes of {size}")}
MIN_WHOLE = 256  # cells of a tensor, so that a Write without them is smaller
StepKinds = Mapping[str, tuple[int, str]]  # kind of step: (which line of the source is lit, caption template)


@dataclass
class Recorder:
    """Recorder of steps: the caption, lanes, counts, writes and reads of each. `put`, `copy`, `look` and `count` add to
    the last step if they name no other."""

    # Empty if kinds are the numbers of their templates.
    steps_by_kind: StepKinds = field(default_factory=dict)
    kinds: list[int] = field(default_factory=list)
    args: list[tuple[Number, ...]] = field(default_factory=list)
    counts: list[Counter[str]] = field(default_factory=list)
    _lanes: list[tuple[int, int]] = field(default_factory=list)  # warp, mask
    _values: dict = field(default_factory=lambda: defaultdict(list))
    _copies: dict = field(default_factory=lambda: defaultdict(list))
    _reads: dict = field(default_factory=lambda: defaultdict(dict))

    def step(self, kind: str | int, *args: Number, warp: int = -1, mask: int = 0, **counts: int) -> int:
        """Adds a step and returns its number. `warp`: the one that works (-1: no single one), `mask`: its active lanes.
        `counts`: what the step adds to each counter, as `read=4` for four bytes read."""
        self.kinds.append(list(self.steps_by_kind).index(kind) if isinstance(kind, str) else kind)
        self.args.append(args)
        self.counts.append(Counter(counts))
        self._lanes.append((warp, mask))
        return self.now

    @property
    def now(self) -> int:
        return len(self.kinds) - 1

    def count(self, **counts: int) -> None:
        """Adds to counters of the last step."""
        self.counts[-1].update(counts)

    def put(self, target: str, values: ArrayLike, cells: Cells | None = None, at: int | None = None) -> None:
        """Records that the step writes numbers; without `cells`, into all cells in their order."""
        numbers = np.ravel(values).astype(np.float32)
        if numbers.size:
            self._add(self._values[target], cells, numbers, at)

    def copy(self, target: str, source: str, index: Cells, cells: Cells | None = None, at: int | None = None) -> None:
        """Records that the step copies cells of `source`; -1 becomes a zero."""
        self._add(self._copies[target, source], cells, np.ravel(index), at)

    def _add(self, events: list, cells: Cells | None, new: np.ndarray, at: int | None) -> None:
        cells = np.arange(new.size) if cells is None else np.ravel(cells)
        events.append((self.now if at is None else at, cells, new))

    def look(self, source: str, cells: Cells, at: int | None = None) -> None:
        """Records that the step reads cells, too, without copying them."""
        of, at = self._reads[source], self.now if at is None else at
        of[at] = np.unique(np.append(of.get(at, ()), cells).astype(int))

    # -- parts of a scene ---------------------------------------------------------------------------
    @property
    def steps(self) -> int:
        return len(self.kinds)

    def writes(self, sizes: Mapping[str, int] = {}) -> tuple[Write, ...]:
        """Returns one Write for each tensor and source: a scene has many steps. `sizes`: how many cells tensors have; a step that writes all
        cells of a large one is a Write of its own, which needs no list of cells."""
        return (*self.values(sizes), *self.copies(sizes))

    def values(self, sizes: Mapping[str, int] = {}) -> tuple[Write, ...]:
        return tuple(
            Write(target, steps, values, cells=cells)
            for target, events in self._values.items()
            for steps, cells, values in _joined(events, sizes.get(target, 0))
        )

    def copies(self, sizes: Mapping[str, int] = {}) -> tuple[Write, ...]:
        return tuple(
            Write(target, steps, source=source, index=index, cells=cells)
            for (target, source), events in self._copies.items()
            for steps, cells, index in _joined(events, sizes.get(target, 0))
        )

    def reads(self) -> tuple[Read, ...]:
        none = np.zeros(0, int)
        return tuple(
            read_per_step(name, [cells.get(t, none) for t in range(self.steps)]) for name, cells in self._reads.items()
        )

    def captions(self, templates: Sequence[str] = (), dtype: type = float) -> Captions:
        """Returns the captions of the steps. `templates`: by number of the kind, if there is no `steps_by_kind`. `dtype`: of
        the numbers in them."""
        templates = templates or [words for _, words in self.steps_by_kind.values()]
        return Captions(tuple(templates), np.array(self.kinds), _table(self.args, dtype))

    def marks(self) -> np.ndarray:
        """Returns int64[steps]: which line of the source is lit."""
        return np.array([mark for mark, _ in self.steps_by_kind.values()])[self.kinds]

    def lanes(self) -> Lanes:
        warps, masks = zip(*self._lanes, strict=True)
        return Lanes(np.array(warps), np.array(masks, np.uint32))

    def so_far(self, counter: str) -> np.ndarray:
        """Returns a counter after each step: int64[steps], or float32 if it exceeds the 32-bit integers of a payload."""
        n = np.cumsum([int(counts[counter]) for counts in self.counts])
        return n if n[-1] < 2**31 else n.astype(np.float32)

    def total(self, counter: str, first_step: int = 0) -> int:
        """Returns what the steps from `first_step` on have counted."""
        return sum(int(counts[counter]) for counts in self.counts[first_step:])

    def readings(self, prefix: str, tiles: bool = True) -> tuple[Reading, ...]:
        """Returns readings of the bytes that the kernels' threads have requested so far."""
        out = [
            Reading(prefix + tr("bytes read from global memory"), self.so_far("read"), "predicted"),
            Reading(tr("bytes written to global memory"), self.so_far("written"), "predicted"),
        ]
        if tiles:
            out.append(Reading(tr("bytes to and from shared memory"), self.so_far("shared"), "predicted"))
        return tuple(out)


def _joined(events: list, size: int) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
    """Yields steps, cells and what is written there: first of each step that writes all cells of a tensor of this size, without the cells,
    then of all others together."""
    of_steps, others = defaultdict(list), []
    for event in events:
        of_steps[event[0]].append(event)
    for same in of_steps.values():
        if size >= MIN_WHOLE and sum(len(cells) for _, cells, _ in same) == size:
            cells = np.concatenate([cells for _, cells, _ in same])
            order = np.argsort(cells)
            if np.array_equal(cells[order], np.arange(size)):
                yield np.array(same[0][:1]), None, np.concatenate([new for *_, new in same])[order]
                continue
        others += same
    if others:
        steps, cells, more = zip(*others, strict=True)
        yield np.repeat(steps, [len(c) for c in cells]), np.concatenate(cells).astype(int), np.concatenate(more)


def _table(args: list[tuple], dtype: type) -> np.ndarray:
    """Returns [steps, n]: the numbers of each step, filled up with zeros."""
    width = max(map(len, args))
    return np.array([(*row, *[0] * (width - len(row))) for row in args], dtype)


def matrix(
    name: str,
    role: str,
    size: tuple[int, int],
    at: tuple[int, int],
    whole: tuple[int, int],
    values: np.ndarray | None = None,
) -> Tensor:
    """Returns a matrix of which `size` rows and columns, from index `at` on, are shown."""
    flat = None if values is None else np.ravel(values)
    note = part_note(*zip(at, size, whole, strict=True))
    return Tensor(name, name, name, role, 1, *size, flat, (0, *at), note, partial=size != whole)


def part_note(*axes: tuple[int, int, int], plane: str = "") -> str:
    """Returns the size of a tensor and which part of it is visible. An axis is (first, count, of). With `plane`, what
    a plane is, the first axis counts planes; it is left out if there is only one."""
    if plane and axes[0][2] == 1:
        axes, plane = axes[1:], ""
    sizes = [decimal(f"{of:,}") for _, _, of in axes]
    if all(count == of for _, count, of in axes):
        text = " × ".join(sizes[1:] if plane else sizes)
        return tr(PLANES[plane], n=axes[0][2], size=text) if plane else text
    ranges = ", ".join(decimal(f"{first:,}–{first + count - 1:,}") for first, count, _ in axes)
    return tr("part {ranges} of {size}", ranges=ranges, size=" × ".join(sizes))


def read_per_step(source: str, cells: Sequence[Cells]) -> Read:
    start = np.cumsum([0, *map(len, cells)])
    return Read(source, start, np.concatenate([np.zeros(0, int), *(np.asarray(c, int) for c in cells if len(c))]))
