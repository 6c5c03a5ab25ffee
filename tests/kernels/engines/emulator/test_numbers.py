"""Numbers that go wrong without a fault: the first NaN and infinity, whole numbers that wrap, floats compared by their bits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from tests.helpers.emulated import NAME, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
INF = float("inf")
KERNEL = """#include <cuda_fp16.h>
#define inf __int_as_float(0x7f800000)
extern "C" __global__ void k(float* out, const float* x, const int* i, int n, int big) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  %s
}"""
LINE = 1 + KERNEL[: KERNEL.index("%s")].count("\n")
X = np.array([1, 2, -3, 0, 0.5, -0.25, 1e30, -1e30] * 8, np.float32)
INDICES = np.arange(64, dtype=np.int32)


def _run(body: str, x: np.ndarray = X, n: int = 64, big: int = 1 << 30, start: float = 0) -> Run:
    memory = device_memory({"out": np.full(64, start, np.float32), "x": x, "i": INDICES}, ["out", "x", "i"])
    args = ["out", "x", "i", np.int32(n), np.int32(big)]
    ptx = compile_ptx(KERNEL % body, NAME, OPTIONS)
    options = Options(races=True, numbers=True)
    return launch(ptx, "k", (2, 1, 1), (32, 1, 1), args, memory, 0, options)


def _about_nan(run: Run) -> list[str]:
    assert run.ended.first_nan
    return list(run.ended.first_nan.messages())


@pytest.mark.parametrize(
    "body, name, made, thread, count",
    [
        ("out[t] = x[t] / x[3];", "infinity", "1 / 0", 0, 56),
        ("out[t] = x[t] / x[3];", "NaN", "0 / 0", 3, 8),
        ("out[t] = (x[t] + inf) - inf;", "NaN", "inf + (-inf)", 0, 64),
        ("out[t] = x[t] * 1e20f;", "infinity", "1e+30 * 1e+20", 6, 16),
        ("out[t] = sqrtf(x[t]);", "NaN", "the square root of (-3)", 2, 24),
        ("out[t] = __logf(x[t]);", "NaN", "the logarithm of (-3)", 2, 24),
        ("out[t] = __fdividef(1.0f, x[t] * 0.0f);", "infinity", "/ 0", 0, 64),
        ("out[t] = __fdividef(x[3], x[3] * x[t]);", "NaN", "0 / 0", 0, 64),
        ("out[t] = acosf(x[t] + 1);", "NaN", "1 / the square root of (-0.5)", 0, 48),
        ("out[t] = exp2f(x[t] * 200);", "infinity", "2 to the power of 200", 0, 24),
        ("out[t] = __half2float(__float2half(x[t]));", "infinity", "1e+30 in fewer bits", 6, 16),
        ("out[t] = fmaf(x[t], 1e30f, x[t]);", "infinity", "1e+30 * 1e+30 + 1e+30", 6, 16),
        ("out[t] = (float)((double)x[t] * 1e300);", "infinity", "1e+30 * 1e+300", 6, 56),
        ("out[t] = 5; if (t == 40) out[t] = __half2float(__hmul(__float2half(6e4f * x[0]), __float2half(2.f)));",
         "infinity", "60000 * 2", 8, 1),
    ],
)  # fmt: skip
def test_where_the_first_nan_or_infinity_was_made(body, name, made, thread, count):
    (found,) = [message for message in _about_nan(_run(body)) if f"the first {name} " in message]
    assert f"{NAME}:{LINE}" in found or "in code from" in found, found
    assert made in found and f"by thread ({thread}, 0, 0)" in found, found
    assert f"it is in {count} of 64 elements of out" in found, found


def test_an_online_softmax_of_masked_rows():
    body = """float m = -inf, l = 0;
  for (int j = 0; j < 4; ++j) {
    float v = j < i[t] ? x[j] : -inf, top = fmaxf(m, v);
    l = l * __expf(m - top) + __expf(v - top); m = top;
  }
  out[t] = l;"""
    (found,) = _about_nan(_run(body))
    assert f"{NAME}:{LINE + 3}: the first NaN is (-inf) - (-inf), by thread (0, 0, 0)" in found
    assert "it is in 1 of 64 elements" in found


@pytest.mark.parametrize(
    "body",
    [
        "out[t] = x[t] == 0 ? 7 : 1 / x[t];",  # each thread divides, and the infinity is not used
        "float m = -inf; for (int j = 0; j < 8; ++j) m = fmaxf(m, x[j]); out[t] = m;",
        "out[t] = __expf(-inf * fabsf(x[t] + 1e-3f));",
        "out[t] = t < n ? -inf : 0;",  # a constant
        "out[t] = expf(-fabsf(x[t]));",
        "out[t] = tanhf(x[t]);",
        "out[t] = sinf(x[t] < 1e5f ? x[t] : 0) + logf(fabsf(x[t]) + 1);",
        "out[t] = powf(fabsf(x[t]) + 1, 0.5f);",
        "out[t] = 1 / (1 + expf(-x[t]));",
        "out[t] = rsqrtf(fabsf(x[t]) + 1e-5f);",
    ],
)
def test_no_word_about_numbers_that_stay_finite(body):
    assert _about_nan(_run(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        "float r = expf(100 * y); out[t] = z + 1 / (1 + r);",
        "float r = sqrtf(y); r = y < 0 ? 0 : r; out[t] = z + r;",
        "float g = y / (1 + expf(-200 * y)); out[t] = t % 2 ? g : -inf;",
        "float r = 1 / y; out[t] = fminf(r, 9) + z;",
    ],
)
def test_a_number_that_is_dropped_is_not_what_the_inputs_hold(body):
    x = np.linspace(-3, 3, 64).astype(np.float32)
    x[40:43] = np.inf, -np.inf, np.nan
    assert _about_nan(_run("float z = x[t], y = i[t] * 0.2f - 5; " + body, x)) == []


def test_masks_and_numbers_below_zero_are_no_nan():
    """Their bits would be those of NaN."""
    body = "float s = x[t]; for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d); int best = t < n - 60 ? 0x7fffffff : -1;"
    (found,) = _about_nan(_run(body + " out[t] = x[t] / s + best % 2;", np.zeros(64, np.float32)))
    assert "the first NaN is 0 / 0" in found and "it is in 64 of 64" in found


def test_an_infinity_is_no_nan():
    """The square root of a negative number is NaN, and the outputs hold infinities of another origin."""
    body = "float r = sqrtf(x[t]); out[t] = t < 9 ? r : 1e38f * (fabsf(x[t]) * 1e3f + 5);"
    found = _about_nan(_run(body, np.where(np.arange(64) < 9, -1, 1).astype(np.float32)))
    assert len(found) == 2 and "the first NaN is the square root of (-1)" in found[0]
    assert "the first infinity is 1e+38 * 1005" in found[1].replace("1005 * 1e+38", "1e+38 * 1005")


def test_an_infinity_of_another_sign_than_that_of_the_inputs_is_the_kernels():
    x = np.linspace(1, 3, 64).astype(np.float32)
    x[5] = -np.inf
    (found,) = _about_nan(_run("out[t] = x[t] * 3e38f;", x))
    assert "the first infinity is" in found and "it is in 58 of" in found


def test_a_nan_among_the_inputs_is_none_of_the_kernel():
    x = X.copy()
    x[5] = np.nan
    assert _about_nan(_run("out[t] = x[t] + 1;", x)) == []
    assert _about_nan(_run("out[t] = __int_as_float(i[t] + 0x7f800001) + 1;")) == []


@pytest.mark.parametrize(
    "body, wraps, purpose",
    [
        ("int j = t * big; out[j < 0 ? 0 : j % 64] = 1;", "2 * 1,073,741,824 wraps to -2,147,483,648", "a comparison"),
        ("int j = big + big; if (j < n) out[t] = 1;", "1,073,741,824 << 1 wraps to -2,147,483,648", "a comparison"),
        (
            "int j = big; for (int r = 0; r < n / 32; ++r) j = j + i[1] * big; if (j < n) out[t] = 2;",
            "wraps to -2,147,483,648",
            "a comparison",
        ),
        ("int q = big >> 14; for (int j = q * q; j > 0; --j) out[t] += j;", "wraps to 0", "a comparison"),
        ("int j = -big - big - 1 - t; if (j > 0) out[t] = 1;", "wraps to 2,147,483,647", "a comparison"),
        ("int j = big * 4 + t; out[j] = 1;", "1,073,741,824 << 2 wraps to 0", "an address"),
        ("int j = t << n / 2 - 5; if (j < n) out[t] = 1;", "16 << 27 wraps to -2,147,483,648", "a comparison"),
        ("int j = t * 0x10001 * 0x8001; if (j < n) out[t] = 1;", "wraps to", "a comparison"),
        ("int j = t * big / 7; if (j < n) out[t] = 1;", "2 * 1,073,741,824 wraps to", "a comparison"),
        ("int j = t * big % 7; out[j < 0 ? 0 : j] = 1;", "2 * 1,073,741,824 wraps to", "an address"),
        ("int j = (big * i[t] + t) >> 4; if (j < n) out[t] = 1;", "2 * 1,073,741,824 + 2 wraps to", "a comparison"),
    ],
)
def test_a_signed_number_that_wraps(body, wraps, purpose):
    found = _run(body).warnings
    assert found and all(f"{NAME}:{LINE}" in message for message in found), found
    assert any(wraps in message and f"that {purpose} at" in message for message in found), found


@pytest.mark.parametrize(
    "body, product",
    [
        ("for (int j = 0; j < big * big; ++j) out[t] += j;", "65,536 * 65,536 wraps to 0"),
        ("#pragma unroll 1\n for (int j = 0; j < big * big; ++j) out[t] += j;", "65,536 * 65,536 wraps to 0"),
        ("int j = 0; while (j != big * n * 1024) out[t] += j++;", "wraps to 0"),
        ("int j = 0; while (j != (n << 26)) out[t] += j++;", "64 << 26 wraps to 0"),
        ("for (int j = big * big; j != 0; --j) out[t] += j;", "65,536 * 65,536 wraps to 0"),
        ("int j = big * i[2] * big; while (j--) out[t] += j;", "wraps to 0"),
        ("for (int j = 0; j != 5 + big * big; ++j) out[t] += j;", "65,536 * 65,536 wraps to 0"),
        ("for (int j = 0; j != big * big + n; ++j) out[t] += j;", "65,536 * 65,536"),
        ("int j = 0; do out[t] += j; while (++j < big * big);", "65,536 * 65,536 wraps to 0"),
        ("for (int r = 0; r < n; r += 32) for (int j = 0; j != big * big; ++j) out[t] += r;", "65,536 * 65,536 wraps to 0"),
        ("for (int r = 0; r < n; r += 32) for (int j = 0; j != big * big * r; ++j) out[t] += r;", "wraps to 0"),
        # The same in PTX as of signed numbers.
        ("#pragma unroll 1\n for (unsigned j = t; j < (unsigned)(big * big); j += 32) out[t] += j;", "65,536 * 65,536 wraps to 0"),
        ("for (unsigned j = 0; j < (unsigned)big * big; ++j) out[t] += j;", "65,536 * 65,536 wraps to 0"),
    ],
)  # fmt: skip
def test_a_product_that_wraps_and_ends_a_loop(body, product):
    found = _run(body, big=65536).warnings
    assert any(product in m and f"the end of the loop at {NAME}:" in m for m in found), found


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < n * n; j += n) out[t] += j;",
        "for (int j = 0; j != n * n; j += n) out[t] += j;",
        "for (int j = 0; j != (n << 1); ++j) out[t] += j;",
        "for (int j = n * -1; j != 0; ++j) out[t] += j;",
        "for (int j = -n * n; j != -n * n + 5; ++j) out[t] += j;",
        "for (unsigned j = 0; j != 4u; ++j) out[t] += ((unsigned)big * j * 2654435761u) == 0;",
        "unsigned h = n; for (int r = 0; r < 9 && h != 0; ++r) h = h * 2654435761u ^ (h >> 15); out[t] = h & 63;",
        "unsigned h = n; do h = h * 1664525u + 1013904223u; while (h % 7); out[t] = h & 63;",
        "unsigned h = n; while (h) { out[t] += h & 1; h <<= 1; }",
        "unsigned h = i[t] * 2654435761u; for (unsigned j = h; j != h + 4; ++j) out[t] += x[j & 63] > 0;",
        "unsigned h = i[t] * 2654435761u; for (unsigned j = h; j != h + n / 16; ++j) out[t] += x[j & 63] > 0;",
        "unsigned h = i[t] * 2654435761u;\n#pragma unroll 1\n for (unsigned j = h, e = h + n; j < e; j += 3) out[t] += x[j & 63] > 0;",
        "unsigned h = i[t] * 2654435761u; int j = 0; while (j < 4 && i[j] != h) ++j; out[t] = j;",
        "unsigned h = i[t] * 2654435761u; for (unsigned j = 0; j != (h & 7); ++j) out[t] += j;",
        "unsigned h = i[t] * 2654435761u; for (unsigned j = 0; j != h >> 29; ++j) out[t] += j;",
        "unsigned h = i[t] * 2654435761u; for (unsigned j = 0; j != h % 9; ++j) out[t] += j;",
        "unsigned h = i[t] * 2654435761u; for (unsigned j = 0; j != h % 7 + h % 10; ++j) out[t] += j;",
        "unsigned h = i[t] * 2654435761u; for (int j = h % n; j > 0; --j) out[t] += j;",
        "unsigned h = i[t] * 2654435761u; for (int j = h % 60; j < n; ++j) out[t] += j;",
        "unsigned h = i[t] * 2654435761u; for (int j = 3; j < (int)(h & 15) * n; j += n) out[t] += j;",
        "unsigned h = i[t] * 2654435761u, j = h % 64; while (i[j] < n / 2) j = (j + 1) % 64; out[t] = j;",
        "unsigned h = i[t] * 2654435761u; for (int r = 0; r < 4; ++r) out[t] += x[(h + r) & 63] > 0;",
        "if ((t * 2654435761u) == 0) out[t] = 1; if (((1 << i[t]) & n) == 0) out[t] = 2;",
        "for (int j = 0; j < 4; ++j) if (((1u << t + j) & 5u) == 0) out[t] += 1;",
        "unsigned head = 0xfffffffeu + (n - 64), tail = head + 5; for (unsigned j = head; j != tail; ++j) out[t] += x[j & 63] > 0;",
        "unsigned m = big; for (unsigned j = m * 3u; j != m * 3u + 3u; ++j) out[t] += 1;",
        "for (unsigned j = 3000000000u; j != 50000u * (unsigned)i[2] * 30000u + 2u; ++j) out[t] += 1;",
    ],
)
def test_no_word_about_loops_that_end_where_they_should(body):
    assert _run(body).warnings == ()


def test_the_number_that_wraps_is_named_with_the_fault_that_follows():
    with pytest.raises(EmulatorError, match="out-of-bounds") as raised:
        _run("for (int j = t; j < 2000000000; j += big) atomicAdd(&out[j >> 28], 1.0f);")
    (before,) = raised.value.before
    assert "1,073,741,824 + 1,073,741,824 wraps to -2,147,483,648" in before


@pytest.mark.parametrize(
    "body",
    [
        "unsigned h = t * 2654435761u; out[t] = h % 64;",
        "unsigned s = t; for (int r = 0; r < 4; ++r) s = s * 1664525u + 1013904223u; out[t] = (s >> 8) * 1e-8f;",
        "unsigned h = t; h ^= h >> 16; h *= 0x7feb352du; h ^= h >> 15; out[h & 63 ? t : t] = 1;",
        "long long j = (long long)t << 30; out[j >> 30] = 1;",
        "size_t j = (size_t)t * big; out[j / big] = 1;",
        "int back = t - 1; out[t] = back < 0 ? 0 : x[back];",
        "out[63 - t] = x[t];",
        "for (int j = n - 1 - t; j >= 0; j -= 64) out[j] = 1;",
        "for (unsigned j = t; j < 64u; j += 64u) out[j] = 1;",
        "int j = (t + 1) * -1; out[-j - 1] = 1;",
        "out[t] = __int_as_float((t + 127) << 23);",
        "out[t] = expf(x[t] < 80 ? x[t] : 0) + logf(fabsf(x[t]) + 1) + sinf(x[t] < 1e4f ? x[t] : 0);",
        "int low = __clz(t + 1), high = 31 - low; out[t] = high;",
        "unsigned a = 0xffffffffu + t; if (a > 5u) out[t] = a;",
        "out[t] = t / 3 + t % 7;",
        "unsigned char c = t * 40; out[c % 64 == t ? t : t] = c;",
        "int x_ = i[t], swapped = (x_ << 24) | (x_ >> 8); out[t] = swapped & 63;",
        "unsigned h = i[t] * 2654435769u; int b = h % (unsigned)n; out[t] = x[b];",
        "unsigned h = i[t] * 2654435769u; int b = h % 37u; out[t] = b < n ? x[b] : 0;",
        "unsigned h = i[t] * 2654435769u; int b = h >> 26; out[t] = b < n ? x[b] : 0;",
        "unsigned h = i[t] * 2654435769u; int q = (int)(h << (t % 8 * 4)) >> 28; out[t] = x[q + 8];",
        "unsigned h = i[t] * 2654435769u; int c = h / (unsigned)big; out[t] = x[c];",
        "unsigned h = i[t] * 2654435769u; unsigned o = i[63 - t] * 747796405u, d = h > o ? h - o : o - h; int c = d >> 27; out[t] = c < n ? x[c] : 0;",
        "unsigned h = i[t] * 2654435769u; signed char c = (signed char)(h * 3u); out[t] = x[(c + 128) / 4];",
        "unsigned h = i[t] * 2654435769u; int v = (int)(h << 20) >> 24; out[t] = x[(v + 128) / 4];",
        "unsigned h = i[t] * 2654435769u; int r = (h * 1103515245u + 12345u) >> 16; out[t] = r < n ? x[r] : 0;",
        "unsigned h = i[t] * 2654435769u; int c = ((h & -h) * 0x077CB531u) >> 27; out[t] = c < n ? x[c] : 0;",
        "unsigned h = i[t] * 2654435769u; h ^= h << 13; h ^= h >> 17; h ^= h << 5; int b = h % 60u; out[t] = b < n ? x[b] : 0;",
        "unsigned h = i[t] * 2654435769u; short c = (short)(h * 5u); out[t] = c > n;",
        "unsigned h = i[t] * 2654435769u; int b = h % 7u; for (int r = 0; r < b; ++r) out[t] = r;",
    ],
)
def test_no_word_about_numbers_that_may_wrap_or_do_not(body):
    assert _run(body).warnings == ()


@pytest.mark.parametrize(
    "body",
    [
        "atomicMax((int*)out, __float_as_int(-fabsf(x[t])));",
        "atomicMin((int*)out, __float_as_int(-1 - x[t] * x[t]));",
        "atomicMax((unsigned*)out, __float_as_uint(x[t]));",
        "__shared__ int most; if (threadIdx.x == 0) most = 0xff800000; __syncthreads();"
        " atomicMax(&most, __float_as_int(x[t] - 5)); __syncthreads(); out[t] = __int_as_float(most);",
        # Loaded as whole numbers.
        "__shared__ int most; if (threadIdx.x == 0) most = 0xff800000; __syncthreads();"
        " atomicMax(&most, __float_as_int(x[t & 1 ? 2 : 5])); __syncthreads(); out[t] = __int_as_float(most);",
        "__shared__ int least; if (threadIdx.x == 0) least = 0x7f800000; __syncthreads();"
        " atomicMin(&least, ((const int*)x)[63 - t]); __syncthreads(); out[t] = __int_as_float(least);",
        "__shared__ int most; if (threadIdx.x == 0) most = 0xff800000; __syncthreads();"
        " atomicMax(&most, ((const int4*)x)[t % 16].z); __syncthreads(); out[t] = __int_as_float(most);",
        "__shared__ int most; if (threadIdx.x == 0) most = 0xff800000; __syncthreads(); int v = __float_as_int(x[t & 1 ? 2 : 5]);"
        " v = t < n ? __shfl_xor_sync(-1, v, 1) : __float_as_int(out[t]); atomicMax(&most, v); __syncthreads(); out[t] = __int_as_float(most);",
        "__shared__ unsigned most; if (threadIdx.x == 0) most = 0; __syncthreads();"
        " atomicMax(&most, ((const unsigned*)x)[t]); __syncthreads(); out[t] = __uint_as_float(most);",
        "if (t == 0) *(int*)i = 0xff800000; __syncthreads(); if (t < 32) atomicMax((int*)i, __float_as_int(x[t & 1 ? 2 : 5]));",
    ],
)
def test_floats_compared_by_their_bits(body):
    (found,) = _run(body, np.clip(X, -4, 4), start=-1e9).warnings
    assert f"{NAME}:{LINE}" in found and "as whole numbers of their bits" in found


@pytest.mark.parametrize(
    "body",
    [
        "atomicMax((int*)out, __float_as_int(x[t]));",  # it starts at 0, so one of two is never negative
        "atomicMax((int*)out, __float_as_int(fabsf(x[t])));",  # the bits of positive floats have their order
        "float v = x[t] + 0.0f; if (v >= 0) atomicMax((int*)out, __float_as_int(v)); else atomicMin((unsigned*)out, __float_as_uint(v));",
        "__shared__ int most; if (threadIdx.x == 0) most = -9; __syncthreads(); atomicMax(&most, i[t] - 70); __syncthreads(); out[t] = most;",
        "__shared__ unsigned most; if (threadIdx.x == 0) most = 0; __syncthreads(); unsigned b = __float_as_uint(x[t]);"
        " atomicMax(&most, b & 0x80000000u ? ~b : b | 0x80000000u); __syncthreads(); out[t] = most;",
        "__shared__ int most; if (threadIdx.x == 0) most = 0; __syncthreads(); int b = ((const int*)x)[t];"
        " atomicMax(&most, b < 0 ? b ^ 0x7fffffff : b); __syncthreads(); out[t] = most;",
        "__shared__ int most; if (threadIdx.x == 0) most = -9; __syncthreads(); atomicMax(&most, i[(int)x[t] & 63] - 70); __syncthreads(); out[t] = most;",
        "__shared__ int most; if (threadIdx.x == 0) most = -90; __syncthreads(); atomicMax(&most, ~i[t]); __syncthreads(); out[t] = most;",
        "__shared__ int most; if (threadIdx.x == 0) most = -9; __syncthreads(); atomicMax(&most, ((int*)x)[t] >> 23); __syncthreads(); out[t] = most;",
    ],
)
def test_no_word_about_numbers_whose_bits_have_their_order(body):
    assert _run(body).warnings == ()
