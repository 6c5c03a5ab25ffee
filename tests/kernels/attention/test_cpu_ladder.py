"""Attention's CPU loops: results at any shape and for any scores, allocated bytes, rules, and traffic compared with a
simulated cache."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import cpu_ladder, cpu_traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.engines import cpu, cuda, emulator
from kernels.ladders import LADDERS
from kernels.machine import memory_levels, processor
from kernels.machine.processor import THREADS, cores
from kernels.machine.timing import Budget
from kernels.model.program import WORKSPACE, RuleError
from kernels.records.row import kernel_digest
from kernels.runner import compare, run, seeded_inputs
from kernels.sweep import Sweep
from tests.helpers import lru
from tests.helpers.hard_scores import CORRUPTED, adversarial
from tests.helpers.lru_attention import accesses
from tests.helpers.rung_runs import computed, verified_output
from tests.helpers.shapes import attention_shapes
from tests.kernels.attention.test_ladder import KINDS, same_where_not_finite

LADDER = LADDERS["attention-loops"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
OUR_RUNGS = ["naive", "blocked", "fused", "flash"]
S = AttentionShape(1, 2, 45, 16, causal=1)
PAPER = ATTENTION_PRESETS["paper-cpu"].shape
SHORT_BUDGET = Budget(samples=3, seconds=0.1, min_samples=1, warm_up_s=0)
# Tiles that do not divide the shapes, wider and narrower than they are high: many tiles per row, and a single one.
SMALL = {"blocked": ({"BLOCK": 8}, {"BLOCK": 256}), "flash": ({"Br": 4, "Bc": 8}, {"Br": 16, "Bc": 4})}
TILED = [(name, tiles) for name in RUNGS for tiles in SMALL.get(name, ({},))]


# -- results -------------------------------------------------------------------------------------------
@settings(max_examples=5)
@given(attention_shapes(max_extent=150, max_d=140), st.data())
def test_every_rung_agrees_with_float64_at_any_shape(s, data):
    threads = [n for n in THREADS if n <= cores()]
    choices = {"BLOCK": cpu_ladder.BLOCKS, "Br": cpu_ladder.SIDES, "Bc": cpu_ladder.SIDES, "THREADS": threads}
    tiles = {name: data.draw(st.sampled_from(values)) for name, values in choices.items()}
    for result in compare([r.name for r in LADDER.rungs], s, engine="cpu", tiles=tiles, measure=False):
        assert result.output.shape == s.qkv_shape and result.output.dtype == np.float32


@pytest.mark.parametrize(("Br", "Bc"), list(product(sorted(cpu_ladder.SIDES), repeat=2)))
def test_every_tile_of_flash_attention(Br, Bc):
    for s in (S.with_(N=131, d=33), AttentionShape(2, 1, 64, 8)):  # more columns than are transposed at a time
        verified_output(cpu, RUNGS["flash"], s, {"Br": Br, "Bc": Bc, "THREADS": cores()})


@pytest.mark.parametrize(("name", "tiles"), TILED)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_scores_stay_finite_and_right(name, tiles, kind):
    for causal in (0, 1):
        shape = S.with_(scale=1.0, causal=causal)
        verified_output(cpu, RUNGS[name], shape, tiles, adversarial(kind, shape))


@pytest.mark.parametrize(("name", "tiles"), TILED)
@pytest.mark.parametrize("case", CORRUPTED)
def test_infinities_and_nans_give_what_the_reference_gives(name, tiles, case):
    name_of_input, index, value = CORRUPTED[case]
    for causal in (0, 1):
        s = AttentionShape(1, 2, 21, 8, causal=causal)
        inputs = seeded_inputs(RUNGS["flash"].build(s, RUNGS["flash"].default_tiles).of_role("input"))
        inputs["Q"][..., 0] = np.abs(inputs["Q"][..., 0]) + 0.1  # so that -infinity times it stays -infinity
        inputs[name_of_input][(..., *index)] = value
        with np.errstate(all="ignore"):
            out, _ = computed(cpu, RUNGS[name], s, tiles, inputs)
            same_where_not_finite(out, LADDER.reference(s, **inputs)[0])


def test_hidden_keys_are_never_read():
    """Puts a NaN in the last key and value: only the last query sees it."""
    inputs = seeded_inputs(RUNGS["flash"].build(S, RUNGS["flash"].default_tiles).of_role("input"))
    for name, tiles in [(name, tiles) for name, tiles in TILED if name != "blas"]:
        clean, _ = computed(cpu, RUNGS[name], S, tiles, inputs)
        changed_inputs = {of: array.copy() for of, array in inputs.items()}
        changed_inputs["K"][:, :, -1], changed_inputs["V"][:, :, -1] = np.nan, np.nan
        out, _ = computed(cpu, RUNGS[name], S, tiles, changed_inputs)
        np.testing.assert_array_equal(out[:, :, :-1], clean[:, :, :-1])
        assert np.isnan(out[:, :, -1]).all()


def test_every_row_is_assigned_once():
    from kernels.attention.cpu_loops import folded

    for turns in (1, 2, 7, 64):
        assert sorted(folded(turn, turns) for turn in range(turns)) == list(range(turns))
    first_thread = [
        folded(turn, 64) for turn in range(32)
    ]  # rows of one of two threads: as many late rows as early ones
    assert abs(sum(first_thread) / 32 - 31.5) <= 0.5


# An instruction that multiplies several floats, on x86 and on ARM; a call of exp for one float, or for several.
PACKED = re.compile(r"\bv?mulps\b|\bfmul\s+v\d+\.[24]s|\bfml[as]\s+v\d+\.[24]s|\bvfn?m(add|sub)\d+ps\b")
EXP, PACKED_EXP = re.compile(r"\bexpf\b"), re.compile(r"svml")


@pytest.mark.parametrize(("name", "vectors"), [("along", False), ("square", True), ("add", True), ("scaled", True)])
def test_compiler_vectorizes_the_commented_loops(name, vectors):
    row, matrix = np.ones(8, np.float32), np.ones((8, 8), np.float32)
    args = {
        "along": (row, row),
        "square": (matrix, matrix, np.float32(1), matrix, matrix, 0),
        "add": (row, matrix, row),
    }
    code = assembly(name, *args.get(name, (row, np.float32(2))))
    assert re.search(r"mul[sp]s|fmul|fmadd|fmla", code) and bool(PACKED.search(code)) == vectors


def test_exponentials_are_not_vectorized():
    code = assembly("exponentials", np.ones(8, np.float32), np.float32(0))
    assert EXP.search(code) and not PACKED_EXP.search(code)


def assembly(name: str, *args) -> str:
    from numba import njit

    from kernels.attention import cpu_loops

    fresh = njit(error_model="numpy")(getattr(cpu_loops, name).py_func)
    fresh(*args)
    return "\n".join(fresh.inspect_asm().values())


# -- allocated bytes -----------------------------------------------------------------------------------
ALLOCATED_BYTES = {"naive": 4_718_592, "blocked": 4_718_592, "fused": 557_056, "flash": 524_288}  # with 8 threads
PROGRAM = """
import json
from kernels import compare
from kernels.machine.timing import Budget
from kernels.attention.presets import ATTENTION_PRESETS
names = [f"attention-loops/{name}" for name in %r]
budget = Budget(samples=1, seconds=0.1, min_samples=1, warm_up_s=0)
results = compare(names, ATTENTION_PRESETS["paper-cpu"].shape, engine="cpu", tiles={"THREADS": 8}, budget=budget)
print(json.dumps([[r.measurement.workspace_bytes, r.measurement.output_bytes, r.predicted.workspace_bytes] for r in results]))
"""


def test_allocated_bytes_equal_prediction():
    """Bytes besides the inputs, at B=1, H=4, N=1024, d=32 and 8 threads, for any number of cores.

    Numba starts as many threads as requested.
    """
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM % OUR_RUNGS],
        env=os.environ | {"NUMBA_NUM_THREADS": "8"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    for name, (workspace, output, predicted_lines) in zip(OUR_RUNGS, json.loads(process.stdout), strict=True):
        assert workspace + output == predicted_lines + output == ALLOCATED_BYTES[name], name


def test_allocated_bytes_follow_the_formula_at_the_available_threads():
    threads, s = cores(), PAPER.with_(N=256)
    expected = {"naive": 4 * s.N**2, "blocked": 4 * s.N**2, "fused": 4 * s.N * threads, "flash": 0}
    for name, scratch in expected.items():
        rung = RUNGS[name]
        r = run(rung.name, s, engine="cpu", tiles={"THREADS": threads}, budget=SHORT_BUDGET)
        assert r.measurement.workspace_bytes == r.predicted.workspace_bytes == scratch
        assert r.measurement.output_bytes == s.bytes // 4 and r.measurement.median_ms > 0


def test_numba_allocates_nothing_on_the_heap():
    """tracemalloc does not measure Numba's own allocator, so this test checks that its count does not change."""
    from numba import njit
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()

    @njit
    def scratch(n):
        return np.empty(n, np.float32).sum()

    def allocated(call) -> int:
        call()
        before = rtsys.get_allocation_stats().mi_alloc
        call()
        return rtsys.get_allocation_stats().mi_alloc - before

    assert allocated(lambda: scratch(10)) >= 1
    for name in OUR_RUNGS:
        rung = RUNGS[name]
        program = rung.build(S, rung.default_tiles)
        session = cpu.open(program, seeded_inputs(program.of_role("input")))
        session.verify_run()
        views = 4  # an array passed to Numba is counted too: Q, K, V, O, and S or rows
        assert allocated(session.run) <= views + len(program.of_role(WORKSPACE)), name


