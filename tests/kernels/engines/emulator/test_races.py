"""Data races on global and on shared memory: what nothing orders is reported with both lines and threads, what something orders is not."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.compiler.compile import OPTIONS
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
i32 = np.int32
ORDERS = ["forward", "reversed", 1]


def found(body: str, grid: int = 4, block: int = 64, order: str | int = "forward") -> tuple[str, ...]:
    """Returns the races of a kernel on out[256] and flag[4], zeros, and in[256], 0 to 255. Its body begins at line 4."""
    includes = "#include <cooperative_groups.h>\n" * ("cooperative_groups" in body) + "#include <cuda/atomic>\n" * (
        "cuda::" in body
    )
    includes += "#include <cuda/barrier>\n" * ("cuda::barrier" in body)
    source = f"""{includes or chr(10)}extern "C" __global__ void k(int* out, int* in, int* flag) {{
  int t = threadIdx.x, b = blockIdx.x, i = b * blockDim.x + t;
{body}}}"""
    arrays = {"out": np.zeros(256, i32), "in": np.arange(256, dtype=i32), "flag": np.zeros(4, i32)}
    return emulate(source, arrays, {}, grid=grid, block=block, order=order, races=True).races


RACES = {
    "a count by load and store": ("int v = out[i % 7];\nout[i % 7] = v + 1;\n", "reads", "writes"),
    "a transpose in place": (
        "if (b == 0) {\nint r = t / 8, c = t % 8, v = in[c * 8 + r];\nin[t] = v;\n}\n",
        "reads",
        "writes",
    ),
    "the neighbour's halo": ("if (i > 0) out[i] = in[i - 1];\nin[i] = 2 * out[i];\n", "reads", "writes"),
    "a flag without fences": (
        "if (b == 0) { out[t] = t; __syncthreads(); if (t == 0) atomicExch(flag, 1); }\n"
        "else { while (atomicAdd(flag, 0) == 0); in[i] = out[t]; }\n",
        "reads",
        "writes",
    ),
    "a flag that is read without a fence": (
        "if (b == 0) { out[t] = t; __threadfence(); __syncthreads(); if (t == 0) *(volatile int*)flag = 1; }\n"
        "else { while (*(volatile int*)flag == 0); in[i] = out[t]; }\n",
        "reads",
        "writes",
    ),
    "a fence taken for a barrier": ("atomicAdd(flag, 1);\n__threadfence();\nout[i] = *flag;\n", "reads", "updates"),
    "one word of two rows": ("int x = t % 8, y = t / 8;\nif (b == 0) out[y * 5 + x] = 1 + x;\n", "writes", "writes"),
    "warps without a barrier": ("if (b == 0) { out[t] = t; in[t] = out[63 - t]; }\n", "reads", "writes"),
    "lanes without a barrier": ("if (b == 0 && t < 32) { out[t] = t; in[t] = out[31 - t]; }\n", "reads", "writes"),
    "an atomic beside a plain store": ("if (b == 0) out[0] = 5;\nelse atomicAdd(out, 1);\n", "updates", "writes"),
    "a maximum by compare and store": ("if (in[i] > *out) *out = in[i];\n", "reads", "writes"),
    "an atomic of the block for all": ("atomicAdd_block(flag, 1);\n", "updates", "updates"),
    "atomics of the block, one after the other": (
        "if (t == 0) for (int r = 0; r <= b; ++r) atomicAdd_block(flag, r);\n",
        "updates",
        "updates",
    ),
    "the last block by an atomic of the block": (
        "if (t == 0) {\nout[b] = b;\n__threadfence();\nint n = atomicAdd_block(flag, 1);\n__threadfence();\n"
        "if (n == 3) for (int q = 0; q < 4; ++q) in[q] = out[q];\n}\n",
        "reads",
        "writes",
    ),
    "a lock by atomics of the block": (
        "if (t == 0) {\nwhile (atomicCAS_block(flag, 0, 1));\n__threadfence();\nout[0] += 1;\n__threadfence();\n"
        "atomicExch_block(flag, 0);\n}\n",
        "writes",
    ),
    "a flag that is read before a fence of the block": (
        "if (t == 0) {\nif (b == 0) { out[0] = 5; __threadfence(); *(volatile int*)flag = 1; }\n"
        "else { while (*(volatile int*)flag == 0); __threadfence_block(); in[b] = out[0]; }\n}\n",
        "reads",
        "writes",
    ),
    "what the lane of another tile acquired": (
        "auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());\n"
        "bool first = tile.thread_rank() == 0;\n"
        "if (b == 0) { out[t] = t; tile.sync(); if (first) { __threadfence(); atomicExch(flag + t / 16, 1); } }\n"
        "else { if (first) { while (!atomicAdd(flag + t / 16, 0)); __threadfence(); } tile.sync(); in[i] = out[t ^ 16]; }\n",
        "reads",
        "writes",
    ),
    "a count by volatile load and store": ("volatile int* v = out;\nv[i % 7] = v[i % 7] + 1;\n", "writes", "writes"),
    "a count by relaxed load and store": (
        "cuda::atomic_ref<int, cuda::thread_scope_device> f(out[t % 3]);\n"
        "int n = f.load(cuda::memory_order_relaxed);\nf.store(n + t, cuda::memory_order_relaxed);\n",
        "writes",
        "writes",
    ),
    "a store beside volatile reads": (
        "if (b == 0) out[t] = *(volatile int*)(in + t);\nelse if (b == 1) in[t] = 5 + 2 * t;\n",
        "reads",
        "writes",
    ),
    "a constant that its block has written": (
        "if (b == 0) {\nin[t] = 7 + t;\n__syncthreads();\nout[t] = __ldg(in + (t ^ 1));\n}\n",
        "reads",
        "writes",
    ),
    "the fence of a first lane before the barrier of its tile": (
        "auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());\n"
        "bool first = tile.thread_rank() == 0;\n"
        "if (b == 0) { out[t] = t; if (first) __threadfence(); tile.sync(); if (first) atomicExch(flag + t / 16, 1); }\n"
        "else { if (first) { while (!atomicAdd(flag + t / 16, 0)); __threadfence(); } tile.sync(); in[i] = out[t ^ 8]; }\n",
        "reads",
        "writes",
    ),
    "a relay that fences before it knows": (
        "cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);\n"
        "if (t == 0) {\nif (b == 0) { out[5] = 1; __threadfence(); atomicExch(flag, 1); }\n"
        "if (b == 1) { __threadfence(); while (!f.load(cuda::memory_order_acquire)); atomicExch(flag + 1, 1); }\n"
        "if (b == 2) { while (!atomicAdd(flag + 1, 0)); __threadfence(); in[0] = out[5]; }\n}\n",
        "reads",
        "writes",
    ),
    "a flag of the block for all": (
        "cuda::atomic_ref<int, cuda::thread_scope_block> f(*flag);\n"
        "if (t == 0) { if (b == 0) f.store(1, cuda::memory_order_relaxed); else while (!f.load(cuda::memory_order_relaxed)); }\n",
        "reads",
        "updates",
    ),
    "a shuffle taken for a barrier": (
        "if (b == 0 && t < 32) { out[t] = t; int v = __shfl_sync(~0u, t, 0); in[t] = out[31 - t] + v; }\n",
        "reads",
        "writes",
    ),
    "a barrier of one block for two": ("out[i] = i;\n__syncthreads();\nin[i] = out[255 - i];\n", "reads", "writes"),
}
RIGHT = {
    "one element a thread": "out[i] = in[i];\nin[i] = out[i] + 1;\n",
    "atomics": "atomicAdd(out + i % 7, 1);\natomicMax(out + 9, i);\n",
    "a flag with fences": (
        "if (b == 0) { out[t] = t; __threadfence(); __syncthreads(); if (t == 0) *(volatile int*)flag = 1; }\n"
        "else { while (*(volatile int*)flag == 0); __threadfence(); in[i] = out[t]; }\n"
    ),
    "a flag by release and acquire": (
        "cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);\n"
        "if (b == 0) { out[t] = t; __syncthreads(); if (t == 0) f.store(1, cuda::memory_order_release); }\n"
        "else { if (t == 0) while (!f.load(cuda::memory_order_acquire)); __syncthreads(); in[i] = out[t]; }\n"
    ),
    "the last block sums": (
        "__shared__ bool last;\nout[i] = i;\n__threadfence();\n__syncthreads();\n"
        "if (t == 0) last = atomicAdd(flag, 1) == gridDim.x - 1;\n__syncthreads();\n"
        "if (last) { int s = 0; for (int j = t; j < 256; j += 64) s += out[j]; atomicAdd(flag + 1, s); }\n"
    ),
    "a chain of blocks": (
        "if (t == 0) {\nvolatile int* f = flag;\nif (b > 0) { while (f[b - 1] == 0); __threadfence(); out[b] = out[b - 1] + 1; }\n"
        "else out[0] = 1;\n__threadfence();\nf[b] = 1;\n}\n"
    ),
    "the last one resets the count": (
        "__threadfence();\n__syncthreads();\nif (t == 0 && atomicAdd(flag, 1) == gridDim.x - 1) *flag = 0;\n"
    ),
    "a barrier of the grid": "out[i] = i;\ncooperative_groups::this_grid().sync();\nin[i] = out[255 - i];\n",
    "a barrier of the block": "if (b == 0) { out[t] = t; __syncthreads(); in[t] = out[63 - t]; }\n",
    "a barrier of the warp": "if (b == 0 && t < 32) { out[t] = t; __syncwarp(); in[t] = out[31 - t]; }\n",
    "the same value by all": "if (t < 8) *flag = 7;\n",
    "the same value by volatile accesses": "volatile int* v = flag;\nif (t < 8) *v = *v | 4;\n",
    "volatile elements of one thread": "volatile int* v = out;\nv[i] = v[i] + 1;\nv[i] = v[i] + 1;\n",
    "volatile counts under a lock": (
        "if (t == 0) {\nvolatile int* v = out;\nwhile (atomicCAS(flag, 0, 1));\n__threadfence();\n*v = *v + 1;\n__threadfence();\n"
        "atomicExch(flag, 0);\n}\n"
    ),
    "a volatile count of turns": (
        "if (t == 0) {\nvolatile int* turn = flag;\nwhile (*turn != b);\n*turn = *turn + 1;\n}\n"
    ),
    "constants that nobody writes": "out[i] = __ldg(in + (i ^ 1));\n",
    "a constant that its thread writes later": "int v = __ldg(in + i);\nin[i] = v + 1;\n",
    "a lock": (
        "if (t == 0) {\nwhile (atomicCAS(flag, 0, 1));\n__threadfence();\nout[0] += 1;\n__threadfence();\natomicExch(flag, 0);\n}\n"
    ),
    "the first lane acquires for its warp": (
        "if (t < 32) {\nif (b == 0) { if (t == 0) { out[5] = 3; __threadfence(); atomicExch(flag, 1); } }\n"
        "else { if (t == 0) { while (!atomicAdd(flag, 0)); __threadfence(); } __syncwarp(); in[i] = out[5]; }\n}\n"
    ),
    "the first lane releases what its warp has written": (
        "if (t < 32) {\nif (b == 0) { out[t] = t; __syncwarp(); if (t == 0) { __threadfence(); atomicExch(flag, 1); } }\n"
        "else { if (t == 0) { while (!atomicAdd(flag, 0)); __threadfence(); } __syncwarp(); in[i] = out[t]; }\n}\n"
    ),
    "lanes that fence, a barrier, one releases": (
        "if (t < 32) {\nif (b == 0) { out[t] = t; __threadfence(); __syncwarp(); if (t == 0) atomicExch(flag, 1); }\n"
        "else { if (t == 0) { while (!atomicAdd(flag, 0)); __threadfence(); } __syncwarp(); in[i] = out[31 - t]; }\n}\n"
    ),
    "one lane waits, a barrier, all fence": (
        "if (t < 32) {\nif (b == 0) { out[t] = t; __syncwarp(); if (t == 0) { __threadfence(); atomicExch(flag, 1); } }\n"
        "else { if (t == 0) while (!atomicAdd(flag, 0)); __syncwarp(); __threadfence(); in[i] = out[31 - t]; }\n}\n"
    ),
    "the last warp sums": (
        "out[i] = t;\n__threadfence();\n__syncwarp();\nint last = 0;\nif (t % 32 == 0) last = atomicAdd(flag, 1) == 7;\n"
        "last = __shfl_sync(~0u, last, 0);\n"
        "if (last) { __threadfence(); int s = 0; for (int j = t % 32; j < 256; j += 32) s += out[j]; atomicAdd(flag + 1, s); }\n"
    ),
    "a lane hands on what it has acquired": (
        "if (t < 32) {\nif (b == 0) { out[t] = t; __syncwarp(); if (t == 0) { __threadfence(); atomicExch(flag, 1); } }\n"
        "else { int n = 0; if (t == 0) { while (!(n = atomicAdd(flag, 0))); __threadfence(); }\n"
        "n = __shfl_sync(~0u, n, 0); in[i] = n ? out[31 - t] : 0; }\n}\n"
    ),
    "threads that fence, a barrier of C++, one releases": (
        "__shared__ cuda::barrier<cuda::thread_scope_block> c;\nif (t == 0) init(&c, 64);\n__syncthreads();\n"
        "if (b == 0) { out[t] = t; __threadfence(); c.arrive_and_wait(); if (t == 0) *(volatile int*)flag = 1; }\n"
        "else { while (!*(volatile int*)flag); __threadfence(); in[i] = out[63 - t]; }\n"
    ),
    "the first lane of each tile": (
        "auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());\n"
        "bool first = tile.thread_rank() == 0;\n"
        "if (b == 0) { out[t] = t; tile.sync(); if (first) { __threadfence(); atomicExch(flag + t / 16, 1); } }\n"
        "else { if (first) { while (!atomicAdd(flag + t / 16, 0)); __threadfence(); } tile.sync(); in[i] = out[t ^ 8]; }\n"
    ),
    "a lock of each warp": (
        "if (t % 32 == 0) { while (atomicCAS(flag, 0, 1)); __threadfence(); }\n__syncwarp();\nout[t % 32] += t;\n__syncwarp();\n"
        "if (t % 32 == 0) { __threadfence(); atomicExch(flag, 0); }\n"
    ),
    "atomics of the block in one block": "if (b == 1) atomicAdd_block(flag, 1);\n",
    "a bar of half the block": (
        'if (b == 0 && t < 32) out[t] = t;\nif (b == 0) { asm volatile("bar.sync 1, 64;" ::: "memory"); in[t] = out[t % 32]; }\n'
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_what_nothing_orders_is_reported(order):
    missed = {}
    for name, (body, *verbs) in RACES.items():
        races = found(body, order=order)
        if not any("data race on global memory" in race and all(verb in race for verb in verbs) for race in races):
            missed[name] = races
    assert not missed


@pytest.mark.parametrize("order", ORDERS)
def test_what_something_orders_is_not(order):
    assert not {name: races for name, body in RIGHT.items() if (races := found(body, order=order))}


@every("to", ["y", "*p"])
@every("x, races", [("a", 1), ("b", 0)])
def test_one_buffer_under_two_names(to, x, races):
    source = f"""__device__ int* variable;
