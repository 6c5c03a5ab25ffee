"""The emulator's arithmetic, control flow and warp instructions, against NumPy and Python's integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from kernels.engines.emulator.machine import EmulatorError
from kernels.engines.emulator.parse import PtxError
from tests.unit.emulated import elementwise, emulate, needs_nvrtc

pytestmark = needs_nvrtc
f32, f64, i32, u32, i64, u64 = np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64
rng = np.random.default_rng(7)
START = rng.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers():
    """Whatever ran before, in whichever process."""
    rng.bit_generator.state = START


def _pairs(edges, extra: int, bits: int, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edge values, and random ones of every magnitude."""
    mask = (1 << bits) - 1
    wild = [
        int(x) >> int(s)
        for x, s in zip(rng.integers(0, 1 << 63, extra) * 2 + 1, rng.integers(0, 60, extra), strict=True)
    ]
    values = np.array([(e & mask) for e in edges], f"u{bits // 8}")
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    wild = np.array([w & mask for w in wild], f"u{bits // 8}")
    return np.concatenate([a, wild]).view(dtype), np.concatenate([b, wild[::-1]]).view(dtype)


EDGES = [0, 1, -1, 2, -2, 7, -7, 10, 31, 32, 33, 127, 128, 255, -128, 32767, -32768, 65535, 65536, 0x55555555]
EDGES_32 = [*EDGES, 2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1, 0x00FF00FF, 1 << 30]
EDGES_64 = [*EDGES_32, 2**32, 2**32 - 1, 2**33 + 5, -(2**33), 2**63 - 1, -(2**63), 2**62, 0x0123456789ABCDEF]
SIGNED, UNSIGNED = _pairs(EDGES_32, 300, 32, i32), _pairs(EDGES_32, 300, 32, u32)
SIGNED_64, UNSIGNED_64 = _pairs(EDGES_64, 300, 64, i64), _pairs(EDGES_64, 300, 64, u64)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.25, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3.4e38, -3.4e38,
     2147483648.0, -2147483648.0, 4294967296.0, 1e10, -1e10, 1e20, -1e20, 127.5, 255.5, 65504.0, 70000.0, 1e-7],
    f32,
)  # fmt: skip


def _floats(n: int = 2000) -> np.ndarray:
    """Random floats of all magnitudes, with the special ones in front."""
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(u32)
    return np.concatenate([SPECIAL, bits.view(f32)])


def _wrap(value: int, dtype) -> int:
    bits = 8 * np.dtype(dtype).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> (bits - 1) else value


def _python(f, dtype, *arrays) -> np.ndarray:
    """f on Python's unbounded integers, wrapped into the type."""
    return np.array([_wrap(f(*map(int, row)), dtype) for row in zip(*arrays, strict=True)], dtype)


