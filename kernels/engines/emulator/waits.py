"""Threads that wait until something is true: that the phase of an mbarrier has ended (mbarrier.try_wait), or that all
threads of the cluster have arrived (barrier.cluster.wait).

They are set aside and looked at again when no other thread runs. The closure of such an instruction returns which of
the active threads may continue (bool, one a slot).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES, Groups, join


class Waits:
    """The threads that wait, by instruction (`parked`). `closures`: those of all instructions. `why`: describes, by
    instruction, what a slot's thread waits for."""

    def __init__(self, m: Machine, closures: Sequence[Run], why: dict[int, Callable[[int], str]]):
        self.m, self.closures, self.why = m, closures, why
        self.parked: Groups = {}

    def arrive(self, pc: int, here: np.ndarray) -> np.ndarray:
        """Add threads that reach a wait. Return those that need not wait."""
        self.m.enter(here)
        ready = self.closures[pc]() & here
        rest = here & ~ready
        if rest.any():
            join(self.parked, pc, rest)
        return ready

    def release(self) -> Groups:
        """Returns the threads that may continue, by their instruction."""
        parked, self.parked = self.parked, {}
        released = {pc: self.arrive(pc, threads) for pc, threads in parked.items()}
        return {pc: threads for pc, threads in released.items() if threads.any()}

    def check_deadlock(self) -> None:
        """Raise EmulatorError if threads wait: no thread runs and no copy is under way, so nothing changes any more. A wait
        for bytes is named first: other threads mostly wait for those that wait for it."""
        waits = [(pc, int(np.flatnonzero(threads)[0])) for pc, threads in self.parked.items()]
        reasons = sorted(((self.why[pc](slot), pc, slot) for pc, slot in waits), key=lambda r: "bytes" not in r[0])
        if not reasons:
            return
        (reason, pc, slot), *others = reasons
        also = "".join(f"; at {self.m.kernel.code[at].line}, {text}" for text, at, _ in others)
        warp = int(self.m.thread_of[slot]) // LANES
        message = f"deadlock: {reason}, and no thread or copy is left that could bring this{also}"
        self.m.fail(pc, f"{message} (warp {warp})", slot)
