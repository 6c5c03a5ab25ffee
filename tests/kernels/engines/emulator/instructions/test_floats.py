"""The emulator's conversions and floating-point arithmetic, against NumPy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.engines.emulator.operations import floats
from tests.helpers.emulated import elementwise, needs_nvrtc
from tests.helpers.emulated_numbers import SIGNED_64, SPECIAL, _floats, assert_same, f32, f64, i32, i64, rng, u32, u64

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]


# -- conversions ---------------------------------------------------------------------------------------
def _to_int(x: float, dtype, nan: int, rounding=math.trunc) -> int:
    """Returns x as a clamped integer, as PTX does."""
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
            "i": ("(int)x", i32),
            "u": ("(unsigned)x", u32),
            "l": ("(long long)x", i64),
            "ul": ("(unsigned long long)x", u64),
            "rn": ("__float2int_rn(x)", i32),
            "rd": ("__float2int_rd(x)", i32),
            "ru": ("__float2int_ru(x)", i32),
            "di": ("(int)d", i32),
            "dl": ("(long long)d", i64),
            "down": ("floorf(x)", f32),
            "up": ("ceilf(x)", f32),
            "cut": ("truncf(x)", f32),
            "near": ("rintf(x)", f32),
        },
        {"x": ("float", x), "d": ("double", d)},
    )

    def expected(values, dtype, nan, rounding=math.trunc):
        return np.array([_to_int(float(v), dtype, nan, rounding) for v in values], dtype)

    assert_same(got["i"], expected(x, i32, 0))
    assert_same(got["u"], expected(x, u32, 0))
    assert_same(got["l"], expected(x, i64, -(2**63)))
    assert_same(got["ul"], expected(x, u64, 2**63))
    assert_same(got["rn"], expected(x, i32, 0, round))
    assert_same(got["rd"], expected(x, i32, 0, math.floor))
    assert_same(got["ru"], expected(x, i32, 0, math.ceil))
    assert_same(got["di"], expected(d, i32, -(2**31)))
    assert_same(got["dl"], expected(d, i64, -(2**63)))
    for name, f in (("down", np.floor), ("up", np.ceil), ("cut", np.trunc), ("near", np.rint)):
        with np.errstate(all="ignore"):
            assert_same(got[name], f(x), name)


def _nearest(value, dtype) -> float:
    """Returns a Fraction rounded to nearest even: the best of a first guess and its neighbours."""
    guess = dtype(float(value))
    candidates = [guess, np.nextafter(guess, dtype(np.inf)), np.nextafter(guess, dtype(-np.inf))]
    candidates = [n for n in candidates if np.isfinite(n)]
    bits = np.uint32 if dtype is f32 else np.uint64
    return min(candidates, key=lambda n: (abs(Fraction(float(n)) - value), int(n.view(bits)) & 1))


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
            "i": ("(float)(int)x", f32),
            "u": ("(float)(unsigned)x", f32),
            "l": ("(float)x", f32),
            "ul": ("(float)(unsigned long long)x", f32),
            "dl": ("(double)x", f64),
            "f": ("(float)d", f32),
            "d": ("(double)(float)d", f64),
            "rz": ("__ll2float_rz(x)", f32),
            "ru": ("__double2float_ru(d)", f32),
            "rd": ("__double2float_rd(d)", f32),
            "bits": ("__float_as_int((float)d)", i32),
            "back": ("__int_as_float((int)x)", f32),
            "high": ("__double2hiint(d)", i32),
        },
        {"x": ("long long", x), "d": ("double", d)},
    )
    assert_same(got["i"], x.astype(i32).astype(f32))
    assert_same(got["u"], x.astype(u32).astype(f32))
    assert_same(got["l"], np.array([_nearest(Fraction(int(v)), f32) for v in x], f32))
    assert_same(got["ul"], np.array([_nearest(Fraction(int(v)), f32) for v in x.view(u64)], f32))
    assert_same(got["dl"], np.array([float(int(v)) for v in x]))
    with np.errstate(all="ignore"):
        single = d.astype(f32)
    assert_same(got["f"], single)
    assert_same(got["d"], single.astype(f64))
    for v, cut in zip(x, got["rz"], strict=True):
        away = np.nextafter(cut, f32(np.inf if v >= 0 else -np.inf))
        assert abs(int(cut)) <= abs(int(v)) < abs(Fraction(float(away)))
    finite = np.isfinite(d)
    assert (got["ru"][finite] >= d[finite]).all() and (got["rd"][finite] <= d[finite]).all()
    exact = finite & (single == d)
    assert_same(got["ru"][exact], single[exact])
    assert_same(got["rd"][exact], single[exact])
    assert_same(got["bits"][~np.isnan(d)], single.view(i32)[~np.isnan(d)])
    assert_same(got["back"], x.astype(i32).view(f32))
    assert_same(got["high"][finite], (d.view(u64) >> u64(32)).astype(u32).view(i32)[finite])


# -- floats ----------------------------------------------------------------------------------------------
def test_float_arithmetic_to_the_bit():
    a, b = _floats(), _floats()[::-1].copy()
    got = elementwise(
        {
            "add": ("__fadd_rn(a, b)", f32),
            "sub": ("__fsub_rn(a, b)", f32),
            "mul": ("__fmul_rn(a, b)", f32),
            "div": ("__fdiv_rn(a, b)", f32),
            "sqrt": ("__fsqrt_rn(a)", f32),
            "rcp": ("__frcp_rn(a)", f32),
            "neg": ("-a", f32),
            "abs": ("fabsf(a)", f32),
            "least": ("fminf(a, b)", f32),
            "most": ("fmaxf(a, b)", f32),
            "sign": ("copysignf(a, b)", f32),
            "sat": ("__saturatef(a)", f32),
            "d": ("(double)a * b + (double)a / b", f64),
            "dsqrt": ("sqrt((double)a)", f64),
        },
        {"a": ("float", a), "b": ("float", b)},
    )
    with np.errstate(all="ignore"):
        assert_same(got["add"], a + b)
        assert_same(got["sub"], a - b)
        assert_same(got["mul"], a * b)
        assert_same(got["div"], a / b)
        assert_same(got["sqrt"], np.sqrt(a))
        assert_same(got["rcp"], f32(1) / a)
        assert_same(got["neg"], -a)
        assert_same(got["abs"], np.abs(a))
        zeros = (a == 0) & (b == 0)  # either zero may be the lesser
        assert_same(got["least"][~zeros], np.fmin(a, b)[~zeros])
        assert_same(got["most"][~zeros], np.fmax(a, b)[~zeros])
        assert_same(got["sign"], np.copysign(a, b))
        assert_same(np.abs(got["sat"]), np.abs(np.where(np.isnan(a), f32(0), np.clip(a, f32(0), f32(1)))))
        assert_same(got["d"], a.astype(f64) * b + a.astype(f64) / b)
        assert_same(got["dsqrt"], np.sqrt(a.astype(f64)))


def test_fma_rounds_once():
    """Compare with exact fractions. The operands are chosen so that the product's low bits matter."""
    n = 1500
    a, b = (rng.standard_normal(n).astype(f32) for _ in range(2))
    c = (-(a * b) * rng.choice([1, 1, 1, 0.5, 2, 1024], n)).astype(f32)
    x, y = rng.standard_normal(n), rng.standard_normal(n)
    z = -(x * y) * rng.choice([1, 1, 0.5, 4, 2.0**20], n)
    got = elementwise(
        {"f": ("fmaf(a, b, c)", f32), "d": ("fma(x, y, z)", f64), "two": ("__fadd_rn(__fmul_rn(a, b), c)", f32)},
        {
            "a": ("float", a),
            "b": ("float", b),
            "c": ("float", c),
            "x": ("double", x),
            "y": ("double", y),
            "z": ("double", z),
        },
    )
    exact = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in zip(a, b, c, strict=True)]
    assert_same(got["f"], np.array([_nearest(v, f32) for v in exact], f32))
    exact = [
        Fraction(p) * Fraction(q) + Fraction(r) for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    assert_same(got["d"], np.array([_nearest(v, f64) for v in exact]))
    assert_same(got["two"], a * b + c)
    assert (got["two"] != got["f"]).mean() > 0.3  # the test distinguishes them


def test_fma_rounds_once_at_the_ends_of_the_range():
    """Large operands whose sum is small again, and products whose low bits are below the smallest number."""
    x = np.concatenate([rng.uniform(1, 2, 200) * 2.0**1020, rng.uniform(1, 2, 200) * 2.0**-1060])
    y = np.concatenate([rng.uniform(1, 2, 200) * 2.0**-900, rng.uniform(1, 2, 200)])
    z = np.concatenate([-(x * y)[:200], rng.uniform(1, 2, 200) * 2.0**-1040])
    x, y, z = (np.append(v, end) for v, end in zip((x, y, z), (2.0**1023, 2.0, -(2.0**1023)), strict=True))
    got = elementwise(
        {"d": ("fma(x, y, z)", f64)}, {name: ("double", v) for name, v in zip("xyz", (x, y, z), strict=True)}
    )
    exact = [
        Fraction(p) * Fraction(q) + Fraction(r) for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    assert_same(got["d"], np.array([float(v) for v in exact]))


def test_directed_rounding():
    a, b = (rng.standard_normal(800).astype(f32) * f32(2) ** rng.integers(-20, 20, 800).astype(f32) for _ in range(2))
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
            "exp": ("expf(x)", f32),
            "fast_exp": ("__expf(x)", f32),
            "exp2": ("exp2f(x)", f32),
            "log": ("logf(p)", f32),
            "fast_log": ("__logf(p)", f32),
            "log2": ("log2f(p)", f32),
            "log1p": ("log1pf(p)", f32),
            "sin": ("sinf(big)", f32),
            "cos": ("cosf(big)", f32),
            "fast_sin": ("__sinf(x)", f32),
            "fast_cos": ("__cosf(x)", f32),
            "tanh": ("tanhf(x)", f32),
            "pow": ("powf(p, x)", f32),
            "rsqrt": ("rsqrtf(p)", f32),
            "fast_div": ("__fdividef(x, p)", f32),
            "erf": ("erff(x)", f32),
            "cbrt": ("cbrtf(x)", f32),
            "atan": ("atan2f(x, big)", f32),
            "mod": ("fmodf(big, p)", f32),
            "dexp": ("exp((double)x)", f64),
            "dsin": ("sin((double)big)", f64),
            "dlog": ("log((double)p)", f64),
            "sigmoid": ("1.0f / (1.0f + __expf(-x))", f32),
        },
        {"x": ("float", x), "p": ("float", p), "big": ("float", big)},
    )
    X, P, B = (v.astype(f64) for v in (x, p, big))
    expected = {
        "exp": np.exp(X),
        "exp2": np.exp2(X),
        "log": np.log(P),
        "log2": np.log2(P),
        "log1p": np.log1p(P),
        "sin": np.sin(B),
        "cos": np.cos(B),
        "tanh": np.tanh(X),
        "pow": P**X,
        "rsqrt": 1 / np.sqrt(P),
        "erf": np.array([math.erf(v) for v in X]),
        "cbrt": np.cbrt(X),
        "atan": np.arctan2(X, B),
        "mod": np.fmod(B, P),
    }
    for name, value in expected.items():
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
        {f"r{n}": (f"{text} ? 1 : 0", i32) for n, text in enumerate(texts)}, {"a": ("float", a), "b": ("float", b)}
    )
    with np.errstate(all="ignore"):
        expected = [a < b, a <= b, a > b, a >= b, a == b, a != b, ~(a < b), ~(a >= b), ~(a == b)]
        expected += [np.isnan(a), np.isinf(b), np.ones(len(a), bool), ((a < b) & (b < 100)) | np.isnan(a)]
    for n, text in enumerate(texts):
        assert_same(got[f"r{n}"], expected[n].astype(i32), text)