def _quotient(a: int, b: int) -> int:
    """C's: towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _same(got: np.ndarray, wanted: np.ndarray, what: str = "") -> None:
    """Equal to the bit but for the bits of a NaN."""
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype, what
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted), what)
        got, wanted = (np.where(np.isnan(x), 0, x) for x in (got, wanted))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted), what)
    np.testing.assert_array_equal(got, wanted, what)


# -- integers ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "pair, dtype, c_type",
    [
        (SIGNED, i32, "int"),
        (UNSIGNED, u32, "unsigned"),
        (SIGNED_64, i64, "long long"),
        (UNSIGNED_64, u64, "unsigned long long"),
    ],
)
def test_integer_arithmetic(pair, dtype, c_type):
    a, b = pair
    c = a[::-1].copy()
    low, bits = np.iinfo(dtype).min, 8 * np.dtype(dtype).itemsize
    fits = (b != 0) & ~((a == low) & (b == dtype(-1) if low else False))
    d = np.where(fits, b, dtype(3))
    count = (b.astype(u64) % u64(bits)).astype(dtype)
    cases = {
        "add": ("a + b", lambda a, b, c, d, n: a + b),
        "sub": ("a - b", lambda a, b, c, d, n: a - b),
        "mul": ("a * b", lambda a, b, c, d, n: a * b),
        "mad": ("a * b + c", lambda a, b, c, d, n: a * b + c),
        "div": ("a / d", lambda a, b, c, d, n: _quotient(a, d)),
        "rem": ("a % d", lambda a, b, c, d, n: a - d * _quotient(a, d)),
        "div7": ("a / 7", lambda a, b, c, d, n: _quotient(a, 7)),
        "rem10": ("a % 10", lambda a, b, c, d, n: a - 10 * _quotient(a, 10)),
        "neg": ("-a", lambda a, b, c, d, n: -a),
        "inv": ("~a", lambda a, b, c, d, n: ~a),
        "and_": ("a & b", lambda a, b, c, d, n: a & b),
        "or_": ("a | b", lambda a, b, c, d, n: a | b),
        "xor_": ("a ^ b", lambda a, b, c, d, n: a ^ b),
        "mix": ("(a & b) ^ (~c | b)", lambda a, b, c, d, n: (a & b) ^ (~c | b)),
        "left": ("a << n", lambda a, b, c, d, n: a << n),
        "right": ("a >> n", lambda a, b, c, d, n: a >> n),
        "least": ("min(a, b)", lambda a, b, c, d, n: min(a, b)),
        "most": ("max(a, b)", lambda a, b, c, d, n: max(a, b)),
        "less": ("a < b", lambda a, b, c, d, n: a < b),
        "le": ("a <= b", lambda a, b, c, d, n: a <= b),
        "same": ("a == b", lambda a, b, c, d, n: a == b),
        "chosen": ("a > c ? b : c", lambda a, b, c, d, n: b if a > c else c),
    }
    got = elementwise(
        {name: (text, dtype) for name, (text, _) in cases.items()},
        {"a": (c_type, a), "b": (c_type, b), "c": (c_type, c), "d": (c_type, d), "n": (c_type, count)},
    )
    for name, (text, f) in cases.items():
        _same(got[name], _python(f, dtype, a, b, c, d, count), text)


def test_shifts_by_the_width_and_more_give_what_ptx_says():
    """C leaves them open; PTX clamps the count: zeros, or the sign."""
    a, _ = SIGNED
    count = np.resize(np.array([0, 1, 31, 32, 33, 64, 255, 256, 2**31], u32), len(a))
    prelude = """
    __device__ unsigned shl(unsigned a, unsigned n) { unsigned r; asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(n)); return r; }
    __device__ unsigned shr(unsigned a, unsigned n) { unsigned r; asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(n)); return r; }
    __device__ int sar(int a, unsigned n) { int r; asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(n)); return r; }
    __device__ unsigned long long wide(unsigned long long a, unsigned n) { unsigned long long r; asm("shl.b64 %0, %1, %2;" : "=l"(r) : "l"(a), "r"(n)); return r; }
    """
    got = elementwise(
        {"l": ("shl(a, n)", u32), "r": ("shr(a, n)", u32), "s": ("sar(a, n)", i32), "w": ("wide(a, n)", u64)},
        {"a": ("int", a), "n": ("unsigned", count)},
        prelude,
    )
    pairs = list(zip(map(int, a), map(int, count), strict=True))
    _same(got["l"], np.array([(x << n if n < 32 else 0) & 0xFFFFFFFF for x, n in pairs], u32))
    _same(got["r"], np.array([(x & 0xFFFFFFFF) >> n for x, n in pairs], u32))
    _same(got["s"], np.array([x >> min(n, 31) for x, n in pairs], i32))
    _same(got["w"], np.array([(x << n if n < 64 else 0) & (2**64 - 1) for x, n in pairs], u64))


def test_products_by_halves():
    a, b = SIGNED
    x, y = SIGNED_64
    n = min(len(a), len(x))
    a, b, x, y = a[-n:], b[-n:], x[-n:], y[-n:]
    got = elementwise(
        {
            "hi": ("__mulhi(a, b)", i32),
            "uhi": ("__umulhi(a, b)", u32),
            "wide": ("(long long)a * b", i64),
            "uwide": ("(unsigned long long)(unsigned)a * (unsigned)b", u64),
            "hi64": ("__mul64hi(x, y)", i64),
            "uhi64": ("__umul64hi(x, y)", u64),
            "mad": ("(long long)a * b + x", i64),
            "m24": ("__mul24(a, b)", i32),
            "um24": ("__umul24(a, b)", u32),
            "sad": ("__sad(a, b, 5u)", u32),
            "halve": ("__hadd(a, b)", i32),
            "top": ("top(x, y)", u64),
        },
        {"a": ("int", a), "b": ("int", b), "x": ("long long", x), "y": ("long long", y)},
        """__device__ unsigned long long top(unsigned long long a, unsigned long long b) {
          unsigned long long low, high;
          asm("{ mad.lo.cc.u64 %0, %2, %3, %2; madc.hi.u64 %1, %2, %3, %3;"
              "add.cc.u64 %0, %0, %3; addc.u64 %1, %1, %2; sub.cc.u64 %0, %0, %2; subc.u64 %1, %1, 3; }"
              : "=&l"(low), "=&l"(high) : "l"(a), "l"(b));
          return high; }""",
    )
    low = lambda v: v & 0xFFFFFFFF  # noqa: E731
    short = lambda v: ((v & 0xFFFFFF) ^ 0x800000) - 0x800000  # noqa: E731
    m64 = 2**64 - 1

    def top(x: int, y: int) -> int:
        """The same in 128 bits: x y + x + (y << 64), then + y + (x << 64), then - x - (3 << 64)."""
        return (x * y + x + (y << 64) + y + (x << 64) - x - (3 << 64)) >> 64

    wanted = {
        "hi": lambda a, b, x, y: a * b >> 32,
        "uhi": lambda a, b, x, y: low(a) * low(b) >> 32,
        "wide": lambda a, b, x, y: a * b,
        "uwide": lambda a, b, x, y: low(a) * low(b),
        "hi64": lambda a, b, x, y: x * y >> 64,
        "uhi64": lambda a, b, x, y: (x & m64) * (y & m64) >> 64,
        "mad": lambda a, b, x, y: a * b + x,
        "m24": lambda a, b, x, y: short(a) * short(b),
        "um24": lambda a, b, x, y: (a & 0xFFFFFF) * (b & 0xFFFFFF),
        "sad": lambda a, b, x, y: abs(a - b) + 5,
        "halve": lambda a, b, x, y: (a + b) >> 1,
        "top": lambda a, b, x, y: top(x & m64, y & m64),
    }
    for name, f in wanted.items():
        _same(got[name], _python(f, got[name].dtype.type, a, b, x, y), name)


def _prmt(a: int, b: int, selector: int) -> int:
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    return sum(source[(selector >> 4 * i) & 7] << 8 * i for i in range(4))


def test_bit_operations():
    a, b = UNSIGNED
    wide, _ = UNSIGNED_64
    n = min(len(a), len(wide))
    a, b, w = a[-n:], b[-n:], wide[-n:]
    prelude = """
    __device__ unsigned bfe(unsigned a, unsigned p, unsigned l) { unsigned r; asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(p), "r"(l)); return r; }
    __device__ int sbfe(int a, unsigned p, unsigned l) { int r; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(p), "r"(l)); return r; }
    __device__ unsigned bfi(unsigned a, unsigned b, unsigned p, unsigned l) { unsigned r; asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(p), "r"(l)); return r; }
    __device__ unsigned find(unsigned a) { unsigned r; asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(a)); return r; }
    __device__ unsigned lop(unsigned a, unsigned b, unsigned c) { unsigned r; asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
    """
    p, length = rng.integers(0, 32, n).astype(u32), rng.integers(0, 33, n).astype(u32)
    got = elementwise(
        {
            "popc": ("__popc(a)", i32), "clz": ("__clz(a)", i32), "brev": ("__brev(a)", u32), "ffs": ("__ffs(a)", i32),
            "popc64": ("__popcll(w)", i32), "clz64": ("__clzll(w)", i32), "brev64": ("__brevll(w)", u64),
            "ffs64": ("__ffsll(w)", i32), "perm": ("__byte_perm(a, b, b ^ (a >> 3))", u32),
            "fl": ("__funnelshift_l(a, b, p)", u32), "fr": ("__funnelshift_r(a, b, p)", u32),
            "flc": ("__funnelshift_lc(a, b, q)", u32), "frc": ("__funnelshift_rc(a, b, q)", u32),
            "bfe": ("bfe(a, p, q)", u32), "sbfe": ("sbfe(a, p, q)", i32), "bfi": ("bfi(a, b, p, q)", u32),
            "find": ("find(a)", u32), "major": ("lop(a, b, p)", u32),
        },
        {"a": ("unsigned", a), "b": ("unsigned", b), "w": ("unsigned long long", w), "p": ("unsigned", p),
         "q": ("unsigned", length)},
        prelude,
    )  # fmt: skip
    mask = lambda n: (1 << n) - 1  # noqa: E731

    def field(a, p, q):
        """bfe.s32: above the field, its highest bit, which sits at bit 31 at most."""
        sign = (a >> min(p + q - 1, 31)) & 1 if q else 0
        inside = (a >> p) & mask(q)
        return inside | (~mask(q) if sign else 0)

    wanted = {
        "popc": lambda a, b, w, p, q: a.bit_count(),
        "clz": lambda a, b, w, p, q: 32 - a.bit_length(),
        "brev": lambda a, b, w, p, q: int(f"{a:032b}"[::-1], 2),
        "ffs": lambda a, b, w, p, q: (a & -a).bit_length(),
        "popc64": lambda a, b, w, p, q: w.bit_count(),
        "clz64": lambda a, b, w, p, q: 64 - w.bit_length(),
        "brev64": lambda a, b, w, p, q: int(f"{w:064b}"[::-1], 2),
        "ffs64": lambda a, b, w, p, q: (w & -w).bit_length(),
        "perm": lambda a, b, w, p, q: _prmt(a, b, (b ^ (a >> 3)) & 0x7777),
        "fl": lambda a, b, w, p, q: ((b << 32 | a) << p) >> 32,
        "fr": lambda a, b, w, p, q: (b << 32 | a) >> p,
        "flc": lambda a, b, w, p, q: ((b << 32 | a) << q) >> 32,
        "frc": lambda a, b, w, p, q: (b << 32 | a) >> q,
        "bfe": lambda a, b, w, p, q: (a >> p) & mask(q),
        "sbfe": lambda a, b, w, p, q: field(a, p, q),
        "bfi": lambda a, b, w, p, q: (b & ~(mask(q) << p)) | ((a & mask(q)) << p),
        "find": lambda a, b, w, p, q: a.bit_length() - 1,
        "major": lambda a, b, w, p, q: (a & b) | (a & p) | (b & p),
    }
    for name, f in wanted.items():
        _same(got[name], _python(f, got[name].dtype.type, a, b, w, p, length), name)


def test_dot_products_of_bytes():
    a, b = UNSIGNED
    c = a[::-1].copy()
    got = elementwise(
        {"s": ("__dp4a((int)a, (int)b, (int)c)", i32), "u": ("__dp4a(a, b, c)", u32)},
        {"a": ("unsigned", a), "b": ("unsigned", b), "c": ("unsigned", c)},
    )
    for name, kind in (("s", np.int8), ("u", np.uint8)):
        dot = (a.view(kind).reshape(-1, 4).astype(i64) * b.view(kind).reshape(-1, 4)).sum(axis=1) + c
        _same(got[name], dot.astype(u32).view(got[name].dtype))


def test_narrow_integers_are_extended_by_their_sign():
    a = np.arange(-128, 128, dtype=np.int8)
    s = np.resize(np.array([0, -1, 32767, -32768, 255, -256], np.int16), 256)
    got = elementwise(
        {
            "c": ("c + 1000", i32), "uc": ("uc + 1000", i32), "s": ("s * 3", i32), "us": ("us * 3", i32),
            "narrow": ("(signed char)(c * 3)", np.int8), "wide": ("(long long)s", i64), "cut": ("(short)(s * 5)", np.int16),
            "u": ("(unsigned char)(uc + 77)", np.uint8),
        },
        {"c": ("signed char", a), "uc": ("unsigned char", a.view(np.uint8)), "s": ("short", s),
         "us": ("unsigned short", s.view(np.uint16))},
    )  # fmt: skip
    _same(got["c"], a.astype(i32) + 1000)
    _same(got["uc"], a.view(np.uint8).astype(i32) + 1000)
    _same(got["s"], s.astype(i32) * 3)
    _same(got["us"], s.view(np.uint16).astype(i32) * 3)
    _same(got["narrow"], (a.astype(i32) * 3).astype(np.int8))
    _same(got["wide"], s.astype(i64))
    _same(got["cut"], (s.astype(i32) * 5).astype(np.int16))
    _same(got["u"], (a.view(np.uint8).astype(i32) + 77).astype(np.uint8))


# -- conversions ---------------------------------------------------------------------------------------
def _to_int(x: float, dtype, nan: int, rounding=math.trunc) -> int:
    """Clamped, as PTX says."""
    info = np.iinfo(dtype)
    if math.isnan(x):
        return nan
    if math.isinf(x):
        return info.max if x > 0 else info.min
    return min(max(rounding(Fraction(x)), info.min), info.max)


def test_floats_to_integers():
    x = _floats()
    with np.errstate(all="ignore"):
        d = x.astype(f64)
    d = np.concatenate([d, [2.0**53 + 2, 0.49999999999999994, -1e300, 2.0**63, -(2.0**63), 9.3e18]])
    x = np.resize(x, len(d))
    got = elementwise(
        {
            "i": ("(int)x", i32), "u": ("(unsigned)x", u32), "l": ("(long long)x", i64),
            "ul": ("(unsigned long long)x", u64), "rn": ("__float2int_rn(x)", i32), "rd": ("__float2int_rd(x)", i32),
            "ru": ("__float2int_ru(x)", i32), "di": ("(int)d", i32), "dl": ("(long long)d", i64),
            "down": ("floorf(x)", f32), "up": ("ceilf(x)", f32), "cut": ("truncf(x)", f32), "near": ("rintf(x)", f32),
        },
        {"x": ("float", x), "d": ("double", d)},
    )  # fmt: skip

    def told(values, dtype, nan, rounding=math.trunc):
        return np.array([_to_int(float(v), dtype, nan, rounding) for v in values], dtype)

    _same(got["i"], told(x, i32, 0))
    _same(got["u"], told(x, u32, 0))
    _same(got["l"], told(x, i64, -(2**63)))
    _same(got["ul"], told(x, u64, 2**63))
    _same(got["rn"], told(x, i32, 0, round))
    _same(got["rd"], told(x, i32, 0, math.floor))
    _same(got["ru"], told(x, i32, 0, math.ceil))
    _same(got["di"], told(d, i32, -(2**31)))
    _same(got["dl"], told(d, i64, -(2**63)))
    for name, f in (("down", np.floor), ("up", np.ceil), ("cut", np.trunc), ("near", np.rint)):
        with np.errstate(all="ignore"):
            _same(got[name], f(x), name)


def _nearest(value, dtype) -> float:
    """A Fraction rounded to nearest even, by way of the neighbours of a first guess."""
    guess = dtype(float(value))
    near = [guess, np.nextafter(guess, dtype(np.inf)), np.nextafter(guess, dtype(-np.inf))]
    near = [n for n in near if np.isfinite(n)]
    bits = np.uint32 if dtype is f32 else np.uint64
    return min(near, key=lambda n: (abs(Fraction(float(n)) - value), int(n.view(bits)) & 1))


def test_integers_to_floats_and_between_floats():
    x, _ = SIGNED_64
    x = np.concatenate([x, rng.integers(-(2**63), 2**63 - 1, 300)])
    with np.errstate(all="ignore"):
        d = _floats().astype(f64)
    d = np.concatenate([d, rng.standard_normal(100), [1e300, 65520.0, 65519.99, 2.0**-25]])
    n = max(len(x), len(d))
    x, d = np.resize(x, n), np.resize(d, n)
    got = elementwise(
        {
            "i": ("(float)(int)x", f32), "u": ("(float)(unsigned)x", f32), "l": ("(float)x", f32),
            "ul": ("(float)(unsigned long long)x", f32), "dl": ("(double)x", f64), "f": ("(float)d", f32),
            "d": ("(double)(float)d", f64), "rz": ("__ll2float_rz(x)", f32), "ru": ("__double2float_ru(d)", f32),
            "rd": ("__double2float_rd(d)", f32), "bits": ("__float_as_int((float)d)", i32), "back": ("__int_as_float((int)x)", f32),
            "high": ("__double2hiint(d)", i32),
        },
        {"x": ("long long", x), "d": ("double", d)},
    )  # fmt: skip
    _same(got["i"], x.astype(i32).astype(f32))
    _same(got["u"], x.astype(u32).astype(f32))
    _same(got["l"], np.array([_nearest(Fraction(int(v)), f32) for v in x], f32))
    _same(got["ul"], np.array([_nearest(Fraction(int(v)), f32) for v in x.view(u64)], f32))
    _same(got["dl"], np.array([float(int(v)) for v in x]))
    with np.errstate(all="ignore"):
        single = d.astype(f32)
    _same(got["f"], single)
    _same(got["d"], single.astype(f64))
    for v, cut in zip(x, got["rz"], strict=True):
        away = np.nextafter(cut, f32(np.inf if v >= 0 else -np.inf))
        assert abs(int(cut)) <= abs(int(v)) < abs(Fraction(float(away)))
    finite = np.isfinite(d)
    assert (got["ru"][finite] >= d[finite]).all() and (got["rd"][finite] <= d[finite]).all()
    exact = finite & (single == d)
    _same(got["ru"][exact], single[exact])
    _same(got["rd"][exact], single[exact])
    _same(got["bits"][~np.isnan(d)], single.view(i32)[~np.isnan(d)])
    _same(got["back"], x.astype(i32).view(f32))
    _same(got["high"][finite], (d.view(u64) >> u64(32)).astype(u32).view(i32)[finite])


# -- floats ----------------------------------------------------------------------------------------------
def test_float_arithmetic_to_the_bit():
    a, b = _floats(), _floats()[::-1].copy()
    got = elementwise(
        {
            "add": ("__fadd_rn(a, b)", f32), "sub": ("__fsub_rn(a, b)", f32), "mul": ("__fmul_rn(a, b)", f32),
            "div": ("__fdiv_rn(a, b)", f32), "sqrt": ("__fsqrt_rn(a)", f32), "rcp": ("__frcp_rn(a)", f32),
            "neg": ("-a", f32), "abs": ("fabsf(a)", f32), "least": ("fminf(a, b)", f32), "most": ("fmaxf(a, b)", f32),
            "sign": ("copysignf(a, b)", f32), "sat": ("__saturatef(a)", f32),
            "d": ("(double)a * b + (double)a / b", f64), "dsqrt": ("sqrt((double)a)", f64),
        },
        {"a": ("float", a), "b": ("float", b)},
    )  # fmt: skip
    with np.errstate(all="ignore"):
        _same(got["add"], a + b)
        _same(got["sub"], a - b)
        _same(got["mul"], a * b)
        _same(got["div"], a / b)
        _same(got["sqrt"], np.sqrt(a))
        _same(got["rcp"], f32(1) / a)
        _same(got["neg"], -a)
        _same(got["abs"], np.abs(a))
        zeros = (a == 0) & (b == 0)  # either zero may be the lesser
        _same(got["least"][~zeros], np.fmin(a, b)[~zeros])
        _same(got["most"][~zeros], np.fmax(a, b)[~zeros])
        _same(got["sign"], np.copysign(a, b))
        _same(np.abs(got["sat"]), np.abs(np.where(np.isnan(a), f32(0), np.clip(a, f32(0), f32(1)))))
        _same(got["d"], a.astype(f64) * b + a.astype(f64) / b)
        _same(got["dsqrt"], np.sqrt(a.astype(f64)))


def test_fma_rounds_once():
    """Against exact fractions; the operands are chosen so that the product's low bits matter."""
    n = 1500
    a, b = (rng.standard_normal(n).astype(f32) for _ in range(2))
    c = (-(a * b) * rng.choice([1, 1, 1, 0.5, 2, 1024], n)).astype(f32)
    x, y = rng.standard_normal(n), rng.standard_normal(n)
    z = -(x * y) * rng.choice([1, 1, 0.5, 4, 2.0**20], n)
    got = elementwise(
        {"f": ("fmaf(a, b, c)", f32), "d": ("fma(x, y, z)", f64), "two": ("__fadd_rn(__fmul_rn(a, b), c)", f32)},
        {"a": ("float", a), "b": ("float", b), "c": ("float", c), "x": ("double", x), "y": ("double", y), "z": ("double", z)},
    )  # fmt: skip
    exact = [
        Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in zip(a, b, c, strict=True)
    ]
    _same(got["f"], np.array([_nearest(v, f32) for v in exact], f32))
    exact = [
        Fraction(p) * Fraction(q) + Fraction(r)
        for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    _same(got["d"], np.array([_nearest(v, f64) for v in exact]))
    _same(got["two"], a * b + c)
    assert (got["two"] != got["f"]).mean() > 0.3  # the test can tell them apart


def test_directed_rounding():
    a, b = (
        rng.standard_normal(800).astype(f32) * f32(2) ** rng.integers(-20, 20, 800).astype(f32)
        for _ in range(2)
    )
    modes = {"rz": None, "rd": -1, "ru": 1}
    cases = {f"{op}_{mode}": (f"__f{op}_{mode}(a, b)", f32) for op in ("add", "sub", "mul") for mode in modes}
    got = elementwise(cases, {"a": ("float", a), "b": ("float", b)})
    apply = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
    for name in cases:
        op, mode = name.split("_")
        for x, y, g in zip(a, b, got[name], strict=True):
            exact = apply[op](Fraction(float(x)), Fraction(float(y)))
            towards = modes[mode] or (-1 if exact > 0 else 1)
            gap = (Fraction(float(g)) - exact) * towards
            step = np.nextafter(g, f32(-towards * np.inf))
            assert gap >= 0 and (gap == 0 or (Fraction(float(step)) - exact) * towards < 0), name


def test_functions_within_their_tolerance():
    x = np.concatenate([rng.uniform(-8, 8, 1500), [0.0, 1.0, -1.0, 1e-6, 1e-30]]).astype(f32)
    big = (x * 1000).astype(f32)
    p = np.abs(x) + f32(1e-3)
    got = elementwise(
        {
            "exp": ("expf(x)", f32), "fast_exp": ("__expf(x)", f32), "exp2": ("exp2f(x)", f32), "log": ("logf(p)", f32),
            "fast_log": ("__logf(p)", f32), "log2": ("log2f(p)", f32), "log1p": ("log1pf(p)", f32), "sin": ("sinf(big)", f32),
            "cos": ("cosf(big)", f32), "fast_sin": ("__sinf(x)", f32), "fast_cos": ("__cosf(x)", f32), "tanh": ("tanhf(x)", f32),
            "pow": ("powf(p, x)", f32), "rsqrt": ("rsqrtf(p)", f32), "fast_div": ("__fdividef(x, p)", f32),
            "erf": ("erff(x)", f32), "cbrt": ("cbrtf(x)", f32), "atan": ("atan2f(x, big)", f32), "mod": ("fmodf(big, p)", f32),
            "dexp": ("exp((double)x)", f64), "dsin": ("sin((double)big)", f64), "dlog": ("log((double)p)", f64),
            "sigmoid": ("1.0f / (1.0f + __expf(-x))", f32),
        },
        {"x": ("float", x), "p": ("float", p), "big": ("float", big)},
    )  # fmt: skip
    X, P, B = (v.astype(f64) for v in (x, p, big))
    wanted = {
        "exp": np.exp(X), "exp2": np.exp2(X), "log": np.log(P), "log2": np.log2(P), "log1p": np.log1p(P),
        "sin": np.sin(B), "cos": np.cos(B), "tanh": np.tanh(X), "pow": P**X, "rsqrt": 1 / np.sqrt(P),
        "erf": np.array([math.erf(v) for v in X]), "cbrt": np.cbrt(X), "atan": np.arctan2(X, B), "mod": np.fmod(B, P),
    }  # fmt: skip
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-7, err_msg=name)
    for name, value in {"fast_exp": np.exp(X), "fast_div": X / P, "sigmoid": 1 / (1 + np.exp(-X))}.items():
        np.testing.assert_allclose(got[name], value, rtol=3e-6, err_msg=name)
    for name, value in {"fast_log": np.log(P), "fast_sin": np.sin(X), "fast_cos": np.cos(X)}.items():
        np.testing.assert_allclose(got[name], value, atol=2e-6, rtol=2e-6, err_msg=name)
    for name, value in {"dexp": np.exp(X), "dsin": np.sin(B), "dlog": np.log(P)}.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-14, atol=1e-15, err_msg=name)


