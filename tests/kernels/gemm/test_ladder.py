"""The GEMM ladder's FP32 rungs without a GPU: results at any shape and tile size, races, rules."""

from __future__ import annotations

import difflib
import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources as kernels_sources
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.gemm import ladder as gemm_ladder
from kernels.gemm import reference as gemm_reference
from kernels.gemm.shape import GemmShape
from kernels.model.program import Launch, RuleError
from kernels.runner import VerificationError, run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import archived, needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import verified_output
from tests.helpers.shapes import gemm_shapes

OUR_RUNGS = [r.name for r in gemm_ladder.FP32_RUNGS]
FP32 = [*OUR_RUNGS, "gemm/cublas", "gemm/cublas-tf32"]
CUBE = GemmShape(64, 64, 64)
TOO_MANY_ROWS = GemmShape(70_000 * 32, 3, 1)  # more rows than the blocks of grid.y can cover


def rung_of(name: str):
    return gemm_ladder.LADDER.rung(name)


# -- results at any shape ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", OUR_RUNGS)
@settings(max_examples=2)
@given(shape=gemm_shapes())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape):
    result = run(name, shape, engine="emulator")  # verifies each element
    assert result.output.shape == (shape.M, shape.N)


@settings(max_examples=12)
@given(shape=gemm_shapes(max_extent=200, max_k=300))
def test_cpu_agrees_with_the_reference_at_any_shape(shape):
    for name in FP32:
        assert verified_output(cpu, rung_of(name), shape).dtype == np.float32, name


@pytest.mark.parametrize("name", OUR_RUNGS[1::4])
def test_values_of_every_size_and_sign(name):
    shape = GemmShape(33, 70, 19, alpha=-1.5, beta=0.25)
    rng = np.random.default_rng(3)
    inputs = {
        b.name: (10.0 ** rng.uniform(-4, 4, b.shape) * rng.choice([-1, 1], b.shape)).astype("f4")
        for b in rung_of(name).build(shape, rung_of(name).default_tiles).of_role("input")
    }
    run(name, shape, inputs, engine="emulator")  # verified against |alpha||A||B| + |beta||C0|


@pytest.mark.parametrize("name", OUR_RUNGS)
def test_c0_is_read_only_if_beta_is_not_0(name):
    shape, rung = GemmShape(9, 7, 3), rung_of(name)
    with_c0 = rung.build(shape.with_(beta=1), rung.default_tiles)
    assert "C0" in [b.name for b in with_c0.of_role("input")]
    program = rung.build(shape, rung.default_tiles)
    assert [b.name for b in program.buffers] == [
        "A",
        "B",
        "C",
    ]  # the kernel is passed C, which is NaN and never written
    run(name, shape, engine="emulator")  # the emulator refuses to read unwritten memory


