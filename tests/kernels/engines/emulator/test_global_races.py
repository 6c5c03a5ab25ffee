"""Data races on global memory: what nothing orders is reported with both lines and threads, what something orders is not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.emulated import emulate, needs_nvrtc

pytestmark = needs_nvrtc
i32 = np.int32
ORDERS = ["forward", "reversed", 1]


def found(body: str, grid: int = 4, block: int = 64, order: str | int = "forward") -> tuple[str, ...]:
    """Returns the races of a kernel on out[256] and flag[4], zeros, and in[256], 0 to 255. Its body begins at line 4."""
    includes = "#include <cooperative_groups.h>\n" * ("cooperative_groups" in body) + "#include <cuda/atomic>\n" * (
        "cuda::" in body
    )
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
    "a barrier of the grid": "out[i] = i;\ncooperative_groups::this_grid().sync();\nin[i] = out[255 - i];\n",
    "a barrier of the block": "if (b == 0) { out[t] = t; __syncthreads(); in[t] = out[63 - t]; }\n",
    "a barrier of the warp": "if (b == 0 && t < 32) { out[t] = t; __syncwarp(); in[t] = out[31 - t]; }\n",
    "the same value by all": "if (t < 8) *flag = 7;\n",
    "a lock": (
        "if (t == 0) {\nwhile (atomicCAS(flag, 0, 1));\n__threadfence();\nout[0] += 1;\n__threadfence();\natomicExch(flag, 0);\n}\n"
    ),
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


def test_a_report_names_lines_threads_element_and_cure():
    (race,) = found(RACES["a count by load and store"][0], grid=2, block=32)
    assert race.startswith("k, kernel.cu:5: data race on global memory: thread (")
    assert "writes out[" in race and "reads at kernel.cu:4" in race and "an atomic" in race


def test_a_pair_of_lines_is_reported_once():
    assert len(found("for (int r = 0; r < 5; ++r) out[(i + r) % 9] = i;\n")) == 1
