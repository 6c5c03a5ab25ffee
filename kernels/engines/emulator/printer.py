"""The lines that the threads of a launch print."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.engines.emulator.threads import Dim, Threads

PRINT_BUFFER = 1 << 20  # bytes of text stored: the size of CUDA's own buffer


@dataclass(frozen=True)
class Printed:
    """A line that a thread printed, without its end."""

    block: Dim
    thread: Dim
    text: str

    def __str__(self) -> str:
        return f"block {self.block} thread {self.thread}: {self.text}"


class Printer:
    """Collects what threads, by their number in the grid, print, line by line, up to PRINT_BUFFER bytes; `dropped`: calls of printf beyond."""

    def __init__(self, threads: Threads):
        self.threads, self.dropped = threads, 0
        self._lines: list[Printed] = []
        self._begun: dict[int, bytes] = {}  # lines not ended yet, by thread
        self._left = PRINT_BUFFER

    @property
    def full(self) -> bool:
        return self._left <= 0

    def write(self, thread: int, text: bytes) -> None:
        self._left -= len(text)
        *lines, rest = (self._begun.pop(thread, b"") + text).split(b"\n")
        for line in lines:
            self._lines.append(self._line(thread, line))
        if rest:
            self._begun[thread] = rest

    def _line(self, thread: int, text: bytes) -> Printed:
        return Printed(*self.threads.position(thread), text.decode("utf-8", "replace"))

    def lines(self) -> tuple[Printed, ...]:
        """Returns all complete lines in the order of their ends, then the incomplete ones."""
        return (*self._lines, *(self._line(thread, text) for thread, text in self._begun.items()))
