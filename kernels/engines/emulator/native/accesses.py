"""Loads and stores of a warp: addresses, checked and counted, and the bytes.

A handler returns 1, and has done nothing, if an access is not allowed, so that NumPy reports it. Most warps access 32
neighbouring elements or one; these need no loop over the lanes.

A space is 5 numbers: address of its bytes, of their states, bytes in all, bytes of one part, address of the offsets of the parts
(uint64, one a thread). Counts of an instruction are 3 numbers: for global memory requests, sectors, lanes; for shared memory
requests, wavefronts, wavefronts without conflicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from kernels.engines.emulator.counters import BANKS, SECTOR_BITS, WORD_BITS
from kernels.engines.emulator.memory import ALLOCATED, COMING, GLOBAL_BASE, LEAVING, WRITTEN
from kernels.engines.emulator.native import racing
from kernels.engines.emulator.native.counting import SECTORS, WAVEFRONTS
from kernels.engines.emulator.native.emit import I1, I8, I16, I32, I64, Emitter, constant, vector
from kernels.engines.emulator.native.record import (
    ALL_NOTED,
    COUNTS,
    EPOCH,
    FROM,
    LANES,
    LINE_BITS,
    MARKED,
    MORE_READS,
    NEEDED,
    RACE,
    READS,
    ROOM,
    SPACE,
    TIME,
    UPDATES,
    VALUE,
    WRITABLE,
    WRITES,
)

WORDS = {1: I8, 2: I16, 4: I32, 8: I64}
BYTES, STATES, SIZE, PART, STARTS = range(5)


@dataclass(frozen=True)
class Access:
    """`space`: global (also constants), shared or local. `width` of an element and `count` of them; `stored`: bytes of a register.
    `short`: whether the address has 32 bits. `counted`: bytes by which shared memory counts; 0: not counted."""

    write: bool
    space: str
    width: int
    count: int
    short: bool
    counted: int
    register: int
    signed: bool
    unit: int = 0  # bytes of a word by which races are looked for; 0: they are not
    noted: bool = False  # whether reads are noted, because a write may follow before a barrier
    constant: bool = False  # whether NumPy reads what may be written

    @property
    def name(self) -> str:
        return (
            f"{'st' if self.write else 'ld'}.{self.space}.{self.width}x{self.count}.{'a32' if self.short else 'a64'}"
            f".c{self.counted}.r{self.register}{'s' if self.signed else ''}"
            + (f".u{self.unit}{'n' if self.noted else ''}{'c' if self.constant else ''}" if self.unit else "")
        )

    @property
    def bytes(self) -> int:
        return self.width * self.count

    def emit(self, e: Emitter) -> None:
        _Body(self, e).emit()


class _Body:
    def __init__(self, access: Access, e: Emitter):
        self.a, self.e, self.b = access, e, e.b
        self.space = self.b.inttoptr(e.field(SPACE), I64.as_pointer())
        self.bytes = self.b.inttoptr(self._of_space(BYTES), I8.as_pointer())
        self.states = self.b.inttoptr(self._of_space(STATES), I8.as_pointer())

    def _of_space(self, n: int) -> ir.Value:
        return self.b.load(self.b.gep(self.space, [I32(n)]))

    def emit(self) -> None:
        e, b = self.e, self.b
        first, offsets = self._offsets()
        apart = b.sub(offsets, e.splat(first))
        same = b.icmp_unsigned("==", e.reduced("or", apart), I32(0))
        several, one, row, other = (b.append_basic_block(name) for name in ("several", "one", "row", "other"))
        b.cbranch(same, one, several)
        b.position_at_end(several)
        steps = constant([lane * self.a.bytes for lane in range(LANES)], I32)
        b.cbranch(b.icmp_unsigned("==", e.reduced("or", b.xor(apart, steps)), I32(0)), row, other)
        b.position_at_end(one)
        self._one(b.zext(first, I64))
        b.position_at_end(row)
        self._row(b.zext(first, I64), offsets)
        b.position_at_end(other)
        self._other(offsets)

    # -- addresses --------------------------------------------------------------------------------
    def _offsets(self) -> tuple[ir.Value, ir.Value]:
        """Returns the offset of the first active lane in the space, and of each lane (32 bits): inside and aligned. An idle lane has
        that of the first active one."""
        e, b, a = self.e, self.b, self.a
        base = e.operand(0, "u32" if a.short else "u64")
        active = e.lanes
        if a.short:
            offsets = b.add(base, b.trunc(e.splat(e.field(VALUE)), vector(I32)))
        else:
            address = b.add(base, e.splat(e.field(VALUE)))
            if a.space == "global":
                address = b.sub(address, constant(GLOBAL_BASE, I64))
            upper = b.trunc(b.lshr(address, constant(32, I64)), vector(I32))
            upper = b.select(active, upper, constant(0, I32))
            e.unless(b.icmp_unsigned("==", e.reduced("or", upper), I32(0)))
            offsets = b.trunc(address, vector(I32))
        lane = b.cttz(e.mask, I1(1))
        offsets = b.select(active, offsets, e.splat(b.extract_element(offsets, lane)))
        if a.space == "shared":
            inside, room = b.sub(offsets, e.splat(b.trunc(e.field(FROM), I32))), e.field(ROOM)
        else:
            inside, room = offsets, b.sub(self._of_space(SIZE if a.space == "global" else PART), I64(a.bytes))
        e.unless(b.icmp_signed("<=", b.zext(e.reduced("umax", inside), I64), room))
        if a.space != "global":
            starts = self._starts(lane)
            offsets = b.add(offsets, starts)
        if a.bytes > 1:
            e.unless(b.icmp_unsigned("==", b.and_(e.reduced("or", offsets), I32(a.bytes - 1)), I32(0)))
        return b.extract_element(offsets, lane), offsets

    def _starts(self, lane: ir.Value) -> ir.Value:
        """Returns where the lanes' parts of the space start."""
        e, b = self.e, self.b
        starts = b.inttoptr(self._of_space(STARTS), I64.as_pointer())
        at = b.gep(starts, [b.mul(e.warp, I64(LANES))])
        if self.a.space == "shared":
            return e.splat(b.trunc(b.load(at), I32))
        each = b.trunc(e.loaded(b.bitcast(at, vector(I64).as_pointer())), vector(I32))
        return b.select(e.lanes, each, e.splat(b.extract_element(each, lane)))

    # -- states ---------------------------------------------------------------------------------------
    def _check(self, states: Any) -> None:
        """Return 1 unless bytes (a vector or one) may be accessed."""
        e, b, n = self.e, self.b, getattr(states.type, "count", 0)
        least = ALLOCATED if self.a.write else WRITTEN
        most = WRITTEN if self.a.write else LEAVING
        assert COMING < ALLOCATED < WRITTEN < LEAVING
        low = e.reduced("umin", states) if n else states
        e.unless(b.icmp_unsigned(">=", low, I8(least)))
        if self.a.write:
            high = e.reduced("umax", states) if n else states
            e.unless(b.icmp_unsigned("<=", high, I8(most)))

    def _states(self, at: ir.Value) -> list[ir.Value]:
        """Returns the states of the first and the last byte of an access. Elements are aligned and buffers start aligned, so they
        decide for all."""
        b = self.b
        states = [b.load(b.gep(self.states, [at]))]
        if self.a.bytes > 4:
            states.append(b.load(b.gep(self.states, [b.add(at, I64(self.a.bytes - 1))])))
        return states

    # -- the three forms --------------------------------------------------------------------------------
    def _one(self, at: ir.Value) -> None:
        """All active lanes access one element."""
        e, b, a = self.e, self.b, self.a
        for state in self._states(at):
            self._check(state)
        self._race_of_one(at)
        waves = I64(1)
        if a.counted == 16:  # each half of the warp has its own
            halves = (b.and_(e.mask, I32(0xFFFF)), b.lshr(e.mask, I32(16)))
            waves = b.add(*(b.zext(b.icmp_unsigned("!=", half, I32(0)), I64) for half in halves))
        self._count(I64(1), waves, waves)
        for n in range(a.count):
            pointer = self._pointer(b.add(at, I64(n * a.width)), WORDS[a.width])
            if a.write:
                last = b.sub(I32(31), b.ctlz(e.mask, I1(1)))
                self.b.store(b.extract_element(self._narrow(n), last), pointer)
                self._mark(b.add(at, I64(n * a.width)), a.width)
            else:
                self._put(n, e.splat(b.load(pointer)))
        e.done()

    def _row(self, at: ir.Value, offsets: ir.Value) -> None:
        """Lane after lane accesses the next element, and all are active."""
        e, b, a = self.e, self.b, self.a
        n = LANES * a.bytes
        states = e.loaded(self._pointer(at, vector(I8, n), self.states))
        self._check(states)
        self._race_of_row(at, offsets)
        if a.space == "shared" and a.counted not in (0, a.bytes):
            self._count_lanes(offsets)
        else:
            sectors = b.sub(b.lshr(b.add(at, I64(n - 1)), I64(SECTOR_BITS)), b.lshr(at, I64(SECTOR_BITS)))
            waves = max(1, a.bytes // 4)
            self._count(b.add(sectors, I64(1)), I64(waves), I64(waves))
        word = WORDS[a.width]
        pointer = self._pointer(at, vector(word, LANES * a.count))
        if a.write:
            e.stored(self._interleaved([self._narrow(k) for k in range(a.count)]), pointer)
            e.stored(constant(WRITTEN, I8, n), self._pointer(at, vector(I8, n), self.states))
        else:
            whole = e.loaded(pointer)
            for k in range(a.count):
                lanes = constant([lane * a.count + k for lane in range(LANES)], I32)
                self._put(k, b.shuffle_vector(whole, whole, lanes) if a.count > 1 else whole)
        e.done()

    def _other(self, offsets: ir.Value) -> None:
        e, b, a = self.e, self.b, self.a
        at = [b.zext(b.extract_element(offsets, I32(lane)), I64) for lane in range(LANES)]
        states = [self._states(place) for place in at]
        for each in zip(*states, strict=True):
            self._check(self._gathered(each))
        self._race_of_others(at, offsets)
        self._count_lanes(offsets)
        word = WORDS[a.width]
        if not a.write:
            for n in range(a.count):
                places = [self._pointer(b.add(place, I64(n * a.width)) if n else place, word) for place in at]
                self._put(n, self._gathered([b.load(place) for place in places]))
            e.done()
            return
        values = [self._narrow(n) for n in range(a.count)]
        with b.if_then(b.icmp_unsigned("==", e.mask, I32(-1))):
            for lane, place in enumerate(at):
                for n, value in enumerate(values):
                    to = b.add(place, I64(n * a.width))
                    b.store(b.extract_element(value, I32(lane)), self._pointer(to, word))
                    self._mark(to, a.width)
            e.done()
        tables, table = [self._spilled(value) for value in values], self._spilled(offsets)
        with e.each_bit(e.mask) as lane:
            place = b.zext(b.load(b.gep(table, [I64(0), lane])), I64)
            for n in range(a.count):
                to = b.add(place, I64(n * a.width))
                b.store(b.load(b.gep(tables[n], [I64(0), lane])), self._pointer(to, word))
                self._mark(to, a.width)
        e.done()

    def _gathered(self, values: Sequence[Any]) -> ir.Value:
        out = ir.Constant(vector(values[0].type), ir.Undefined)
        for lane, value in enumerate(values):
            out = self.b.insert_element(out, value, I32(lane))
        return out

    # -- races ------------------------------------------------------------------------------------------
    def _race_of_one(self, at: ir.Value) -> None:
        """All active lanes access one element. To look at the first and the last lane is enough."""
        e, b, a = self.e, self.b, self.a
        if not a.unit:
            return
        first, last = b.cttz(e.mask, I1(1)), b.sub(I32(31), b.ctlz(e.mask, I1(1)))
        if a.write:  # several threads write one word
            for n in range(a.count):
                value = self._narrow(n)
                differs = b.icmp_unsigned("!=", value, e.splat(b.extract_element(value, first)))
                e.unless(b.icmp_unsigned("==", b.bitcast(b.and_(differs, e.lanes), I32), I32(0)))
        two = b.or_(b.shl(I32(1), first), b.shl(I32(1), last))
        words = max(1, a.bytes // a.unit)
        self._note(two, e.splat(b.trunc(at, I32)), at, at)
        if not a.write:
            e.stored(constant(1, I8, words), self._marks(at, words))

    def _race_of_row(self, at: ir.Value, offsets: ir.Value) -> None:
        a = self.a
        if not a.unit:
            return
        self._note(self.e.mask, offsets, at, self.b.add(at, I64((LANES - 1) * a.bytes)))
        if not a.write:
            words = max(1, LANES * a.bytes // a.unit)
            self.e.stored(constant(1, I8, words), self._marks(at, words))

    def _race_of_others(self, at: Sequence[ir.Value], offsets: ir.Value) -> None:
        e, b, a = self.e, self.b, self.a
        if not a.unit:
            return
        if a.write:  # NumPy looks at lanes that write one word
            words = b.lshr(offsets, constant(_shift(a), I32))
            twice = I32(0)
            for lane in range(LANES - 1):
                same = b.icmp_unsigned("==", words, e.splat(b.extract_element(words, I32(lane))))
                later = b.and_(b.bitcast(same, I32), b.and_(e.mask, I32((-2 << lane) & 0xFFFFFFFF)))
                is_active = b.icmp_unsigned("!=", b.and_(e.mask, I32(1 << lane)), I32(0))
                twice = b.or_(twice, b.select(is_active, later, I32(0)))
            e.unless(b.icmp_unsigned("==", twice, I32(0)))
        lowest, highest = (b.zext(e.reduced(name, offsets), I64) for name in ("umin", "umax"))
        self._note(e.mask, offsets, lowest, highest)
        if not a.write:
            words = max(1, a.bytes // a.unit)
            for place in at:
                e.stored(constant(1, I8, words), self._marks(place, words))

    def _marks(self, at: ir.Value, words: int) -> ir.Value:
        return self._pointer(self.b.lshr(at, I64(_shift(self.a))), vector(I8, words), self._array_of_race(MARKED))

    def _of_race(self, n: int) -> ir.Value:
        return self.b.load(self.b.gep(self.b.inttoptr(self.e.field(RACE), I64.as_pointer()), [I32(n)]))

    def _array_of_race(self, n: int) -> ir.Value:
        return self.b.inttoptr(self._of_race(n), I8.as_pointer())

    def _note(self, lanes: ir.Value, offsets: ir.Value, lowest: ir.Value, highest: ir.Value) -> None:
        """Return 1 if an access is suspicious, else note it."""
        b, a = self.b, self.a
        if a.write or a.space != "global":
            self._note_words(lanes, offsets)
            return
        lines = self._array_of_race(WRITABLE)
        states = [b.load(b.gep(lines, [b.lshr(at, I64(LINE_BITS))])) for at in (lowest, highest)]
        may_be_written = b.icmp_unsigned("!=", b.or_(*states), I8(0))
        if a.constant:
            self.e.leave_if(may_be_written)
            return
        with b.if_then(may_be_written):
            self._note_words(lanes, offsets)

    def _note_words(self, lanes: ir.Value, offsets: ir.Value) -> None:
        e, b, a = self.e, self.b, self.a
        if a.write:
            e.leave_if(b.icmp_unsigned("!=", self._of_race(MORE_READS), I64(0)))
        kinds = I32(0)
        for kind in (READS, WRITES, UPDATES) if a.write else (WRITES, UPDATES):
            needed = b.icmp_unsigned("!=", self._of_race(NEEDED + kind), I64(0))
            kinds = b.or_(kinds, b.select(needed, I32(1 << kind), I32(0)))
        race = b.inttoptr(e.field(RACE), I64.as_pointer())
        common = [race, None, lanes, e.warp, I64(max(1, a.bytes // a.unit)), I64(_shift(a))]

        def call(name: str, *more: ir.Value) -> ir.Value:
            table = b.gep(self._spilled(offsets), [I64(0), I64(0)])
            types = racing.TYPES[name]
            return b.call(e.declared(name, types.return_type, types.args), [common[0], table, *common[2:], *more])

        def note(kind: int) -> None:
            call(racing.NOTE, b.add(e.field(TIME), self._of_race(EPOCH)), I64(kind))

        with b.if_then(b.icmp_unsigned("!=", kinds, I32(0))):
            e.leave_if(call(racing.SUSPICIOUS, kinds))
        if a.write:
            note(WRITES)
        elif a.noted:
            note(READS)
        else:
            with b.if_then(b.icmp_unsigned("!=", self._of_race(ALL_NOTED), I64(0)), likely=False):
                note(READS)

    # -- values -----------------------------------------------------------------------------------------
    def _pointer(self, at: ir.Value, type_: ir.Type, base: ir.Value | None = None) -> ir.Value:
        return self.b.bitcast(self.b.gep(base or self.bytes, [at]), type_.as_pointer())

    def _mark(self, at: ir.Value, width: int) -> None:
        marks = WRITTEN * 0x0101010101010101 & (1 << 8 * width) - 1
        self.b.store(WORDS[width](marks), self._pointer(at, WORDS[width], self.states), align=1)

    def _spilled(self, value: Any) -> ir.Value:
        """Returns a pointer to an array with a vector's elements."""
        of = value.type
        array = self.e.local(ir.ArrayType(of.element, of.count))
        self.e.stored(value, self.b.bitcast(array, of.as_pointer()))
        return array

    def _narrow(self, n: int) -> ir.Value:
        """Returns what the lanes write to element n."""
        value = self.e.operand(1 + n, f"b{8 * self.a.register}")
        return self.b.trunc(value, vector(WORDS[self.a.width])) if self.a.register > self.a.width else value

    def _put(self, n: int, value: ir.Value) -> None:
        a, wide = self.a, vector(WORDS[self.a.register])
        if a.register > a.width:
            value = self.b.sext(value, wide) if a.signed else self.b.zext(value, wide)
        self.e.put(1 + n, f"b{8 * a.register}", value)

    def _interleaved(self, parts: list[ir.Value]) -> ir.Value:
        b, count = self.b, len(parts)
        if count == 1:
            return parts[0]
        low = b.shuffle_vector(parts[0], parts[1], constant(_zip(LANES, 2), I32, 2 * LANES))
        if count == 2:
            return low
        high = b.shuffle_vector(parts[2], parts[3], constant(_zip(LANES, 2), I32, 2 * LANES))
        order = [k for lane in range(LANES) for k in (2 * lane, 2 * lane + 1, 64 + 2 * lane, 64 + 2 * lane + 1)]
        return b.shuffle_vector(low, high, constant(order, I32, 4 * LANES))

    # -- counts -----------------------------------------------------------------------------------------
    def _count(self, sectors: ir.Value, waves: ir.Value, fewest: ir.Value) -> None:
        """Count the access of this warp."""
        if self.a.space == "global" and self.a.counted:
            lanes = self.b.zext(self.b.ctpop(self.e.mask), I64)
            self._add(I64(1), sectors, lanes)
        elif self.a.space == "shared" and self.a.counted:
            self._add(I64(1), waves, fewest)

    def _add(self, *numbers: ir.Value) -> None:
        b, counts = self.b, self.b.inttoptr(self.e.field(COUNTS), I64.as_pointer())
        for n, number in enumerate(numbers):
            at = b.gep(counts, [I32(n)])
            b.store(b.add(b.load(at), number), at)

    def _count_lanes(self, offsets: ir.Value) -> None:
        """Count an access at the lanes' offsets. If they are near each other, a bit for each place is enough."""
        e, b, a = self.e, self.b, self.a
        if a.space == "local" or not a.counted:
            return
        places = b.lshr(offsets, constant(SECTOR_BITS if a.space == "global" else WORD_BITS, I32))
        lowest = e.reduced("umin", places)
        near = b.sub(places, e.splat(lowest))
        if a.space == "global":
            close = b.icmp_unsigned("<", e.reduced("umax", near), I32(64))
            with b.if_else(close) as (within, beyond):
                with within:
                    bits = b.shl(constant(1, I64), b.zext(near, vector(I64)))
                    self._count(b.ctpop(e.reduced("or", bits)), I64(0), I64(0))
                with beyond:
                    self._count(self._called(SECTORS, offsets), I64(0), I64(0))
            return
        if a.counted > 4:
            self._count_slowly(offsets)
            return
        with b.if_else(b.icmp_unsigned("<", e.reduced("umax", near), I32(BANKS))) as (within, beyond):
            with within:  # different words are in different banks
                self._count(I64(0), I64(1), I64(1))
            with beyond:
                self._count_slowly(offsets)

    def _count_slowly(self, offsets: ir.Value) -> None:
        b = self.b
        both = self._called(WAVEFRONTS[max(4, self.a.counted)], offsets)
        self._count(I64(0), b.and_(both, I64(0xFFFFFFFF)), b.lshr(both, I64(32)))

    def _called(self, name: str, offsets: ir.Value) -> ir.Value:
        table = self._spilled(self.b.zext(offsets, vector(I64)))
        pointer = self.b.gep(table, [I64(0), I64(0)])
        return self.b.call(self.e.declared(name, I64, [pointer.type, I32]), [pointer, self.e.mask])


def _shift(a: Access) -> int:
    return a.unit.bit_length() - 1


def _zip(n: int, parts: int) -> list[int]:
    return [part * n + k for k in range(n) for part in range(parts)]
