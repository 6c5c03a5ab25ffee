"""Clusters: ranks, another block's shared memory, the cluster's barrier."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hopper import run_hopper

pytestmark = needs_nvrtc
i32 = np.int32
SPECIAL = """__device__ int special(int n) { int v = 0;
  if (n == 0) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v)); if (n == 1) asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v));
  if (n == 2) asm("mov.u32 %0, %%clusterid.x;" : "=r"(v)); if (n == 3) asm("mov.u32 %0, %%clusterid.y;" : "=r"(v));
  if (n == 4) asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(v)); if (n == 5) asm("mov.u32 %0, %%nclusterid.x;" : "=r"(v));
  return v; }
"""


def test_ranks_and_numbers():
    body = "  if (threadIdx.x < 6) out[(blockIdx.y * gridDim.x + blockIdx.x) * 6 + threadIdx.x] = special(threadIdx.x);"
    outputs = {"out": ((4, 6, 6), i32)}
    run = run_hopper(body, {"int* out": "out"}, {}, outputs, "__cluster_dims__(3, 2, 1)", SPECIAL, grid=(6, 4))
    for y in range(4):
        for x in range(6):
            expected = [x % 3 + y % 2 * 3, 6, x // 3, y // 2, y % 2, 2]
            np.testing.assert_array_equal(run["out"][y, x], expected)


ARRIVE = 'asm volatile("barrier.cluster.arrive;");'
EXCHANGE = """
  __shared__ int mine; unsigned rank = cluster_rank(), at, far; int seen;
  if (threadIdx.x == 0) mine = 100 + blockIdx.x;
  FIRST
  at = shared_address(&mine);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(at), "r"(TARGET));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(seen) : "r"(far) : "memory");
  if (threadIdx.x == 0) out[blockIdx.x] = seen;
  LAST
"""


def exchanged(first="cluster_barrier();", target="(rank + 1) % 4", last="cluster_barrier();", order="forward"):
    body = EXCHANGE.replace("FIRST", first).replace("TARGET", target).replace("LAST", last)
    outputs = {"out": (8, i32)}
    return run_hopper(body, {"int* out": "out"}, {}, outputs, "__cluster_dims__(4, 1, 1)", grid=8, order=order)["out"]


@pytest.mark.parametrize("order", ["forward", "reversed", 3])
def test_reads_the_next_block(order):
    np.testing.assert_array_equal(exchanged(order=order), [101, 102, 103, 100, 105, 106, 107, 104])


def test_only_loads_from_the_own_block_are_counted():
    """An H200 counted so for softmax/06_cluster.cu: one pass for each warp whose lanes load from its own block."""

    def counted(target: str) -> tuple[int, int, int]:
        body = EXCHANGE.replace("FIRST", "cluster_barrier();").replace("LAST", "cluster_barrier();")
        body = body.replace("TARGET", target)
        run = run_hopper(body, {"int* out": "out"}, {}, {"out": (8, i32)}, "__cluster_dims__(4, 1, 1)", grid=8)
        total = run.counters.total
        return total["shared_requests_ld"], total["wavefronts_ld"], total["bank_conflicts_ld"]

    assert counted("rank") == (8, 8, 0)
    assert counted("(rank + 1) % 4") == (0, 0, 0)
    assert counted("threadIdx.x % 4") == (8, 8, 0)  # a quarter of each warp's lanes
    assert counted("rank / 2 * 3") == (4, 4, 0)  # the first and the last block load from themselves


@pytest.mark.parametrize(
    "change, message",
    [
        ({"target": "4"}, r"kernel.cu:6: block 4 of a cluster of 4"),
        (
            {"first": "if (rank == 1) return; cluster_barrier();"},
            "this access is to block 1 of the cluster, which has ended",
        ),
        (
            {"first": "if (rank == 3) cluster_barrier(); else BAR"},
            r"deadlock: the cluster's barrier waits for 96 threads, such",
        ),
        ({"first": f"if (rank) {{ {ARRIVE} {ARRIVE} }}"}, "a second arrival in one phase"),
    ],
)
def test_wrong_uses(change, message):
    change = {name: text.replace("BAR", 'asm volatile("bar.sync 1, 64;");') for name, text in change.items()}
    with pytest.raises(EmulatorError, match=message):
        exchanged(**change)


def test_a_grid_is_of_whole_clusters():
    with pytest.raises(EmulatorError, match=r"not made of clusters of \(4, 1, 1\)"):
        run_hopper("", {"int* out": "out"}, {}, {"out": (1, i32)}, "__cluster_dims__(4, 1, 1)", grid=6)


def test_atomics_and_stores_reach_another_block():
    body = """
  __shared__ int sum; unsigned far;
  if (threadIdx.x == 0) sum = 0;
  cluster_barrier();
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(far) : "r"(shared_address(&sum)));
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(far), "r"(blockIdx.x + 1) : "memory");
  cluster_barrier();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
"""
    run = run_hopper(body, {"int* out": "out"}, {}, {"out": (4, i32)}, "__cluster_dims__(2, 1, 1)", grid=4)
    np.testing.assert_array_equal(run["out"], [32 * 3, 0, 32 * 7, 0])


SEND = """
  __shared__ int inbox[64]; __shared__ Barrier full; unsigned far, bar;
  if (threadIdx.x == 0) { init_barrier(&full, 1); publish_barriers(); arrive_expecting(&full, BYTES); }
  cluster_barrier();
  unsigned peer = cluster_rank() ^ 1;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(shared_address(inbox + 2 * threadIdx.x)), "r"(peer));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(shared_address(&full)), "r"(peer));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
    :: "r"(far), "r"(blockIdx.x * 100 + threadIdx.x), "r"(-1), "r"(bar) : "memory");
  wait(&full, 0);
  out[blockIdx.x * 64 + threadIdx.x] = inbox[threadIdx.x];
  out[blockIdx.x * 64 + 32 + threadIdx.x] = inbox[32 + threadIdx.x];
  cluster_barrier();
"""


def test_asynchronous_stores_report_their_bytes():
    def sent(nbytes: int) -> np.ndarray:
        body, outputs = SEND.replace("BYTES", str(nbytes)), {"out": ((2, 32, 2), i32)}
        run = run_hopper(body, {"int* out": "out"}, {}, outputs, "__cluster_dims__(2, 1, 1)", grid=2, races=True)
        assert run.races == ()
        return run["out"]

    out = sent(256)
    np.testing.assert_array_equal(out[..., 1], -1)
    np.testing.assert_array_equal(out[..., 0], [[100 + n for n in range(32)], list(range(32))])
    with pytest.raises(EmulatorError, match=r"deadlock: the mbarrier at full.0. .* waits for 8 bytes of copies"):
        sent(264)
