"""Which registers still matter at a place in the code: those that may be read before they are written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels.engines.emulator.parse import Instruction, Operand

# Opcodes whose first operand is not written.
_NO_RESULT = ("st", "red", "bra", "brx", "bar", "barrier", "ret", "exit", "return", "call", "extern", "cp")


def live_after_calls(code: Sequence[Instruction], start: int, stop: int) -> set[str]:
    """Registers that a function's code start .. stop-1 may read after one of its calls, as it left them before."""
    live: list[set[str]] = [set() for _ in range(stop - start + 1)]  # where an instruction begins
    changed = True
    while changed:
        changed = False
        for pc in range(stop - 1, start - 1, -1):
            i = code[pc]
            after = set().union(*(live[to - start] for to in _next(i, pc)))
            before = (after - _written(i)) | _read(i)
            if before != live[pc - start]:
                live[pc - start], changed = before, True
    return set().union(*(live[pc + 1 - start] for pc in range(start, stop) if code[pc].parts[0] == "call"))


def _next(i: Instruction, pc: int) -> Iterator[int]:
    base = i.parts[0]
    if base in ("bra", "brx"):
        yield from i.targets
    if base not in ("bra", "brx", "ret", "exit", "trap", "return") or i.guard is not None:
        yield pc + 1


def _written(i: Instruction) -> set[str]:
    """Registers that surely hold a new value after the instruction."""
    if i.guard is not None or i.parts[0] in _NO_RESULT or not i.operands:
        return set()
    return set() if i.operands[0].kind == "mem" else set(_registers(i.operands[0]))


def _read(i: Instruction) -> set[str]:
    sources = i.operands if i.parts[0] in _NO_RESULT else i.operands[1:]
    names = {name for o in sources for name in _registers(o)}
    if i.operands and i.operands[0].kind == "mem":
        names |= set(_registers(i.operands[0]))
    return names | {i.guard[0]} if i.guard else names


def _registers(o: Operand) -> Iterator[str]:
    if o.kind == "mem":
        yield from _registers(o.base)
    elif o.kind == "vector":
        for part in o.value:
            yield from _registers(part)
    elif o.kind in ("reg", "not", "symbol"):
        yield str(o.value)