def test_comparisons_with_nan():
    a, b = (v.reshape(-1) for v in np.meshgrid(SPECIAL, SPECIAL))
    texts = ["a < b", "a <= b", "a > b", "a >= b", "a == b", "a != b", "!(a < b)", "!(a >= b)", "!(a == b)"]
    texts += ["isnan(a)", "isinf(b)", "(a < b) == (b > a)", "a < b && b < 100.0f || a != a"]
    got = elementwise(
        {f"r{n}": (f"{text} ? 1 : 0", i32) for n, text in enumerate(texts)},
        {"a": ("float", a), "b": ("float", b)},
    )
    with np.errstate(all="ignore"):
        wanted = [a < b, a <= b, a > b, a >= b, a == b, a != b, ~(a < b), ~(a >= b), ~(a == b)]
        wanted += [np.isnan(a), np.isinf(b), np.ones(len(a), bool), ((a < b) & (b < 100)) | np.isnan(a)]
    for n, text in enumerate(texts):
        _same(got[f"r{n}"], wanted[n].astype(i32), text)


def test_comparisons_that_a_nan_makes_true():
    """The unordered forms, which C++ has no operators for, and the tests for NaN themselves."""
    a, b = (v.reshape(-1) for v in np.meshgrid(SPECIAL, SPECIAL))
    forms = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "eq", "ne", "lt", "ge"]
    prelude = "".join(
        f"__device__ int f_{form}(float a, float b) {{ int r; "
        f'asm("{{ .reg .pred p; setp.{form}.f32 p, %1, %2; selp.s32 %0, 1, 0, p; }}" : "=r"(r) : "f"(a), "f"(b)); return r; }}\n'
        for form in forms
    )
    got = elementwise(
        {form: (f"f_{form}(a, b)", i32) for form in forms}, {"a": ("float", a), "b": ("float", b)}, prelude
    )
    nan = np.isnan(a) | np.isnan(b)
    ordered = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    for form in forms:
        if form in ("num", "nan"):
            wanted = nan == (form == "nan")
        else:
            wanted = ordered[form[:2]] & ~nan | (nan if form.endswith("u") else False)
        _same(got[form], wanted.astype(i32), form)


