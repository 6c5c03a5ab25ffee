"""Tensor-core instructions: ldmatrix, mma.sync, wmma. Fragments are distributed over a warp's lanes as in the PTX ISA.

Products are summed in float64 (integers exactly) and rounded once to the accumulator's type. The hardware's
intermediate sums have fewer bits, so the last digit may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from kernels.engines.emulator.instructions import wmma
from kernels.engines.emulator.instructions.accessor import Accessor, space_of
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.instructions.fragments import (
    GROUP,
    WITHIN,
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
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine

# (shape, type of a and b): the supported accumulator types.
MMA = {
    ("m16n8k8", "f16"): ("f16", "f32"),
    ("m16n8k16", "f16"): ("f16", "f32"),
    ("m16n8k8", "bf16"): ("f32",),
    ("m16n8k16", "bf16"): ("f32",),
    ("m16n8k4", "tf32"): ("f32",),
    ("m16n8k8", "tf32"): ("f32",),
    ("m16n8k16", "s8"): ("s32",),
    ("m16n8k16", "u8"): ("s32",),
    ("m16n8k32", "s8"): ("s32",),
    ("m16n8k32", "u8"): ("s32",),
    ("m16n8k32", "s4"): ("s32",),
    ("m16n8k32", "u4"): ("s32",),
    ("m16n8k64", "s4"): ("s32",),
    ("m16n8k64", "u4"): ("s32",),
    ("m16n8k32", "e4m3"): ("f32",),
    ("m16n8k32", "e5m2"): ("f32",),
    ("m8n8k4", "f64"): ("f64",),
}
_MIXED = ({"s8", "u8"}, {"s4", "u4"}, {"e4m3", "e5m2"})  # types that A and B may have, one each


# -- ldmatrix and stmatrix --------------------------------------------------------------------------------
class _Matrices:
    """The 8x8 matrices of 16-bit elements of an instruction. Lanes 8j .. 8j+7 hold the addresses of matrix j's rows. Each lane
    has two neighbouring elements of a matrix: row lane / 4, columns 2 (lane % 4) and the next; `trans` swaps both."""

    def __init__(self, m: Machine, pc: int, i: Instruction, memory: Operand):
        self.count = next((int(p[1:]) for p in i.parts if p in ("x1", "x2", "x4")), 0)
        if not self.count or "m8n8" not in i.parts or i.parts[-1] != "b16":
            raise Unknown(f"unknown opcode {i.opcode}")
        self._machine, self.access = m, Accessor(m, pc, memory, space_of(i), 16)
        self.row, self.column = np.stack([GROUP, GROUP]), 2 * WITHIN + np.array([[0], [1]])
        if "trans" in i.parts:
            self.row, self.column = self.column, self.row
        self._address_lanes = np.tile(np.arange(32) // 8 < self.count, m.slots // 32)

    @contextmanager
    def address_lanes(self) -> Iterator[None]:
        """Makes only the lanes active that hold addresses."""
        m, active_mask = self._machine, self._machine.active_mask
        m.active_mask = self._address_lanes if active_mask is None else active_mask & self._address_lanes
        try:
            yield
        finally:
            m.active_mask = active_mask

    def rows_of(self, offsets: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """Returns the offsets of the rows, (warps, 8 * count)."""
        return offsets.reshape(-1, 32)[warps, : 8 * self.count]


def ldmatrix(m: Machine, pc: int, i: Instruction) -> Run:
    """Build ldmatrix."""
    target, source = i.operands
    puts = [m.writer(r, "b32") for r in registers(target)]
    of = _Matrices(m, pc, i, source)

    def run() -> None:
        warps = active_warps(m)
        with of.address_lanes():
            memory, name, offsets, _ = of.access.checked(write=False)
            of.access.count("ld", name, offsets)
        rows = of.rows_of(offsets, warps).reshape(-1, of.count, 8)
        element_offsets = rows[:, :, of.row] + (2 * of.column).astype(np.uint64)  # (warps, matrices, 2, 32)
        values = memory.load(element_offsets, 2)
        for n, put in enumerate(puts):
            low, high = (values[:, n, half].astype(np.uint32) for half in (0, 1))
            put(spread(m, warps, low | high << np.uint32(16)))
        if m.trace is not None:
            for n in range(of.count):
                for half in (0, 1):
                    traced = (spread(m, warps, element_offsets[:, n, half]), spread(m, warps, values[:, n, half]))
                    m.trace.access(pc, name, traced[0], m.active(traced[1]), np.float16, write=False)

    return run


def stmatrix(m: Machine, pc: int, i: Instruction) -> Run:
    """Build stmatrix, the opposite of ldmatrix."""
    target, source = i.operands
    reads = [m.reader(r, "b32") for r in registers(source)]
    of = _Matrices(m, pc, i, target)

    def run() -> None:
        warps = active_warps(m)
        rows = np.zeros((len(warps), of.count, 8, 8), np.uint16)
        with of.address_lanes():
            for n, read in enumerate(reads):
                words = np.broadcast_to(read(), m.slots).reshape(-1, 32)[warps]
                for half in (0, 1):
                    rows[:, n, of.row[half], of.column[half]] = (words >> np.uint32(16 * half)).astype(np.uint16)
            data = rows.reshape(-1, 8)
            memory, name, offsets, _ = of.access.checked(write=True)
            of.access.count("st", name, offsets)
            if (races := m.races.get(name)) is not None:
                races.write(pc, offsets, 16, data)
        at = of.rows_of(offsets, warps)
        memory.store(at[:, :, None] + 2 * np.arange(8, dtype=np.uint64), 2, data.reshape(len(warps), -1, 8))

    return run


# -- mma.sync ---------------------------------------------------------------------------------------------
def mma(m: Machine, pc: int, i: Instruction) -> Run:
    """Build d = a b + c. A's rows and B's columns are contiguous (row.col); D and C have the same layout."""
    rows, columns, depth = shape = shape_of(i)
    to, a_type, b_type, c_type = i.parts[-4:]
    if not _is_supported(i, shape):
        raise Unknown(f"unknown opcode {i.opcode}")
    target, *sources = i.operands
    reads = [reader(m, o, t) for o, t in zip(sources, (a_type, b_type, c_type), strict=True)]
    write = writer(m, target, to)
    a_at, b_at, c_at = (positions(which, shape, t) for which, t in zip("abc", (a_type, b_type, c_type), strict=True))
    saturate = "satfinite" in i.parts
    m.flops(pc, 2 * rows * columns * depth // 32, "flops_mma")

    def run() -> None:
        warps = active_warps(m)
        a, b, c = (unpack(r(warps), t) for r, t in zip(reads, (a_type, b_type, c_type), strict=True))
        A, B = np.empty((len(warps), rows, depth)), np.empty((len(warps), depth, columns))
        C = np.empty((len(warps), rows, columns))
        A[:, *a_at], B[:, *b_at], C[:, *c_at] = a, b, c
        D = multiply(A, B, C, to, saturate)
        write(warps, pack(D[:, *c_at], to))

    return run


def _is_supported(i: Instruction, shape: tuple[int, int, int]) -> bool:
    """Returns whether an mma.sync has a shape, types and modifiers of the table."""
    to, a_type, b_type, c_type = i.parts[-4:]
    name = "m{}n{}k{}".format(*shape)
    same = a_type == b_type or {a_type, b_type} in _MIXED
    modifiers = set(i.parts[:-4])
    known = {"mma", "sync", "aligned", "row", "col", "satfinite", name}
    return same and {to, c_type} <= set(MMA.get((name, a_type), ())) and {"row", "col"} <= modifiers <= known


BUILDERS = {"ldmatrix": ldmatrix, "stmatrix": stmatrix, "mma": mma, **wmma.BUILDERS}