def test_thread_stack_has_space_for_the_largest_tile():
    """The predicted stack bytes fit in the scratch that the loops have there."""
    from kernels.attention import cpu_loops

    assert cpu_loops.DEEP == cpu_traffic.DEEP
    assert max(cpu_ladder.BLOCKS) == cpu_loops.MOST_BLOCK and max(cpu_ladder.SIDES) == cpu_loops.MOST_SIDE
    largest = {"BLOCK": cpu_loops.MOST_BLOCK, "Br": cpu_loops.MOST_SIDE, "Bc": cpu_loops.MOST_SIDE}
    assert cpu_ladder.stack_bytes("blocked", largest) == 4 * cpu_loops.FOR_BLOCK == 32 * 2**10
    floats = cpu_loops.FOR_KEYS + cpu_loops.FOR_TILE + 2 * cpu_loops.MOST_SIDE
    assert cpu_ladder.stack_bytes("flash", largest) == 4 * floats == 81 * 2**10
    assert cpu_ladder.stack_bytes("fused", largest) == 0


# -- rules ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "shape", "tiles", "rule"),
    [
        ("naive", S.with_(dtype="fp16"), {}, "dtype must be fp32, got fp16"),
        ("naive", PAPER.with_(N=8192), {}, r"2\*d\*pairs <= 4,294,967,296 .* got 17,179,869,184"),
        ("flash", PAPER.with_(N=16384), {}, r"2\*d\*pairs <= 17,179,869,184 .* got 68,719,476,736"),
        ("flash", S, {"Bc": 48}, "Bc must be one of 4, 8, 16, 32, 64, 128, got 48"),
        ("blocked", S, {"Br": 4}, "no tile size 'Br'"),
    ],
)
def test_broken_rule_is_named(name, shape, tiles, rule):
    with pytest.raises(RuleError, match=rule):
        run(f"attention-loops/{name}", shape, engine="cpu", tiles=tiles)


