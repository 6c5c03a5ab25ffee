"""Fused multiply-adds in a kernel compiled with -G, where the optimiser makes them in the measured build.

-G leaves a * b + c as a product and a sum, which round twice; fma rounds once. PTX allows either of "mul" and "add" without a rounding
mode. The optimiser decides on code that it has unrolled and moved, so the rules here are those that its results follow (found by comparing
the outputs of both builds; a test does so for every kernel):

- A sum takes a product that at most MOST_USES sums use and nothing else. Differences do not.
- If both terms are products, it takes the one with fewer uses, else the first.
- A product of another basic block counts if it is of the same line, or if the sum's line has an fma in the measured build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kernels.engines.emulator.ptx.flow import Flow
from kernels.engines.emulator.ptx.kernel import Instruction, Line, Operand, type_bytes
from kernels.engines.emulator.ptx.registers import read, written

MOST_USES = 4
_FLOATS = ("f32", "f64")
_COPIED = (*_FLOATS, "b32", "b64")
_MOST_COPIES = 8  # from the product to the sum
K = TypeVar("K")
V = TypeVar("V")
Cell = tuple[str, int]  # a place in the thread's own memory: a register or a symbol, and bytes


def contract(code: list[Instruction], fused: Collection[Line]) -> None:
    """Replaces sums by fused multiply-adds in place. `fused`: the lines that have some in the measured build."""
    _drop_unread_loads(code)
    uses, known = _Uses(code), _Known(code, frozenset(fused))
    joins = _joins(Flow(code))
    for pc, i in enumerate(code):
        if pc in joins:
            known.join()
        if _is_plain(i, "add"):
            code[pc] = _fused(i, known, uses)
        known.execute(i)


def _fused(i: Instruction, known: _Known, uses: _Uses) -> Instruction:
    """Returns a sum as a fused multiply-add if one of its terms is a product that may be fused, else the sum."""
    out, *terms = i.operands
    found = []
    for n, term in enumerate(terms):
        name = known.product_in(term, i)
        if name and known.products[name].parts[-1] == i.parts[-1] and uses.are_sums(name):
            found.append((len(uses.of(name)), n, known.products[name]))
    if not found:
        return i
    _, n, product = min(found, key=lambda candidate: candidate[:2])
    return replace(i, opcode=".".join(("fma", "rn", *i.parts[1:])), operands=(out, *product.operands[1:], terms[1 - n]))


class _Uses:
    """Which instructions use each register, also through copies in registers."""

    def __init__(self, code: Sequence[Instruction]):
        self._readers: dict[str, list[Instruction]] = {}
        for i in code:
            for name in read(i):
                self._readers.setdefault(name, []).append(i)

    def of(self, name: str, copies: int = 0) -> list[Instruction]:
        found = []
        for i in self._readers.get(name, ()):
            if i.parts[0] == "mov" and i.operands[0].kind == "reg" and copies < _MOST_COPIES:
                found += self.of(i.operands[0].name, copies + 1)
            else:
                found.append(i)
        return found

    def are_sums(self, name: str) -> bool:
        """Returns whether few sums use a product and nothing else. To keep it in a variable is no use."""
        uses = [i for i in self.of(name) if i.parts[0] != "st"]
        return len(uses) <= MOST_USES and all(i.parts[0] in ("add", "fma") for i in uses)


class _Known:
    """What is known of registers at an instruction: which of them are products, and which are copies of others, also through a cell of
    the thread's own memory."""

    def __init__(self, code: Sequence[Instruction], fused: frozenset[Line]):
        writers = Counter(name for i in code for name in written(i))
        self._once = {name for name, count in writers.items() if count == 1}
        self._fused = fused
        self.products: dict[str, Instruction] = {}
        self._far: set[str] = set()  # products of an earlier block
        self._copies: dict[str, str] = {}
        self._cells: dict[Cell, str] = {}
        self._of: dict[
            str, list[tuple[dict[Any, Any], Any, Any]]
        ] = {}  # what was known of a register: table, key, value

    def execute(self, i: Instruction) -> None:
        for name in written(i):
            self._forget(name)
        kind, first = i.parts[-1], i.operands[0] if i.operands else None
        if _is_plain(i, "mul"):
            self._know(self.products, i.operands[0].name, i, {i.operands[0].name} | read(i))
        elif i.parts[0] == "mov" and kind in _COPIED and {o.kind for o in i.operands} == {"reg"}:
            self._copy(i.operands[0].name, i.operands[1].name)
        elif i.parts[0] == "ld" and i.operands[0].kind == "reg" and (cell := _cell(i.operands[1])) in self._cells:
            self._copy(i.operands[0].name, self._cells[cell])
        elif i.parts[0] in ("st", "atom", "red") and not {"global", "shared"} & set(i.parts):
            cell = _cell(first) if first is not None and i.elements == 1 else None
            if cell is None:
                self._cells.clear()  # it may write any of them
            elif i.operands[1].kind == "reg":
                self._know(self._cells, cell, i.operands[1].name, {i.operands[1].name})
            else:
                self._cells.pop(cell, None)

    def _forget(self, name: str) -> None:
        """A register has a new value."""
        for table, key, value in self._of.pop(name, ()):
            if table.get(key) is value:
                del table[key]
        self._far.discard(name)

    def _know(self, table: dict[K, V], key: K, value: V, until: Collection[str]) -> None:
        """Adds what holds until one of these registers has a new value."""
        table[key] = value
        for name in until:
            self._of.setdefault(name, []).append((table, key, value))

    def _copy(self, name: str, of: str) -> None:
        self._know(self._copies, name, of, {name, of})

    def join(self) -> None:
        """A block begins. A register that is written once is the same in all blocks that read it."""
        for p in [p for p, i in self.products.items() if p not in self._once or not read(i) <= self._once]:
            del self.products[p]
        self._far = set(self.products)
        for a in [a for a, b in self._copies.items() if a not in self._once or b not in self._once]:
            del self._copies[a]
        self._cells.clear()

    def product_in(self, term: Operand, i: Instruction) -> str | None:
        """Returns the register of the product that a term of a sum is."""
        name = str(term.value) if term.kind == "reg" else ""
        for _ in range(_MOST_COPIES):
            if name in self.products:
                product = self.products[name]
                near = name not in self._far or (product.line, product.inlined) == (i.line, i.inlined)
                return name if near or (i.inlined or i.line) in self._fused else None
            name = self._copies.get(name, "")
        return None


