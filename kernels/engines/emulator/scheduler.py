"""The scheduler: selects the threads that run next, one basic block after the other.

Control state is {pc: threads there}. The lowest pc always runs next, up to the next instruction where threads may join
or diverge. So every warp executes the same (pc, mask) sequence as it would alone, and threads that diverged reconverge
where their paths join. Threads that wait are set aside until no other thread runs: at a barrier, at a warp instruction
whose other lanes have not arrived, for a phase of an mbarrier, or in a loop that waits for other threads
(`iterations`). Bulk copies under way are done when no thread runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator import instructions
from kernels.engines.emulator.barriers import Barriers
from kernels.engines.emulator.counters import Tally
from kernels.engines.emulator.errors import RemovedCode
from kernels.engines.emulator.events import WARPS
from kernels.engines.emulator.iterations import Iterations, Loops
from kernels.engines.emulator.lanes import Lanes
from kernels.engines.emulator.native.engine import Native
from kernels.engines.emulator.state import Machine, needed
from kernels.engines.emulator.threads import LANES, Groups, join
from kernels.engines.emulator.waits import Waits

if TYPE_CHECKING:
    from kernels.engines.emulator.native.plan import Plan
    from kernels.engines.emulator.watch.straight import Straight


class Scheduler:
    """Runs a launch that takes at most `seconds` of this thread's processor time in loops. `plan`: of what machine code executes. `straight`:
    executes straight code in place of the closures of its instructions, of a launch that is watched."""

    def __init__(self, m: Machine, seconds: float, plan: Plan | None = None, straight: Straight | None = None):
        self.m, self.code = m, m.kernel.code
        self.closures, self.guards = instructions.decode_all(m, plan.handled if plan is not None else ())
        self.native = None if plan is None else Native(m, plan, self.closures)
        self.straight = straight
        if straight is not None:
            straight.closures = self.closures
        self.stop = m.flow.stop if plan is None else plan.stop
        self.yielded: Groups = {}
        self.waiting_loops: list[Iterations] = []  # the loops in which threads yielded
        self._until: Callable[[], bool] | None = None
        self._stopped = False
        self._had_turn = False  # whether only threads that had yielded ran since the last turn
        self.barriers, self.lanes, self.loops = Barriers(m), Lanes(m), Loops(m, seconds, self._instructions)
        self.waits = Waits(m, self.closures, instructions.reasons(m))
        handlers = {
            "branch": self._branch,
            "table": self._jump_table,
            "return": self._return,
            "trap": self._trap,
            "barrier": self._at_barrier,
            "lanes": self._at_lanes,
            "frame": self._frame,
            "wait": self._at_wait,
        }
        self._leave = {pc: handlers[kind] for pc, kind in m.flow.endings.items()}
        self._returns = {pc for pc, kind in m.flow.endings.items() if kind == "return" and self.code[pc].guard is None}
        # By first instruction and the one after the last: [warps, threads] that ran from there to there.
        self._issued: dict[tuple[int, int], list[int]] = {}
        self._start()

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Run the launch to its end, or until `until` returns true after bulk copies. EmulatorError for a fault in the
        kernel."""
        self._until = until
        with np.errstate(all="ignore"):
            for batch in range(self.m.threads.batches):
                if batch:
                    self.m.begin(batch)
                    self._start()
                while not self._stopped and (self.pending or self._resume()):
                    self._advance()
                    if self.pending:
                        self._step(*self._next())
                self.m.finish()
        if self.m.register_pool is not None and not self._stopped:
            self.m.register_pool.check()
        if self.native is not None:
            self.native.flush()
        if self.m.tally is not None:
            self._add_to(self.m.tally)

    def _start(self) -> None:
        """Let the machine's threads start, those of a batch."""
        m = self.m
        self.pending: Groups = {m.kernel.start: m.live}
        self._partial = self._partial_live = self._counted = m.live  # masks last checked
        self._live_count = np.count_nonzero(m.live)
        self._warps_lanes = self._count(m.live)
        self.barriers.forget()
        self.loops.forget()
        self.loops.check_time(m.kernel.start, m.live, "in this launch: it")

    def _advance(self) -> None:
        """Let threads run in machine code, unless others wait whom they might pass."""
        if self.native is None or self.barriers.parked or self.lanes.waiting:
            return
        ended = self.native.advance(self.pending, self._check_time, self.barriers.warnings)
        if ended is not None:
            self._exit(ended)

    def _check_time(self, pc: int, threads: np.ndarray) -> None:
        in_loop = self.m.flow.endings.get(pc) == "branch"  # the turns of a warp there are over
        self.loops.check_time(pc, threads, *(() if in_loop else ("in this launch: it",)))

    def _next(self) -> tuple[int, np.ndarray]:
        """Returns the lowest pc with the threads there, which leave `pending`."""
        pc = min(self.pending)
        return pc, self._canonical(self.pending.pop(pc))

    def _step(self, pc: int, here: np.ndarray) -> None:
        if self.barriers.parked or self.lanes.waiting:
            self.barriers.check_skipped(pc, here)
            self.lanes.check_skipped(pc, here)
        stop = self.stop[pc]
        # At an instruction where others wait, the threads join them before it is executed.
        leave = None if stop > pc and stop in self.pending else self._leave.get(stop)
        self._straight(pc, stop, here, stop if leave is None else stop + 1)
        if leave is not None:
            if self.m.trace is not None:
                self.m.trace.at(stop, here)
            leave(stop, here)
        elif stop == len(self.code):
            message = (
                "the code ends here without a return: the compiler removed what follows, because CUDA does not define it. "
                "A call of a null function pointer is such code"
            )
            self.m.fail(stop, message, int(np.flatnonzero(here)[0]), kind=RemovedCode)
        else:
            self._join(stop, here)

    def _straight(self, pc: int, stop: int, here: np.ndarray, last: int) -> None:
        """Execute instructions pc .. stop - 1 and count pc .. last - 1."""
        m = self.m
        m.enter(here)
        if here is not self._counted:
            self._counted, self._warps_lanes = here, self._count(here)
        issued = self._issued.setdefault((pc, last), [0, 0])
        issued[0] += self._warps_lanes[0]
        issued[1] += self._warps_lanes[1]
        if self.native is not None:
            self.native.by_numpy(pc, stop)
        elif self.straight is not None:
            self.straight.run(pc, stop, here)
        elif m.trace is None:
            for run in self.closures[pc:stop]:
                run()
        else:
            for at in range(pc, stop):
                m.trace.at(at, here)
                self.closures[at]()
                m.trace.after(at, here)
        if m.issued is not None:
            m.issued[here.reshape(-1, LANES).any(axis=1)] += np.uint64(last - pc)

    def _count(self, threads: np.ndarray) -> tuple[int, int]:
        """Returns (number of warps with one of the threads, number of threads)."""
        return int(np.count_nonzero(threads.reshape(-1, LANES).any(axis=1))), int(np.count_nonzero(threads))

    def _instructions(self) -> int:
        """Returns the number of instructions that all warps have issued so far."""
        by_numpy = sum(warps * (last - pc) for (pc, last), (warps, _) in self._issued.items())
        return by_numpy + (self.native.instructions if self.native is not None else 0)

    def _add_to(self, tally: Tally) -> None:
        """Add the issued instructions to a tally."""
        for (pc, last), (warps, lanes) in self._issued.items():
            tally.ran(pc, last, warps, lanes)
            if self.code[last - 1].parts[0] == "bra":
                tally.add(last - 1, "branches", warps)
            for at in range(pc, last):
                if at in self.m.flops_of:
                    kind, each = self.m.flops_of[at]
                    tally.add(at, kind, each * lanes)

    # -- groups of threads -------------------------------------------------------------------------
    def _join(self, pc: int, threads: np.ndarray) -> None:
        join(self.pending, pc, threads)

    def _go_on(self, pc: int, threads: np.ndarray) -> None:
        """Let threads continue after an instruction that the scheduler has executed."""
        if self.native is not None:
            self.native.keep(pc)
        self._join(pc + 1, threads)

    def _canonical(self, threads: np.ndarray) -> np.ndarray:
        """Returns `live` itself if the threads are all live ones: then no mask is needed."""
        live = self.m.live
        if self.straight is not None:
            group = self.straight.trace.group_of(threads)
            return live if group.count == self._live_count else group.here
        if threads is live or (threads is self._partial and live is self._partial_live):
            return threads
        if np.count_nonzero(threads) == self._live_count:
            return live
        self._partial, self._partial_live = threads, live
        return threads

    def _exit(self, threads: np.ndarray) -> None:
        self.m.end(threads)
        self._live_count = np.count_nonzero(self.m.live)
        if self.m.copies is not None:
            self.m.copies.check_ended()

    def _resume(self) -> bool:
        """Let waiting threads continue when no thread runs. Return False at the launch's end. EmulatorError if all wait
        for ever."""
        self._release()
        if not self.pending and self._complete_copies():
            self._release()
            if not self.pending and not self.yielded:
                return self._resume()
        if not self.pending:
            if self.waiting_loops and self.loops.stuck(self.waiting_loops):
                self.loops.never_end(self.waiting_loops[0])
            if not self.waiting_loops:
                self.waits.check_deadlock()
                self.lanes.check_deadlock()
                self.barriers.check_deadlock()
        self._had_turn = not self.pending
        for pc, threads in self.yielded.items():
            self._join(pc, threads)
        self.yielded, self.waiting_loops = {}, []
        return bool(self.pending)

    def _complete_copies(self) -> bool:
        """Do bulk copies that are under way, unless threads that yielded have had no turn since. Return whether any were."""
        if self.m.copies is None or (self.yielded and not self._had_turn):
            return False
        done = self.m.copies.complete()
        self._stopped = bool(done and self._until and self._until())
        return done

    def _release(self) -> None:
        """Let threads continue whose barrier, lanes, phase or cluster no longer hold them."""
        released = self.barriers.release()
        if len(released) > 1 and self.native is not None:
            self.native.barrier_diverged()
        for pc, threads in (*released.items(), *self.waits.release().items()):
            self._go_on(pc, threads)
        self._execute(self.lanes.release())

    # -- the ends of basic blocks ------------------------------------------------------------------
    def _return(self, pc: int, here: np.ndarray) -> None:
        self._exit(self._guarded(pc, here))

    def _frame(self, pc: int, here: np.ndarray) -> None:
        """Execute a call of a function with a frame, or the return from one."""
        self.loops.check_time(pc, here, "at this call: the recursion")
        for to, threads in needed(self.m.frames).leave(pc, here, self._taken(pc, here)):
            self._join(to, threads)

    def _trap(self, pc: int, here: np.ndarray) -> None:
        take = self._taken(pc, here)
        if take.any():
            message = "the kernel stops itself (__trap, a failed assert, or code with no meaning)"
            self.m.fail(pc, message, int(np.flatnonzero(take)[0]))
        self._join(pc + 1, here)

    def _at_barrier(self, pc: int, here: np.ndarray) -> None:
        take = self._guarded(pc, here)
        if self.m.tally is not None:
            self.m.tally.add(pc, "barriers", self._count(take)[0])
        if take.any():
            for at, threads in self.barriers.arrive(pc, take).items():
                self._go_on(at, threads)

    def _at_lanes(self, pc: int, here: np.ndarray) -> None:
        take = self._guarded(pc, here)
        if take.any():
            self._execute(self.lanes.arrive(pc, take))

    def _at_wait(self, pc: int, here: np.ndarray) -> None:
        take = self._guarded(pc, here)
        if take.any():
            ready = self.waits.arrive(pc, take)
            if ready.any():
                self._go_on(pc, ready)

    def _guarded(self, pc: int, here: np.ndarray) -> np.ndarray:
        """Returns the threads whose guard is true. The others continue at the next instruction."""
        take = self._taken(pc, here)
        if take is not here:
            self._join(pc + 1, here & ~take)
        return take

    def _execute(self, groups: Groups) -> None:
        """Execute warp instructions whose lanes have all arrived."""
        for pc, threads in groups.items():
            for group in self.lanes.of_one_mask(pc, threads):
                self.m.enter(self._canonical(group))
                self.closures[pc]()
                if self.m.trace is not None:
                    self.m.trace.after(pc, group)
            self._go_on(pc, threads)

    def _taken(self, pc: int, here: np.ndarray) -> np.ndarray:
        """Returns the threads whose guard is true; `here` itself if all are."""
        guard = self.guards.get(pc)
        if guard is None:
            return here
        read, negated = guard
        p = read()
        if p.ndim == 0:
            return here if bool(p) != negated else np.zeros(self.m.slots, bool)
        take = here & (~p if negated else p)
        return here if np.count_nonzero(take) == np.count_nonzero(here) else take

    def _branch(self, pc: int, here: np.ndarray) -> None:
        take, target = self._taken(pc, here), self.code[pc].targets[0]
        if take is here:
            self._branch_to(pc, target, here)
            return
        if not take.any():
            self._join(pc + 1, here)
            return
        others = here & ~take
        if self.m.tally is not None:
            split = take.reshape(-1, LANES).any(axis=1) & others.reshape(-1, LANES).any(axis=1)
            self.m.tally.add(pc, "divergent_branches", int(np.count_nonzero(split)))
        self._branch_to(pc, target, take)
        self._join(pc + 1, others)

    def _jump_table(self, pc: int, here: np.ndarray) -> None:
        index = np.broadcast_to(self.closures[pc](), self.m.slots)
        for n, target in enumerate(self.code[pc].targets):
            take = here & (index == n)
            if take.any():
                self._branch_to(pc, target, take)

    def _branch_to(self, pc: int, target: int, take: np.ndarray) -> None:
        """Move threads to a branch's target.

        A target that only returns ends the threads at once, so that the others count as all. Before a backward branch,
        other threads may run first.
        """
        if target <= pc:
            iterations = self.loops.branch_back(pc, target, take)
            if iterations is not None:
                self.waiting_loops.append(iterations)
                join(self.yielded, target, take)
                return
        if target not in self._returns:
            self._join(target, take)
            return
        if self.m.tally is not None:
            self.m.tally.ran(target, target + 1, *self._count(take))
        self._exit(take)


