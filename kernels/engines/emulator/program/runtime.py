"""CUDA's runtime for the host code of a program: memory of host and device, copies, launches, errors as codes.

Host code runs as one thread of the emulator, in the same memory as the kernels. While it runs, the device's memory is hidden from
it, and while a kernel runs, the host's: an access to hidden memory is an error that names the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from kernels.engines.emulator import ledger, limits
from kernels.engines.emulator.calls import addresses
from kernels.engines.emulator.compiler.source import Source
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.heap import NAME as DEVICE_HEAP
from kernels.engines.emulator.heap import Heap
from kernels.engines.emulator.launch import Dim, Options, launch
from kernels.engines.emulator.memory import (
    ALLOCATED,
    GLOBAL_BASE,
    OUTSIDE,
    WINDOWS,
    WRITTEN,
    Fault,
    Global,
    Region,
    Space,
    space_at,
)
from kernels.engines.emulator.printer import Printed
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.ptx.names import plain
from kernels.engines.emulator.ptx.parse import parse
from kernels.engines.emulator.state import Machine
from kernels.model.program import RuleError
from kernels.model.rules import MAX_SHARED, MAX_STATIC_SHARED

DEVICE, PINNED, MANAGED = range(3)
KINDS = {DEVICE: "device", PINNED: "host", MANAGED: "managed"}
# driver_types.h
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, INVALID_FUNCTION, INVALID_DEVICE = 1, 2, 9, 98, 101
INVALID_PITCH, INVALID_DIRECTION, INVALID_HANDLE = 12, 21, 400
ERRORS = {
    0: ("cudaSuccess", "no error"),
    INVALID_VALUE: ("cudaErrorInvalidValue", "invalid argument"),
    OUT_OF_MEMORY: ("cudaErrorMemoryAllocation", "out of memory"),
    INVALID_CONFIGURATION: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    INVALID_PITCH: ("cudaErrorInvalidPitchValue", "invalid pitch argument"),
    INVALID_DIRECTION: ("cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"),
    INVALID_HANDLE: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    INVALID_FUNCTION: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    INVALID_DEVICE: ("cudaErrorInvalidDevice", "invalid device ordinal"),
}
HOST_TO_HOST, TO_DEVICE, TO_HOST, ON_DEVICE, BY_ADDRESS = range(5)  # cudaMemcpyKind
TOTAL = 1 << 33  # bytes of the device's memory
HOST_HEAP = "host heap"
_FIRST_FILE = "1"  # the number of the program's file in PTX
LARGE = 1 << 14  # bytes from which malloc makes a buffer of its own, whose name faults can say


class Exit(Exception):
    """The program has called exit()."""

    def __init__(self, status: int):
        super().__init__(status)
        self.status = status


@dataclass(frozen=True)
class Launched:
    """A launch of a program: the kernel's name, its configuration, the line of the launch, and what the emulator found."""

    kernel: str
    line: str
    grid: Dim
    block: Dim
    shared: int
    counters: Counters
    races: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    printed: tuple[Printed, ...]

    def to_json(self) -> dict:
        names = ("kernel", "line", "grid", "block", "shared", "races", "warnings", "notes")
        return {name: getattr(self, name) for name in names} | self.counters.to_json()


@dataclass(frozen=True)
class _Call:
    """What cudaGetParameterBufferV2 was called with."""

    kernel: str
    grid: Dim
    block: Dim
    shared: int