def _drop_unread_loads(code: list[Instruction]) -> None:
    """Replaces loads whose value nothing reads: "a[i] = x, b[i] = y;" loads b[i] again, for the value of the expression."""
    used = {name for i in code for name in read(i)}
    for pc, i in enumerate(code):
        if i.parts[0] == "ld" and "volatile" not in i.parts and i.elements == 1 and not written(i) & used:
            zero = Operand("imm", 0)
            code[pc] = replace(i, opcode=f"mov.b{8 * type_bytes(i.parts[-1])}", operands=(i.operands[0], zero))


def _joins(flow: Flow) -> set[int]:
    """Returns the first instructions of the blocks that come after several blocks, or after one that others come after too."""
    before: dict[int, set[int]] = {}
    for block in flow.leaders:
        for n in flow.following(block):
            before.setdefault(n, set()).add(block)
    only = {n for n, blocks in before.items() if len(blocks) == 1 and len(set(flow.following(*blocks))) == 1}
    return set(flow.leaders) - only


def _is_plain(i: Instruction, base: str) -> bool:
    """Returns whether an instruction computes with floats and leaves the rounding open: mul.f32 or mul.ftz.f32, not mul.rn.f32."""
    modifiers = i.parts[1:-1]
    return i.parts[0] == base and i.parts[-1] in _FLOATS and modifiers in ([], ["ftz"]) and i.guard is None


def _cell(o: Operand) -> Cell | None:
    """Returns the place in the thread's own memory that an address names; None of another."""
    if o.kind != "mem" or o.base is None:
        return None
    name = str(o.root.value)
    own = name.startswith("%SP") if o.root.kind == "reg" else "param" in name or "retval" in name
    return (name, o.offset + o.root.offset) if own else None
