"""Live registers: those that may be read before they are written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.ptx.registers import read, written


def live_after_calls(code: Sequence[Instruction], start: int, stop: int) -> set[str]:
    """Returns the registers that a function's code start .. stop-1 may read after one of its calls without writing them
    first."""
    live: list[set[str]] = [set() for _ in range(stop - start + 1)]  # live registers before each instruction
    changed = True
    while changed:
        changed = False
        for pc in range(stop - 1, start - 1, -1):
            i = code[pc]
            after = set().union(*(live[to - start] for to in _next(i, pc)))
            before = (after if i.guard else after - written(i)) | read(i)
            if before != live[pc - start]:
                live[pc - start], changed = before, True
    return set().union(*(live[pc + 1 - start] for pc in range(start, stop) if code[pc].parts[0] == "call"))


def _next(i: Instruction, pc: int) -> Iterator[int]:
    base = i.parts[0]
    if base in ("bra", "brx"):
        yield from i.targets
    if base not in ("bra", "brx", "ret", "exit", "trap", "return") or i.guard is not None:
        yield pc + 1
