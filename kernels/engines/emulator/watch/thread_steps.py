"""What one thread of a watched launch does, step by step: the values of its variables, and what it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.ptx.kernel import Line
from kernels.engines.emulator.watch.trace import Watched
from kernels.engines.emulator.watch.types import UNKNOWN

MOST = 4  # of reads, writes or values that a step lists; the others are counted


@dataclass(frozen=True)
class ThreadStep:
    """A step of one thread: the line, and texts such as "i = 2" and "x[3] = 0.5"."""

    line: Line
    inner: Line | None  # in the function that is inlined there
    statement: int  # of the line, or of that in the function
    values: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def text(self) -> str:
        parts = [", ".join(_first(self.values))] if self.values else []
        parts += [
            f"{verb} {', '.join(_first(of))}" for verb, of in (("reads", self.reads), ("writes", self.writes)) if of
        ]
        return "; ".join(parts)


def thread_steps(
    watched: Watched, thread: int, shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, str] = {}
) -> list[ThreadStep]:
    """Returns the steps in which a thread, by its number in the trace, gives a variable a value, reads or writes. `shapes` and `names`: of the
    buffers."""
    values = _by_step(watched.steps, _values(watched, thread))
    of = watched.accesses
    mine = of.thread == thread
    accesses = {
        write: _by_step(watched.steps, _accesses(watched, np.flatnonzero(mine & (of.write == write)), shapes, names))
        for write in (False, True)
    }
    found = []
    for step in range(watched.steps):
        reads, writes = accesses[False][step], accesses[True][step]
        if values[step] or reads or writes:
            line, inner = (watched.lines[n] if n >= 0 else None for n in (watched.line[step], watched.inner[step]))
            if line is not None:
                statement = int((watched.statement if inner is None else watched.inner_statement)[step])
                found.append(ThreadStep(line, inner, statement, tuple(values[step]), tuple(reads), tuple(writes)))
    return found


def _by_step(steps: int, found: Iterator[tuple[int, str]]) -> list[list[str]]:
    out: list[list[str]] = [[] for _ in range(steps)]
    for step, text in found:
        out[step].append(text)
    return out


def _values(watched: Watched, thread: int) -> Iterator[tuple[int, str]]:
    """Yields the step and the text of each value that a variable is given."""
    for variable, histories in zip(watched.values.variables, watched.values.histories, strict=True):
        if variable.type.target is not None:  # an address says nothing
            continue
        for path, history in histories.items():
            mine = history.thread == thread
            for step, value in zip(history.step[mine].tolist(), history.values[mine].tolist(), strict=True):
                yield step, f"{variable.name}{path} = {_number(value)}"


def _accesses(
    watched: Watched, rows: np.ndarray, shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Yields the step and the text of each access."""
    of = watched.accesses
    for row in rows.tolist():
        buffer = int(of.buffer[row])
        name, dtype = watched.buffers[buffer], np.dtype(watched.dtypes[buffer])
        shape = shapes.get(name) or watched.shared.get(name, UNKNOWN).shape
        value = of.bits[row : row + 1].astype(f"u{dtype.itemsize}").view(dtype)[0]
        yield (
            int(of.step[row]),
            f"{names.get(name, name)}[{_index(int(of.element[row]), shape)}] = {_number(value.item())}",
        )


def _index(element: int, shape: tuple[int, ...]) -> str:
    inside = len(shape) > 1 and element < int(np.prod(shape))
    return ", ".join(str(int(n)) for n in np.unravel_index(element, shape)) if inside else str(element)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _first(texts: tuple[str, ...]) -> list[str]:
    rest = len(texts) - MOST
    return [*texts[:MOST], f"{rest} more"] if rest > 0 else [*texts]