@pytest.mark.parametrize("name", RUNGS)
def test_too_many_threads_for_numba_are_named(name, monkeypatch):
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(processor, "cores", lambda: 4)
    assert RUNGS[name].check(S, {"THREADS": 4})["THREADS"] == 4
    with pytest.raises(RuleError, match=r"THREADS <= 4 \(the cores that this process may use\), got 8"):
        RUNGS[name].check(S, {"THREADS": 8})
    for setting, threads in (("8", 8), ("2", 2)):  # more than the cores, and fewer
        monkeypatch.setenv("NUMBA_NUM_THREADS", setting)
        assert RUNGS[name].check(S, {"THREADS": threads})["THREADS"] == threads
        why = rf"THREADS <= {threads} \(the value of NUMBA_NUM_THREADS\), got 16"
        with pytest.raises(RuleError, match=why):
            RUNGS[name].check(S, {"THREADS": 16})


def test_missing_numba_is_explained(monkeypatch):
    monkeypatch.setattr(processor, "_numba_missing", lambda: True)
    with pytest.raises(RuleError, match="Numba is not installed"):
        run("attention-loops/flash", S, engine="cpu")


def test_scores_larger_than_memory_are_refused_with_the_bytes(monkeypatch):
    monkeypatch.setattr(processor, "free_bytes", lambda: 2**24)
    with pytest.raises(RuleError, match=r"needs \d{2,3},\d{3},\d{3} bytes of memory for the cpu engine"):
        run("attention-loops/blocked", PAPER.with_(N=4096, H=1), engine="cpu")
    run("attention-loops/flash", PAPER.with_(N=256, H=1), engine="cpu", measure=False)


