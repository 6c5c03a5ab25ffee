"""Our kernels on several emulated GPUs: sums bit for bit those of the schedule, bytes of each link, missing GPUs, faults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.collectives import emulated, executor, kernels, schedules
from kernels.collectives.emulated import Ranks
from kernels.collectives.executor import CollectiveError
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALL_REDUCE, ITEM, NAIVE, ONE_SHOT, RING, TREE, TWO_SHOT
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, device_memory, launch_ranks
from kernels.engines.emulator.links import Links
from kernels.model.program import RuleError

needs_nvrtc = pytest.mark.skipif(compile.version() is None, reason="NVRTC is not installed")
algorithms = st.sampled_from(sorted(KERNELS))


def check(
    algorithm: str, ranks: int, elements: int, runs: int = 2, patience: int = emulated.PATIENCE, **settings_: int
) -> None:
    """Runs a kernel some times on the same memories. Each result must be that of the schedule."""
    plan = schedules.schedule(ALL_REDUCE, algorithm, ranks, elements)
    arrays = executor.inputs(plan.shape)
    expected = [a.tobytes() for a in executor.execute(plan, arrays)]
    gpus = Ranks(algorithm, arrays, patience)
    for _ in range(runs):
        run = gpus.run(**settings_)
        executor.verify(plan.shape, arrays, run.results)
        assert [a.tobytes() for a in run.results] == expected
        assert run.link_bytes == {link: ITEM * n for link, n in plan.link_elements().items()}


@settings(max_examples=8)
@given(algorithms, st.sampled_from(kernels.COMPILED_RANKS), st.integers(1, 40), st.integers(0, 2))
def test_a_kernel_does_what_its_schedule_says(algorithm, ranks, elements, seed):
    check(algorithm, ranks, elements, runs=1, blocks=1, threads=64, seed=seed)


@pytest.mark.parametrize("algorithm", KERNELS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_blocks_with_vector_accesses_run_again(algorithm, ranks):
    check(algorithm, ranks, 4 * ranks * 9, blocks=3, threads=64)


@needs_nvrtc
def test_a_ring_moves_its_chunks_slice_by_slice():
    check(RING, 3, 3 * 4 * 11, runs=2, blocks=2, threads=64, SLICE=2)


@pytest.mark.parametrize("ranks", kernels.COMPILED_RANKS)
def test_a_tree_adds_up_and_passes_down_over_any_number_of_gpus(ranks):
    check(TREE, ranks, 4 * ranks * 5, runs=2, blocks=2, threads=64, seed=ranks)
    check(TREE, ranks, 13, runs=1, blocks=1, threads=64)


@needs_nvrtc
@pytest.mark.parametrize("ranks", [3, 6])
def test_slices_of_a_tree_travel_up_while_others_travel_down(ranks):
    check(TREE, ranks, 4 * ranks * 11, runs=2, blocks=2, threads=64, seed=1, SLICE=3)


def test_each_gpu_of_a_tree_signals_only_its_parent_and_children():
    arrays = [np.ones(64, np.float32)] * 4
    flags = Ranks(TREE, arrays).run(blocks=2, threads=64).flag_bytes
    links = {(1, 0), (2, 0), (3, 2)}
    assert flags == {pair: 2 * 4 for a, b in links for pair in ((a, b), (b, a))}


def test_flags_are_few():
    """Of a ring each rank signals one neighbour its readiness, and the other each slice of each step."""
    arrays = [np.ones(64, np.float32)] * 4
    flags = Ranks(RING, arrays).run(blocks=2, threads=64).flag_bytes
    assert flags == {(r, (r + 1) % 4): 2 * 4 * 6 for r in range(4)} | {(r, (r - 1) % 4): 2 * 4 for r in range(4)}


@pytest.mark.parametrize("algorithm", KERNELS)
def test_a_missing_gpu_is_an_error_after_the_patience(algorithm):
    gpus = Ranks(algorithm, [np.ones(16, np.float32)] * 2, patience=300)
    with pytest.raises(CollectiveError, match=r"rank 0 waited in vain for another GPU \(block 0\)"):
        gpus.run(blocks=1, threads=64, missing=1)


@needs_nvrtc
@pytest.mark.parametrize(
    ("algorithm", "old", "new"),
    [
        (RING, "late = !arrived(own + block + DONE", "late = false && !arrived(own + block + DONE"),
        (TWO_SHOT, "in.of[peer][i + u * stride]", "in.of[0][i + u * stride]"),
        (ONE_SHOT, "peer < RANKS; ++peer) sum", "peer < RANKS - 1; ++peer) sum"),
        (NAIVE, "if (rank == 0) add_for_all", "if (rank == 1) add_for_all"),
        (TREE, "child < RANKS; child *= 2", "child < 2; child *= 2"),
        (TREE, "late = !arrived(own + block + READY", "late = false && !arrived(own + block + READY"),
        (TREE, "return rank % 2 == 1 || rank + 1 >= RANKS", "return true || rank + 1 >= RANKS"),
    ],
)
def test_a_fault_in_a_kernel_is_noticed(algorithm, old, new, monkeypatch):
    original = sources.translation_unit
    ranks = 4 if algorithm == TREE else 3  # of three GPUs no one is between two others
    few = {"runs": 1, "blocks": 1, "threads": 64, "patience": 20_000}  # a fault may make a rank wait in vain
    check(algorithm, ranks, ranks * 4 * 3, **few, seed=0)

    def faulty(path: str) -> str:
        assert original(path).count(old) == 1
        return original(path).replace(old, new)

    monkeypatch.setattr(sources, "translation_unit", faulty)
    with pytest.raises((CollectiveError, EmulatorError, AssertionError)):
        for seed in range(8):  # orders of the warps: a missing wait is harmless in some
            check(algorithm, ranks, ranks * 4 * 3, **few, seed=seed)


def test_a_kernel_refuses_what_it_cannot_run():
    addresses = {name: [0] * 9 for name in kernels.buffers(2, 8)}
    with pytest.raises(RuleError, match="these kernels run on 2 to 8 GPUs, got 9"):
        KERNELS[RING].arguments(0, 9, 72, addresses)
    with pytest.raises(RuleError, match="elements must be at most"):
        KERNELS[RING].arguments(0, 2, 2**31 - 1, addresses)


def test_every_kernel_is_compiled_ahead():
    assert {source for source, _, _ in kernels.compiled()} == {
        path for path in sources.paths() if path.startswith("collectives/") and path.endswith(".cu")
    }


def test_grids_have_enough_blocks_and_no_more_than_the_flags():
    for kernel in KERNELS.values():
        assert kernel.blocks(4, 1) == 1
        assert kernel.blocks(4, 2**28, most=10**6) == kernels.MAX_BLOCKS


# -- the emulator's several grids ---------------------------------------------------------------------
COPY = """
extern "C" __global__ void copy(const float* from, float* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i] + gridDim.x;
}
"""


@needs_nvrtc
def test_each_rank_has_its_own_arguments_and_block_numbers():
    ptx = compile.compile_ptx(COPY, "copy.cu")
    arrays = {f"{name}{r}": np.arange(40, dtype=np.float32) + r for r in range(3) for name in "xy"}
    memory = device_memory(arrays, [f"x{r}" for r in range(3)])
    owner = {name: int(name[1]) for name in arrays}
    links = Links(memory, owner, 3)
    args = [(f"x{(r + 1) % 3}", f"y{r}", np.int32(40 - r)) for r in range(3)]
    launch_ranks(ptx, "copy", (2, 1, 1), (32, 1, 1), args, memory, links)
    for r in range(3):
        np.testing.assert_array_equal(memory.array(f"y{r}")[: 40 - r], arrays[f"x{(r + 1) % 3}"][: 40 - r] + 2)
    assert links.crossed(arrays) == {((r + 1) % 3, r): 4 * (40 - r) for r in range(3)}
    assert links.crossed(["y0"]) == {}


@needs_nvrtc
def test_a_fault_names_the_rank():
    memory = device_memory({"x": np.ones(8, np.float32), "y": np.ones(8, np.float32)}, ["x"])
    args = [("x", "y", np.int32(8)), ("x", "y", np.int32(9))]
    ptx = compile.compile_ptx(COPY, "copy.cu")
    with pytest.raises(EmulatorError, match=r"thread \(8, 0, 0\) of block \(0, 0, 0\) of rank 1"):
        launch_ranks(ptx, "copy", (1, 1, 1), (32, 1, 1), args, memory, options=Options(count=False))


def test_stored_kernels_need_no_compiler(monkeypatch):
    def missing(*args):
        raise compile.CompilerMissing("no compiler")

    monkeypatch.setattr(precompiled.compile, "compile_ptx", missing)
    assert emulated.Ranks(RING, [np.ones(8, np.float32)] * 2).run(blocks=1, threads=64).results[0][0] == 2
