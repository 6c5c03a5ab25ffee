"""The pooling ladders without a GPU: results at any shape and for hard values, races, counts of atomics, rules, faults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.shape import INT_MAX
from kernels.pooling import common, reference
from kernels.pooling.ladder import LADDERS as POOLING
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from kernels.runner import run
from tests.helpers import rung_runs
from tests.helpers.offenders import every
from tests.helpers.pooling import KINDS, avg_shapes, global_shapes, hard, max_shapes

RUNGS = {rung.name: rung for ladder in POOLING for rung in ladder.rungs if not rung.library}
ON_CPU = [name for name, rung in RUNGS.items() if "cpu" in rung.engines]
PATCHES = [name for name in RUNGS if name.endswith("patch")]
OTHERS = [name for name in RUNGS if name not in PATCHES]  # compiled once for every shape
# Windows of the patch kernels, which are compiled for each: overlapping, apart, padded, dilated, one pixel.
WINDOWS = [
    {"R": 3, "u": 2, "pad_h": 1, "dilation_h": 1, "S": 3, "v": 2, "pad_w": 1, "dilation_w": 1, "ceil": 0},
    {"R": 2, "u": 3, "pad_h": 0, "dilation_h": 1, "S": 3, "v": 1, "pad_w": 1, "dilation_w": 1, "ceil": 1},
    {"R": 1, "u": 1, "pad_h": 0, "dilation_h": 1, "S": 5, "v": 4, "pad_w": 2, "dilation_w": 1, "ceil": 1},
    {"R": 2, "u": 1, "pad_h": 1, "dilation_h": 2, "S": 3, "v": 2, "pad_w": 1, "dilation_w": 3, "ceil": 0},
]


def shapes_of(name: str, chosen: st.SearchStrategy | None = None) -> st.SearchStrategy:
    if name.startswith("max"):
        return max_shapes(chosen)
    return avg_shapes(chosen) if name.startswith("avg") else global_shapes


def outputs(engine, name, shape, tiles=None, inputs=None, options=None):
    return rung_runs.verified_outputs(engine, RUNGS[name], shape, tiles, inputs, options)


# -- results -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ON_CPU)
@settings(max_examples=15)
@given(data=st.data())
def test_numpy_is_right_at_any_shape(name, data):
    """A patch under wide windows has too many pixels for the registers."""
    shape = data.draw(shapes_of(name))
    assume(not any(RUNGS[name].rules(shape, RUNGS[name].default_tiles)))
    outputs(cpu, name, shape)


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=5)
@given(data=st.data())
def test_kernels_are_right_at_any_shape(name, data):
    tiles = {t: data.draw(st.sampled_from(choices)) for t, choices in RUNGS[name].tiles.items()}
    shape = data.draw(shapes_of(name))
    assume(not any(RUNGS[name].rules(shape, tiles)))
    outputs(emulator, name, shape, tiles)


@pytest.mark.parametrize("name", PATCHES)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: f"{w['R']}x{w['S']}")
@settings(max_examples=2)
@given(data=st.data())
def test_patches_are_right_at_any_shape(name, window, data):
    outputs(emulator, name, data.draw(shapes_of(name, st.just(window))))


ALIGNED = {
    "max": MaxPoolShape(1, 2, 9, 12, 3, 3, stride=2, pad=1),
    "avg": AvgPoolShape(1, 2, 9, 12, 3, 3, stride=2, pad=1, include_pad=0),
}


@pytest.mark.parametrize("name", PATCHES)
def test_patches_are_right_with_vectors(name):
    """Rows of 12 floats are loaded and stored four at once, rows of 10 outputs two at once."""
    shape = ALIGNED[name[:3]]
    assert common.window_defines(shape, RUNGS[name].default_tiles)["VECTOR"] == 4
    outputs(emulator, name, shape)
    program = RUNGS[name].build(shape, RUNGS[name].default_tiles)
    inputs = rung_runs.inputs_of(LADDERS[name.partition("/")[0]], shape, program)
    session = emulator.open(program, inputs)
    session.verify_run()
    total = session.counters.total
    words = (total["bytes_ld"] + total["bytes_st"]) / 4
    assert total["requests_ld"] + total["requests_st"] < words / 32 * 4  # far below one for each float


@pytest.mark.parametrize("name", PATCHES)
def test_every_tile_choice_of_a_patch_is_right(name):
    rung, shape = RUNGS[name], ALIGNED[name[:3]]
    rung_runs.each_choice_is_legal(rung, shape)
    for tile in ("HIGH", "WIDE"):
        for value in rung.tiles[tile]:
            outputs(emulator, name, shape, {tile: value})


@every("name", [n for n in RUNGS if n.startswith("max-pool/")])
@every("kind", KINDS)
@every("engine", [cpu, emulator])
def test_ties_infinities_and_nan_follow_pytorchs_rule(name, kind, engine):
    """Exact to the bit: the first of equal values, the last NaN, the first pixel where all are -infinity."""
    for shape in (
        MaxPoolShape(2, 2, 7, 9, 3, 3, stride=2, pad=1),
        MaxPoolShape(2, 2, 7, 8, 3, 3, stride=2, pad=1, ceil=1),
    ):
        x = hard(kind, shape.x_shape)
        out, _ = rung_runs.computed_outputs(engine, RUNGS[name], shape, inputs={"x": x})
        y, index = reference.maxima(shape, x)
        np.testing.assert_array_equal(out["y"], y)
        np.testing.assert_array_equal(out["index"], index)


@pytest.mark.parametrize("name", [n for n in RUNGS if n.startswith("max-pool-backward")])
def test_every_output_may_take_one_pixel(name):
    """All four windows took the pixel in the middle."""
    shape = MaxPoolShape(1, 1, 3, 3, 2, 2, stride=1)
    inputs = {"dy": np.ones(shape.y_shape, np.float32), "index": np.full(shape.y_shape, 4, np.int32)}
    for engine in (cpu, emulator) if name in ON_CPU else (emulator,):
        dx = outputs(engine, name, shape, inputs=inputs)["dx"]
        assert dx[0, 0, 1, 1] == 4 and dx.sum() == 4


LONG = [
    n for n in RUNGS if n.startswith("global-avg-pool/") and not n.endswith(("/tile", "/bulk"))
]  # planes that fit no tile


@pytest.mark.parametrize("name", LONG)
def test_long_planes_of_equal_values_stay_within_the_scale(name):
    shape = GlobalShape(1, 2, 56, 56)
    outputs(cpu, name, shape, inputs={"x": np.full((1, 2, 56, 56), 0.1, np.float32)})


@pytest.mark.parametrize("name", [n for n in RUNGS if "backward" in n and n[:3] in ("max", "avg")])
def test_a_gap_between_windows_gets_no_gradient(name):
    shape = (MaxPoolShape if name.startswith("max") else AvgPoolShape)(1, 2, 8, 8, 1, 1, stride=3)
    dx = outputs(emulator, name, shape)["dx"]
    reached = np.zeros((8, 8), bool)
    reached[::3, ::3] = True
    assert not dx[:, :, ~reached].any() and dx[:, :, reached].all()


# -- threads -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [n for n in RUNGS if not n.endswith("scatter")])
def test_the_order_of_warps_changes_nothing(name):
    shape = {
        "max": MaxPoolShape(2, 3, 9, 8, 3, 3, stride=2, pad=1),
        "avg": AvgPoolShape(2, 3, 9, 8, 3, 3, stride=2, pad=1),
    }.get(name[:3], GlobalShape(3, 37, 3, 5))
    rung_runs.same_in_any_order(lambda options: rung_runs.computed(emulator, RUNGS[name], shape, options=options)[0])


@pytest.mark.parametrize("name", ["max-pool-backward/scatter", "avg-pool-backward/scatter"])
def test_scatter_has_no_race_and_one_atomic_per_link(name):
    shape = ALIGNED[name[:3]]
    program = RUNGS[name].build(shape, RUNGS[name].default_tiles)
    inputs = rung_runs.inputs_of(LADDERS[name.partition("/")[0]], shape, program)
    session = emulator.Session(program, inputs, Options(races=True))
    session.verify_run()
    links = shape.outputs if name.startswith("max") else int(reference.divisors(shape).sum()) * shape.planes
    assert session.counters.total["atomics"] == links


def test_a_scatter_without_atomics_loses_gradients():
    """Four lanes add to one pixel at the same time: one of their sums is kept."""
    rung, shape = RUNGS["max-pool-backward/scatter"], MaxPoolShape(1, 1, 3, 3, 2, 2, stride=1)
    inputs = {"dy": np.ones(shape.y_shape, np.float32), "index": np.full(shape.y_shape, 4, np.int32)}
    program = rung.build(shape, rung.default_tiles)
    memory = rung_runs.memory_of(program, inputs | {"dx": np.zeros(shape.x_shape, np.float32)})
    change = rung_runs.replace_once("dx[index[i]] += dy[i];", "atomicAdd(dx + index[i], dy[i]);")
    ran = rung_runs.relaunched(program.steps[1], change, memory)
    assert ran.races or memory.array("dx").ravel()[4] < 4


# -- faults ------------------------------------------------------------------------------------------
FAULTS = [
    ("max-pool/window", "return value > best || value != value;", "return value >= best || value != value;"),
    ("max-pool/window", "return value > best || value != value;", "return value > best;"),
    ("max-pool/window", "place = h * shape.W + w;", "place = h * shape.Q + w;"),
    ("max-pool/patch", "c >= PAD_W % 4 &&", "c >= 0 &&"),
    ("max-pool/patch", "left + row_col;", "row_col;"),
    ("max-pool-backward/gather", "p * shape.u <= bottom", "p * shape.u < bottom"),
    ("max-pool-backward/gather-patch", "- FIRST_P + 1", "- FIRST_P"),
    ("avg-pool/window", "min(start + window, extent + pad)", "start + window"),
    ("avg-pool/patch", "PATCH_H = (DOWN - 1) * STRIDE_H + SPAN_H", "PATCH_H = DOWN * STRIDE_H + SPAN_H - 2"),
    ("avg-pool-backward/gather", "bottom - (shape.R - 1)", "bottom - shape.R"),
    ("avg-pool-backward/gather-patch", "tap_at(col - left,", "tap_at(col + 1 - left,"),
    ("global-avg-pool/warp", "lane_mask = 16", "lane_mask = 8"),
    ("global-avg-pool/tile", "  __syncthreads();\n", ""),
    ("global-avg-pool/tile", "lane_mask = SHARE / 2", "lane_mask = SHARE / 4"),
    ("global-avg-pool/streaming", "lane_mask = 16", "lane_mask = 8"),
    ("global-avg-pool/bulk", "  wait(&full, 0);\n", ""),
    ("global-avg-pool/bulk", "int i = fours; i < count;", "int i = fours; i < fours;"),
    ("global-avg-pool/plane", "sum / area", "sum / (area + 1)"),
    ("global-avg-pool-backward/pixel", "/ area", "/ 2"),
    ("global-avg-pool-backward/four-pixels", "dy[++plane]", "dy[plane]"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_fault_in_a_kernel_is_detected(name, right, wrong):
    """At one of two shapes: with ceil mode, padding and ties, or with vectors."""
    max_cases = (
        MaxPoolShape(1, 2, 6, 8, 3, 3, stride=2, pad=1, ceil=1),
        MaxPoolShape(1, 2, 6, 7, 3, 2, stride=1, pad=1),
    )
    avg_cases = (
        AvgPoolShape(1, 2, 6, 8, 3, 3, stride=2, pad=1, ceil=1),
        AvgPoolShape(1, 2, 5, 7, 3, 2, stride=1, pad=1),
    )
    cases = {"max": max_cases, "avg": avg_cases}.get(name[:3], (GlobalShape(2, 3, 3, 5), GlobalShape(2, 3, 9, 9)))
    assert any(fault_shows(RUNGS[name], shape, right, wrong) for shape in cases), "the fault changed nothing"


def fault_shows(rung, shape, right: str, wrong: str) -> bool:
    ladder = LADDERS[rung.name.partition("/")[0]]
    program = rung.build(shape, rung.default_tiles)
    inputs = rung_runs.inputs_of(ladder, shape, program)
    if "x" in inputs and rung.name.startswith("max"):
        inputs = {"x": hard("NaN", shape.x_shape)}
    memory = rung_runs.memory_of(program, inputs)
    for name, array in ((b.name, memory.array(b.name)) for b in program.outputs):
        memory.write(name, np.full(array.shape, -7, array.dtype))
    with np.errstate(all="ignore"):
        ran = rung_runs.relaunched(program.steps[-1], rung_runs.replace_once(wrong, right), memory)
    if ran is None or ran.races:
        return True
    expected = rung_runs.by_output(ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs))
    return any(
        not np.allclose(memory.array(name), ref, rtol=1e-5, atol=1e-6, equal_nan=True)
        for name, (ref, _) in expected.items()
    )


# -- rules and costs ---------------------------------------------------------------------------------
HUGE = MaxPoolShape(2**16, 2**15, 2, 2, 2, 2)
RULES = [
    ("max-pool/window", MaxPoolShape(1, 1, 2**16, 2**15, 2, 2), {}, r"H\*W must stay below 2\^31, got 2147483648"),
    ("max-pool/window", HUGE, {}, r"N\*C\*P\*Q must stay below 2\^31 - BLOCK, got 2147483648"),
    ("max-pool/patch", HUGE, {}, r"N\*C\*\(patches of a plane\) must stay below 2\^31 - BLOCK"),
    ("max-pool-backward/gather", MaxPoolShape(2**16, 2**13, 2, 2, 2, 2), {}, r"N\*C\*H\*W must stay below"),
    (
        "max-pool/patch",
        MaxPoolShape(1, 1, 20, 20, 13, 13, stride=1),
        {},
        r"with its windows <= 128 \(registers\), got 16\*16",
    ),
    (
        "avg-pool-backward/gather-patch",
        AvgPoolShape(1, 1, 90, 90, 1, 1, stride=30),
        {},
        r"pixels of a patch <= 128 \(registers\), got 30\*30",
    ),
    ("avg-pool/window", AvgPoolShape(1, 1, 4, 4, 2, 2), {"BLOCK": 5}, "BLOCK must be one of 64, 128, 256, 512"),
    ("avg-pool/window", AvgPoolShape(1, 1, 4, 4, 2, 2), {"WARPS": 4}, "no tile size 'WARPS'"),
    ("global-avg-pool/warp", GlobalShape(1, 1, 1, INT_MAX), {}, r"H\*W must stay below 2\^31 - 128"),
    ("global-avg-pool/plane", GlobalShape(1, INT_MAX, 1, 1), {}, r"N\*C must stay below 2\^31 - 256"),
    ("global-avg-pool-backward/pixel", GlobalShape(1, INT_MAX, 1, 1), {}, r"N\*C\*H\*W must stay below"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    with pytest.raises(RuleError, match=message):
        RUNGS[name].check(shape, tiles)


@every("ladder", POOLING, ids=lambda ladder: ladder.name)
def test_every_preset_runs_on_every_rung(ladder):
    for preset in ladder.presets.values():
        for rung in ladder.rungs:
            if rung.name in ("global-avg-pool/tile", "global-avg-pool/bulk") and preset.shape.H * preset.shape.W > 1000:
                with pytest.raises(RuleError, match="bytes of shared memory"):
                    rung.check(preset.shape, {})
            else:
                assert rung.check(preset.shape, {}) == rung.default_tiles


def test_an_index_outside_of_the_plane_is_refused():
    shape = MaxPoolShape(1, 1, 4, 4, 2, 2)
    with pytest.raises(RuleError, match=r"index must hold whole numbers in 0 .. 15"):
        run("max-pool-backward/scatter", shape, {"index": np.full(shape.y_shape, 16)}, engine="cpu", measure=False)


@every("name", RUNGS)
def test_predicted_bytes_are_those_of_the_tensors(name):
    """A scatter moves dx twice more: its zeros, and the atomics that read and write it."""
    shape = ALIGNED.get(name[:3], GlobalShape(2, 3, 4, 5))
    cost = RUNGS[name].cost(shape, RUNGS[name].build(shape, RUNGS[name].default_tiles))
    again = 8 * shape.pixels if name.endswith("scatter") else 0
    assert cost.bytes == shape.bytes + again and cost.workspace_bytes == 0


@pytest.mark.parametrize("name", ["max-pool/window", "avg-pool/window", "max-pool-backward/gather"])
def test_patches_load_less_than_the_rung_before(name):
    """Counted: with one thread per window or pixel, each float is loaded for every window that it is in."""
    shape = {"max": MaxPoolShape, "avg": AvgPoolShape}[name[:3]](1, 2, 32, 32, 3, 3, stride=1, pad=1)
    patch = {"window": "patch", "gather": "gather-patch"}[name.partition("/")[2]]
    loaded = {}
    for rung in (RUNGS[name], RUNGS[f"{name.partition('/')[0]}/{patch}"]):
        program = rung.build(shape, rung.default_tiles)
        session = emulator.open(program, rung_runs.inputs_of(LADDERS[name.partition("/")[0]], shape, program))
        session.verify_run()
        loaded[rung.name] = session.counters.total["bytes_ld"]
    plain, fewer = loaded.values()
    assert fewer < plain / 2