@pytest.mark.parametrize("name", OUR_RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    shape, rung = GemmShape(67, 70, 21, beta=1), rung_of(name)
    rung_runs.same_in_any_order(lambda options: verified_output(emulator, rung, shape, options=options))


@needs_nvrtc
@pytest.mark.parametrize("which", [0, 1])
def test_missing_barrier_is_a_race(which):
    """The test above would detect that the tiled kernel lacks one of its two barriers."""
    rung = rung_of("gemm/shared-tile")
    tiles = rung.default_tiles | {"BM": 16, "BN": 16, "BK": 16}
    program = rung.build(GemmShape(20, 20, 40), tiles)
    (step,) = program.steps
    assert kernels_sources.translation_unit(step.source).count("__syncthreads();") == 2
    memory = rung_runs.memory_of(program, seeded_inputs(program.of_role("input")))
    result = rung_runs.relaunched(step, rung_runs.without_barrier(which), memory, stops="never written")
    assert result is None or "data race" in result.races[0]  # None: read before the tile was written


def test_wrong_kernel_gets_no_result(monkeypatch):
    """The verification detects one missing term in one element."""
    original = emulator.Session.verify_run

    def wrong(session):
        out = original(session)
        A, B = session.memory.array("A"), session.memory.array("B")
        out[2, 3] -= A[2, 4] * B[4, 3]
        return out

    monkeypatch.setattr(emulator.Session, "verify_run", wrong)
    with pytest.raises(VerificationError, match="gemm/naive on emulator disagrees"):
        run("gemm/naive", GemmShape(5, 6, 7), engine="emulator")


# -- tile sizes and rules -----------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=6)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    rung = data.draw(st.sampled_from(gemm_ladder.FP32_RUNGS))
    shape = data.draw(gemm_shapes(max_extent=70, max_k=20))
    rung_runs.runs_or_names_its_rule(rung, shape, rung_runs.some_tiles(data, rung, shape), "<=|==|whole warps")


@pytest.mark.parametrize("rung", gemm_ladder.FP32_RUNGS, ids=lambda r: r.name)
def test_every_choice_is_in_a_legal_set(rung):
    rung_runs.each_choice_is_legal(rung, CUBE)


@pytest.mark.parametrize("rung", gemm_ladder.FP32_RUNGS, ids=lambda r: r.name)
def test_precompiled_sets_are_the_default_and_the_named_sets_or_choices(rung):
    sets = list(rung.tile_sets(CUBE))
    assert sets[0] == rung.default_tiles
    assert all(tiles in rung_runs.legal(rung, CUBE) for tiles in sets)
    if rung.sets is None:
        assert {(n, v) for tiles in sets for n, v in tiles.items()} == {
            (n, v) for n, choices in rung.tiles.items() for v in choices
        }
        assert all(sum(tiles[n] != v for n, v in rung.default_tiles.items()) <= 3 for tiles in sets)
    else:
        assert sets[1:] == [rung.default_tiles | dict(tiles) for tiles in rung.sets]
        # One of them is small enough to follow in the animation.
        assert any(max(tiles["BM"], tiles["BN"]) <= 32 and tiles["BK"] <= 8 for tiles in sets)


def test_committed_fp32_kernels_are_small():
    names = {
        precompiled.archive_entry(step.source, step.defines)[1]
        for rung in gemm_ladder.FP32_RUNGS
        for tiles in rung.tile_sets(CUBE)
        for step in rung.build(CUBE, tiles).steps
    }
    committed, stems = archived("gemm"), {name.partition(".")[0] for name in names}
    assert {name for name in committed if name.partition(".")[0] in stems} == names  # nothing of other tile sizes
    assert sum(committed[name] for name in names) < 500_000


@every("rung", gemm_ladder.FP32_RUNGS, ids=lambda r: r.name)
def test_no_precompiled_kernel_spills(rung):
    for tiles in rung.tile_sets(CUBE):
        for step in rung.build(CUBE, tiles).steps:
            info = precompiled.resources(step.source, step.defines)
            assert info["spill_bytes"] == 0 and info["registers"] <= 255, tiles


@every(
    ("name", "shape", "tiles", "message"),
    [
        ("gemm/naive", GemmShape(8, 8, 8, dtype="fp16"), {}, "dtype must be fp32, got fp16"),
        ("gemm/naive", TOO_MANY_ROWS, {}, r"M <= 65535\*BLOCK \(grid.y\), got 2240000"),
        ("gemm/uncoalesced", GemmShape(3, 70_000 * 32, 1), {}, r"N <= 65535\*BLOCK \(grid.y\), got 2240000"),
        ("gemm/uncoalesced", GemmShape(2**31 - 1, 1, 1), {}, r"M must stay below 2\^31 - 32, got 2147483647"),
        ("gemm/naive", GemmShape(1, 2**31 - 1, 1), {}, r"N must stay below 2\^31 - 32, got 2147483647"),
        ("gemm/warp-tile", GemmShape(1, 1, 2**31 - 1), {}, r"K must stay below 2\^31 - "),
        (
            "gemm/register-tile-1d",
            GemmShape(8, 8, 8),
            {"BM": 128, "BN": 128, "TM": 4},
            r"\(BM/TM\)\*BN threads <= 1024, got 4096",
        ),
        ("gemm/shared-tile", GemmShape(8, 8, 8), {"BK": 8}, r"BM\*BK % threads == 0, got 32\*8 % 1024"),
        (
            "gemm/vectorized",
            GemmShape(8, 8, 8),
            {"BK": 8, "TM": 4, "TN": 4},
            r"BM\*BK/4 % threads == 0, got 128\*8/4 % 1024",
        ),
        ("gemm/warp-tile", GemmShape(8, 8, 8), {"WM": 32}, r"WM\*WN == 32\*TM\*TN \(32 lanes per warp\)"),
        ("gemm/warp-tile", GemmShape(8, 8, 8), {"BM": 32}, "BM % WM == 0, got 32 % 64"),
        (
            "gemm/warp-tile",
            GemmShape(8, 8, 8),
            {"BM": 256, "BK": 32, "STAGES": 4},
            r"4\*STAGES\*BK\*\(BM \+ 4 \+ BN\) bytes of shared memory <= 232448, got 264192",
        ),
    ],
)
def test_rules_are_named_with_their_values(name, shape, tiles, message):
    rung = rung_of(name)
    assert any(re.search(message, rule) for rule in rung.rules(shape, rung.default_tiles | tiles))
    with pytest.raises(RuleError, match=f"{name} cannot run"):
        run(name, shape, engine="emulator", tiles=tiles)


def test_registers_are_a_rule():
    tiles = dict(gemm_ladder.LADDER.rung("gemm/warp-tile").default_tiles) | {"TM": 16, "TN": 16, "WM": 128, "WN": 64}
    rules = list(gemm_ladder.warp_tile_rules(GemmShape(8, 8, 8), tiles))
    assert any(re.search(r"TM\*TN \+ TM \+ TN \+ 32 registers <= 255 \(\d+ threads\), got 320", s) for s in rules)


# -- the reference ----------------------------------------------------------------------------------
@settings(max_examples=15)
@given(shape=gemm_shapes(max_extent=6, max_k=6), seed=st.integers(0, 99))
def test_reference_equals_three_loops(shape, seed):
    rng = np.random.default_rng(seed)
    A, B, C0 = (rng.standard_normal(n) for n in ((shape.M, shape.K), (shape.K, shape.N), (shape.M, shape.N)))
    ref, scale = gemm_reference.gemm(shape, A, B, *((C0,) if shape.beta else ()))
    for i, j in itertools.product(range(shape.M), range(shape.N)):
        terms = [shape.alpha * A[i, k] * B[k, j] for k in range(shape.K)] + [shape.beta * C0[i, j]]
        assert ref[i, j] == pytest.approx(sum(terms), abs=1e-12)
        assert scale[i, j] == pytest.approx(sum(map(abs, terms)), abs=1e-12)


def test_int8_reference_is_exact():
    shape = GemmShape(3, 4, 10_000, alpha=2, beta=-3, dtype="int8")
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-128, 128, n).astype(np.int8) for n in ((3, 10_000), (10_000, 4)))
    C0 = rng.integers(-(2**20), 2**20, (3, 4)).astype(np.int32)
    ref, _ = gemm_reference.gemm(shape, A, B, C0)
    np.testing.assert_array_equal(ref, 2 * (A.astype(np.int64) @ B.astype(np.int64)) - 3 * C0.astype(np.int64))


