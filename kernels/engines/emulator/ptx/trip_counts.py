"""Which products and shifts of 32 bits decide how often a loop runs, from the code alone.

A compiler that knows a product to be positive, a square, compares the loop's counter with it as if it were unsigned. In a loop that
ends with `i != n * m` there is no sign either. The counter grows by sums alone. Its start and its end come from outside the loop.
A comparison of what a loop computes otherwise, such as a hash, is none of a counter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kernels.engines.emulator.ptx.flow import Flow
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.ptx.registers import names, written

_SUMS = {"mov", "add", "sub", "neg"}
_CHOICES = {"min", "max", "selp"}
_PRODUCTS = {"mul", "mad", "shl"}


def is_32_bit(i: Instruction) -> bool:
    return i.parts[-1] in ("s32", "u32", "b32") and not {"wide", "hi", "cc", "sat"} & set(i.parts)


class TripCounts:
    """`products`: the instructions, each with the comparison at a loop's end that depends on it. `drops_bits`: whether what an
    instruction's result is made of may wrap."""

    def __init__(self, flow: Flow, drops_bits: Callable[[Instruction], bool]):
        self._code, self._drops_bits = flow.code, drops_bits
        self._writers: dict[str, list[int]] = {}
        for pc, i in enumerate(self._code):
            for name in written(i):
                self._writers.setdefault(name, []).append(pc)
        self.products: dict[int, int] = {}
        numbers = {id(i): pc for pc, i in enumerate(self._code)}
        for start in {to for pc, i in enumerate(self._code) for to in i.targets if i.parts[0] == "bra" and to <= pc}:
            inside = {numbers[id(i)] for i in flow.loop(start).inner}
            for comparison in self._ends(inside):
                made_of = Counter(
                    pc for name in self._outside(comparison, inside) for pc in self._made_of(name, inside)
                )
                # What the start and the end are both made of, as the first place of a probe, is not in their distance.
                self.products |= {pc: comparison for pc, count in made_of.items() if count == 1}

    def _ends(self, inside: set[int]) -> Iterator[int]:
        """Yields the comparisons by which a loop ends."""
        branches = [(pc, self._code[pc]) for pc in inside if self._code[pc].parts[0] == "bra"]
        leaving = {i.guard[0] for pc, i in branches if i.guard is not None and not {*i.targets, pc + 1} <= inside}
        for pc in {pc for name in leaving for pc in self._writers.get(name, ())} & inside:
            if self._code[pc].parts[0] == "setp" and is_32_bit(self._code[pc]):
                yield pc

    def _outside(self, comparison: int, inside: set[int]) -> set[str]:
        """Returns the registers with values from outside the loop that a comparison adds up; nothing if it compares no counter."""
        found, counters, todo = set[str](), set[str](), self._read(comparison)
        seen = set[str]()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            writers = self._writers.get(name, [])
            within = [pc for pc in writers if pc in inside]
            if any(self._code[pc].parts[0] not in _SUMS for pc in within):
                return set()
            if len(within) < len(writers):
                found.add(name)
                counters |= {name} if within else set()
            todo += [source for pc in within for source in self._read(pc)]
        return found if counters else set()

    def _made_of(self, register: str, inside: set[int]) -> set[int]:
        """Returns the product or shift before a loop that a register is a sum with, and the products in it. Of several nothing is known:
        a hash and a multiple of its quotient, whose difference is a remainder, may both wrap."""
        products = self._before(register, inside, _SUMS | _CHOICES)
        if len(products) != 1:
            return set()
        (product,) = products
        return products.union(
            *(self._before(name, inside, _SUMS | _CHOICES | _PRODUCTS) for name in self._read(product))
        )

    def _before(self, register: str, inside: set[int], through: set[str]) -> set[int]:
        """Returns the products and shifts before a loop that a register is made of by instructions of some kinds."""
        found, seen, todo = set[int](), set[int](), [register]
        while todo:
            for pc in set(self._writers.get(todo.pop(), ())) - seen - inside:
                seen.add(pc)
                i = self._code[pc]
                base = i.parts[0]
                if base not in _SUMS | _CHOICES | _PRODUCTS or not is_32_bit(i):
                    continue
                if base in _CHOICES or not self._drops_bits(i):
                    found |= {pc} if base in _PRODUCTS else set()
                    todo += self._read(pc) if base in through else self._added(i)
        return found

    def _added(self, i: Instruction) -> list[str]:
        return [*names(i.operands[3])] if i.parts[0] == "mad" else []

    def _read(self, pc: int) -> list[str]:
        return [name for o in self._code[pc].operands[1:] for name in names(o)]
