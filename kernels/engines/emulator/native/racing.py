"""The race detector's common case in machine code: an access that nothing can race with is noted; any other is left to `races`.

An access is suspicious if another thread has accessed a word before, one of both writes, and neither a barrier of all threads nor one of
the block comes between. What is noted is what `races` would note.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from kernels.engines.emulator.native.emit import I1, I32, I64, each_bit
from kernels.engines.emulator.native.record import (
    BLOCKS,
    BY_BLOCK,
    FLOOR,
    KINDS,
    LANES,
    LATEST,
    NEEDED,
    SEVERAL,
    UNTIL,
    WARPS_OF_BLOCK,
    WARPS_OF_ROWS,
)

SUSPICIOUS, NOTE = "kernel_theatre_suspicious", "kernel_theatre_note"
NAMES = (SUSPICIOUS, NOTE)
WHO, TIME, WHO_BEFORE, TIME_BEFORE = range(4)
# Arguments: the state of a space's races, offsets of the lanes, lanes, warp, words of an access, shift from bytes to words.
_COMMON = [I64.as_pointer(), I32.as_pointer(), I32, I64, I64, I64]
TYPES = {
    SUSPICIOUS: ir.FunctionType(I1, [*_COMMON, I32]),  # the kinds of accesses to look at, as bits
    NOTE: ir.FunctionType(ir.VoidType(), [*_COMMON, I64, I64]),  # time and kind
}


def add_to(module: ir.Module) -> None:
    _Suspicious(module).emit()
    _Note(module).emit()


class _OverWords:
    """A function that loops over the words of the lanes."""

    name = ""

    def __init__(self, module: ir.Module):
        self.f = ir.Function(module, TYPES[self.name], self.name)
        self.race, self.offsets, self.mask, self.row, self.words, self.shift, *self.more = self.f.args
        self.b: Any = ir.IRBuilder(self.f.append_basic_block())

    def emit(self) -> None:
        b = self.b
        rest, part = b.alloca(I32), b.alloca(I64)
        self.start()
        with each_bit(b, rest, self.mask) as lane:
            slot = b.trunc(b.add(b.mul(self.row, I64(LANES)), lane), I32)
            first = b.lshr(b.zext(b.load(b.gep(self.offsets, [lane])), I64), self.shift)
            b.store(I64(0), part)
            loop, after = b.append_basic_block("words"), b.append_basic_block("after")
            b.branch(loop)
            b.position_at_end(loop)
            self.word(b.add(first, b.load(part)), slot)
            now = b.add(b.load(part), I64(1))
            b.store(now, part)
            b.cbranch(b.icmp_unsigned("<", now, self.words), loop, after)
            b.position_at_end(after)
        self.finish()

    def start(self) -> None:
        """Emit what comes before the loop."""

    def word(self, word: Any, slot: Any) -> None:
        """Emit what is done for a word that a lane, the thread in a slot, accesses."""

    def finish(self) -> None:
        """Emit what comes after the loop."""

    def field(self, n: Any) -> Any:
        return self.b.load(self.place(n))

    def place(self, n: Any) -> Any:
        return self.b.gep(self.race, [I64(n) if isinstance(n, int) else n])

    def array(self, n: Any, type_: ir.Type = I32) -> Any:
        return self.b.inttoptr(self.field(n), type_.as_pointer())

    def of_kind(self, kind: Any, part: int) -> Any:
        """Returns the array that notes one part of the accesses of a kind."""
        return self.array(self.b.add(self.b.mul(kind, I64(4)), I64(KINDS + part)))

    def row_of(self, who: Any) -> Any:
        return self.b.zext(self.b.lshr(who, I32(5)), I64)

    def is_ordered(self, who: Any, time: Any) -> Any:
        """Returns whether a barrier comes between an access and now."""
        b = self.b
        floor = b.trunc(self.field(FLOOR), I32)
        by_all = b.and_(b.icmp_signed("!=", self.field(BY_BLOCK), I64(0)), b.icmp_signed("<=", time, floor))
        blocks, warps = self.array(BLOCKS, I64), self.array(WARPS_OF_ROWS, I64)
        theirs = self.row_of(who)
        inside = b.icmp_unsigned("==", b.load(b.gep(blocks, [theirs])), b.load(b.gep(blocks, [self.row])))
        at = b.add(b.mul(self.row, self.field(WARPS_OF_BLOCK)), b.load(b.gep(warps, [theirs])))
        until = b.load(b.gep(self.array(UNTIL), [at]))
        return b.or_(by_all, b.and_(inside, b.icmp_signed(">=", until, time)))


class _Suspicious(_OverWords):
    name = SUSPICIOUS

    def word(self, word: Any, slot: Any) -> None:
        b, (kinds,) = self.b, self.more
        for kind in range(3):
            with b.if_then(b.icmp_unsigned("!=", b.and_(kinds, I32(1 << kind)), I32(0))):
                self._look(kind, word, slot, WHO, TIME)
                with b.if_then(b.icmp_unsigned("!=", self.field(SEVERAL + kind), I64(0))):
                    self._look(kind, word, slot, WHO_BEFORE, TIME_BEFORE)

    def _look(self, kind: int, word: Any, slot: Any, who_part: int, time_part: int) -> None:
        b = self.b
        who = b.load(b.gep(self.of_kind(I64(kind), who_part), [word]))
        other = b.and_(b.icmp_signed(">=", who, I32(0)), b.icmp_unsigned("!=", who, slot))
        with b.if_then(other):
            time = b.load(b.gep(self.of_kind(I64(kind), time_part), [word]))
            with b.if_then(b.not_(self.is_ordered(who, time)), likely=False):
                b.ret(I1(1))

    def finish(self) -> None:
        self.b.ret(I1(0))


class _Note(_OverWords):
    name = NOTE

    def start(self) -> None:
        _, kind = self.more
        self.parts = [self.of_kind(kind, part) for part in range(4)]
        self.floor = self.b.trunc(self.field(FLOOR), I32)

    def word(self, word: Any, slot: Any) -> None:
        b, (time, kind) = self.b, self.more
        now = b.trunc(time, I32)
        who, when, who_before, when_before = (b.gep(part, [word]) for part in self.parts)
        old, row = b.load(who), b.trunc(self.row, I32)
        with b.if_then(b.and_(b.icmp_signed(">=", old, I32(0)), b.icmp_unsigned("!=", old, slot))):
            of_warp = b.icmp_unsigned("==", b.lshr(old, I32(5)), row)
            before, then = b.load(who_before), b.load(when_before)
            several = b.icmp_unsigned("!=", self.field(b.add(kind, I64(SEVERAL))), I64(0))
            kept = b.and_(b.icmp_signed(">", then, self.floor), b.icmp_unsigned("!=", b.lshr(before, I32(5)), row))
            # Of several lanes that access a word by this instruction the first is kept; else a thread of another warp.
            together = b.and_(of_warp, b.icmp_unsigned("==", b.load(when), now))
            first_is_kept = b.icmp_unsigned("==", then, now)
            stays = b.select(together, first_is_kept, b.and_(several, b.and_(kept, of_warp)))
            with b.if_then(b.not_(stays)):
                b.store(old, who_before)
                b.store(b.load(when), when_before)
                b.store(I64(1), self.place(b.add(kind, I64(SEVERAL))))
        b.store(slot, who)
        b.store(now, when)

    def finish(self) -> None:
        b, (time, kind) = self.b, self.more
        b.store(time, self.place(b.add(kind, I64(LATEST))))
        b.store(I64(1), self.place(b.add(kind, I64(NEEDED))))
        b.ret_void()