class OneByOne(Scheduler):
    """Runs parts of the launch one after the other, GPUs or blocks: the first in `order` runs until all its threads wait for another.
    `part_of`: of each slot."""

    def __init__(
        self, m: Machine, seconds: float, part_of: np.ndarray, order: np.ndarray, straight: Straight | None = None
    ):
        super().__init__(m, seconds, straight=straight)
        self._parts = [part_of == part for part in order]
        self._held: Groups = {}  # the threads of the parts that have to wait
        self._mixed = True  # `pending` may have threads of several parts

    def _next(self) -> tuple[int, np.ndarray]:
        if self._mixed:
            self._hold_others()
        return super()._next()

    def _hold_others(self) -> None:
        """Leave in `pending` the threads of the first part that has any."""
        running = next(of for of in self._parts if any((t & of).any() for t in self.pending.values()))
        everyone, self.pending, self._mixed = self.pending, {}, False
        for pc, threads in everyone.items():
            for groups, chosen in ((self.pending, threads & running), (self._held, threads & ~running)):
                if chosen.any():
                    join(groups, pc, chosen)

    def _resume(self) -> bool:
        self._mixed = True
        self._release()
        if not self.pending:
            self.pending, self._held = self._held, {}
        return bool(self.pending) or super()._resume()


class InTurns(Scheduler):
    """Runs one warpgroup at a time, until it waits or arrives at a named barrier without waiting (bar.arrive), which is the
    turn of the next one. Between them, copies under way are done and the last warpgroup runs, which starts copies. A single
    warpgroup has every turn."""

    def __init__(self, m: Machine, seconds: float, straight: Straight | None = None):
        super().__init__(m, seconds, straight=straight)
        group = m.thread_of // (WARPS * LANES)
        groups = [group == n for n in range(int(group.max()) + 1)]
        self._producer, self._consumers = groups[-1], groups[:-1] or groups
        self._turn = 0  # which of the consumers is next
        # The threads of the warpgroup that runs. None: another one is next.
        self._running: np.ndarray | None = None

    def _next(self) -> tuple[int, np.ndarray]:
        if self._running is None or not self._pending_of(self._running):
            self._running = self._choose()
        pc = min(self._pending_of(self._running))
        threads = self.pending.pop(pc)
        if (others := threads & ~self._running).any():
            self.pending[pc] = others
        return pc, self._canonical(threads & self._running)

    def _choose(self) -> np.ndarray:
        """Returns the threads of the warpgroup that runs next, after what works by itself."""
        self._release()
        while self._complete_copies():
            self._release()
        order = self._consumers[self._turn :] + self._consumers[: self._turn]
        return next(of for of in (self._producer, *order) if self._pending_of(of))

    def _branch_to(self, pc: int, target: int, take: np.ndarray) -> None:
        super()._branch_to(pc, target, take)
        for at, threads in self.yielded.items():  # no other warpgroup has to run between two iterations
            self._join(at, threads)
        self.yielded, self.waiting_loops = {}, []

    def _pending_of(self, threads: np.ndarray) -> list[int]:
        return [pc for pc, pending in self.pending.items() if (pending & threads).any()]

    def _at_barrier(self, pc: int, here: np.ndarray) -> None:
        super()._at_barrier(pc, here)
        if "arrive" in self.code[pc].parts:
            group = int(self.m.thread_of[np.flatnonzero(here)[0]]) // (WARPS * LANES)
            self._turn, self._running = (group + 1) % len(self._consumers), None
