"""Calls in the emulator: recursion, pointers to functions, virtual functions, the stack, the device heap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.calls import MAX_STACK
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.heap import SIZE
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.engines.emulator.ptx import names as ptx_names
from kernels.engines.emulator.ptx.callgraph import framed
from kernels.engines.emulator.ptx.kernel import PtxError
from tests.helpers.emulated import NAME, emulate, needs_nvrtc
from tests.helpers.emulated_numbers import assert_same, f32, i32, rng, u64

pytestmark = needs_nvrtc


# -- recursion -----------------------------------------------------------------------------------------------
FIB = """
__device__ __noinline__ int fib(int n) {
  return n < 2 ? n : fib(n - 1) * 3 + fib(n - 2);
}
extern "C" __global__ void k(int* out, const int* in) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = i % 3 ? fib(in[i]) : -fib(in[i] / 2);
}"""


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) * 3 + fib(n - 2)


@pytest.mark.parametrize("order", ["forward", "reversed", 5])
def test_recursion_to_different_depths(order):
    n = rng.integers(0, 9, 80).astype(i32)
    run = emulate(FIB, {"in": n}, {"out": ((80,), i32)}, grid=2, block=40, order=order)
    expected = [fib(v) if i % 3 else -fib(v // 2) for i, v in enumerate(n.tolist())]
    assert_same(run["out"], np.array(expected, i32))


@settings(max_examples=12)
@given(st.integers(1, 3), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_ackermann_function_in_any_grid(grid, block, seed):
    source = """
    __device__ __noinline__ int a(int m, int n) { return m == 0 ? n + 1 : a(m - 1, n == 0 ? 1 : a(m, n - 1)); }
    extern "C" __global__ void k(int* out, const int* m, const int* n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (m[i] >= 0) out[i] = a(m[i], n[i]);
    }"""

    def a(m: int, n: int) -> int:
        return n + 1 if m == 0 else a(m - 1, 1 if n == 0 else a(m, n - 1))

    draw = np.random.default_rng(seed)
    m, n = draw.integers(-1, 3, grid * block), draw.integers(0, 3, grid * block)
    inputs = {"out": np.full(grid * block, -7, i32), "m": m.astype(i32), "n": n.astype(i32)}
    run = emulate(source, inputs, grid=grid, block=block)
    assert_same(
        run["out"],
        np.array([a(*pair) if pair[0] >= 0 else -7 for pair in zip(m.tolist(), n.tolist(), strict=True)], i32),
    )


def test_instructions_of_a_recursive_function_grow_with_its_calls():
    """One thread: each call of fib with n < 2 executes the same instructions, and so does each other call."""
    runs = {n: emulate(FIB, {"in": np.full(1, 2 * n, i32)}, {"out": ((1,), i32)}, block=1) for n in range(5)}
    total = [runs[n].total["thread_instructions"] for n in range(5)]
    calls = [1, 1, 3, 5, 9]  # of fib(n): 1 + calls of fib(n - 1) + calls of fib(n - 2)
    instructions_per_call = (total[2] - total[0]) / 2  # fib(2) makes two calls more than fib(0)
    assert total[1] == total[0]
    assert [t - total[0] for t in total] == [instructions_per_call * (c - 1) for c in calls]


def test_register_read_by_nanosleep_survives_a_recursive_call():
    source = """
    __device__ __noinline__ int f(int n) {
      if (n < 2) return n;
      int a = f(n - 1);
      __nanosleep(n);
      return a * 3 + n;
    }
    extern "C" __global__ void k(int* out) { out[threadIdx.x] = f(threadIdx.x); }"""

    def f(n: int) -> int:
        return n if n < 2 else f(n - 1) * 3 + n

    run = emulate(source, {}, {"out": ((8,), i32)}, block=8)
    assert_same(run["out"], np.array([f(n) for n in range(8)], i32))


def test_mutual_recursion_with_pointers_into_the_callers_frame():
    source = """
    __device__ int odd(int, int*);
    __device__ __noinline__ int even(int n, int* above) {
      int own[3] = {n, n * 2, n * 3};
      above[n & 1] += n;
      int r = n == 0 ? 1 : odd(n - 1, own);
      return r + own[0] + own[(n + 1) % 3];
    }
    __device__ __noinline__ int odd(int n, int* above) {
      int own[2] = {n, 7};
      above[n % 2] += 10 * n;
      return (n == 0 ? 0 : even(n - 1, own)) + own[0] * own[1];
    }
    extern "C" __global__ void k(int* out) {
      int mine[2] = {0, 0};
      int r = even(threadIdx.x % 9, mine);
      out[threadIdx.x] = r + 1000 * mine[0] + 100000 * mine[1];
    }"""

    def even(n: int, above: list[int]) -> int:
        own = [n, 2 * n, 3 * n]
        above[n & 1] += n
        r = 1 if n == 0 else odd(n - 1, own)
        return r + own[0] + own[(n + 1) % 3]

    def odd(n: int, above: list[int]) -> int:
        own = [n, 7]
        above[n % 2] += 10 * n
        return (0 if n == 0 else even(n - 1, own)) + own[0] * own[1]

    def one(i: int) -> int:
        mine = [0, 0]
        r = even(i % 9, mine)
        return r + 1000 * mine[0] + 100000 * mine[1]

    run = emulate(source, {}, {"out": ((40,), i32)}, block=40)
    assert_same(run["out"], np.array([one(i) for i in range(40)], i32))


def test_warp_reconverges_after_a_recursive_call():
    """Lanes that do not call wait, so that the whole warp executes the next shuffle."""
    source = """
    __device__ __noinline__ int sum(int n) { return n == 0 ? 0 : n + sum(n - 1) * (n % 2 ? 1 : -1); }
    extern "C" __global__ void k(int* out) {
      int v = 5;
      if (threadIdx.x < 10) v = sum(threadIdx.x);
      out[threadIdx.x] = __shfl_down_sync(~0u, v, 1);
    }"""

    def total(n: int) -> int:
        return 0 if n == 0 else n + total(n - 1) * (1 if n % 2 else -1)

    run = emulate(source, {}, {"out": ((32,), i32)})
    v = [total(i) if i < 10 else 5 for i in range(32)]
    assert_same(run["out"], np.array([*v[1:], 5], i32))
    assert run.total["warp_instructions"] == sum(c["warp_instructions"] for c in run.counters.lines.values())
    assert run.at(6)["warp_instructions"] == run.at(6)["thread_instructions"] / 32


def test_structs_doubles_and_barriers_in_recursive_functions():
    source = """
    struct Pair { double a; char b; long long c; };
    __device__ __noinline__ Pair walk(Pair p, int n, int* shared_) {
      if (n == 0) return p;
      __syncthreads();
      shared_[threadIdx.x] = n + threadIdx.x;
      __syncthreads();
      Pair q = {p.a * 1.5, (char)(p.b + 1), p.c + shared_[(threadIdx.x + 1) % 64]};
      Pair r = walk(q, n - 1, shared_);
      r.a += p.a;
      return r;
    }
    extern "C" __global__ void k(double* a, long long* c) {
      __shared__ int s[64];
      Pair p = {(double)threadIdx.x, (char)threadIdx.x, 1LL << 40};
      p = walk(p, 3, s);
      a[threadIdx.x] = p.a;
      c[threadIdx.x] = p.c + p.b;
    }"""
    run = emulate(source, {}, {"a": ((64,), np.float64), "c": ((64,), np.int64)}, block=64)
    i = np.arange(64)
    assert_same(run["a"], i * (1.5**3 + 1.5**2 + 1.5 + 1))
    assert_same(run["c"], (1 << 40) + 6 + 3 * ((i + 1) % 64) + i + 3)


def test_too_long_recursion_is_stopped_by_time():
    """2^40 calls, never more than 40 deep."""
    source = """
