"""Merged loads: ptxas replaces neighbouring loads from shared memory by one wide load.

PTX loads one float at a time. The machine code loads 8 or 16 bytes if the compiler can prove that the address is
aligned to them. That changes the hardware's counters, so the emulator's counters follow it.
The rules are those seen in sm_90 machine code:

- Loads are collected in straight-line code, as long as no instruction between them may write the bytes that they read:
  no barrier (of the block or a warp), no fence, no atomic on shared memory, no store to it, unless the
  store goes to another array or to other bytes from the same base register.
- They have one base register (added constants are followed), one element size, 4 or 8 bytes, and one guard.
- An aligned piece of 16 bytes becomes one load if at least three of its four words are loaded
  (both, for elements of 8 bytes); an aligned piece of 8 bytes if both are.
- Alignment is the number of zero bits that an address is known to end in: from multiplications, shifts and
  masks, and from the offsets of the block's arrays. A register written at several instructions (around a loop) has the
  smallest alignment of these.

Loads stay as they are if this module cannot prove a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.ptx.registers import written

WORD, WIDEST = 4, 16
MAX_ZEROS = 8  # low bits of an address that are tracked
# A register, or None: the address is a plain number.
Root = str | None


@dataclass
class _Load:
    pc: int
    at: int  # bytes from the root
    width: int


@dataclass
class _Group:
    """Loads from one root, of one element size, under one guard, with no instruction between them that forbids
    merging."""

    root: Root
    guard: tuple[str, bool] | None
    zeros: int
    loads: list[_Load] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)  # bytes written from the same root since

    def reads(self, start: int, stop: int) -> bool:
        return any(load.at < stop and start < load.at + load.width for load in self.loads)


def merged(code: Sequence[Instruction], symbols: Mapping[str, int]) -> dict[int, int]:
    """Return for each merged load (instruction index) the width in bytes of its access.

    The load with the lowest address has the width, the others of its access 0; single loads are left out. The access
    starts at the lowest address rounded down to a multiple of the width.
    `symbols`: start of each shared array, in bytes from the start of the block's shared memory.
    """
    known = _Addresses(code, symbols)
    leaders = {t for i in code for t in i.targets}
    out: dict[int, int] = {}
    groups: dict[tuple, _Group] = {}

    def close(chosen: Callable[[_Group], bool] = lambda group: True) -> None:
        for key in [key for key, group in groups.items() if chosen(group)]:
            out.update(_widths(groups.pop(key)))

    for pc, i in enumerate(code):
        if pc in leaders:
            close()
        space, base = _space(i), i.parts[0]
        if base == "ld" and space == "shared" and _is_plain(i):
            root, at = known.address(i.operands[1])
            element, count = type_bytes(i.parts[-1]), i.elements
            if element in (4, 8):
                key, load = (root, element, i.guard), _Load(pc, at, element * count)
                if any(at < stop and start < at + load.width for start, stop in _stored(groups, key)):
                    out.update(_widths(groups.pop(key)))
                groups.setdefault(key, _Group(root, i.guard, known.zeros(root))).loads.append(load)
        elif base == "st" and space == "shared":
            root, at = known.address(i.operands[0])
            width = type_bytes(i.parts[-1]) * i.elements
            close(lambda g, root=root, at=at, width=width: known.may_overlap(g, root, at, at + width))
            for group in groups.values():
                if group.root == root:
                    group.stored.append((at, at + width))
        elif _orders_memory(i, space):
            close()
        # A register's value may change in a loop: before and after a write it is not the same base.
        for name in written(i):
            close(lambda g, name=name: name == g.root or (g.guard is not None and name == g.guard[0]))
        if _ends_block(i):
            close()
    close()
    return out


def _stored(groups: Mapping[tuple, _Group], key: tuple) -> list[tuple[int, int]]:
    return groups[key].stored if key in groups else []


def _widths(group: _Group) -> dict[int, int]:
    out: dict[int, int] = {}
    remaining = sorted(group.loads, key=lambda load: (load.at, load.pc))
    for size, min_bytes in ((WIDEST, 3 * WORD), (2 * WORD, 2 * WORD)):
        if 1 << group.zeros < size:
            continue
        pieces: dict[int, list[_Load]] = {}
        for load in remaining:
            if load.at // size == (load.at + load.width - 1) // size:
                pieces.setdefault(load.at // size, []).append(load)
        for loads in pieces.values():
            requested = {byte for load in loads for byte in range(load.at, load.at + load.width)}
            # A load that is already as wide stays single.
            if len(loads) < 2 or len(requested) < min_bytes:
                continue
            out[loads[0].pc] = size
            out |= {load.pc: 0 for load in loads[1:]}
            remaining = [load for load in remaining if load not in loads]
    return out


# -- reading instructions ---------------------------------------------------------------------------------
def _space(i: Instruction) -> str:
    return next((p.partition("::")[0] for p in i.parts[1:] if p.startswith(("shared", "global", "local", "param", "const"))), "generic")  # fmt: skip


def _is_plain(i: Instruction) -> bool:
    """Return whether an access is neither volatile nor ordered with other threads' accesses."""
    return not {"volatile", "relaxed", "acquire", "release", "mmio"} & set(i.parts)


