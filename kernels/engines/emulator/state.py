"""The state of a launch, for all threads of a batch of blocks at once, and how an instruction's operands read and write it.

State is registers, memory, the live threads and the active ones, which execute the current instruction. A batch takes over
registers, shared and local memory of the one before (`begin`). `batches` says which launches are one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import numpy as np

from kernels.engines.emulator.counters import Tally
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.memory import GLOBAL_BASE, WRITTEN, Global, Parameters, PerBlock, PerThread, Region
from kernels.engines.emulator.operations.dtypes import DTYPES, SIGNED, UNSIGNED
from kernels.engines.emulator.printer import Printer
from kernels.engines.emulator.ptx import flow
from kernels.engines.emulator.ptx import registers as ptx_registers
from kernels.engines.emulator.ptx.arrays import arrays_of
from kernels.engines.emulator.ptx.kernel import RESERVED, RESERVED_BYTES, Kernel, Operand
from kernels.engines.emulator.ptx.merged_loads import merged_of
from kernels.engines.emulator.ptx.names import variable
from kernels.engines.emulator.threads import LANES, Threads

if TYPE_CHECKING:
    from kernels.engines.emulator.async_copies import AsyncCopies
    from kernels.engines.emulator.bulk_copies import BulkCopies
    from kernels.engines.emulator.calls import Frames
    from kernels.engines.emulator.clusters import Clusters
    from kernels.engines.emulator.first_nan import FirstNan
    from kernels.engines.emulator.float_bits import FloatBits
    from kernels.engines.emulator.ledger import Unread
    from kernels.engines.emulator.links import OfMachine
    from kernels.engines.emulator.order import Order
    from kernels.engines.emulator.overflow import Overflow
    from kernels.engines.emulator.products import Products
    from kernels.engines.emulator.program.runtime import Runtime
    from kernels.engines.emulator.proxies import Proxies
    from kernels.engines.emulator.races import Races
    from kernels.engines.emulator.register_pool import RegisterPool
    from kernels.engines.emulator.trace import Trace

Unit = TypeVar("Unit")
Inner = PerBlock | PerThread | Parameters  # memory that each block, thread or rank has a part of
Put = Callable[[np.ndarray | np.generic], None]  # writes a value into a register: one a slot, or a scalar for all


def mbarrier_key(offset: int) -> int:
    """Returns what names an mbarrier at an offset of shared memory among the barriers of a launch, whose numbers are not negative."""
    return -1 - offset


def cluster_key(cluster: int) -> int:
    """Returns what names a cluster's barrier among the barriers of a launch."""
    return (1 << 40) + cluster


def needed(unit: Unit | None) -> Unit:
    """Returns a unit that the launch has given a machine, because its kernel has instructions of this kind."""
    if unit is None:
        raise EmulatorError("the machine has no unit for this instruction")
    return unit