__device__ __noinline__ int twice(int* x, int n) {
  return n == 0 ? atomicAdd(x, 1) : twice(x, n - 1) + twice(x, n - 1);
}
extern "C" __global__ void k(int* x, int n) { twice(x, n); }"""
    with pytest.raises(EmulatorError, match=r"stopped after 0\.2 seconds and [\d,]+ warp instructions, at this call"):
        emulate(source, {"x": np.zeros(1, np.int32)}, args=["x", np.int32(40)], seconds=0.2)


def test_endless_recursion_is_an_error_with_its_line():
    source = """
__device__ __noinline__ int down(int n) {
  return n == -1 ? 0 : down(n + 1) * 3 + n;
}
extern "C" __global__ void k(int* out) {
  out[threadIdx.x] = threadIdx.x == 7 ? down(1) : 0;
}"""
    match = (
        rf"k, kernel\.cu:3 \(called at kernel\.cu:3\): recursion too deep: .*{MAX_STACK:,} bytes of stack of a thread"
    )
    with pytest.raises(EmulatorError, match=match + r".*thread \(7, 0, 0\) of block \(0, 0, 0\)"):
        emulate(source, {}, {"out": ((32,), i32)})


def test_fault_in_a_function_names_its_call():
    source = """
__device__ __noinline__ int at(const int* p, int n) {
  return n == 0 ? p[threadIdx.x == 3 ? 100 : 0] : at(p, n - 1) + 1;
}
extern "C" __global__ void k(int* out, const int* in) {
  out[threadIdx.x] = at(in, threadIdx.x == 3 ? 0 : 2);
}"""
    match = r"kernel\.cu:3 \(called at kernel\.cu:6\): out-of-bounds read of 4 bytes .*thread \(3, 0, 0\)"
    with pytest.raises(EmulatorError, match=match):
        emulate(source, {"in": np.zeros(4, i32)}, {"out": ((32,), i32)}, args=["out", "in"])


def test_variables_are_unwritten_in_each_call():
    source = """
