"""The CPU loops: results at any shape, refusals on other engines, and traffic compared with a simulated cache."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, cuda, emulator
from kernels.gemm import cpu_ladder
from kernels.gemm.cpu_traffic import FLOAT, traffic, traffic_ratio
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.machine import memory_levels, processor
from kernels.machine.memory_levels import caches
from kernels.machine.processor import THREADS
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.records.row import kernel_digest
from kernels.runner import compare, run
from kernels.sweep import Sweep
from tests.helpers import lru

RUNGS = [rung.name for rung in cpu_ladder.LADDER.rungs]
S = GemmShape(37, 29, 23)
SHORT_BUDGET = Budget(samples=3, seconds=0.1, min_samples=1, warm_up_s=0)
extent = st.integers(1, 70)


def set_cores(monkeypatch, cores):
    monkeypatch.setattr(processor, "cores", lambda: cores)


# -- results -------------------------------------------------------------------------------------------
@settings(max_examples=8)
@given(st.builds(GemmShape, extent, extent, extent), st.sampled_from(cpu_ladder.BLOCKS[:9]), st.data())
def test_every_rung_agrees_with_float64_at_any_shape(s, block, data):
    threads = data.draw(st.sampled_from([n for n in THREADS if n <= processor.cores()]))
    tiles = {"BLOCK": block, "THREADS": threads}
    for result in compare(RUNGS, s, engine="cpu", tiles=tiles, measure=False):
        assert result.output.shape == (s.M, s.N) and result.output.dtype == np.float32
        assert result.error < 1e-6  # compare() itself verified each element


@pytest.mark.parametrize("n", [64, 65])
def test_blocks_that_divide_the_matrix_or_not(n):
    rng = np.random.default_rng(n)
    A, B = rng.integers(-8, 9, (2, n, n)).astype(np.float32)  # small whole numbers: every sum is exact
    for block in (b for b in cpu_ladder.BLOCKS if b <= 128):
        tiles = {"BLOCK": block, "THREADS": processor.cores()}
        out = run("loops/blocked", GemmShape(n, n, n), {"A": A, "B": B}, "cpu", tiles, measure=False).output
        assert (out == A @ B).all()


def test_loops_add_in_float32_in_the_written_order():
    s = GemmShape(1, 1, 3)
    A, B = np.array([[2.0**24, 1.0, 1.0]]), np.ones((3, 1))
    for name in RUNGS[:3]:  # (2^24 + 1) + 1: each 1 is lost, unlike in 2^24 + (1 + 1)
        rung = LADDERS["loops"].rung(name)
        program = rung.build(s, rung.default_tiles)
        inputs = {name: array.astype(np.float32) for name, array in (("A", A), ("B", B))}
        assert cpu.open(program, inputs).verify_run()[0, 0] == 2.0**24


def test_scratch_of_each_thread_is_measured_without_compiling():
    tiles = {"BLOCK": 64, "THREADS": processor.cores()}
    for r in compare(RUNGS[:3], S, engine="cpu", tiles=tiles, budget=SHORT_BUDGET):
        scratch = processor.cores() * 3 * 64 * 64 * FLOAT if r.rung == "loops/blocked" else 0
        assert r.measurement.workspace_bytes == r.predicted.workspace_bytes == scratch
        assert r.measurement.median_ms < 1000


# One instruction that multiplies several floats, on x86 and on ARM.
PACKED = re.compile(r"\bv?mulps\b|\bfmul\s+v\d+\.[24]s|\bfml[as]\s+v\d+\.[24]s|\bvfn?m(add|sub)\d+ps\b")
MULTIPLY = re.compile(r"\bv?mulss\b|\bfmul\b|\bfmadd\b|mulps|ps\b")


@pytest.mark.parametrize(("name", "vectors"), [("naive", False), ("reordered", True), ("blocked", True)])
def test_compiler_vectorizes_the_commented_loops(name, vectors):
    from numba import njit

    from kernels.gemm import cpu_loops

    fresh = njit(parallel=True)(cpu_loops.LOOPS[name].py_func)
    matrix, scratch = np.ones((3, 8, 8), np.float32), np.ones((3, 1, 8, 8), np.float32)
    fresh(*matrix, *(scratch if name == "blocked" else ()))
    code = "\n".join(fresh.inspect_asm().values())
    assert MULTIPLY.search(code)
    assert bool(PACKED.search(code)) == vectors


# -- threads -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", RUNGS)
def test_too_many_threads_for_the_machine_are_named(name, monkeypatch):
    set_cores(monkeypatch, 4)
    rung = LADDERS["loops"].rung(name)
    assert rung.check(S, {"THREADS": 4})["THREADS"] == 4
    with pytest.raises(RuleError, match=r"THREADS <= 4 \(the cores that this process may use\), got 8"):
        rung.check(S, {"THREADS": 8})
    with pytest.raises(RuleError, match="THREADS must be one of"):
        rung.check(S, {"THREADS": 0})


@pytest.mark.skipif(processor.cores() < 2, reason="one core has nothing to share")
def test_thread_count_is_set_in_numba_and_the_library():
    import numba

    from kernels.gemm import cpu_loops

    before = [lib.num_threads for lib in cpu_loops._libraries().lib_controllers]
    numba_threads, library_threads = [], []
    for threads in (1, 2):
        A, B, C = np.ones((3, 8, 8), np.float32)
        cpu_loops.run("naive", threads, A, B, C)
        numba_threads.append(numba.get_num_threads())
        with cpu_loops.library(threads):
            library_threads.append([lib.num_threads for lib in cpu_loops._libraries().lib_controllers])
    assert numba_threads == [1, 2] and library_threads == [[1] * len(before), [2] * len(before)] and before
    cpu_loops.run("blas", 1, A, B, C)
    assert [lib.num_threads for lib in cpu_loops._libraries().lib_controllers] == before  # restored


def test_library_without_thread_count_is_named(monkeypatch):
    from kernels.gemm import cpu_loops

    class Accelerate:
        lib_controllers = ()

    monkeypatch.setattr(cpu_loops, "_libraries", Accelerate)
    with pytest.raises(RuleError, match="loops/blas: NumPy's BLAS here takes no number of threads"):
        run("loops/blas", S, engine="cpu", measure=False)


# -- rules -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "shape", "rule"),
    [
        ("naive", S.with_(dtype="fp16"), "dtype must be fp32, got fp16"),
        ("reordered", S.with_(alpha=2.0), "alpha must be 1 and beta 0, got 2 and 0"),
        ("blas", S.with_(beta=1.0), "alpha must be 1 and beta 0, got 1 and 1"),
        ("naive", GemmShape(2048, 2048, 2048), r"M\*N\*K <= 2,147,483,648 .* got 8,589,934,592"),
        ("reordered", GemmShape(4096, 4096, 4096), r"M\*N\*K <= 8,589,934,592"),
    ],
)
def test_broken_rule_is_named(name, shape, rule):
    with pytest.raises(RuleError, match=rule):
        run(f"loops/{name}", shape, engine="cpu")


def test_missing_numba_is_explained(monkeypatch):
    monkeypatch.setattr(processor, "_numba_missing", lambda: True)
    with pytest.raises(RuleError, match="Numba is not installed"):
        run("loops/naive", S, engine="cpu")


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("engine", [cuda, emulator])
def test_cuda_and_emulator_engines_refuse_them(name, engine):
    rung = LADDERS["loops"].rung(name)
    program = rung.build(S, rung.default_tiles)
    with pytest.raises(RuleError, match=rf"{program.steps[0].name} is loops for the processor: the cpu engine"):
        engine.open(program, {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers}, None)


def test_runner_refuses_other_engines():
    with pytest.raises(RuleError, match="loops/naive runs on the cpu engine only, not on emulator"):
        run("loops/naive", S, engine="emulator")


def test_gpu_recordings_omit_them():
    of = {engine: {g.ladder.name for g in Sweep(engine, ["square-64"]).groups()} for engine in ("cuda", "cpu")}
    assert "loops" in of["cpu"] and "loops" not in of["cuda"] and "gemm" in of["cuda"]


def test_digests_of_loops_differ():
    rung = LADDERS["loops"].rung
    digests = [kernel_digest(rung(n).build(S, rung(n).default_tiles)) for n in RUNGS]
    assert len(set(digests)) == len(RUNGS)


# -- traffic -----------------------------------------------------------------------------------------------
def cases(order: str, count: int = 25):
    """Yields (shape, floats of a line, lines of the cache, block) at which a few lines do not change the formula.

    A cache two thirds as large or half as large again gives the same traffic.
    """
    rng = random.Random(order)
    while count:
        s = GemmShape(*(rng.randint(4, 28) for _ in range(3)))
        floats, lines, block = (
            rng.choice((2, 4, 8)),
            rng.choice((6, 8, 12, 16, 24, 32, 64, 128, 400)),
            rng.choice((2, 3, 4, 6, 8)),
        )
        block = min(block, s.M, s.N, s.K)
        counts = {round(predicted_lines(order, s, floats, round(lines * f), block)) for f in (0.67, 1, 1.5)}
        if len(counts) == 1:
            count -= 1
            yield s, floats, lines, block


def predicted_lines(order: str, s: GemmShape, floats: int, lines: int, block: int) -> float:
    """Returns the predicted traffic in lines."""
    line_bytes = floats * FLOAT
    return traffic(order, s, line_bytes, lines * line_bytes, block) / line_bytes


def simulated_lines(order: str, s: GemmShape, floats: int, lines: int, block: int) -> int:
    accesses = lru.blocked(s, block) if order == "blocked" else getattr(lru, order)(s)
    return lru.moved(accesses, lines, floats)


@pytest.mark.parametrize(("order", "max_deviation"), [("naive", 0.15), ("reordered", 0.15), ("blocked", 0.25)])
def test_formula_agrees_with_a_simulated_cache(order, max_deviation):
    deviations = sorted(abs(predicted_lines(order, *case) / simulated_lines(order, *case) - 1) for case in cases(order))
    assert (
        deviations[len(deviations) // 2] <= 0.02
        and deviations[int(0.9 * len(deviations))] <= 0.12
        and deviations[-1] <= max_deviation
    )


def test_simulator_counts_equal_counts_by_hand():
    s = GemmShape(1, 2, 2)  # lines of one float: A 2, B 4, C 2 in and 2 out
    assert lru.moved(lru.naive(s), 100, 1) == 2 + 4 + 2 * 2
    assert lru.moved(lru.naive(s), 2, 1) == 4 + 4 + 2 * 2  # with two lines A does not stay in the cache
    assert lru.moved(iter([("x", 0, True), ("x", 1, False), ("x", 2, False)]), 1, 2) == 3  # 0 is written back


def test_traffic_of_another_order_differs():
    """The check above can fail: the traffic of the naive loops is not that predicted for the reordered ones."""
    s, floats, lines = GemmShape(20, 24, 28), 8, 12
    assert predicted_lines("reordered", s, floats, lines, 4) < 0.5 * simulated_lines("naive", s, floats, lines, 4)


@settings(max_examples=20)
@given(st.integers(8, 2048), st.sampled_from(cpu_ladder.BLOCKS), st.sampled_from([2**15, 2**20, 2**25]))
def test_every_order_moves_the_matrices_at_least_once(n, block, cache):
    s = GemmShape(n, n, n)
    for order in ("naive", "reordered", "blocked"):
        assert traffic(order, s, 64, cache, block) >= 0.999 * FLOAT * 4 * n * n  # A, B, C in and out
    assert traffic_ratio(s, block, 64, cache) == pytest.approx(
        traffic("blocked", s, 64, cache, block) / traffic("naive", s, 64, cache)
    )


def test_traffic_is_inverse_to_block_if_three_squares_fit():
    s, L1 = GemmShape(1024, 1024, 1024), 2**15
    for block in (16, 32):  # lines of 16 floats: whole ones
        moved = traffic("blocked", s, 64, L1, block)
        assert moved == pytest.approx(FLOAT * 2 * 1024**3 / block, rel=0.05)
    assert traffic("naive", s, 64, L1) == pytest.approx(64 * 1024**3, rel=0.1)  # a line for each element of B
    assert traffic_ratio(s, 32, 64, L1) < 0.01 < traffic_ratio(s, 256, 64, L1)


def test_cost_is_the_traffic_beyond_the_last_cache(monkeypatch):
    from kernels.machine.memory_levels import Level

    small = Level("L1 cache", 2**15, "each core", "said here", "", 64)
    rung, s = LADDERS["loops"].rung, GemmShape(512, 512, 512)
    for levels, expected in (((small,), round(traffic("naive", s, 64, 2**15))), ((), s.bytes)):
        monkeypatch.setattr(memory_levels, "caches", lambda levels=levels: levels)
        cost = rung("loops/naive").cost(s, rung("loops/naive").build(s, {"THREADS": 1}))
        assert (cost.flops, cost.bytes) == (s.flops, expected)
    for cache in caches():
        assert cache.line_bytes and cache.bytes > 2**12
