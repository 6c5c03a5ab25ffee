"""wgmma: products of matrices in shared memory or registers, in every layout; setmaxnreg."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.instructions.warpgroup import TYPES
from kernels.engines.emulator.swizzle import swizzled
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hopper import run_hopper

pytestmark = needs_nvrtc
u8, i32, f32 = np.uint8, np.int32, np.float32
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": f32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": u8,
}
MODES = {128: 1, 64: 2, 32: 3, 0: 0}


def matrix(extent: int, depth: int, type_: str, seed: int) -> np.ndarray:
    """Returns small whole numbers, exact in every type."""
    low = 0 if type_ == "u8" else -3
    return np.random.default_rng(seed).integers(low, 4, (extent, depth)).astype(DTYPES[type_])


def placed(x: np.ndarray, row_bytes: int, transposed: bool) -> tuple[np.ndarray, int, int]:
    """Returns (bytes of shared memory, leading offset, stride offset) of a matrix [extent, depth]: rows of `row_bytes`
    bytes, eight to a group, or groups of 8 rows of 16 bytes if that is 0.

    Written down element by element from the figures of the PTX ISA ("Shared memory layout").
    """
    item, row = x.itemsize, row_bytes or 16
    per_row = row // item
    lines = x.T if transposed else x  # [across, along]: neighbours along a line are adjacent
    across, along = lines.shape
    group = 8 * row
    columns, groups = -(-along // per_row), -(-across // 8)
    out = np.zeros(columns * groups * group, u8)
    for a in range(across):
        for b in range(along):
            at = (b // per_row * groups + a // 8) * group + a % 8 * row + b % per_row * item
            at = int(swizzled(np.array(at), row_bytes))
            out[at : at + item] = lines[a, b : b + 1].view(u8)
    outer, next_group = groups * group, group
    if row_bytes == 0 and transposed:
        return out, next_group, outer
    return out, outer, next_group


def product(
    kind: str,
    columns: int,
    to: str = "f32",
    row_bytes: int = 128,
    ta: bool = False,
    tb: bool = False,
    add: int = 0,
    signs: tuple[int, int] = (1, 1),
    a_in_registers: bool = False,
    extra: str = "",
    threads: int = 128,
    low_bits: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Runs one wgmma. Returns its result [64, columns], what was in its sums before, A and B. `low_bits` are set in each
    element of 32 bits that the kernel reads, not in the A and B that are returned."""
    depth = TYPES[kind][1]
    A, B = matrix(64, depth, kind, 1), matrix(columns, depth, kind, 2)
    read_a, read_b = ((x.view(np.uint32) | low_bits).view(x.dtype) if low_bits else x for x in (A, B))
    (a, *a_strides), (b, *b_strides) = placed(read_a, row_bytes, ta), placed(read_b, row_bytes, tb)
    a = np.concatenate([a, np.zeros(-a.size % 1024, u8)])
    words = columns // 2 if to != "f16" else columns // 4
    numbers = ", ".join(f"%{n}" for n in range(words))
    next_ = iter(range(words, words + 20))
    left = (
        f"{{%{next(next_)}, %{next(next_)}, %{next(next_)}, %{next(next_)}}}" if a_in_registers else f"%{next(next_)}"
    )
    tail = "" if kind in ("s8", "u8") else f", {signs[0]}, {signs[1]}"
    if kind in ("f16", "bf16"):
        tail += f", {int(tb)}" if a_in_registers else f", {int(ta)}, {int(tb)}"
    text = (
        f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{to}.{kind}.{kind} {{{numbers}}}, {left}, %{next(next_)}, p"
        f"{tail};"
    )
    letter, register = {"f32": ("f", "float"), "s32": ("r", "int"), "f16": ("r", "unsigned")}[to]
    outs = ", ".join(f'"+{letter}"(d[{n}])' for n in range(words))
    source = '"r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])' if a_in_registers else '"l"(da)'
    body = f"""
  extern __shared__ __align__(1024) unsigned char s[];
  for (int i = threadIdx.x; i < a_bytes; i += blockDim.x) s[i] = a[i];
  for (int i = threadIdx.x; i < b_bytes; i += blockDim.x) s[a_bytes + i] = b[i];
  publish_writes();
  __syncthreads();
  auto made = [&](int at, int leading, int stride) {{
    return (unsigned long long)(shared_address(s + at) >> 4) | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | {MODES[row_bytes]}ull << 62; }};
  unsigned long long da = made(0, {a_strides[0]}, {a_strides[1]}), db = made(a_bytes, {b_strides[0]}, {b_strides[1]});
  unsigned w[4]; {register} d[{words}];
  for (int n = 0; n < 4; ++n) w[n] = fragments[threadIdx.x * 4 + n];
  for (int n = 0; n < {words}; ++n) d[n] = c[threadIdx.x * {words} + n];
  begin_products();
  asm volatile("{{.reg .pred p;\\nsetp.ne.b32 p, %{next(next_)}, 0;\\n{text}\\n}}" : {outs} : {source}, "l"(db), "r"(add));
  close_products();
  wait_products<0>();
  {extra}
  for (int n = 0; n < {words}; ++n) out[threadIdx.x * {words} + n] = d[n];
"""
    bits = {"f32": f32, "s32": i32, "f16": np.uint32}[to]
    values = {"f32": f32, "s32": i32, "f16": np.float16}[to]
    before = np.random.default_rng(3).integers(-9, 9, (64, columns)).astype(values)
    lane = np.arange(128)[:, None]
    v = np.arange(columns // 2)
    row = lane // 32 * 16 + lane % 32 // 4 + 8 * (v >> 1 & 1)
    col = 2 * (lane % 4) + (v & 1) + 8 * (v >> 2)
    per = 4 // A.itemsize
    n = np.arange(4 * per)
    a_row = lane // 32 * 16 + lane % 32 // 4 + 8 * (n // per % 2)
    a_col = per * (lane % 4) + n % per + 4 * per * (n // per // 2)
    args = {
        f"{register}* out": "out",
        "const unsigned char* a": "a",
        "const unsigned char* b": "b",
        f"const {register}* c": "c",
        "const unsigned* fragments": "fragments",
        "int a_bytes": i32(a.size),
        "int b_bytes": i32(b.size),
        "int add": i32(add),
    }
    inputs = {
        "a": a,
        "b": b,
        "c": np.ascontiguousarray(before[row, col]).view(bits),
        "fragments": np.ascontiguousarray(read_a[a_row, a_col]).view(np.uint32),
    }
    outputs = {"out": ((128, words), bits)}
    run = run_hopper(body, args, inputs, outputs, block=threads, shared=a.size + b.size)
    D = np.empty((64, columns), values)
    D[row, col] = run["out"].view(values)
    assert run.total["flops_mma"] == 2 * 64 * columns * depth
    return D, before, A, B


def check(**case) -> None:
    D, before, A, B = product(**case)
    A, B, before = (x.astype(np.float64) for x in (A, B, before))
    signs = case.get("signs", (1, 1))
    expected = signs[0] * signs[1] * (A @ B.T) + (before if case.get("add") else 0)
    np.testing.assert_array_equal(D, expected)


@pytest.mark.parametrize("columns", [8, 24, 64, 128, 256])
@pytest.mark.parametrize("add", [0, 1])
def test_adds_a_product_of_any_width(columns, add):
    check(kind="f16", columns=columns, add=add)


@pytest.mark.parametrize("row_bytes", [0, 32, 64, 128])
@pytest.mark.parametrize("ta, tb", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_layout_of_16_bits(kind, row_bytes, ta, tb):
    check(kind=kind, columns=128, row_bytes=row_bytes, ta=ta, tb=tb, add=1)


@pytest.mark.parametrize("kind, to", [(k, to) for k, (_, _, all_to) in TYPES.items() for to in all_to])
@pytest.mark.parametrize("row_bytes", [0, 32])
def test_every_type(kind, to, row_bytes):
    check(kind=kind, to=to, columns=32, row_bytes=row_bytes, add=1)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e4m3", "s8"])
def test_a_in_registers(kind):
    check(kind=kind, to="s32" if kind == "s8" else "f32", columns=16, a_in_registers=True, row_bytes=32, add=1)


@pytest.mark.parametrize("a_in_registers", [False, True])
def test_tf32_ignores_the_low_13_bits(a_in_registers):
    check(kind="tf32", columns=16, a_in_registers=a_in_registers, row_bytes=32, add=1, low_bits=0x1FFF)


@pytest.mark.parametrize("signs", [(-1, 1), (1, -1), (-1, -1)])
def test_negated_factors(signs):
    check(kind="f16", columns=8, signs=signs, add=1)


def test_a_block_needs_whole_warpgroups():
    with pytest.raises(EmulatorError, match="a block of 96 threads has no whole warpgroup 0"):
        product("f16", 8, threads=96)


# -- setmaxnreg ------------------------------------------------------------------------------------------------
def moved(producer: str, consumer: str) -> None:
    body = f"  if (threadIdx.x >= 256) {{ {producer} }} else {{ {consumer} }}\n  if (threadIdx.x == 0) out[0] = 1;"
    run_hopper(body, {"int* out": "out"}, {}, {"out": (1, i32)}, "__launch_bounds__(384, 1)", block=384)


def test_registers_move():
    moved("release_registers<24>();", "take_registers<240>();")


@pytest.mark.parametrize(
    "producer, consumer, message",
    [
        (
            "release_registers<40>();",
            "take_registers<248>();",
            r"kernel.cu:1 .*deadlock: .*68,608 of the block's 64,512",
        ),
        ("", "take_registers<240>();", "deadlock: setmaxnreg waits for registers"),
        ("take_registers<24>();", "", "setmaxnreg takes registers: 24 after 168"),
        ("release_registers<232>();", "", "setmaxnreg gives back registers: 232 after 168"),
        ("if (threadIdx.x < 320) release_registers<24>();", "take_registers<176>();", "not all warps of a warpgroup"),
    ],
)
def test_registers_that_do_not_exist(producer, consumer, message):
    with pytest.raises(EmulatorError, match=message):
        moved(producer, consumer)
