"""Instructions that few kernels need, written as inline PTX or CUDA intrinsics, against Python's integers."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import elementwise, emulate, needs_nvrtc
from tests.helpers.emulated_numbers import SIGNED, UNSIGNED, _python, assert_same, f32, f64, i32, rng, u32

pytestmark = needs_nvrtc
MAX_U32 = (1 << 32) - 1


def _asm(name: str, text: str, sources: int, result: str = "unsigned", source: str = "unsigned") -> str:
    """Returns a device function of some sources that runs PTX; %0 is the result."""
    letter = {"unsigned": "r", "int": "r", "float": "f", "double": "d"}
    parameters = ", ".join(f"{source} x{n}" for n in range(sources))
    read = ", ".join(f'"{letter[source]}"(x{n})' for n in range(sources))
    return (
        f"__device__ {result} {name}({parameters}) {{ {result} r; "
        f'asm volatile("{text}" : "={letter[result]}"(r) : {read}); return r; }}\n'
    )


def _split(value: int, bits: int, signed: bool = False) -> list[int]:
    parts = [value >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [p - (1 << bits) if signed and p >> bits - 1 else p for p in parts]


def _joined(parts, bits: int) -> int:
    return sum((p & (1 << bits) - 1) << bits * n for n, p in enumerate(parts))


def _clamped(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _extended(a: int, width: int) -> int:
    low = a & (1 << width) - 1
    return low - (1 << width) if width and low >> width - 1 else low


def _nth(mask: int, positions, count: int) -> int:
    found = [p for p in positions if mask >> p & 1]
    return found[count - 1] if len(found) >= count else MAX_U32


def _24(value: int) -> int:
    return _extended(value, 24)


def _check(cases: dict, prelude: str = "", pair=UNSIGNED, c_type: str = "unsigned") -> None:
    """Compare cases with Python: {name: (C++ of a and b, Python of a and b)}."""
    a, b = pair
    dtype = a.dtype.type
    got = elementwise(
        {name: (text, dtype) for name, (text, _) in cases.items()}, {"a": (c_type, a), "b": (c_type, b)}, prelude
    )
    for name, (text, f) in cases.items():
        assert_same(got[name], _python(f, dtype, a, b), text)


# -- integers ------------------------------------------------------------------------------------------
def test_bit_searches_masks_and_choices():
    forms = {
        "szc": "szext.clamp.s32 %0, %1, %2;",
        "szw": "szext.wrap.u32 %0, %1, %2;",
        "bmc": "bmsk.clamp.b32 %0, %1, %2;",
        "bmw": "bmsk.wrap.b32 %0, %1, %2;",
        "down": "fns.b32 %0, %1, 31, -2;",
        "here": "fns.b32 %0, %1, 4, 0;",
        "choose": "slct.u32.s32 %0, %1, %2, %1;",
        "none": "cnot.b32 %0, %1;",
        "mad24": "mad24.lo.u32 %0, %1, %2, 9;",
        "mul24": "mul24.hi.u32 %0, %1, %2;",
        "both": "{.reg .pred p, q; setp.lt.u32 q, %2, 99; setp.lt.or.u32 p, %1, %2, !q; selp.u32 %0, 1, 0, p;}",
        "met": "{.reg .pred p, q; setp.eq.u32 q, 0, 0; lop3.and.b32 %0|p, %1, %2, 0, 0xc0, q; @!p mov.u32 %0, 77;}",
    }
    _check(
        {
            "third": ("__fns(a, 0, 3)", lambda a, b: _nth(a, range(32), 3)),
            "down": ("down(a, b)", lambda a, b: _nth(a, range(31, -1, -1), 2)),
            "here": ("here(a, b)", lambda a, b: 4 if a >> 4 & 1 else MAX_U32),
            "szc": ("szc(a, b)", lambda a, b: _extended(a, min(b, 32))),
            "szw": ("szw(a, b)", lambda a, b: a & (1 << (b & 31)) - 1),
            "bmc": ("bmc(a, b)", lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32)),
            "bmw": ("bmw(a, b)", lambda a, b: ((1 << (b & 31)) - 1) << (a & 31)),
            "choose": ("choose(a, b)", lambda a, b: b if a >> 31 else a),
            "none": ("none(a, b)", lambda a, b: int(a == 0)),
            "mad24": ("mad24(a, b)", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) + 9),
            "mul24": ("mul24(a, b)", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16),
            "s24": ("__mul24((int)a, (int)b)", lambda a, b: _24(a) * _24(b)),
            "both": ("both(a, b)", lambda a, b: int(a < b or not b < 99)),
            "met": ("met(a, b)", lambda a, b: a & b or 77),
        },
        "".join(_asm(name, text, 2) for name, text in forms.items()),
    )


def test_differences_and_sums_of_bytes_and_halves():
    forms = {
        "diff": "vabsdiff.u32.u32.u32.add %0, %1.b0, %2.b2, %1;",
        "sat": "vadd.u32.u32.u32.sat %0, %1, %2;",
        "mad": "vmad.s32.s32.u32 %0, %1.h1, %2.b3, 9;",
        "less": "vset.s32.u32.lt %0, %1, %2;",
        "most": "vmax.s32.s32.s32.min %0, %1, %2, 1000;",
        "two": "vsub2.s32.s32.s32.sat %0, %1, %2, 0;",
    }

    def signed(value):
        return _split(value, 32, True)[0]

    def each(f, a, b, bits, s=False):
        return [f(*p) for p in zip(_split(a, bits, s), _split(b, bits, s), strict=True)]

    def absolute_difference(x, y):
        return abs(x - y)

    _check(
        {
            "abs4": ("__vabsdiffu4(a, b)", lambda a, b: _joined(each(absolute_difference, a, b, 8), 8)),
            "sad4": ("__vsadu4(a, b)", lambda a, b: sum(each(absolute_difference, a, b, 8))),
            "sad2": ("__vsads2(a, b)", lambda a, b: sum(each(absolute_difference, a, b, 16, True))),
            "diff": ("diff(a, b)", lambda a, b: abs((a & 255) - (b >> 16 & 255)) + a),
            "sat": ("sat(a, b)", lambda a, b: a + b & MAX_U32),  # an H200 does not saturate
            "mad": ("mad(a, b)", lambda a, b: _split(a, 16, True)[1] * (b >> 24) + 9),
            "less": ("less(a, b)", lambda a, b: int(signed(a) < b)),
            "most": ("most(a, b)", lambda a, b: min(max(signed(a), signed(b)), 1000)),
            "two": (
                "two(a, b)",
                lambda a, b: _joined(each(lambda x, y: _clamped(x - y, -32768, 32767), a, b, 16, True), 16),
            ),
        },
        "".join(_asm(name, text, 2) for name, text in forms.items()),
    )


def test_dot_products_of_halves_and_bytes():
    def dot(a, b, c, signed, high):
        bytes_ = _split(b, 8, signed)[2 * high :]
        return sum(x * y for x, y in zip(_split(a, 16, signed), bytes_, strict=False)) + c

    _check(
        {
            "low": ("__dp2a_lo((int)a, (int)b, 5)", lambda a, b: dot(a, b, 5, True, False)),
            "high": ("__dp2a_hi(a, b, a)", lambda a, b: dot(a, b, a, False, True)),
        }
    )


def test_prmt_modes_and_saturated_packing():
    modes = {
        "f4e": lambda n, k: n + k,
        "b4e": lambda n, k: (n - k) % 8,
        "rc8": lambda n, k: n,
        "ecl": lambda n, k: max(n, k),
        "ecr": lambda n, k: min(n, k),
        "rc16": lambda n, k: n % 2 * 2 + k % 2,
    }
    prelude = "".join(_asm(name, f"prmt.b32.{name} %0, %1, %2, %2;", 2) for name in modes)
    prelude += _asm("p8", "cvt.pack.sat.u8.s32.b32 %0, %1, %2, %1;", 2)
    prelude += _asm("p16", "cvt.pack.sat.s16.s32 %0, %1, %2;", 2)

    def permuted(mode):
        return lambda a, b: _joined([(b << 32 | a) >> 8 * mode(b & 3, k) for k in range(4)], 8)

    def pack(a, b, low, high, bits):
        return _joined([_clamped(_split(v, 32, True)[0], low, high) for v in (b, a)], bits)

    cases = {name: (f"{name}(a, b)", permuted(mode)) for name, mode in modes.items()}
    cases["p8"] = "p8(a, b)", lambda a, b: pack(a, b, 0, 255, 8) | a << 16
    cases["p16"] = "p16(a, b)", lambda a, b: pack(a, b, -32768, 32767, 16)
    _check(cases, prelude)


def test_carry_after_a_subtraction_means_no_borrow():
    forms = {
        "carry": "{.reg .u32 t; sub.cc.u32 t, %1, %2; addc.u32 %0, 0, 0;}",
        "borrow": "{.reg .u32 t; sub.cc.u32 t, %1, %2; subc.u32 %0, 0, 0;}",
        "mixed": "{.reg .u32 t; add.cc.u32 t, %1, %2; subc.u32 %0, 0, 0;}",
    }
    _check(
        {
            "carry": ("carry(a, b)", lambda a, b: int(a >= b)),
            "borrow": ("borrow(a, b)", lambda a, b: -int(a < b)),
            "mixed": ("mixed(a, b)", lambda a, b: -int(a + b <= MAX_U32)),
        },
        "".join(_asm(name, text, 2) for name, text in forms.items()),
    )


@pytest.mark.parametrize(
    "text",
    [
        "mad.hi.sat.s32 %0, %0, %0, %0;",
        "redux.sync.max.f32 %0, %0, -1;",
        "cvt.rn.relu.f16.f32 %0, %0;",
        "vadd.u32.u32.u32.sat.min %0, %0, %0, %0;",
        "vmad.u32.u32.u32.sat.shr7 %0, %0, %0, %0;",
        "vmad.s32.s32.u32.shr15 %0, %0, %0, %0;",
    ],
)
def test_unknown_form_is_an_error(text):
    source = f'extern "C" __global__ void k(int* x) {{ int r = x[0];\nasm volatile("{text}" : "+r"(r)); x[0] = r; }}'
    opcode = text.split()[0].replace(".", r"\.")
    with pytest.raises(EmulatorError, match=rf"kernel\.cu:2: unknown opcode {opcode}"):
        emulate(source, {"x": np.zeros(32, i32)})


# -- addresses and lanes -----------------------------------------------------------------------------------
def test_isspacep_cache_hints_and_elect():
    source = """__device__ unsigned is(const void* p) {
  unsigned r; asm("{.reg .pred p, q, s; isspacep.global p, %1; isspacep.shared q, %1; isspacep.local s, %1;"
      ".reg .u32 a, b, c; selp.u32 a, 1, 0, p; selp.u32 b, 2, 0, q; selp.u32 c, 4, 0, s; or.b32 a, a, b; or.b32 %0, a, c;}"
      : "=r"(r) : "l"(p)); return r;
}
extern "C" __global__ void k(unsigned* x) {
  __shared__ unsigned s; unsigned own = threadIdx.x, i = threadIdx.x, lane;
  x[i] = is(x) + 10 * is(&s) + 100 * is(&own);
  asm volatile("{.reg .b64 p; createpolicy.fractional.L2::evict_first.b64 p, 1.0;"
      ".reg .u32 v; ld.global.L2::cache_hint.u32 v, [%0], p; add.u32 v, v, 1000; st.global.L2::cache_hint.u32 [%0], v, p;"
      "red.global.add.L2::cache_hint.u32 [%0], 5000, p;}" :: "l"(x + i) : "memory");
  asm volatile("{.reg .pred p; elect.sync %0|p, -1; @p add.u32 %0, %0, 50000;}" : "=r"(lane));
  x[i] += lane;
}
"""
    got = emulate(source, {}, {"x": (32, u32)})["x"]
    assert got.tolist() == [1 + 20 + 400 + 6000 + (50000 if lane == 0 else 0) for lane in range(32)]


# -- floats ------------------------------------------------------------------------------------------------
MODES = {"rz": lambda x: x > 0, "rm": lambda x: True, "rp": lambda x: False}  # whether a value is rounded down


def _rounded(exact: Fraction, mode: str, dtype) -> float:
    """Returns `exact` rounded to a float by a mode."""
    nearest = dtype(float(exact))
    if MODES[mode](exact):
        return nearest if Fraction(float(nearest)) <= exact else np.nextafter(nearest, dtype(-np.inf))
    return nearest if Fraction(float(nearest)) >= exact else np.nextafter(nearest, dtype(np.inf))


@pytest.mark.parametrize("dtype, c_type", [(f64, "double"), (f32, "float")])
def test_directed_rounding(dtype, c_type):
    a, b, c = ((rng.standard_normal(60) * 10.0 ** rng.integers(-6, 6, 60)).astype(dtype) for _ in range(3))
    exact = {
        "add": lambda a, b, c: a + b,
        "sub": lambda a, b, c: a - b,
        "mul": lambda a, b, c: a * b,
        "fma": lambda a, b, c: a * b + c,
        "div": lambda a, b, c: a / b,
        "rcp": lambda a, b, c: 1 / a,
    }
    sources = {"fma": 3, "rcp": 1}
    names = {
        f"{name}_{mode}": f"{name}.{mode}.f{8 * dtype().itemsize} %0, "
        + ", ".join(["%1", "%2", "%3"][: sources.get(name, 2)])
        for name in exact
        for mode in MODES
    }
    prelude = "".join(_asm(name, f"{text};", 3, c_type, c_type) for name, text in names.items())
    got = elementwise(
        {name: (f"{name}(a, b, c)", dtype) for name in names},
        {n: (c_type, v) for n, v in zip("abc", (a, b, c), strict=True)},
        prelude,
    )
    for name, values in got.items():
        operation, mode = name.split("_")
        rows = [exact[operation](*(Fraction(float(v)) for v in row)) for row in zip(a, b, c, strict=True)]
        assert_same(values, np.array([_rounded(x, mode, dtype) for x in rows], dtype), name)


def test_directed_rounding_of_square_roots():
    a = np.abs(rng.standard_normal(100)).astype(f32)
    got = elementwise({"up": ("__fsqrt_ru(a)", f32), "down": ("__fsqrt_rd(a)", f32)}, {"a": ("float", a)})
    for x, up, down in zip(a, got["up"], got["down"], strict=True):
        assert Fraction(float(down)) ** 2 <= Fraction(float(x)) <= Fraction(float(up)) ** 2
        assert up in (down, np.nextafter(down, f32(np.inf)))


def test_saturated_sums_signs_and_classes():
    a, b = (np.concatenate([[0.0, -0.0, 1e-40, np.inf, -np.inf], rng.standard_normal(50)]).astype(f32) for _ in "ab")
    b = b[::-1].copy()
    forms = {
        "sat": "fma.rn.sat.f32 %0, %1, %2, %1;",
        "signs": "min.xorsign.abs.f32 %0, %1, %2;",
        "normal": "{.reg .pred p; testp.normal.f32 p, %1; selp.f32 %0, 0f3F800000, 0f00000000, p;}",
        "small": "{.reg .pred p; testp.subnormal.f32 p, %1; selp.f32 %0, 0f3F800000, 0f00000000, p;}",
    }
    got = elementwise(
        {name: (f"{name}(a, b)", f32) for name in forms}
        | {"halves": ("low(__hadd2_sat(pair(a, b), pair(b, a)))", f32)},
        {"a": ("float", a), "b": ("float", b)},
        "#include <cuda_fp16.h>\n"
        + "".join(_asm(name, text, 2, "float", "float") for name, text in forms.items())
        + "__device__ __half2 pair(float a, float b) { return __floats2half2_rn(a, b); }\n"
        "__device__ float low(__half2 p) { return __low2float(p); }\n",
    )
    with np.errstate(all="ignore"):
        total = a.astype(f64) * b + a
        np.testing.assert_allclose(
            got["sat"], np.where(np.isnan(total), 0, np.clip(total, 0, 1)), rtol=1e-6, atol=1e-44
        )
        halves = (a.astype(np.float16) + b.astype(np.float16)).astype(f32)
    np.testing.assert_allclose(got["halves"], np.where(np.isnan(halves), 0, np.clip(halves, 0, 1)), atol=1e-3)
    sign = np.where(np.signbit(a) ^ np.signbit(b), f32(-1), f32(1))
    assert_same(got["signs"], np.copysign(np.minimum(np.abs(a), np.abs(b)), sign))
    tiny = np.finfo(f32).tiny
    assert_same(got["normal"], (np.isfinite(a) & ((a == 0) | (np.abs(a) >= tiny))).astype(f32))
    assert_same(got["small"], ((a != 0) & (np.abs(a) < tiny)).astype(f32))


@pytest.mark.parametrize(("name", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_eight_bit_floats(name, dtype):
    """Every 8-bit value, and floats of all magnitudes."""
    all_values = np.arange(256, dtype=np.uint8)
    values = np.concatenate(
        [rng.standard_normal(200) * 10.0 ** rng.integers(-6, 6, 200), [np.nan, np.inf, -np.inf, 1e9]]
    )
    source = f"""extern "C" __global__ void k(unsigned short* pairs, unsigned* halves, unsigned short* again, const float* x, const unsigned short* bits) {{
  int i = threadIdx.x; unsigned h; unsigned short p;
  asm("cvt.rn.satfinite.{name}x2.f32 %0, %1, %2;" : "=h"(p) : "f"(x[i + 1]), "f"(x[i])); pairs[i] = p;
  asm("cvt.rn.f16x2.{name}x2 %0, %1;" : "=r"(h) : "h"(bits[i])); halves[i] = h;
  asm("cvt.rn.satfinite.{name}x2.f16x2 %0, %1;" : "=h"(p) : "r"(h)); again[i] = p;
}}
"""
    x = np.resize(values, 129).astype(f32)
    run = emulate(
        source,
        {"x": x, "bits": all_values.view(np.uint16)},
        {"pairs": (128, np.uint16), "halves": (128, u32), "again": (128, np.uint16)},
        block=128,
    )
    max_value = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(x, -max_value, max_value).astype(dtype).astype(f32)
    got = run["pairs"].view(np.uint8).view(dtype).astype(f32)
    assert_same(got[::2], expected[:-1])
    assert_same(got[1::2], expected[1:])
    assert_same(run["halves"].view(np.float16), all_values.view(dtype).astype(np.float16))
    finite = np.isfinite(all_values.view(dtype).astype(f32))
    np.testing.assert_array_equal(run["again"].view(np.uint8)[finite], all_values[finite])


def test_signed_sad_and_mul24():
    """The same intrinsics get the numbers of SIGNED as int."""
    _check(
        {
            "sad": ("(int)__sad(a, b, 0u)", lambda a, b: abs(a - b)),
            "mul": ("__mul24(a, b)", lambda a, b: _24(a & MAX_U32) * _24(b & MAX_U32)),
        },
        pair=SIGNED,
        c_type="int",
    )


def test_fields_that_reach_beyond_the_highest_bit():
    """Worked out by hand from the PTX ISA, "bfe": what lies beyond is the field's sign, which is the highest bit."""
    a, p, q = (
        np.array(v, np.uint32)
        for v in zip(
            (0x80000000, 24, 16),
            (0x80000000, 24, 8),
            (0x80000000, 31, 5),
            (0x7FFFFFFF, 24, 16),
            (0x80000000, 40, 3),
            (0x80000000, 24, 0),
            (0x80000000, 256 + 24, 256 + 16),
            (0x12345678, 8, 8),
            strict=True,
        )
    )
    got = elementwise(
        {
            "s": ("sfield((int)a, p, q)", i32),
            "u": ("ufield(a, p, q)", u32),
            "l": ("lfield((long long)((unsigned long long)a << 32), p + 32, q)", np.int64),
        },
        {"a": ("unsigned", a), "p": ("unsigned", p), "q": ("unsigned", q)},
        """
    __device__ int sfield(int a, unsigned p, unsigned l) { int r; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(p), "r"(l)); return r; }
    __device__ unsigned ufield(unsigned a, unsigned p, unsigned l) { unsigned r; asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(p), "r"(l)); return r; }
    __device__ long long lfield(long long a, unsigned p, unsigned l) { long long r; asm("bfe.s64 %0, %1, %2, %3;" : "=l"(r) : "l"(a), "r"(p), "r"(l)); return r; }
    """,
    )
    assert got["s"].tolist() == [-128, -128, -1, 127, -1, 0, -128, 0x56]
    assert got["u"].tolist() == [128, 128, 1, 127, 0, 0, 128, 0x56]
    assert got["l"][:6].tolist() == [-128, -128, -1, 127, -1, 0]


