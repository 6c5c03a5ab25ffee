"""Winograd's rungs without a GPU: results at any 3x3 shape and tile size, races, rules, and errors that grow with the
tile size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import winograd as conv_winograd
from kernels.conv import winograd_matrices
from kernels.conv.shape import MODES, ConvShape
from kernels.conv.winograd import MAX_ERROR, RUNGS
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.model.program import WORKSPACE, RuleError
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import (
    computed,
    reference_and_scale,
    relaunched,
    same_in_any_order,
    verified_output,
    without_barrier,
)

RUNG = {rung.name.removeprefix("conv/winograd-"): rung for rung in RUNGS}
SHAPE = ConvShape(2, 9, 9, 7, 5, 3, 3, pad=1)
rungs = pytest.mark.parametrize("rung", RUNGS, ids=lambda r: r.name)


@st.composite
def shapes(draw, max_size: int = 12) -> ConvShape:
    """Draw a shape, 3x3, stride 1: partial tiles, padding wider than the filter and of two widths, channels that do not
    fill a step."""
    pad = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    extra = draw(st.just((0, 0)) | st.tuples(*(st.integers(-p, 3) for p in pad)))
    H, W = (draw(st.integers(max(1, 3 - 2 * p - e), max_size)) for p, e in zip(pad, extra, strict=True))
    N, C, K = (draw(st.integers(1, 3)), draw(st.integers(1, 18)), draw(st.one_of(st.integers(1, 9), st.just(67))))
    bias, relu = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    mode = draw(st.sampled_from(MODES))
    return ConvShape(N, C, H, W, K, 3, 3, pad=pad, extra=extra, mode=mode, bias=bias, relu=relu)


def with_m(rung, m: int) -> dict[str, int]:
    return rung.default_tiles | ({"M": m} if "M" in rung.tiles else {})


def m_of(rung, tiles) -> int:
    return tiles.get("M") or int(rung.name[-1])


def on_cpu(rung, shape, tiles, inputs=None):
    """Returns (output, reference, scale) of one rung. The scale is that of its tolerance."""
    out, inputs = computed(cpu, rung, shape, tiles, inputs)
    return out, *reference_and_scale(rung, shape, tiles, inputs)


# -- results at any shape ---------------------------------------------------------------------------
@settings(max_examples=20)
@given(shape=shapes(max_size=20), rung=st.sampled_from(RUNGS), m=st.sampled_from(winograd_matrices.TILES))
def test_cpu_agrees_with_the_reference_at_any_shape(shape, rung, m):
    assert verified_output(cpu, rung, shape, with_m(rung, m)).dtype == np.float32


@needs_nvrtc
@rungs
@settings(max_examples=2)
@given(data=st.data())
def test_emulator_agrees_with_the_reference_at_any_shape(rung, data):
    shape = data.draw(shapes())
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    verified_output(emulator, rung, shape, tiles)


@needs_nvrtc
@rungs
def test_kernel_and_cpu_write_the_same_to_every_buffer(rung):
    """Compares every buffer, also the zeros that pad a row to a multiple of 4, which no later step reads."""
    program = rung.build(SHAPE, rung.default_tiles)
    inputs = seeded_inputs(program.of_role("input"))
    emulated, on_cpu_engine = emulator.Session(program, inputs, Options()), cpu.open(program, inputs)
    emulated.verify_run(), on_cpu_engine.verify_run()
    for b in program.of_role(WORKSPACE):
        kernel_values, cpu_values = emulated.memory.array(b.name), on_cpu_engine.arrays[b.name]
        np.testing.assert_allclose(kernel_values, cpu_values, rtol=0, atol=1e-5 * np.abs(cpu_values).max())


@needs_nvrtc
@rungs
def test_values_of_every_size_and_sign(rung):
    rng = np.random.default_rng(3)
    inputs = {
        b.name: (10.0 ** rng.uniform(-4, 4, b.shape) * rng.choice([-1, 1], b.shape)).astype("f4")
        for b in rung.build(SHAPE, rung.default_tiles).of_role("input")
    }
    verified_output(emulator, rung, SHAPE, inputs=inputs)


@needs_nvrtc
@rungs
def test_warp_order_changes_nothing_and_no_races(rung):
    same_in_any_order(lambda options: verified_output(emulator, rung, SHAPE, options=options))


@needs_nvrtc
@pytest.mark.parametrize("which", [0, 1, 2])
def test_missing_barrier_in_fused_kernel_is_a_race(which):
    """The test above would detect that one of the barriers is missing."""
    rung = RUNG["2x2"]
    program = rung.build(SHAPE.with_(C=20), rung.default_tiles)
    inputs = seeded_inputs(program.of_role("input"))
    session = emulator.Session(program, inputs, Options())
    transform, step = program.steps
    session.launch(transform)
    assert sources.translation_unit(step.source).count("__syncthreads();") == 3
    result = relaunched(step, without_barrier(which), session.memory, stops="never written", order="reversed")
    assert result is None or "data race" in result.races[0]  # None: read before it was written


# -- error size -------------------------------------------------------------------------------------
@pytest.mark.parametrize("C", [64, 512])
def test_error_grows_with_the_tile_within_bounds(C):
    shape = ConvShape(1, C, 14, 14, 16, 3, 3, pad=1)
    errors = {}
    for m in winograd_matrices.TILES:
        out, ref, scale = on_cpu(RUNG["nonfused"], shape, with_m(RUNG["nonfused"], m))
        errors[m] = relative_error(out, ref)
        assert errors[m] < MAX_ERROR[m]
        assert (np.abs(out - ref) / scale).max() < RUNG["nonfused"].tolerance / 2
    assert errors[2] < errors[4] / 2 < errors[6]


@pytest.mark.parametrize("m", winograd_matrices.TILES)
@pytest.mark.parametrize("lost", ["one tap of one filter", "one pixel of one channel"])
def test_lost_product_exceeds_the_tolerance(m, lost):
    rung = RUNG["nonfused"]
    shape = ConvShape(1, 128, 14, 14, 8, 3, 3, pad=1)
    out, ref, scale = on_cpu(rung, shape, with_m(rung, m))
    assert agrees(out, ref, scale, rung.tolerance)
    inputs = seeded_inputs(rung.build(shape, with_m(rung, m)).of_role("input"))
    inputs["w" if "tap" in lost else "x"][0, 3, 1, 1] = 0
    out, _, _ = on_cpu(rung, shape, with_m(rung, m), inputs=inputs)
    assert not agrees(out, ref, scale, rung.tolerance)


# -- rules ------------------------------------------------------------------------------------------
@every(
    ("name", "shape", "message"),
    [
        ("2x2", ConvShape(1, 1, 8, 8, 1, 5, 3), "R and S must be 3, got 5 and 3"),
        (
            "4x4",
            ConvShape(1, 1, 8, 8, 1, 3, 3, stride=(1, 2)),
            r"stride must be 1 in both axes \(the tiles overlap only then\), got 1 and 2",
        ),
        ("nonfused", ConvShape(1, 1, 9, 9, 1, 3, 3, dilation=2), "dilation must be 1 in both axes, got 2 and 2"),
        ("nonfused", ConvShape(1, 4, 8, 8, 4, 3, 3, groups=2), "groups must be 1, got 2"),
        ("4x4", ConvShape(1, 600_000, 3, 3, 1, 3, 3), r"C <= 65535\*8 \(grid.y\), got 600000"),
        ("4x4", ConvShape(1, 1, 3, 3, 65_535 * 32 + 1, 3, 3), r"K <= 65535\*BK \(grid.y\), got 2097121"),
        ("nonfused", ConvShape(1, 1, 3, 3, 65_535 * 64 + 1, 3, 3), r"K <= 65535\*BM \(grid.y\), got 4194241"),
        ("2x2", ConvShape(2**31 - 1, 1, 3, 3, 1, 3, 3), "tiles must stay below 2\\^31 - 32, got 2147483647"),
        ("nonfused", ConvShape(2**20, 2**13, 3, 3, 1, 3, 3), "C × output tiles must stay below"),
        ("nonfused", ConvShape(2**20, 1, 3, 3, 2**13, 3, 3), "K × output tiles must stay below"),
        ("2x2", ConvShape(1, 1, 2**31 - 2, 3, 1, 3, 3), r"P \+ 2\*M must stay below 2\^31, got"),
    ],
)
def test_rules_are_named_with_their_values(name, shape, message):
    with pytest.raises(RuleError, match=message):
        RUNG[name].check(shape, None)


@rungs
def test_every_choice_of_tile_sizes_is_allowed(rung):
    chosen = {(n, v) for tiles in rung.tile_sets(SHAPE) for n, v in tiles.items()}
    assert chosen == {(n, v) for n, choices in rung.tiles.items() for v in choices}


# -- cost -------------------------------------------------------------------------------------------
WHOLE_BLOCKS = ConvShape(4, 16, 16, 16, 64, 3, 3, pad=1)  # whole blocks at every tile size but 6


@needs_nvrtc
@pytest.mark.parametrize(("name", "m"), [("2x2", 2), ("4x4", 4), ("nonfused", 2)])
def test_predicted_flops_equal_counted_flops(name, m):
    """All blocks are full. The compiler may share a product between two sums."""
    rung, shape = RUNG[name], WHOLE_BLOCKS.with_(N=32 if m == 4 else 8)
    tiles = with_m(rung, m)
    program = rung.build(shape, tiles)
    session = emulator.Session(program, seeded_inputs(program.of_role("input")), Options())
    session.verify_run()
    predicted = rung.cost(shape, program).flops
    assert 0.97 * predicted <= session.counters.total["flops_fp"] <= predicted


@pytest.mark.parametrize(("m", "saved"), [(2, 36 / 16), (4, 144 / 36), (6, 324 / 64)])
def test_savings_near_the_multiplication_ratio_at_many_channels(m, saved):
    shape = ConvShape(32, 4096, 24, 24, 4096, 3, 3, pad=1)
    assert 0.95 * saved < shape.flops / conv_winograd.flops(shape, m) < saved


@pytest.mark.parametrize("m", winograd_matrices.TILES)
def test_workspace_is_three_stacks_of_matrices(m):
    rung, s = RUNG["nonfused"], ConvShape(2, 8, 24, 24, 12, 3, 3, pad=1)
    program = rung.build(s, with_m(rung, m))
    tiles = s.N * (24 // m) ** 2
    floats = (m + 2) ** 2 * (s.C * s.K + (s.C + s.K) * tiles)
    assert rung.cost(s, program).workspace_bytes == program.nbytes(WORKSPACE) == 4 * floats


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_bias_relu_step_has_its_own_rule(rung):
    s = ConvShape(70_000, 1, 4, 4, 1, 3, 3)
    assert not list(rung.rules(s, rung.default_tiles))
    (broken,) = rung.rules(s.with_(relu=1), rung.default_tiles)
    assert broken == "N (grid.y, with bias or ReLU) <= 65535, got 70000"
