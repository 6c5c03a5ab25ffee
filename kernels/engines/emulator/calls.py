"""Call frames of functions that are recursive or called by pointer. Each thread has a stack in its local memory.

A frame holds the return address, the start of the caller's frame, and the function's variables and parameters. If the
function is recursive, it also holds the values before the call of registers that the function reads after its own
calls. Frames follow the kernel's own local variables.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from kernels.engines.emulator.errors import BadCall
from kernels.engines.emulator.memory import ALLOCATED, OUTSIDE, VIEWS, PerThread
from kernels.engines.emulator.ptx.kernel import Function, Instruction, Kernel, Operand, Variable
from kernels.engines.emulator.ptx.liveness import live_after_calls
from kernels.engines.emulator.ptx.names import plain
from kernels.engines.emulator.state import Machine, needed

ADDRESSES, APART = 1 << 46, 16  # of functions: the first address, bytes from one to the next
HEADER = 16  # bytes: the return address and the start of the caller's frame, 8 each
CUDA_STACK = 1024  # bytes a thread, unless cudaDeviceSetLimit raises it
MAX_STACK = 16 * CUDA_STACK  # bytes of frames a thread; fewer in a large grid, never below CUDA's
MAX_STACKS = 1 << 29  # bytes of frames in all, above CUDA_STACK a thread
HOST_STACK = 1 << 21  # bytes of the frames of a program's host code

Threads = np.ndarray


def addresses(kernel: Kernel) -> dict[str, int]:
    """Returns the address of each function of the kernel's module, the same for all of its kernels."""
    return {name: ADDRESSES + APART * n for n, name in enumerate(kernel.names)}


@dataclass(frozen=True)
class _Copied:
    """A parameter or a result: bytes from the start of its frame, its size, bytes copied at a time."""

    offset: int
    size: int
    unit: int


@dataclass(frozen=True)
class _Layout:
    """A function's frame: its bytes, their states when the function begins, its parameters and results, and the
    registers that it saves (index, byte, width)."""

    function: Function
    size: int
    state: np.ndarray  # uint64, eight bytes each
    params: tuple[_Copied, ...]
    results: tuple[_Copied, ...]
    saved: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class _Site:
    """A call: the layout of the function (None: by pointer), arguments and results in the caller's frame."""

    layout: _Layout | None
    pointer: Callable[[], np.ndarray] | None
    arguments: tuple[_Copied, ...]
    results: tuple[_Copied, ...]