HALF = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def _halves(n: int = 600) -> np.ndarray:
    special = np.array(
        [0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 65504, -65504, 6e-8, 1e-5, 0.1, 2048, 2049], np.float16
    )
    return np.concatenate([special, rng.integers(0, 1 << 16, n).astype(np.uint16).view(np.float16)])


def test_half_arithmetic():
    a, b = _halves(), _halves()[::-1].copy()
    c = np.roll(a, 5)
    got = elementwise(
        {
            "add": ("__hadd(a, b)", np.float16), "sub": ("a - b", np.float16), "mul": ("a * b", np.float16), "div": ("a / b", np.float16),
            "fma": ("__hfma(a, b, c)", np.float16), "neg": ("-a", np.float16), "least": ("__hmin(a, b)", np.float16),
            "less": ("__hlt(a, b) ? 1 : 0", i32), "differ": ("a != b ? 1 : 0", i32), "f": ("__half2float(a)", f32),
            "i": ("__half2int_rz(a)", i32), "from_i": ("__int2half_rn((int)__half2float(a) * 3)", np.float16),
            "rz": ("__float2half_rz(__half2float(a) * 1.001f)", np.float16), "rn": ("__float2half(__half2float(a) * 1.001f)", np.float16),
            "exp": ("hexp(a)", np.float16), "sqrt": ("hsqrt(a)", np.float16),
        },
        {"a": ("__half", a), "b": ("__half", b), "c": ("__half", c)}, HALF,
    )  # fmt: skip
    A, B, C = (v.astype(f64) for v in (a, b, c))
    h = np.float16
    with np.errstate(all="ignore"):
        _same(got["add"], (A + B).astype(h))
        _same(got["sub"], (A - B).astype(h))
        _same(got["mul"], (A * B).astype(h))
        np.testing.assert_allclose(got["div"].astype(f64), (A / B).astype(h).astype(f64), rtol=1e-3)
        _same(got["fma"], (A * B + C).astype(h))
        _same(got["neg"], -a)
        zeros = (a == 0) & (b == 0)
        _same(got["least"][~zeros], np.fmin(a, b)[~zeros])
        _same(got["less"], (a < b).astype(i32))
        _same(got["differ"], (a != b).astype(i32))
        _same(got["f"], a.astype(f32))
        whole = np.nan_to_num(np.clip(A, -1e9, 1e9), nan=0.0)
        finite = np.isfinite(A)
        _same(got["i"][finite], np.trunc(whole)[finite].astype(i32))
        _same(got["from_i"][finite], (np.trunc(whole)[finite] * 3 + 0.0).astype(h))
        scaled = a.astype(f32) * f32(1.001)
        _same(got["rn"], scaled.astype(h))
        assert (np.abs(got["rz"])[finite] <= np.abs(scaled)[finite]).all()
        np.testing.assert_allclose(
            got["exp"].astype(f64), np.exp(A).astype(h).astype(f64), rtol=2e-3, atol=1e-7
        )
        np.testing.assert_allclose(got["sqrt"].astype(f64), np.sqrt(A).astype(h).astype(f64), rtol=1e-3)