class Runtime:
    """The runtime of one run. `ptx`: of the program's module. `notes`: what the program should know about its calls."""

    def __init__(
        self, ptx: str, entry: str, source: Source, memory: Global, options: Options, write: Callable[[bytes], None]
    ):
        self.ptx, self.memory, self.options, self.write = ptx, memory, options, write
        self.file, self.lines = source.path.name, len(source.lines)
        self._names = {address: name for name, address in addresses(parse(ptx, entry)).items()}
        self.launches: list[Launched] = []
        self.notes: list[str] = []
        self._kinds = memory.owners
        self._kinds |= {HOST_HEAP: "host", DEVICE_HEAP: "device"}
        self._heaps = {"host": Heap(memory, HOST_HEAP), "device": None}
        memory.heap = self._heaps["host"]
        self._calls: dict[int, _Call] = {}  # by the address of the parameters
        self._parameters = memory.add("parameters of a launch", 4096, b"")
        self._dynamic: dict[str, int] = {}  # bytes of dynamic shared memory that a kernel may take
        self._error = self._buffers = 0
        self._texts: dict[bytes, int] = {}
        self._hidden = memory.hidden
        self._showing = "host"
        self.functions: dict[str, tuple[Callable, tuple[str, ...], str]] = {
            "cudaGetParameterBufferV2": (self._parameter_buffer, ("u64", "dim3", "dim3", "u32"), "u64"),
            "cudaLaunchDeviceV2": (self._launch, ("u64", "u64"), "u32"),
            "host_allocate": (self._allocate, ("u64", "u64", "u32"), "u32"),
            "host_release": (self._release, ("u64", "u32"), "u32"),
            "host_copy": (self._copy, ("u64", "u64", "u64", "u32"), "u32"),
            "host_fill": (self._fill, ("u64", "u32", "u64"), "u32"),
            "host_synchronize": (lambda m, pc: 0, (), "u32"),
            "host_last_error": (self._last_error, ("u32",), "u32"),
            "host_error_text": (self._error_text, ("u32", "u32"), "u64"),
            "host_set_device": (lambda m, pc, n: self._failed(INVALID_DEVICE if n else 0), ("u32",), "u32"),
            "host_memory": (self._memory_info, ("u64", "u64"), "u32"),
            "host_occupancy": (self._occupancy, ("u64", "u64", "u32", "u64"), "u32"),
            "host_allow_shared": (self._allow_shared, ("u64", "u32"), "u32"),
            "host_failed": (lambda m, pc, code: self._failed(code), ("u32",), "u32"),
            "host_exit": (self._exit, ("u32",), ""),
            "malloc": (self._malloc, ("u64",), "u64"),
            "free": (self._free, ("u64",), ""),
        }
        self._hide()

    def _failed(self, code: int) -> int:
        self._error = code or self._error
        return code

    # -- what is visible -----------------------------------------------------------------------------
    @contextmanager
    def _show_device(self) -> Iterator[None]:
        """Show the device's memory and managed memory, and hide the host's."""
        self._switch("device")
        try:
            yield
        finally:
            self._switch("host")

    def _switch(self, who: str) -> None:
        self._heaps[self._showing], self.memory.heap = self.memory.heap, self._heaps[who]
        self._showing = who
        self._hide()

    def _hide(self) -> None:
        for region in self.memory.regions:
            state = self.memory.state[region.start : region.stop]
            hidden = self._kinds.get(region.name, "managed") not in (self._showing, "managed")
            if hidden and region.name not in self._hidden:
                self._hidden[region.name] = state.copy()
                state[:] = OUTSIDE
            elif not hidden and region.name in self._hidden:
                state[:] = self._hidden.pop(region.name)

    def unwritten(self, name: str) -> np.ndarray:
        """Returns which elements of a buffer were never written, bool[elements]."""
        region = next(region for region in self.memory.regions if region.name == name)
        states = self._hidden.get(name, self.memory.state[region.start : region.stop])
        return (states.reshape(-1, region.dtype.itemsize) == ALLOCATED).any(axis=1)

    # -- memory --------------------------------------------------------------------------------------
    def _allocate(self, m: Machine, pc: int, pointer: int, size: int, kind: int) -> int:
        if size > TOTAL:
            return self._failed(OUT_OF_MEMORY)
        self._store(m, pc, pointer, np.uint64(self._new_buffer(m, pc, size, KINDS[kind])))
        return 0

    def _new_buffer(self, m: Machine, pc: int, size: int, kind: str) -> int:
        """Returns the address of a new buffer, named after the line that allocates it. Its type is unknown: an element has 4 bytes."""
        self._buffers += 1
        name = f"{kind} memory {self._buffers} ({self._line(m, pc)})"
        self._kinds[name] = kind
        start = self.memory.add(name, size, b"")
        self.memory.unwrite(name)
        region = self.memory.regions[-1]
        self.memory.regions[-1] = replace(region, shape=(size // 4,), dtype=np.dtype(np.uint32))
        self._hide()
        return GLOBAL_BASE + start

    def line(self, i: Instruction) -> str:
        """Returns the line of the program that an instruction of its host code comes from, as far out as possible: of a call of
        the runtime it is the line of the call. What calls main() comes after the program's last line."""
        inside = (line for file, line, _ in i.place if file == _FIRST_FILE and int(line) <= self.lines)
        return f"{self.file}:{next(inside, '?')}"

    def _line(self, m: Machine, pc: int) -> str:
        return self.line(m.kernel.code[pc])

    def _malloc(self, m: Machine, pc: int, size: int) -> int:
        if size >= LARGE:
            return self._new_buffer(m, pc, size, "host")
        start = self.memory.heap.allocate(size) if self.memory.heap else None
        return 0 if start is None else GLOBAL_BASE + start

    def _free(self, m: Machine, pc: int, address: int) -> int:
        heap, offset = self.memory.heap, address - GLOBAL_BASE
        if not address:
            return 0
        region = self.memory.region(offset)
        if (
            region is not None
            and region.start == offset
            and self._kinds.get(region.name) == "host"
            and region.name != HOST_HEAP
        ):
            self._forget(region)
        elif heap is not None and offset in heap.live:
            heap.release(offset)
        else:
            m.fail(pc, f"free of {address:#x}, which malloc did not return or which was freed before", m.slot_of(0))
        return 0

    def _forget(self, region: Region) -> None:
        self.memory.regions.remove(region)
        self.memory.freed.append(region)
        self._hidden.pop(region.name, None)
        self.memory.state[region.start : region.stop] = OUTSIDE

    def _release(self, m: Machine, pc: int, address: int, kind: int) -> int:
        if not address:
            return 0
        region = self.memory.region(address - GLOBAL_BASE)
        known = region is not None and region.name in self._kinds and region.name != HOST_HEAP
        if region is None or region.start != address - GLOBAL_BASE or not known:
            return self._failed(INVALID_VALUE)
        self._forget(region)
        return 0

    def _bytes(self, m: Machine, pc: int, address: int, size: int) -> tuple[str, np.ndarray, np.ndarray]:
        """Returns the kind of memory at an address, and views of its bytes and their states. EmulatorError if it is not one
        buffer's."""
        space, base = self._space(m, address)
        offset = address - base
        region = self.memory.region(offset) if space is self.memory else None
        if space is self.memory and (region is None or offset + size > region.stop):
            m.fail(
                pc,
                f"a copy of {size:,} bytes {self.memory.describe(offset if region is None else region.stop)}",
                m.slot_of(0),
            )
        kind = self._kinds.get(region.name, "managed") if region else "host"
        states = space.state[offset : offset + size]
        if region is not None and region.name in self._hidden:
            states = self._hidden[region.name][offset - region.start : offset - region.start + size]
        outside = np.append(np.flatnonzero(states == OUTSIDE), states.size)[0]
        if outside < size:
            where = space.describe(offset + int(outside))
            m.fail(pc, f"a copy of {size:,} bytes reaches memory that is not allocated, {where}", m.slot_of(0))
        return kind, space.bytes[offset : offset + size], states

    def _space(self, m: Machine, address: int) -> tuple[Space, int]:
        name = space_at(address)
        return (self.memory, GLOBAL_BASE) if name == "global" else (m.space(name)[0], WINDOWS[name])

    def _copy(self, m: Machine, pc: int, to: int, source: int, size: int, kind: int) -> int:
        if kind > BY_ADDRESS:
            return self._failed(INVALID_DIRECTION)
        if not size:
            return 0
        if not (to and source):
            return self._refuse_null(m, pc, "source" if to else "destination")
        to_kind, data, states = self._bytes(m, pc, to, size)
        from_kind, values, written = self._bytes(m, pc, source, size)
        wanted = {
            TO_DEVICE: ("device", "host"),
            TO_HOST: ("host", "device"),
            ON_DEVICE: ("device", "device"),
            HOST_TO_HOST: ("host", "host"),
        }
        for actual, expected in zip((to_kind, from_kind), wanted.get(kind, ("managed", "managed")), strict=True):
            if "managed" not in (actual, expected) and actual != expected:
                return self._failed(INVALID_VALUE)
        unwritten = np.flatnonzero(written == ALLOCATED)
        if unwritten.size:
            self.notes.append(
                f"{self._line(m, pc)}: {unwritten.size:,} of {size:,} bytes of this copy were never written, the first is byte {unwritten[0]}"
            )
        data[:], states[:] = values.copy(), written.copy()
        return 0

    def _refuse_null(self, m: Machine, pc: int, what: str) -> int:
        self.notes.append(f"{self._line(m, pc)}: this copy is refused: its {what} is a null pointer")
        return self._failed(INVALID_VALUE)

    def _fill(self, m: Machine, pc: int, to: int, value: int, size: int) -> int:
        if size and not to:
            return self._refuse_null(m, pc, "destination")
        if size:
            _, data, states = self._bytes(m, pc, to, size)
            data[:], states[:] = value & 0xFF, WRITTEN
        return 0

    def _store(self, m: Machine, pc: int, address: int, value: np.generic) -> None:
        """Write a number through a pointer of the host."""
        space, base = self._space(m, address)
        at = np.array([address - base], np.uint64)
        try:
            space.check(at, value.itemsize, write=True)
        except Fault as fault:
            m.fail(pc, fault.description, m.slot_of(0))
        space.store(at, value.itemsize, np.array([value]))

    def _memory_info(self, m: Machine, pc: int, free: int, total: int) -> int:
        used = sum(r.stop - r.start for r in self.memory.regions if self._kinds.get(r.name) == "device")
        self._store(m, pc, free, np.uint64(TOTAL - used))
        self._store(m, pc, total, np.uint64(TOTAL))
        return 0

    # -- errors ----------------------------------------------------------------------------------------
    def _last_error(self, m: Machine, pc: int, clear: int) -> int:
        code, self._error = self._error, 0 if clear else self._error
        return code

    def _error_text(self, m: Machine, pc: int, code: int, name: int) -> int:
        pair = ERRORS.get(code, ("cudaErrorUnknown", "unknown error"))
        text = pair[0 if name else 1].encode() + b"\0"
        if text not in self._texts:
            self._texts[text] = GLOBAL_BASE + self.memory.add(f"text of {text.decode()[:-1]}", len(text), text)
        return self._texts[text]

    def _exit(self, m: Machine, pc: int, status: int) -> None:
        raise Exit(status)

    # -- launches --------------------------------------------------------------------------------------
    def _parameter_buffer(self, m: Machine, pc: int, kernel: int, grid: Dim, block: Dim, shared: int) -> int:
        name = self._names.get(kernel)
        if name is None:
            self._failed(INVALID_FUNCTION)
            return 0
        try:
            limits.check_grid(grid, block)
            parsed = parse(self.ptx, name)
            limits.check_bounds(parsed, block)
            static = sum(v.size for v in parsed.variables if v.space == "shared")
            if static + shared > max(MAX_STATIC_SHARED, self._dynamic.get(name, 0) + static):
                raise RuleError(
                    f"{static:,} bytes of declared and {shared:,} of dynamic shared memory; more than {MAX_STATIC_SHARED:,} need "
                    "cudaFuncSetAttribute"
                )
        except RuleError as error:
            self.notes.append(f"{self._line(m, pc)}: this launch is refused: {error}")
            self._failed(INVALID_CONFIGURATION)
            return 0
        self.memory.state[self._parameters : self._parameters + 4096] = ALLOCATED
        self._calls[GLOBAL_BASE + self._parameters] = _Call(name, grid, block, shared)
        return GLOBAL_BASE + self._parameters

    def _launch(self, m: Machine, pc: int, parameters: int, stream: int) -> int:
        call = self._calls.pop(parameters)
        kernel = parse(self.ptx, call.kernel)
        content, args = self.memory.bytes[self._parameters : self._parameters + 4096].tobytes(), []
        at = 0
        for p in kernel.params:
            at = -(-at // p.align) * p.align
            args.append(np.void(content[at : at + p.size]))
            at += p.size
        with self._show_device():
            run = launch(
                self.ptx,
                call.kernel,
                call.grid,
                call.block,
                args,
                self.memory,
                call.shared,
                self.options,
                plain(call.kernel),
            )
        for line in run.printed:
            self.write(f"{line.text}\n".encode())
        about = run.ended.first_nan.messages() if run.ended.first_nan else ()
        self.launches.append(
            Launched(
                plain(call.kernel),
                self._line(m, pc),
                call.grid,
                call.block,
                call.shared,
                run.counted,
                run.races,
                run.warnings,
                (*ledger.notes_on_shared(run.ended), *about),
                run.printed,
            )
        )
        return 0

    def _occupancy(self, m: Machine, pc: int, to: int, kernel: int, threads: int, shared: int) -> int:
        name = self._names.get(kernel)
        if name is None or not 0 < threads <= 1024:
            return self._failed(INVALID_FUNCTION if name is None else INVALID_VALUE)
        static = sum(v.size for v in parse(self.ptx, name).variables if v.space == "shared")
        by_memory = MAX_SHARED // (static + shared + 1024) if static + shared else 32
        self._store(m, pc, to, np.int32(max(0, min(32, 2048 // threads, by_memory))))
        return 0

    def _allow_shared(self, m: Machine, pc: int, kernel: int, size: int) -> int:
        name = self._names.get(kernel)
        if name is None or size > MAX_SHARED:
            return self._failed(INVALID_FUNCTION if name is None else INVALID_VALUE)
        self._dynamic[name] = size
        return 0
