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
from functools import lru_cache

from kernels.engines.emulator.ptx.addresses import Addresses, Root
from kernels.engines.emulator.ptx.kernel import Instruction, Kernel, type_bytes
from kernels.engines.emulator.ptx.registers import written

WORD, WIDEST = 4, 16


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


@lru_cache(maxsize=64)  # a kernel is launched more often than it is parsed
def merged_of(kernel: Kernel, symbols: tuple[tuple[str, int], ...]) -> Mapping[int, int]:
    """Returns the merged loads of a kernel; `symbols` has the pairs of `merged`. Callers must not change the result."""
    return merged(kernel.code, dict(symbols))


def merged(code: Sequence[Instruction], symbols: Mapping[str, int]) -> dict[int, int]:
    """Returns for each merged load (instruction index) the width in bytes of its access.

    The load with the lowest address has the width, the others of its access 0; single loads are left out. The access
    starts at the lowest address rounded down to a multiple of the width.
    `symbols`: start of each shared array, in bytes from the start of the block's shared memory.
    """
    writes = [written(i) for i in code]
    known = Addresses(code, symbols, writes)
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
            close(lambda g, root=root, at=at, width=width: _may_overlap(known, g, root, at, at + width))
            for group in groups.values():
                if group.root == root:
                    group.stored.append((at, at + width))
        elif _orders_memory(i, space):
            close()
        # A register's value may change in a loop: before and after a write it is not the same base.
        for name in writes[pc] if groups else ():
            close(lambda g, name=name: name == g.root or (g.guard is not None and name == g.guard[0]))
        if _ends_block(i):
            close()
    close()
    return out


def _may_overlap(known: Addresses, group: _Group, root: Root, start: int, stop: int) -> bool:
    """Returns whether a store to root + start .. root + stop may write bytes that the group reads."""
    if root == group.root:
        return group.reads(start, stop)
    read_arrays, written_arrays = known.arrays(group.root), known.arrays(root)
    return read_arrays is None or written_arrays is None or read_arrays == written_arrays


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
    return next(
        (p.partition("::")[0] for p in i.parts[1:] if p.startswith(("shared", "global", "local", "param", "const"))),
        "generic",
    )


def _is_plain(i: Instruction) -> bool:
    """Returns whether an access is neither volatile nor ordered with other threads' accesses."""
    return not {"volatile", "relaxed", "acquire", "release", "mmio"} & set(i.parts)


def _orders_memory(i: Instruction, space: str) -> bool:
    base = i.parts[0]
    if base in ("atom", "red", "st"):
        return space in ("shared", "generic")
    return base in ("bar", "barrier", "membar", "fence", "cp", "mbarrier", "ldmatrix", "wmma", "call", "extern")


def _ends_block(i: Instruction) -> bool:
    return i.parts[0] in ("bra", "brx", "ret", "exit", "trap", "call", "return")