def test_pairs_of_halves():
    a, b = _halves(602)[14:], _halves(602)[14:]
    with np.errstate(all="ignore"):
        a, b = (np.where(np.isnan(v), np.float16(3), v) for v in (a, b))
    got = elementwise(
        {
            "add": ("bits(__hadd2(x, y))", u32), "fma": ("bits(__hfma2(x, y, x))", u32), "low": ("__half2float(__low2half(x))", f32),
            "swap": ("bits(__lowhigh2highlow(x))", u32), "eq": ("bits(__heq2(x, x))", u32), "lt": ("bits(__hlt2(x, y))", u32),
            "all": ("__hbge2(x, y) ? 1 : 0", i32), "least": ("bits(__hmin2(x, y))", u32),
        },
        {"xb": ("unsigned", a.view(u32)), "yb": ("unsigned", b.view(u32))},
        HALF + "__device__ unsigned bits(__half2 v) { return *(unsigned*)&v; }",
        "__half2 x = *(__half2*)&xb, y = *(__half2*)&yb;",
    )  # fmt: skip
    h = np.float16
    A, B = a.astype(f64), b.astype(f64)
    with np.errstate(all="ignore"):
        _same(got["add"].view(h), (A + B).astype(h))
        _same(got["fma"].view(h), (A * B + A).astype(h))
        _same(got["least"].view(h)[a != b], np.fmin(a, b)[a != b])
    _same(got["low"], a[::2].astype(f32))
    _same(got["swap"].view(h), a.reshape(-1, 2)[:, ::-1].reshape(-1))
    _same(got["eq"].view(h), np.ones(len(a), h))
    _same(got["lt"].view(h), (a < b).astype(h))
    _same(got["all"], (a >= b).reshape(-1, 2).all(axis=1).astype(i32))


