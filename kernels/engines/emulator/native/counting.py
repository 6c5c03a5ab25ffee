"""Sectors and wavefronts of one warp's access, as `counters` defines them for many: functions that handlers call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from kernels.engines.emulator.counters import BANKS, SECTOR_BITS, WORD_BITS
from kernels.engines.emulator.native.emit import I1, I8, I32, I64, constant, each_bit, vector
from kernels.engines.emulator.native.record import LANES

SECTORS, WAVEFRONTS = "kernel_theatre_sectors", {width: f"kernel_theatre_wavefronts{width}" for width in (4, 8, 16)}
NAMES = (SECTORS, *WAVEFRONTS.values())
_SIGNATURE = ir.FunctionType(I64, [I64.as_pointer(), I32])  # offsets of the lanes, active lanes


def add_to(module: ir.Module) -> None:
    """Add a function that returns sectors, and those that return wavefronts with the fewest possible in the upper half."""
    _sectors(module)
    group = _group(module)
    for width in (4, 8, 16):
        _wavefronts(module, group, width)


def _start(module: ir.Module, name: str, type_: ir.FunctionType) -> tuple[ir.Function, Any]:
    f = ir.Function(module, type_, name)
    return f, ir.IRBuilder(f.append_basic_block())


@contextmanager
def _find(b: Any, at: ir.Value, entries: ir.Value, count: ir.Value, value: ir.Value) -> Iterator[None]:
    """Runs its body if `value` is not among the `count` entries. `at`: a variable."""
    head, body, absent, end = (b.append_basic_block(name) for name in ("search", "compare", "absent", "found"))
    b.store(I64(0), at)
    b.branch(head)
    b.position_at_end(head)
    k = b.load(at)
    b.cbranch(b.icmp_unsigned("<", k, count), body, absent)
    b.position_at_end(body)
    b.store(b.add(k, I64(1)), at)
    b.cbranch(b.icmp_unsigned("==", b.load(b.gep(entries, [k])), value), end, head)
    b.position_at_end(absent)
    yield
    b.branch(end)
    b.position_at_end(end)


def _sectors(module: ir.Module) -> None:
    f, b = _start(module, SECTORS, _SIGNATURE)
    offsets, mask = f.args
    entries, count, at, rest = (b.alloca(t) for t in (ir.ArrayType(I64, LANES), I64, I64, I32))
    b.store(I64(0), count)
    first = b.gep(entries, [I64(0), I64(0)])
    with each_bit(b, rest, mask) as lane:
        sector = b.lshr(b.load(b.gep(offsets, [lane])), I64(SECTOR_BITS))
        n = b.load(count)
        with _find(b, at, first, n, sector):
            b.store(sector, b.gep(first, [n]))
            b.store(b.add(n, I64(1)), count)
    b.ret(b.load(count))


def _group(module: ir.Module) -> ir.Function:
    """Returns a function that returns the wavefronts of lanes that form one group: as many as the fullest bank has words."""
    f, b = _start(module, "group", ir.FunctionType(I64, [I64.as_pointer(), I32, I64]))
    offsets, mask, wide = f.args
    entries, counts = b.alloca(ir.ArrayType(I64, BANKS * LANES)), b.alloca(vector(I8, BANKS))
    most, at, rest, part = (b.alloca(t) for t in (I64, I64, I32, I64))
    b.store(constant(0, I8, BANKS), counts)
    b.store(I64(0), most)
    of_bank = b.bitcast(counts, I8.as_pointer())
    with each_bit(b, rest, mask) as lane:
        start = b.and_(b.lshr(b.load(b.gep(offsets, [lane])), I64(WORD_BITS)), b.sub(I64(0), wide))
        b.store(I64(0), part)
        loop, after = b.append_basic_block("words"), b.append_basic_block("after")
        b.branch(loop)
        b.position_at_end(loop)
        word = b.add(start, b.load(part))
        bank = b.and_(word, I64(BANKS - 1))
        place = b.gep(of_bank, [bank])
        n = b.zext(b.load(place), I64)
        first = b.gep(entries, [I64(0), b.mul(bank, I64(LANES))])
        with _find(b, at, first, n, word):
            b.store(word, b.gep(first, [n]))
            more = b.add(n, I64(1))
            b.store(b.trunc(more, I8), place)
            b.store(b.select(b.icmp_unsigned(">", more, b.load(most)), more, b.load(most)), most)
        now = b.add(b.load(part), I64(1))
        b.store(now, part)
        b.cbranch(b.icmp_unsigned("<", now, wide), loop, after)
        b.position_at_end(after)
    b.ret(b.load(most))
    return f


def _wavefronts(module: ir.Module, group: ir.Function, width: int) -> None:
    f, b = _start(module, WAVEFRONTS[width], _SIGNATURE)
    offsets, mask = f.args
    wide = width // 4
    if width == 4:
        b.ret(b.or_(b.call(group, [offsets, mask, I64(1)]), I64(1 << 32)))
        return
    total = b.alloca(I64)
    b.store(I64(0), total)
    span = 256 // width
    words = b.load(b.bitcast(offsets, vector(I64).as_pointer()), align=1)
    words = b.and_(words, constant(-width, I64))
    active = b.bitcast(mask, vector(I1))

    def add(lanes: ir.Value) -> None:
        with b.if_then(b.icmp_unsigned("!=", lanes, I32(0))):
            waves = b.call(group, [offsets, lanes, I64(wide)])
            b.store(b.add(b.load(total), b.add(waves, I64(1 << 32))), total)

    differ = []
    for distance in (1, 2):
        order = constant([lane ^ distance for lane in range(LANES)], I32)
        other, both = b.shuffle_vector(words, words, order), b.and_(active, b.shuffle_vector(active, active, order))
        differ.append(b.bitcast(b.and_(b.icmp_unsigned("!=", words, other), both), I32))
    for start in range(0, LANES, span):
        lanes = I32((1 << span) - 1 << start & 0xFFFFFFFF)
        apart = [b.icmp_unsigned("!=", b.and_(bits, lanes), I32(0)) for bits in differ]
        here = b.and_(mask, lanes)
        with b.if_else(b.and_(*apart)) as (separate, together):
            with separate:
                low = I32((1 << span // 2) - 1 << start)
                add(b.and_(here, low))
                add(b.and_(here, b.not_(low)))
            with together:
                add(here)
    b.ret(b.load(total))