extern "C" __global__ void k(int* y, const int* x) {{
  int** p = &variable;
  if (threadIdx.x == 0) *p = y;
  __syncthreads();
  ({to})[threadIdx.x] = x[63 - threadIdx.x];
}}"""
    arrays = {"a": np.arange(64, dtype=i32), "b": np.arange(64, dtype=i32)}
    assert len(emulate(source, arrays, {}, args=["a", x], block=64, races=True).races) == races


def test_a_report_names_lines_threads_element_and_cure():
    (race,) = found(RACES["a count by load and store"][0], grid=2, block=32)
    assert race.startswith("k, kernel.cu:5: data race on global memory: thread (")
    assert "writes out[" in race and "reads at kernel.cu:4" in race and "an atomic" in race


@pytest.mark.parametrize("order", ["forward", "reversed"])
def test_barriers_of_one_block_order_nothing_of_another(order):
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int part[64];
  int t = threadIdx.x, other = blockIdx.x == 1 ? 63 - t : t;
  part[t] = t;
  part[other] = -t;
  for (int n = 0; n < 9; ++n) __syncthreads();
  out[blockIdx.x * 64 + t] = part[t];
}"""
    run = emulate(source, {}, {"out": (192, i32)}, grid=3, block=64, order=order, races=True)
    assert len(run.races) == 1 and run.races[0].count("of block (1, 0, 0)") == 2


