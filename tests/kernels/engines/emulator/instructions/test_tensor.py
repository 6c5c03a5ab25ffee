"""Tensor-core instructions: fragments filled in the PTX ISA's layout, by hand and by ldmatrix or wmma."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.emulated_numbers import rng

pytestmark = needs_nvrtc
f16, f32, f64, i32, u32, u16 = np.float16, np.float32, np.float64, np.int32, np.uint32, np.uint16


def _to_bf16(x: np.ndarray) -> np.ndarray:
    """Returns the bits. The values used here are small integers and halves, exact in bfloat16."""
    return (np.asarray(x, f32).view(u32) >> u32(16)).astype(u16)


# -- mma.sync: every fragment is written out from the ISA's figures, value by value ---------------------------
# {(shape, type): (row and column of a[i], row and column of b[i])}; g = lane >> 2, t = lane & 3.
A_POSITIONS = {
    ("m16n8k8", "f16"): ("g + (i < 2 ? 0 : 8)", "t * 2 + (i & 1)"),
    ("m16n8k16", "f16"): ("g + ((i < 2 || (4 <= i && i < 6)) ? 0 : 8)", "t * 2 + (i & 1) + (i < 4 ? 0 : 8)"),
    ("m16n8k4", "tf32"): ("g + (i == 0 ? 0 : 8)", "t"),
    ("m16n8k8", "tf32"): ("g + ((i == 0 || i == 2) ? 0 : 8)", "t + (i < 2 ? 0 : 4)"),
    ("m16n8k16", "s8"): ("g + (i < 4 ? 0 : 8)", "t * 4 + (i & 3)"),
    ("m16n8k32", "s8"): ("g + ((i < 4 || (8 <= i && i < 12)) ? 0 : 8)", "t * 4 + (i & 3) + (i < 8 ? 0 : 16)"),
    ("m8n8k4", "f64"): ("g", "t"),
}
B_POSITIONS = {
    ("m16n8k8", "f16"): ("t * 2 + i", "g"),
    ("m16n8k16", "f16"): ("t * 2 + (i & 1) + (i < 2 ? 0 : 8)", "g"),
    ("m16n8k4", "tf32"): ("t", "g"),
    ("m16n8k8", "tf32"): ("t + (i == 0 ? 0 : 4)", "g"),
    ("m16n8k16", "s8"): ("t * 4 + (i & 3)", "g"),
    ("m16n8k32", "s8"): ("t * 4 + (i & 3) + (i < 4 ? 0 : 16)", "g"),
    ("m8n8k4", "f64"): ("t", "g"),
}
CASES = [
    ("m16n8k8", "f16", "f32"),
    ("m16n8k16", "f16", "f32"),
    ("m16n8k8", "f16", "f16"),
    ("m16n8k16", "f16", "f16"),
    ("m16n8k8", "bf16", "f32"),
    ("m16n8k16", "bf16", "f32"),
    ("m16n8k4", "tf32", "f32"),
    ("m16n8k8", "tf32", "f32"),
    ("m16n8k16", "s8", "s32"),
    ("m16n8k32", "s8", "s32"),
    ("m16n8k16", "u8", "s32"),
    ("m16n8k32", "u8", "s32"),
    ("m16n8k32", "e4m3", "f32"),
    ("m8n8k4", "f64", "f64"),
]
ELEMENT = {
    "f16": ("unsigned short", 2),
    "bf16": ("unsigned short", 2),
    "tf32": ("float", 4),
    "s8": ("signed char", 1),
    "u8": ("unsigned char", 1),
    "e4m3": ("unsigned char", 1),
    "f64": ("double", 8),
    "f32": ("float", 4),
    "s32": ("int", 4),
}


def _mma_kernel(shape: str, kind: str, to: str, extra: str = "") -> str:
    m, n, k = (int(v) for v in shape[1:].replace("n", " ").replace("k", " ").split())
    layout = {"bf16": "f16", "u8": "s8", "e4m3": "s8"}.get(kind, kind)
    (ar, ac), (br, bc) = A_POSITIONS[shape, layout], B_POSITIONS[shape, layout]
    (c_type, size), (d_type, d_size) = ELEMENT[kind], ELEMENT[to]
    word = 8 if kind == "f64" else 4
    a_regs, b_regs, d_regs = (
        m * k // 32 * size // word,
        n * k // 32 * size // word,
        m * n // 32 * d_size // max(d_size, 4),
    )
    reg, constraint = ("double", "d") if kind == "f64" else ("unsigned", "r")
    d_reg, d_constraint = {"f32": ("float", "f"), "f64": ("double", "d")}.get(to, ("unsigned", "r"))
    numbers = iter(range(99))
    names = lambda count: "{" + ", ".join(f"%{next(numbers)}" for _ in range(count)) + "}"  # noqa: E731
    text = f"mma.sync.aligned.{shape}.row.col{extra}.{to}.{kind}.{kind}.{to} {names(d_regs)}, {names(a_regs)}, {names(b_regs)}, "
    text += names(d_regs) + ";"
    outs = ", ".join(f'"={d_constraint}"(d[{i}])' for i in range(d_regs))
    ins = [f'"{constraint}"(a[{i}])' for i in range(a_regs)] + [f'"{constraint}"(b[{i}])' for i in range(b_regs)]
    ins += [f'"{d_constraint}"(c[{i}])' for i in range(d_regs)]
    return f"""