def _orders_memory(i: Instruction, space: str) -> bool:
    base = i.parts[0]
    if base in ("atom", "red", "st"):
        return space in ("shared", "generic")
    return base in (
        "bar",
        "barrier",
        "membar",
        "fence",
        "cp",
        "mbarrier",
        "ldmatrix",
        "wmma",
        "call",
        "extern",
    )


def _ends_block(i: Instruction) -> bool:
    return i.parts[0] in ("bra", "brx", "ret", "exit", "trap", "call", "return")


class _Addresses:
    """The known facts about registers that form addresses: definitions and zero bits at their end."""

    def __init__(self, code: Sequence[Instruction], symbols: Mapping[str, int]):
        self.symbols = symbols
        self.definitions: dict[str, list[Instruction]] = {}
        for i in code:
            for name in written(i):
                self.definitions.setdefault(name, []).append(i)
        self._zeros = dict.fromkeys(self.definitions, MAX_ZEROS)
        changed = True
        while changed:  # from full alignment down to what every definition allows
            changed = False
            for name, definitions in self.definitions.items():
                zeros = min(self._zeros_of(i) for i in definitions)
                if zeros < self._zeros[name]:
                    self._zeros[name], changed = zeros, True

    def zeros(self, root: Root) -> int:
        """Return how many low bits of the root are known to be zero."""
        return MAX_ZEROS if root is None else self._zeros.get(root, 0)

    def address(self, o: Operand) -> tuple[Root, int]:
        """Return a memory operand, or a register, as (root, constant)."""
        constant = o.offset
        if o.kind == "mem":
            o = o.base
            constant += o.offset
        for _ in range(64):  # no chain is longer
            if o.kind == "imm":
                return None, constant + int(o.value)
            if o.kind == "symbol" and o.value in self.symbols:
                return None, constant + self.symbols[o.value]
            definitions = self.definitions.get(o.value, ())
            if len(definitions) != 1 or definitions[0].guard is not None:
                break
            step, source = (
                definitions[0],
                definitions[0].operands[1] if len(definitions[0].operands) > 1 else None,
            )
            # A register that is written twice may have changed since this one was computed from it.
            if source is None or (source.kind == "reg" and len(self.definitions.get(source.value, ())) != 1):
                break
            if step.parts[0] in ("mov", "cvta"):
                constant += source.offset
            elif step.parts[0] == "add" and step.operands[2].kind == "imm":
                constant += int(step.operands[2].value)
            else:
                break
            o = source
        return str(o.value), constant

    def arrays(self, root: Root) -> set[str] | None:
        """Return the shared array that a root points into, as a set; None if it is unknown."""
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
                        found.add(o.value)
                    elif o.kind == "reg" and o.value not in seen:
                        seen.add(o.value)
                        todo.append(o.value)
        return found if len(found) == 1 else None

    def may_overlap(self, group: _Group, root: Root, start: int, stop: int) -> bool:
        """Return whether a store to root + start .. root + stop may write bytes that the group reads."""
        if root == group.root:
            return group.reads(start, stop)
        read_arrays, written_arrays = self.arrays(group.root), self.arrays(root)
        return read_arrays is None or written_arrays is None or read_arrays == written_arrays

    def _zeros_of(self, i: Instruction) -> int:
        """Return the number of zero bits at the end of an instruction's result."""
        base = i.parts[0]
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
            out = z[0] + (int(amount.value) if amount.kind == "imm" else 0)
        elif base == "shr":
            out = z[0] - int(amount.value) if amount.kind == "imm" else 0
        elif base == "mul" and "hi" not in i.parts and i.parts[-1][0] in "su":
            out = z[0] + z[1]
        elif base == "mad" and "hi" not in i.parts and i.parts[-1][0] in "su":
            out = min(z[0] + z[1], z[2])
        else:
            out = 0
        return max(0, min(out, MAX_ZEROS))

    def _operand(self, o: Operand) -> int:
        if o.kind == "reg":
            return self._zeros.get(o.value, 0)
        if o.kind == "imm" and isinstance(o.value, int):
            return _trailing(o.value)
        if o.kind == "symbol" and o.value in self.symbols:
            return _trailing(self.symbols[o.value] + o.offset)
        return 0


def _trailing(value: int) -> int:
    return min(MAX_ZEROS, (value & -value).bit_length() - 1) if value else MAX_ZEROS
