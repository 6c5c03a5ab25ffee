"""Whole numbers of 32 bits that wrap on their way to an address or to the bound of a loop.

PTX adds and multiplies signed and unsigned numbers by one instruction. A result counts as signed if it reaches, through sums, products
and shifts, a conversion to 64 bits with its sign or a comparison of signed numbers. What an unsigned quotient, remainder or shift is
made of is unsigned. What is shifted to the left and back is a field of bits, whose upper bits are dropped on purpose.
Of a product that decides how often a loop runs PTX may not say whether it is signed. It counts as wrapped if it is wrong as both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.ptx.flow import flow_of
from kernels.engines.emulator.ptx.kernel import Instruction, Kernel, Operand
from kernels.engines.emulator.ptx.registers import names, written
from kernels.engines.emulator.ptx.trip_counts import TripCounts, is_32_bit
from kernels.engines.emulator.state import Machine

MAX_FOUND = 20
_WIDE = np.int64


def _shifted(a: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count < 32, a << np.minimum(count, 31), 0)


# The exact result of an instruction's operands in 64 bits, and how a message writes it.
_EXACT: dict[str, tuple[Callable[..., np.ndarray], str]] = {
    "add": (lambda a, b: a + b, "{} + {}"),
    "sub": (lambda a, b: a - b, "{} - {}"),
    "mul": (lambda a, b: a * b, "{} * {}"),
    "mad": (lambda a, b, c: a * b + c, "{} * {} + {}"),
    "shl": (_shifted, "{} << {}"),
}
_PASSES_ON = {"mov", "selp", "min", "max", "neg", "abs", "shr", "div", "rem", *_EXACT}
_SIGNED_COMPARISONS = {"lt", "le", "gt", "ge"}


def _uses(i: Instruction) -> tuple[Operand, ...]:
    """Returns the operands that an instruction takes as signed numbers of 32 bits, as an address or a comparison does."""
    if i.parts[0] == "cvt" and i.parts[-1] == "s32" and i.parts[-2] in ("s64", "u64"):
        return i.operands[1:2]
    if i.parts[0] in ("mul", "mad") and i.parts[1:] == ["wide", "s32"]:
        return i.operands[1:3]
    if i.parts[0] == "setp" and i.parts[1] in _SIGNED_COMPARISONS and i.parts[-1] == "s32":
        return i.operands[1:3]
    return ()


class _Sources:
    """Where the values of registers come from."""

    def __init__(self, code: Sequence[Instruction]):
        self.writers: dict[str, list[Instruction]] = {}
        for i in code:
            for name in written(i):
                self.writers.setdefault(name, []).append(i)

    def of(self, o: Operand) -> list[Instruction]:
        return [i for name in names(o) for i in self.writers.get(name, ())]

    def drops_bits(self, i: Instruction) -> bool:
        """Returns whether what an instruction's result is made of may wrap."""
        base, unsigned = i.parts[0], i.parts[-1] in ("u32", "b32")
        if base in ("shr", "div", "rem", "min", "max"):
            return unsigned or (base == "shr" and any(map(_is_shifted_left, self.of(i.operands[1]))))
        if base == "sub":
            return any(self._is_quotient_of(i.operands[1], factor) for factor in self._factors(i.operands[2]))
        return base == "mad" and any(self._is_quotient_of(i.operands[3], factor) for factor in i.operands[1:3])

    def _factors(self, o: Operand) -> list[Operand]:
        return [factor for i in self.of(o) if i.parts[:2] == ["mul", "lo"] for factor in i.operands[1:]]

    def _is_quotient_of(self, number: Operand, o: Operand) -> bool:
        """Returns whether o is made of the upper half of an unsigned product of a number, as its quotient by a constant is."""
        seen: set[str] = set()
        todo = list(names(o))
        while todo:
            name = todo.pop()
            for i in self.writers.get(name, ()) if name not in seen else ():
                if i.parts[0] == "mul" and i.parts[1] in ("hi", "wide") and i.parts[-1] == "u32":
                    if any(names(factor) & names(number) for factor in i.operands[1:]):
                        return True
                elif i.parts[0] in ("shr", "add", "sub", "cvt", "mov"):
                    todo += [source for operand in i.operands[1:] for source in names(operand)]
            seen.add(name)
        return False


