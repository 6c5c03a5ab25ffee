"""What the instructions of a kernel say of its accesses to memory before they run, for the race detector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels.engines.emulator.memory import GLOBAL_BASE
from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.ptx.registers import names, written
from kernels.engines.emulator.state import Machine

_SPACES = {"global", "shared", "local", "param", "const"}
_NOT_GLOBAL = {"shared", "local", "param", "shared::cta", "shared::cluster"}


def unit_of(m: Machine, space: str) -> int:
    """Returns the bytes of a word: at most 4, and the width of the narrowest access to a space."""
    elsewhere, widths = _SPACES - {space}, [4]
    for i in m.kernel.code:
        if i.parts[0] in ("ld", "st", "atom", "red") and not elsewhere & {part.partition("::")[0] for part in i.parts}:
            widths.append(type_bytes(i.parts[-1]))
        elif i.parts[0] == "wmma" and i.parts[1] != "mma":
            widths.append(4 if i.parts[-1] == "tf32" else type_bytes(i.parts[-1]))
    return min(widths)


def guesses(code: Sequence[Instruction]) -> set[int]:
    """Returns the loads whose value is only a guess that an atomic compare-and-swap of the same address checks, as in the atomics that
    CUDA's guide builds from it."""
    moves = [
        (next(iter(written(i))), names(i.operands[1])) for i in code if i.parts[0] == "mov" and len(written(i)) == 1
    ]

    def sources(registers: set[str]) -> frozenset[str]:
        """Returns the registers and those from which their values were moved."""
        found = set(registers)
        while new := {name for target, of in moves if target in found for name in of} - found:
            found |= new
        return frozenset(found)

    swaps = [
        (sources(names(i.operands[1])), sources(names(i.operands[2])))
        for i in code
        if i.parts[0] == "atom" and "cas" in i.parts
    ]
    return {
        pc
        for pc, i in enumerate(code)
        if i.parts[0] == "ld"
        and any(written(i) & compared and sources(names(i.operands[1])) & address for address, compared in swaps)
    }


def written_ranges(m: Machine) -> list[tuple[int, int]] | None:
    """Returns the bytes start .. stop of the buffers of global memory that stores and atomics can write to, by the parameters and
    variables that their addresses come from; None if an address comes from elsewhere."""
    writers: dict[str, list[Instruction]] = {}
    for i in m.kernel.code:
        for name in written(i):
            writers.setdefault(name, []).append(i)
    stores = (i for i in m.kernel.code if i.parts[0] in ("st", "atom", "red") and not _NOT_GLOBAL & set(i.parts))
    todo = [name for i in stores for name in names(next(o for o in i.operands if o.kind == "mem"))]
    seen, addresses = set(todo), []
    if any(i.parts[:3] == ["cp", "async", "bulk"] and "bulk_group" in i.parts for i in m.kernel.code):
        return None  # a tensor map may name any buffer
    while todo:
        name = todo.pop()
        if name not in writers:
            addresses += m.addresses_of(name)
        for i in writers.get(name, ()):
            if i.parts[0] == "ld" and "param" in i.parts:
                source = i.operands[1]
                addresses += m.pointers_in(source.root.name, source.offset + source.root.offset)
            elif i.parts[0] in ("ld", "atom", "extern", "call") and i.parts[-1] in ("u64", "b64", "s64"):
                return None
            elif i.parts[0] not in ("ld", "atom"):
                new = {source for o in i.operands[1:] for source in names(o)} - seen
                seen |= new
                todo += new
    regions = (m.memory.region(address - GLOBAL_BASE) for address in addresses if address >= GLOBAL_BASE)
    return [(region.start, region.stop) for region in regions if region is not None]


def updates_by_hand(code: Sequence[Instruction]) -> dict[int, set[int]]:
    """Returns the stores of a value that is made of what loads have read at the same address: the loads, by instruction. Bits that are set
    or cleared and bounds by a constant are none: they are the same after one update and after two."""
    writers: dict[str, list[int]] = {}
    for pc, i in enumerate(code):
        for name in written(i):
            writers.setdefault(name, []).append(pc)
    found: dict[int, set[int]] = {}
    for pc, i in enumerate(code):
        if i.parts[0] != "st":
            continue
        address, value = i.operands[:2]
        sources = [*_made_of(code, writers, value)]
        loads = {at for at in sources if _is_at(code[at], address)}
        if loads and not all(at in loads or _is_idempotent(code[at]) for at in sources):
            found[pc] = loads
    return found


def _is_at(i: Instruction, address: Operand) -> bool:
    return i.parts[0] == "ld" and (i.operands[1].root, i.operands[1].offset) == (address.root, address.offset)


def _is_idempotent(i: Instruction) -> bool:
    by_constant = i.parts[0] in ("or", "and", "min", "max") and any(o.kind == "imm" for o in i.operands)
    return by_constant or i.parts[0] in ("mov", "cvt")


def _made_of(code: Sequence[Instruction], writers: dict[str, list[int]], value: Operand) -> Iterator[int]:
    """Yields the instructions that a value comes from, up to loads and atomics."""
    seen, todo = set(), [pc for name in names(value) for pc in writers.get(name, ())]
    while todo:
        pc = todo.pop()
        if pc in seen:
            continue
        seen.add(pc)
        yield pc
        if code[pc].parts[0] not in ("ld", "atom"):
            todo += [at for o in code[pc].operands[1:] for name in names(o) for at in writers.get(name, ())]
