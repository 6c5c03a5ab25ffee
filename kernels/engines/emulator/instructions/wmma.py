"""nvcuda::wmma: fragments as mma.sync's, loaded and stored by the same accesses as in ptxas's machine code.

The machine code for sm_80 and up was read for every fragment, layout, type and shape, and the counters were measured
(benchmarks/hardware_cases_wmma.py). If the PTX does not name the state space, no matrix is loaded by ldmatrix.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.accessor import Accessor, space_of
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.instructions.fragments import (
    EACH,
    GROUP,
    LANE,
    WITHIN,
    Positions,
    active_warps,
    multiply,
    pack,
    positions,
    reader,
    registers,
    shape_of,
    spread,
    unpack,
    writer,
)
from kernels.engines.emulator.memory import Space
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED
from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.state import Machine, needed

SHAPES = {
    **dict.fromkeys(("f16", "bf16", "s8", "u8"), ("m16n16k16", "m32n8k16", "m8n32k16")),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
}


def _checked_shape(i: Instruction, type_: str) -> tuple[int, int, int]:
    rows, columns, depth = shape = shape_of(i)
    if f"m{rows}n{columns}k{depth}" not in SHAPES.get(type_, ()):
        raise Unknown(f"unknown opcode {i.opcode}")
    return shape


# -- memory --------------------------------------------------------------------------------------------
def _accesses(at: Positions, width: int, matrices: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the accesses of a fragment: the line of the tile and the element along it at which each lane begins, both
    [accesses, lanes], and the bytes of a lane.

    `at`: line and element of the lanes' values, of `width` bytes. `matrices`: whether ldmatrix may be used; then only
    the lanes that it needs supply addresses.
    """
    line, along = at
    run = np.flatnonzero((line[0] != line[0, 0]) | (along[0] != along[0, 0] + np.arange(line.shape[1])))
    run = int(run[0]) if run.size else line.shape[1]  # values of a lane side by side in memory
    each = 4 // width if width < 4 else 1
    corner = line[0, ::each, None], along[0, ::each, None]  # of the 8 lines that a register spans
    if matrices and (width == 2 or (width == 1 and run == each)):
        count = min(2 * width, len(corner[0]))  # matrices that one instruction loads
        lane = np.arange(8 * count)
        first, begin = (c.reshape(-1, count)[:, lane // 8] for c in corner)
        return first + lane % 8, begin, 16
    if width == 2:  # across its lines too: lanes exchange values afterwards
        return corner[0] + GROUP, corner[1] + 2 * WITHIN, 4
    return line[:, ::run].T, along[:, ::run].T, run * width


class _Tile:
    """The memory side of wmma.load and wmma.store."""

    def __init__(self, m: Machine, pc: int, i: Instruction, address: Operand, stride: Operand | None):
        self.m, self.pc, self.op = m, pc, "ld" if i.parts[1] == "load" else "st"
        which, self.type = i.parts[2], i.parts[-1]
        rows, columns, depth = shape = _checked_shape(i, self.type) if which in "ab" else shape_of(i)
        sizes = {"a": (rows, depth), "b": (depth, columns)}.get(which, (rows, columns))
        at = positions(which, shape, self.type)
        by_row = "row" in i.parts
        self.line, self.along = at if by_row else at[::-1]
        self.width = 4 if self.type in ("tf32", "s32") else type_bytes(self.type)
        matrices = which in "ab" and space_of(i) == "shared"
        *self.starts, wide = _accesses((self.line, self.along), self.width, matrices)
        lanes = self.starts[0].shape[1]
        self.address_lanes = None if lanes == 32 else np.tile(lanes > LANE, m.slots // 32)
        self.stride = m.reader(stride, "u32") if stride else lambda: np.uint32(sizes[1 if by_row else 0])
        self.access = Accessor(m, pc, address, space_of(i), wide)

    def locate(self) -> tuple[Space, str, np.ndarray, np.ndarray]:
        """Check and count all accesses. Return (space, its name, active warps, byte offsets of their lanes' values
        [warps, 32, values])."""
        m, active_mask = self.m, self.m.active_mask
        warps = active_warps(m)
        stride = np.broadcast_to(self.stride(), m.slots).reshape(-1, 32)[warps].astype(np.int64)
        m.active_mask = whole = (
            None if len(warps) == m.slots // 32 else spread(m, warps, np.ones((len(warps), 32), bool))
        )
        if self.address_lanes is not None:
            m.active_mask = self.address_lanes if whole is None else self.address_lanes & whole
        for line, along in zip(*self.starts, strict=True):
            inside = np.zeros((len(warps), 32), np.int64)
            inside[:, : len(line)] = (line * stride[:, : len(line)] + along) * self.width
            begin = spread(m, warps, inside.astype(np.uint64))
            _, name, offsets, _ = self.access.checked(self.op == "st", begin)
            self.access.count(self.op, name, offsets)
        m.active_mask = whole
        space, name, base = self.access.locate()
        inside = (self.line * stride[..., None] + self.along) * self.width
        base = np.broadcast_to(base, m.slots).reshape(-1, 32)[warps]
        m.active_mask = active_mask
        return space, name, warps, base[..., None] + inside.astype(np.uint64)

    def trace(self, name: str, warps: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> None:
        """Record in the trace each lane's access to the elements that it holds."""
        m = self.m
        if m.trace is None:
            return
        dtype = np.float32 if self.type == "tf32" else DTYPES[self.type]
        for n in range(offsets.shape[-1]):
            active = m.active(spread(m, warps, values[..., n]))
            m.trace.access(self.pc, name, spread(m, warps, offsets[..., n]), active, dtype, self.op == "st")


def _load(m: Machine, pc: int, i: Instruction) -> Run:
    fragment, address, *stride = i.operands
    tile = _Tile(m, pc, i, address, stride[0] if stride else None)
    write, register = writer(m, fragment, tile.type), np.uint64 if tile.type == "f64" else np.uint32
    # If a fragment has more registers than its elements need (f16 as a and b), the elements are repeated.
    count = len(registers(fragment)) * EACH.get(tile.type, 1)
    repeated = np.arange(count) % tile.line.shape[1]

    def run() -> None:
        space, name, warps, offsets = tile.locate()
        races = m.races.get(name)
        for n in range(offsets.shape[-1] if races is not None else 0):
            needed(races).read(pc, spread(m, warps, offsets[..., n]), tile.width)
        values = space.load(offsets, tile.width)
        tile.trace(name, warps, offsets, values)
        write(warps, np.ascontiguousarray(values[..., repeated]).view(register))

    return run


def _store(m: Machine, pc: int, i: Instruction) -> Run:
    address, fragment, *stride = i.operands
    tile = _Tile(m, pc, i, address, stride[0] if stride else None)
    read = reader(m, fragment, tile.type)

    def run() -> None:
        space, name, warps, offsets = tile.locate()
        values = np.ascontiguousarray(read(warps)).view(UNSIGNED[tile.width])
        races = m.races.get(name)
        for n in range(offsets.shape[-1] if races is not None else 0):
            active = m.active(spread(m, warps, values[..., n]))
            needed(races).write(pc, spread(m, warps, offsets[..., n]), tile.width, active)
        space.store(offsets, tile.width, values)
        tile.trace(name, warps, offsets, values)

    return run


# -- the product ---------------------------------------------------------------------------------------
def _mma(m: Machine, pc: int, i: Instruction) -> Run:
    """Build wmma.mma. Its types are those of d and c for f16 inputs, else of d, a, b and c."""
    shape = shape_of(i)
    after = i.parts.index("m{}n{}k{}".format(*shape)) + 1
    types = [p for p in i.parts[after:] if p not in ("satfinite", "rn")]
    to, a_type, b_type, c_type = (types[0], "f16", "f16", types[1]) if len(types) == 2 else types
    rows, columns, depth = _checked_shape(i, a_type)
    target, *sources = i.operands
    sizes, types = ((rows, depth), (depth, columns), (rows, columns)), (a_type, b_type, c_type)
    reads = [reader(m, o, t) for o, t in zip(sources, types, strict=True)]
    element_positions = [positions(which, shape, t) for which, t in zip("abc", types, strict=True)]
    write = writer(m, target, to)
    saturate = "satfinite" in i.parts
    m.flops(pc, 2 * rows * columns * depth // 32, "flops_mma")

    def run() -> None:
        warps = active_warps(m)
        full = []
        for read, type_, size, at in zip(reads, types, sizes, element_positions, strict=True):
            matrix = np.empty((len(warps), *size))
            matrix[:, *at] = unpack(read(warps), type_)[..., : at[0].shape[1]]
            full.append(matrix)
        a, b, c = full
        write(warps, pack(multiply(a, b, c, to, saturate)[:, *element_positions[2]], to))

    return run


def wmma(m: Machine, pc: int, i: Instruction) -> Run:
    return {"load": _load, "store": _store, "mma": _mma}[i.parts[1]](m, pc, i)


BUILDERS = {"wmma": wmma}