def test_minimum_and_maximum_not_below_zero():
    a, b = np.array([[-5, -5, 3, 7, -(2**31), 2**31 - 1], [2, -9, 8, 7, 2**31 - 1, -1]], i32)
    got = elementwise(
        {name: (f"{name}(a, b)", i32) for name in ("low", "high")},
        {"a": ("int", a), "b": ("int", b)},
        _asm("low", "min.relu.s32 %0, %1, %2;", 2, "int", "int")
        + _asm("high", "max.relu.s32 %0, %1, %2;", 2, "int", "int"),
    )
    assert_same(got["low"], np.maximum(np.minimum(a, b), 0))
    assert_same(got["high"], np.maximum(np.maximum(a, b), 0))


def test_saturated_and_flushed_zeros_keep_or_lose_their_sign():
    """.sat gives a positive zero for a negative zero and for NaN; .ftz keeps the sign of what it flushes."""
    a = np.array([-0.0, np.nan, -1e-39, 1e-39, -2e-38, 2e-38, 2.0, -np.inf], f32)
    forms = {
        "sat": "cvt.sat.f32.f32 %0, %1;",
        "flush": "mul.ftz.f32 %0, %1, 0f3F800000;",
        "product": "mul.ftz.f32 %0, %1, 0f3F000000;",
        "both": "add.ftz.sat.f32 %0, %1, %1;",
    }
    got = elementwise(
        {"saturate": ("__saturatef(a)", f32)} | {name: (f"{name}(a)", f32) for name in forms},
        {"a": ("float", a)},
        "".join(_asm(name, text, 1, "float", "float") for name, text in forms.items()),
    )
    clamped = np.array([0, 0, 0, a[3], 0, a[5], 1, 0], f32)
    assert_same(got["sat"], clamped)
    assert_same(got["saturate"], clamped)
    assert_same(got["flush"], np.array([-0.0, np.nan, -0.0, 0.0, a[4], a[5], 2, -np.inf], f32))
    assert_same(got["product"], np.array([-0.0, np.nan, -0.0, 0.0, -0.0, 0.0, 1, -np.inf], f32))
    assert_same(got["both"], np.array([0, 0, 0, 0, 0, a[5] * 2, 1, 0], f32))


def test_fused_products_of_bfloat16_not_below_zero():
    a = np.array([0x3F80, 0xBF80, 0x4000, 0x7FC0], np.uint16)  # 1, -1, 2, NaN
    got = elementwise(
        {"clamped": ("clamped(a, a)", np.uint16), "plain": ("plain(a, a)", np.uint16)},
        {"a": ("unsigned short", a)},
        "".join(
            f"__device__ unsigned short {name}(unsigned short a, unsigned short b) {{ unsigned short r;"
            f' asm("fma.rn{relu}.bf16 %0, %1, %2, %1;" : "=h"(r) : "h"(a), "h"((unsigned short)0xC000)); return r; }}\n'
            for name, relu in (("clamped", ".relu"), ("plain", ""))
        ),
    )  # a * -2 + a = -a
    assert got["plain"][:3].tolist() == [0xBF80, 0x3F80, 0xC000]
    assert got["clamped"][:3].tolist() == [0, 0x3F80, 0]
    assert (got["clamped"][3] & 0x7FFF) > 0x7F80
