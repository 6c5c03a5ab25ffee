"""Integer operations: C's operators, bit fields, byte permutes, dot products of bytes."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.operations.dtypes import UNSIGNED


def div(a, b):
    """Divide as C does, towards zero. A division of integers by zero returns all ones, as on the hardware."""
    if np.issubdtype(a.dtype, np.floating):
        return a / b
    zero = b == 0
    if not np.any(zero):
        return (a - np.fmod(a, b)) // b
    safe = np.where(zero, 1, b).astype(b.dtype)
    quotient = (a - np.fmod(a, safe)) // safe
    return np.where(zero, a.dtype.type(-1) if a.dtype.kind == "i" else np.iinfo(a.dtype).max, quotient)


def rem(a, b):
    """Returns the remainder with the sign of a. For a divisor of zero it is all ones, as on an H200: PTX leaves it open."""
    zero = b == 0
    if not np.any(zero):
        return np.fmod(a, b)
    return np.where(zero, ~a.dtype.type(0), np.fmod(a, np.where(zero, 1, b).astype(b.dtype)))


def mul_hi(a, b):
    width = a.dtype.itemsize
    if width < 8:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(8 * width)).astype(a.dtype)
    # 64 x 64: by unsigned halves, then corrected for signs.
    mask, s = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & mask, x >> s, y & mask, y >> s
    mid = x1 * y0 + (x0 * y0 >> s)
    high = x1 * y1 + (mid >> s) + ((mid & mask) + x0 * y1 >> s)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def shl(a, count):
    bits = 8 * a.dtype.itemsize
    return np.where(count >= bits, a.dtype.type(0), a << np.minimum(count, bits - 1).astype(a.dtype))


def shr(a, count):
    bits = 8 * a.dtype.itemsize
    if a.dtype.kind == "i":
        return a >> np.minimum(count, bits - 1).astype(a.dtype)
    return np.where(count >= bits, a.dtype.type(0), a >> np.minimum(count, bits - 1).astype(a.dtype))


def _field(a, pos, length):
    """Returns a's bits, and a position and a length, at most that many. Of 32 bits, their lowest byte counts; of 64 bits
    they count whole: ptxas makes shifts of them, which the PTX ISA does not say."""
    bits = 8 * a.dtype.itemsize
    if bits == 32:
        pos, length = pos & 0xFF, length & 0xFF
    return bits, np.minimum(pos, bits), np.minimum(length, bits)


def bfe(a, pos, length):
    """Returns a field of `length` bits from `pos` on. Beyond the highest bit a signed one goes on with the field's sign."""
    bits, pos, length = _field(a, pos, length)
    u = a.view(UNSIGNED[a.dtype.itemsize])
    mask = (shl(np.ones_like(u), np.minimum(length, bits - pos)) - 1).astype(u.dtype)
    field = shr(u, pos) & mask
    if a.dtype.kind == "i":
        sign = shr(u, np.minimum(pos + np.maximum(length, 1) - 1, bits - 1)) & u.dtype.type(1)
        field = np.where((sign == 1) & (length > 0), field | ~mask, field)
    return field.astype(u.dtype).view(a.dtype)


def bfi(a, b, pos, length):
    _, pos, length = _field(b, pos, length)
    mask = shl((shl(np.ones_like(b), length) - 1).astype(b.dtype), pos)
    return ((b & ~mask) | (shl(a, pos) & mask)).astype(b.dtype)


def brev(a):
    out = np.zeros_like(a)
    for bit in range(8 * a.dtype.itemsize):
        out |= ((a >> a.dtype.type(bit)) & a.dtype.type(1)) << a.dtype.type(8 * a.dtype.itemsize - 1 - bit)
    return out


def popc(a):
    return np.bitwise_count(a).astype(np.uint32)


def clz(a):
    bits = 8 * a.dtype.itemsize
    u, n = (
        a.view(UNSIGNED[a.dtype.itemsize]).copy() if np.ndim(a) else np.asarray(a),
        np.zeros(np.shape(a), np.uint32),
    )
    found = np.zeros(np.shape(a), bool)
    for bit in range(bits - 1, -1, -1):
        found |= ((u >> u.dtype.type(bit)) & u.dtype.type(1)).astype(bool)
        n += ~found
    return n


def bfind(a):
    """Returns the position of the highest set bit (of a negative number: the highest zero); all ones for none."""
    u = (np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a).view(UNSIGNED[a.dtype.itemsize])
    return (np.uint32(8 * a.dtype.itemsize - 1) - clz(u)).astype(np.uint32)


def prmt(a, b, selector):
    """Permute bytes: four selector nibbles choose among the eight bytes of b:a; bit 3 replicates the sign."""
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    out = np.zeros(np.broadcast(a, b, selector).shape, np.uint32)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i)) & np.uint32(0xF)
        byte = (both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(np.uint32) & np.uint32(0xFF)
        sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        out |= np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * i)
    return out


def lop3(a, b, c, table: int):
    out = np.zeros(np.broadcast(a, b, c).shape, a.dtype)
    for row in range(8):
        if table >> row & 1:
            out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out


def shf(a, b, count, left: bool, wrap: bool):
    count = (count & np.uint32(31)) if wrap else np.minimum(count, np.uint32(32))
    both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    if left:
        return ((both << count.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
    return (both >> count.astype(np.uint64)).astype(np.uint32)


def _bytes(word, signed: bool):
    """Returns the four bytes of 32-bit words as int64, last axis of length 4."""
    raw = np.ascontiguousarray(np.atleast_1d(word)).view(np.int8 if signed else np.uint8)
    return raw.reshape(*np.shape(np.atleast_1d(word)), 4).astype(np.int64)


def fields(word, bits: int, signed: bool) -> list:
    """Returns the fields of `bits` bits of 32-bit words, lowest first, as int64."""
    wide = word.astype(np.int64)
    out = [wide >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [(v ^ 1 << bits - 1) - (1 << bits - 1) for v in out] if signed else out


def dp4a(a, b, c, a_signed: bool, b_signed: bool):
    """Returns c plus the dot product of four bytes."""
    total = (_bytes(a, a_signed) * _bytes(b, b_signed)).sum(axis=-1) + np.atleast_1d(c).astype(np.int64)
    total = total.astype(np.uint32)
    return total if np.ndim(a) or np.ndim(b) or np.ndim(c) else total[0]
