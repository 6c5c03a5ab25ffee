"""The machine: all threads of a grid at once, one instruction after the other.

Control state is {pc: threads there}. The lowest pc always runs next, straight to the next place where
threads may join or part, so every warp sees the (pc, mask) sequence it would have had alone, and
threads that parted come together again where their paths meet. A block's threads park at a barrier
until all of its threads that still live have come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.engines.emulator import access, decode, tensor, warp
from kernels.engines.emulator.counters import Tally
from kernels.engines.emulator.memory import Global, PerBlock, PerThread, Placed
from kernels.engines.emulator.merge import merged
from kernels.engines.emulator.parse import Instruction, Kernel, Operand
from kernels.engines.emulator.races import Races
from kernels.engines.emulator.table import DTYPES, SIGNED, UNSIGNED
from kernels.engines.emulator.threads import LANES, Threads
from kernels.engines.emulator.trace import Trace
from kernels.program import RuleError

MOST_STEPS = 5_000_000  # instructions issued for the whole grid: a kernel beyond it does not end
decode.BUILDERS.update({**access.BUILDERS, **warp.BUILDERS, **tensor.BUILDERS})


class EmulatorError(RuleError):
    """What a kernel did wrong, with its CUDA line, thread and block."""


class Machine:
    """One launch. `params`: bytes of each parameter by name; `order`: a permutation of the warps, which
    decides who comes first where two threads write one address."""

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: Mapping[str, bytes],
        memory: Global,
        dynamic_shared: int = 0,
        tally: Tally | None = None,
        trace_block: int | None = None,
        races: bool = False,
        order: np.ndarray | None = None,
        most_steps: int = MOST_STEPS,
        symbols: Mapping[str, int] | None = None,
        name: str = "",
    ):
        self.kernel, self.grid, self.block, self.memory = kernel, grid, block, memory
        self.params, self.tally, self.most_steps = params, tally, most_steps
        self.name = name or kernel.name
        self.threads = Threads(grid, block, order)
        self.slots, self.exists = self.threads.slots, self.threads.exists
        self.block_of, self.thread_of = self.threads.block_of, self.threads.thread_of
        self.live = self.exists.copy()
        self._place_variables(dynamic_shared, symbols or {})
        self._index = {name: n for n, name in enumerate(kernel.registers)}
        self._storage = [DTYPES[type_] for type_ in kernel.registers.values()]
        self.R: list = [dtype(0) for dtype in self._storage]
        self.carry = np.bool_(False)
        self.am = self.wm = None  # who takes part, whose registers are written; None: all
        self.races = Races(self) if races and self.shared.size else None
        self.trace = None if trace_block is None else Trace(self, trace_block)
        self._decode()

    # -- memory ---------------------------------------------------------------------------------
    def _place_variables(self, dynamic_shared: int, symbols: Mapping[str, int]) -> None:
        self._symbols = dict(symbols)
        shared, local = 0, 0
        placed = []
        for v in sorted(self.kernel.variables, key=lambda v: v.size == 0):  # the dynamic one comes last
            if v.space == "shared":
                shared = -(-shared // v.align) * v.align
                self._symbols[v.name] = shared
                size = v.size or dynamic_shared
                placed.append(
                    Placed(_plain(v.name), shared, shared + size, (size // 4,), np.dtype(np.uint32))
                )
                shared += size
            elif v.space == "local":
                local = -(-local // v.align) * v.align
                self._symbols[v.name] = local
                local += v.size
        blocks = int(np.prod(self.grid))
        self.shared = PerBlock(blocks if shared else 0, shared, placed)
        self.local = PerThread(self.slots if local else 0, local, ())
        # Width of the shared load each load becomes part of; counted so, carried out as written.
        arrays = {v.name: self._symbols[v.name] for v in self.kernel.variables if v.space == "shared"}
        self.merged = merged(self.kernel.code, arrays) if self.tally and arrays else {}
        self.shared_base = (self.block_of * self.shared.size).astype(np.uint64)
        self.local_base = (np.arange(self.slots) * self.local.size).astype(np.uint64)

    # -- operands --------------------------------------------------------------------------------
    def type_of(self, register: str) -> str:
        return self.kernel.registers[register]

    def reader(self, o: Operand, type_: str) -> Callable[[], np.ndarray]:
        """A function that gives the operand's value as `type_`."""
        dtype = DTYPES[type_]
        if o.kind == "symbol" and o.value in self._index:
            o = Operand("reg", o.value)
        if o.kind == "reg":
            return self._register(self._index[o.value], dtype)
        if o.kind == "not":
            inner = self.reader(Operand("reg", o.value), "pred")
            return lambda: ~inner()
        value = self._special(str(o.value)) if o.kind == "special" else self._constant(o, dtype)
        value = value if value.dtype == dtype else value.astype(dtype)
        return lambda: value

    def _register(self, n: int, dtype) -> Callable[[], np.ndarray]:
        R, own = self.R, self._storage[n]
        if own is dtype:
            return lambda: R[n]
        have, want = np.dtype(own).itemsize, np.dtype(dtype).itemsize
        if have == want:
            return lambda: R[n].view(dtype)
        raw, unsigned = UNSIGNED[have], UNSIGNED[want]
        return lambda: R[n].view(raw).astype(unsigned).view(dtype)

    def _constant(self, o: Operand, dtype) -> np.generic:
        if o.kind == "symbol":
            if o.value not in self._symbols:
                raise EmulatorError(f"{self.name}: {o.value} is declared nowhere")
            return np.uint64(self._symbols[o.value] + o.offset).astype(dtype)
        if isinstance(o.value, float):  # where bits are asked for (mov.b32), the float's
            of_size = {4: np.float32, 8: np.float64}.get(np.dtype(dtype).itemsize, dtype)
            return (
                (np.dtype(dtype) if np.dtype(dtype).kind == "f" else np.dtype(of_size))
                .type(o.value)
                .view(dtype)
            )
        if np.dtype(dtype).kind == "f":
            return np.dtype(dtype).type(o.value)
        if dtype is np.bool_:
            return np.bool_(o.value)
        bits = 8 * np.dtype(dtype).itemsize
        return np.dtype(UNSIGNED[bits // 8]).type(int(o.value) & (1 << bits) - 1).view(dtype)

    def _special(self, name: str) -> np.ndarray | np.generic:
        value = self.threads.special(name)
        if value is None:
            raise EmulatorError(f"{self.name}: the special register %{name} is not emulated")
        return value

    def writer(self, o: Operand, type_: str) -> Callable[[np.ndarray], None]:
        """A function that writes a value of `type_` into a register, where threads are active."""
        if o.kind == "sink":
            return lambda value: None
        n, R = self._index[o.value], self.R
        own, dtype = self._storage[n], DTYPES[type_]
        have, given = np.dtype(own).itemsize, np.dtype(dtype).itemsize

        def put(value) -> None:
            R[n] = value if self.wm is None else np.where(self.wm, value, R[n])

        if own is dtype:
            return put
        if have == given:
            return lambda value: put(value.view(own))
        # A narrower value in a wider register: extended as its sign says.
        wide = (SIGNED if np.dtype(dtype).kind == "i" else UNSIGNED)[have]
        raw = UNSIGNED[given] if np.dtype(dtype).kind == "f" else dtype
        return lambda value: put(value.view(raw).astype(wide).view(own))

    def param(self, name: str, offset: int, dtype) -> np.generic:
        return np.frombuffer(self.params[name], dtype, 1, offset)[0]

    # -- active threads ----------------------------------------------------------------------------
    def active(self, value) -> np.ndarray:
        """Values of the active threads, a scalar repeated."""
        if value.ndim == 0:
            return np.full(self.slots if self.am is None else int(self.am.sum()), value)
        return value if self.am is None else value[self.am]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of the active threads back in their slots (zero elsewhere)."""
        if self.am is None or (values.size == 1 and values.size != int(self.am.sum())):
            return values if values.size == self.slots else values[0]
        out = np.zeros(self.slots, values.dtype)
        out[self.am] = values
        return out

    def slot_of(self, at: int) -> int:
        """The slot of the at-th active thread."""
        return at if self.am is None else int(np.flatnonzero(self.am)[at])

    def flops(self, pc: int, each: int, kind: str = "flops_fp") -> None:
        self._flops[pc] = (kind, each)

    def fail(self, pc: int, what: str, slot: int) -> None:
        i = self.kernel.code[pc]
        where = f"{i.line or 'unknown line'}" + (f" (in code from {i.inlined})" if i.inlined else "")
        who = f"thread {self.threads.thread(slot)} of block {self.threads.block_at(slot)}"
        raise EmulatorError(f"{self.name}, {where}: {what}, by {who}")

    # -- running -----------------------------------------------------------------------------------
    def _decode(self) -> None:
        code = self.kernel.code
        self._flops: dict[int, tuple[str, int]] = {}
        self._closures: list[Callable[[], None] | None] = []
        self._guards: dict[int, tuple[Callable, bool]] = {}
        for pc, i in enumerate(code):
            if _control(i):
                if i.parts[0] in ("bar", "barrier") and "red" not in i.parts and len(i.operands) > 1:
                    raise EmulatorError(
                        f"{self.name}, {i.line or 'unknown line'}: unknown opcode {i.opcode} for a part of the block"
                    )
                if i.guard:
                    self._guards[pc] = self.reader(Operand("reg", i.guard[0]), "pred"), i.guard[1]
                index = self.reader(i.operands[0], "u32") if i.parts[0] == "brx" else None
                self._closures.append(index)
                continue
            try:
                self._closures.append(decode.decode(self, pc, i))
            except decode.Unknown as e:
                raise EmulatorError(f"{self.name}, {i.line or 'unknown line'}: {e}") from None
        leaders = {t for i in code for t in i.targets} | {pc + 1 for pc, i in enumerate(code) if _control(i)}
        self._stop = [0] * (len(code) + 1)  # from pc on: where straight running ends
        stop = len(code)
        for pc in range(len(code) - 1, -1, -1):
            stop = pc if _control(code[pc]) else (pc + 1 if pc + 1 in leaders else stop)
            self._stop[pc] = stop

    def run(self) -> None:
        """Run the launch to its end. EmulatorError where the kernel does what no kernel may."""
        pending: dict[int, np.ndarray] = {0: self.live}
        parked: dict[int, np.ndarray] = {}
        steps = 0
        with np.errstate(all="ignore"):
            while True:
                if not pending:
                    if not parked:
                        return
                    pending, parked = self._release(parked), {}
                pc = min(pending)
                here = self._known(pending.pop(pc))
                stop = self._stop[pc]
                steps += stop - pc + 1
                if steps > self.most_steps:
                    self._enter(here)
                    slot = int(np.flatnonzero(here)[0])
                    self.fail(pc, f"the kernel does not end: {self.most_steps:,} steps were taken", slot)
                self._straight(pc, stop, here)
                if stop == len(self.kernel.code):
                    self._exit(here)
                elif _control(self.kernel.code[stop]):
                    self._leave(stop, here, pending, parked)
                else:
                    self._join(pending, stop, here)

    def _enter(self, here: np.ndarray) -> None:
        self.wm = None if here is self.live else here
        self.am = None if here is self.live and self._all else here

    @property
    def _all(self) -> bool:
        """No slot is empty and no thread has ended."""
        return bool(self.live.all())

    def _straight(self, pc: int, stop: int, here: np.ndarray) -> None:
        self._enter(here)
        if self.tally is not None:
            last = stop + (stop < len(self.kernel.code) and _control(self.kernel.code[stop]))
            warps, lanes = int(here.reshape(-1, LANES).any(axis=1).sum()), int(np.count_nonzero(here))
            self.tally.ran(pc, last, warps, lanes)
            for at in range(pc, stop):
                if at in self._flops:
                    kind, each = self._flops[at]
                    self.tally.add(at, kind, each * lanes)
        if self.trace is None:
            for run in self._closures[pc:stop]:
                run()
        else:
            for at in range(pc, stop):
                self.trace.at(at, here)
                self._closures[at]()

    def _leave(self, pc: int, here: np.ndarray, pending: dict, parked: dict) -> None:
        """A branch, a return or a barrier."""
        i = self.kernel.code[pc]
        if self.trace is not None:
            self.trace.at(pc, here)
        base = i.parts[0]
        take = self._taken(pc, here)
        if base == "trap" and take.any():
            what = "the kernel stops itself (__trap, a failed assert, or code with no meaning)"
            self.fail(pc, what, self._first(take))
        if base == "brx":
            self._jump_table(pc, here, pending)
        elif base == "bra":
            self._branch(pc, here, take, pending)
        elif base in ("ret", "exit", "trap"):
            stay = None if take is here else here & ~take
            self._exit(take)
            if stay is not None and stay.any():
                self._join(pending, pc + 1, stay)
        else:
            if self.tally is not None:
                self.tally.add(pc, "barriers", int(here.reshape(-1, LANES).any(axis=1).sum()))
            self._join(parked, pc + 1, here)

    def _first(self, threads: np.ndarray) -> int:
        return int(np.flatnonzero(threads)[0])

    def _taken(self, pc: int, here: np.ndarray) -> np.ndarray:
        """The threads whose guard holds; `here` itself where all do."""
        if pc not in self._guards:
            return here
        read, negated = self._guards[pc]
        p = read()
        if p.ndim == 0:
            return here if bool(p) != negated else np.zeros(self.slots, bool)
        take = here & (~p if negated else p)
        return here if np.count_nonzero(take) == np.count_nonzero(here) else take

    def _branch(self, pc: int, here: np.ndarray, take: np.ndarray, pending: dict) -> None:
        target = self.kernel.code[pc].targets[0]
        if self.tally is not None:
            warps = here.reshape(-1, LANES).any(axis=1)
            self.tally.add(pc, "branches", int(warps.sum()))
        if take is here:
            self._go(pending, target, here)
            return
        if not take.any():
            self._join(pending, pc + 1, here)
            return
        stay = here & ~take
        if self.tally is not None:
            split = take.reshape(-1, LANES).any(axis=1) & stay.reshape(-1, LANES).any(axis=1)
            self.tally.add(pc, "divergent_branches", int(split.sum()))
        self._go(pending, target, take)
        self._join(pending, pc + 1, stay)

    def _go(self, pending: dict, target: int, take: np.ndarray) -> None:
        """To a target; one that only returns ends the threads at once, so that the others count as all."""
        if target < len(self.kernel.code):
            i = self.kernel.code[target]
            if not (i.parts[0] in ("ret", "exit") and i.guard is None and target not in pending):
                self._join(pending, target, take)
                return
            if self.tally is not None:
                warps = take.reshape(-1, LANES).any(axis=1)
                self.tally.ran(target, target + 1, int(warps.sum()), int(np.count_nonzero(take)))
        self._exit(take)

    def _jump_table(self, pc: int, here: np.ndarray, pending: dict) -> None:
        index = np.broadcast_to(self._closures[pc](), self.slots)
        for n, target in enumerate(self.kernel.code[pc].targets):
            take = here & (index == n)
            if take.any():
                self._join(pending, target, take)

    def _join(self, at: dict, pc: int, threads: np.ndarray) -> None:
        if pc in at:
            threads = at[pc] | threads
        at[pc] = self._known(threads)

    def _known(self, threads: np.ndarray) -> np.ndarray:
        """`self.live` itself where the threads are all that live: then nothing need be masked."""
        if threads is not self.live and np.count_nonzero(threads) == np.count_nonzero(self.live):
            return self.live
        return threads

    def _exit(self, threads: np.ndarray) -> None:
        self.live = self.live & ~threads

    def _release(self, parked: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """All that live are parked: let them on, unless a block's threads wait at different barriers."""
        if len(parked) > 1:
            seen: dict[int, int] = {}
            for pc, threads in parked.items():
                for b in np.unique(self.block_of[threads]):
                    if int(b) in seen:
                        slot = int(np.flatnonzero(threads & (self.block_of == b))[0])
                        other = self.kernel.code[seen[int(b)] - 1].line
                        self.fail(
                            pc - 1,
                            f"not all threads of the block reach this barrier: others wait at {other}",
                            slot,
                        )
                    seen[int(b)] = pc
        if self.races is not None:
            self.races.barrier()
        out: dict[int, np.ndarray] = {}
        for pc, threads in parked.items():
            if "red" in self.kernel.code[pc - 1].parts:
                self._reduce(self.kernel.code[pc - 1], threads)
            self._join(out, pc, threads)
        return out

    def _reduce(self, i: Instruction, threads: np.ndarray) -> None:
        """bar.red: what the block's threads brought to the barrier, counted or combined."""
        how = next(p for p in i.parts if p in ("popc", "and", "or"))
        told = np.broadcast_to(self.reader(i.operands[-1], "pred")(), self.slots)
        blocks = int(np.prod(self.grid))
        yes, all_ = (np.bincount(self.block_of[who], minlength=blocks) for who in (threads & told, threads))
        self._enter(threads)
        if how == "popc":
            self.writer(i.operands[0], "u32")(yes[self.block_of].astype(np.uint32))
        else:
            self.writer(i.operands[0], "pred")((yes == all_ if how == "and" else yes > 0)[self.block_of])


def _control(i: Instruction) -> bool:
    base = i.parts[0]
    return base in ("bra", "brx", "ret", "exit", "trap") or (
        base in ("bar", "barrier") and "warp" not in i.parts and "arrive" not in i.parts
    )


def _plain(name: str) -> str:
    """The C++ name in a mangled one: _ZZ4gemmE2As -> As."""
    if name.startswith("_ZZ"):
        tail = name.rpartition("E")[2].lstrip("0123456789")
        return tail.split("_")[0] or name
    return name
