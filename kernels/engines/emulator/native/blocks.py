"""The function that executes a kernel's records block after block: the warps of a block run up to a barrier, and on when all are there.

A block stops where a warp of it cannot go on, and at a barrier that not all its threads have reached.

    void run_blocks(i64* state, i64* blocks, i64 count)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from kernels.engines.emulator.native.emit import I1, I32, I64, constant, splat, vector
from kernels.engines.emulator.native.record import (
    BARRIER,
    BY_BLOCK,
    COUNTERS,
    ENDED,
    EPOCH,
    EXIST,
    FIRST_TIME,
    FLOOR,
    FLOOR_AFTER,
    FLOOR_BEFORE,
    ISSUED,
    KIND,
    LANES,
    LIVE,
    NEEDED,
    NEEDED_BEFORE,
    PASSED,
    PENDING,
    QUIET,
    RACES_OF,
    RECORD,
    RECORDS,
    ROWS,
    TIMES,
    TURNS,
    UNTIL,
    WARPS,
)

RUN_BLOCKS = "run_blocks"


class _RunBlocks:
    def __init__(self, module: ir.Module, run: ir.Function):
        p64 = I64.as_pointer()
        self.f, self.run = ir.Function(module, ir.FunctionType(ir.VoidType(), [p64, p64, I64]), RUN_BLOCKS), run
        self.state, self.list, self.count = self.f.args
        self.b: Any = ir.IRBuilder(self.f.append_basic_block())
        variables = ("n", "passed", "turns", "floor", "warp", "warps_there", "lanes_there", "lowest")
        self.at = {name: self.b.alloca(I64) for name in variables}

    # -- helpers --------------------------------------------------------------------------------------
    def get(self, name: str) -> Any:
        return self.b.load(self.at[name])

    def set(self, name: str, value: Any) -> None:
        self.b.store(value, self.at[name])

    def add(self, name: str, value: Any) -> None:
        self.set(name, self.b.add(self.get(name), value))

    def field(self, n: int) -> Any:
        return self.b.load(self.place(n))

    def place(self, n: int) -> Any:
        return self.b.gep(self.state, [I32(n)])

    def pointer(self, n: int, type_: ir.Type) -> Any:
        return self.b.inttoptr(self.field(n), type_.as_pointer())

    def of_record(self, pc: Any, n: int) -> Any:
        return self.b.load(self.b.gep(self.pointer(RECORDS, I64), [self.b.add(self.b.mul(pc, I64(RECORD)), I64(n))]))

    def counters(self, row: Any) -> Any:
        at = self.b.gep(self.pointer(COUNTERS, I32), [self.b.mul(row, I64(LANES))])
        return self.b.bitcast(at, vector(I32).as_pointer())

    def lanes_at(self, row: Any, pc: Any) -> Any:
        """Returns the pending lanes of a row whose counter is pc, as bits."""
        b = self.b
        same = b.icmp_unsigned("==", b.load(self.counters(row), align=4), splat(b, b.trunc(pc, I32)))
        return b.and_(b.bitcast(same, I32), self.of_row(PENDING, row))

    def of_row(self, n: int, row: Any) -> Any:
        return self.b.load(self.b.gep(self.pointer(n, I32), [row]))

    @contextmanager
    def each_row(self) -> Iterator[Any]:
        """Loops over the rows of the block."""
        b = self.b
        self.set("warp", I64(0))
        loop, end = b.append_basic_block("rows"), b.append_basic_block("rows_end")
        b.branch(loop)
        b.position_at_end(loop)
        yield b.load(b.gep(self.rows, [self.get("warp")]))
        self.add("warp", I64(1))
        b.cbranch(b.icmp_unsigned("<", self.get("warp"), self.field(WARPS)), loop, end)
        b.position_at_end(end)

    def each_race(self, emit: Callable[[Any], None]) -> None:
        """Emit what is done for each space in which races are looked for."""
        b = self.b
        for n in range(2):
            known = self.field(RACES_OF + n)
            with b.if_then(b.icmp_unsigned("!=", known, I64(0))):
                emit(b.inttoptr(known, I64.as_pointer()))

    # -- the function -----------------------------------------------------------------------------------
    def emit(self) -> None:
        b = self.b
        block, run, check, go_on, leave, end = (
            b.append_basic_block(name) for name in ("block", "run", "check", "go_on", "leave", "end")
        )
        self.set("n", I64(0))
        b.branch(block)
        b.position_at_end(block)
        at = b.mul(b.load(b.gep(self.list, [self.get("n")])), self.field(WARPS))
        self.rows = b.gep(self.pointer(ROWS, I64), [at])
        self._begin()
        b.branch(run)
        b.position_at_end(run)
        b.call(self.run, [self.state, self.rows, self.field(WARPS)])
        pc = self._lowest(leave)
        b.branch(check)
        b.position_at_end(check)
        self._check(pc, leave)
        b.branch(go_on)
        b.position_at_end(go_on)
        self._pass(pc)
        b.branch(run)
        b.position_at_end(leave)
        self._leave()
        self.add("n", I64(1))
        b.cbranch(b.icmp_unsigned("<", self.get("n"), self.count), block, end)
        b.position_at_end(end)
        b.ret_void()

    def _begin(self) -> None:
        b = self.b
        self.set("passed", I64(0))
        self.set("turns", self.field(TURNS))
        self.set("floor", self.field(FLOOR_BEFORE))

        def begin(race: Any) -> None:
            b.store(I64(0), b.gep(race, [I32(EPOCH)]))
            with b.if_then(b.icmp_unsigned("!=", b.load(b.gep(race, [I32(BY_BLOCK)])), I64(0))):
                b.store(self.field(FLOOR_BEFORE), b.gep(race, [I32(FLOOR)]))
                for kind in range(3):
                    before = b.load(b.gep(race, [I32(NEEDED_BEFORE + kind)]))
                    b.store(before, b.gep(race, [I32(NEEDED + kind)]))

        self.each_race(begin)

    def _lowest(self, leave: ir.Block) -> Any:
        """Returns the first counter of the block's lanes that have not ended; leaves if there is none."""
        b = self.b
        self.set("lowest", self.field(ENDED))
        with self.each_row() as row:
            counters, lanes = b.load(self.counters(row), align=4), self.of_row(PENDING, row)
            among = b.select(b.bitcast(lanes, vector(I1)), counters, constant(0x7FFFFFFF, I32))
            reduce = self.f.module.globals["llvm.vector.reduce.umin.v32i32"]
            lowest = b.zext(b.call(reduce, [among]), I64)
            old = self.get("lowest")
            self.set("lowest", b.select(b.icmp_unsigned("<", lowest, old), lowest, old))
        pc = self.get("lowest")
        some = b.append_basic_block("some")
        b.cbranch(b.icmp_unsigned("<", pc, b.sub(self.field(ENDED), I64(1))), some, leave)
        b.position_at_end(some)
        return pc

    def _check(self, pc: Any, leave: ir.Block) -> None:
        """Leave unless all threads of the block that have not ended are at the barrier pc."""
        b = self.b

        def unless(condition: Any) -> None:
            on = b.append_basic_block("on")
            b.cbranch(condition, on, leave)
            b.position_at_end(on)

        unless(b.icmp_unsigned("==", self.of_record(pc, KIND), I64(BARRIER)))
        self.add("turns", I64(-1))
        unless(b.icmp_signed(">=", self.get("turns"), I64(0)))
        self.set("warps_there", I64(0))
        self.set("lanes_there", I64(0))
        quiet = b.icmp_unsigned("!=", self.of_record(pc, QUIET), I64(0))
        with self.each_row() as row:
            there, ended = self.lanes_at(row, pc), self.lanes_at(row, self.field(ENDED))
            live = self.of_row(LIVE, row)
            unless(b.icmp_unsigned("==", b.or_(there, ended), live))
            unless(b.or_(quiet, b.icmp_unsigned("==", there, self.of_row(EXIST, row))))
            self.add("warps_there", b.zext(b.icmp_unsigned("!=", there, I32(0)), I64))
            self.add("lanes_there", b.zext(b.ctpop(there), I64))

    def _pass(self, pc: Any) -> None:
        """Let the block's threads go on after the barrier pc."""
        b = self.b
        following = b.add(pc, I64(1))
        for at, sign in ((pc, 1), (following, -1)):
            to = b.gep(self.pointer(ISSUED, I64), [b.mul(at, I64(2))])
            for n, name in enumerate(("warps_there", "lanes_there")):
                place = b.gep(to, [I64(n)])
                b.store(b.add(b.load(place), b.mul(self.get(name), I64(sign))), place)
        time = b.add(self.field(FIRST_TIME), b.mul(b.add(self.get("passed"), I64(1)), self.field(TIMES)))
        time = b.sub(time, I64(1))
        self.add("passed", I64(1))
        raced = b.icmp_unsigned("!=", self.field(RACES_OF), I64(0))
        with self.each_row() as row:
            self._move(row, pc, following)
            with b.if_then(raced):
                self._order(row, time)
        self.set("floor", time)

        def order(race: Any) -> None:
            b.store(b.mul(self.get("passed"), self.field(TIMES)), b.gep(race, [I32(EPOCH)]))
            with b.if_then(b.icmp_unsigned("!=", b.load(b.gep(race, [I32(BY_BLOCK)])), I64(0))):
                b.store(time, b.gep(race, [I32(FLOOR)]))
                for kind in range(3):
                    b.store(I64(0), b.gep(race, [I32(NEEDED + kind)]))

        self.each_race(order)

    def _move(self, row: Any, pc: Any, to: Any) -> None:
        b, place = self.b, self.counters(row)
        counters = b.load(place, align=4)
        there = b.bitcast(self.lanes_at(row, pc), vector(I1))
        b.store(b.select(there, splat(b, b.trunc(to, I32)), counters), place, align=4)

    def _order(self, row: Any, time: Any) -> None:
        """Note that what all warps of the block have done comes before what this one does."""
        b, warps = self.b, self.field(WARPS)
        race = b.inttoptr(self.field(RACES_OF), I64.as_pointer())
        until = b.inttoptr(b.load(b.gep(race, [I32(UNTIL)])), I32.as_pointer())
        start, loop, end = b.block, b.append_basic_block("columns"), b.append_basic_block("columns_end")
        b.branch(loop)
        b.position_at_end(loop)
        column = b.phi(I64)
        column.add_incoming(I64(0), start)
        b.store(b.trunc(time, I32), b.gep(until, [b.add(b.mul(row, warps), column)]))
        following = b.add(column, I64(1))
        column.add_incoming(following, loop)
        b.cbranch(b.icmp_unsigned("<", following, warps), loop, end)
        b.position_at_end(end)

    def _leave(self) -> None:
        """Keep the most barriers passed, and the lowest floor of a block that has not ended."""
        b = self.b
        passed, floor = self.get("passed"), self.get("floor")
        more = b.icmp_unsigned(">", passed, self.field(PASSED))
        b.store(b.select(more, passed, self.field(PASSED)), self.place(PASSED))
        lower = b.icmp_signed("<", floor, self.field(FLOOR_AFTER))
        lower = b.and_(lower, b.icmp_unsigned("<", self.get("lowest"), self.field(ENDED)))
        b.store(b.select(lower, floor, self.field(FLOOR_AFTER)), self.place(FLOOR_AFTER))


def add_to(module: ir.Module, run: ir.Function) -> None:
    _RunBlocks(module, run).emit()
