"""LLVM code for one instruction of a warp: operands as vectors of 32 lanes, results under a mask.

A handler is a function `i32 handler(i64* record, i64 warp, i32 mask)`. It returns 0, or 1 if it has done nothing, because NumPy
has to execute the instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from kernels.engines.emulator.native.record import LANES, OPERANDS

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
SCALARS: dict[str, ir.Type] = {
    **dict.fromkeys(("b8", "u8", "s8", "pred"), I8),
    **dict.fromkeys(("b16", "u16", "s16"), I16),
    **dict.fromkeys(("b32", "u32", "s32"), I32),
    **dict.fromkeys(("b64", "u64", "s64"), I64),
    "f32": F32,
    "f64": F64,
}
FUNCTION = ir.FunctionType(I32, [I64.as_pointer(), I64, I32])


def vector(type_: ir.Type, lanes: int = LANES) -> ir.VectorType:
    return ir.VectorType(type_, lanes)


def constant(value: int | float | Sequence[int], type_: ir.Type, lanes: int = LANES) -> ir.Constant:
    """Returns a vector of one value, or of one a lane."""
    return ir.Constant(vector(type_, lanes), list(value) if isinstance(value, Sequence) else [value] * lanes)


def splat(b: Any, value: Any, lanes: int = LANES) -> ir.Value:
    """Returns a vector of one value."""
    of = vector(value.type, lanes)
    first = b.insert_element(ir.Constant(of, ir.Undefined), value, I32(0))
    return b.shuffle_vector(first, ir.Constant(of, ir.Undefined), constant(0, I32, lanes))


class Emitter:
    """Emits the body of one handler. `b`: LLVM's builder. `mask`: the active lanes as bits."""

    def __init__(self, name: str):
        self.module = ir.Module()
        self.function = ir.Function(self.module, FUNCTION, name)
        self.record, self.warp, self.mask = self.function.args
        self.b: Any = ir.IRBuilder(self.function.append_basic_block())  # llvmlite's builder has no types of results

    # -- the record -------------------------------------------------------------------------------
    def field(self, n: int) -> ir.Value:
        return self.b.load(self.b.gep(self.record, [I32(n)]))

    def place(self, n: int, type_: ir.Type) -> ir.Value:
        """Returns a pointer to operand n of this warp, 32 values of a type."""
        base, stride = self.field(OPERANDS + 2 * n), self.field(OPERANDS + 2 * n + 1)
        return self.b.inttoptr(self.b.add(base, self.b.mul(stride, self.warp)), vector(type_).as_pointer())

    def operand(self, n: int, type_: str) -> ir.Value:
        """Returns operand n; a predicate has one bit a lane."""
        value = self.loaded(self.place(n, SCALARS[type_]))
        return self.b.trunc(value, vector(I1)) if type_ == "pred" else value

    def loaded(self, pointer: ir.Value) -> ir.Value:
        return self.b.load(pointer, align=1)

    def stored(self, value: ir.Value, pointer: ir.Value) -> None:
        self.b.store(value, pointer, align=1)

    @property
    def lanes(self) -> ir.Value:
        """The active lanes as a vector of bits."""
        return self.b.bitcast(self.mask, vector(I1))

    def put(self, n: int, type_: str, value: ir.Value) -> None:
        """Write operand n in the active lanes."""
        b, to = self.b, self.place(n, SCALARS[type_])
        if type_ == "pred":
            value = b.zext(value, vector(I8))
        with b.if_else(b.icmp_unsigned("==", self.mask, I32(-1))) as (all_lanes, some):
            with all_lanes:
                self.stored(value, to)
            with some:
                self.stored(b.select(self.lanes, value, self.loaded(to)), to)

    def done(self) -> None:
        self.b.ret(I32(0))

    # -- LLVM's functions ---------------------------------------------------------------------------
    def call(self, name: str, *values: Any, type_: ir.Type | None = None) -> ir.Value:
        """Returns llvm.<name> of vectors. `type_`: of the result, if it is another one."""
        of = values[0].type
        suffix = f"v{of.count}{_short(of.element)}" if isinstance(of, ir.VectorType) else _short(of)
        return self.b.call(self.declared(f"llvm.{name}.{suffix}", type_ or of, [v.type for v in values]), values)

    def declared(self, name: str, result: ir.Type, types: Sequence[ir.Type]) -> ir.Function:
        """Returns a function of another module, or of LLVM."""
        known = self.module.globals.get(name)
        return known or ir.Function(self.module, ir.FunctionType(result, types), name)

    def reduced(self, name: str, value: Any) -> ir.Value:
        """Returns llvm.vector.reduce.<name> of a vector."""
        return self.call(f"vector.reduce.{name}", value, type_=value.type.element)

    def splat(self, value: Any, lanes: int = LANES) -> ir.Value:
        return splat(self.b, value, lanes)

    # -- control ----------------------------------------------------------------------------------
    def unless(self, condition: ir.Value) -> None:
        """Return 1 unless the condition holds."""
        self.leave_if(self.b.not_(condition))

    def leave_if(self, condition: ir.Value) -> None:
        """Return 1, so that NumPy executes the instruction, if the condition holds."""
        with self.b.if_then(condition, likely=False):
            self.b.ret(I32(1))

    def local(self, type_: ir.Type) -> ir.Value:
        """Returns a variable."""
        with self.b.goto_entry_block():
            return self.b.alloca(type_)

    @contextmanager
    def each_bit(self, mask: ir.Value) -> Iterator[ir.Value]:
        """Loops over the lanes that are bits of a mask, the lowest first."""
        with each_bit(self.b, self.local(I32), mask) as lane:
            yield lane


@contextmanager
def each_bit(b: Any, rest: ir.Value, mask: ir.Value) -> Iterator[ir.Value]:
    """Loops over the bits of a mask. `rest`: a variable of 32 bits."""
    head, body, end = (b.append_basic_block(name) for name in ("head", "body", "end"))
    b.store(mask, rest)
    b.branch(head)
    b.position_at_end(head)
    b.cbranch(b.icmp_unsigned("!=", b.load(rest), I32(0)), body, end)
    b.position_at_end(body)
    now = b.load(rest)
    lane = b.cttz(now, I1(1))
    b.store(b.and_(now, b.sub(now, I32(1))), rest)
    yield b.zext(lane, I64)
    b.branch(head)
    b.position_at_end(end)


def _short(type_: ir.Type) -> str:
    return {F32: "f32", F64: "f64"}.get(type_) or str(type_)


Emit = Callable[[Emitter], None]


def text(name: str, emit: Emit) -> str:
    """Returns the code of a module with one handler."""
    e = Emitter(name)
    emit(e)
    return str(e.module)