extern "C" __global__ void k({d_type}* D, const {c_type}* A, const {c_type}* B, const {d_type}* C) {{
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
  A += warp * {m * k}; B += warp * {n * k}; C += warp * {m * n}; D += warp * {m * n};
  {reg} a[{a_regs}], b[{b_regs}]; {d_reg} c[{d_regs}], d[{d_regs}];
  for (int i = 0; i < {m * k // 32}; ++i) (({c_type}*)a)[i] = A[({ar}) * {k} + ({ac})];
  for (int i = 0; i < {n * k // 32}; ++i) (({c_type}*)b)[i] = B[({br}) * {n} + ({bc})];
  for (int i = 0; i < {m * n // 32}; ++i) (({d_type}*)c)[i] = C[(g + (i < 2 ? 0 : 8)) * {n} + t * 2 + (i & 1)];
  asm volatile("{text}" : {outs} : {", ".join(ins)});
  for (int i = 0; i < {m * n // 32}; ++i) D[(g + (i < 2 ? 0 : 8)) * {n} + t * 2 + (i & 1)] = (({d_type}*)d)[i];
}}"""


def _operands(shape: str, kind: str, to: str, warps: int):
    m, n, k = (int(v) for v in shape[1:].replace("n", " ").replace("k", " ").split())
    sizes = (m, k), (k, n), (m, n)
    if kind in ("s8", "u8"):
        info = np.iinfo(np.int8 if kind == "s8" else np.uint8)
        a, b = (rng.integers(info.min, info.max + 1, (warps, *s)).astype(info.dtype) for s in sizes[:2])
        return a, b, rng.integers(-(2**20), 2**20, (warps, *sizes[2])).astype(i32)
    # Quarters: products and sums are exact in every type, except the final rounding to f16.
    a, b, c = (rng.integers(-12, 13, (warps, *s)) / 4 for s in sizes)
    wide = {"f16": f16, "f32": f32, "f64": f64}
    dtype = {"f16": f16, "tf32": f32, "f64": f64, "e4m3": ml_dtypes.float8_e4m3fn}.get(kind)
    a, b = (_to_bf16(v) if kind == "bf16" else v.astype(dtype) for v in (a, b))
    return a, b, c.astype(wide[to])


def _values(bits: np.ndarray, kind: str) -> np.ndarray:
    return ((bits.astype(u32) << u32(16)).view(f32) if kind == "bf16" else bits).astype(f64)


@pytest.mark.parametrize("shape, kind, to", CASES)
def test_mma(shape, kind, to):
    a, b, c = _operands(shape, kind, to, 3)
    raw_dtypes = {f16: u16, ml_dtypes.float8_e4m3fn: np.uint8}
    raw = [v.view(raw_dtypes.get(v.dtype.type, v.dtype)) for v in (a, b)]
    c_raw = c.view(u16) if to == "f16" else c
    source = _mma_kernel(shape, kind, to)
    if to == "f16":  # D and C as their bits
        source = source.replace("f16*", "unsigned short*")
    run = emulate(source, {"A": raw[0], "B": raw[1], "C": c_raw}, {"D": (c.shape, c_raw.dtype)}, block=96)
    expected = (_values(a, kind) @ _values(b, kind) + c.astype(f64)).astype(c.dtype)
    np.testing.assert_array_equal(run["D"].view(c.dtype), expected)
    m, n, k = (int(v) for v in shape[1:].replace("n", " ").replace("k", " ").split())
    assert run.total["flops_mma"] == 3 * 2 * m * n * k


@pytest.mark.parametrize("kind, low", [("s4", -8), ("u4", 0)])
def test_mma_of_four_bits(kind, low):
    """m16n8k64: eight values in a register, at the positions of the ISA's figures."""
    source = f"""extern "C" __global__ void k(int* D, const signed char* A, const signed char* B) {{
  int lane = threadIdx.x, g = lane >> 2, t = lane & 3, d[4] = {{0, 0, 0, 0}};
  unsigned a[4] = {{0, 0, 0, 0}}, b[2] = {{0, 0}};
  for (int i = 0; i < 32; ++i)
    a[i / 8] |= (A[(g + (i < 8 || (16 <= i && i < 24) ? 0 : 8)) * 64 + t * 8 + i % 8 + (i < 16 ? 0 : 32)] & 15u) << 4 * (i % 8);
  for (int i = 0; i < 16; ++i) b[i / 8] |= (B[(t * 8 + i % 8 + (i < 8 ? 0 : 32)) * 8 + g] & 15u) << 4 * (i % 8);
  asm volatile("mma.sync.aligned.m16n8k64.row.col.s32.{kind}.{kind}.s32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  for (int i = 0; i < 4; ++i) D[(g + (i < 2 ? 0 : 8)) * 8 + t * 2 + (i & 1)] = d[i];
}}"""
    a, b = (rng.integers(low, low + 16, shape).astype(np.int8) for shape in ((16, 64), (64, 8)))
    got = emulate(source, {"A": a, "B": b}, {"D": ((16, 8), i32)})["D"]
    np.testing.assert_array_equal(got, a.astype(i32) @ b.astype(i32))


def test_mma_satfinite():
    a, b = np.full((1, 16, 32), 127, np.int8), np.full((1, 32, 8), 127, np.int8)
    c = np.full((1, 16, 8), 2**31 - 5, i32)
    outcomes = {}
    for extra in ("", ".satfinite"):
        source = _mma_kernel("m16n8k32", "s8", "s32", extra)
        outcomes[extra] = emulate(source, {"A": a, "B": b, "C": c}, {"D": (c.shape, i32)})["D"]
    assert (outcomes[".satfinite"] == 2**31 - 1).all()
    assert (outcomes[""] == 2**31 - 5 + 32 * 127 * 127 - 2**32).all()


def test_mma_drops_the_low_bits_of_tf32():
    a, b = (rng.standard_normal(s).astype(f32) for s in ((1, 16, 8), (1, 8, 8)))
    c = np.zeros((1, 16, 8), f32)
    got = emulate(_mma_kernel("m16n8k8", "tf32", "f32"), {"A": a, "B": b, "C": c}, {"D": (c.shape, f32)})["D"]
    cut = lambda v: (v.view(u32) & u32(0xFFFFE000)).view(f32).astype(f64)  # noqa: E731
    np.testing.assert_array_equal(got, (cut(a) @ cut(b)).astype(f32))
    assert (got != (a.astype(f64) @ b).astype(f32)).any()


def test_unknown_mma_shape_is_an_error():
    source = """extern "C" __global__ void k(unsigned* p) {
  unsigned a = p[0], d0, d1;
  asm volatile("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32 {%0, %1}, {%2}, {%2}, {%2, %2};" : "=r"(d0), "=r"(d1) : "r"(a));
  p[threadIdx.x] = d0 + d1;
}"""
    with pytest.raises(EmulatorError, match=r"k, kernel\.cu:3: unknown opcode mma\.sync\.aligned\.m8n8k32"):
        emulate(source, {"p": np.zeros(32, u32)})


# -- ldmatrix ------------------------------------------------------------------------------------------------
def _ldmatrix(count: int, trans: bool, pitch: int) -> str:
    """Returns a kernel that loads matrices stored one below the other and writes the registers unchanged."""
    regs = ", ".join(f"%{n}" for n in range(count))
    outs = ", ".join(f'"=r"(r[{n}])' for n in range(count))
    return f"""extern "C" __global__ void k(unsigned* out, const unsigned short* in) {{
  __shared__ __align__(16) unsigned short s[{8 * count} * {pitch}];
  int t = threadIdx.x;
  for (int i = t; i < {64 * count}; i += 32) s[i / 8 * {pitch} + i % 8] = in[i];
  __syncthreads();
  unsigned r[{count}], at = (unsigned)__cvta_generic_to_shared(s + (t % {8 * count}) * {pitch});
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{".trans" if trans else ""}.shared.b16 {{{regs}}}, [%{count}];" : {outs} : "r"(at));
  for (int n = 0; n < {count}; ++n) out[n * 32 + t] = r[n];
}}"""


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, trans):
    x = rng.integers(0, 1 << 16, (count, 8, 8)).astype(u16)
    run = emulate(_ldmatrix(count, trans, 8), {"in": x}, {"out": ((count, 32), u32)})
    expected = x.transpose(0, 2, 1) if trans else x
    # Lane 4r + c holds columns 2c and 2c + 1 of row r, the first in the low half.
    pairs = np.ascontiguousarray(expected).reshape(count, 32, 2).astype(u32)
    np.testing.assert_array_equal(run["out"], pairs[..., 0] | pairs[..., 1] << u32(16))


@pytest.mark.parametrize("pitch, waves", [(8, 1), (64, 8), (72, 1), (32, 4)])
def test_wavefronts_of_ldmatrix(pitch, waves):
    """A matrix's 8 rows of 16 bytes fill the 32 banks once, unless some rows start in the same bank."""
    for count in (1, 4):
        x = np.zeros((count, 8, 8), u16)
        at = emulate(_ldmatrix(count, False, pitch), {"in": x}, {"out": ((count, 32), u32)}).at(7)
        assert (at["shared_requests_ld"], at["wavefronts_ld"]) == (1, count * waves)
        assert at["bank_conflicts_ld"] == count * (waves - 1)


def test_ldmatrix_beyond_shared_memory_is_an_error():
    source = _ldmatrix(4, False, 8).replace("(t % 32) * 8", "(t + 1) * 8")
    with pytest.raises(EmulatorError, match=r"k, kernel\.cu:7: out-of-bounds .* by thread \(31, 0, 0\) of block"):
        emulate(source, {"in": np.zeros((4, 8, 8), u16)}, {"out": ((4, 32), u32)})


def test_product_by_ldmatrix_and_mma_in_four_warps():
    """32x16 times 16x32, in parts, as a kernel combines both instructions."""
    source = """
    extern "C" __global__ void k(float* C, const unsigned short* A, const unsigned short* B) {
      __shared__ __align__(16) unsigned short a[32][24], b[16][40];
      int t = threadIdx.x, warp = t / 32, lane = t % 32;
      for (int i = t; i < 512; i += 128) { a[i / 16][i % 16] = A[i]; b[i / 32][i % 32] = B[i]; }
      __syncthreads();
      int row = warp / 2 * 16, column = warp % 2 * 16;
      unsigned ra[4], rb[2];
      unsigned at = (unsigned)__cvta_generic_to_shared(&a[row + lane % 16][lane / 16 * 8]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at));
      for (int half = 0; half < 2; ++half) {
        at = (unsigned)__cvta_generic_to_shared(&b[lane % 16][column + half * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(at));
        float c[4] = {0, 0, 0, 0};
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
        for (int i = 0; i < 4; ++i)
          C[(row + lane / 4 + i / 2 * 8) * 32 + column + half * 8 + lane % 4 * 2 + i % 2] = c[i];
      }
    }"""
    a, b = rng.standard_normal((32, 16)).astype(f16), rng.standard_normal((16, 32)).astype(f16)
    for order in ("forward", "reversed", 1):
        run = emulate(source, {"A": a.view(u16), "B": b.view(u16)}, {"C": ((32, 32), f32)}, block=128, order=order)
        np.testing.assert_array_equal(run["C"], (a.astype(f64) @ b.astype(f64)).astype(f32))
    assert run.total["flops_mma"] == 2 * 32 * 32 * 16
    traced = emulate(source, {"A": a.view(u16), "B": b.view(u16)}, {"C": ((32, 32), f32)}, block=128, trace_block=0)
    # Each lane reads 8 of a's elements by ldmatrix, and twice 4 of b's.
    reads = dict.fromkeys(traced.trace.buffers, 0)
    for name, write in zip(np.array(traced.trace.buffers)[traced.trace.buffer], traced.trace.write, strict=True):
        reads[str(name)] += not write
    assert reads == {"A": 512, "B": 512, "a": 128 * 8, "b": 128 * 8, "C": 0}
    assert run.total["bank_conflicts_ld"] == 0


# -- wmma ----------------------------------------------------------------------------------------------------
WMMA = """#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k({to}* C, const {kind}* A, const {kind}* B, int n) {{
  wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {element}, wmma::{a}_major> a;
  wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {element}, wmma::{b}_major> b;
  wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {to}> c;
  wmma::load_matrix_sync(a, A, {lda});
  wmma::load_matrix_sync(b, B, {ldb});
  wmma::load_matrix_sync(c, C, {ldc}, wmma::mem_{c}_major);
  for (int i = 0; i < a.num_elements; ++i) a.x[i] = a.x[i] * ({kind})2;
  for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] + ({to})1;
  wmma::mma_sync(c, a, b, c);
  for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] * ({to})n;
  wmma::store_matrix_sync(C, c, {ldc}, wmma::mem_{c}_major);
}}"""
# With the requests of a, b and c from global memory, as machine code has them: along the registers, and across.
WMMA_CASES = [
    (16, 16, 16, "half", "float", (4, 4, 4), (4, 4, 8)),
    (32, 8, 16, "half", "float", (8, 2, 4), (8, 2, 8)),
    (8, 32, 16, "half", "float", (2, 8, 8), (2, 8, 4)),
    (16, 16, 16, "half", "half", (4, 4, 4), (4, 4, 4)),
    (16, 16, 16, "__nv_bfloat16", "float", (4, 4, 4), (4, 4, 8)),
    (32, 8, 16, "__nv_bfloat16", "float", (8, 2, 4), (8, 2, 8)),
    (16, 16, 8, "float", "float", (4, 4, 4), (4, 4, 8)),
    (16, 16, 16, "signed char", "int", (2, 2, 4), (8, 8, 8)),
    (8, 32, 16, "signed char", "int", (1, 4, 8), (4, 16, 4)),
    (32, 8, 16, "unsigned char", "int", (4, 1, 4), (16, 4, 8)),
    (8, 8, 4, "double", "double", (1, 1, 1), (1, 1, 2)),
]
NUMPY = {"half": f16, "float": f32, "signed char": np.int8, "unsigned char": np.uint8, "int": i32, "double": f64}


def _padded(values: np.ndarray, layout: str, pad: int) -> tuple[np.ndarray, int]:
    """Returns a matrix in memory, by rows or columns with a gap after each, and its stride."""
    lines = values if layout == "row" else values.T
    padded = np.full((lines.shape[0], lines.shape[1] + pad), 77, values.dtype)
    padded[:, : lines.shape[1]] = lines
    return padded, padded.shape[1]


@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col")])
@pytest.mark.parametrize("m, n, k, kind, to, straight, across", WMMA_CASES)
def test_wmma(m, n, k, kind, to, straight, across, layouts):
    a, b, c = (rng.integers(0 if "unsigned" in kind else -9, 10, s) for s in ((m, k), (k, n), (m, n)))
    expected = (2 * a @ b + c + 1) * 3
    matrices = [v.astype(NUMPY.get(kind, f32)) for v in (a, b)] + [c.astype(NUMPY[to])]
    (A, lda), (B, ldb), (C, ldc) = (_padded(v, layout, 16) for v, layout in zip(matrices, layouts, strict=True))
    element = "wmma::precision::tf32" if kind == "float" else kind
    source = WMMA.format(
        m=m,
        n=n,
        k=k,
        kind=kind,
        to=to,
        element=element,
        a=layouts[0],
        b=layouts[1],
        c=layouts[2],
        lda=lda,
        ldb=ldb,
        ldc=ldc,
    )
    if kind == "__nv_bfloat16":
        A, B = _to_bf16(A), _to_bf16(B)
    run = emulate(source, {"A": A, "B": B, "C": C}, args=["C", "A", "B", i32(3)])
    got = run["C"][:, :-16]
    np.testing.assert_array_equal(got if layouts[2] == "row" else got.T, expected.astype(NUMPY[to]))
    assert (run["C"][:, -16:] == 77).all()
    assert run.total["flops_mma"] == 2 * m * n * k
    requests = straight if layouts[0] == "row" else across
    assert tuple(run.at(line)["requests_ld"] for line in (7, 8, 9)) == requests
    assert run.at(14)["requests_st"] == requests[2]
    for line, values in zip((7, 8, 9), matrices, strict=True):  # bf16 is float32 until it is stored
        assert run.at(line)["bytes_ld"] == values.size * (
            2 if kind == "__nv_bfloat16" and line < 9 else values.itemsize
        )


def test_wmma_from_shared_memory_in_two_warps():
    source = """#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(float* C, const half* A) {
  __shared__ __align__(32) half a[2][16 * 24];
  __shared__ __align__(32) float c[2][256];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < 512; i += 64) a[i / 256][i % 256 / 16 * 24 + i % 16] = A[i];
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.5f);
  wmma::load_matrix_sync(x, a[warp], 24);
  wmma::load_matrix_sync(y, a[1 - warp], 24);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(c[warp], z, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) C[warp * 256 + i] = c[warp][i];
}"""
    a = rng.integers(-9, 10, (2, 16, 16)).astype(f16)
    run = emulate(source, {"A": a}, {"C": ((2, 16, 16), f32)}, block=64, races=True)
    np.testing.assert_array_equal(run["C"], a.astype(f32) @ a[::-1].astype(f32).transpose(0, 2, 1) + 0.5)
    assert run.races == ()
    assert run.at(13)["shared_requests_ld"] == 2
    racy = emulate(
        source.replace("  __syncthreads();\n", ""), {"A": a}, {"C": ((2, 16, 16), f32)}, block=64, races=True
    )
    assert any("kernel.cu:1" in text for text in racy.races)


def test_wmma_past_the_end_is_an_error():
    source = WMMA.format(
        m=16, n=16, k=16, kind="half", to="float", element="half", a="row", b="col", c="row", lda=16, ldb=24, ldc=16
    )
    inputs = {"A": np.ones((16, 16), f16), "B": np.ones((16, 16), f16), "C": np.ones((16, 16), f32)}
    with pytest.raises(
        EmulatorError,
        match=r"k, kernel\.cu:8 \(in code from mma.hpp:\d+\): out-of-bounds read of 4 bytes .* of B \[16, 16\], by thread",
    ):
        emulate(source, inputs, args=["C", "A", "B", i32(1)])


_ONE_TILE = """#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(half* out, const half* in) {{
  __shared__ __align__(32) half s[16 * {pitch}];
  for (int i = threadIdx.x; i < 16 * {pitch}; i += 32) s[i] = in[i];
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::{layout}_major> a;
  wmma::load_matrix_sync(a, {source}, {pitch});
  for (int i = 0; i < 16; ++i) out[i * 32 + threadIdx.x] = a.x[i];
}}"""


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("source, pitch, waves", [("in", 16, 0), ("s", 16, 8), ("s", 24, 4), ("s", 64, 32)])
def test_wmma_loads_equal_machine_code(source, pitch, waves, layout):
    """From shared memory one ldmatrix loads the tile, and its lanes hold rows; from global memory 8 lines at a time.
    Lanes hold the elements of mma.sync's lanes, twice."""
    tile = np.arange(16 * pitch, dtype=f16).reshape(16, pitch)
    run = emulate(
        _ONE_TILE.format(pitch=pitch, layout=layout, source=source),
        {"in": tile},
        {"out": ((16, 32), f16)},
        trace_block=0,
    )
    lane, i = np.arange(32), np.arange(8)[:, None]
    row, column = lane // 4 + i // 2 % 2 * 8, lane % 4 * 2 + i % 2 + i // 4 * 8
    values = tile[row, column] if layout == "row" else tile[column, row]
    np.testing.assert_array_equal(run["out"], np.concatenate([values, values]))
    at = run.at(8)
    requests, trace = run.trace.requests, run.trace
    load_requests = [n for n in range(len(requests)) if trace.lines[trace.line[requests.step[n]]].number == 8]
    if source == "s":
        assert (at["shared_requests_ld"], at["wavefronts_ld"]) == (1, waves)
        (n,) = load_requests
        assert requests.width[n] == 16 and requests.mask[n] == 0xFFFFFFFF
        lines = np.concatenate([np.arange(8), np.arange(8, 16)] * 2)
        begin = lines * pitch + np.arange(32) // 16 * 8
        if layout == "col":  # its registers are in the other order
            begin = (np.arange(32) % 8 + np.arange(32) // 16 * 8) * pitch + np.arange(32) // 8 % 2 * 8
        np.testing.assert_array_equal(requests.byte[n], begin * 2)
    else:
        assert (at["requests_ld"], at["sectors_ld"]) == (4, 4 * 8)
        assert [int(w) for w in requests.width[load_requests]] == [4] * 4


def test_misaligned_wmma_rows_are_an_error():
    with pytest.raises(EmulatorError, match=r"kernel\.cu:8 .*misaligned read of 16 bytes"):
        emulate(
            _ONE_TILE.format(pitch=20, layout="row", source="s"),
            {"in": np.zeros((16, 20), f16)},
            {"out": ((16, 32), f16)},
        )


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_is_the_opposite_of_ldmatrix(count, trans):
    """Lane l stores elements 2 (l % 4) and the next of row l / 4; transposed, of column l / 4."""
    names = ", ".join(f"%{n + 1}" for n in range(count))
    values = ", ".join(f'"r"(in[threadIdx.x * 4 + {n}])' for n in range(count))
    source = f"""extern "C" __global__ void k(unsigned short* out, const unsigned* in) {{
  __shared__ __align__(16) unsigned short s[{count} * 64];
  unsigned row = (unsigned)__cvta_generic_to_shared(s + threadIdx.x % {8 * count} * 8);
  asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{names}}};" :: "r"(row), {values} : "memory");
  __syncthreads();
  for (int i = threadIdx.x; i < {count} * 64; i += 32) out[i] = s[i];
}}"""
    matrices = np.arange(count * 64, dtype=u16).reshape(count, 8, 8)
    lane = np.arange(32)[:, None]
    pairs = matrices[:, lane // 4, 2 * (lane % 4) + np.arange(2)]  # [matrix, lane, 2]
    registers = np.zeros((32, 4), u32)
    registers[:, :count] = np.ascontiguousarray(pairs).view(u32)[..., 0].T
    run = emulate(source, {"in": registers}, {"out": ((count, 8, 8), u16)})
    np.testing.assert_array_equal(run["out"], matrices.swapaxes(1, 2) if trans else matrices)
    assert run.races == () and run.total["bank_conflicts_st"] == 0


PART_OF_A_WARP = """extern "C" __global__ void k(float* y) {
  unsigned a[4] = {}, b[2] = {};
  float c[4] = {1, 1, 1, 1};
  if (CONDITION)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  y[threadIdx.x] = c[0];
}"""


@needs_nvrtc
@pytest.mark.parametrize(("condition", "error"), [("threadIdx.x < 16", True), ("threadIdx.x / 32 == 1", False)])
def test_a_product_is_one_of_all_lanes_of_a_warp(condition, error):
    source, outputs = PART_OF_A_WARP.replace("CONDITION", condition), {"y": (64, np.float32)}
    if not error:
        np.testing.assert_array_equal(emulate(source, {}, outputs, block=64)["y"], 1)
        return
    with pytest.raises(EmulatorError, match="not all lanes of the warp reach this instruction: lanes 16 to 31"):
        emulate(source, {}, outputs, block=64)
