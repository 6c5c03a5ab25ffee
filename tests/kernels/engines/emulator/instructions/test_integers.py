"""The emulator's integer arithmetic, against NumPy and Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.emulated import elementwise, needs_nvrtc
from tests.helpers.emulated_numbers import (
    SIGNED,
    SIGNED_64,
    UNSIGNED,
    UNSIGNED_64,
    _python,
    _quotient,
    assert_same,
    i32,
    i64,
    rng,
    u32,
    u64,
)

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]


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
        assert_same(got[name], _python(f, dtype, a, b, c, d, count), text)


def test_shifts_by_the_width_and_more():
    """C leaves these undefined. PTX clamps the count: the result is zero, or the sign."""
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
    assert_same(got["l"], np.array([(x << n if n < 32 else 0) & 0xFFFFFFFF for x, n in pairs], u32))
    assert_same(got["r"], np.array([(x & 0xFFFFFFFF) >> n for x, n in pairs], u32))
    assert_same(got["s"], np.array([x >> min(n, 31) for x, n in pairs], i32))
    assert_same(got["w"], np.array([(x << n if n < 64 else 0) & (2**64 - 1) for x, n in pairs], u64))


def test_a_remainder_has_the_sign_of_the_dividend():
    a, b = SIGNED
    prelude = """
    __device__ int rem(int a, int b) { int r; asm("rem.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
    """
    got = elementwise({"r": ("rem(a, b)", i32)}, {"a": ("int", a), "b": ("int", b)}, prelude)
    pairs = list(zip(map(int, a), map(int, b), strict=True))
    assert_same(got["r"], np.array([x - y * _quotient(x, y) if y else -1 for x, y in pairs], i32))


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

    expected = {
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
    for name, f in expected.items():
        assert_same(got[name], _python(f, got[name].dtype.type, a, b, x, y), name)


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
            "popc": ("__popc(a)", i32),
            "clz": ("__clz(a)", i32),
            "brev": ("__brev(a)", u32),
            "ffs": ("__ffs(a)", i32),
            "popc64": ("__popcll(w)", i32),
            "clz64": ("__clzll(w)", i32),
            "brev64": ("__brevll(w)", u64),
            "ffs64": ("__ffsll(w)", i32),
            "perm": ("__byte_perm(a, b, b ^ (a >> 3))", u32),
            "fl": ("__funnelshift_l(a, b, p)", u32),
            "fr": ("__funnelshift_r(a, b, p)", u32),
            "flc": ("__funnelshift_lc(a, b, q)", u32),
            "frc": ("__funnelshift_rc(a, b, q)", u32),
            "bfe": ("bfe(a, p, q)", u32),
            "sbfe": ("sbfe(a, p, q)", i32),
            "bfi": ("bfi(a, b, p, q)", u32),
            "find": ("find(a)", u32),
            "major": ("lop(a, b, p)", u32),
        },
        {
            "a": ("unsigned", a),
            "b": ("unsigned", b),
            "w": ("unsigned long long", w),
            "p": ("unsigned", p),
            "q": ("unsigned", length),
        },
        prelude,
    )
    mask = lambda n: (1 << n) - 1  # noqa: E731

    def field(a, p, q):
        """bfe.s32: above the field and beyond bit 31, its highest bit, which is bit 31 at most."""
        sign = (a >> min(p + q - 1, 31)) & 1 if q else 0
        inside = (a - (a >> 31 << 32) >> p) & mask(q)
        return inside | (~mask(q) if sign else 0)

    expected = {
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
    for name, f in expected.items():
        assert_same(got[name], _python(f, got[name].dtype.type, a, b, w, p, length), name)


def test_dot_products_of_bytes():
    a, b = UNSIGNED
    c = a[::-1].copy()
    got = elementwise(
        {"s": ("__dp4a((int)a, (int)b, (int)c)", i32), "u": ("__dp4a(a, b, c)", u32)},
        {"a": ("unsigned", a), "b": ("unsigned", b), "c": ("unsigned", c)},
    )
    for name, kind in (("s", np.int8), ("u", np.uint8)):
        dot = (a.view(kind).reshape(-1, 4).astype(i64) * b.view(kind).reshape(-1, 4)).sum(axis=1) + c
        assert_same(got[name], dot.astype(u32).view(got[name].dtype))


def test_narrow_integers_are_extended_by_their_sign():
    a = np.arange(-128, 128, dtype=np.int8)
    s = np.resize(np.array([0, -1, 32767, -32768, 255, -256], np.int16), 256)
    got = elementwise(
        {
            "c": ("c + 1000", i32),
            "uc": ("uc + 1000", i32),
            "s": ("s * 3", i32),
            "us": ("us * 3", i32),
            "narrow": ("(signed char)(c * 3)", np.int8),
            "wide": ("(long long)s", i64),
            "cut": ("(short)(s * 5)", np.int16),
            "u": ("(unsigned char)(uc + 77)", np.uint8),
        },
        {
            "c": ("signed char", a),
            "uc": ("unsigned char", a.view(np.uint8)),
            "s": ("short", s),
            "us": ("unsigned short", s.view(np.uint16)),
        },
    )
    assert_same(got["c"], a.astype(i32) + 1000)
    assert_same(got["uc"], a.view(np.uint8).astype(i32) + 1000)
    assert_same(got["s"], s.astype(i32) * 3)
    assert_same(got["us"], s.view(np.uint16).astype(i32) * 3)
    assert_same(got["narrow"], (a.astype(i32) * 3).astype(np.int8))
    assert_same(got["wide"], s.astype(i64))
    assert_same(got["cut"], (s.astype(i32) * 5).astype(np.int16))
    assert_same(got["u"], (a.view(np.uint8).astype(i32) + 77).astype(np.uint8))
