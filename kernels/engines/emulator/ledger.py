"""What a launch left undone: elements of global memory that were never written or never read, elements of shared memory that were
written and never read. Each is one line with the first element and the count.

Copies by the bulk engine and products of warpgroups access memory on their own: of a kernel with these nothing is said of reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.memory import ALLOCATED, Region
from kernels.engines.emulator.races import Races
from kernels.engines.emulator.state import Machine


def notes(m: Machine) -> tuple[str, ...]:
    """Returns the lines of a launch whose accesses the race detectors have seen."""
    return (*_unwritten(m), *_written_by_two(m), *(_unread(m) if _alone(m) else ()), *notes_on_shared(m))


def notes_on_shared(m: Machine) -> tuple[str, ...]:
    """Returns the lines about shared memory only: of a launch in a program, other launches use the global memory too."""
    return tuple(m.unread.lines() if m.unread is not None and _alone(m) else ())


def _alone(m: Machine) -> bool:
    return m.copies is None and m.products is None


def _arguments(m: Machine) -> Iterator[Region]:
    return (region for region in m.memory.regions if region.name.startswith("arg"))


def unwritten(m: Machine, region: Region) -> np.ndarray:
    """Returns which elements of a buffer were never written, bool[elements]."""
    states = m.memory.state[region.start : region.stop].reshape(-1, region.dtype.itemsize)
    return (states == ALLOCATED).any(axis=1)


def _unwritten(m: Machine) -> Iterator[str]:
    for region in _arguments(m):
        missing = unwritten(m, region)
        if missing.any():
            yield _line(region, missing, "never written")


def _written_by_two(m: Machine) -> Iterator[str]:
    races = m.races["global"]
    for region in _arguments(m):
        at = region.start, region.stop, region.dtype.itemsize
        lost = races.written_by_two(*at) & ~races.accessed(*at)[0]
        if lost.any():
            yield _line(region, lost, "written by two threads and never read")


def _unread(m: Machine) -> Iterator[str]:
    for region in _arguments(m):
        was_read, was_written = m.races["global"].accessed(region.start, region.stop, region.dtype.itemsize)
        missing = ~was_read
        if missing.any() and not was_written.any() and not unwritten(m, region).any():
            yield _line(region, missing, "never read")


@dataclass
class _Words:
    """Words of a shared array that were written and never read, of all that were written, and the first one with its block."""

    missing: int = 0
    written: int = 0
    block: int | None = None
    first: str = ""


class Unread:
    """The words of shared memory that the blocks of a launch wrote and never read."""

    def __init__(self, m: Machine):
        self.m = m
        self._of = {region.name: _Words() for region in m.shared.regions}

    def add(self, races: Races) -> None:
        """Add the blocks of a batch that has ended."""
        m, width, size = self.m, races.unit, self.m.shared.size
        was_read, was_written = (of.reshape(m.blocks, -1) for of in races.accessed(0, m.blocks * size, width))
        for region in m.shared.regions:
            found, words = self._of[region.name], slice(region.start // width, region.stop // width)
            written = was_written[:, words]
            missing = written & ~was_read[:, words]
            found.written += int(np.count_nonzero(written))
            found.missing += int(np.count_nonzero(missing))
            for block, word in np.argwhere(missing)[:1].tolist():
                index = int(m.threads.blocks_here[block])
                if found.block is None or index < found.block:
                    line = m.kernel.code[races.writer(block * size + region.start + word * width)[1]].line
                    element, at = region.element(region.start + word * width), m.threads.block_text(index)
                    found.block, found.first = index, f"{element}, written at {line} by block {at}"

    def lines(self) -> Iterator[str]:
        for name, of in self._of.items():
            if of.missing:
                count = f"{of.missing:,} of {of.written:,} written words of {name}"
                yield f"{count} are never read, the first is {of.first}"


def _line(region: Region, missing: np.ndarray, what: str) -> str:
    first = region.element(region.start + int(np.flatnonzero(missing)[0]) * region.dtype.itemsize)
    if missing.all():
        negative = what.startswith("never ")
        return f"{'no' if negative else 'every'} element of {region.name} is {what.removeprefix('never ')}"
    return (
        f"{np.count_nonzero(missing):,} of {missing.size:,} elements of {region.name} are {what}, the first is {first}"
    )
