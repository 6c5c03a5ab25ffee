"""The execution of one block, step by step, in compact columns. The animations play it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.events import EventLog, Events
from kernels.engines.emulator.ptx.kernel import Instruction, Line
from kernels.engines.emulator.state import Machine

BARRIER, COMMIT, WAIT = range(3)  # the kinds of Syncs


@dataclass(frozen=True)
class Requests:
    """The memory requests of the block's warps, one row a request, as the counters count them.

    `step`, `buffer` and `write` are as in BlockTrace. `mask` has bit i set if lane i is active. `width` is the bytes of
    each active lane. `byte` is where those begin for each of the 32 lanes, in bytes from the buffer's start (0 if idle).
    `async_copy` tells the requests of cp.async, which are done later than their instruction.
    Loads that ptxas merges are one request. A load or store of a WMMA fragment is as many as in machine code.
    """

    step: np.ndarray
    buffer: np.ndarray
    write: np.ndarray
    warp: np.ndarray
    mask: np.ndarray
    width: np.ndarray
    byte: np.ndarray  # int32[requests, 32]
    async_copy: np.ndarray

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True)
class Syncs:
    """The barriers of the block, and its commits and waits of cp.async, one row an instruction in the order of execution.

    `kind` is BARRIER, COMMIT or WAIT. `pending` is the number of groups that a WAIT may leave incomplete. `step` is as in
    BlockTrace. `requests` is the number of memory requests before it. `warps` has bit i set if warp i executes it.
    """

    kind: np.ndarray
    pending: np.ndarray
    step: np.ndarray
    requests: np.ndarray
    warps: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class BlockTrace:
    """One block's steps and memory accesses.

    A step is a run of instructions of one source line with one set of active lanes. `line` indexes `lines`. `masks`
    [steps, warps] uint32 has bit i set if lane i is active.
    An access belongs to a step. `buffer` indexes `buffers`, `element` is the flat index in the buffer, `thread` the
    linear index in the block, `value` the value as float32.
    """

    block: int
    lines: tuple[Line | None, ...]
    buffers: tuple[str, ...]
    line: np.ndarray
    masks: np.ndarray
    step: np.ndarray
    buffer: np.ndarray
    element: np.ndarray
    write: np.ndarray
    thread: np.ndarray
    value: np.ndarray
    requests: Requests
    syncs: Syncs
    events: Events

    @property
    def steps(self) -> int:
        return len(self.line)

    @property
    def nbytes(self) -> int:
        columns = (self.line, self.masks, self.step, self.buffer, self.element, self.write, self.thread, self.value)
        return sum(column.nbytes for column in columns)


class Trace:
    """Collects a BlockTrace while the machine runs. Without `values`, its accesses are left out; its requests are not."""

    def __init__(self, m: Machine, block: int, values: bool = True):
        self.m, self.block, self._with_values = m, block, values
        self._slots = np.flatnonzero((m.block_of == block) & m.threads.exists)
        self._rows = np.flatnonzero(m.block_of.reshape(-1, 32)[:, 0] == block)
        self._lines: dict[Line | None, int] = {}
        self._buffers: dict[str, int] = {}
        self._steps: list[tuple[int, np.ndarray]] = []
        self._accesses: list[tuple] = []
        self._requests: list[tuple] = []
        self._syncs: list[tuple] = []
        self.events = EventLog(m, block, lambda: len(self._requests), lambda: len(self._steps))
        self._sync_of = {pc: sync for pc, i in enumerate(m.kernel.code) if (sync := _sync(i))}
        self._async_copies = {pc for pc, i in enumerate(m.kernel.code) if _is_async_copy(i)}
        self._in_async_copy = False
        self._here: np.ndarray | None = None  # the threads of the last instruction, and those of the block
        self._lanes = self._masks = np.zeros(0)
        self._any = False
        self._last: tuple[int, bytes] | None = None

    def at(self, pc: int, here: np.ndarray) -> None:
        """Record the threads that are about to execute an instruction."""
        if here is not self._here:
            self._here, self._lanes = here, here.reshape(-1, 32)[self._rows]
            self._any = bool(self._lanes.any())
            self._masks = np.packbits(self._lanes, axis=1, bitorder="little").view(np.uint32).reshape(-1)
            self._mask_bytes = self._masks.tobytes()
        if not self._any:
            return
        line = self._lines.setdefault(self.m.kernel.code[pc].line, len(self._lines))
        key = (line, self._mask_bytes)
        if key != self._last:
            self._last = key
            self._steps.append((line, self._masks))
        self._in_async_copy = pc in self._async_copies
        if sync := self._sync_of.get(pc):
            bits = np.left_shift(1, np.arange(len(self._lanes), dtype=np.int64))
            warps = int((self._lanes.any(axis=1) * bits).sum())
            self._syncs.append((*sync, len(self._steps) - 1, len(self._requests), warps))

    def after(self, pc: int, here: np.ndarray) -> None:
        """Called after threads have executed an instruction."""

    def access(self, pc: int, name: str, offsets: np.ndarray, values: np.ndarray, dtype, write: bool) -> None:
        """Record an access by the active threads. `offsets`: one a slot; `values`: one an active thread."""
        m = self.m
        if not self._with_values or name not in ("global", "shared", "const"):
            return
        in_block = np.zeros(m.slots, bool)
        in_block[self._slots] = True
        if m.active_mask is not None:
            in_block &= m.active_mask
        slots = np.flatnonzero(in_block)
        if not slots.size:
            return
        if len(offsets) == 1:
            offsets = np.full(m.slots, offsets[0])
        by_slot = np.zeros(m.slots, values.dtype)
        by_slot[slice(None) if m.active_mask is None else m.active_mask] = values
        bits = by_slot[slots].view(dtype)
        space = m.memory if name in ("global", "const") else m.shared
        base = np.uint64(0) if space is m.memory else m.shared_base[slots]
        inside = (offsets[slots] - base).astype(np.int64)
        for region in space.regions:
            here = (inside >= region.start) & (inside < region.stop)
            if here.any():
                buffer = self._buffers.setdefault(region.name, len(self._buffers))
                element = (inside[here] - region.start) // region.dtype.itemsize
                thread = m.thread_of[slots[here]]
                numbers = bits[here]
                if region.dtype.kind == "i" and numbers.itemsize == region.dtype.itemsize:
                    numbers = numbers.view(region.dtype)  # a store of whole numbers has no sign
                self._accesses.append((len(self._steps) - 1, buffer, element, write, thread, numbers.astype(float)))

    def updated(self, pc: int, name: str, offsets: np.ndarray, before: np.ndarray, after: np.ndarray, dtype) -> None:
        """Record an atomic update by the active threads: a write, with the values that were there before."""
        self.access(pc, name, offsets, before, dtype, write=True)

    def raced(self, message: str) -> None:
        """Called when a data race is found."""

    def copied(
        self, pc: int, name: str, from_: np.ndarray, to: np.ndarray, words: np.ndarray, count: np.ndarray | None
    ) -> None:
        """Called when the active threads begin to copy `words`, uint32 [active, words], to shared memory, of which they read `count` bytes,
        None for all. `from_` and `to`: offsets, one a slot."""

    def bulk(self, slot: int, name: str, offsets: np.ndarray, data: np.ndarray, dtype: str, write: bool) -> None:
        """Called when a thread begins a bulk copy: the bytes that it reads or writes, as one number of `dtype` an offset."""

    def shuffled(self, lanes: np.ndarray, values: np.ndarray) -> None:
        """Called when the active lanes have got `values` from `lanes`, both (warps, 32)."""

    def request(self, name: str, op: str, lines: np.ndarray, active: np.ndarray | None, width: int) -> None:
        """Record requests for `width` bytes a lane. `lines`: byte offsets (warps, 32); `active`: bool of the same
        shape, None for all."""
        base = 0 if name == "global" else int(self.m.shared_base[self._slots[0]])
        for warp, row in enumerate(self._rows):
            on = np.ones(32, bool) if active is None else active[row]
            if not on.any():
                continue
            start = np.where(on, lines[row].astype(np.int64) - base, -1)
            for region in (self.m.memory if name == "global" else self.m.shared).regions:
                if region.start <= start[on.argmax()] < region.stop:
                    buffer = self._buffers.setdefault(region.name, len(self._buffers))
                    offsets = np.where(on, start - region.start, 0)
                    mask = np.packbits(on, bitorder="little").view(np.uint32)[0]
                    step = len(self._steps) - 1
                    self._requests.append((step, buffer, op == "st", warp, mask, width, offsets, self._in_async_copy))

    def result(self) -> BlockTrace:
        def column(n: int, dtype) -> np.ndarray:
            parts = [np.broadcast_to(a[n], len(a[2])) for a in self._accesses]
            return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)

        def request_column(n: int, dtype) -> np.ndarray:
            return np.array([request[n] for request in self._requests], dtype)

        requests = Requests(
            step=request_column(0, np.uint32),
            buffer=request_column(1, np.uint8),
            write=request_column(2, np.bool_),
            warp=request_column(3, np.uint16),
            mask=request_column(4, np.uint32),
            width=request_column(5, np.uint8),
            byte=request_column(6, np.int32).reshape(-1, 32),
            async_copy=request_column(7, np.bool_),
        )
        syncs = np.array(self._syncs, np.int64).reshape(-1, 5).T
        warps = max(1, len(self._rows))
        return BlockTrace(
            block=self.block,
            lines=tuple(self._lines),
            buffers=tuple(self._buffers),
            line=np.array([line for line, _ in self._steps], np.uint16),
            masks=np.array([masks for _, masks in self._steps], np.uint32).reshape(-1, warps),
            step=column(0, np.uint32),
            buffer=column(1, np.uint8),
            element=column(2, np.uint32),
            write=column(3, np.bool_),
            thread=column(4, np.uint16),
            value=column(5, np.float32),
            requests=requests,
            syncs=Syncs(*syncs),
            events=self.events.result(),
        )


def _sync(i: Instruction) -> tuple[int, int] | None:
    """Returns (kind, pending groups) of a barrier of the block, or of a commit or wait of cp.async; None for others."""
    if i.parts[0] in ("bar", "barrier"):
        return None if {"warp", "arrive"} & set(i.parts) else (BARRIER, 0)
    if i.parts[:2] != ["cp", "async"] or "bulk" in i.parts:
        return None
    if "commit_group" in i.parts:
        return COMMIT, 0
    if "wait_all" in i.parts:
        return WAIT, 0
    return (WAIT, i.operands[0].number) if "wait_group" in i.parts else None


def _is_async_copy(i: Instruction) -> bool:
    return i.parts[:2] == ["cp", "async"] and _sync(i) is None and "bulk" not in i.parts