def test_the_last_of_many_blocks_sums():
    source = """extern "C" __global__ void k(int* out, int* count, int* sum) {
  if (threadIdx.x > 0) return;
  out[blockIdx.x] = 1;
  __threadfence();
  if (atomicAdd(count, 1) < gridDim.x - 1) return;
  __threadfence();
  int s = 0;
  for (int i = 0; i < gridDim.x; i += 100) s += out[i];
  *sum = s;
}"""
    outputs, args = {"out": (5000, i32), "sum": (1, i32)}, ["out", "count", "sum"]
    run = emulate(source, {"count": np.zeros(1, i32)}, outputs, args=args, grid=5000, races=True)
    assert run.races == () and run["sum"] == 50


def test_many_threads_take_a_lock_one_after_the_other():
    source = """extern "C" __global__ void k(int* lock, int* count) {
  int mine = atomicAdd(lock, 1);
  for (bool done = false; !done;)
    if (atomicAdd(lock + 1, 0) == mine) { __threadfence(); *count += 1; __threadfence(); atomicAdd(lock + 1, 1); done = true; }
}"""
    arrays = {"lock": np.zeros(2, i32), "count": np.zeros(1, i32)}
    run = emulate(source, arrays, {}, grid=16, block=64, races=True)
    assert run.races == () and run["count"] == 1024