__device__ __noinline__ int f(int n, int w) {
  int a[4];
  if (w) for (int j = 0; j < 4; ++j) a[j] = n;
  return n == 0 ? a[w & 3] : f(n - 1, n > 1) + a[n & 3];
}
extern "C" __global__ void k(int* out) { out[threadIdx.x] = f(2, 1); }"""
    with pytest.raises(EmulatorError, match=r"never written"):
        emulate(source, {}, {"out": ((1,), i32)}, block=1)


def test_pointer_to_a_returned_frame_is_an_error():
    source = """
__device__ __noinline__ int* f(int n) { int a[4]; a[n & 3] = n; int* p = n ? f(n - 1) : a; a[0] += *p; return p; }
extern "C" __global__ void k(int* out) { out[0] = *f(3); }"""
    with pytest.raises(EmulatorError, match=r"out-of-bounds read of 4 bytes"):
        emulate(source, {}, {"out": ((1,), i32)}, block=1)


# -- pointers to functions -----------------------------------------------------------------------------------
TABLE = """
typedef int (*F)(int);
__device__ int twice(int a) { return 2 * a; }
__device__ int square(int a) { return a * a; }
__device__ int less(int a) { return a - 100; }
"""


def _table(v: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.choose(n % 3, [2 * v, v * v, v - 100]).astype(i32)


@pytest.mark.parametrize("space", ["__device__", "__constant__", "static __device__ const", "local"])
def test_lanes_call_different_functions_through_one_pointer(space):
    table = "F table[3] = {twice, square, less};"
    inside, outside = (table, "") if space == "local" else ("", f"{space} {table}")
    source = f"""{TABLE}{outside}
    extern "C" __global__ void k(int* out, const int* in) {{
      {inside}
      int i = threadIdx.x, v = in[i];
      out[i] = table[v % 3](v) + (i % 2 ? table[(v + 1) % 3](i) : 0);
    }}"""
    v, i = rng.integers(0, 1000, 64).astype(i32), np.arange(64)
    run = emulate(source, {"in": v}, {"out": ((64,), i32)}, block=64)
    assert_same(run["out"], (_table(v, v) + np.where(i % 2, _table(i, v + 1), 0)).astype(i32))


def test_functions_as_arguments_in_structs_and_packed_structs():
    source = f"""{TABLE}
    struct Entry {{ char c; F f; short s; }};
    #pragma pack(push, 1)
    struct Tight {{ char c; F f; const int* p; }};
    #pragma pack(pop)
    __device__ int data[4] = {{5, 6, 7, 8}};
    __device__ int* middle = data + 2;
    __device__ Entry entries[3] = {{{{'a', twice, 1}}, {{'b', square, 2}}, {{'c', less, 3}}}};
    __device__ Tight tight[2] = {{{{'x', square, data + 1}}, {{'y', less, data + 3}}}};
    __constant__ const char* words[2] = {{"ab", "cd"}};
    __device__ float numbers[2] = {{1.5f, -2.0f}};
    __device__ __noinline__ int apply(F f, int v) {{ return f(v) + 1; }}
    extern "C" __global__ void k(int* out) {{
      int i = threadIdx.x;
      Entry e = entries[i % 3];
      Tight t = tight[i % 2];
      out[i] = apply(e.f, i) + e.s * 1000 + apply(t.f, *t.p) + middle[i % 2] + words[i % 2][1] + (int)(numbers[i % 2] * 2);
    }}"""
    run = emulate(source, {}, {"out": ((32,), i32)})
    i = np.arange(32)
    pointed = np.where(i % 2, 8 - 100, 6 * 6)
    rest = 7 + i % 2 + np.where(i % 2, ord("d"), ord("b")) + np.where(i % 2, -4, 3)
    assert_same(run["out"], (_table(i, i) + 1 + (i % 3 + 1) * 1000 + pointed + 1 + rest).astype(i32))


def test_function_pointer_in_global_memory_between_two_kernels():
    """A function has one address in all kernels of its module, even if they name different functions."""
    ptx = compile_ptx(
        TABLE
        + """
    extern "C" __global__ void choose(F* at) { at[0] = threadIdx.x ? square : less; }
    extern "C" __global__ void call(int* out, F* at) {
      F f = twice; if (out[0] == 5) f = square; if (out[0] == 6) f = less;
      out[threadIdx.x] = (at[0] ? at[0] : f)(7);
    }""",
        NAME,
        OPTIONS,
    )
    memory = device_memory({"at": np.zeros(1, u64), "out": np.zeros(1, i32)}, ["out"])
    launch(ptx, "choose", (1, 1, 1), (1, 1, 1), ["at"], memory, options=Options())
    launch(ptx, "call", (1, 1, 1), (1, 1, 1), ["out", "at"], memory, options=Options())
    assert memory.array("out")[0] == 7 - 100


def test_recursion_through_a_pointer():
    source = """
    typedef int (*F)(int, int);
    extern __device__ F table[2];
    __device__ int plus(int n, int v) { int w = v + n; return n == 0 ? v : table[w & 1](n - 1, w) + v; }
    __device__ int times(int n, int v) { int w = v * 3 + 1; return n == 0 ? -v : table[w & 1](n - 1, w) - w; }
    __device__ F table[2] = {plus, times};
    extern "C" __global__ void k(int* out) { out[threadIdx.x] = table[threadIdx.x & 1](threadIdx.x % 7, threadIdx.x); }"""

    def plus(n: int, v: int) -> int:
        w = v + n
        return v if n == 0 else (plus, times)[w & 1](n - 1, w) + v

    def times(n: int, v: int) -> int:
        w = v * 3 + 1
        return -v if n == 0 else (plus, times)[w & 1](n - 1, w) - w

    run = emulate(source, {}, {"out": ((64,), i32)}, block=64)
    assert_same(run["out"], np.array([(plus, times)[i & 1](i % 7, i) for i in range(64)], i32))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("(F)zero[0]", "call of a null function pointer"),
        ("(F)0x1234", r"call of a pointer to no function: 0x1234"),
        ("(F)(void*)other", "call of other through a pointer of another function type"),
        ("(F)out", "call of a pointer to no function"),
    ],
)
def test_invalid_function_pointer_is_an_error_with_its_line(value, message):
    source = f"""{TABLE}
