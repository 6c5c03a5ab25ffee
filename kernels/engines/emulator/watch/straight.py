"""Straight code of a watched launch, in closures that know in advance what the trace notes of each instruction.

A build with -G keeps each variable in the thread's own memory and computes addresses anew at each access, in registers that only the same
basic block reads. So most registers are written without a look at the threads that do not take part, and most accesses go to one place
in the memory of each thread, or to one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.ptx.flow import flow_of
from kernels.engines.emulator.ptx.kernel import Instruction, Kernel
from kernels.engines.emulator.ptx.registers import read, written
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.watch.accesses import access
from kernels.engines.emulator.watch.trace import WatchTrace

_AT_ONCE = ("branch", "return")  # ends of a block that read their guard when its last threads come there
_FROM_EQUALS = ("mov", "cvta", "add")  # of equal values in all threads they make equal ones


class Straight:
    """Runs straight code of a machine with a WatchTrace, whose instructions are decoded after this. `closures`: of these."""

    def __init__(self, m: Machine, trace: WatchTrace):
        self.m, self.trace = m, trace
        self.closures: Sequence[Run] = ()
        m.unmasked = unmasked(m.kernel) - {held.register for of in trace.variables.entered.values() for held in of}
        self._runs: dict[tuple[int, int, bool], list[Run]] = {}
        self._of: dict[int, Run] = {}

    def run(self, pc: int, stop: int, here: np.ndarray) -> None:
        """Execute instructions pc .. stop - 1."""
        if stop == pc:
            return
        trace = self.trace
        trace.at(pc, here)
        seen = trace.group.slots.size > 0
        runs = self._runs.get((pc, stop, seen))
        if runs is None:
            runs = self._runs[pc, stop, seen] = [run for at in range(pc, stop) for run in self._built(at, pc, seen)]
        for run in runs:
            run()
        if seen:
            trace.passed(stop - 1)

    def _built(self, pc: int, start: int, seen: bool) -> list[Run]:
        """Returns what an instruction does in code that begins at `start`. `seen`: whether watched threads execute it."""
        trace, notes = self.trace, self.trace.variables
        if pc not in self._of:
            self._of[pc] = access(self.m, trace, pc, self.closures) or self.closures[pc]
        if not seen:
            return [self._of[pc]]
        before: list[Callable[[int], None]] = []
        if pc > start:
            before = [trace.begin] if trace.places[pc] != trace.places[pc - 1] else []
            before += [trace.enter] if pc in notes.entered else []
        after = [trace.changed] if pc in notes.changed else []
        return [*(partial(note, pc) for note in before), self._of[pc], *(partial(note, pc) for note in after)]


@lru_cache(maxsize=64)
def unmasked(kernel: Kernel) -> frozenset[str]:
    """Returns the registers that may be written for all threads when some write them: those that only instructions after their writers in
    the same straight code read, and those that always have one value."""
    return frozenset(_equal(kernel) | _of_one_block(kernel))


def _equal(kernel: Kernel) -> set[str]:
    """Returns the registers that are written once, with a value that is the same in all threads."""
    code, constants = kernel.code, {v.name for v in (*kernel.params, *kernel.variables)} - kernel.registers.keys()
    writers: dict[str, list[Instruction]] = {}
    for i in code:
        for name in written(i):
            writers.setdefault(name, []).append(i)
    found: set[str] = set()
    for i in code:
        (name, *others) = written(i) or ("",)
        if not name or others or len(writers[name]) > 1 or i.guard is not None:
            continue
        equal = all(
            o.kind == "imm" or (o.kind in ("reg", "symbol") and o.name in found | constants) for o in i.operands[1:]
        )
        if (i.parts[0] in _FROM_EQUALS and equal) or (
            i.parts[:2] == ["ld", "param"] and i.operands[1].root.name in constants
        ):
            found.add(name)
    return found


def _of_one_block(kernel: Kernel) -> set[str]:
    code, flow = kernel.code, flow_of(kernel)
    names, others = set(), set()  # those that are written, and those that others may read
    for start in flow.leaders:
        stop, own = flow.stop[start], set()
        for i in code[start:stop]:
            others |= read(i) - own
            (others if i.guard else own).update(written(i))
        names |= own
        if stop == len(code):
            continue
        end = code[stop]
        joins = stop in flow.leaders and stop > start
        if flow.endings.get(stop) in _AT_ONCE:
            others |= read(end) - (set() if joins else own)
        elif not joins:
            others |= read(end) | written(end)
    return names - others
