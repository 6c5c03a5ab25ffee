"""The registers that an instruction reads and those that it writes."""

from __future__ import annotations

from kernels.engines.emulator.ptx.kernel import Instruction, Operand

CARRY = "carry"  # stands for the carry that add.cc writes and addc reads
# Opcodes whose first operand is not written.
_NO_RESULT = ("st", "red", "bra", "brx", "ret", "exit", "return", "call", "extern", "cp", "nanosleep", "setmaxnreg")


def written(i: Instruction) -> set[str]:
    """Returns the registers that an instruction writes, with or without a guard."""
    if not _has_result(i):
        return set()
    return names(i.operands[0]) | ({CARRY} if ".cc" in i.opcode else set())


def read(i: Instruction) -> set[str]:
    """Returns the registers that an instruction reads, including its guard."""
    only_written = _has_result(i) and i.parts[0] != "wgmma"  # which adds to its first operand
    found = {name for o in i.operands[only_written:] for name in names(o)}
    if i.guard is not None:
        found.add(i.guard[0])
    return found | ({CARRY} if i.opcode.startswith(("addc", "subc", "madc")) else set())


def _has_result(i: Instruction) -> bool:
    """Returns whether the first operand is written. For one in memory, only the registers of its address are read."""
    base = i.parts[0]
    if base in ("bar", "barrier"):
        return "red" in i.parts
    return base not in _NO_RESULT and bool(i.operands) and i.operands[0].kind != "mem"


def names(o: Operand) -> set[str]:
    """Returns the registers in an operand."""
    if o.kind == "vector":
        return {name for part in o.inner for name in names(part)}
    if o.base is not None:
        return names(o.base).union(*map(names, o.inner))
    return {str(o.value)} if o.kind in ("reg", "not", "symbol") else set()