# -- the ladder --------------------------------------------------------------------------------------
def _code(source: str) -> list[str]:
    """Returns the lines of a source without comments and blank lines."""
    lines = (re.sub(r"\s*//.*", "", line).rstrip() for line in kernels_sources.text(source).splitlines())
    return [line for line in lines if line]


def test_neighbouring_kernels_share_at_least_half_of_their_lines():
    sources = [
        step.source
        for r in gemm_ladder.FP32_RUNGS
        for step in r.build(GemmShape(8, 8, 8), r.default_tiles).steps
        if isinstance(step, Launch)
    ]
    assert sources == sorted(sources) and len(sources) == 11
    for code, next_code in itertools.pairwise(map(_code, sources)):
        matcher = difflib.SequenceMatcher(None, code, next_code, autojunk=False)
        shared = sum(block.size for block in matcher.get_matching_blocks())
        assert shared >= min(len(code), len(next_code)) / 2
        assert shared < len(next_code)


def test_each_step_of_the_ladder_saves_what_it_says():
    """Checks the claims of the kernels' headers with counters, at 64 x 64 x 64."""
    total = {name: run(name, CUBE, engine="emulator").counters.total for name in OUR_RUNGS}

    def of(name, counter):
        return total[f"gemm/{name}"][counter]

    assert of("naive", "sectors_ld") * 4 < of("uncoalesced", "sectors_ld")
    assert of("shared-tile", "sectors_ld") * 4 < of("naive", "sectors_ld")
    assert of("register-tile-1d", "wavefronts_ld") * 2 < of("shared-tile", "wavefronts_ld")
    assert of("vectorized", "requests_ld") * 2 < of("register-tile-2d", "requests_ld")
    assert of("vectorized", "bank_conflicts_ld") > 0 and of("vectorized", "bank_conflicts_st") > 0
    for tiles in rung_of("gemm/bank-free").tile_sets(CUBE):
        free = run("gemm/bank-free", CUBE, engine="emulator", tiles=tiles).counters.total
        assert free["bank_conflicts_ld"] == free["bank_conflicts_st"] == 0, tiles
    # At the same tile sizes.
    bank_free = run("gemm/bank-free", CUBE, engine="emulator", tiles={"BK": 16}).counters.total
    assert of("double-buffer", "barriers") * 2 == bank_free["barriers"]
    tiles = {"BN": 128, "WN": 32, "TN": 8}
    warp_tile = run("gemm/warp-tile", CUBE, engine="emulator", tiles=tiles).counters.total
    assert (
        warp_tile["wavefronts_ld"] * 3 == of("double-buffer", "wavefronts_ld") * 2
    )  # As as before, half as many for Bs
    # With the default's twice as many sums per thread, at a shape without partial tiles.
    warp_tile_wavefronts, double_buffer_wavefronts = (
        run(f"gemm/{name}", GemmShape(128, 256, 16), engine="emulator").counters.total["wavefronts_ld"]
        for name in ("warp-tile", "double-buffer")
    )
    assert warp_tile_wavefronts * 2 == double_buffer_wavefronts