def test_unordered_comparisons():
    """The unordered forms, for which C++ has no operators, and the tests for NaN."""
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
            expected = nan == (form == "nan")
        else:
            expected = ordered[form[:2]] & ~nan | (nan if form.endswith("u") else False)
        assert_same(got[form], expected.astype(i32), form)


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
            "add": ("__hadd(a, b)", np.float16),
            "sub": ("a - b", np.float16),
            "mul": ("a * b", np.float16),
            "div": ("a / b", np.float16),
            "fma": ("__hfma(a, b, c)", np.float16),
            "neg": ("-a", np.float16),
            "least": ("__hmin(a, b)", np.float16),
            "less": ("__hlt(a, b) ? 1 : 0", i32),
            "differ": ("a != b ? 1 : 0", i32),
            "f": ("__half2float(a)", f32),
            "i": ("__half2int_rz(a)", i32),
            "from_i": ("__int2half_rn((int)__half2float(a) * 3)", np.float16),
            "rz": ("__float2half_rz(__half2float(a) * 1.001f)", np.float16),
            "rn": ("__float2half(__half2float(a) * 1.001f)", np.float16),
            "exp": ("hexp(a)", np.float16),
            "sqrt": ("hsqrt(a)", np.float16),
        },
        {"a": ("__half", a), "b": ("__half", b), "c": ("__half", c)},
        HALF,
    )
    A, B, C = (v.astype(f64) for v in (a, b, c))
    h = np.float16
    with np.errstate(all="ignore"):
        assert_same(got["add"], (A + B).astype(h))
        assert_same(got["sub"], (A - B).astype(h))
        assert_same(got["mul"], (A * B).astype(h))
        np.testing.assert_allclose(got["div"].astype(f64), (A / B).astype(h).astype(f64), rtol=1e-3)
        assert_same(got["fma"], (A * B + C).astype(h))
        assert_same(got["neg"], -a)
        zeros = (a == 0) & (b == 0)
        assert_same(got["least"][~zeros], np.fmin(a, b)[~zeros])
        assert_same(got["less"], (a < b).astype(i32))
        assert_same(got["differ"], (a != b).astype(i32))
        assert_same(got["f"], a.astype(f32))
        whole = np.nan_to_num(np.clip(A, -1e9, 1e9), nan=0.0)
        finite = np.isfinite(A)
        assert_same(got["i"][finite], np.trunc(whole)[finite].astype(i32))
        assert_same(got["from_i"][finite], (np.trunc(whole)[finite] * 3 + 0.0).astype(h))
        scaled = a.astype(f32) * f32(1.001)
        assert_same(got["rn"], scaled.astype(h))
        assert (np.abs(got["rz"])[finite] <= np.abs(scaled)[finite]).all()
        np.testing.assert_allclose(got["exp"].astype(f64), np.exp(A).astype(h).astype(f64), rtol=2e-3, atol=1e-7)
        np.testing.assert_allclose(got["sqrt"].astype(f64), np.sqrt(A).astype(h).astype(f64), rtol=1e-3)


