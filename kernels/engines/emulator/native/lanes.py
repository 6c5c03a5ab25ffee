"""Instructions between the lanes of a warp when all 32 are there, so that none waits: shuffles, votes, the barrier of a warp.

NumPy executes the others, and votes of some lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from kernels.engines.emulator.native.emit import I32, I64, Emit, Emitter, constant, vector
from kernels.engines.emulator.native.operations import Operation
from kernels.engines.emulator.native.record import LANES
from kernels.engines.emulator.ptx.kernel import Instruction


def operation(i: Instruction) -> Operation | None:
    """Returns the operation of an instruction between lanes; None if NumPy executes it."""
    name = ".".join((*i.parts, "p")) if i.operands[0].kind == "vector" else ".".join(i.parts)
    if i.parts[0] == "shfl" and i.parts[2] in _SOURCES and len(i.operands) == 5:
        types = ("b32", "b32", "u32", "u32", *(("pred",) if i.operands[0].kind == "vector" else ()))
        return Operation(name, types, _shuffle(_SOURCES[i.parts[2]], len(types) == 5))
    if i.parts[0] == "vote" and i.parts[2] in _VOTES:
        return Operation(name, ("b32" if i.parts[2] == "ballot" else "pred", "pred", "u32"), _vote(i.parts[2]))
    if i.parts[:3] == ["bar", "warp", "sync"]:
        return Operation(name, (), _wait)
    return None


def _whole(e: Emitter) -> None:
    """Return 1 unless all lanes are active."""
    e.unless(e.b.icmp_unsigned("==", e.mask, I32(-1)))


def _wait(e: Emitter) -> None:
    _whole(e)
    e.done()


_LANE = list(range(LANES))
# By mode, from the lane, the operand, and the bits of the segment: the source, and how it compares with the last lane.
_SOURCES: dict[str, Callable[..., tuple[Any, str]]] = {
    "up": lambda b, lane, by, segment: (b.sub(lane, by), ">="),
    "down": lambda b, lane, by, segment: (b.add(lane, by), "<="),
    "bfly": lambda b, lane, by, segment: (b.xor(lane, by), "<="),
    "idx": lambda b, lane, by, segment: (b.or_(b.and_(lane, segment), b.and_(by, b.not_(segment))), "<="),
}


def _shuffle(source: Callable[..., tuple[Any, str]], with_predicate: bool) -> Emit:
    """PTX ISA, "shfl.sync"."""

    def emit(e: Emitter) -> None:
        b, lane, low = e.b, constant(_LANE, I32), constant(31, I32)
        _whole(e)
        values, by, clamp = e.operand(1, "b32"), b.and_(e.operand(2, "u32"), low), e.operand(3, "u32")
        segment, limit = b.and_(b.lshr(clamp, constant(8, I32)), low), b.and_(clamp, low)
        last = b.or_(b.and_(lane, segment), b.and_(limit, b.not_(segment)))
        at, compare = source(b, lane, by, segment)
        inside = b.icmp_signed(compare, at, last)
        e.put(0, "b32", _gathered(e, values, b.select(inside, at, lane)))
        if with_predicate:
            e.put(4, "pred", inside)
        e.done()

    return emit


def _gathered(e: Emitter, values: Any, lanes: Any) -> Any:
    """Returns the values of other lanes."""
    b = e.b
    table = e.local(vector(I32))
    b.store(values, table)
    first = b.bitcast(table, I32.as_pointer())
    out = ir.Constant(vector(I32), ir.Undefined)
    for lane in _LANE:
        at = b.zext(b.extract_element(lanes, I32(lane)), I64)
        out = b.insert_element(out, b.load(b.gep(first, [at])), I32(lane))
    return out


_VOTES: dict[str, Callable[..., Any]] = {
    "ballot": lambda e, bits: e.splat(bits),
    "any": lambda e, bits: e.splat(e.b.icmp_unsigned("!=", bits, I32(0))),
    "all": lambda e, bits: e.splat(e.b.icmp_unsigned("==", bits, I32(-1))),
}


def _vote(mode: str) -> Emit:
    def emit(e: Emitter) -> None:
        _whole(e)
        e.unless(e.b.icmp_unsigned("==", e.reduced("and", e.operand(2, "u32")), I32(-1)))
        bits = e.b.bitcast(e.operand(1, "pred"), I32)
        e.put(0, "b32" if mode == "ballot" else "pred", _VOTES[mode](e, bits))
        e.done()

    return emit