__device__ int other(int a, int b) {{ return a - b; }}
__device__ int (*keep)(int, int) = other;
extern "C" __global__ void k(int* out, const unsigned long long* zero) {{
  F f = threadIdx.x == 9 ? {value} : twice;
  out[threadIdx.x] = f(3) + (threadIdx.x > 99 ? keep(1, 2) : 0);
}}"""
    line = source[: source.index("f(3)")].count("\n") + 1
    match = rf"k, kernel\.cu:{line}: {message}.*thread \(9, 0, 0\) of block"
    with pytest.raises(EmulatorError, match=match):
        emulate(source, {"zero": np.zeros(1, u64)}, {"out": ((32,), i32)})


def test_function_named_only_by_another_kernel_is_an_error():
    source = f"""{TABLE}
    extern "C" __global__ void k(int* out, F* at) {{ out[0] = (out == nullptr ? twice : at[0])(1); }}
    extern "C" __global__ void other(F* at) {{ at[0] = square; }}"""
    ptx = compile_ptx(source, NAME, OPTIONS)
    memory = device_memory({"at": np.zeros(1, u64), "out": np.zeros(1, i32)}, ["out"])
    launch(ptx, "other", (1, 1, 1), (1, 1, 1), ["at"], memory)
    with pytest.raises(EmulatorError, match="call of square, a function that this kernel does not name"):
        launch(ptx, "k", (1, 1, 1), (1, 1, 1), ["out", "at"], memory)


def test_unused_module_variables_have_no_effect():
    kernel = 'extern "C" __global__ void k(int* out) { out[threadIdx.x] = threadIdx.x; }'
    tables = f"{TABLE}\n__device__ F table[2] = {{twice, square}};\n__device__ F* where = table + 1;\n"
    plain, with_table = (
        emulate(source, {}, {"out": ((32,), i32)}, entry="k")
        for source in (kernel, f'{tables}extern "C" __global__ void u(int* o) {{ *o = (*where)(*o); }}{kernel}')
    )
    assert_same(with_table["out"], np.arange(32, dtype=i32))
    assert plain.total == with_table.total
    assert [p.name for p in with_table.memory.regions] == ["out"]  # a variable that is not used takes no memory


# -- virtual functions ---------------------------------------------------------------------------------------
SHAPES = """
struct Shape { float x; __device__ Shape(float x) : x(x) {} virtual __device__ float area() const = 0;
               virtual __device__ float twice() const { return 2 * area(); } virtual __device__ ~Shape() {} };
