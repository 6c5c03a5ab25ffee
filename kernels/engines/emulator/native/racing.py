"""The race detector's common case in machine code: an access that nothing can race with is noted; any other is left to `races`.

An access is suspicious if another thread has accessed a word before, one of both writes, and neither a barrier of all threads nor one of
the block comes between. What is noted is what `races` would note.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from kernels.engines.emulator.native.emit import I1, I32, I64, each_bit
from kernels.engines.emulator.native.record import (
    FIRST_WARPS,
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
        self.warp = self.b.load(self.b.gep(self.array(WARPS_OF_ROWS, I64), [self.row]))

    def emit(self) -> None:
        b = self.b
        rest, part = b.alloca(I32), b.alloca(I64)
        self.start()
        with each_bit(b, rest, self.mask) as lane:
            number = b.trunc(b.add(b.mul(self.warp, I64(LANES)), lane), I32)
            first = b.lshr(b.zext(b.load(b.gep(self.offsets, [lane])), I64), self.shift)
            b.store(I64(0), part)
            loop, after = b.append_basic_block("words"), b.append_basic_block("after")
            b.branch(loop)
            b.position_at_end(loop)
            self.word(b.add(first, b.load(part)), number)
            now = b.add(b.load(part), I64(1))
            b.store(now, part)
            b.cbranch(b.icmp_unsigned("<", now, self.words), loop, after)
            b.position_at_end(after)
        self.finish()

    def start(self) -> None:
        """Emit what comes before the loop."""

    def word(self, word: Any, number: Any) -> None:
        """Emit what is done for a word that a lane accesses, the thread with this number in the grid."""

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

    def is_ordered(self, who: Any, time: Any) -> Any:
        """Returns whether a barrier of the block comes between an access and now."""
        b, warps = self.b, self.field(WARPS_OF_BLOCK)
        first = b.load(b.gep(self.array(FIRST_WARPS, I64), [self.row]))
        of_block = b.sub(b.zext(b.lshr(who, I32(5)), I64), first)
        inside = b.icmp_unsigned("<", of_block, warps)
        at = b.add(b.mul(self.row, warps), b.select(inside, of_block, I64(0)))
        until = b.load(b.gep(self.array(UNTIL), [at]))
        return b.and_(inside, b.icmp_signed(">=", until, time))


class _Suspicious(_OverWords):
    name = SUSPICIOUS

    def word(self, word: Any, number: Any) -> None:
        b, (kinds,) = self.b, self.more
        for kind in range(3):
            with b.if_then(b.icmp_unsigned("!=", b.and_(kinds, I32(1 << kind)), I32(0))):
                self._look(kind, word, number, WHO, TIME)
                with b.if_then(b.icmp_unsigned("!=", self.field(SEVERAL + kind), I64(0))):
                    self._look(kind, word, number, WHO_BEFORE, TIME_BEFORE)

    def _look(self, kind: int, word: Any, number: Any, who_part: int, time_part: int) -> None:
        b = self.b
        who, time = (b.load(b.gep(self.of_kind(I64(kind), part), [word])) for part in (who_part, time_part))
        matters = b.icmp_signed(">", time, b.trunc(self.field(FLOOR), I32))
        other = b.and_(matters, b.icmp_unsigned("!=", who, number))
        with b.if_then(other), b.if_then(b.not_(self.is_ordered(who, time)), likely=False):
            b.ret(I1(1))

    def finish(self) -> None:
        self.b.ret(I1(0))


class _Note(_OverWords):
    name = NOTE

    def start(self) -> None:
        _, kind = self.more
        self.parts = [self.of_kind(kind, part) for part in range(4)]
        self.floor = self.b.trunc(self.field(FLOOR), I32)

    def word(self, word: Any, number: Any) -> None:
        b, (time, kind) = self.b, self.more
        now = b.trunc(time, I32)
        who, when, who_before, when_before = (b.gep(part, [word]) for part in self.parts)
        old, warp = b.load(who), b.trunc(self.warp, I32)
        since = b.load(when)
        with b.if_then(b.and_(b.icmp_signed(">", since, I32(0)), b.icmp_unsigned("!=", old, number))):
            of_warp = b.icmp_unsigned("==", b.lshr(old, I32(5)), warp)
            before, then = b.load(who_before), b.load(when_before)
            several = b.icmp_unsigned("!=", self.field(b.add(kind, I64(SEVERAL))), I64(0))
            kept = b.and_(b.icmp_signed(">", then, self.floor), b.icmp_unsigned("!=", b.lshr(before, I32(5)), warp))
            # Of several lanes that access a word by this instruction the first is kept; else a thread of another warp.
            together = b.and_(of_warp, b.icmp_unsigned("==", since, now))
            first_is_kept = b.icmp_unsigned("==", then, now)
            stays = b.select(together, first_is_kept, b.and_(several, b.and_(kept, of_warp)))
            with b.if_then(b.not_(stays)):
                b.store(old, who_before)
                b.store(since, when_before)
                b.store(I64(1), self.place(b.add(kind, I64(SEVERAL))))
        b.store(number, who)
        b.store(now, when)

    def finish(self) -> None:
        b, (time, kind) = self.b, self.more
        latest = self.place(b.add(kind, I64(LATEST)))
        before = b.load(latest)
        b.store(b.select(b.icmp_signed(">", time, before), time, before), latest)
        b.store(I64(1), self.place(b.add(kind, I64(NEEDED))))
        b.ret_void()