def _bf16(x: np.ndarray) -> np.ndarray:
    """float64 rounded to the nearest bfloat16, as its bits: by exact comparison of neighbours."""
    x32 = np.asarray(x, f64).astype(f32)
    down = (x32.view(u32) & u32(0xFFFF0000)).view(f32).astype(f64)
    up = ((x32.view(u32) & u32(0xFFFF0000)) + u32(0x10000)).view(f32).astype(f64)
    odd = (x32.view(u32) >> u32(16)) & u32(1) == 1
    closer = np.abs(x - up) < np.abs(x - down)
    tie = np.abs(x - up) == np.abs(x - down)
    return (np.where(closer | (tie & odd), up, down).astype(f32).view(u32) >> u32(16)).astype(np.uint16)


def test_bfloat16_arithmetic():
    bits = (
        (rng.integers(100, 150, 600) << 7) | rng.integers(0, 128, 600) | (rng.integers(0, 2, 600) << 15)
    ).astype(np.uint16)
    a, b = bits, bits[::-1].copy()
    x, y = (((v.astype(u32)) << u32(16)).view(f32).astype(f64) for v in (a, b))
    got = elementwise(
        {
            "add": ("bits(__hadd(x, y))", np.uint16), "mul": ("bits(__hmul(x, y))", np.uint16), "fma": ("bits(__hfma(x, y, x))", np.uint16),
            "f": ("__bfloat162float(x)", f32), "from": ("bits(__float2bfloat16(__bfloat162float(x) * 1.003f))", np.uint16),
            "less": ("__hlt(x, y) ? 1 : 0", i32),
        },
        {"xb": ("unsigned short", a), "yb": ("unsigned short", b)},
        HALF + "__device__ unsigned short bits(__nv_bfloat16 v) { return *(unsigned short*)&v; }",
        "__nv_bfloat16 x = *(__nv_bfloat16*)&xb, y = *(__nv_bfloat16*)&yb;",
    )  # fmt: skip
    _same(got["add"] & 0x7FFF, _bf16(x + y) & 0x7FFF)  # x - x may be either zero in the reference
    _same(got["mul"], _bf16(x * y))
    _same(got["fma"] & 0x7FFF, _bf16(x * y + x) & 0x7FFF)
    _same(got["f"], x.astype(f32))
    _same(got["from"], _bf16((x.astype(f32) * f32(1.003)).astype(f64)))
    _same(got["less"], (x < y).astype(i32))


