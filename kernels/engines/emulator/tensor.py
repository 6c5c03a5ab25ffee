"""Tensor-core instructions: ldmatrix, mma.sync, wmma. Fragments lie over a warp's lanes as the PTX ISA says.

Products are summed in float64 (integers exactly) and rounded once to the accumulator's type; hardware
keeps fewer bits on the way, so the last digit may differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.access import Accessor, space_of
from kernels.engines.emulator.counters import BANKS, SECTOR_BITS, WORD_BITS, distinct
from kernels.engines.emulator.decode import Unknown
from kernels.engines.emulator.memory import Fault
from kernels.engines.emulator.parse import Instruction, Operand, type_bytes
from kernels.engines.emulator.table import DTYPES, UNSIGNED, from_bf16, to_bf16

if TYPE_CHECKING:
    from kernels.engines.emulator.decode import Run
    from kernels.engines.emulator.machine import Machine

LANE = np.arange(32)
GROUP, WITHIN = LANE // 4, LANE % 4  # the ISA's groupID and threadID_in_group
# (shape, type of a and b): the accumulator types known.
MMA = {
    ("m16n8k8", "f16"): ("f16", "f32"), ("m16n8k16", "f16"): ("f16", "f32"),
    ("m16n8k8", "bf16"): ("f32",), ("m16n8k16", "bf16"): ("f32",),
    ("m16n8k4", "tf32"): ("f32",), ("m16n8k8", "tf32"): ("f32",),
    ("m16n8k16", "s8"): ("s32",), ("m16n8k16", "u8"): ("s32",),
    ("m16n8k32", "s8"): ("s32",), ("m16n8k32", "u8"): ("s32",),
    ("m8n8k4", "f64"): ("f64",),
}  # fmt: skip
WMMA_SHAPES = {
    **dict.fromkeys(("f16", "bf16", "s8", "u8"), ("m16n16k16", "m32n8k16", "m8n32k16")),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
}


def _shape(i: Instruction) -> tuple[int, int, int]:
    name = next((p for p in i.parts if re.fullmatch(r"m\d+n\d+k\d+", p)), None)
    if name is None:
        raise Unknown(f"unknown opcode {i.opcode}")
    return tuple(int(n) for n in re.findall(r"\d+", name))


def _warps(m: Machine) -> np.ndarray:
    """The warps that take part, whole as these instructions demand."""
    return np.arange(m.slots // 32) if m.am is None else np.flatnonzero(m.am.reshape(-1, 32).any(axis=1))


def _spread(m: Machine, warps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(warps that take part, 32) into slots."""
    out = np.zeros((m.slots // 32, 32), values.dtype)
    out[warps] = values
    return out.reshape(-1)


# -- numbers in registers ------------------------------------------------------------------------------
def unpack(bits: np.ndarray, type_: str) -> np.ndarray:
    """Register contents (..., registers) to float64 values (..., values): a register's lowest bits first."""
    if type_ == "tf32":  # the hardware does not look at the low 13 bits
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    bits = np.ascontiguousarray(bits)
    if type_ == "bf16":
        return from_bf16(bits.view(np.uint16)).astype(np.float64)
    return bits.view(DTYPES[type_]).astype(np.float64)


def pack(values: np.ndarray, type_: str, register: type) -> np.ndarray:
    """float64 values to register contents, rounded to the type."""
    if type_ == "bf16":
        return np.ascontiguousarray(to_bf16(values)).view(register)
    return np.ascontiguousarray(values.astype(DTYPES[type_])).view(register)


def _registers(m: Machine, o: Operand, type_: str):
    """A reader of a fragment's registers: (warps, 32, registers) of their bits."""
    word = "f64" if type_ == "f64" else "f32" if type_ == "f32" else "b32"
    bits = UNSIGNED[type_bytes(word)]
    reads = [m.reader(r, word) for r in (o.value if o.kind == "vector" else (o,))]

    def read(warps: np.ndarray) -> np.ndarray:
        return np.stack(
            [np.broadcast_to(r(), m.slots).reshape(-1, 32)[warps].view(bits) for r in reads], axis=-1
        )

    return read


def _writers(m: Machine, o: Operand, type_: str):
    """Puts (warps, 32, registers) of bits."""
    word = "b64" if type_ == "f64" else "b32"
    puts = [m.writer(r, word) for r in (o.value if o.kind == "vector" else (o,))]

    def write(warps: np.ndarray, bits: np.ndarray) -> None:
        for n, put in enumerate(puts):
            put(_spread(m, warps, bits[..., n]))

    return write


def _multiply(a, b, c, type_: str, saturate: bool) -> np.ndarray:
    out = a @ b + c  # integers: below 2^53, so exact
    if type_ != "s32":
        return out
    info = np.iinfo(np.int32)
    return np.clip(out, info.min, info.max) if saturate else out.astype(np.int64).astype(np.int32)


# -- ldmatrix ---------------------------------------------------------------------------------------------
def ldmatrix(m: Machine, pc: int, i: Instruction) -> Run:
    """8x8 matrices of 16-bit elements; lanes 8j .. 8j+7 hold the addresses of matrix j's rows."""
    parts = i.parts
    count = next((int(p[1:]) for p in parts if p in ("x1", "x2", "x4")), 0)
    if not count or "m8n8" not in parts or parts[-1] != "b16":
        raise Unknown(f"unknown opcode {i.opcode}")
    target, source = i.operands
    puts = [m.writer(r, "b32") for r in (target.value if target.kind == "vector" else (target,))]
    at = Accessor(m, pc, source, space_of(i), 16)
    # Each lane gets two neighbours of a row: row lane / 4, columns 2 (lane % 4) and one more.
    row, column = np.stack([GROUP, GROUP]), 2 * WITHIN + np.array([[0], [1]])
    if "trans" in parts:
        row, column = column, row
    supplies = np.tile(np.arange(32) // 8 < count, m.slots // 32)

    def run() -> None:
        warps = _warps(m)
        am = m.am
        m.am = supplies if am is None else am & supplies
        try:
            memory, name, offsets, _ = at.checked(write=False)
            at.count("ld", name, offsets)
        finally:
            m.am = am
        rows = offsets.reshape(-1, 32)[warps, : 8 * count].reshape(-1, count, 8)
        where = rows[:, :, row] + (2 * column).astype(np.uint64)  # (warps, matrices, 2, 32)
        values = memory.load(where, 2)
        for n, put in enumerate(puts):
            low, high = (values[:, n, half].astype(np.uint32) for half in (0, 1))
            put(_spread(m, warps, low | high << np.uint32(16)))
        if m.trace is not None:
            for n in range(count):
                for half in (0, 1):
                    got = _spread(m, warps, where[:, n, half]), _spread(m, warps, values[:, n, half])
                    m.trace.access(pc, name, got[0], m.active(got[1]), np.float16, False)

    return run


# -- mma.sync ---------------------------------------------------------------------------------------------
def _a_places(rows: int, registers: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of A of each lane's values, (32, values): registers alternate between the upper and
    the lower eight rows, then go 4 lanes' values to the right."""
    halves = rows // 8
    r, v = np.divmod(np.arange(registers * each), each)
    row = GROUP[:, None] + 8 * (r % halves)
    column = WITHIN[:, None] * each + v + 4 * each * (r // halves)
    return row, column


def _b_places(registers: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    column, row = _a_places(8, registers, each)
    return row, column


def _c_places(rows: int) -> tuple[np.ndarray, np.ndarray]:
    v = np.arange(rows // 4)
    return GROUP[:, None] + 8 * (v // 2), 2 * WITHIN[:, None] + v % 2


def mma(m: Machine, pc: int, i: Instruction) -> Run:
    """d = a b + c: A's rows and B's columns are contiguous (row.col), D and C alike."""
    parts = i.parts
    rows, columns, depth = shape = _shape(i)
    to, a_type, b_type, c_type = parts[-4:]
    known = MMA.get((f"m{rows}n{columns}k{depth}", a_type), ())
    extra = set(parts[:-4]) - {
        "mma",
        "sync",
        "aligned",
        "row",
        "col",
        "satfinite",
        "m{}n{}k{}".format(*shape),
    }
    same = a_type == b_type or {a_type, b_type} == {"s8", "u8"}
    if (
        to not in known
        or c_type not in known
        or not same
        or extra
        or "row" not in parts
        or "col" not in parts
    ):
        raise Unknown(f"unknown opcode {i.opcode}")
    each = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(a_type, 1)
    target, *sources = i.operands
    reads = [_registers(m, o, t) for o, t in zip(sources, (a_type, b_type, c_type), strict=True)]
    write = _writers(m, target, to)
    a_at = _a_places(rows, rows * depth // 32 // each, each)
    b_at = _b_places(depth * columns // 32 // each, each)
    c_at = _c_places(rows)
    register = np.uint64 if to == "f64" else np.uint32
    saturate = "satfinite" in parts
    m.flops(pc, 2 * rows * columns * depth // 32, "flops_mma")

    def run() -> None:
        warps = _warps(m)
        a, b, c = (unpack(r(warps), t) for r, t in zip(reads, (a_type, b_type, c_type), strict=True))
        A, B = np.empty((len(warps), rows, depth)), np.empty((len(warps), depth, columns))
        C = np.empty((len(warps), rows, columns))
        A[:, *a_at], B[:, *b_at], C[:, *c_at] = a, b, c
        D = _multiply(A, B, C, to, saturate)
        write(warps, pack(D[:, *c_at], to, register))

    return run


# -- wmma -------------------------------------------------------------------------------------------------
# Which lane holds which element is the hardware's secret, so any arrangement will do that loads, mma and
# stores share: a tile's elements, row by row, are dealt out lane after lane. Where a fragment has more room
# than elements (f16 as a and b) they go round again, so that arithmetic on all of x[] reaches each copy.


def _tile(i: Instruction, which: str) -> tuple[int, int]:
    rows, columns, depth = _shape(i)
    return {"a": (rows, depth), "b": (depth, columns), "c": (rows, columns), "d": (rows, columns)}[which]


def _held(shape: tuple[int, int], values: int) -> np.ndarray:
    """Flat element of the tile in each lane's values, (32, values)."""
    return (LANE[:, None] * values + np.arange(values)) % (shape[0] * shape[1])


def _wmma_values(o: Operand, type_: str) -> tuple[int, int]:
    """(values a lane holds, values a register holds)."""
    each = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(type_, 1)
    return each * (len(o.value) if o.kind == "vector" else 1), each


class _Tile:
    """The memory side of wmma.load and wmma.store."""

    def __init__(self, m: Machine, pc: int, i: Instruction, where: Operand, fragment: Operand, stride):
        self.m, self.pc = m, pc
        which, self.type = i.parts[2], i.parts[-1]
        rows, columns, depth = _shape(i)
        if which in "ab" and f"m{rows}n{columns}k{depth}" not in WMMA_SHAPES.get(self.type, ()):
            raise Unknown(f"unknown opcode {i.opcode}")
        shape = _tile(i, which)
        by_row = "row" in i.parts
        self.width = 4 if self.type in ("tf32", "s32") else type_bytes(self.type)
        self.bits = UNSIGNED[self.width]
        values, _ = _wmma_values(fragment, self.type)
        self.held = _held(shape, values)
        row, column = np.divmod(self.held, shape[1])
        self.line, self.along = (row, column) if by_row else (column, row)
        default = shape[1] if by_row else shape[0]
        self.stride = m.reader(stride, "u32") if stride is not None else lambda: np.uint32(default)
        self.at = Accessor(m, pc, where, space_of(i), self.width)

    def locate(self, write: bool):
        """(space, its name, taking-part warps, byte offsets of their lanes' elements)."""
        m = self.m
        warps = _warps(m)
        stride = np.broadcast_to(self.stride(), m.slots).reshape(-1, 32)[warps].astype(np.int64)
        inside = (self.line * stride[..., None] + self.along) * self.width
        self.at.width = self.width  # of one element: the tile's end is checked below
        space, name, offsets = self.at.locate()
        where = np.broadcast_to(offsets, m.slots).reshape(-1, 32)[warps][..., None] + inside.astype(np.uint64)
        flat = where.reshape(-1)
        lane = np.repeat(np.arange(len(warps) * 32), where.shape[-1])
        try:
            if name in ("shared", "local"):  # within the block's or the thread's own bytes
                base = m.shared_base if name == "shared" else m.local_base
                beyond = flat - np.repeat(base.reshape(-1, 32)[warps].reshape(-1), where.shape[-1])
                bad = np.flatnonzero(beyond >= space.size)
                if bad.size:
                    what = f"out-of-bounds access of {self.width} bytes at byte {beyond[bad[0]]} of {space.size} bytes of {space.name} memory"
                    raise Fault(what, int(bad[0]))
            space.check(flat, self.width, write)
        except Fault as fault:
            slots = (warps[:, None] * 32 + LANE).reshape(-1)
            m.fail(self.pc, fault.what, int(slots[lane[fault.at]]))
        self._count(name, warps, where, "st" if write else "ld")
        return space, name, warps, where

    def _count(self, name: str, warps: np.ndarray, where: np.ndarray, op: str) -> None:
        """An approximation, since lanes' addresses are not known: one request a warp, each sector or
        shared word once, wavefronts by the fullest bank."""
        m = self.m
        if name == "shared" and m.races is not None:
            am = m.am
            for n in range(where.shape[-1]):
                # A store's copies of an element would look like two threads writing it.
                m.am = _spread(m, warps, np.broadcast_to(self.first()[:, n], where.shape[:2]))
                m.am = m.am if am is None else m.am & am
                if m.am.any():
                    m.races.access(self.pc, _spread(m, warps, where[..., n]), self.width, op == "st")
            m.am = am
        if m.tally is None or name not in ("global", "shared"):
            return
        flat = where.reshape(len(warps), -1)
        if name == "global":
            m.tally.add(self.pc, f"requests_{op}", len(warps))
            m.tally.add(self.pc, f"sectors_{op}", distinct(flat >> np.uint64(SECTOR_BITS), None))
            m.tally.add(self.pc, f"bytes_{op}", len(warps) * self.width * int(self.first().sum()))
            return
        fullest = ideal = 0
        for words in (np.unique(row >> np.uint64(WORD_BITS)) for row in flat):
            fullest += int(np.bincount((words % np.uint64(BANKS)).astype(int)).max())
            ideal += -(-len(words) // BANKS)
        m.tally.add(self.pc, f"shared_requests_{op}", len(warps))
        m.tally.add(self.pc, f"wavefronts_{op}", fullest)
        m.tally.add(self.pc, f"bank_conflicts_{op}", fullest - ideal)

    def first(self) -> np.ndarray:
        """(32, values): whether a value is the first copy of its element."""
        first = np.zeros(self.held.size, bool)
        first[np.unique(self.held.reshape(-1), return_index=True)[1]] = True
        return first.reshape(self.held.shape)

    def tell(self, name: str, warps: np.ndarray, where: np.ndarray, values: np.ndarray, write: bool) -> None:
        """The trace shows each lane at the elements it holds here."""
        m = self.m
        if m.trace is None:
            return
        dtype = np.float32 if self.type == "tf32" else DTYPES[self.type]
        for n in range(where.shape[-1]):
            got = m.active(_spread(m, warps, values[..., n]))
            m.trace.access(self.pc, name, _spread(m, warps, where[..., n]), got, dtype, write)


def wmma(m: Machine, pc: int, i: Instruction) -> Run:
    return {"load": _wmma_load, "store": _wmma_store, "mma": _wmma_mma}[i.parts[1]](m, pc, i)


def _wmma_load(m: Machine, pc: int, i: Instruction) -> Run:
    fragment, where, *stride = i.operands
    tile = _Tile(m, pc, i, where, fragment, stride[0] if stride else None)
    register = np.uint64 if tile.type == "f64" else np.uint32
    write = _writers(m, fragment, tile.type)

    def run() -> None:
        space, name, warps, at = tile.locate(write=False)
        values = space.load(at, tile.width)
        tile.tell(name, warps, at, values, False)
        write(warps, np.ascontiguousarray(values).view(register))

    return run


def _wmma_store(m: Machine, pc: int, i: Instruction) -> Run:
    where, fragment, *stride = i.operands
    tile = _Tile(m, pc, i, where, fragment, stride[0] if stride else None)
    read = _registers(m, fragment, tile.type)

    def run() -> None:
        space, name, warps, at = tile.locate(write=True)
        values = np.ascontiguousarray(read(warps)).view(tile.bits)
        space.store(at, tile.width, values)
        tile.tell(name, warps, at, values, True)

    return run


def _wmma_mma(m: Machine, pc: int, i: Instruction) -> Run:
    """wmma.mma: types are those of d and c for f16 inputs, else of d, a, b and c."""
    shape = _shape(i)
    rest = [
        p for p in i.parts[i.parts.index("m{}n{}k{}".format(*shape)) + 1 :] if p not in ("satfinite", "rn")
    ]
    if len(rest) == 2:
        to, c_type, a_type = rest[0], rest[1], "f16"
        b_type = a_type
    else:
        to, a_type, b_type, c_type = rest
    if "m{}n{}k{}".format(*shape) not in WMMA_SHAPES.get(a_type, ()):
        raise Unknown(f"unknown opcode {i.opcode}")
    types = (a_type, b_type, c_type)
    target, *sources = i.operands
    reads = [_registers(m, o, t) for o, t in zip(sources, types, strict=True)]
    write = _writers(m, target, to)
    tiles = [_tile(i, which) for which in "abc"]
    held = [_held(tile, _wmma_values(o, t)[0]) for tile, o, t in zip(tiles, sources, types, strict=True)]
    out = _held(tiles[2], _wmma_values(target, to)[0])
    register = np.uint64 if to == "f64" else np.uint32
    saturate = "satfinite" in i.parts
    m.flops(pc, 2 * shape[0] * shape[1] * shape[2] // 32, "flops_mma")

    def run() -> None:
        warps = _warps(m)
        full = []
        for read, type_, tile, at in zip(reads, types, tiles, held, strict=True):
            flat = np.empty((len(warps), tile[0] * tile[1]))
            flat[:, at] = unpack(read(warps), type_)
            full.append(flat.reshape(-1, *tile))
        D = _multiply(*full, to, saturate).reshape(len(warps), -1)
        write(warps, pack(D[:, out], to, register))

    return run


BUILDERS = {"ldmatrix": ldmatrix, "mma": mma, "wmma": wmma}