@pytest.mark.parametrize("engine", [cuda, emulator])
def test_only_the_cpu_engine_runs_them(engine):
    rung = RUNGS["flash"]
    with pytest.raises(RuleError, match="flash is loops for the processor: the cpu engine runs them"):
        program = rung.build(S, rung.default_tiles)
        engine.open(program, {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers}, None)
    with pytest.raises(RuleError, match="runs on the cpu engine only, not on emulator"):
        run(rung.name, S, engine="emulator")
    of = {name: {g.ladder.name for g in Sweep(name, ["paper-cpu"]).groups()} for name in ("cuda", "cpu")}
    assert "attention-loops" in of["cpu"] and "attention-loops" not in of["cuda"]


def test_each_rung_has_a_different_digest():
    digests = {kernel_digest(rung.build(S, rung.default_tiles)) for rung in LADDER.rungs}
    assert len(digests) == len(LADDER.rungs)


def test_numba_is_imported_only_to_run_a_loop():
    code = "import sys, kernels, pages.attention.cpu; assert 'numba' not in sys.modules"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


# -- traffic -------------------------------------------------------------------------------------------
def cases(name: str, count: int = 14):
    """Yields (shape, floats of a line, lines of the cache, tile sizes) at which a few lines do not change the formula.

    A cache two thirds as large or half as large again gives the same traffic.
    """
    rng = random.Random(name)
    while count:
        s = AttentionShape(1, rng.randint(1, 2), rng.randint(8, 24), rng.choice((8, 12, 40)))
        floats, lines = rng.choice((2, 4, 8)), rng.choice((6, 8, 12, 16, 24, 32, 64, 128, 400))
        sides = {side: rng.choice((2, 3, 4, 6, 8)) for side in cpu_ladder.CHOICES.get(name, ())}
        if len({round(predicted_lines(name, s, floats, round(lines * f), sides)) for f in (0.67, 1, 1.5)}) == 1:
            count -= 1
            yield s, floats, lines, sides


def predicted_lines(name: str, s: AttentionShape, floats: int, lines: int, sides: dict[str, int]) -> float:
    """Returns the predicted traffic in lines."""
    line_bytes = floats * cpu_traffic.FLOAT
    return cpu_traffic.traffic(name, s, line_bytes, lines * line_bytes, sides) / line_bytes