# -- control flow --------------------------------------------------------------------------------------------
def test_divergent_branches_and_loops():
    source = """
    extern "C" __global__ void k(int* out, const int* in, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      int v = in[i], r = 0;
      if (v % 2) { if (v % 3) r += 1; else { r += 2; if (v > 50) r += 100; } }
      else if (v < 20) r -= 5; else r -= 7;
      #pragma unroll 1
      for (int j = 0; j < v; ++j) {
        if (j % 5 == 4) continue;
        if (r > 500) break;
        r += j;
        int k = j;
        while (k > 3) { k -= 2; if (k == 7) break; r ^= k; }
      }
      do { r += 3; } while (r % 7);
      out[i] = r;
    }"""

    def one(v: int) -> int:
        r = 0
        if v % 2:
            if v % 3:
                r += 1
            else:
                r += 102 if v > 50 else 2
        else:
            r -= 5 if v < 20 else 7
        for j in range(v):
            if j % 5 == 4:
                continue
            if r > 500:
                break
            r += j
            k = j
            while k > 3:
                k -= 2
                if k == 7:
                    break
                r ^= k
        while True:
            r += 3
            if math.fmod(r, 7) == 0:
                return r

    values = rng.integers(0, 100, 150).astype(i32)
    run = emulate(
        source, {"x": values}, {"out": ((150,), i32)}, args=["out", "x", i32(150)], grid=3, block=64
    )
    _same(run["out"], np.array([one(int(v)) for v in values], i32))


def test_a_switch_of_many_cases():
    cases = "\n".join(f"case {n}: r = f{n % 4}(v, {n}); break;" for n in range(12))
    source = f"""
    __device__ int f0(int a, int b) {{ return a * b; }}
    __device__ int f1(int a, int b) {{ int s = 0; for (int i = 0; i < b; ++i) s += a ^ i; return s; }}
    __device__ int f2(int a, int b) {{ return a << b; }}
    __device__ int f3(int a, int b) {{ return a / (b + 1); }}
    extern "C" __global__ void k(int* out, const int* in) {{
      int v = in[threadIdx.x], r = -1;
      switch (v) {{ {cases} default: r = 1000; }}
      out[threadIdx.x] = r;
    }}"""
    values = rng.integers(-2, 15, 96).astype(i32)
    run = emulate(source, {"in": values}, {"out": ((96,), i32)}, block=96)
    f = [
        lambda a, b: a * b,
        lambda a, b: sum(a ^ i for i in range(b)),
        lambda a, b: a << b,
        lambda a, b: a // (b + 1),
    ]
    _same(run["out"], np.array([f[v % 4](v, v) if 0 <= v < 12 else 1000 for v in values.tolist()], i32))


def test_functions_that_are_not_inlined():
    source = """
    struct Pair { int a; float b; };
    __noinline__ __device__ int gcd(int a, int b) { while (b) { int t = a % b; a = b; b = t; if (a == 1) return 1; } return a; }
    __noinline__ __device__ Pair both(int a, Pair p) { Pair r; r.a = gcd(a, p.a); r.b = p.b * a; return r; }
    __noinline__ __device__ void put(int* out, int i, int v) { out[i] = v; }
    extern "C" __global__ void k(int* out, float* b, const int* in) {
      int i = threadIdx.x;
      Pair p = {in[i], 0.5f};
      if (i % 3 == 0) p = both(in[(i + 1) % 64], p);
      else p.a = gcd(p.a, 12) + gcd(p.a, 9);
      put(out, i, p.a);
      b[i] = p.b;
    }"""
    values = rng.integers(1, 1000, 64).astype(i32)
    run = emulate(source, {"in": values}, {"out": ((64,), i32), "b": ((64,), f32)}, block=64)
    v = values.tolist()
    wanted = [
        math.gcd(v[(i + 1) % 64], v[i]) if i % 3 == 0 else math.gcd(v[i], 12) + math.gcd(v[i], 9)
        for i in range(64)
    ]
    _same(run["out"], np.array(wanted, i32))
    _same(run["b"], np.array([0.5 * v[(i + 1) % 64] if i % 3 == 0 else 0.5 for i in range(64)], f32))


def test_recursion_is_refused_with_its_line():
    source = """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) * 3 + fib(n - 2); }
extern "C" __global__ void k(int* out) {
  out[threadIdx.x] = fib(threadIdx.x);
}"""
    with pytest.raises(PtxError, match=r"k, kernel\.cu:4: call\.uni of _Z3fibi: recursion is not emulated"):
        emulate(source, {}, {"out": ((32,), i32)})


def test_inline_assembly_has_scopes_of_its_own():
    """Registers of the same name in two blocks, and as the kernel's own predicates are called."""
    source = """
    extern "C" __global__ void k(int* out, const int* in) {
      int v = in[threadIdx.x], a, b;
      asm volatile("{ .reg .pred p; .reg .b32 t; setp.gt.s32 p, %1, 10; add.s32 t, %1, 5; @p add.s32 t, t, 100; mov.b32 %0, t; }" : "=r"(a) : "r"(v));
      asm volatile("{ .reg .pred %%p1; .reg .b16 t; setp.lt.s32 %%p1, %1, 0; selp.b32 %0, 1, 2, %%p1; }" : "=r"(b) : "r"(v));
      asm volatile("{ .reg .pred q; setp.eq.s32 q, %1, 0; @q bra DONE; add.s32 %0, %0, 1000; DONE: }" : "+r"(b) : "r"(v));
      out[threadIdx.x] = a * (v > 3 ? 1 : -1) + b;
    }"""
    v = np.arange(-16, 16, dtype=i32)
    run = emulate(source, {"in": v}, {"out": ((32,), i32)})
    a = v + 5 + 100 * (v > 10)
    _same(run["out"], (a * np.where(v > 3, 1, -1) + np.where(v < 0, 1, 2) + 1000 * (v != 0)).astype(i32))


def test_an_unknown_opcode_is_named_with_its_line():
    source = 'extern "C" __global__ void k(int* p) {\n  p[0] = 1;\n  asm volatile("brkpt;");\n}'
    with pytest.raises(EmulatorError, match=r"k, kernel\.cu:3: unknown opcode brkpt"):
        emulate(source, {}, {"p": ((1,), i32)})


# -- warps --------------------------------------------------------------------------------------------------
LANE = np.arange(32)


def _shuffled(v: np.ndarray, source: np.ndarray, inside: np.ndarray) -> np.ndarray:
    return np.where(inside, v[np.where(inside, source, 0)], v)


