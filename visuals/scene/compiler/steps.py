"""The steps of a scene: which raw steps of a recording belong to which step of a view."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np

from kernels.engines.emulator.ptx.kernel import Line
from kernels.engines.emulator.threads import LANES
from kernels.engines.emulator.watch.statements import statements
from kernels.engines.emulator.watch.trace import Watched
from visuals.scene.compiler.view import Place, Step
from visuals.scene.source import Mark

_ENDS = re.compile(r"[;{}]\s*(//.*)?$")


class MarkError(ValueError):
    """A mark of a view that no line of the source has."""


@dataclass(frozen=True)
class Visit:
    """A step of the scene: its kind, raw steps first .. stop-1, those of its own lines up to `end`. `number` of `count` visits of the
    kind. `threads`: whose step it is, numbered in all blocks; None for all. `chosen`: bool, one a thread: which of them; None for all.
    `begins`: the first raw step of its own lines, -1 for `first`. `part`: which of its parts, and how many there are."""

    kind: str
    first: int
    end: int
    stop: int
    number: int = 0
    count: int = 0
    threads: range | None = None
    chosen: np.ndarray | None = None
    begins: int = -1
    part: tuple[int, int] = (1, 1)

    @property
    def begin(self) -> int:
        return self.first if self.begins < 0 else self.begins


def place_of(mark: Mark | Place, files: Mapping[str, str]) -> Place:
    """Returns the place of a mark in the sources, searched in their order. MarkError if none has it."""
    if isinstance(mark, Place):
        return mark
    return _place(mark, tuple(files.items()))


@lru_cache(maxsize=1024)
def _place(mark: Mark, files: tuple[tuple[str, str], ...]) -> Place:
    text, nth = mark if isinstance(mark, tuple) else (mark, 0)
    pattern = re.compile(re.escape(text)) if isinstance(text, str) else text
    for file, source in files:
        lines = source.splitlines()
        found = [n for n, line in enumerate(lines) if pattern.search(line.partition("//")[0])]
        if nth < len(found):
            first = last = found[nth]
            while not _ENDS.search(lines[last]):
                last += 1
            return Place(file, range(first + 1, last + 2), _statement(lines[first], pattern))
    raise MarkError(f"{files[0][0]} has no line like {mark!r}")


@lru_cache(maxsize=4096)
def _statement(line: str, pattern: re.Pattern) -> int:
    """Returns which statement of a line begins or holds what a pattern finds."""
    return next((n for n, text in enumerate(statements(line)) if pattern.search(text)), 0)


@dataclass(frozen=True)
class _Wanted:
    kind: str
    place: Place
    inside: Place | None

    def has(self, line: Line | None, statement: int, inner: Line | None, inner_statement: int) -> bool:
        if self.inside is not None:
            return self.inside.has(line, statement) and self.place.has(inner, inner_statement)
        return self.place.has(line, statement) or self.place.has(inner, inner_statement)

    def at(self, watched: Watched, step: int) -> bool:
        """Returns whether a raw step is of these lines."""
        line, inner = (watched.lines[n] if n >= 0 else None for n in (watched.line[step], watched.inner[step]))
        return self.has(line, int(watched.statement[step]), inner, int(watched.inner_statement[step]))


def visits(watched: Watched, steps: Mapping[str, Step], files: Mapping[str, str]) -> list[Visit]:
    """Returns the steps of a scene, in the order of the recording. A visit goes on until a loop around its lines jumps back; a loop in a
    function that is called there is part of it."""
    places = [wanted(kind, step, files) for kind, step in steps.items()]
    kinds: dict[tuple[int, ...], str] = {}
    columns = watched.line, watched.statement, watched.inner, watched.inner_statement
    found: list[tuple[str, int, int]] = []  # kind, first and end
    jumped, last_pc, before = False, -1, ""
    for raw, (pc, *key) in enumerate(zip(watched.pc.tolist(), *(c.tolist() for c in columns), strict=True)):
        place = tuple(key)
        if place not in kinds:
            line, inner = (watched.lines[n] if n >= 0 else None for n in (place[0], place[2]))
            kinds[place] = next((w.kind for w in places if w.has(line, place[1], inner, place[3])), "")
        kind, last = kinds[place], found[-1][0] if found else ""
        stays = bool(kind) and kind == last == before
        jumped |= pc <= last_pc and not stays and (place[2] < 0 or not last or bool(steps[last].inside))
        last_pc, before = pc, kind
        if kind and kind == last and (not jumped or steps[kind].merge):
            found[-1] = kind, found[-1][1], raw + 1
        elif kind:
            found.append((kind, raw, raw + 1))
        jumped &= not kind
    return _numbered(found, watched.steps)


def wanted(kind: str, step: Step, files: Mapping[str, str]) -> _Wanted:
    place = place_of(step.at, files)
    if step.to:
        last = place_of(step.to, {place.file: files[place.file]})
        place = replace(place, lines=range(place.lines.start, last.lines.stop))
    return _Wanted(kind, place, place_of(step.inside, files) if step.inside else None)


def joined(found: list[Visit], key: Callable[[Visit], object]) -> list[Visit]:
    """Returns the steps with those of one kind that follow each other joined while their key is the same; None joins nothing."""
    out: list[list[Visit]] = []
    last: object = None
    for visit in found:
        now = key(visit)
        if out and out[-1][0].kind == visit.kind and now is not None and last == now:
            out[-1].append(visit)
        else:
            out.append([visit])
            last = now
    if len(out) == len(found):
        return found
    return _numbered([(of[0].kind, of[0].first, of[-1].end) for of in out], found[-1].stop)


def _numbered(found: list[tuple[str, int, int]], stop: int) -> list[Visit]:
    """Returns steps by kind, first raw step and end of their own lines. `stop`: of the last."""
    counts, seen = Counter(kind for kind, *_ in found), Counter[str]()
    out = []
    for (kind, first, end), following in zip(found, [*(first for _, first, _ in found[1:]), stop], strict=True):
        seen[kind] += 1
        out.append(Visit(kind, first, end, following, seen[kind], counts[kind]))
    return out


def split(
    found: list[Visit],
    watched: Watched,
    barriers: np.ndarray,
    group_of: Callable[[Visit], np.ndarray | None],
    block_threads: int,
    detailed: int,
) -> Iterator[Visit]:
    """Yields the steps with one for each group of threads, group after group between two barriers. `group_of`: the group of each thread of
    all blocks, those of a group side by side; None for a step that all threads take together. From thread `detailed` on, if it is not 0,
    all that a group does between two barriers is one step."""
    out: list[tuple[int, int, int, int, Visit]] = []
    together = 0
    for n, visit in enumerate(found):
        interval = int(np.searchsorted(barriers, visit.first))
        group = group_of(visit)
        if group is None:
            out.append((interval, together + 1, 0, n, visit))
            together += 2
            continue
        threads = active_threads(watched, visit, block_threads)
        edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
        for first, stop in pairwise(edges):
            if threads[first:stop].any():
                out.append((interval, together, first, n, replace(visit, threads=range(first, stop))))
    for (_, _, first), rows in groupby(sorted(out, key=lambda row: row[:4]), lambda row: row[:3]):
        visits = [visit for *_, visit in rows]
        if detailed and first >= detailed:
            visits = [replace(visits[0], end=visits[-1].end, stop=visits[-1].stop)]
        yield from visits


def complete(watched: Watched) -> np.ndarray:
    """Returns the steps at which the last threads come to a barrier, before one of them comes to the next."""
    steps, came = [-1], np.zeros_like(watched.masks[0])
    for step in watched.barriers.tolist():
        if (came & watched.masks[step]).any():
            steps.append(step)
            came[:] = 0
        steps[-1] = step
        came |= watched.masks[step]
    return np.array(steps)


def merged(found: Iterator[Visit], steps: Mapping[str, Step]) -> Iterator[Visit]:
    """Yields the steps of groups with those of a kind that is merged as one, if they follow each other in a group."""
    last = next(found)
    for visit in found:
        if visit.threads and (visit.kind, visit.threads) == (last.kind, last.threads) and steps[visit.kind].merge:
            last = replace(last, end=visit.end, stop=visit.stop)
        else:
            yield last
            last = visit
    yield last


def active_threads(watched: Watched, visit: Visit, block_threads: int) -> np.ndarray:
    """Returns bool, one a thread of all blocks: which take part in a step."""
    lanes = np.bitwise_or.reduce(watched.masks[visit.begin : visit.end], axis=0)
    of_warp = np.unpackbits(lanes.view(np.uint8), bitorder="little").astype(bool)
    warps = -(-block_threads // LANES)
    return of_warp.reshape(-1, warps * LANES)[:, :block_threads].reshape(-1)


def lit_line(place: Place, visit: Visit, watched: Watched, file: str) -> int:
    """Returns the line of the kernel's file that a step lights: its own, or that of the call if it is in another file."""
    if place.file == file:
        return place.lines.start
    line = watched.lines[watched.line[visit.first]]
    return line.number if line.file == file else 0