struct Square : Shape { __device__ Square(float x) : Shape(x) {} __device__ float area() const override { return x * x; } };
struct Box : Shape { float y; __device__ Box(float x, float y) : Shape(x), y(y) {}
                     __device__ float area() const override { return x * y; }
                     __device__ float twice() const override { return Shape::twice() + 1; } };
"""


def test_virtual_functions_of_objects_in_local_memory():
    source = f"""{SHAPES}
    extern "C" __global__ void k(float* out) {{
      float v = threadIdx.x;
      Square s(v); Box b(v, 3);
      const Shape* shape = threadIdx.x % 3 ? (Shape*)&s : (Shape*)&b;
      out[threadIdx.x] = shape->area() + shape->twice();
    }}"""
    run = emulate(source, {}, {"out": ((64,), f32)}, block=64)
    v = np.arange(64)
    assert_same(run["out"], np.where(v % 3, 3 * v * v, 9 * v + 1).astype(f32))


def test_virtual_functions_of_objects_made_with_new():
    source = f"""{SHAPES}
    extern "C" __global__ void k(float* out) {{
      float v = threadIdx.x;
      Shape* shape = threadIdx.x % 2 ? (Shape*)new Square(v) : (Shape*)new Box(v, 2);
      out[threadIdx.x] = shape->twice();
      delete shape;
    }}"""
    run = emulate(source, {}, {"out": ((64,), f32)}, block=64)
    v = np.arange(64)
    assert_same(run["out"], np.where(v % 2, 2 * v * v, 4 * v + 1).astype(f32))


def test_objects_in_local_shared_and_global_memory_in_one_access():
    source = f"""{SHAPES}
    __device__ float extra = 5;
    extern "C" __global__ void k(float* out) {{
      __shared__ char place[sizeof(Box)];
      __shared__ float total;
      if (threadIdx.x == 0) total = 0;
      float v = threadIdx.x, own = 7;
      Square s(v);
      const Shape* shape = &s;
      if (threadIdx.x % 3 == 1) shape = new Box(v, 2);
      if (threadIdx.x == 5) {{ Box b(4, 5); memcpy(place, &b, sizeof b); shape = (Shape*)place; }}
      __syncthreads();
      float* one = threadIdx.x % 4 == 0 ? &own : threadIdx.x % 4 == 1 ? &extra : &total;
      atomicAdd(one, 1.0f);
      __syncthreads();
      out[threadIdx.x] = shape->area() + 1000 * *one;
    }}"""
    run = emulate(source, {}, {"out": ((64,), f32)}, block=64)
    v = np.arange(64)
    area = np.where(v == 5, 20, np.where(v % 3 == 1, 2 * v, v * v))
    assert_same(run["out"], (area + 1000 * np.choose(np.minimum(v % 4, 2), [8, 5 + 16, 32])).astype(f32))


def test_unconstructed_object_is_an_error():
    source = f"""{SHAPES}