def test_a_report_names_the_line_in_a_function():
    source = """__device__ void put(int* s, int v) {
  s[threadIdx.x] = v;
}
__device__ int get(int* s) {
  return s[63 - threadIdx.x];
}
extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  put(s, 3); out[threadIdx.x] = get(s);
}"""
    (race,) = emulate(source, {}, {"out": (64, i32)}, block=64, races=True).races
    assert (
        "kernel.cu:9 (in code from kernel.cu:5)" in race and "writes at kernel.cu:9 (in code from kernel.cu:2)" in race
    )


@every(
    "name, cure",
    [
        ("an atomic of the block for all", "for that block only"),
        ("a flag of the block for all", "for that block only"),
        ("an atomic beside a plain store", "Make both atomic"),
        ("a flag without fences", "a flag that is written after __threadfence()"),
    ],
)
def test_a_report_says_what_to_write_instead(name, cure):
    assert cure in found(RACES[name][0])[0]


def test_a_pair_of_lines_is_reported_once():
    assert len(found("for (int r = 0; r < 5; ++r) out[(i + r) % 9] = i;\n")) == 1


# -- shared memory: a block of two warps ----------------------------------------------------------------
SHARED = """%s__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ double add(double* to, double by) {
  unsigned long long* bits = (unsigned long long*)to; unsigned long long old = *bits, before;
  do { before = old; old = atomicCAS(bits, before, __double_as_longlong(by + __longlong_as_double(before))); } while (before != old);
  return __longlong_as_double(old);
}
extern "C" __global__ void k(int* out) {
  __shared__ int s[128]; __shared__ int flag; __shared__ double sum; __shared__ unsigned long long bar;
  int t = threadIdx.x, warp = t / 32, lane = t %% 32;
  s[t] = 0;
  if (t == 0) { flag = 0; sum = 0; asm volatile("mbarrier.init.shared.b64 [%%0], 64;" :: "r"(at(&bar))); }
  __syncthreads();
  %s
  __syncthreads();
  atomicAdd(&out[t], s[t]);
}"""
ARRIVE = 'asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" :: "r"(at(&bar)) : "memory");'
ARRIVE_MANY = (
    ARRIVE.replace("[%0]", "[%0], {}").replace("{.reg", "{{.reg").replace("state, [%0], {};}", "state, [%0], {};}}")
)
ARRIVE_RELAXED = ARRIVE.replace("arrive.shared", "arrive.relaxed.cta.shared")
WAIT = (
    'asm volatile("{.reg .pred p;\\nAGAIN:\\nmbarrier.test_wait.parity.shared.b64 p, [%0], 0;\\n@p bra DONE;\\nbra AGAIN;\\n'
    'DONE:\\n}" :: "r"(at(&bar)) : "memory");'
)
NAMED = 'asm volatile("bar.sync %0, 64;" :: "n"({}) : "memory");'
ARRIVES = 'asm volatile("bar.arrive 1, 64;" ::: "memory");'
HALVES = "auto half = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());"
SHARED_RACES = {
    "no barrier": "s[t] = t; out[t] = s[t ^ 32];",
    "a barrier of the warp for two": "s[t] = t; __syncwarp(); out[t] = s[t ^ 32];",
    "a barrier of some lanes": "s[t] = t; if (lane < 16) __syncwarp(0xffff); out[t] = s[t ^ 16];",
    "barriers of other lanes": "if (lane < 16) { s[t] = t; __syncwarp(0xffff); }\n"
    "else { __syncwarp(0xffff0000u); out[t] = s[t - 16]; }",
    "halves of a warp": f"{HALVES} s[t] = t; half.sync(); out[t] = s[t ^ 16];",
    "another barrier": f"if (warp == 0) {{ s[lane] = t; {ARRIVES} }} else {{ out[t] = s[lane]; {NAMED.format(1)} }}",
    "an arrival before the write": f"if (warp == 0) {{ {ARRIVES} s[lane] = t; }} else {{ {NAMED.format(1)} out[t] = s[lane]; }}",
    "no wait for the phase": f"if (warp == 0) {{ s[lane] = t; {ARRIVE} }} else {{ {ARRIVE} out[t] = s[lane]; }}",
    "a write after the arrival": f"{ARRIVE} if (warp == 0) s[lane] = t; else {{ {WAIT} out[t] = s[lane]; }}",
    "a flag without a fence": "if (t == 0) { s[0] = 1; *(volatile int*)&flag = 1; }\n"
    "if (t == 32) { while (!*(volatile int*)&flag); s[1] = s[0]; }",
    "an atomic beside a store": "if (t < 32) atomicAdd(s, 1); else if (t == 32) s[0] = 5;",
    "volatile lanes": "volatile int* v = s; v[t] = t; if (lane < 31) v[t] = v[t] + v[t + 1];",
    "volatile lanes beside a fence": "volatile int* v = s; v[t] = t; if (lane < 31) v[t] = v[t] + v[t + 1]; __threadfence();",
    "a sum by load and store": "if (lane == 0) sum = sum + 1;",
    "the arrival of a first lane": f"s[t] = t; if (lane < 2) {ARRIVE_MANY.format(16)} {WAIT} out[t] = s[t ^ 32];",
    "the wait of a first lane": f"s[t] = t; {ARRIVE} if (lane == 0) {WAIT} out[t] = s[t ^ 32];",
    "a relaxed arrival": f"s[t] = t; {ARRIVE_RELAXED} {WAIT} out[t] = s[t ^ 32];",
}
SHARED_RIGHT = {
    "a barrier of the block": "s[t] = t; __syncthreads(); out[t] = s[t ^ 32];",
    "a barrier of the warp": "s[t] = t; __syncwarp(); out[t] = s[t ^ 16];",
    "a barrier of some lanes": "s[t] = t; if (lane < 16) { __syncwarp(0xffff); out[t] = s[t ^ 8]; }",
    "halves of a warp": f"{HALVES} s[t] = t; half.sync(); out[t] = s[t ^ 8];",
    "two named barriers": f"s[t] = t; {NAMED.format(3)} out[t] = s[t ^ 32]; {NAMED.format(4)} s[t ^ 32] = 1; {NAMED.format(3)}",
    "an arrival after the write": f"if (warp == 0) {{ s[lane] = t; {ARRIVES} }} else {{ {NAMED.format(1)} out[t] = s[lane]; }}",
    "a phase": f"s[t] = t; {ARRIVE} {WAIT} out[t] = s[t ^ 32];",
    "the arrival of a first lane": f"s[t] = t; __syncwarp(); if (lane < 2) {ARRIVE_MANY.format(16)} {WAIT} out[t] = s[t ^ 32];",
    "the wait of a first lane": f"s[t] = t; {ARRIVE} if (lane == 0) {WAIT} __syncwarp(); out[t] = s[t ^ 32];",
    "a first lane waits and writes": f"out[t] = s[t]; {ARRIVE} if (t == 5) {{ {WAIT} for (int i = 0; i < 64; ++i) s[i] = i; }}",
    "an arrival for what one lane has written": f"if (lane == 3) s[t] = t; if (lane == 3) {ARRIVE_MANY.format(32)} {WAIT} out[t] = s[35];",
    "a flag with fences": "if (t == 0) { s[0] = 1; __threadfence_block(); *(volatile int*)&flag = 1; }\n"
    "if (t == 32) { while (!*(volatile int*)&flag); __threadfence_block(); s[1] = s[0]; }",
    "a flag by release and acquire": "cuda::atomic_ref<int, cuda::thread_scope_block> f(flag);\n"
    "if (t == 0) { s[0] = 1; f.store(1, cuda::memory_order_release); }\n"
    "if (t == 32) { while (!f.load(cuda::memory_order_acquire)); s[1] = s[0]; }",
    "a flag of a warp's first lane": "if (t < 32) { s[t] = t; __syncwarp(); if (t == 0) { __threadfence_block(); "
    "*(volatile int*)&flag = 1; } }\nelse { if (t == 32) { while (!*(volatile int*)&flag); __threadfence_block(); } "
    "__syncwarp(); out[t] = s[t - 32]; }",
    "a sum by compare and swap": "add(&sum, t); __syncthreads(); s[t] = (int)sum;",
    "a histogram": "atomicAdd(&s[t % 7], 1); __syncthreads(); out[t] = s[t % 7];",
    "places by an atomic": "int place = atomicAdd(&flag, 1); s[place] = t; __syncthreads();",
    "a lock": "if (lane == 0) { while (atomicCAS(&flag, 0, 1)); __threadfence_block(); sum += 1; __threadfence_block();"
    " atomicExch(&flag, 0); }",
    "volatile lanes": "volatile int* v = s; v[t] = t; __syncwarp(); int x = lane < 31 ? v[t + 1] : 0; __syncwarp(); v[t] += x;",
    "the same value by all": "s[5] = 7;",
    "reads by all": "int x = 0; for (int i = 0; i < 64; ++i) x += s[i]; __syncthreads(); s[t] = x;",
}