def test_pairs_of_halves():
    a, b = _halves(602)[14:], _halves(602)[14:]
    with np.errstate(all="ignore"):
        a, b = (np.where(np.isnan(v), np.float16(3), v) for v in (a, b))
    got = elementwise(
        {
            "add": ("bits(__hadd2(x, y))", u32),
            "fma": ("bits(__hfma2(x, y, x))", u32),
            "low": ("__half2float(__low2half(x))", f32),
            "swap": ("bits(__lowhigh2highlow(x))", u32),
            "eq": ("bits(__heq2(x, x))", u32),
            "lt": ("bits(__hlt2(x, y))", u32),
            "all": ("__hbge2(x, y) ? 1 : 0", i32),
            "least": ("bits(__hmin2(x, y))", u32),
        },
        {"xb": ("unsigned", a.view(u32)), "yb": ("unsigned", b.view(u32))},
        HALF + "__device__ unsigned bits(__half2 v) { return *(unsigned*)&v; }",
        "__half2 x = *(__half2*)&xb, y = *(__half2*)&yb;",
    )
    h = np.float16
    A, B = a.astype(f64), b.astype(f64)
    with np.errstate(all="ignore"):
        assert_same(got["add"].view(h), (A + B).astype(h))
        assert_same(got["fma"].view(h), (A * B + A).astype(h))
        assert_same(got["least"].view(h)[a != b], np.fmin(a, b)[a != b])
    assert_same(got["low"], a[::2].astype(f32))
    assert_same(got["swap"].view(h), a.reshape(-1, 2)[:, ::-1].reshape(-1))
    assert_same(got["eq"].view(h), np.ones(len(a), h))
    assert_same(got["lt"].view(h), (a < b).astype(h))
    assert_same(got["all"], (a >= b).reshape(-1, 2).all(axis=1).astype(i32))