extern "C" __global__ void k(float* out, unsigned long long* object) {{
  out[0] = ((Shape*)object)->area();
}}"""
    with pytest.raises(EmulatorError, match=r"kernel\.cu:\d+: out-of-bounds read of 8 bytes"):
        emulate(source, {"object": np.zeros(4, u64)}, {"out": ((1,), f32)}, block=1)


# -- the device heap -----------------------------------------------------------------------------------------
def test_freed_memory_is_reused():
    source = """
    extern "C" __global__ void k(int* out, int rounds) {
      int i = threadIdx.x, total = 0;
      for (int r = 0; r < rounds; ++r) {
        int* list = (int*)malloc((i % 5 + 1) * sizeof(int));
        for (int j = 0; j <= i % 5; ++j) list[j] = i * j + r;
        for (int j = 0; j <= i % 5; ++j) total += list[j];
        free(list);
      }
      double* none = (double*)malloc(1ull << 40);
      out[i] = total + (none == nullptr ? 0 : 1 << 20);
      free(none);
    }"""
    run = emulate(source, {}, {"out": ((64,), i32)}, args=["out", i32(9)], block=64)
    expected = [sum(i * j + r for r in range(9) for j in range(i % 5 + 1)) for i in range(64)]
    assert_same(run["out"], np.array(expected, i32))
    assert run.memory.heap.end - run.memory.heap.start < 64 * 64 < SIZE and not run.memory.heap.live


def test_trees_are_built_and_deleted_recursively():
    source = r"""
    struct Node { int value; Node *left = nullptr, *right = nullptr; __device__ Node(int value) : value(value) {} };
    __device__ __noinline__ Node* insert(Node* at, int value) {
      if (!at) return new Node(value);
      if (value < at->value) at->left = insert(at->left, value);
      else at->right = insert(at->right, value);
      return at;
    }
    __device__ __noinline__ int walk(Node* at, int depth) {
      if (!at) return 0;
      assert(depth < 10);
      int before = walk(at->left, depth + 1);
      printf("%*d\n", depth, at->value);
      int after = walk(at->right, depth + 1);
      int value = at->value * (depth + 1);
      delete at;
      return before + value + after;
    }
    extern "C" __global__ void k(int* out, const int* in) {
      Node* root = nullptr;
      for (int j = 0; j < 7; ++j) root = insert(root, in[7 * threadIdx.x + j]);
      out[threadIdx.x] = walk(root, 0);
    }"""

    def depths(values: list[int]) -> list[tuple[int, int]]:
        """Returns (value, depth) of each node, in order."""

        def visit(remaining: list[int], depth: int) -> list[tuple[int, int]]:
            if not remaining:
                return []
            top, *rest = remaining
            low, high = [v for v in rest if v < top], [v for v in rest if v >= top]
            return [*visit(low, depth + 1), (top, depth), *visit(high, depth + 1)]

        return visit(values, 0)

    values = rng.integers(0, 100, (40, 7)).astype(i32)
    run = emulate(source, {"in": values.reshape(-1)}, {"out": ((40,), i32)}, block=40)
    nodes = [depths(row) for row in values.tolist()]
    assert_same(run["out"], np.array([sum(v * (d + 1) for v, d in row) for row in nodes], i32))
    for i, row in enumerate(nodes):
        lines = [line.text for line in run.printed if line.thread[0] == i]
        assert lines == [f"{v:{d}d}" if d else str(v) for v, d in row]
    assert len(run.memory.heap.sizes) == 40 * 7 and not run.memory.heap.live


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("out[0] = p[5];", "read .*byte 20 of an allocation of 40 bytes.*never written"),
        ("p[10] = 1;", "out-of-bounds write of 4 bytes at byte 40 of an allocation of 40 bytes"),
        ("free(p); p[2] = 1;", "out-of-bounds write .* of 40 bytes, which was freed"),
        ("free(p); free(p);", "free of an address that was freed before: 0x"),
        ("free(p + 1);", "free of an address that malloc did not return: 0x"),
        ("free(out);", "free of an address that malloc did not return: 0x"),
    ],
)
def test_misuse_of_the_heap_is_an_error_with_its_line(statement, message):
    source = f"""