def found_in_a_block(body: str, order: str | int = "forward") -> tuple[str, ...]:
    includes = "#include <cooperative_groups.h>\n" * ("cooperative_groups" in body)
    includes += "#include <cuda/atomic>\n" * ("cuda::" in body)
    out = np.zeros(64, i32)
    return emulate(SHARED % (includes, body), {"out": out}, {}, block=64, order=order, races=True).races


@pytest.mark.parametrize("order", ORDERS)
def test_what_nothing_orders_in_a_block_is_reported(order):
    races_of = {name: found_in_a_block(body, order) for name, body in SHARED_RACES.items()}
    assert not [name for name, races in races_of.items() if not any("race on shared memory" in race for race in races)]


@pytest.mark.parametrize("mask, races", [("0xffff0000u", 1), ("~0u", 0)])
def test_lanes_that_have_ended_took_part_if_they_are_named(mask, races):
    source = f"""extern "C" __global__ void k(int* out) {{
  __shared__ int s[32];
  int t = threadIdx.x;
  if (t < 16) {{ s[t] = t; __syncwarp(0xffff); return; }}
  __syncwarp({mask});
  out[t] = s[t - 16];
}}"""
    assert len(emulate(source, {}, {"out": (32, i32)}, block=32, races=True).races) == races


@pytest.mark.parametrize("order", ORDERS)
def test_what_something_orders_in_a_block_is_not(order):
    assert not {name: races for name, body in SHARED_RIGHT.items() if (races := found_in_a_block(body, order))}


