"""Attention's loops for the processor: right at any shape and whatever the scores, what they allocate, their rules, and
their traffic as a cache has it."""

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

from kernels.attention import cpu_ladder as attention_cpu_ladder
from kernels.attention import cpu_traffic as traffic
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
from tests.helpers.hard_scores import SPOILT, adversarial
from tests.helpers.lru_attention import walk
from tests.helpers.shapes import attention_shapes
from tests.helpers.tried import computed, on
from tests.kernels.attention.test_ladder import KINDS, same_where_not_finite

LADDER = LADDERS["attention-loops"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
OURS = ["naive", "blocked", "fused", "flash"]
S = AttentionShape(1, 2, 45, 16, causal=1)
PAPER = ATTENTION_PRESETS["paper-cpu"].shape
QUICK = Budget(samples=3, seconds=0.1, least=1, warm_up_s=0)
# Tiles that divide nothing, wider and narrower than they are high: many tiles to a row, and a single one.
SMALL = {"blocked": ({"BLOCK": 8}, {"BLOCK": 256}), "flash": ({"Br": 4, "Bc": 8}, {"Br": 16, "Bc": 4})}
TILED = [(name, tiles) for name in RUNGS for tiles in SMALL.get(name, ({},))]


# -- what they compute ---------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(attention_shapes(most=150, most_d=140), st.data())
def test_every_rung_agrees_with_float64_at_any_shape(s, data):
    threads = [n for n in THREADS if n <= cores()]
    choices = {"BLOCK": attention_cpu_ladder.BLOCKS, "Br": attention_cpu_ladder.SIDES, "Bc": attention_cpu_ladder.SIDES, "THREADS": threads}  # fmt: skip
    tiles = {name: data.draw(st.sampled_from(all_)) for name, all_ in choices.items()}
    for result in compare([r.name for r in LADDER.rungs], s, engine="cpu", tiles=tiles, measure=False):
        assert result.output.shape == s.qkv_shape and result.output.dtype == np.float32


@pytest.mark.parametrize(("Br", "Bc"), list(product(sorted(attention_cpu_ladder.SIDES), repeat=2)))
def test_every_tile_of_flash_attention(Br, Bc):
    for s in (
        S.with_(N=131, d=33),
        AttentionShape(2, 1, 64, 8),
    ):  # more columns than are turned round at a time
        on(cpu, RUNGS["flash"], s, {"Br": Br, "Bc": Bc, "THREADS": cores()})


@pytest.mark.parametrize(("name", "tiles"), TILED)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_scores_stay_finite_and_right(name, tiles, kind):
    for causal in (0, 1):
        shape = S.with_(scale=1.0, causal=causal)
        on(cpu, RUNGS[name], shape, tiles, adversarial(kind, shape))


@pytest.mark.parametrize(("name", "tiles"), TILED)
@pytest.mark.parametrize("what", SPOILT)
def test_infinities_and_nans_give_what_the_reference_gives(name, tiles, what):
    at, place, value = SPOILT[what]
    for causal in (0, 1):
        s = AttentionShape(1, 2, 21, 8, causal=causal)
        inputs = seeded_inputs(RUNGS["flash"].build(s, RUNGS["flash"].default_tiles).of_role("input"))
        inputs["Q"][..., 0] = np.abs(inputs["Q"][..., 0]) + 0.1  # -infinity times it stays -infinity
        inputs[at][(..., *place)] = value
        with np.errstate(all="ignore"):
            out, _ = computed(cpu, RUNGS[name], s, tiles, inputs)
            same_where_not_finite(out, LADDER.reference(s, **inputs)[0])


def test_keys_that_are_hidden_are_never_read():
    """A NaN in the last key and value: none but the last query sees it."""
    inputs = seeded_inputs(RUNGS["flash"].build(S, RUNGS["flash"].default_tiles).of_role("input"))
    for name, tiles in [(name, tiles) for name, tiles in TILED if name != "blas"]:
        clean, _ = computed(cpu, RUNGS[name], S, tiles, inputs)
        spoilt = {of: array.copy() for of, array in inputs.items()}
        spoilt["K"][:, :, -1], spoilt["V"][:, :, -1] = np.nan, np.nan
        out, _ = computed(cpu, RUNGS[name], S, tiles, spoilt)
        np.testing.assert_array_equal(out[:, :, :-1], clean[:, :, :-1])
        assert np.isnan(out[:, :, -1]).all()


def test_every_turn_is_dealt_once():
    from kernels.attention.cpu_loops import folded

    for turns in (1, 2, 7, 64):
        assert sorted(folded(turn, turns) for turn in range(turns)) == list(range(turns))
    half = [
        folded(turn, 64) for turn in range(32)
    ]  # what one of two threads gets: as much of late rows as of early ones
    assert abs(sum(half) / 32 - 31.5) <= 0.5


# One instruction that multiplies several floats, on x86 and on ARM; and a call of an exponential for one, or for several.
PACKED = re.compile(r"\bv?mulps\b|\bfmul\s+v\d+\.[24]s|\bfml[as]\s+v\d+\.[24]s|\bvfn?m(add|sub)\d+ps\b")
EXP, PACKED_EXP = re.compile(r"\bexpf\b"), re.compile(r"svml")


@pytest.mark.parametrize(
    ("name", "vectors"), [("along", False), ("square", True), ("add", True), ("scaled", True)]
)
def test_what_the_compiler_vectorizes_is_what_the_comments_say(name, vectors):
    row, matrix = np.ones(8, np.float32), np.ones((8, 8), np.float32)
    args = {
        "along": (row, row),
        "square": (matrix, matrix, np.float32(1), matrix, matrix, 0),
        "add": (row, matrix, row),
    }
    code = assembled(name, *args.get(name, (row, np.float32(2))))
    assert re.search(r"mul[sp]s|fmul|fmadd|fmla", code) and bool(PACKED.search(code)) == vectors


def test_exponentials_come_one_after_the_other():
    code = assembled("exponentials", np.ones(8, np.float32), np.float32(0))
    assert EXP.search(code) and not PACKED_EXP.search(code)


def assembled(name: str, *args) -> str:
    from numba import njit

    from kernels.attention import cpu_loops as attention_cpu_loops

    fresh = njit(error_model="numpy")(getattr(attention_cpu_loops, name).py_func)
    fresh(*args)
    return "\n".join(fresh.inspect_asm().values())


# -- what they allocate --------------------------------------------------------------------------------
ACCOUNT = {"naive": 4_718_592, "blocked": 4_718_592, "fused": 557_056, "flash": 524_288}  # with 8 threads
TOLD = """
import json
from kernels import compare
from kernels.machine.timing import Budget
from kernels.attention.presets import ATTENTION_PRESETS
names = [f"attention-loops/{name}" for name in %r]
budget = Budget(samples=1, seconds=0.1, least=1, warm_up_s=0)
told = compare(names, ATTENTION_PRESETS["paper-cpu"].shape, engine="cpu", tiles={"THREADS": 8}, budget=budget)
print(json.dumps([[r.measurement.workspace_bytes, r.measurement.output_bytes, r.predicted.workspace_bytes] for r in told]))
"""


def test_what_is_allocated_is_what_is_predicted():
    """Beside its inputs, at B=1, H=4, N=1024, d=32 and 8 threads, on however many cores: Numba starts as many as it is
    asked for."""
    ran = subprocess.run(
        [sys.executable, "-c", TOLD % OURS],
        env=os.environ | {"NUMBA_NUM_THREADS": "8"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for name, (workspace, output, predicted) in zip(OURS, json.loads(ran.stdout), strict=True):
        assert workspace + output == predicted + output == ACCOUNT[name], name


def test_the_account_follows_the_formula_at_the_threads_there_are():
    threads, N = cores(), PAPER.N
    expected = {"naive": 4 * N * N, "blocked": 4 * N * N, "fused": 4 * N * threads, "flash": 0}
    for name, scratch in expected.items():
        rung = RUNGS[name]
        r = run(rung.name, PAPER, engine="cpu", tiles={"THREADS": threads}, budget=QUICK)
        assert r.measurement.workspace_bytes == r.predicted.workspace_bytes == scratch
        assert r.measurement.output_bytes == PAPER.bytes // 4 and r.measurement.median_ms > 0


def test_what_numba_takes_from_the_heap_would_be_seen_and_is_nothing():
    """tracemalloc, which measures, knows nothing of Numba's own allocator: its count stays where it was."""
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
    for name in OURS:
        rung = RUNGS[name]
        program = rung.build(S, rung.default_tiles)
        session = cpu.open(program, seeded_inputs(program.of_role("input")))
        session.verify_run()
        views = 4  # an array that Numba is handed is counted too: Q, K, V, O, and S or rows
        assert allocated(session.run) <= views + len(program.of_role(WORKSPACE)), name


def test_the_stack_of_a_thread_holds_the_largest_tile():
    """What is told to lie on the stack fits in the scratch that the loops have there."""
    from kernels.attention import cpu_loops as attention_cpu_loops

    assert attention_cpu_loops.DEEP == traffic.DEEP
    assert (
        max(attention_cpu_ladder.BLOCKS) == attention_cpu_loops.MOST_BLOCK
        and max(attention_cpu_ladder.SIDES) == attention_cpu_loops.MOST_SIDE
    )
    most = {
        "BLOCK": attention_cpu_loops.MOST_BLOCK,
        "Br": attention_cpu_loops.MOST_SIDE,
        "Bc": attention_cpu_loops.MOST_SIDE,
    }
    assert (
        attention_cpu_ladder.stack_bytes("blocked", most) == 4 * attention_cpu_loops.FOR_BLOCK == 32 * 2**10
    )
    floats = attention_cpu_loops.FOR_KEYS + attention_cpu_loops.FOR_TILE + 2 * attention_cpu_loops.MOST_SIDE
    assert attention_cpu_ladder.stack_bytes("flash", most) == 4 * floats == 81 * 2**10
    assert attention_cpu_ladder.stack_bytes("fused", most) == 0


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
def test_a_broken_rule_is_named(name, shape, tiles, rule):
    with pytest.raises(RuleError, match=rule):
        run(f"attention-loops/{name}", shape, engine="cpu", tiles=tiles)


@pytest.mark.parametrize("name", RUNGS)
def test_threads_that_numba_has_not_are_named(name, monkeypatch):
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(processor, "cores", lambda: 4)
    assert RUNGS[name].check(S, {"THREADS": 4})["THREADS"] == 4
    with pytest.raises(RuleError, match="THREADS <= 4, the cores this process may use, got 8"):
        RUNGS[name].check(S, {"THREADS": 8})
    for asked, told in (("8", 8), ("2", 2)):  # more than the cores, and fewer
        monkeypatch.setenv("NUMBA_NUM_THREADS", asked)
        assert RUNGS[name].check(S, {"THREADS": told})["THREADS"] == told
        with pytest.raises(RuleError, match=f"THREADS <= {told}, what NUMBA_NUM_THREADS says, got 16"):
            RUNGS[name].check(S, {"THREADS": 16})


def test_without_numba_a_rule_says_so(monkeypatch):
    monkeypatch.setattr(processor, "_numba_missing", lambda: True)
    with pytest.raises(RuleError, match="Numba must be installed"):
        run("attention-loops/flash", S, engine="cpu")


def test_scores_that_exceed_memory_are_refused_with_the_bytes(monkeypatch):
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


def test_each_rung_has_a_digest_of_its_own():
    digests = {kernel_digest(rung.build(S, rung.default_tiles)) for rung in LADDER.rungs}
    assert len(digests) == len(LADDER.rungs)


def test_numba_is_imported_only_where_a_loop_runs():
    code = "import sys, kernels, pages.attention.cpu; assert 'numba' not in sys.modules"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


# -- traffic -------------------------------------------------------------------------------------------
def cases(name: str, count: int = 40):
    """(shape, floats of a line, lines of the cache, tile sizes) at which the formula does not hang on a few lines
    more or less: a cache two thirds or half as large again gives the same."""
    rng = random.Random(name)
    while count:
        s = AttentionShape(1, rng.randint(1, 2), rng.randint(8, 24), rng.choice((8, 12, 40)))
        floats, lines = rng.choice((2, 4, 8)), rng.choice((6, 8, 12, 16, 24, 32, 64, 128, 400))
        sides = {side: rng.choice((2, 3, 4, 6, 8)) for side in attention_cpu_ladder.CHOICES.get(name, ())}
        if len({round(predicted(name, s, floats, round(lines * f), sides)) for f in (0.67, 1, 1.5)}) == 1:
            count -= 1
            yield s, floats, lines, sides


def predicted(name: str, s: AttentionShape, floats: int, lines: int, sides: dict[str, int]) -> float:
    """In lines."""
    line_bytes = floats * traffic.FLOAT
    return traffic.traffic(name, s, line_bytes, lines * line_bytes, sides) / line_bytes


@pytest.mark.parametrize("name", OURS)
def test_the_formula_is_what_a_cache_does_access_by_access(name):
    ratios = []
    for s, floats, lines, sides in cases(name):
        ratios.append(
            predicted(name, s, floats, lines, sides) / lru.moved(walk(name, s, sides), lines, floats)
        )
    off = sorted(abs(ratio - 1) for ratio in ratios)
    assert off[len(off) // 2] <= 0.04 and off[int(0.75 * len(off))] <= 0.15
    assert (
        min(ratios) >= 0.8 and max(ratios) <= 1.6
    )  # rather too much: what a loop leaves for the next is not counted


def test_another_rung_is_not_taken_for_this_one():
    """The check above can fail: the fused loops do not do what is predicted of flash attention."""
    s, floats, lines = AttentionShape(1, 1, 24, 8), 4, 72
    fused = lru.moved(walk("fused", s, {}), lines, floats)
    assert predicted("flash", s, floats, lines, {"Br": 8, "Bc": 4}) < 0.5 * fused


@given(
    st.builds(AttentionShape, st.just(1), st.integers(1, 4), st.integers(8, 4096), st.sampled_from([16, 64])),
    st.sampled_from([2**15, 2**20, 2**25]), st.sampled_from(attention_cpu_ladder.SIDES), st.sampled_from(attention_cpu_ladder.SIDES),
)  # fmt: skip
def test_nothing_moves_less_than_each_array_once(s, cache, Br, Bc):
    for name, sides in (
        ("naive", {}),
        ("blocked", {"BLOCK": 64}),
        ("fused", {}),
        ("flash", {"Br": Br, "Bc": Bc}),
    ):
        assert traffic.traffic(name, s, 64, cache, sides) >= 0.999 * s.bytes * 5 / 4  # O goes in and out


def test_beyond_the_caches_s_is_what_flash_attention_does_without():
    """At N = 8192 S, 268 MB, leaves the last cache of 32 MB; K and V of a head, 4.2 MB, do not."""
    s, L3 = AttentionShape(1, 1, 8192, 64), 2**25
    flash = traffic.traffic("flash", s, 64, L3, {"Br": 32, "Bc": 32})
    assert flash == pytest.approx(s.bytes * 5 / 4, rel=0.01)
    for name, sides in (("naive", {}), ("blocked", {"BLOCK": 64})):
        scores = 4 * s.N**2
        assert traffic.traffic(name, s, 64, L3, sides) == pytest.approx(
            5 * scores, rel=0.05
        )  # out; in, out; in
    # Where K and V do not stay, they pass once for every Br queries.
    past_l2 = [traffic.traffic("flash", s, 64, 2**20, {"Br": Br, "Bc": 32}) for Br in (4, 16, 64)]
    assert past_l2[0] / past_l2[1] == pytest.approx(4, rel=0.02) and past_l2[1] / past_l2[2] == pytest.approx(
        4, rel=0.05
    )


def test_cost_is_the_traffic_behind_the_last_cache(monkeypatch):
    from kernels.machine.memory_levels import Level

    small = Level("L1 cache", 2**15, "each core", "said here", "", 64)
    for name in OURS:
        rung = RUNGS[name]
        program = rung.build(PAPER, rung.default_tiles)
        sides = {side: rung.default_tiles[side] for side in attention_cpu_ladder.CHOICES.get(name, ())}
        monkeypatch.setattr(memory_levels, "caches", lambda: (small,))
        expected = round(traffic.traffic(name, PAPER, 64, 2**15, sides))
        assert rung.cost(PAPER, program).bytes == expected and rung.cost(PAPER, program).flops == PAPER.flops
        monkeypatch.setattr(memory_levels, "caches", lambda: ())
        assert rung.cost(PAPER, program).bytes == PAPER.bytes + 2 * program.nbytes(WORKSPACE)
