"""Every typed PTX instruction of arithmetic, logic, comparison and conversion, with operands at the edges of its types.

An instruction is a text with the result %d and the operands %a, %b, %c, %e. Its cases come from the types of the
operands alone. The same text runs in the emulator, on a GPU, and through ptxas with constants for operands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernels.engines.emulator.launch import Options, device_memory, launch

CASES = 32  # of an instruction with several operands, at most
OPERANDS = "abce"
STRIDE = 8  # bytes of each operand and each result in memory


@dataclass(frozen=True)
class Typed:
    """An instruction: statements of PTX, the bits of its result, and the kinds of its operands, keys of VALUES."""

    text: str
    bits: int
    kinds: tuple[str, ...]
    floats: str = ""  # the type of a result whose NaN may have any payload: f16, f32, bf16x2 ...

    @property
    def cases(self) -> list[tuple[int, ...]]:
        """Returns the bits of the operands of each case."""
        return _cases(self.kinds)


@cache
def _cases(kinds: tuple[str, ...]) -> list[tuple[int, ...]]:
    lists = [VALUES[kind][1] for kind in kinds]
    sizes = [len(values) for values in lists]
    count = math.prod(sizes)
    if count <= CASES or len(kinds) == 1:
        return list(itertools.product(*lists))
    chosen = np.random.default_rng(len(kinds)).choice(count, CASES, replace=False)
    places = [np.unravel_index(at, sizes) for at in sorted(chosen.tolist())]
    drawn = [tuple(values[n] for values, n in zip(lists, place, strict=True)) for place in places]
    return NOTABLE.get(kinds, []) + drawn


_I16 = [0, 1, 2, 7, 0x00FF, 0x0100, 0x7FFF, 0x8000, 0x8001, 0xFFF9, 0xFFFF, 0x1234, 0xBEEF]
_I32 = [
    0,
    1,
    3,
    0xFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFD,
    0xFFFFFFFF,
    0x12345678,
    0xFEDCBA98,
]
_I64 = [
    0,
    1,
    3,
    0xFFFFFFFF,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    (1 << 64) - 3,
    (1 << 64) - 1,
    0x123456789ABCDEF0,
    0xFEDCBA9876543210,
    0x0020000000000001,
    0xFFFFFFFF80000000,
]
_F32 = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x3F800000,
    0xBF800000, 0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000, 0xC0200000, 0x3F7FFFFF, 0x3F800001, 0x33800000,
    0x40490FDB, 0x4B000001, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0x5F000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7FC00000, 0x437F8000, 0xC3010000, 0x477FF000, 0x33000000, 0x38800000, 0x387FC000, 0x3F808000,
]  # fmt: skip
_F64 = [
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000,
    0x3FF0000000000000, 0xBFF0000000000000, 0x3FE0000000000000, 0xBFE0000000000000, 0x3FF8000000000000,
    0x4004000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000001, 0x3CA0000000000000, 0x400921FB54442D18,
    0x41DFFFFFFFC00000, 0x41E0000000000000, 0xC1E0000000200000, 0x43E0000000000000, 0xC3E0000000000000,
    0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
    0x36A0000000000000, 0x3690000000000000, 0x380FFFFFE0000000, 0x47EFFFFFF0000000, 0x3FF0000010000000,
    0x3FF0000030000000, 0x43F0000000000000,
]  # fmt: skip
_F16 = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x3800, 0x3E00, 0x4100, 0x3BFF, 0x3C01,
    0x4248, 0x6401, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x5BF8,
]  # fmt: skip
_BF16 = [
    0x0000,
    0x8000,
    0x0001,
    0x807F,
    0x0080,
    0x3F80,
    0xBF80,
    0x3F00,
    0x3FC0,
    0x4020,
    0x3F7F,
    0x3F81,
    0x4049,
    0x4B01,
    0x7F7F,
    0xFF7F,
    0x7F80,
    0xFF80,
    0x7FC0,
    0x3380,
]
_AMOUNTS = [0, 1, 5, 8, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 255, 256, 257, 0x80000000, 0xFFFFFFFF]


def _pairs(values: Sequence[int]) -> list[int]:
    """Returns words of two 16-bit values: each value once in the low and once in the high half."""
    return [low | high << 16 for low, high in zip(values, np.roll(values, 5).tolist(), strict=True)]


# The kind of an operand: the type of its register, and its values.
VALUES: dict[str, tuple[str, list[int]]] = {
    "i8": ("b16", [0, 1, 0x7F, 0x80, 0xFF, 0x1234, 0xFF80, 0x017F]),
    "i16": ("b16", _I16),
    "i32": ("b32", _I32),
    "i64": ("b64", _I64),
    "f16": ("b16", _F16),
    "bf16": ("b16", _BF16),
    "f32": ("b32", _F32),
    "f64": ("b64", _F64),
    "f16x2": ("b32", _pairs(_F16)),
    "bf16x2": ("b32", _pairs(_BF16)),
    "i16x2": ("b32", _pairs(_I16)),
    "amount": ("b32", _AMOUNTS),
    "offset": ("b32", [0, 1, 2, 5, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFF0]),
    "base": ("b32", [0, 1, 7, 16, 30, 31]),
    "selector": ("b32", [0x3210, 0x7654, 0x0123, 0xFEDC, 0x89AB, 0x0F18, 0x10003, 2, 1, 3, 0]),
    "bit": ("b32", [0, 1]),
}
# Cases that a draw may miss: the fields of bfe, subnormal and tied results, results just below the smallest normal one.
NOTABLE = {
    ("i32", "amount", "amount"): [(0x80000000, 24, 16), (0x80000000, 31, 2), (0x80000000, 33, 1), (0xF0000000, 28, 0)],
    ("i64", "amount", "amount"): [(1 << 63, 56, 16), (1 << 63, 63, 2), (1 << 63, 65, 1), (0xF << 60, 60, 0)],
    ("f32", "f32"): [
        (0x00800000, 0x3F7FFFFF),
        (0x80800000, 0x3F7FFFFF),
        (0x00000001, 0x3F800000),
        (0x80000001, 0x3F800000),
        (0x00800001, 0x80800000),
        (0x00000001, 0x80000002),
        (0x3F800000, 0x33800000),
        (0x007FFFFF, 0x4B000001),
    ],
    ("f32", "f32", "f32"): [
        (0x00800000, 0x3F7FFFFF, 0x80000000),
        (0x00000001, 0x3F800000, 0x80000002),
        (0x3F800001, 0x3F800001, 0xBF800002),
        (0x3F800000, 0x33800000, 0x3F800000),
        (0x80000001, 0x3F800000, 0x80000000),
        (0x3F800000, 0x80800000, 0x00800001),
    ],
    ("f16", "f16"): [(0x0400, 0x3BFF), (0x0001, 0x3C00), (0x8001, 0x3C00), (0x0401, 0x8400), (0x8000, 0x0000)],
    ("f16x2", "f16x2"): [(0x04000001, 0x3BFF3C00), (0x80010401, 0x3C008400), (0x00008000, 0x80000000)],
}
_SIZE = {"16": "i16", "32": "i32", "64": "i64"}
FLOATS = ("f16", "bf16", "f32", "f64")


def kind(type_: str) -> str:
    """Returns the kind of an operand of a PTX type: "s32" -> "i32"."""
    if type_ in ("s8", "u8"):
        return "i8"
    return type_ if type_ in VALUES else "i16x2" if type_.endswith("x2") else _SIZE[type_[1:]]


def bits(type_: str) -> int:
    return int(VALUES[kind(type_)][0][1:])


def _typed(opcode: str, result: str, *operands: str, more: str = "") -> Typed:
    """Returns an instruction with one opcode. `more`: operands that are constants of the instruction."""
    names = [f"%{n}" for n in OPERANDS[: len(operands)]]
    kinds = tuple(o if o in VALUES else kind(o) for o in operands)
    return Typed(
        f"{opcode} {', '.join(['%d', *names])}{more};",
        bits(result),
        kinds,
        result if result.startswith(("f", "bf")) else "",
    )


def _bool(opcode: str, *operands: str) -> Typed:
    """Returns a comparison whose predicate is the result, 0 or 1."""
    names = [f"%{n}" for n in OPERANDS[: len(operands)]]
    text = f"{opcode} %p, {', '.join(names)}; selp.u32 %d, 1, 0, %p;"
    return Typed(text, 32, tuple(map(kind, operands)))


SIGNED, UNSIGNED, UNTYPED = (tuple(f"{letter}{n}" for n in (16, 32, 64)) for letter in "sub")
INTEGERS = UNSIGNED + SIGNED
ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
DIRECTIONS = ("rn", "rz", "rm", "rp")


def wide(type_: str) -> str:
    return f"{type_[0]}{2 * int(type_[1:])}"


def integer_arithmetic() -> Iterable[Typed]:
    for t in INTEGERS:
        for name in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield _typed(f"{name}.{t}", t, t, t)
        for name in ("mad.lo", "mad.hi", "sad"):
            yield _typed(f"{name}.{t}", t, t, t, t)
        if not t.endswith("64"):
            yield _typed(f"mul.wide.{t}", wide(t), t, t)
            yield _typed(f"mad.wide.{t}", wide(t), t, t, wide(t))
    for t in SIGNED:
        yield from (_typed(f"{name}.{t}", t, t) for name in ("abs", "neg"))
    for name in ("add.sat", "sub.sat", "min.relu", "max.relu"):
        yield _typed(f"{name}.s32", "s32", "s32", "s32")
    for t in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield _typed(f"mul24.{half}.{t}", t, t, t)
            yield _typed(f"mad24.{half}.{t}", t, t, t, t)
    yield _typed("mad24.hi.sat.s32", "s32", "s32", "s32", "s32")
    yield from dot_products()
    yield from carries()


def dot_products() -> Iterable[Typed]:
    for a, b in itertools.product(("u32", "s32"), repeat=2):
        yield _typed(f"dp4a.{a}.{b}", "b32", a, b, "b32")
        yield from (_typed(f"dp2a.{half}.{a}.{b}", "b32", a, b, "b32") for half in ("lo", "hi"))


def carries() -> Iterable[Typed]:
    """Yields sums and products of several words. The result is the last word's."""
    for t in ("u32", "s32", "u64", "s64"):
        k, size = kind(t), bits(t)
        for name in ("add", "sub"):
            yield Typed(f"{name}.cc.{t} %t{size}, %a, %b; {name}c.{t} %d, %c, %e;", size, (k,) * 4)
            yield Typed(
                f"{name}.cc.{t} %t{size}, %a, %b; {name}c.cc.{t} %t{size}, %c, %e; {name}c.{t} %d, 0, 0;",
                size,
                (k,) * 4,
            )
        for half in ("lo", "hi"):
            yield Typed(f"mad.{half}.cc.{t} %t{size}, %a, %b, %c; addc.{t} %d, %e, 0;", size, (k,) * 4)
            yield Typed(f"add.cc.{t} %t{size}, %a, %b; madc.{half}.{t} %d, %a, %c, %e;", size, (k,) * 4)


