"""Matrix fragments: which lane of a warp holds which element, and the layout of numbers in its registers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from kernels.engines.emulator.instructions import fp8
from kernels.engines.emulator.instructions.closure import Unknown
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED, from_bf16, to_bf16
from kernels.engines.emulator.operations.integers import fields
from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.state import Machine

Positions = tuple[np.ndarray, np.ndarray]  # (row, column) of each lane's values, both [32, values]
LANE = np.arange(32)
GROUP, WITHIN = LANE // 4, LANE % 4  # the ISA's groupID and threadID_in_group
EACH = {
    "f16": 2,
    "bf16": 2,
    "s8": 4,
    "u8": 4,
    "e4m3": 4,
    "e5m2": 4,
    "s4": 8,
    "u4": 8,
}  # values in a register, if more than one


def shape_of(i: Instruction) -> tuple[int, int, int]:
    """Returns (rows, columns, depth) of an instruction's "m16n8k16"."""
    name = next((p for p in i.parts if re.fullmatch(r"m\d+n\d+k\d+", p)), None)
    if name is None:
        raise Unknown(f"unknown opcode {i.opcode}")
    rows, columns, depth = map(int, re.findall(r"\d+", name))
    return rows, columns, depth


# -- positions -----------------------------------------------------------------------------------------
def positions(which: str, shape: tuple[int, int, int], type_: str) -> Positions:
    """Returns the positions of the values of the fragment "a", "b", "c" or "d" of mma.sync.

    A larger shape, of wmma, consists of tiles of mma.sync's 16 rows or 8 columns, one after the other. m8n32k16 is
    m32n8k16 transposed, and so is its product.
    """
    rows, columns, depth = shape
    if (rows, columns) == (8, 32):
        row, column = positions({"a": "b", "b": "a"}.get(which, which), (32, 8, depth), type_)
        return column, row
    high, each = min(rows, 16), EACH.get(type_, 1)
    if which == "a":
        row, column = _a_tile(high, high * depth // 32 // each, each)
        return _concatenated((row + r, column) for r in range(0, rows, high))
    if which == "b":
        column, row = _a_tile(8, 8 * depth // 32 // each, each)
        return _concatenated((row, column + c) for c in range(0, columns, 8))
    v = np.arange(high // 4)
    row, column = GROUP[:, None] + 8 * (v // 2), 2 * WITHIN[:, None] + v % 2
    return _concatenated((row + r, column + c) for r in range(0, rows, high) for c in range(0, columns, 8))


def _a_tile(rows: int, registers: int, each: int) -> Positions:
    """Returns the positions of A's tile. Registers alternate between the upper and the lower eight rows, then move 4
    lanes' values to the right."""
    halves = rows // 8
    r, v = np.divmod(np.arange(registers * each), each)
    row = GROUP[:, None] + 8 * (r % halves)
    column = WITHIN[:, None] * each + v + 4 * each * (r // halves)
    return row, column


def _concatenated(tiles: Iterable[Positions]) -> Positions:
    rows, columns = zip(*(np.broadcast_arrays(*tile) for tile in tiles), strict=True)
    return np.concatenate(rows, axis=1), np.concatenate(columns, axis=1)


# -- numbers in registers ------------------------------------------------------------------------------
def unpack(bits: np.ndarray, type_: str) -> np.ndarray:
    """Returns float64 values (..., values) of register contents (..., registers): a register's lowest bits first."""
    if type_ == "tf32":  # the hardware ignores the low 13 bits
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    bits = np.ascontiguousarray(bits)
    if type_ == "bf16":
        return from_bf16(bits.view(np.uint16)).astype(np.float64)
    if type_ in fp8.FINITE:
        return fp8.decoded(bits.view(np.uint8), type_).astype(np.float64)
    if type_ in ("s4", "u4"):
        nibbles = np.stack(fields(bits, 4, type_ == "s4"), axis=-1)
        return nibbles.reshape(*bits.shape[:-1], -1).astype(np.float64)
    return bits.view(DTYPES[type_]).astype(np.float64)


def pack(values: np.ndarray, type_: str) -> np.ndarray:
    """Returns register contents (..., registers) of float64 values (..., values), rounded to the type."""
    register = np.uint64 if type_ == "f64" else np.uint32
    rounded = to_bf16(values) if type_ == "bf16" else values.astype(DTYPES[type_])
    return np.ascontiguousarray(rounded).view(register)


def reader(m: Machine, o: Operand, type_: str) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that reads a fragment's registers for given warps: bits [warps, 32, registers]."""
    word = "f64" if type_ == "f64" else "f32" if type_ == "f32" else "b32"
    bits = UNSIGNED[type_bytes(word)]
    reads = [m.reader(r, word) for r in registers(o)]

    def read(warps: np.ndarray) -> np.ndarray:
        out = np.empty((len(reads), len(warps), 32), bits)
        for row, r in zip(out, reads, strict=True):
            value = r().view(bits)
            row[:] = value if value.ndim == 0 else value.reshape(-1, 32)[warps]
        return out.transpose(1, 2, 0)

    return read


def writer(m: Machine, o: Operand, type_: str) -> Callable[[np.ndarray, np.ndarray], None]:
    """Returns a function that writes a fragment's registers for given warps: bits [warps, 32, registers]."""
    word = "b64" if type_ == "f64" else "b32"
    puts = [m.writer(r, word) for r in registers(o)]

    def write(warps: np.ndarray, bits: np.ndarray) -> None:
        out = np.zeros((len(puts), m.slots // 32, 32), bits.dtype)  # zero in the other slots
        out[:, warps] = bits.transpose(2, 0, 1)
        for put, values in zip(puts, out.reshape(len(puts), -1), strict=True):
            put(values)

    return write


def registers(o: Operand) -> tuple[Operand, ...]:
    """Returns the registers of a fragment: one, or those of a vector."""
    return o.elements


# -- warps and products --------------------------------------------------------------------------------
def active_warps(m: Machine) -> np.ndarray:
    """Returns the active warps. These instructions require whole warps."""
    return m.active_rows()


def spread(m: Machine, warps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns values of the active warps (warps, 32) in their slots, zero in the others."""
    out = np.zeros((m.slots // 32, 32), values.dtype)
    out[warps] = values
    return out.reshape(-1)


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, type_: str, saturate: bool) -> np.ndarray:
    """Returns a b + c of float64 matrices; of integers as s32, wrapped or clamped to its limits."""
    out = a @ b + c  # integers: below 2^53, so exact
    if type_ != "s32":
        return out
    info = np.iinfo(np.int32)
    return np.clip(out, info.min, info.max) if saturate else out.astype(np.int64).astype(np.int32)
