"""The execution of one block, step by step, in compact columns: what drives the animation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.parse import Line

if TYPE_CHECKING:
    from kernels.engines.emulator.machine import Machine


@dataclass(frozen=True)
class BlockTrace:
    """One block's steps and memory accesses.

    A step is a stretch of instructions of one source line with one set of active lanes: `line` indexes
    `lines`, `masks` [steps, warps] uint32 has bit i set where lane i takes part. An access belongs to a
    step: `buffer` indexes `buffers`, `element` is flat in it, `thread` linear in the block, `value` the
    bits as float64 (exact for every type up to 32 bits).
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

    @property
    def steps(self) -> int:
        return len(self.line)

    @property
    def nbytes(self) -> int:
        columns = (
            self.line,
            self.masks,
            self.step,
            self.buffer,
            self.element,
            self.write,
            self.thread,
            self.value,
        )
        return sum(column.nbytes for column in columns)


class Trace:
    """Collects a BlockTrace while the machine runs."""

    def __init__(self, m: Machine, block: int):
        self.m, self.block = m, block
        self._slots = np.flatnonzero((m.block_of == block) & m.exists)
        self._rows = np.flatnonzero(m.block_of.reshape(-1, 32)[:, 0] == block)
        self._lines: dict[Line | None, int] = {}
        self._buffers: dict[str, int] = {}
        self._steps: list[tuple[int, np.ndarray]] = []
        self._accesses: list[tuple] = []
        self._last: tuple[int, bytes] | None = None

    def at(self, pc: int, here: np.ndarray) -> None:
        """The machine is about to run an instruction."""
        lanes = here.reshape(-1, 32)[self._rows]
        if not lanes.any():
            return
        masks = np.packbits(lanes, axis=1, bitorder="little").view(np.uint32).reshape(-1)
        line = self._lines.setdefault(self.m.kernel.code[pc].line, len(self._lines))
        key = (line, masks.tobytes())
        if key != self._last:
            self._last = key
            self._steps.append((line, masks))

    def access(self, pc: int, name: str, offsets: np.ndarray, values: np.ndarray, dtype, write: bool) -> None:
        """The active threads touched memory: offsets one a slot, values one an active thread."""
        m = self.m
        if name not in ("global", "shared", "const"):
            return
        mine = np.zeros(m.slots, bool)
        mine[self._slots] = True
        if m.am is not None:
            mine &= m.am
        slots = np.flatnonzero(mine)
        if not slots.size:
            return
        if len(offsets) == 1:
            offsets = np.full(m.slots, offsets[0])
        told = np.zeros(m.slots, values.dtype)
        told[slice(None) if m.am is None else m.am] = values
        bits = told[slots].view(dtype)
        space = m.memory if name in ("global", "const") else m.shared
        base = np.uint64(0) if space is m.memory else m.shared_base[slots]
        inside = (offsets[slots] - base).astype(np.int64)
        for placed in space.placed:
            here = (inside >= placed.start) & (inside < placed.stop)
            if here.any():
                buffer = self._buffers.setdefault(placed.name, len(self._buffers))
                element = (inside[here] - placed.start) // placed.dtype.itemsize
                thread = m.thread_of[slots[here]]
                self._accesses.append(
                    (len(self._steps) - 1, buffer, element, write, thread, bits[here].astype(float))
                )

    def result(self) -> BlockTrace:
        def column(n: int, dtype) -> np.ndarray:
            parts = [np.broadcast_to(a[n], len(a[2])) for a in self._accesses]
            return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)

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
        )
