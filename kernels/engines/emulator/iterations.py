"""Iterations of loops: which loops wait for other threads, and which never end.

A group of threads that repeats the same loop without losing a thread either computes or waits.
It waits if its loop polls memory, or if the registers that its branches depend on repeat while no thread writes.
Only threads that wait yield to others of their warp. If all remaining threads wait, the kernel never ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.ptx.flow import Loop
from kernels.engines.emulator.state import Machine

FIRST_CHECK = 8  # iterations before the state of a loop is checked
PERIOD = 8  # iterations after which a repeated state is looked for again
# Of this thread. Python in a browser has one thread, and no clock for it.
processor_seconds = getattr(time, "thread_time", time.process_time)
SECONDS = 18.0  # of processor time: a longer launch is stopped at the next iteration of a loop


@dataclass
class Iterations:
    """The iterations of one group of threads through one loop."""

    pc: int
    threads: np.ndarray
    loop: Loop
    waits: bool
    next_check: int  # the iteration at which its state is checked again
    count: int = 0
    repeats: bool = False  # the state of one iteration occurred again, and no thread wrote in between
    last_power_of_two: int = 0  # the last power of two among its iteration numbers
    state: tuple | None = None  # of its registers in a later iteration, if memory was not written after `writes` writes
    writes: int = -1


class Loops:
    """The loops of a launch that takes at most `seconds` of this thread's processor time. `instructions` returns the
    number issued so far."""

    def __init__(self, m: Machine, seconds: float, instructions: Callable[[], int]):
        self.m, self.seconds, self.instructions = m, seconds, instructions
        self._deadline = processor_seconds() + seconds
        self._next_check = time.perf_counter() + seconds  # before then the processor's time cannot be used up
        self._iterations: dict[tuple[int, int], Iterations] = {}

    def forget(self) -> None:
        """Forget the iterations of threads that have ended."""
        self._iterations.clear()

    def branch_back(self, pc: int, target: int, threads: np.ndarray) -> Iterations | None:
        """Count an iteration: the branch at pc takes threads back to `target`. Return their iterations if they are to
        yield, else None."""
        iterations = self._iterations.get((pc, target))
        if iterations is None or (
            threads is not iterations.threads and not np.array_equal(threads, iterations.threads)
        ):
            iterations = self._iterations[pc, target] = self._first_iteration(pc, target, threads)
        iterations.threads = threads
        iterations.count += 1
        self.check_time(pc, threads)
        if iterations.count >= iterations.next_check:
            self._compare_state(iterations)
        return iterations if iterations.waits and iterations.count > 1 else None

    def _first_iteration(self, pc: int, target: int, threads: np.ndarray) -> Iterations:
        loop = self.m.flow.loop(target)
        if not loop.ends:
            self.m.fail(pc, "this loop never ends: no path leads out of it", _first(threads))
        waits = self.m.flow.waits_at(pc, target)
        return Iterations(pc, threads, loop, waits, next_check=1 if waits else FIRST_CHECK)

    def _compare_state(self, iterations: Iterations) -> None:
        """Compare the group's state with an earlier one, which is stored again after every power of two and after
        every write to memory."""
        iterations.repeats = False
        power = iterations.count & (iterations.count - 1) == 0
        if power:
            iterations.last_power_of_two = iterations.count
        if power or iterations.writes != self.m.writes:
            iterations.writes, iterations.state = self.m.writes, None
        elif iterations.state is None:
            iterations.state = self._state(iterations)
        elif not iterations.loop.synchronizes or self.m.whole_blocks(iterations.threads):
            iterations.repeats = self._state(iterations) == iterations.state
            iterations.waits |= iterations.repeats
        check_next = iterations.waits or iterations.count < iterations.last_power_of_two + PERIOD
        iterations.next_check = iterations.count + 1 if check_next else 2 * iterations.last_power_of_two

    def _state(self, iterations: Iterations) -> tuple:
        return tuple(self.m.bits_of(name, iterations.threads) for name in iterations.loop.registers)

    def stuck(self, waiting: list[Iterations]) -> bool:
        """Returns whether all these groups repeat an earlier state and no thread has written since."""
        return all(iterations.repeats and iterations.writes == self.m.writes for iterations in waiting)

    def never_end(self, iterations: Iterations) -> None:
        message = "this loop never ends: what its condition depends on repeats, and no thread is left to change it"
        self.m.fail(iterations.pc, message, _first(iterations.threads))

    def check_time(self, pc: int, threads: np.ndarray, where: str = "in this loop: it") -> None:
        """Raise EmulatorError if the launch has used its processor time."""
        if time.perf_counter() <= self._next_check:  # unlike the processor's time, this takes no call of the system
            return
        if (left := self._deadline - processor_seconds()) >= 0:
            self._next_check = time.perf_counter() + left
            return
        message = (
            f"stopped after {self.seconds:g} seconds and {self.instructions():,} warp instructions, {where} may be "
            "long or endless (--seconds or Options(seconds=...) gives it longer)"
        )
        self.m.fail(pc, message, _first(threads))


def _first(threads: np.ndarray) -> int:
    return int(np.flatnonzero(threads)[0])
