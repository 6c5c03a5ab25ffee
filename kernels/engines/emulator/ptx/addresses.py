"""What a kernel's code proves about the addresses in its registers: a root plus a constant, the array, the alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.ptx.registers import written

MAX_ZEROS = 8  # low bits of an address that are tracked
# Opcodes whose results may have zero bits at their end.
COMPUTED = frozenset("mov cvt cvta neg abs add sub or xor min max rem and selp shl shr mul mad".split())
# A register, or None: the address is a plain number.
Root = str | None


class Addresses:
    """The known facts about the registers that form addresses: their definitions and their low zero bits. `symbols`:
    start of each shared array in bytes. `writes`: the registers that each instruction writes."""

    def __init__(
        self, code: Sequence[Instruction], symbols: Mapping[str, int], writes: Sequence[AbstractSet[str]] | None = None
    ):
        self.symbols = symbols
        self.definitions: dict[str, list[Instruction]] = {}
        for i, names in zip(code, writes or map(written, code), strict=True):
            for name in names:
                self.definitions.setdefault(name, []).append(i)
        self._zeros: dict[str, int] = {}  # of the roots so far and the registers that they are computed from

    def zeros(self, root: Root) -> int:
        """Returns how many low bits of the root are known to be zero."""
        if root is not None and root not in self._zeros:
            self._find_zeros(root)
        return MAX_ZEROS if root is None else self._zeros[root]

    def _find_zeros(self, root: str) -> None:
        """Find the zero bits of a root and of the registers that it is computed from."""
        registers, todo = set(), [root]
        while todo:
            name = todo.pop()
            if name not in registers and name not in self._zeros:
                registers.add(name)
                todo += [
                    str(o.value)
                    for i in self.definitions.get(name, ())
                    if i.parts[0] in COMPUTED
                    for o in i.operands[1:]
                    if o.kind == "reg"
                ]
        self._zeros |= {name: MAX_ZEROS if name in self.definitions else 0 for name in registers}
        changed = True
        while changed:  # from full alignment down to what every definition allows
            changed = False
            for name in registers & self.definitions.keys():
                zeros = min(self._zeros_of(i) for i in self.definitions[name])
                if zeros < self._zeros[name]:
                    self._zeros[name], changed = zeros, True

    def address(self, o: Operand) -> tuple[Root, int]:
        """Returns a memory operand, or a register, as (root, constant)."""
        constant = o.offset
        if o.kind == "mem":
            o = o.root
            constant += o.offset
        for _ in range(64):  # no chain is longer
            if o.kind == "imm":
                return None, constant + o.number
            if o.kind == "symbol" and o.value in self.symbols:
                return None, constant + self.symbols[o.name]
            definitions = self.definitions.get(o.value, ()) if isinstance(o.value, str) else ()
            if len(definitions) != 1 or definitions[0].guard is not None:
                break
            step = definitions[0]
            source = step.operands[1] if len(step.operands) > 1 else None
            # A register that is written twice may have changed since this one was computed from it.
            if source is None or (source.kind == "reg" and len(self.definitions.get(source.name, ())) != 1):
                break
            if step.parts[0] in ("mov", "cvta"):
                constant += source.offset
            elif step.parts[0] == "add" and len(step.operands) == 3 and step.operands[2].kind == "imm":
                constant += step.operands[2].number
            else:
                break
            o = source
        return str(o.value), constant

    def arrays(self, root: Root) -> set[str] | None:
        """Returns the shared array that a root points into, as a set; None if it is unknown."""
        if root is None:
            return None
        found: set[str] = set()
        todo, seen = [root], {root}
        while todo:
            for i in self.definitions.get(todo.pop(), ()):
                if i.parts[0] not in ("mov", "add", "sub", "cvta", "mad"):
                    continue
                sources = i.operands[-1:] if i.parts[0] == "mad" else i.operands[1:]
                for o in sources:
                    if o.kind == "symbol" and o.value in self.symbols:
                        found.add(o.name)
                    elif o.kind == "reg" and o.value not in seen:
                        seen.add(o.name)
                        todo.append(o.name)
        return found if len(found) == 1 else None

    def _zeros_of(self, i: Instruction) -> int:
        """Returns the number of zero bits at the end of an instruction's result."""
        base = i.parts[0]
        if base not in COMPUTED:
            return 0
        z = [self._operand(o) for o in i.operands[1:]]
        amount = i.operands[2] if len(i.operands) > 2 else None
        if base in ("mov", "cvt", "cvta", "neg", "abs"):
            out = z[0]
        elif base in ("add", "sub", "or", "xor", "min", "max", "rem"):
            out = min(z[0], z[1])
        elif base == "and":
            out = max(z[0], z[1])
        elif base == "selp":
            out = min(z[0], z[1])
        elif base == "shl":
            out = z[0] + (amount.number if amount and amount.kind == "imm" else 0)
        elif base == "shr":
            out = z[0] - amount.number if amount and amount.kind == "imm" else 0
        elif base == "mul" and "hi" not in i.parts and i.parts[-1][0] in "su":
            out = z[0] + z[1]
        elif base == "mad" and "hi" not in i.parts and i.parts[-1][0] in "su":
            out = min(z[0] + z[1], z[2])
        else:
            out = 0
        return max(0, min(out, MAX_ZEROS))

    def _operand(self, o: Operand) -> int:
        if o.kind == "reg":
            return self._zeros.get(o.name, 0)
        if o.kind == "imm" and isinstance(o.value, int):
            return _trailing(o.value)
        if o.kind == "symbol" and o.value in self.symbols:
            return _trailing(self.symbols[o.name] + o.offset)
        return 0


def _trailing(value: int) -> int:
    return min(MAX_ZEROS, (value & -value).bit_length() - 1) if value else MAX_ZEROS