class Machine:
    """One launch, on one GPU or on several with a rank each. `params`: of each rank the bytes of each parameter by name.
    `order`: as of `Threads`; it decides which thread is first if two threads write one address. `blocks`: of a batch."""

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: Sequence[Mapping[str, bytes]],
        memory: Global,
        dynamic_shared: int = 0,
        tally: Tally | None = None,
        order: str | int = "forward",
        symbols: Mapping[str, int] | None = None,
        name: str = "",
        at_once: int | None = None,
    ):
        self.kernel, self.grid, self.block, self.memory = kernel, grid, block, memory
        self.params, self.tally = params, tally
        self.name = name or kernel.name
        self.threads = Threads(grid, block, order, len(params), kernel.cluster, at_once)
        self.blocks, self.slots = self.threads.blocks, self.threads.slots
        self.block_of, self.thread_of = self.threads.block_of, self.threads.thread_of
        self.live = self.threads.exists
        self._all_live = bool(self.live.all())
        self.dynamic_shared = dynamic_shared
        self._allocate_variables(dynamic_shared, symbols or {})
        self.index = {name: n for n, name in enumerate(kernel.registers)}
        self.storage = [DTYPES[type_] for type_ in kernel.registers.values()]
        # NumPy's types do not say that a scalar has the methods of an array.
        self.registers = cast(list[np.ndarray], [dtype(0) for dtype in self.storage])
        self._readers: dict[tuple[str, str], Callable[[], np.ndarray]] = {}
        self._indices: list[tuple[str, np.ndarray]] = []  # what readers return for blockIdx, of each slot
        self.printer = Printer(self.threads)
        self.carry: np.ndarray = np.zeros((), bool)
        # The active threads and those whose registers are written (bool, one a slot); None: all.
        self.active_mask: np.ndarray | None = None
        self.write_mask: np.ndarray | None = None
        self._entered: np.ndarray | None = None  # `write_mask` since `enter`
        self.unmasked: frozenset[str] = frozenset()  # registers that may be written for all threads then
        self._all_slots, self._all_rows = np.arange(self.slots), np.arange(self.slots // LANES)
        self._rows_of: tuple[np.ndarray | None, np.ndarray] = (None, self._all_rows)  # a mask, and its rows
        # The launch sets these before instructions are decoded: call frames, what looks for faults, the trace of a block.
        self.frames: Frames | None = None
        self.host: Runtime | None = None  # of a program whose host code this is
        self.order: Order | None = None  # of accesses, if data races are looked for
        self.races: dict[str, Races] = {}  # by space: shared, global
        self.unread: Unread | None = None  # what was written to shared memory and not read, if races are looked for
        self.first_nan: FirstNan | None = None
        self.overflow: Overflow | None = None
        self.undefined: dict[int, str] = {}  # shuffles from lanes that take no part, by instruction
        self.float_bits: FloatBits | None = None
        self.trace: Trace | None = None
        self.zeros = False  # whether all inputs are zero
        self.links: OfMachine | None = None  # counts the bytes between the memories of several GPUs
        # Of kernels that have such instructions: copies, bulk copies and wgmma products under way, stores that these do not
        # see yet, clusters of blocks, registers that warpgroups hand over.
        self.async_copies: AsyncCopies | None = None
        self.copies: BulkCopies | None = None
        self.products: Products | None = None
        self.proxies: Proxies | None = None
        self.clusters: Clusters | None = None
        self.register_pool: RegisterPool | None = None
        # By instruction: the counter, and the operations of each thread.
        self.flops_of: dict[int, tuple[str, int]] = {}
        self.flow = flow.flow_of(kernel)
        # Instructions that each warp has issued. Clocks read these.
        self.issued = np.zeros(self.slots // LANES, np.uint64) if self.flow.clocks else None

    # -- memory ---------------------------------------------------------------------------------
    def _allocate_variables(self, dynamic_shared: int, symbols: Mapping[str, int]) -> None:
        self._symbols = dict(symbols)
        shared, local = 0, 0
        regions = []
        dynamic = [v.align for v in self.kernel.variables if v.space == "shared" and not v.size]
        for v in sorted(
            self.kernel.variables, key=lambda v: v.size == 0
        ):  # the dynamic ones are last, all in one place
            if v.space == "shared":
                align = v.align if v.size else max(dynamic)
                shared = -(-shared // align) * align
                self._symbols[v.name] = shared
                size = v.size or dynamic_shared
                regions.append(Region(variable(v.name), shared, shared + size, (size // 4,), np.dtype(np.uint32)))
                shared += v.size
            elif v.space == "local":
                local = -(-local // v.align) * v.align
                self._symbols[v.name] = local
                local += v.size
        shared += dynamic_shared if dynamic else 0
        self.shared = PerBlock(self.blocks if shared else 0, shared, regions)
        if RESERVED in self._symbols and shared:
            self.shared.zero(self._symbols[RESERVED], RESERVED_BYTES)
        self.local = PerThread(self.slots if local else 0, local, ())
        if self.kernel.debug:  # it copies variables before they have a value
            self.local.state[:] = WRITTEN
        # Width in bytes of the merged load that each shared load belongs to. Counters use it; execution does not.
        arrays = tuple((v.name, self._symbols[v.name]) for v in self.kernel.variables if v.space == "shared")
        self.merged = merged_of(self.kernel, arrays) if self.tally and arrays else {}
        self.shared_arrays = arrays
        self.arrays = arrays_of(self.kernel, arrays)
        self._allocate_parameters()
        self.shared_base = (self.block_of * self.shared.size).astype(np.uint64)
        self.local_base = (np.arange(self.slots, dtype=np.int64) * self.local.size).astype(np.uint64)

    def _allocate_parameters(self) -> None:
        """Store the parameters where pointers to them can point: a tensor map is passed so."""
        content = [b""] * len(self.params)
        for p in self.kernel.params:
            start = -(-len(content[0]) // p.align) * p.align
            self._symbols[p.name] = start
            content = [old.ljust(start, b"\0") + of[p.name] for old, of in zip(content, self.params, strict=True)]
        self.param_space = Parameters([data.ljust(1, b"\0") for data in content])
        self.param_base = (self.threads.rank_of * self.param_space.size).astype(np.uint64)

    def space(self, name: str) -> tuple[Inner, np.ndarray]:
        """Returns shared or local memory or the parameters, and the byte offset of each slot's part of it."""
        if name == "param":
            return self.param_space, self.param_base
        return (self.shared, self.shared_base) if name == "shared" else (self.local, self.local_base)

    def beside_arrays(self, address: Operand, at: int) -> str:
        """Returns where a byte of shared memory is that is outside the arrays of an address, and what is there."""
        there = f", {self.shared.describe(at)}" if at < self.shared.size else ""
        return self.arrays.beside(address, at - (1 << 32 if at >> 31 == 1 else 0)) + there

    # -- operands --------------------------------------------------------------------------------
    def type_of(self, register: str) -> str:
        return self.kernel.registers[register]

    def reader(self, o: Operand, type_: str) -> Callable[[], np.ndarray]:
        """Returns a function that returns the operand's value as `type_`. Those of one register are one function."""
        if o.kind != "reg":
            return self._reader(o, type_)
        read = self._readers.get((o.name, type_))
        if read is None:
            read = self._readers[o.name, type_] = self._reader(o, type_)
        return read

    def _reader(self, o: Operand, type_: str) -> Callable[[], np.ndarray]:
        dtype = DTYPES[type_]
        if o.kind == "symbol" and o.value in self.index:
            o = Operand("reg", o.value)
        if o.kind == "reg":
            if o.value not in self.index:
                raise EmulatorError(f"{self.name}: the register {o.value} is not emulated")
            return self._register(self.index[o.name], dtype)
        if self.frames is not None and o.kind == "symbol" and o.value in self.frames.offsets:
            return self.frames.reader(o, dtype)
        if o.kind == "not":
            inner = self.reader(Operand("reg", o.value), "pred")
            return lambda: ~inner()
        if flow.is_clock(o):
            return self._clock(str(o.value), dtype)
        value = self._special(str(o.value)) if o.kind == "special" else self._constant(o, dtype)
        typed = cast(np.ndarray, value.astype(dtype, copy=False))  # or a scalar, as in `registers`
        if str(o.value).startswith("ctaid") and typed.ndim:
            self._indices.append((str(o.value), typed))
        return lambda: typed

    def _clock(self, name: str, dtype) -> Callable[[], np.ndarray]:
        """Returns a reader of a clock or timer: the number of instructions that the thread's warp has issued so far."""
        shift = np.uint64(32 if name.endswith("_hi") else 0)
        issued = needed(self.issued)  # the array that the scheduler adds to
        return lambda: np.repeat(issued >> shift, LANES).astype(dtype)

    def _register(self, n: int, dtype) -> Callable[[], np.ndarray]:
        """Returns a reader of register n as `dtype`. A register holds the last value written, in any type of its width."""
        registers, read_dtype = self.registers, np.dtype(dtype)
        stored_bytes, read_bytes = np.dtype(self.storage[n]).itemsize, read_dtype.itemsize
        if stored_bytes == read_bytes:

            def read() -> np.ndarray:
                value = registers[n]
                if value.dtype is not read_dtype:
                    registers[n] = value = value.view(read_dtype)
                return value

            return read
        raw, unsigned = UNSIGNED[stored_bytes], UNSIGNED[read_bytes]
        return lambda: registers[n].view(raw).astype(unsigned).view(dtype)

    def _constant(self, o: Operand, dtype) -> np.generic:
        if o.kind == "symbol":
            if o.value not in self._symbols:
                raise EmulatorError(f"{self.name}: {o.value} is declared nowhere")
            return np.uint64(self._symbols[o.name] + o.offset).astype(dtype)
        if isinstance(o.value, float):  # for untyped bits (mov.b32), the float's bits
            of_size = {4: np.float32, 8: np.float64}.get(np.dtype(dtype).itemsize, dtype)
            return (np.dtype(dtype) if np.dtype(dtype).kind == "f" else np.dtype(of_size)).type(o.value).view(dtype)
        if np.dtype(dtype).kind == "f":
            return np.dtype(dtype).type(o.value)
        if dtype is np.bool_:
            return np.bool_(o.value)
        bits = 8 * np.dtype(dtype).itemsize
        return np.dtype(UNSIGNED[bits // 8]).type(o.number & (1 << bits) - 1).view(dtype)

    def _special(self, name: str) -> np.ndarray | np.generic:
        value = self.threads.special(name)
        if value is None and name in ("dynamic_smem_size", "total_smem_size"):
            value = np.uint32(self.dynamic_shared if name.startswith("dynamic") else self.shared.size)
        if value is None and name == RESERVED:
            value = np.uint32(self._symbols[name])
        if value is None and name in ("envreg1", "envreg2"):
            value = np.uint32(self._grid_workspace() >> (32 if name == "envreg1" else 0) & 0xFFFFFFFF)
        if value is None:
            raise EmulatorError(f"{self.name}: the special register %{name} is not emulated")
        return value

    def _grid_workspace(self) -> int:
        """Returns the address of the words by which cooperative groups synchronise a grid: size in bytes, counter."""
        return GLOBAL_BASE + self.memory.add("grid workspace", 8, np.array([8, 0], np.uint32).tobytes())

    def writer(self, o: Operand, type_: str) -> Put:
        """Returns a function that writes a value of `type_` into a register of the active threads."""
        if o.kind == "sink":
            return lambda value: None
        n, registers = self.index[o.name], self.registers
        storage_dtype, dtype = self.storage[n], DTYPES[type_]
        stored_bytes, written_bytes = np.dtype(storage_dtype).itemsize, np.dtype(dtype).itemsize

        unmasked = o.name in self.unmasked

        def put(value) -> None:
            if self.write_mask is not None and not (unmasked and self.write_mask is self._entered):
                old = registers[n]
                value = np.where(self.write_mask, value, old if old.dtype is value.dtype else old.view(value.dtype))
            registers[n] = value

        if stored_bytes == written_bytes:
            return put
        # A narrower value is extended to a wider register: by its sign, or by zeros if it is unsigned.
        wide = (SIGNED if np.dtype(dtype).kind == "i" else UNSIGNED)[stored_bytes]
        raw = UNSIGNED[written_bytes] if np.dtype(dtype).kind == "f" else dtype
        return lambda value: put(value.view(raw).astype(wide).view(storage_dtype))

    def param(self, name: str, offset: int, dtype) -> np.ndarray | np.generic:
        """Returns a part of a parameter: a scalar, or one value a slot if it differs between the ranks."""
        values = [np.frombuffer(params[name], dtype, 1, offset) for params in self.params]
        if len({value.tobytes() for value in values}) == 1:
            return values[0][0]
        return np.concatenate(values)[self.threads.rank_of]

    def pointers_in(self, name: str, offset: int) -> list[int]:
        """Returns the 8 bytes at an offset of a parameter as an address, of each rank; nothing if it has fewer."""
        content = (params[name][offset : offset + 8] for params in self.params if name in params)
        return [int.from_bytes(data, "little") for data in content if len(data) == 8]

    def offsets_of_local_variables(self) -> dict[str, int]:
        """Returns where the variables of the PTX in local memory begin."""
        return {v.name: self._symbols[v.name] for v in self.kernel.variables if v.space == "local"}

    def addresses_of(self, name: str) -> list[int]:
        """Returns the address of a variable of the module; nothing for another name."""
        return [self._symbols[name]] if name in self._symbols else []

    # -- active threads ----------------------------------------------------------------------------
    def active(self, value) -> np.ndarray:
        """Returns the values of the active threads; a scalar is repeated."""
        if value.ndim == 0:
            return np.full(self.slots if self.active_mask is None else int(self.active_mask.sum()), value)
        return value if self.active_mask is None else value[self.active_mask]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Returns values of the active threads in their slots, zero in the others."""
        if self.active_mask is None or (values.size == 1 and values.size != int(self.active_mask.sum())):
            return values if values.size == self.slots else values[0]
        out = np.zeros(self.slots, values.dtype)
        out[self.active_mask] = values
        return out

    def active_rows(self) -> np.ndarray:
        """Returns the rows of 32 slots, warps, that have an active thread."""
        mask = self.active_mask
        if mask is None:
            return self._all_rows
        if self._rows_of[0] is not mask:  # a mask is not changed once it is used
            self._rows_of = mask, np.flatnonzero(mask.reshape(-1, LANES).any(axis=1))
        return self._rows_of[1]

    def active_slots(self) -> np.ndarray:
        return self._all_slots if self.active_mask is None else np.flatnonzero(self.active_mask)

    @contextmanager
    def only(self, threads: np.ndarray) -> Iterator[None]:
        """Makes these threads the active ones for a while."""
        before = self.active_mask, self.write_mask
        self.active_mask = self.write_mask = threads
        try:
            yield
        finally:
            self.active_mask, self.write_mask = before

    def slot_of(self, at: int) -> int:
        """Returns the slot of the at-th active thread."""
        return at if self.active_mask is None else int(np.flatnonzero(self.active_mask)[at])

    def flops(self, pc: int, each: int, kind: str = "flops_fp") -> None:
        self.flops_of[pc] = (kind, each)

    def where(self, pc: int) -> str:
        """Returns the kernel's name and the CUDA line of an instruction; of one past the end, the last line."""
        if not self.kernel.code:
            return self.name
        pc = min(pc, len(self.kernel.code) - 1)
        line = self.line(pc) if self.host is None else self.host.line(self.kernel.code[pc])
        return f"{self.name}, {line}"

    def line(self, pc: int) -> str:
        """Returns the CUDA line of an instruction, and that in the function that is inlined there."""
        i = self.kernel.code[pc]
        return f"{i.line or 'unknown line'}" + (f" (in code from {i.inlined})" if i.inlined else "")

    def fail(
        self, pc: int, message: str, slot: int, role: str = "by", kind: type[EmulatorError] = EmulatorError
    ) -> NoReturn:
        """Raise an EmulatorError of a kind. `role`: how the slot's thread is related to it."""
        called = self.frames.caller(pc, slot) if self.frames is not None else ""
        thread = f"thread {self.threads.thread(slot)} of block {self.threads.block_at(slot)}"
        error = kind(f"{self.where(pc)}{called}: {message}, {role} {thread}")
        error.printed = self.printer.lines()
        error.before = tuple(self.overflow.found.values()) if self.overflow is not None else ()
        raise error

    # -- running -----------------------------------------------------------------------------------
    def begin(self, batch: int) -> None:
        """Let the threads of the next batch begin, with shared and local memory that nobody has written."""
        self.threads.begin(batch)
        self.live = self.threads.exists
        self._all_live = bool(self.live.all())
        for name, values in self._indices:
            values[:] = self._special(name)
        self.shared.forget()
        self.local.forget()
        if self.order is not None:
            self.order.begin()

    def finish(self) -> None:
        """Note what the threads of a batch have left behind when they end."""
        if (races := self.races.get("shared")) is not None:
            needed(self.unread).add(races)
            races.forget()

    def enter(self, threads: np.ndarray) -> None:
        """Make these threads the active ones."""
        self.write_mask = self._entered = None if threads is self.live else threads
        self.active_mask = None if threads is self.live and self._all_live else threads

    def end(self, threads: np.ndarray) -> None:
        """Mark these threads as ended."""
        self.live = self.live & ~threads
        self._all_live = False
        if self.clusters is not None:
            self.clusters.ended(threads)

    def whole_warps(self, threads: np.ndarray) -> bool:
        """Returns whether the threads include every live thread of their warps."""
        if threads is self.live:
            return True
        warps = threads.reshape(-1, LANES).any(axis=1)
        return np.count_nonzero(self.live.reshape(-1, LANES)[warps]) == np.count_nonzero(threads)

    def whole_blocks(self, threads: np.ndarray) -> bool:
        """Returns whether the threads include every live thread of their blocks."""
        blocks = np.zeros(self.blocks, bool)
        blocks[self.block_of[threads]] = True
        return np.count_nonzero(self.live & blocks[self.block_of]) == np.count_nonzero(threads)

    def phase_ended(self, key: int) -> None:
        """Report to the race detectors that a phase of the barrier with this key has ended."""
        if self.order is not None:
            self.order.phase_ended(key)

    @property
    def writes(self) -> int:
        """The number of stores to memory so far."""
        return self.memory.writes + self.shared.writes + self.local.writes

    def bits_of(self, register: str, threads: np.ndarray) -> bytes:
        """Returns a register's bytes in these threads; empty for a name that is no register."""
        if register not in self.index:
            return self.carry[threads].tobytes() if register == ptx_registers.CARRY and self.carry.ndim else b""
        value = self.registers[self.index[register]]
        return (value if value.ndim == 0 else value[threads]).tobytes()
