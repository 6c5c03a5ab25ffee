"""Which arrays in shared memory the addresses of a kernel's accesses are made of, from its code alone.

An address in an array is the array's symbol plus numbers. A register may have one of several symbols, as the buffer of a loop that
takes turns. Nothing is known of addresses that come from memory or from a call, and of those made of two symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce

from kernels.engines.emulator.ptx.kernel import Instruction, Kernel, Operand
from kernels.engines.emulator.ptx.names import variable
from kernels.engines.emulator.ptx.registers import written

# The symbols of which a register has one. NUMBER: no address as far as is known.
Arrays = frozenset[str]
NUMBER, UNKNOWN = Arrays(), Arrays("?")
LARGEST = 1 << 30  # the end of the dynamic array, which ends where shared memory does
_COPIES = {"mov", "cvt", "cvta", "selp", "min", "max"}
_SUMS = {"add", "sub", "and", "or", "xor", "mad", "lop3"}
Range = tuple[int, int]


@lru_cache(maxsize=64)  # a kernel is launched more often than it is parsed
def arrays_of(kernel: Kernel, starts: tuple[tuple[str, int], ...]) -> ArraysOf:
    return ArraysOf(kernel, dict(starts))


class ArraysOf:
    """`starts`: the byte of shared memory at which each array starts."""

    def __init__(self, kernel: Kernel, starts: Mapping[str, int]):
        self._ranges = {
            v.name: (starts[v.name], starts[v.name] + v.size if v.size else LARGEST)
            for v in kernel.variables
            if v.name in starts
        }
        self._registers: dict[str, Arrays] = {}
        if len(self._ranges) > 1:  # a single array is all there is
            self._follow(kernel.code)

    def ranges(self, address: Operand) -> list[Range]:
        """Returns the bytes that an access by this address may reach, [start, stop); nothing if its arrays are not known. Arrays next
        to each other are one range."""
        arrays = self._of(address.root if address.kind == "mem" else address)
        if len(self._ranges) < 2 or not arrays or arrays == UNKNOWN:
            return []
        out: list[Range] = []
        for start, stop in sorted({self._ranges[name] for name in arrays}):
            if out and out[-1][1] == start:
                start = out.pop()[0]
            out.append((start, stop))
        return out

    def beside(self, address: Operand, at: int) -> str:
        """Returns where a byte outside the arrays of an address is, from the nearest of them."""
        past: dict[str, int] = {}
        for name in self._of(address.root if address.kind == "mem" else address) or ():
            start, stop = self._ranges[name]
            past[name] = at - start if at < start else max(at - stop, 0)
        name = min(past, key=lambda name: abs(past[name]))
        start, stop = self._ranges[name]
        side = "before the start" if past[name] < 0 else "past the end"
        side = f"{abs(past[name])} bytes {side}" if past[name] else f"just {side}" if at >= stop else "across the end"
        size = f"{stop - start:,} bytes of" if stop < LARGEST else "dynamic"
        return f"{side} of {variable(name)} ({size} shared memory)"

    def _follow(self, code: Sequence[Instruction]) -> None:
        """Find what registers hold. In a loop a register is made of itself, so look until nothing changes."""
        results = [(name, i) for i in code for name in written(i)]
        changed = True
        while changed:
            changed = False
            for name, i in results:
                before, value = self._registers.get(name), self._result(i)
                now = value if before is None or value is None else _either(before, value)
                if now is not None and now != before:
                    self._registers[name], changed = now, True

    def _result(self, i: Instruction) -> Arrays | None:
        """Returns what an instruction makes of its operands; None as long as nothing is known of one of them."""
        base = i.parts[0]
        if base not in _COPIES | _SUMS:
            return NUMBER
        first, last = (3 if base == "mad" else 1), {"selp": 3, "lop3": 4}.get(base)
        operands = [self._of(o) for o in i.operands[first:last]]
        known = [o for o in operands if o is not None]
        combine = _either if base in _COPIES else _minus if base == "sub" else _plus
        return reduce(combine, known) if len(known) == len(operands) else None

    def _of(self, o: Operand) -> Arrays | None:
        if o.kind == "symbol" and o.value in self._ranges:
            return Arrays([o.name])
        if o.kind in ("reg", "symbol"):
            return self._registers.get(o.name, None if o.kind == "reg" else NUMBER)
        return NUMBER


def _either(a: Arrays, b: Arrays) -> Arrays:
    return a if a == b else UNKNOWN if UNKNOWN in (a, b) or NUMBER in (a, b) else a | b


def _plus(a: Arrays, b: Arrays) -> Arrays:
    return a or b if NUMBER in (a, b) or a == b else UNKNOWN


def _minus(a: Arrays, b: Arrays) -> Arrays:
    return a if b == NUMBER else UNKNOWN