COMPILER_OF_CLUSTERS = [option.replace("compute_80", "compute_90") for option in OPTIONS]
CLUSTER = """#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* out) {
  auto cluster = cooperative_groups::this_cluster();
  __shared__ int s[64];
  int t = threadIdx.x, *there = cluster.map_shared_rank(s, cluster.block_rank() ^ 1), *here = out + 64 * blockIdx.x;
  BODY
  cluster.sync();
}"""
ARRIVES_RELAXED = 'asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");'
WAITS = "cluster.barrier_wait();"
CLUSTER_RACES = {
    "a barrier of the block": "s[t] = t; __syncthreads(); here[t] = there[t];",
    "no wait": f"s[t] = t; cluster.barrier_arrive(); here[t] = there[t]; {WAITS}",
    "a relaxed arrival": f"s[t] = t; {ARRIVES_RELAXED} {WAITS} here[t] = there[t];",
    "a write after the arrival": f"cluster.barrier_arrive(); s[t] = t; {WAITS} here[t] = there[t];",
    "a write before the other has read": "s[t] = t; cluster.sync(); here[t] = there[t]; s[t] = 5;",
    "no barrier at the end": "s[t] = t; cluster.sync(); here[t] = there[t]; return;",
    "no barrier at the beginning": "there[t] = t; cluster.sync(); here[t] = s[t];",
    "another warp's arrival": f"s[t] = t; if (t < 32) cluster.barrier_arrive(); else {ARRIVES_RELAXED} {WAITS} here[t] = there[t ^ 32];",
}
CLUSTER_RIGHT = {
    "a barrier of the cluster": "s[t] = t; cluster.sync(); here[t] = there[t ^ 32];",
    "an arrival, and a wait later": f"s[t] = t; cluster.barrier_arrive(); here[t] = 3; {WAITS} here[t] += there[t ^ 32];",
    "two barriers": "s[t] = t; cluster.sync(); here[t] = there[t]; cluster.sync(); s[t ^ 32] = 5;",
    "a relaxed arrival after a fence": f"s[t] = t; __syncthreads(); cluster.sync(); {ARRIVES_RELAXED} {WAITS} here[t] = there[t];",
    "one warp writes and releases": f"if (t < 32) {{ s[t] = t; cluster.barrier_arrive(); }} else {ARRIVES_RELAXED} {WAITS} here[t] = there[t & 31];",
    "what the block has written": "s[t] = t; __syncthreads(); here[t] = s[t ^ 32];",
}