def _bf16(x: np.ndarray) -> np.ndarray:
    """Returns float64 rounded to the nearest bfloat16, as bits, by exact comparison of neighbours."""
    x32 = np.asarray(x, f64).astype(f32)
    down = (x32.view(u32) & u32(0xFFFF0000)).view(f32).astype(f64)
    up = ((x32.view(u32) & u32(0xFFFF0000)) + u32(0x10000)).view(f32).astype(f64)
    odd = (x32.view(u32) >> u32(16)) & u32(1) == 1
    closer = np.abs(x - up) < np.abs(x - down)
    tie = np.abs(x - up) == np.abs(x - down)
    return (np.where(closer | (tie & odd), up, down).astype(f32).view(u32) >> u32(16)).astype(np.uint16)


def test_bfloat16_arithmetic():
    bits = ((rng.integers(100, 150, 600) << 7) | rng.integers(0, 128, 600) | (rng.integers(0, 2, 600) << 15)).astype(
        np.uint16
    )
    a, b = bits, bits[::-1].copy()
    x, y = (((v.astype(u32)) << u32(16)).view(f32).astype(f64) for v in (a, b))
    got = elementwise(
        {
            "add": ("bits(__hadd(x, y))", np.uint16),
            "mul": ("bits(__hmul(x, y))", np.uint16),
            "fma": ("bits(__hfma(x, y, x))", np.uint16),
            "f": ("__bfloat162float(x)", f32),
            "from": ("bits(__float2bfloat16(__bfloat162float(x) * 1.003f))", np.uint16),
            "less": ("__hlt(x, y) ? 1 : 0", i32),
        },
        {"xb": ("unsigned short", a), "yb": ("unsigned short", b)},
        HALF + "__device__ unsigned short bits(__nv_bfloat16 v) { return *(unsigned short*)&v; }",
        "__nv_bfloat16 x = *(__nv_bfloat16*)&xb, y = *(__nv_bfloat16*)&yb;",
    )
    assert_same(got["add"] & 0x7FFF, _bf16(x + y) & 0x7FFF)  # x - x may be either zero in the reference
    assert_same(got["mul"], _bf16(x * y))
    assert_same(got["fma"] & 0x7FFF, _bf16(x * y + x) & 0x7FFF)
    assert_same(got["f"], x.astype(f32))
    assert_same(got["from"], _bf16((x.astype(f32) * f32(1.003)).astype(f64)))
    assert_same(got["less"], (x < y).astype(i32))


def exactly_rounded(a: float, b: float, c: float) -> np.float32:
    """Returns a b + c as the nearest float32 by fractions: of the neighbours, the nearer one, and of two the even one."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = np.float32(float(exact))
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(candidates, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1))


@given(
    n=st.integers(1, 2**12 - 1),
    exponent=st.integers(-60, 20),
    tail=st.sampled_from([-1.0, 0.0, 1.0]),
    depth=st.integers(30, 120),
)
def test_fma_is_rounded_once(n, exponent, tail, depth):
    """A product that is midway between two numbers, and a term that is too small for float64 beside it."""
    a = np.float32((1 + n * 2.0**-12) * 2.0**exponent)
    b, c = np.float32(1 + 2.0**-12), np.float32(tail * 2.0 ** (exponent - depth))
    assert floats.fma(a, b, c) == exactly_rounded(float(a), float(b), float(c))
    many = floats.fma(np.full(3, a), np.full(3, b), np.full(3, c))
    assert (many == exactly_rounded(float(a), float(b), float(c))).all()
