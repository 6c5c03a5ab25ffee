"""What a GPU map is made of: the GPU, the launches with their grids, the tensors in HBM, and bytes between memories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LEVELS = 3  # steps of a byte's way: HBM and L2, L2 and an SM, an SM's memory and registers


ONCE, MOST = "once", "most"


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver reported it. Sizes in bytes; None: not reported."""

    name: str
    sms: int
    hbm: int | None
    l2: int | None
    shared: int | None  # of one SM
    registers: int | None  # of one SM


@dataclass(frozen=True)
class Blocks:
    """The blocks of one launch. `resident` of them fit on an SM at a time; `limit` is what allows no more, as named by
    kernels.engines.emulator.occupancy."""

    grid: tuple[int, int, int]
    threads: int  # of one block
    resident: int
    limit: str

    @property
    def count(self) -> int:
        return math.prod(self.grid)


@dataclass(frozen=True)
class Amount:
    """Bytes and how they are known, one of visuals.scene.parts.KINDS. None: not known. `limit`: ONCE or MOST where
    caches decide how many there are."""

    bytes: int | None = None
    kind: str = ""
    limit: str = ""  # ONCE: if each value moves once; MOST: if L2 holds none of it


UNKNOWN = Amount()
Amounts = tuple[Amount, Amount, Amount]  # one for each of LEVELS
NOTHING_KNOWN: Amounts = (UNKNOWN, UNKNOWN, UNKNOWN)


@dataclass(frozen=True)
class Traffic:
    """Bytes on each part of the way from HBM to the registers, and back."""

    read: Amounts = NOTHING_KNOWN
    written: Amounts = NOTHING_KNOWN


@dataclass(frozen=True)
class Tile:
    """The part of a tensor that a block loads at once: its size in words, and the pieces in which it is drawn on an SM,
    (rows, columns)."""

    note: str
    on_sm: tuple[int, int]


@dataclass(frozen=True)
class Operand:
    """A tensor in HBM, drawn as rows x cols pieces. `values` are the numbers in its pieces; None: a launch writes it.

    `pieces[t]` is the piece of the t-th tile of block 0; an output has one.
    """

    name: str
    title: str
    role: str
    rows: int
    cols: int
    note: str
    pieces: np.ndarray
    values: np.ndarray | None = None
    tile: Tile | None = None
    stored: float = 1.0  # the number in the pieces of an output


@dataclass(frozen=True)
class Kernel:
    """One launch: what it reads and writes, and the bytes that it moves. `tile` are those of one tile of block 0."""

    name: str
    blocks: Blocks
    reads: tuple[str, ...]
    writes: str
    tiles: int  # that block 0 loads, one after the other
    tile: Traffic
    total: Traffic
    sums: tuple[int, int] = (1, 1)  # of one thread, as drawn
    sums_note: str = ""
    once: tuple[str, ...] = ()  # what block 0 loads before its first tile, and those bytes
    once_traffic: Traffic = Traffic()
    computes: str = ""  # a sentence instead of that about loads of registers
    stores: str = ""  # and instead of that about the store


@dataclass(frozen=True)
class GpuMap:
    """All that visuals.gpu_map.scene draws. `on_sm`: what a block keeps on its SM: tiles in shared memory, or only
    what the L1 cache keeps."""

    key: str
    title: str
    gpu: Gpu
    kernels: tuple[Kernel, ...]
    operands: Mapping[str, Operand]
    total: Traffic
    shared: bool