def _is_shifted_left(i: Instruction) -> bool:
    if i.parts[0] == "mul" and i.parts[1] == "lo":
        return any(o.kind == "imm" and o.number % 256 == 0 for o in i.operands[1:])
    return i.parts[0] == "shl"


def _signed(code: Sequence[Instruction]) -> dict[int, int]:
    """Returns the instructions whose result is used as a signed number, each with an instruction that uses it."""
    writers: dict[str, list[int]] = {}
    sources = _Sources(code)
    for pc, i in enumerate(code):
        if i.parts[0] in _PASSES_ON and is_32_bit(i) and not sources.drops_bits(i):
            for name in written(i):
                writers.setdefault(name, []).append(pc)
    uses = sorted((i.parts[0] != "setp", pc) for pc, i in enumerate(code) if _uses(i))
    todo = [
        (name, pc) for _, pc in uses for o in _uses(code[pc]) for name in names(o)
    ]  # addresses, the last, come first
    found: dict[int, int] = {}
    while todo:
        name, use = todo.pop()
        for pc in writers.get(name, ()):
            if pc not in found:
                found[pc] = use
                operands = code[pc].operands[1:2] if code[pc].parts[0] in ("shl", "shr") else code[pc].operands[1:]
                todo += [(source, use) for o in operands for source in names(o)]
    return {pc: use for pc, use in found.items() if code[pc].parts[0] in _EXACT}


def _unsigned(values: np.ndarray) -> np.ndarray:
    return (values.astype(_WIDE) & 0xFFFFFFFF).astype(np.uint64)


@lru_cache(maxsize=64)  # a kernel is launched more often than it is parsed
def _watched(kernel: Kernel) -> tuple[dict[int, int], dict[int, int]]:
    """Returns the instructions whose result is used as a signed number, and those that count iterations, each with a use."""
    return _signed(kernel.code), TripCounts(flow_of(kernel), _Sources(kernel.code).drops_bits).products


class Overflow:
    """The 32-bit results of a launch that wrapped. `uses`: what is looked at, each with an instruction that uses its result. `found`:
    messages, by instruction."""

    def __init__(self, m: Machine):
        self.m = m
        signed, counts = _watched(m.kernel)
        self.uses, self._counts = {**counts, **signed}, counts.keys() - signed.keys()
        self.found: dict[int, str] = {}

    def around(self, pc: int, i: Instruction, run: Run) -> Run:
        """Returns `run` with a check of its result, if the instruction's result is used as a signed number or counts iterations."""
        if pc not in self.uses:
            return run
        m, (exact, text) = self.m, _EXACT[i.parts[0]]
        reads = [m.reader(o, "s32") for o in i.operands[1:]]
        result = m.reader(Operand("reg", i.operands[0].name), "s32")

        def checked() -> None:
            if pc in self.found:
                run()
                return
            values = [read().astype(_WIDE) for read in reads]
            run()
            wraps = exact(*values) != result()
            if pc in self._counts:
                wraps = wraps & (exact(*map(_unsigned, values)) != _unsigned(result()))
            if wraps.any():
                self._report(pc, wraps, values, result(), text)

        return checked

    def _report(self, pc: int, wraps: np.ndarray, values: list[np.ndarray], result: np.ndarray, text: str) -> None:
        m = self.m
        slots = m.active_slots()
        bad = slots[np.broadcast_to(wraps, m.slots)[slots]]
        if not bad.size or len(self.found) >= MAX_FOUND:
            return
        slot = int(bad[0])
        operands = (f"{int(np.broadcast_to(value, m.slots)[slot]):,}" for value in values)
        wrapped = int(np.broadcast_to(result, m.slots)[slot])
        use = m.kernel.code[self.uses[pc]]
        purpose = "a comparison" if use.parts[0] == "setp" else "an address"
        if pc in self._counts:
            purpose = "the end of the loop"
        self.found[pc] = (
            f"{m.where(pc)}: {text.format(*operands)} wraps to {wrapped:,}, a number of 32 bits that {purpose} at {use.line} "
            f"depends on, by thread {m.threads.thread(slot)} of block {m.threads.block_at(slot)}"
        )