extern "C" __global__ void k(int* out) {{
  volatile int* q = (int*)malloc(10 * sizeof(int)); int* p = (int*)q;
  if (threadIdx.x == 2) {{ {statement} }}
}}"""
    with pytest.raises(EmulatorError, match=rf"k, kernel\.cu:4: {message}.*by thread \(2, 0, 0\)"):
        emulate(source, {}, {"out": ((1,), i32)})


def test_function_without_a_body_is_an_error_only_when_called():
    source = """
extern "C" __device__ int elsewhere(int);
extern "C" __global__ void k(int* out, const int* in) {
  out[threadIdx.x] = in[threadIdx.x] ? elsewhere(3) : 1;
}"""
    run = emulate(source, {"in": np.zeros(32, i32)}, {"out": ((32,), i32)})
    assert (run["out"] == 1).all()
    match = r"kernel\.cu:4: call of elsewhere: its body is not in this source.*thread \(6, 0, 0\)"
    with pytest.raises(EmulatorError, match=match):
        emulate(source, {"in": (np.arange(32) == 6).astype(i32)}, {"out": ((32,), i32)})


def test_register_argument_is_an_error_with_its_line():
    source = """
__device__ __noinline__ int f(int a) { return a + 1; }
extern "C" __global__ void k(int* out) {
  int r = f(out[0]);
  asm volatile("call (%0), _Z1fi, (%1);" : "=r"(r) : "r"(r));
  out[0] = r;
}"""
    with pytest.raises(PtxError, match=r"k, kernel\.cu:5: a call hands over %r\d+: only variables in \.param space"):
        emulate(source, {}, {"out": ((1,), i32)})


def test_guarded_call_runs_for_threads_with_a_true_guard():
    source = """
