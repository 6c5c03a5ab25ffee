"""The scenes of the lesson on precision: their cells are the bits, counts, losses and sums of the data beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import run
from kernels.model.program import INPUT
from kernels.precision import record, sums
from kernels.precision.formats import FORMATS, FP16, losses, rounded, value
from kernels.precision.integer import CHANNEL, LAYERS, TENSOR
from kernels.precision.ladder import INSTRUCTIONS, LADDER
from kernels.precision.quantize import CALIBRATIONS
from kernels.precision.shape import K, M, N
from kernels.runner import seeded_inputs
from tests.helpers.offenders import every
from visuals.precision import curves, histogram, tables
from visuals.precision.activations import COUNT, activations_scene, first_shown, numbers
from visuals.precision.bits import INT8, INT8_SCALE, NAMES, PLACES, REST, Parts, bits_scene
from visuals.precision.curves import EVERY, SCALING, WEIGHTS, curves_scene
from visuals.precision.histogram import HIGH, LOW, ROWS, SCALES, fate, histogram_scene, ranges, shares
from visuals.precision.instructions import GROUPS, SHAPE, instruction_scene, issues
from visuals.precision.int8 import int8_scene, layer_weights, quantizer
from visuals.precision.sums import FP8_TITLES, TITLES, fp8_scene, sums_scene
from visuals.precision.weight import weight_scene
from visuals.scene.scene import number

floats = st.one_of(st.floats(-1e9, 1e9), st.floats(-1e-6, 1e-6), st.floats(-3, 3), st.integers(-5000, 5000).map(float))
every_format = pytest.mark.parametrize("f", FORMATS.values(), ids=lambda f: f.name)


# -- a number --------------------------------------------------------------------------------------
def stored(scene, f) -> float:
    bits = np.concatenate([scene.cells(name) for name in "sem"])
    assert set(bits.tolist()) <= {0, 1}
    return value(int("".join(str(int(bit)) for bit in bits), 2), f)


@every_format
@settings(max_examples=25)
@given(x=floats)
def test_the_last_bits_are_those_of_the_rounded_number(f, x):
    scene = bits_scene(f.name, x)
    np.testing.assert_equal(stored(scene, f), float(rounded(x, f)))
    if scene.steps == 5 and math.isfinite(stored(scene, f)):
        line, (low, high) = scene.cells("line"), Parts(f, x).neighbours()
        assert (line[0], line[PLACES - 1]) == (0, 1)
        assert low <= abs(x) < high and abs(stored(scene, f)) in (low, high)
        assert float(rounded(low, f)) == low and (high > f.max or float(rounded(high, f)) == high)
        between = line[np.isfinite(line)][1:-1]
        assert between == pytest.approx([(abs(x) - low) / (high - low)] if abs(x) > low else [])


@every_format
@settings(max_examples=25)
@given(x=floats)
def test_the_binary_digits_are_those_of_x(f, x):
    scene = bits_scene(f.name, x)
    if "x" not in [t.name for t in scene.tensors]:
        assert x == 0 or abs(x) >= 2.0 ** (f.max_exponent + 1)
        return
    bits = scene.cells("x")
    exponent = int(scene.tensor("x").note.split("^")[1].split(",")[0])
    seen = sum(bit * 2.0 ** (exponent - n) for n, bit in enumerate(bits.tolist()))
    assert seen <= abs(x) < seen + 2.0 ** (exponent - f.mantissa_bits - REST) + 1e-300


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (2049.0, "The neighbour whose last bit is 0 is the lower one."),
        (2051.0, "the upper one"),
        (0.1, "less than half"),
        (0.3, "more than half"),
        (1.5, "x is stored exactly"),
    ],
)
def test_a_step_says_how_it_rounds(x, words):
    scene = bits_scene("FP16", x)
    assert words in scene.caption(3), scene.caption(3)


@every(
    ("name", "x", "words"),
    [
        ("FP16", 70000.0, "It becomes infinity"),
        ("FP8 E4M3", 500.0, "no infinity"),
        ("FP16", 1e-9, "The result is 0"),
        ("FP16", 65520.0, "It becomes infinity"),
        ("FP16", 0.0, "The error is 0"),
        ("FP32", 0.1, "Stored is 0.1"),
    ],
)
def test_the_last_step_says_what_is_stored(name, x, words):
    scene = bits_scene(name, x)
    assert words in scene.caption(scene.steps - 1)


@settings(max_examples=25)
@given(x=floats)
def test_int8_shows_a_whole_number_and_its_bits(x):
    scene = bits_scene(INT8, x)
    q = int(np.clip(np.rint(x / INT8_SCALE), -128, 127))
    assert scene.cells("q")[0] == q and scene.cells("back")[0] == np.float32(q * INT8_SCALE)
    byte = int("".join(str(int(bit)) for bit in scene.cells("bits")), 2)
    assert np.array(byte, np.uint8).view(np.int8) == q


def test_every_format_has_a_scene_with_all_its_bits():
    for name in NAMES:
        scene = bits_scene(name, -0.75)
        assert sum(scene.tensor(n).size for n in (["bits"] if name == INT8 else "sem")) == (
            8 if name == INT8 else FORMATS[name].bits
        )


# -- gradients -------------------------------------------------------------------------------------
@every_format
@pytest.mark.parametrize("at", [1, 150])
def test_a_histogram_shows_the_shares_of_the_gradients(f, at):
    x = record.gradient("d conv2.y", at)
    scene = histogram_scene("d conv2.y", at, x, f.name)
    absolute = np.abs(x[x != 0].astype(np.float64))
    for step in (0, 7, SCALES - 1):
        shown = np.concatenate([scene.cells(one.fate, step).reshape(ROWS, -1) for one in ranges(f)], axis=1)
        power = np.clip(np.floor(np.log2(absolute * 2.0**step)), LOW, HIGH)
        expected = np.array([np.mean(power == p) for p in range(LOW, HIGH + 1)])
        np.testing.assert_allclose(shown.max(axis=0), 100 * expected, atol=0.006)
        assert ((shown > 0).sum(axis=0) > 0).tolist() == (expected > 0).tolist()
        lost = losses(x, f, 2.0**step)
        assert [r.values[step] for r in scene.readings] == pytest.approx(
            [100 * lost.underflow, 100 * lost.subnormal, 100 * lost.overflow], abs=0.051
        )


@every_format
def test_ranges_cover_every_column_once_and_their_numbers_have_their_fate(f):
    powers = [p for one in ranges(f) for p in range(one.first, one.last + 1)]
    assert powers == list(range(LOW, HIGH + 1))
    for one in ranges(f):
        for power in (one.first, one.last):
            assert fate(power, f) == one.fate


@pytest.mark.parametrize(("scene", "exact", "way"), [(sums_scene(), "exact", "fp16"), (fp8_scene(), "exact", "fp8")])
def test_sums_in_a_caption_have_the_same_digits_and_only_equal_ones_are_0_percent_off(scene, exact, way):
    for step in range(scene.steps):
        caption, (a, b) = scene.caption(step), (float(scene.cells(name)[step]) for name in (exact, way))
        assert f"The exact sum is {number(a)}." in caption and f" {number(b)}" in caption
        assert (" 0 % off" in caption) == (a == b and "% off" in caption)


def test_a_scale_moves_every_column_to_the_right():
    x = np.array([2.0**-20, 3 * 2.0**-20, 2.0**-10])
    first, second = shares(x, 0), shares(x, 1)
    np.testing.assert_array_equal(first[:-1], second[1:])
    assert shares(np.zeros(3), 0).sum() == 0 and shares(np.array([1e-30]), 0)[0] == 1


# -- trainings -------------------------------------------------------------------------------------
@pytest.mark.parametrize("names", [SCALING, WEIGHTS], ids=["scaling", "weights"])
def test_the_bars_are_the_recorded_losses(names):
    scene = curves_scene(names)
    for name in names:
        loss = record.curve(name).loss.astype(np.float64).reshape(-1, EVERY).mean(axis=1)
        cells = scene.cells(name).reshape(curves.ROWS, -1)
        np.testing.assert_allclose(cells.max(axis=0), loss, rtol=1e-6)
        np.testing.assert_array_equal((cells > 0).sum(axis=0), curves.heights(loss))
        assert scene.cells(name, 3).reshape(curves.ROWS, -1)[:, 4:].max() == 0


def test_the_row_of_skipped_updates_is_recorded():
    scene, dynamic = curves_scene(SCALING), record.curve("dynamic")
    assert scene.cells("skipped").sum() == dynamic.skipped.sum() > 0
    np.testing.assert_array_equal(2.0 ** scene.cells("scale"), dynamic.scale[EVERY - 1 :: EVERY])
    at = int(np.flatnonzero(scene.cells("skipped"))[0])
    assert (
        f"Updates skipped in these three steps: {dynamic.skipped[at * EVERY : (at + 1) * EVERY].sum()}."
        in scene.caption(at)
    )


def test_the_weight_is_the_recorded_one():
    scene = weight_scene()
    master, lost = (record.followed(name).astype(np.float64) for name in ("master", "lost"))
    unit = float(record.distance(lost[0]))
    np.testing.assert_allclose(scene.cells("master"), (master[1:] - master[0]) / unit, atol=0.006)
    np.testing.assert_allclose(np.cumsum(scene.cells("update")), scene.cells("master"), atol=0.006 * len(master))
    assert (scene.cells("lost") == 0).all() and "rounded back" in scene.caption(0)


def test_the_sums_are_the_measured_ones():
    scene, found = sums_scene(), sums.measured()
    for name in TITLES:
        np.testing.assert_array_equal(scene.cells(name), found[name].astype(np.float32))
    assert "it stays at 2048" in scene.caption(scene.steps - 1)


def test_the_sums_of_fp8_products_are_the_computed_ones():
    scene, found = fp8_scene(), sums.fp8_measured()
    for name in FP8_TITLES:
        np.testing.assert_array_equal(scene.cells(name), found[name].astype(np.float32))
    last = scene.caption(scene.steps - 1)
    assert "after every 128 products" in last and "after 14 bits" in scene.caption(0)


# -- INT8 ------------------------------------------------------------------------------------------
@every("layer", LAYERS)
@every("per", [TENSOR, CHANNEL])
def test_a_row_of_weights_is_quantised_as_the_net_is(layer, per):
    w, q, output = layer_weights(layer), quantizer(layer, per), 4
    scene = int8_scene(layer, output, per)
    n = scene.tensor("w").cols
    np.testing.assert_array_equal(scene.cells("w"), w[:n, output].astype(np.float32))
    np.testing.assert_array_equal(scene.cells("q"), q.quantize(w)[:n, output])
    np.testing.assert_allclose(scene.cells("back"), q.dequantize(q.quantize(w))[:n, output], rtol=1e-6)
    assert np.abs(scene.cells("error")).max() <= 0.5 + 1e-6
    scale = q.scale[output if per == CHANNEL else 0]
    assert scene.cells("scale")[0] == np.float32(scale)
    assert scene.captions.args[-1, 0] == pytest.approx(scale / 2)  # the largest error that rounding allows


@every("layer", LAYERS)
@every("calibration", CALIBRATIONS)
def test_activations_are_quantised_as_the_net_does(layer, calibration):
    x, q = numbers(layer), record.activations(layer, calibration)
    scene = activations_scene(layer, calibration)
    at = first_shown(x)
    shown = x[at : at + COUNT]
    np.testing.assert_array_equal(scene.cells("x"), shown.astype(np.float32))
    np.testing.assert_array_equal(scene.cells("q"), q.quantize(shown))
    np.testing.assert_allclose(scene.cells("back"), q.dequantize(q.quantize(shown)), rtol=1e-6)
    assert scene.cells("zero")[0] == q.zero_point[0] == -128
    assert x.min() >= 0 and shown.sum() >= x[:COUNT].sum()


# -- instructions ----------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", LADDER.rungs, ids=lambda rung: rung.name)
@settings(max_examples=1)
@given(data=st.data())
def test_the_last_cells_are_what_the_kernel_stored(rung, data):
    block = data.draw(st.sampled_from(rung.tiles["BLOCK"]))
    inputs = seeded_inputs(rung.build(SHAPE, rung.default_tiles).of_role(INPUT))
    kernel = run(rung.name, SHAPE, inputs, engine="emulator", tiles={"BLOCK": block}, measure=False)
    scene = instruction_scene(rung.name, {"BLOCK": block})
    np.testing.assert_array_equal(scene.cells("C"), kernel.output.ravel())
    assert scene.readings[0].values[-1] == INSTRUCTIONS[rung.name.partition("/")[2]]
    assert scene.readings[1].values[-1] == M * N * K


@pytest.mark.parametrize("name", GROUPS)
def test_every_product_belongs_to_one_instruction(name):
    done = np.zeros((M, N, K), int)
    for one in issues(name):
        done[np.ix_(one.rows, one.cols, range(one.first, one.stop))] += 1
    assert (done == 1).all() and len(list(issues(name))) == INSTRUCTIONS[name]


# -- tables ----------------------------------------------------------------------------------------
def test_tables_say_what_is_measured_and_what_is_not():
    html = tables.instructions().html("instructions")
    assert "counted" in html and "2,048" in html
    rows = dict(tables.instructions().lines)
    assert all(len(cells) == 5 for cells in rows.values())
    control = dict(tables.control().lines)
    assert [control[name][3] for name in ("HFMA", "HDP4A", "HMMA")] == ["2,000 %", "500 %", "27 %"]
    for table in (
        tables.formats(),
        tables.gradient_losses("d conv1.y", 150),
        tables.scaling(),
        tables.weights(),
        tables.accumulation(),
        tables.int8(),
    ):
        assert table.conclusion.endswith(".") and all(len(cells) == len(table.columns) for _, cells in table.lines)


def test_the_table_of_losses_is_that_of_the_gradients():
    x = record.gradient("d conv1.y", 150)
    cells = dict(tables.gradient_losses("d conv1.y", 150).lines)["FP16"]
    assert cells[0] == f"{100 * losses(x, FP16).underflow:.1f} %"


def test_the_first_histogram_has_no_writes_at_its_first_step():
    scene = histogram_scene("d fc1.W", 1, record.gradient("d fc1.W", 1), "FP16")
    assert all(np.min(w.steps) > 0 for w in scene.writes)
    assert tuple(FORMATS) == histogram.NAMES