@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffles(width):
    source = f"""
    extern "C" __global__ void k(int* up, int* down, int* across, int* from, float* f, const int* in) {{
      int i = threadIdx.x, v = in[i];
      up[i] = __shfl_up_sync(~0u, v, 3, {width});
      down[i] = __shfl_down_sync(~0u, v, 5, {width});
      across[i] = __shfl_xor_sync(~0u, v, 5, {width});
      from[i] = __shfl_sync(~0u, v, i * 7, {width});
      f[i] = __shfl_sync(~0u, (float)v * 0.5f, 2, {width});
    }}"""
    v = rng.integers(-1000, 1000, 64).astype(i32)
    names = ("up", "down", "across", "from")
    outputs = dict.fromkeys(names, ((64,), i32)) | {"f": ((64,), f32)}
    run = emulate(source, {"in": v}, outputs, block=64)
    own, start = LANE % width, LANE // width * width
    for warp in range(2):
        w = v[32 * warp : 32 * warp + 32]
        got = {n: run[n][32 * warp : 32 * warp + 32] for n in (*names, "f")}
        _same(got["up"], _shuffled(w, LANE - 3, own >= 3))
        _same(got["down"], _shuffled(w, LANE + 5, own + 5 < width))
        _same(got["across"], w[LANE ^ 5])
        _same(got["from"], w[start + (32 * warp + LANE) * 7 % width])
        _same(got["f"], w[start + 2].astype(f32) * f32(0.5))


def test_warp_and_block_reductions_of_partial_warps():
    source = """
    extern "C" __global__ void k(float* sums, float* total, const float* in, int n) {
      __shared__ float part[32];
      int i = threadIdx.x, lane = i & 31, warp = i >> 5;
      float v = i < n ? in[i] : 0.0f;
      for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
      if (lane == 0) { part[warp] = v; sums[warp] = v; }
      __syncthreads();
      if (warp == 0) {
        v = lane < (blockDim.x + 31) / 32 ? part[lane] : 0.0f;
        for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
        total[lane] = v;
      }
    }"""
    x = rng.integers(-50, 50, 150).astype(f32)
    run = emulate(
        source,
        {"in": x},
        {"sums": ((5,), f32), "total": ((32,), f32)},
        args=["sums", "total", "in", i32(150)],
        block=160,
    )
    _same(run["sums"], np.array([x[n : n + 32].sum() for n in range(0, 150, 32)], f32))
    _same(run["total"], np.full(32, x.sum(), f32))


def test_votes_matches_and_warp_reductions_in_divergent_code():
    source = """
    extern "C" __global__ void k(unsigned* out, const int* in) {
      int i = threadIdx.x, v = in[i];
      unsigned* o = out + 13 * i;
      for (int n = 0; n < 13; ++n) o[n] = 0;
      o[0] = __ballot_sync(~0u, v > 3);
      o[1] = __all_sync(~0u, v > -1);
      o[2] = __any_sync(~0u, v == 9);
      o[3] = __match_any_sync(~0u, v);
      o[4] = __reduce_add_sync(~0u, v);
      o[5] = __reduce_max_sync(~0u, v - 5);
      o[6] = __reduce_or_sync(~0u, 1u << v);
      int same; o[7] = __match_all_sync(~0u, v / 100, &same); o[8] = same;
      if (i % 3 == 0) {
        unsigned active = __activemask();
        o[9] = active;
        o[10] = __ballot_sync(active, v > 3);
        o[11] = __reduce_min_sync(active, v);
        o[12] = __match_any_sync(active, v);
      }
    }"""
    v = np.concatenate([rng.integers(0, 9, 32), rng.integers(0, 12, 32)]).astype(i32)
    run = emulate(source, {"in": v}, {"out": ((64, 13), u32)}, block=64)
    for warp in range(2):
        out, w = run["out"][32 * warp : 32 * warp + 32], v[32 * warp : 32 * warp + 32]
        bits = lambda lanes: sum(1 << int(n) for n in np.flatnonzero(lanes))  # noqa: E731
        assert (out[:, 0] == bits(w > 3)).all()
        assert (out[:, 1] == 1).all() and (out[:, 2] == (w == 9).any()).all()
        assert [int(x) for x in out[:, 3]] == [bits(w == x) for x in w]
        assert (out[:, 4] == w.sum()).all()
        assert (out[:, 5].view(i32) == w.max() - 5).all()
        assert (out[:, 6] == np.bitwise_or.reduce(1 << w)).all()
        assert (out[:, 7] == 0xFFFFFFFF).all() and (out[:, 8] == 1).all()
        third = (32 * warp + LANE) % 3 == 0
        assert (out[third, 9] == bits(third)).all() and (out[~third, 9] == 0).all()
        assert (out[third, 10] == bits(third & (w > 3))).all()
        assert (out[third, 11] == w[third].min()).all()
        assert [int(x) for x in out[third, 12]] == [bits(third & (w == x)) for x in w[third]]


def test_votes_where_a_warp_is_not_full():
    source = """
    extern "C" __global__ void k(unsigned* out) {
      out[threadIdx.x] = __ballot_sync(__activemask(), threadIdx.x % 2) + 0 * __activemask();
    }"""
    run = emulate(source, {}, {"out": ((40,), u32)}, block=40)
    _same(run["out"], np.array([0xAAAAAAAA] * 32 + [0xAA] * 8, u32))


# -- order ---------------------------------------------------------------------------------------------------
ORDERS = ["forward", "reversed", 1, 2, 3]


@pytest.mark.parametrize("order", ORDERS)
def test_results_do_not_hang_on_the_order_of_warps(order):
    source = """
    extern "C" __global__ void k(int* sum, int* out, const int* in, int n) {
      __shared__ int s[96];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      s[threadIdx.x] = i < n ? in[i] : 0;
      __syncthreads();
      int v = 0;
      for (int j = 0; j <= threadIdx.x; ++j) v += s[j];
      if (i < n) out[i] = v;
      __syncthreads();
      if (threadIdx.x < 48) s[threadIdx.x] += s[threadIdx.x + 48];
      __syncthreads();
      if (threadIdx.x < 48) atomicAdd(sum + blockIdx.y, s[threadIdx.x]);
    }"""
    x = rng.integers(-9, 9, 250).astype(i32)
    run = emulate(
        source, {"sum": np.zeros(2, i32), "in": x}, {"out": ((250,), i32)}, args=["sum", "out", "in", i32(250)],
        grid=(3, 2), block=96, order=order,
    )  # fmt: skip
    assert (run["sum"] == x.sum()).all()
    padded = np.pad(x, (0, 38)).reshape(3, 96)
    _same(run["out"], np.cumsum(padded, axis=1).reshape(-1)[:250].astype(i32))


def test_the_order_decides_between_writers_of_one_address():
    """Otherwise the test above would prove nothing."""
    source = 'extern "C" __global__ void k(int* out) { out[0] = blockIdx.x; }'
    last = {
        order: int(emulate(source, {}, {"out": ((1,), i32)}, grid=8, order=order)["out"][0])
        for order in ORDERS
    }
    assert last["forward"] == 7 and last["reversed"] == 0 and len({last[1], last[2], last[3]}) > 1