@pytest.mark.parametrize("name", OUR_RUNGS)
def test_formula_agrees_with_a_simulated_cache(name):
    ratios = []
    for s, floats, lines, sides in cases(name):
        ratios.append(
            predicted_lines(name, s, floats, lines, sides) / lru.moved(accesses(name, s, sides), lines, floats)
        )
    deviations = sorted(abs(ratio - 1) for ratio in ratios)
    assert deviations[len(deviations) // 2] <= 0.04 and deviations[int(0.75 * len(deviations))] <= 0.15
    assert (
        min(ratios) >= 0.8 and max(ratios) <= 1.6
    )  # rather too large: data that a loop leaves in the cache for the next is not counted


def test_traffic_of_another_rung_differs():
    """The check above can fail: the traffic of the fused loops is not that predicted for flash attention."""
    s, floats, lines = AttentionShape(1, 1, 24, 8), 4, 72
    fused = lru.moved(accesses("fused", s, {}), lines, floats)
    assert predicted_lines("flash", s, floats, lines, {"Br": 8, "Bc": 4}) < 0.5 * fused


@settings(max_examples=20)
@given(
    st.builds(AttentionShape, st.just(1), st.integers(1, 4), st.integers(8, 4096), st.sampled_from([16, 64])),
    st.sampled_from([2**15, 2**20, 2**25]),
    st.sampled_from(cpu_ladder.SIDES),
    st.sampled_from(cpu_ladder.SIDES),
)
def test_every_order_moves_each_array_at_least_once(s, cache, Br, Bc):
    for name, sides in (("naive", {}), ("blocked", {"BLOCK": 64}), ("fused", {}), ("flash", {"Br": Br, "Bc": Bc})):
        assert cpu_traffic.traffic(name, s, 64, cache, sides) >= 0.999 * s.bytes * 5 / 4  # O goes in and out


def test_flash_attention_avoids_traffic_of_s_beyond_the_caches():
    """At N = 8192, S (268 MB) does not fit in the last cache of 32 MB. K and V of a head (4.2 MB) fit."""
    s, L3 = AttentionShape(1, 1, 8192, 64), 2**25
    flash = cpu_traffic.traffic("flash", s, 64, L3, {"Br": 32, "Bc": 32})
    assert flash == pytest.approx(s.bytes * 5 / 4, rel=0.01)
    for name, sides in (("naive", {}), ("blocked", {"BLOCK": 64})):
        scores = 4 * s.N**2
        assert cpu_traffic.traffic(name, s, 64, L3, sides) == pytest.approx(5 * scores, rel=0.05)  # out; in, out; in
    # If K and V do not stay in the cache, they are loaded once for every Br queries.
    beyond_l2 = [cpu_traffic.traffic("flash", s, 64, 2**20, {"Br": Br, "Bc": 32}) for Br in (4, 16, 64)]
    assert beyond_l2[0] / beyond_l2[1] == pytest.approx(4, rel=0.02) and beyond_l2[1] / beyond_l2[2] == pytest.approx(
        4, rel=0.05
    )


def test_cost_is_the_traffic_beyond_the_last_cache(monkeypatch):
    from kernels.machine.memory_levels import Level

    small = Level("L1 cache", 2**15, "each core", "said here", "", 64)
    for name in OUR_RUNGS:
        rung = RUNGS[name]
        program = rung.build(PAPER, rung.default_tiles)
        sides = {side: rung.default_tiles[side] for side in cpu_ladder.CHOICES.get(name, ())}
        monkeypatch.setattr(memory_levels, "caches", lambda: (small,))
        expected = round(cpu_traffic.traffic(name, PAPER, 64, 2**15, sides))
        assert rung.cost(PAPER, program).bytes == expected and rung.cost(PAPER, program).flops == PAPER.flops
        monkeypatch.setattr(memory_levels, "caches", lambda: ())
        assert rung.cost(PAPER, program).bytes == PAPER.bytes + 2 * program.nbytes(WORKSPACE)