def logic() -> Iterable[Typed]:
    for t in UNTYPED:
        yield from (_typed(f"{name}.{t}", t, t, t) for name in ("and", "or", "xor"))
        yield from (_typed(f"{name}.{t}", t, t) for name in ("not", "cnot"))
        yield _typed(f"shl.{t}", t, t, "amount")
    for t in UNTYPED + INTEGERS:
        yield _typed(f"shr.{t}", t, t, "amount")
    for t in ("b32", "b64"):
        yield from (_typed(f"{name}.{t}", "b32", t) for name in ("popc", "clz"))
        yield _typed(f"brev.{t}", t, t)
        yield _typed(f"bfi.{t}", t, t, t, "amount", "amount")
    for t in ("u32", "s32", "u64", "s64"):
        yield _typed(f"bfind.{t}", "u32", t)
        yield _typed(f"bfind.shiftamt.{t}", "u32", t)
        yield _typed(f"bfe.{t}", t, t, "amount", "amount")
    for mode in ("clamp", "wrap"):
        yield from (_typed(f"szext.{mode}.{t}", t, t, "amount") for t in ("u32", "s32"))
        yield _typed(f"bmsk.{mode}.b32", "b32", "amount", "amount")
        yield from (_typed(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", "amount") for side in "lr")
    yield _typed("fns.b32", "b32", "b32", "base", "offset")
    for table in (0x00, 0x1E, 0x80, 0x96, 0xE8, 0xCA, 0xFE, 0xFF):
        yield _typed("lop3.b32", "b32", "b32", "b32", "b32", more=f", {table:#x}")
    for combine in ("and", "or"):
        text = f"setp.ne.b32 %q, %e, 0; lop3.{combine}.b32 %t32|%p, %a, %b, %c, 0x80, %q; selp.u32 %d, 1, 0, %p;"
        yield Typed(text, 32, ("i32", "i32", "i32", "bit"))
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield _typed(f"prmt.b32{mode}", "b32", "b32", "b32", "selector")
    for name in ("and", "or", "xor"):
        text = f"setp.ne.b32 %p, %a, 0; setp.ne.b32 %q, %b, 0; {name}.pred %p, %p, %q; selp.u32 %d, 1, 0, %p;"
        yield Typed(text, 32, ("bit", "bit"))
    yield Typed("setp.ne.b32 %p, %a, 0; not.pred %p, %p; selp.u32 %d, 1, 0, %p;", 32, ("bit",))


def comparisons() -> Iterable[Typed]:
    for t in INTEGERS:
        yield from (_bool(f"setp.{op}.{t}", t, t) for op in ORDERED)
    for t in UNSIGNED:
        yield from (_bool(f"setp.{op}.{t}", t, t) for op in ("lo", "ls", "hi", "hs"))
    for t in UNTYPED:
        yield from (_bool(f"setp.{op}.{t}", t, t) for op in ("eq", "ne"))
    for t in FLOATS:
        yield from (_bool(f"setp.{op}.{t}", t, t) for op in ORDERED + UNORDERED)
    for t in ("f32", "f16"):
        yield from (_bool(f"setp.{op}.ftz.{t}", t, t) for op in (*ORDERED, "neu", "num"))
    for combine in ("and", "or", "xor"):
        for result in ("%p", "%q"):
            text = f"setp.ne.b32 %q, %c, 0; setp.lt.{combine}.s32 %p|%q, %a, %b, %q; selp.u32 %d, 1, 0, {result};"
            yield Typed(text, 32, ("i32", "i32", "bit"))
    for to, t in itertools.product(("u32", "s32", "f32"), ("u32", "s32", "u64", "f32", "f64")):
        yield from (_typed(f"set.{op}.{to}.{t}", to, t, t) for op in ("eq", "lt", "ge"))
    for op in ("neu", "leu", "num"):
        yield _typed(f"set.{op}.ftz.f32.f32", "f32", "f32", "f32")
    for t in ("f32", "f64"):
        yield from (
            _bool(f"testp.{c}.{t}", t) for c in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
        )
    for t in (*UNTYPED, *INTEGERS, "f32", "f64"):
        yield Typed(f"setp.ne.b32 %p, %c, 0; selp.{t} %d, %a, %b, %p;", bits(t), (kind(t), kind(t), "bit"))
        yield _typed(f"slct.{t}.s32", t if t[0] != "f" else f"b{bits(t)}", t, t, "s32")
    for t in ("b32", "f32"):
        yield _typed(f"slct.{t}.f32", "b32", t, t, "f32")
        yield _typed(f"slct.ftz.{t}.f32", "b32", t, t, "f32")


def float_arithmetic() -> Iterable[Typed]:
    for t, flush in itertools.product(("f32", "f64"), ("", ".ftz")):
        if t == "f64" and flush:
            continue
        for mode in DIRECTIONS:
            yield from (_typed(f"{name}.{mode}{flush}.{t}", t, t, t) for name in ("add", "sub", "mul", "div"))
            yield _typed(f"fma.{mode}{flush}.{t}", t, t, t, t)
            yield from (_typed(f"{name}.{mode}{flush}.{t}", t, t) for name in ("rcp", "sqrt"))
        yield from (_typed(f"{name}{flush}.{t}", t, t, t) for name in ("min", "max"))
        yield from (_typed(f"{name}{flush}.{t}", t, t) for name in ("abs", "neg"))
    for flush in ("", ".ftz"):
        for name in ("add", "sub", "mul"):
            yield from (_typed(f"{name}.{mode}{flush}.sat.f32", "f32", "f32", "f32") for mode in DIRECTIONS)
        yield from (_typed(f"fma.{mode}{flush}.sat.f32", "f32", "f32", "f32", "f32") for mode in DIRECTIONS)
        for name in ("min", "max"):
            yield _typed(f"{name}{flush}.NaN.f32", "f32", "f32", "f32")
            yield _typed(f"{name}{flush}.xorsign.abs.f32", "f32", "f32", "f32")
            yield _typed(f"{name}{flush}.NaN.xorsign.abs.f32", "f32", "f32", "f32")
    yield from (_typed(f"copysign.{t}", f"b{bits(t)}", t, t) for t in ("f32", "f64"))
    yield from half_arithmetic()


def half_arithmetic() -> Iterable[Typed]:
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        ieee = not t.startswith("b")
        for flush in ("", ".ftz") if ieee else ("",):
            if ieee:
                yield from (
                    _typed(f"{name}{flush}{sat}.{t}", t, t, t) for name in ("add", "sub", "mul") for sat in ("", ".sat")
                )
                yield _typed(f"fma.rn{flush}.sat.{t}", t, t, t, t)
            yield from (_typed(f"fma.rn{flush}{relu}.{t}", t, t, t, t) for relu in ("", ".relu"))
            for name in ("min", "max"):
                yield from (_typed(f"{name}{flush}{more}.{t}", t, t, t) for more in ("", ".NaN", ".xorsign.abs"))
            yield from (_typed(f"{name}{flush}.{t}", t, t) for name in ("abs", "neg"))
        if not ieee:
            yield from (_typed(f"{name}.rn.{t}", t, t, t) for name in ("add", "sub", "mul"))


def _holds(to: str, from_: str) -> bool:
    """Returns whether an integer type has every value of another: PTX has no .sat for these."""
    to_bits, from_bits = int(to[1:]), int(from_[1:])
    return to_bits >= from_bits if to[0] == from_[0] else to[0] == "s" and to_bits > from_bits


def conversions() -> Iterable[Typed]:
    narrow = ("u8", "s8", *INTEGERS)
    for to, from_ in itertools.product(narrow, narrow):
        if to != from_:
            yield _typed(f"cvt.{to}.{from_}", to, from_)
        if not _holds(to, from_):
            yield _typed(f"cvt.sat.{to}.{from_}", to, from_)
    for t, from_ in itertools.product(("f16", "f32", "f64"), narrow):
        yield from (_typed(f"cvt.{mode}.{t}.{from_}", t, from_) for mode in DIRECTIONS)
    for to, from_ in itertools.product(narrow, ("f16", "f32", "f64")):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            yield _typed(f"cvt.{mode}.{to}.{from_}", to, from_)
            if from_ == "f32":
                yield _typed(f"cvt.{mode}.ftz.{to}.f32", to, from_)
        yield _typed(f"cvt.rni.sat.{to}.{from_}", to, from_)
    for to, from_ in (("f32", "f64"), ("f16", "f32"), ("f16", "f64")):
        for mode in DIRECTIONS if to == "f32" else ("rn", "rz", "rm", "rp"):
            yield _typed(f"cvt.{mode}.{to}.{from_}", to, from_)
            yield _typed(f"cvt.{mode}.sat.{to}.{from_}", to, from_)
    for mode in DIRECTIONS:
        yield _typed(f"cvt.{mode}.ftz.f32.f64", "f32", "f64")
        yield _typed(f"cvt.{mode}.ftz.f16.f32", "f16", "f32")
    for to, from_ in (("f64", "f32"), ("f32", "f16"), ("f64", "f16")):
        yield from (_typed(f"cvt{sat}.{to}.{from_}", to, from_) for sat in ("", ".sat"))
    yield from (_typed(f"cvt.ftz{sat}.f64.f32", "f64", "f32") for sat in ("", ".sat"))
    yield from (_typed(f"cvt.ftz{sat}.f32.f16", "f32", "f16") for sat in ("", ".sat"))
    for t in ("f32", "f64", "f16"):
        yield from (
            _typed(f"cvt.{mode}{sat}.{t}.{t}", t, t) for mode in ("rni", "rzi", "rmi", "rpi") for sat in ("", ".sat")
        )
        yield _typed(f"cvt.sat.{t}.{t}", t, t)
    yield from (_typed(f"cvt.{mode}.ftz.f32.f32", "f32", "f32") for mode in ("rni", "rzi", "rmi", "rpi"))
    yield _typed("cvt.ftz.f32.f32", "f32", "f32")
    yield _typed("cvt.ftz.sat.f32.f32", "f32", "f32")
    for mode in ("rn", "rz"):
        yield _typed(f"cvt.{mode}.bf16.f32", "bf16", "f32")
        yield from (_typed(f"cvt.{mode}.bf16.{t}", "bf16", t) for t in ("s32", "u32", "s64", "u64", "f64", "f16"))
    for t in ("f16x2", "bf16x2"):
        yield from (_typed(f"cvt.rn{relu}.{t}.f32", t, "f32", "f32") for relu in ("", ".relu"))
    yield _typed("cvt.f32.bf16", "f32", "bf16")
    yield _typed("cvt.rna.tf32.f32", "f32", "f32")
    for narrow_type in ("u16", "s16", "u8", "s8"):
        c = ("b32",) if narrow_type.endswith("8") else ()
        more = ".b32" if c else ""
        yield _typed(f"cvt.pack.sat.{narrow_type}.s32{more}", "b32", "s32", "s32", *c)
    for name in ("e4m3x2", "e5m2x2"):
        yield Typed(f"cvt.rn.satfinite.{name}.f32 %d, %a, %b;", 16, ("f32", "f32"))
        yield Typed(f"cvt.rn.satfinite.{name}.f16x2 %d, %a;", 16, ("f16x2",))
        yield Typed(f"cvt.rn.f16x2.{name} %d, %a;", 32, ("i16",), "f16x2")


def video() -> Iterable[Typed]:
    for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for to, t in itertools.product(("u32", "s32"), repeat=2):
            for sat in ("", ".sat"):
                yield _typed(f"{name}.{to}.{t}.{t}{sat}", "b32", t, t)
                for count in "24":
                    yield _typed(f"{name}{count}.{to}.{t}.{t}{sat}", "b32", t, t, "b32")
    for t in ("u32", "s32"):
        for count in "24":
            yield _typed(f"vavrg{count}.{t}.{t}.{t}", "b32", t, t, "b32")
            yield from (_typed(f"vset{count}.{t}.{t}.{op}", "b32", t, t, "b32") for op in ("eq", "lt"))
        yield from (_typed(f"vmad.{t}.{t}.{t}{shift}", "b32", t, t, "b32") for shift in ("", ".shr7", ".shr15", ".sat"))


def approximations() -> Iterable[Typed]:
    """Yields instructions whose result is not rounded: a GPU's last bits are its own."""
    for flush in ("", ".ftz"):
        yield from (
            _typed(f"{name}.approx{flush}.f32", "f32", "f32")
            for name in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2")
        )
        yield from (_typed(f"div.{name}{flush}.f32", "f32", "f32", "f32") for name in ("approx", "full"))
    yield from (_typed(f"{name}.approx.ftz.f64", "f64", "f64") for name in ("rcp", "rsqrt"))
    yield _typed("rsqrt.approx.f64", "f64", "f64")
    yield from (_typed(f"tanh.approx.{t}", t, t) for t in ("f32", "f16", "bf16"))
    yield _typed("ex2.approx.f16", "f16", "f16")


GROUPS: dict[str, Callable[[], Iterable[Typed]]] = {
    "integer arithmetic": integer_arithmetic,
    "logic": logic,
    "comparisons": comparisons,
    "float arithmetic": float_arithmetic,
    "conversions": conversions,
    "video": video,
}


def instructions() -> list[Typed]:
    """Returns every instruction whose result is defined to the bit."""
    return [i for group in GROUPS.values() for i in group()]


# -- PTX ---------------------------------------------------------------------------------------------------
HEADER = ".version 8.7\n.target {target}\n.address_size 64\n"
_TEMPORARY = ".reg .pred %p, %q; .reg .b32 %t32; .reg .b64 %t64;"


def _registers(i: Typed) -> str:
    of_operands = [f".reg .{VALUES[k][0]} %{n};" for n, k in zip(OPERANDS, i.kinds, strict=False)]
    return " ".join([f".reg .b{i.bits} %d;", *of_operands, _TEMPORARY])


def of_constants(i: Typed, name: str) -> str:
    """Returns a kernel that executes an instruction for each of its cases with constants for operands."""
    lines = [f".visible .entry {name}(.param .u64 out) {{", ".reg .b64 %out; ld.param.u64 %out, [out];"]
    for n, case in enumerate(i.cases):
        moves = [f"mov.{VALUES[k][0]} %{r}, {v:#x};" for r, k, v in zip(OPERANDS, i.kinds, case, strict=False)]
        lines += ["{", _registers(i), *moves, i.text, f"st.global.b{i.bits} [%out+{STRIDE * n}], %d;", "}"]
    return "\n".join([*lines, "ret;", "}"])


def of_memory(i: Typed, name: str) -> str:
    """Returns a kernel whose threads each execute an instruction for one case: operands in an array [operand, case]."""
    count = len(i.cases)
    lines = [
        f".visible .entry {name}(.param .u64 out, .param .u64 in) {{",
        _registers(i),
        ".reg .b32 %i; .reg .b64 %out, %in, %at; .reg .pred %beyond;",
        "ld.param.u64 %out, [out]; ld.param.u64 %in, [in];",
        "cvta.to.global.u64 %out, %out; cvta.to.global.u64 %in, %in;",
        f"mov.u32 %i, %tid.x; setp.ge.u32 %beyond, %i, {count}; @%beyond ret;",
        f"mul.wide.u32 %at, %i, {STRIDE}; add.u64 %out, %out, %at; add.u64 %in, %in, %at;",
    ]
    for n, (r, k) in enumerate(zip(OPERANDS, i.kinds, strict=False)):
        lines.append(f"ld.global.{VALUES[k][0]} %{r}, [%in+{STRIDE * n * count}];")
    return "\n".join([*lines, i.text, f"st.global.b{i.bits} [%out], %d;", "ret;", "}"])


def operands(i: Typed) -> np.ndarray:
    """Returns the operands of all cases: uint64 [operand, case]."""
    return np.array(i.cases, np.uint64).T.copy()


# -- results -----------------------------------------------------------------------------------------------
def emulated(i: Typed) -> np.ndarray:
    """Returns the results of an instruction's cases in the emulator: uint64."""
    count = len(i.cases)
    memory = device_memory({"out": np.zeros(count, np.uint64), "in": operands(i)}, ["out", "in"])
    ptx = HEADER.format(target="sm_90") + of_memory(i, "k")
    threads = -(-count // 32) * 32
    launch(ptx, "k", (1, 1, 1), (threads, 1, 1), ["out", "in"], memory, options=Options(count=False))
    return memory.array("out")


def on_gpu(table: Sequence[Typed]) -> list[np.ndarray]:
    """Returns the results of each instruction's cases on a GPU: uint64."""
    import cupy

    kernels = [of_memory(i, f"k{n}") for n, i in enumerate(table)]
    capability = cupy.cuda.Device().compute_capability
    module = cupy.cuda.function.Module()
    module.load("\n".join([HEADER.format(target=f"sm_{capability}"), *kernels]).encode())
    results = []
    for n, i in enumerate(table):
        out, values = cupy.zeros(len(i.cases), cupy.uint64), cupy.asarray(operands(i))
        module.get_function(f"k{n}")((1,), (len(i.cases),), (out, values))
        results.append(cupy.asnumpy(out))
    return results


def differences(i: Typed, at: Sequence[int], got: np.ndarray, expected: np.ndarray) -> list[str]:
    """Returns a line for each case, of those with the numbers `at`, whose two results differ."""
    return [
        f"{i.text} of {', '.join(f'{v:#x}' for v in i.cases[at[n]])}: {int(got[n]):#x}, not {int(expected[n]):#x}"
        for n in np.flatnonzero(~same(i, got, expected))
    ]


def same(i: Typed, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns for each case whether two results are equal. Of floats, any NaN equals any other."""
    if not i.floats:
        return a == b
    shifts = (0, 16) if i.floats.endswith("x2") else (0,)
    return np.logical_and.reduce([_same_floats(i.floats, a >> np.uint64(s), b >> np.uint64(s)) for s in shifts])


def _same_floats(type_: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    width, mantissa = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}[type_.removesuffix("x2")]
    bits, infinity = np.uint64((1 << width) - 1), np.uint64((1 << width - 1) - (1 << mantissa))
    magnitude = bits >> np.uint64(1)
    a, b = a & bits, b & bits
    return (a == b) | ((a & magnitude > infinity) & (b & magnitude > infinity))