class Frames:
    """The stacks of a launch. `base` and `top`: start and end of each thread's current frame, in bytes from the start
    of its local memory."""

    def __init__(self, m: Machine):
        self.m = m
        self.offsets: dict[str, int] = {}  # of the functions' variables, from the start of their frame
        kernel = m.kernel
        self._layouts = {name: self._layout(f) for name, f in kernel.functions.items()}
        self._starts = [f.start for f in kernel.functions.values()]
        self._by_start = list(self._layouts.values())
        self._named = {address: name for name, address in addresses(kernel).items()}
        self._kernel_bytes = m.local.size
        self.base = np.zeros(m.slots, np.uint64)
        self.top = np.full(m.slots, self._kernel_bytes, np.uint64)
        self.limit = max(CUDA_STACK, min(MAX_STACK, MAX_STACKS // m.slots)) if m.host is None else HOST_STACK
        sizes = {v.name: v for f in kernel.functions.values() for v in f.variables}
        sizes |= {v.name: v for v in kernel.variables if v.space == "local"}
        self._sites = {pc: self._site(i, sizes) for pc, i in enumerate(kernel.code) if i.parts[0] == "call"}

    # -- layout ----------------------------------------------------------------------------------
    def _layout(self, f: Function) -> _Layout:
        at, states = HEADER, []
        for v in f.variables:
            at = -(-at // v.align) * v.align
            self.offsets[v.name] = at
            states.append((at, at + v.size))
            at += v.size
        saved = []
        live = live_after_calls(self.m.kernel.code, f.start, f.stop) if f.recursive else set()
        for n in sorted(self.m.index[name] for name in live if name in self.m.index):
            width = np.dtype(self.m.storage[n]).itemsize
            at = -(-at // width) * width
            saved.append((n, at, width))
            at += width
        state = np.full(-(-at // 16) * 16, OUTSIDE, np.uint8)
        for start, stop in states:
            state[start:stop] = ALLOCATED
        params, results = (tuple(self._copied(v) for v in group) for group in (f.params, f.results))
        return _Layout(f, state.size, state.view(np.uint64), params, results, tuple(saved))

    def _copied(self, v: Variable) -> _Copied:
        offset = self.offsets[v.name] if v.name in self.offsets else self.m._symbols[v.name]
        whole = offset | v.size | 8
        return _Copied(offset, v.size, whole & -whole)

    def _site(self, i: Instruction, variables: Mapping[str, Variable]) -> _Site:
        results, arguments, *pointer = i.operands
        copied_results, copied_arguments = (
            tuple(self._copied(variables[o.name]) for o in group.inner) for group in (results, arguments)
        )
        if pointer:
            return _Site(None, self.m.reader(pointer[0], "u64"), copied_arguments, copied_results)
        return _Site(self._by_start[self._starts.index(i.targets[0])], None, copied_arguments, copied_results)

    def reader(self, o: Operand, dtype) -> Callable[[], np.ndarray]:
        """Returns a function that returns the address of a variable of the current frame for every thread."""
        offset = np.uint64(self.offsets[o.name] + o.offset)
        return lambda: (self.base + offset).astype(dtype)

    # -- calling and returning -------------------------------------------------------------------
    def leave(self, pc: int, here: Threads, take: Threads) -> Iterator[tuple[int, Threads]]:
        """Execute a call or a return for the threads `take` of those here. Yield (next instruction, threads)."""
        if take is not here:
            others = here & ~take
            if others.any():
                yield pc + 1, others
        slots = np.flatnonzero(take)
        if not slots.size:
            return
        step = self._call if self.m.kernel.code[pc].parts[0] == "call" else self._return
        for to, group in step(pc, slots):
            yield to, take if group.size == slots.size else self._mask(group)

    def _mask(self, slots: np.ndarray) -> Threads:
        mask = np.zeros(self.m.slots, bool)
        mask[slots] = True
        return mask

    def _call(self, pc: int, slots: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        site = self._sites[pc]
        if site.layout is not None:
            self._push(pc, site, site.layout, slots)
            yield site.layout.function.start, slots
            return
        pointers = np.broadcast_to(needed(site.pointer)(), self.m.slots)[slots]
        for pointer in np.unique(pointers):
            group = slots[pointers == pointer]
            layout = self._pointed(pc, site, int(pointer), int(group[0]))
            self._push(pc, site, layout, group)
            yield layout.function.start, group

    def _pointed(self, pc: int, site: _Site, pointer: int, slot: int) -> _Layout:
        """Returns the function at an address. EmulatorError if its parameters or results differ from the call's."""
        name = self._named.get(pointer)
        if pointer == 0:
            self._bad_call(pc, "call of a null function pointer: it holds the address of no function", slot)
        if name is None:
            self._bad_call(pc, f"call of a pointer to no function: {pointer:#x}", slot)
        layout = self._layouts.get(name)
        if layout is None:
            self._bad_call(pc, f"call of {plain(name)}, a function that this kernel does not name", slot)
        passed = [[c.size for c in group] for group in (site.arguments, site.results)]
        declared = [[c.size for c in group] for group in (layout.params, layout.results)]
        if passed != declared:
            self._bad_call(pc, f"call of {plain(name)} through a pointer of another function type", slot)
        return layout

    def _bad_call(self, pc: int, message: str, slot: int) -> NoReturn:
        self.m.fail(pc, message, slot, kind=BadCall)

    def _push(self, pc: int, site: _Site, layout: _Layout, slots: np.ndarray) -> None:
        m, caller = self.m, self.base[slots]
        base = self.top[slots]
        end = int(base.max()) + layout.size
        if end - self._kernel_bytes > self.limit:
            self._too_deep(pc, int(slots[base.argmax()]))
        self._grow(end)
        local, at = m.local, m.local_base[slots] + base
        _write(local, at, 8, np.uint64(pc + 1))
        _write(local, at + np.uint64(8), 8, caller)
        for n, offset, width in layout.saved:
            bits = m.registers[n].view(VIEWS[width])
            _write(local, at + np.uint64(offset), width, bits[slots] if bits.ndim else bits)
        words = (at >> np.uint64(3))[:, None] + np.arange(layout.state.size, dtype=np.uint64)
        local.state.view(np.uint64)[words] = layout.state
        self._copy(site.arguments, m.local_base[slots] + caller, layout.params, at)
        self.base[slots], self.top[slots] = base, base + np.uint64(layout.size)

    def _return(self, pc: int, slots: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        m, base = self.m, self.base[slots]
        local, at = m.local, m.local_base[slots] + base
        layout = self._by_start[bisect(self._starts, pc) - 1]
        return_pcs, caller = local.load(at, 8), local.load(at + np.uint64(8), 8)
        self.base[slots], self.top[slots] = caller, base
        for to in np.unique(return_pcs):
            group = return_pcs == to
            site = self._sites[int(to) - 1]
            self._copy(layout.results, at[group], site.results, m.local_base[slots[group]] + caller[group])
            yield int(to), slots[group]
        for n, offset, width in layout.saved:
            register = m.registers[n].copy() if m.registers[n].ndim else np.full(m.slots, m.registers[n])
            register[slots] = local.load(at + np.uint64(offset), width).view(register.dtype)
            m.registers[n] = register
        words = (at >> np.uint64(3))[:, None] + np.arange(layout.state.size, dtype=np.uint64)
        local.state.view(np.uint64)[words] = OUTSIDE

    def _copy(self, sources, start: np.ndarray, targets, to: np.ndarray) -> None:
        """Copy bytes and their states from variables of one frame to those of another."""
        local = self.m.local
        for a, b in zip(sources, targets, strict=True):
            unit = min(a.unit, b.unit)
            for n in range(0, a.size, unit):
                source = start + np.uint64(a.offset + n) >> np.uint64(unit.bit_length() - 1)
                target = to + np.uint64(b.offset + n) >> np.uint64(unit.bit_length() - 1)
                for column in (local.bytes.view(VIEWS[unit]), local.state.view(VIEWS[unit])):
                    column[target] = column[source]

    def _grow(self, size: int) -> None:
        """Enlarge each thread's local memory to at least `size` bytes. Its content stays."""
        m, old = self.m, self.m.local
        if size <= old.size:
            return
        wide = PerThread(m.slots, max(size, min(2 * old.size, self._kernel_bytes + self.limit)), ())
        for new, before in ((wide.bytes, old.bytes), (wide.state, old.state)):
            new.reshape(m.slots, -1)[:, : old.size] = before.reshape(m.slots, -1)
        wide.state.reshape(m.slots, -1)[:, old.size :] = OUTSIDE
        wide.writes = old.writes
        m.local, m.local_base = wide, (np.arange(m.slots, dtype=np.int64) * wide.size).astype(np.uint64)

    # -- messages --------------------------------------------------------------------------------
    def _too_deep(self, pc: int, slot: int) -> None:
        depth = len(list(self._returns(pc, slot)))
        message = (
            f"recursion too deep: the frames of {depth + 1} calls need more than the {self.limit:,} bytes of stack"
        )
        of_thread = f" of a thread (CUDA's default is {CUDA_STACK:,})" if self.m.host is None else ""
        self.m.fail(pc, f"{message}{of_thread}", slot)

    def _returns(self, pc: int, slot: int) -> Iterator[int]:
        """Yields the calls around a thread at `pc`, innermost first."""
        local, base = self.m.local, self.base[slot]
        while pc < self.m.kernel.start:
            at = (self.m.local_base[slot] + base)[None]
            pc, base = int(local.load(at, 8)[0]) - 1, local.load(at + np.uint64(8), 8)[0]
            yield pc

    def caller(self, pc: int, slot: int) -> str:
        """Returns the call of the function that a thread is in, as text for a message; empty in the kernel itself."""
        call = next(self._returns(pc, slot), None)
        return "" if call is None else f" (called at {self.m.kernel.code[call].line or 'unknown line'})"


def _write(local: PerThread, at: np.ndarray, width: int, values) -> None:
    """Store bytes that the kernel itself may not access: their states stay the same."""
    local.bytes.view(VIEWS[width])[at >> np.uint64(width.bit_length() - 1)] = values
