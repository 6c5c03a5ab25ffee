"""The turns that loops take: which of them wait for other threads, and which never end.

A group of threads that takes the same loop again and again without losing a thread either computes or waits.
It waits if its loop polls memory, or if the registers that its branches depend on repeat while nobody writes.
Only threads that wait yield to others of their warp. Where all that are left wait so, the kernel never ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.ptx.flow import Loop
from kernels.engines.emulator.state import Machine

FEW = 8  # turns before the state of a loop is looked at
PERIOD = 8  # turns after which a state is looked for again
SECONDS = 18.0  # of processor time: a launch that takes longer is stopped at its next turn of a loop


@dataclass
class Turns:
    """The turns that one group of threads took through one loop, one after the other."""

    pc: int
    threads: np.ndarray
    loop: Loop
    waits: bool
    look: int  # the turn at which to look at its state again
    count: int = 0
    proved: bool = False  # the state of one turn came again, and nobody wrote in between
    at: int = 0  # the last power of two among its turns
    state: tuple | None = (
        None  # of its registers in a turn since, nobody having written after `writes` writes
    )
    writes: int = -1


class Loops:
    """Watches the loops of a launch that takes at most `seconds` of this thread's processor time.
    `instructions` gives how many were issued so far."""

    def __init__(self, m: Machine, seconds: float, instructions: Callable[[], int]):
        self.m, self.seconds, self.instructions = m, seconds, instructions
        self._until = time.thread_time() + seconds
        self._turns: dict[tuple[int, int], Turns] = {}

    def turned(self, pc: int, target: int, threads: np.ndarray) -> Turns | None:
        """The branch at pc takes threads back to `target`: their turns if they are to yield, else None."""
        turns = self._turns.get((pc, target))
        if turns is None or (threads is not turns.threads and not np.array_equal(threads, turns.threads)):
            turns = self._turns[pc, target] = self._first_turn(pc, target, threads)
        turns.threads = threads
        turns.count += 1
        self.check_time(pc, threads, f"in turn {turns.count:,} of this loop: it")
        if turns.count >= turns.look:
            self._look(turns)
        return turns if turns.waits and turns.count > 1 else None

    def _first_turn(self, pc: int, target: int, threads: np.ndarray) -> Turns:
        loop = self.m.flow.loop(target)
        if not loop.ends:
            self.m.fail(pc, "this loop never ends: no path leads out of it", _first(threads))
        return Turns(pc, threads, loop, waits=loop.polls, look=1 if loop.polls else FEW)

    def _look(self, turns: Turns) -> None:
        """Compare the group's state with an earlier one, which is kept anew after every power of two and after
        every write to memory."""
        turns.proved = False
        power = turns.count & (turns.count - 1) == 0
        if power:
            turns.at = turns.count
        if power or turns.writes != self.m.writes:
            turns.writes, turns.state = self.m.writes, None
        elif turns.state is None:
            turns.state = self._state(turns)
        elif not turns.loop.meets or self.m.whole_blocks(turns.threads):
            turns.proved = self._state(turns) == turns.state
            turns.waits |= turns.proved
        near = turns.waits or turns.count < turns.at + PERIOD
        turns.look = turns.count + 1 if near else 2 * turns.at

    def _state(self, turns: Turns) -> tuple:
        return tuple(self.m.bits_of(name, turns.threads) for name in turns.loop.registers)

    def stuck(self, asleep: list[Turns]) -> bool:
        """All these groups repeat what they did, and nobody has written since."""
        return all(turns.proved and turns.writes == self.m.writes for turns in asleep)

    def never_end(self, turns: Turns) -> None:
        what = (
            "this loop never ends: what its condition depends on repeats, and no thread is left to change it"
        )
        self.m.fail(turns.pc, what, _first(turns.threads))

    def check_time(self, pc: int, threads: np.ndarray, where: str = "at this call: the recursion") -> None:
        """EmulatorError if the launch has had its time."""
        if time.thread_time() <= self._until:
            return
        what = (
            f"stopped after {self.seconds:g} seconds and {self.instructions():,} warp instructions, {where} may be "
            "long or endless (--seconds or Options(seconds=...) gives it longer)"
        )
        self.m.fail(pc, what, _first(threads))


def _first(threads: np.ndarray) -> int:
    return int(np.flatnonzero(threads)[0])
