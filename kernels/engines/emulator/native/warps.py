"""The function that executes a kernel's records, warp after warp.

Each lane has a program counter. The lanes with the lowest one run next, as in `scheduler`: they run up to a record where lanes may
join or diverge. A warp stops where its lowest lanes cannot go on, or at a barrier.

    void run(i64* state, i64* warps, i64 count)
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from kernels.engines.emulator.native.emit import FUNCTION, I1, I8, I32, I64, constant, splat, vector
from kernels.engines.emulator.native.record import (
    BARRIER,
    BRANCH,
    COUNTERS,
    DIVERGED,
    END,
    ENDED,
    FLIP,
    GUARD,
    HANDLER,
    ISSUED,
    KIND,
    LANES,
    LEADER,
    MARKS,
    PENDING,
    RECORD,
    RECORDS,
    STOP,
    TARGET,
    TURNS,
)

_LAST = 0x7FFFFFFF


class _Run:
    def __init__(self, module: ir.Module):
        p64 = I64.as_pointer()
        self.f = ir.Function(module, ir.FunctionType(ir.VoidType(), [p64, p64, I64]), "run")
        self.module = module
        self.state, self.warps, self.count = self.f.args
        self.b: Any = ir.IRBuilder(self.f.append_basic_block())
        names = "warp choose record leader execute guard call at_branch branch at_end exit next regroup stop after end"
        self.blocks = {name: self.f.append_basic_block(name) for name in names.split()}
        # Variables: LLVM keeps them in registers.
        self.place, self.at, self.turns = (self.b.alloca(I64) for _ in range(3))
        self.pc = self.b.alloca(I64)
        self.mask, self.others, self.lanes, self.active, self.rest = (self.b.alloca(I32) for _ in range(5))

    # -- helpers --------------------------------------------------------------------------------------
    def field(self, n: int) -> ir.Value:
        return self.b.load(self.b.gep(self.state, [I32(n)]))

    def pointer(self, n: int, type_: ir.Type) -> ir.Value:
        return self.b.inttoptr(self.field(n), type_.as_pointer())

    def get(self, variable: ir.Value) -> ir.Value:
        return self.b.load(variable)

    def at_block(self, name: str) -> None:
        self.b.position_at_end(self.blocks[name])

    def go(self, name: str) -> None:
        self.b.branch(self.blocks[name])

    def go_if(self, condition: ir.Value, then: str, otherwise: str) -> None:
        self.b.cbranch(condition, self.blocks[then], self.blocks[otherwise])

    def record(self) -> ir.Value:
        return self.b.gep(self.pointer(RECORDS, I64), [self.b.mul(self.get(self.pc), I64(RECORD))])

    def of_record(self, n: int) -> ir.Value:
        return self.b.load(self.b.gep(self.record(), [I32(n)]))

    def counters(self) -> ir.Value:
        at = self.b.gep(self.pointer(COUNTERS, I32), [self.b.mul(self.get(self.at), I64(LANES))])
        return self.b.bitcast(at, vector(I32).as_pointer())

    def move(self, mask: ir.Value, pc: ir.Value) -> None:
        """Set the counters of lanes."""
        b, to = self.b, self.counters()
        new = splat(b, b.trunc(pc, I32))
        b.store(b.select(b.bitcast(mask, vector(I1)), new, b.load(to, align=4)), to, align=4)

    def issue(self, pc: ir.Value, sign: int) -> None:
        """Count that the active lanes begin a range of instructions, or that one ended before pc."""
        b = self.b
        lanes = b.zext(b.ctpop(self.get(self.mask)), I64)
        at = b.gep(self.pointer(ISSUED, I64), [b.mul(pc, I64(2))])
        for n, number in enumerate((I64(1), lanes)):
            to = b.gep(at, [I64(n)])
            old = b.load(to)
            b.store(b.add(old, number) if sign > 0 else b.sub(old, number), to)

    def mark(self, pc: ir.Value) -> None:
        self.b.store(I8(1), self.b.gep(self.pointer(MARKS, I8), [pc]))

    # -- blocks -----------------------------------------------------------------------------------------
    def emit(self) -> None:
        b = self.b
        b.store(I64(0), self.place)
        self.go("warp")
        self._begin_warp()
        self._choose()
        self.at_block("record")
        switch = b.switch(self.of_record(KIND), self.blocks["execute"])
        for kind, name in (
            (LEADER, "leader"),
            (BRANCH, "at_branch"),
            (END, "at_end"),
            (STOP, "stop"),
            (BARRIER, "stop"),
        ):
            switch.add_case(I64(kind), self.blocks[name])
        for name, then in (("leader", "execute"), ("at_branch", "branch"), ("at_end", "exit")):
            self.at_block(name)
            self.go_if(b.icmp_unsigned("==", self.get(self.others), I32(0)), then, "regroup")
        self._execute()
        self._branch()
        self.at_block("regroup")
        self.issue(self.get(self.pc), -1)
        self.move(self.get(self.mask), self.get(self.pc))
        self.go("choose")
        self._exit()
        self._stop()
        self.at_block("after")
        more = b.add(self.get(self.place), I64(1))
        b.store(more, self.place)
        self.go_if(b.icmp_unsigned("<", more, self.count), "warp", "end")
        self.at_block("end")
        b.ret_void()

    def _begin_warp(self) -> None:
        b = self.b
        self.at_block("warp")
        at = b.load(b.gep(self.warps, [self.get(self.place)]))
        b.store(at, self.at)
        b.store(self.field(TURNS), self.turns)
        ended = b.icmp_unsigned("==", b.load(self.counters(), align=4), splat(b, b.trunc(self.field(ENDED), I32)))
        pending = b.load(b.gep(self.pointer(PENDING, I32), [at]))
        b.store(b.and_(pending, b.not_(b.bitcast(ended, I32))), self.lanes)
        self.go("choose")

    def _choose(self) -> None:
        """Choose the lanes with the lowest counter."""
        b = self.b
        self.at_block("choose")
        counters, lanes = b.load(self.counters(), align=4), self.get(self.lanes)
        among = b.select(b.bitcast(lanes, vector(I1)), counters, constant(_LAST, I32))
        reduce = ir.Function(self.module, ir.FunctionType(I32, [vector(I32)]), "llvm.vector.reduce.umin.v32i32")
        lowest = b.call(reduce, [among])
        mask = b.bitcast(b.icmp_unsigned("==", among, splat(b, lowest)), I32)
        mask = b.and_(mask, lanes)
        b.store(mask, self.mask)
        b.store(b.and_(lanes, b.not_(mask)), self.others)
        b.store(b.zext(lowest, I64), self.pc)
        nothing = b.icmp_unsigned("==", lanes, I32(0))
        with b.if_then(nothing, likely=False):
            self.go("after")
        self.issue(self.get(self.pc), 1)
        switch = b.switch(self.of_record(KIND), self.blocks["execute"])
        for kind, name in ((BRANCH, "branch"), (END, "exit"), (STOP, "stop"), (BARRIER, "stop")):
            switch.add_case(I64(kind), self.blocks[name])

    def _guarded(self) -> ir.Value:
        """Returns the lanes whose guard is true, of a record that has one."""
        b = self.b
        row = b.inttoptr(b.add(self.of_record(GUARD), b.mul(self.get(self.at), I64(LANES))), vector(I8).as_pointer())
        bits = b.bitcast(b.icmp_unsigned("!=", b.load(row, align=1), constant(0, I8)), I32)
        return b.and_(self.get(self.mask), b.xor(bits, b.trunc(self.of_record(FLIP), I32)))

    def _execute(self) -> None:
        b = self.b
        self.at_block("execute")
        b.store(self.get(self.mask), self.active)
        self.go_if(b.icmp_unsigned("==", self.of_record(GUARD), I64(0)), "call", "guard")
        self.at_block("guard")
        guarded = self._guarded()
        b.store(guarded, self.active)
        self.go_if(b.icmp_unsigned("==", guarded, I32(0)), "next", "call")
        self.at_block("call")
        handler = b.inttoptr(self.of_record(HANDLER), FUNCTION.as_pointer())
        result = b.call(handler, [self.record(), self.get(self.at), self.get(self.active)])
        self.go_if(b.icmp_unsigned("==", result, I32(0)), "next", "stop")
        self.at_block("next")
        b.store(b.add(self.get(self.pc), I64(1)), self.pc)
        self.go("record")

    def _branch(self) -> None:
        b = self.b
        self.at_block("branch")
        mask, pc, target = self.get(self.mask), self.get(self.pc), self.of_record(TARGET)
        b.store(mask, self.rest)
        with b.if_then(b.icmp_unsigned("!=", self.of_record(GUARD), I64(0))):
            b.store(self._guarded(), self.rest)
        take = self.get(self.rest)
        following = b.add(pc, I64(1))
        falls = b.icmp_unsigned("==", take, I32(0))
        with b.if_then(falls):
            b.store(following, self.pc)
            self.go("record")
        with b.if_then(b.icmp_unsigned("<=", target, pc)):
            left = b.sub(self.get(self.turns), I64(1))
            b.store(left, self.turns)
            with b.if_then(b.icmp_signed("<", left, I64(0)), likely=False):
                self.go("stop")
        self.issue(following, -1)
        of_target = b.gep(self.pointer(RECORDS, I64), [b.add(b.mul(target, I64(RECORD)), I64(KIND))])
        ends = b.icmp_unsigned("==", b.load(of_target), I64(END))
        with b.if_then(b.and_(ends, b.icmp_unsigned("==", take, mask)), likely=False):
            b.store(target, self.pc)
            self.issue(target, 1)
            self.go("exit")
        with b.if_then(b.icmp_unsigned("==", take, mask), likely=True):
            b.store(target, self.pc)
            with b.if_then(b.icmp_unsigned("!=", self.get(self.others), I32(0)), likely=False):
                self.move(mask, target)
                self.go("choose")
            self.issue(target, 1)
            self.go("record")
        rest = b.and_(mask, b.not_(take))
        to = b.gep(self.pointer(DIVERGED, I64), [pc])
        b.store(b.add(b.load(to), I64(1)), to)
        self.move(rest, following)
        with b.if_then(ends, likely=False):  # the threads end at once
            b.store(take, self.mask)
            b.store(target, self.pc)
            self.issue(target, 1)
            self.go("exit")
        self.move(take, target)
        self.go("choose")

    def _exit(self) -> None:
        """The active lanes end."""
        b = self.b
        self.at_block("exit")
        mask, ended = self.get(self.mask), self.field(ENDED)
        self.issue(b.add(self.get(self.pc), I64(1)), -1)
        self.move(mask, ended)
        self.mark(ended)
        b.store(b.and_(self.get(self.lanes), b.not_(mask)), self.lanes)
        self.go("choose")

    def _stop(self) -> None:
        """The active lanes cannot go on, so the warp stops."""
        b = self.b
        self.at_block("stop")
        pc, mask = self.get(self.pc), self.get(self.mask)
        self.issue(pc, -1)
        self.move(mask, pc)
        self.mark(pc)
        rest = self.rest
        b.store(self.get(self.others), rest)
        loop, body = b.append_basic_block("others"), b.append_basic_block("other")
        b.branch(loop)
        b.position_at_end(loop)
        b.cbranch(b.icmp_unsigned("!=", b.load(rest), I32(0)), body, self.blocks["after"])
        b.position_at_end(body)
        now = b.load(rest)
        lane = b.cttz(now, I1(1))
        b.store(b.and_(now, b.sub(now, I32(1))), rest)
        first = b.bitcast(self.counters(), I32.as_pointer())
        self.mark(b.zext(b.load(b.gep(first, [lane])), I64))
        b.branch(loop)


def add_to(module: ir.Module) -> ir.Function:
    """Add the function to a module. Returns it."""
    run = _Run(module)
    run.emit()
    return run.f