__device__ __noinline__ int plain(int a) { return a + 100; }
__device__ __noinline__ int again(int a) { return a > 50 ? a : again(a + 20) + 1; }
extern "C" __global__ void k(int* out, const int* in) {
  int v = in[threadIdx.x], r;
  asm volatile("{ .reg .pred p; .param .b32 given; .param .b32 back; setp.gt.s32 p, %1, 10; "
               "st.param.b32 [given], %1; st.param.b32 [back], 7; @p call (back), FUNCTION, (given); "
               "ld.param.b32 %0, [back]; }" : "=r"(r) : "r"(v));
  out[threadIdx.x] = r + (v == 1000 ? plain(v) + again(v) : 0);
}"""
    v = rng.integers(-5, 50, 64).astype(i32)

    def again(a: int) -> int:
        return a if a > 50 else again(a + 20) + 1

    for name, f in (("_Z5plaini", lambda a: a + 100), ("_Z5againi", again)):
        run = emulate(source.replace("FUNCTION", name), {"in": v}, {"out": ((64,), i32)}, block=64)
        assert_same(run["out"], np.array([f(a) if a > 10 else 7 for a in v.tolist()], i32))


@pytest.mark.parametrize("flags", [("-lineinfo",), ("-G",)])
def test_trace_of_a_kernel_compiled_for_debugging(flags):
    """-G keeps every function and addresses all memory generically."""
    source = (
        FIB
        + TABLE
        + """
    __device__ F table[3] = {twice, square, less};
    extern "C" __global__ void both(int* out) {
      out[threadIdx.x] = table[threadIdx.x % 3](fib(threadIdx.x % 6));
      if (threadIdx.x == 33) printf("%d\\n", out[threadIdx.x]);
    }"""
    )
    ptx = compile_ptx(source, NAME, (*OPTIONS[:2], *flags))
    memory = device_memory({"out": np.zeros(64, i32)}, [])
    options = Options(trace_block=1)
    run = launch(ptx, "both", (2, 1, 1), (64, 1, 1), ["out"], memory, options=options)
    n = np.array([fib(i % 6) for i in range(64)])
    assert_same(memory.array("out"), _table(n, np.arange(64)))
    assert [line.text for line in run.printed] == [str(memory.array("out")[33])] * 2
    lines = {line.number for line in run.trace.lines if line is not None}
    assert {3, source[: source.index("return a * a")].count("\n") + 1} <= lines


# -- which functions need frames -------------------------------------------------------------------------------
def test_functions_called_without_recursion_have_no_frames():
    bodies = {
        "k": "call.uni (r), \n f, \n (p); mov.u64 %rd1, g;",
        "f": "call.uni g, (p);",
        "g": "ret;",
        "h": "call (r), %rd1, (p), proto;",
        "loop": "call.uni loop, (p);",
    }
    assert framed("k", bodies, {}) == {}
    assert framed("loop", bodies, {}) == {"loop": True}
    assert framed("h", bodies | {"h": bodies["h"] + "mov.u64 %rd2, table;"}, {"table": ["g", "f"]}) == {
        "f": False,
        "g": False,
    }


@pytest.mark.parametrize("runtime", [True, False])
def test_names_in_messages_are_cpp_names(runtime, monkeypatch):
    if not runtime:
        monkeypatch.setattr(ptx_names, "demangled", lambda name: name)
    mangled = ("_Z3fibi", "_ZNK1A4areaEv", "_ZN1a5plainEPi", "main")
    assert [ptx_names.plain(name) for name in mangled] == ["fib", "A::area", "a::plain", "main"]
