"""Instructions of a warpgroup, four warps: wgmma, the product of matrices in shared memory, and setmaxnreg.

Each warp computes 16 of the product's 64 rows. Products are summed in float64 and rounded once to the accumulator's
type. The hardware's intermediate sums have fewer bits. Those of e4m3 with FP32 accumulators have as few bits here
(kernels.model.fp8_sums).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from kernels.engines.emulator.events import Kind, Product
from kernels.engines.emulator.instructions import fp8
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.instructions.fragments import (
    active_warps,
    pack,
    positions,
    reader,
    registers,
    shape_of,
    unpack,
    writer,
)
from kernels.engines.emulator.memory import Fault
from kernels.engines.emulator.operations.dtypes import from_bf16
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine, needed
from kernels.engines.emulator.swizzle import swizzled
from kernels.model import fp8_sums

WARPS = 4  # of a warpgroup
ROWS = 16  # of a warp, of 64
# The type of the factors: their bytes, the depth of a product, the types of the accumulators.
TYPES = {
    "f16": (2, 16, ("f16", "f32")),
    "bf16": (2, 16, ("f32",)),
    "tf32": (4, 8, ("f32",)),
    "e4m3": (1, 32, ("f16", "f32")),
    "e5m2": (1, 32, ("f16", "f32")),
    "s8": (1, 32, ("s32",)),
    "u8": (1, 32, ("s32",)),
}
ZERO, NOTHING = np.uint32(0), np.zeros((0, 0))  # an accumulator, and a factor, if all values are zero
_ROW_BYTES = {0: 0, 1: 128, 2: 64, 3: 32}  # of a swizzled row, by the mode in a descriptor


# -- matrices in shared memory ----------------------------------------------------------------------------
@lru_cache(maxsize=512)
def offsets(descriptor: int, extent: int, depth: int, item: int, transposed: bool) -> np.ndarray:
    """Returns the bytes in the block's shared memory of a matrix [extent, depth] with elements of `item` bytes.

    A descriptor has the address, two strides and the swizzle (PTX ISA, "Matrix descriptor"). In a `transposed` matrix,
    neighbours along `extent` are adjacent, otherwise neighbours along `depth`.
    """
    start, leading, stride = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32))
    row_bytes = _ROW_BYTES[descriptor >> 62]
    row, k = np.arange(extent)[:, None], np.arange(depth)
    if transposed:
        along, across, (outer, group) = row * item, k, (leading, stride)
    else:
        along, across, (outer, group) = k * item, row, (leading, stride)
    if row_bytes:  # rows of 32, 64 or 128 bytes, eight of them to a group
        at = start + along // row_bytes * outer + across // 8 * group
        return swizzled(at + across % 8 * row_bytes + along % row_bytes, row_bytes)
    if transposed:
        outer, group = stride, leading
    at = start + along // 16 * outer + across // 8 * group
    return at + across % 8 * 16 + along % 16


@lru_cache(maxsize=512)
def _units(descriptor: int, extent: int, depth: int, item: int, transposed: bool) -> np.ndarray:
    """Returns the units of 16 bytes of a matrix, in order."""
    return np.unique(offsets(descriptor, extent, depth, item, transposed) >> 4).astype(np.uint64)


def _values(bits: np.ndarray, type_: str) -> np.ndarray:
    """Returns float64 values of elements, which are unsigned integers of their width."""
    if type_ == "bf16":
        return from_bf16(bits).astype(np.float64)
    if type_ in fp8.FINITE:
        return fp8.decoded(bits, type_).astype(np.float64)
    if type_ == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return bits.view({"f16": np.float16, "s8": np.int8, "u8": np.uint8}[type_]).astype(np.float64)


class _Product:
    """One wgmma.mma_async."""

    def __init__(self, m: Machine, pc: int, i: Instruction):
        self.m, self.pc, self.i = m, pc, i
        rows, self.columns, self.depth = shape_of(i)
        self.to, self.a_type, self.b_type = i.parts[-3:]
        self.item, depth, accumulators = TYPES[self.a_type]
        known = {"wgmma", "mma_async", "sync", "aligned", "satfinite", f"m64n{self.columns}k{depth}"}
        fits = rows == 64 and self.depth == depth and self.columns % 8 == 0 and self.columns <= 256
        if not (fits and self.to in accumulators and set(i.parts[:-3]) <= known):
            raise Unknown(f"unknown opcode {i.opcode}")
        if TYPES[self.b_type][0] != self.item:
            raise Unknown(f"unknown opcode {i.opcode}")
        target, a, b, scale, *numbers = i.operands
        signs = [o.number for o in numbers[:2]] or [1, 1]
        self.sign = signs[0] * signs[1]
        transposes = [bool(o.value) for o in numbers[2:]]
        self.a_in_registers = a.kind == "vector"
        self.transpose_b = transposes.pop() if transposes else False
        self.transpose_a = transposes.pop() if transposes else False
        shape = (ROWS, self.columns, self.depth)
        self.read, self.write = reader(m, target, self.to), writer(m, target, self.to)
        self.puts = [m.writer(r, "b32") for r in registers(target)]
        self.at = positions("c", shape, self.to)
        if self.a_in_registers:
            self.read_a, self.a_at = reader(m, a, self.a_type), positions("a", shape, self.a_type)
        else:
            self.a = m.reader(a, "u64")
        self.b, self.scale = m.reader(b, "u64"), m.reader(scale, "pred")
        self.registers: np.ndarray | None = None  # their numbers
        self.spans: dict[tuple[str, int], tuple[int, int]] = {}
        m.flops(pc, 2 * 64 * self.columns * self.depth // 128, "flops_mma")

    def run(self) -> None:
        m, warps = self.m, active_warps(self.m)
        if self.registers is None:
            self.registers = needed(m.products).registers_of(self.i)
        needed(m.products).issue(self.pc, self.registers, warps)
        a = None if self.a_in_registers else self._of_warps(self.a(), warps)
        b = self._of_warps(self.b(), warps)
        factors = self._factors(warps, a, b)
        if m.zeros:
            for put in self.puts:
                put(ZERO)
        else:
            self.write(warps, pack(self._sums(warps, factors)[:, *self.at], self.to))
        if m.trace is not None:
            pairs = zip(a or [None] * len(b), b, strict=True)
            m.trace.events.issued(self.pc, warps.tolist(), [self._event(*pair) for pair in pairs])

    def _factors(
        self, warps: np.ndarray, a: list[int] | None, b: list[int]
    ) -> list[tuple[np.ndarray | None, np.ndarray]]:
        """Returns each warp's rows of A, if they are in shared memory, and B. Their bytes are checked."""
        m, found = self.m, []
        matrices: dict[tuple, np.ndarray] = {}
        for n, row in enumerate(warps.tolist()):
            block, warp = int(m.block_of[row * 32]), int(m.thread_of[row * 32]) // 32
            self._check_group(row, warp)

            def matrix(side: str, descriptor: int, block=block, row=row, warp=warp) -> np.ndarray:
                key = (side, block, warp // WARPS, descriptor)
                if key not in matrices:
                    matrices[key] = self._matrix(side, descriptor, block, row)
                return matrices[key]

            part = warp % WARPS * ROWS
            left = None if a is None else matrix("a", a[n])[part : part + ROWS]
            found.append((left, matrix("b", b[n])))
        return found

    def _sums(self, warps: np.ndarray, factors: list[tuple[np.ndarray | None, np.ndarray]]) -> np.ndarray:
        """Returns the accumulators of each warp after the product: [warps, 16, columns]."""
        sums = np.zeros((len(warps), ROWS, self.columns))
        scale = np.broadcast_to(self.scale(), self.m.slots)[warps * 32]
        if scale.any():
            old = unpack(self.read(warps), self.to)
            sums[:, *self.at] = np.where(scale[:, None, None], old, 0)
        fragments = self._fragments(warps) if self.a_in_registers else [None] * len(warps)
        for n, (left, right) in enumerate(factors):
            sums[n] = self._added(sums[n], needed(fragments[n] if left is None else left), right)
        return self._whole(sums) if self.to == "s32" else sums

    def _added(self, sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Returns sums [16, columns] plus the product of a [16, depth] and b [columns, depth], as float64."""
        if (self.a_type, self.b_type, self.to) == ("e4m3", "e4m3", "f32"):
            return fp8_sums.added(sums, self.sign * a[:, None], b)
        return sums + self.sign * (a @ b.T)

    def _event(self, a: int | None, b: int) -> Product:
        """Returns a product with these descriptors as the trace has it."""
        of_a = None if a is None else self._span("a", a)
        return Product(of_a, self._span("b", b), self.columns, self.depth)

    def _span(self, side: str, descriptor: int) -> tuple[int, int]:
        """Returns the first byte of a factor in the block's shared memory, and the one after its last."""
        found = self.spans.get((side, descriptor))
        if found is None:
            inside = self._inside(side, descriptor)
            found = self.spans[side, descriptor] = int(inside.min()), int(inside.max()) + self.item
        return found

    def _whole(self, sums: np.ndarray) -> np.ndarray:
        info = np.iinfo(np.int32)
        if "satfinite" in self.i.parts:
            return np.clip(sums, info.min, info.max)
        return sums.astype(np.int64).astype(np.int32)

    def _of_warps(self, descriptors: np.ndarray, warps: np.ndarray) -> list[int]:
        """Returns the descriptor of each warp, which all its lanes must have."""
        m = self.m
        lanes = np.broadcast_to(descriptors, m.slots).reshape(-1, 32)[warps]
        bad = np.flatnonzero((lanes != lanes[:, :1]).any(axis=1))
        if bad.size:
            m.fail(self.pc, "the lanes of a warp have different descriptors", int(warps[bad[0]]) * 32)
        return lanes[:, 0].tolist()

    def _fragments(self, warps: np.ndarray) -> np.ndarray:
        out = np.empty((len(warps), ROWS, self.depth))
        out[:, *self.a_at] = unpack(self.read_a(warps), self.a_type)
        return out

    def _check_group(self, row: int, warp: int) -> None:
        m = self.m
        threads = math.prod(m.block)
        if (warp // WARPS + 1) * WARPS * 32 > threads:
            m.fail(self.pc, f"a block of {threads} threads has no whole warpgroup {warp // WARPS}", row * 32)

    def _matrix(self, side: str, descriptor: int, block: int, row: int) -> np.ndarray:
        """Returns a factor as float64 [64 or columns, depth]."""
        m, inside, (_, stop) = self.m, self._inside(side, descriptor), self._span(side, descriptor)
        if stop > m.shared.size:
            message = (
                f"the matrix extends to byte {stop - self.item} of the block's {m.shared.size:,} bytes of shared memory"
            )
            m.fail(self.pc, message, row * 32)
        at = (inside + block * m.shared.size).astype(np.uint64)
        try:
            m.shared.check(at.reshape(-1), self.item, write=False)
        except Fault as fault:
            m.fail(self.pc, fault.description, row * 32)
        needed(m.proxies).check(self.pc, at, row * 32)
        needed(m.products).reads(
            self.pc, _units(descriptor, *self._extent(side)) + np.uint64(block * m.shared.size >> 4), row
        )
        if m.zeros:
            return NOTHING
        return _values(m.shared.load(at, self.item), self.a_type if side == "a" else self.b_type)

    def _extent(self, side: str) -> tuple[int, int, int, bool]:
        extent, transposed = (64, self.transpose_a) if side == "a" else (self.columns, self.transpose_b)
        return extent, self.depth, self.item, transposed

    def _inside(self, side: str, descriptor: int) -> np.ndarray:
        """Returns the bytes of a factor's elements in the block's shared memory."""
        if descriptor >> 49 & 7:
            raise Unknown("a base offset in a matrix descriptor is not emulated")
        return offsets(descriptor, *self._extent(side))


def multiply(m: Machine, pc: int, i: Instruction) -> Run:
    return _Product(m, pc, i).run


def fence(m: Machine, pc: int, i: Instruction) -> Run:
    return needed(m.products).fence


def commit(m: Machine, pc: int, i: Instruction) -> Run:
    products = needed(m.products)

    def run() -> None:
        products.commit()
        if m.trace is not None:
            m.trace.events.active(Kind.CLOSE_PRODUCTS, pc)

    return run


def wait(m: Machine, pc: int, i: Instruction) -> Run:
    products, pending = needed(m.products), i.operands[0].number

    def run() -> None:
        products.wait(pending)
        if m.trace is not None:
            m.trace.events.active(Kind.WAIT_PRODUCTS, pc, pending)

    return run


def set_registers(m: Machine, pc: int, i: Instruction) -> Run:
    """Build setmaxnreg: how many registers each thread of a warpgroup may use from here on."""
    count = i.operands[0].number
    if count % 8 or not 24 <= count <= 256:
        raise Unknown(f"setmaxnreg takes 24 to 256 registers in steps of 8, not {count}")
    pool = needed(m.register_pool)
    return lambda: pool.set(pc, count, "inc" in i.parts)


BUILDERS = {
    "wgmma.mma_async": multiply,
    "wgmma.fence": fence,
    "wgmma.commit_group": commit,
    "wgmma.wait_group": wait,
    "setmaxnreg": set_registers,
}
