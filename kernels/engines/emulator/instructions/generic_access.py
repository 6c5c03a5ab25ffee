"""Accesses by generic addresses: threads of one instruction may point into different spaces. Each space runs in turn."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.accessor import space_of
from kernels.engines.emulator.instructions.closure import Build, Run, Unknown
from kernels.engines.emulator.memory import WINDOWS
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine

# An address shifted right by these bits identifies its space.
_WINDOW_BITS = np.uint64(min(WINDOWS.values()).bit_length() - 1)


def by_space(build: Build) -> Build:
    """Returns the builder of an access that runs separately for the threads of each space if its addresses are
    generic."""

    def built(m: Machine, pc: int, i: Instruction) -> Run:
        run = build(m, pc, i)
        if space_of(i) != "generic":
            return run
        operand = next(o for o in i.operands if o.kind == "mem")
        base, offset = m.reader(operand.root, "u64"), np.uint64(operand.offset % (1 << 64))

        def each_space() -> None:
            address = base()
            if address.ndim == 0:
                run()
                return
            spaces = (address + offset) >> _WINDOW_BITS
            active = m.active(spaces)
            if (active == active[0]).all():
                run()
            else:
                _split(m, run, spaces, np.unique(active))

        return each_space

    return built


def _split(m: Machine, run: Run, spaces: np.ndarray, each: np.ndarray) -> None:
    """Run for the active threads of each space, one space after the other."""
    for space in each:
        here = spaces == space
        with m.only(here if m.active_mask is None else here & m.active_mask):
            run()


def is_space(m: Machine, pc: int, i: Instruction) -> Run:
    """Build isspacep: whether a generic address points into a space. Constants are in global memory here."""
    space = i.parts[1].partition("::")[0]
    put, a = m.writer(i.operands[0], "pred"), m.reader(i.operands[1], "u64")
    if space in WINDOWS:
        window = np.uint64(WINDOWS[space]) >> _WINDOW_BITS
        return lambda: put(a() >> _WINDOW_BITS == window)
    if space != "global":
        raise Unknown(f"unknown opcode {i.opcode}")
    others = [np.uint64(window) >> _WINDOW_BITS for window in WINDOWS.values()]
    return lambda: put(~np.isin(a() >> _WINDOW_BITS, others))


BUILDERS = {"isspacep": is_space}