def found_in_a_cluster(body: str, order: str | int) -> tuple[str, ...]:
    source = CLUSTER.replace("BODY", body)
    outputs, shape = {"out": ((256,), i32)}, {"grid": 4, "block": 64, "entry": "k"}
    return emulate(source, {}, outputs, **shape, compiler=COMPILER_OF_CLUSTERS, order=order, races=True).races


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_cluster(order):
    assert not [name for name, body in CLUSTER_RACES.items() if not found_in_a_cluster(body, order)]
    assert not {name: races for name, body in CLUSTER_RIGHT.items() if (races := found_in_a_cluster(body, order))}


READERS = """__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void k(int* out) {
  __shared__ int s[128]; __shared__ unsigned long long bar;
  int t = threadIdx.x, warp = t / 32;
  s[t] = t;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], COUNT;" :: "r"(at(&bar)));
  __syncthreads();
  if (warp) { out[t] = s[0] + s[127 - t]; if (warp != SILENT) { ARRIVE } }
  else { WAIT s[t] = s[127 - t] = s[0] = -1; }
}"""
BY_BARRIER = {
    "ARRIVE": 'asm volatile("bar.arrive 1, COUNT;" ::: "memory");',
    "WAIT": NAMED.format(1).replace("64", "COUNT"),
}


@every("order", ORDERS)
@every("by", [BY_BARRIER, {"ARRIVE": ARRIVE, "WAIT": WAIT}])
@every("silent, races", [(9, False), (2, True), (3, True)])
def test_a_reader_that_does_not_arrive_is_found_among_those_that_do(order, by, silent, races):
    source, count = READERS, 96 - 32 * races + 32 * (by is BY_BARRIER)
    for name, text in {**by, "SILENT": str(silent), "COUNT": str(count)}.items():
        source = source.replace(name, text)
    assert bool(emulate(source, {}, {"out": (128, i32)}, block=128, order=order, races=True).races) == races
