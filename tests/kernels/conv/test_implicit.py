"""conv/direct-tiled and the implicit GEMMs without a GPU: results at any shape with groups, bias and ReLU, races, rules."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import implicit as conv_implicit
from kernels.conv import ladder as conv_ladder
from kernels.conv.presets import CONV_LAYER_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler.compile import ptxas_log
from kernels.model.program import RuleError
from kernels.precompile import ptxas_resources
from kernels.runner import seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import verified_output
from tests.helpers.shapes import conv_shapes, layer_shapes

RUNGS = {rung.name: rung for rung in conv_implicit.RUNGS}
PLAIN, MAGIC = RUNGS["conv/implicit-gemm-plain"], RUNGS["conv/implicit-gemm"]
BASIC_RUNGS = {rung.name: rung for rung in conv_ladder.BASIC_RUNGS}
TOY = ConvShape(1, 1, 8, 8, 2, 3, 3)
# Several blocks, partly outside, several images in a tile, more terms than two tiles, two groups.
RAGGED = ConvShape(
    3, 6, 9, 7, 10, 3, 2, stride=(1, 2), pad=(2, 1), dilation=(1, 2), groups=2, bias=1, relu=1, mode="convolution"
)


# -- results at any shape ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(shape=layer_shapes())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape):
    verified_output(emulator, RUNGS[name], shape)


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=12)
@given(shape=layer_shapes(max_extent=5))
def test_cpu_agrees_with_the_reference_at_any_shape(name, shape):
    assert verified_output(cpu, RUNGS[name], shape).dtype == np.float32


@pytest.mark.parametrize("name", BASIC_RUNGS)
@settings(max_examples=3)
@given(shape=layer_shapes(groups=False))
def test_basic_rungs_add_bias_and_relu_in_a_separate_step(name, shape):
    for engine in (emulator, cpu):
        verified_output(engine, BASIC_RUNGS[name], shape)
    steps = [step.name for step in BASIC_RUNGS[name].build(shape, BASIC_RUNGS[name].default_tiles).steps]
    assert ("bias_relu" in steps) == bool(shape.bias or shape.relu)


def test_bias_relu_step_costs_the_output_read_and_written():
    rung, finished = BASIC_RUNGS["conv/direct"], TOY.with_(relu=1)
    plain, more = (rung.cost(s, rung.build(s, rung.default_tiles)) for s in (TOY, finished))
    assert more.bytes - plain.bytes == 2 * 4 * TOY.elements["y"] and more.flops == plain.flops


@pytest.mark.parametrize("name", RUNGS)
def test_long_sums_are_added_in_parts(name):
    """Has more terms than implicit-gemm adds in one partial sum."""
    verified_output(emulator, RUNGS[name], ConvShape(1, 174, 3, 3, 3, 3, 3, pad=1, bias=1, relu=1))


def test_part_length_equals_the_source():
    info = re.search(r"constexpr int PART = (\d+);", sources.text("conv/implicit.cuh"))
    assert int(info[1]) == conv_implicit.PART
    for tiles in (t for t in rung_runs.legal(MAGIC, TOY)):
        assert conv_implicit.PART % tiles["BK"] == 0


@pytest.mark.parametrize("name", RUNGS)
def test_relu_hides_no_nan(name):
    inputs = {"x": np.zeros(TOY.x_shape, "f4"), "w": np.ones(TOY.w_shape, "f4")}
    inputs["x"][0, 0, 4, 4] = np.nan
    for engine in (emulator, cpu):
        y, _ = rung_runs.computed(engine, RUNGS[name], TOY.with_(relu=1), inputs=inputs)
        assert np.isnan(y).sum() == 2 * 9


@settings(max_examples=2)
@given(shape=layer_shapes(max_extent=4))
def test_fast_division_equals_plain_division_bit_for_bit(shape):
    np.testing.assert_array_equal(verified_output(emulator, MAGIC, shape), verified_output(emulator, PLAIN, shape))


# -- races, faults -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    rung_runs.same_in_any_order(lambda options: verified_output(emulator, RUNGS[name], RAGGED, options=options))


FAULTS = {
    "a barrier left out": ("      __syncthreads();\n", ""),
    "the border above forgotten": (
        "(unsigned)(windows[j].h + tap_h) < (unsigned)shape.H &&",
        "windows[j].h + tap_h < shape.H &&",
    ),
    "the flip forgotten": ("if (shape.flip) {", "if (false) {"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault."""
    program = MAGIC.build(RAGGED, MAGIC.default_tiles)
    rung_runs.assert_fault_is_detected(MAGIC, RAGGED, program, seeded_inputs(program.of_role("input")), *FAULTS[fault])


# -- tile sizes and rules -----------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=3)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    rung = data.draw(st.sampled_from(conv_implicit.RUNGS))
    shape = data.draw(layer_shapes())
    rung_runs.runs_or_names_its_rule(rung, shape, rung_runs.some_tiles(data, rung, shape), "<=|==|stay below")


@pytest.mark.parametrize("rung", conv_implicit.RUNGS, ids=lambda r: r.name)
def test_every_choice_is_in_a_legal_set(rung):
    rung_runs.each_choice_is_legal(rung, TOY)


@needs_nvrtc
@pytest.mark.parametrize("rung", conv_implicit.RUNGS, ids=lambda r: r.name)
def test_no_precompiled_kernel_spills(rung):
    """Of the sets that are not committed, only the default and the one with most sums per thread are compiled.

    ptxas needs about a second for each.
    """
    sets = list(rung.tile_sets(TOY))
    compiled = (sets[0], max(sets, key=lambda tiles: (tiles.get("TM", 1) * tiles.get("TN", 1), tiles.get("TK", 1))))
    for tiles in sets:
        (step,) = rung.build(TOY, tiles).steps
        info = precompiled.resources(step.source, step.defines)
        if info is None and tiles not in compiled:
            continue
        if info is None:
            info = ptxas_resources(ptxas_log(sources.translation_unit(step.source), step.source, step.defines))
        assert info["spill_bytes"] == 0 and 0 < info["registers"] <= 255, tiles


HUGE = 2**31 - 1
RULES = [
    ("conv/direct-tiled", TOY.with_(N=70_000), {}, r"N \(grid.z\) <= 65535, got 70000"),
    ("conv/direct-tiled", TOY, {"TILE": 32, "TP": 1}, r"TILE\*TILE/TP threads <= 256, got 1024"),
    (
        "conv/direct-tiled",
        ConvShape(1, 4, 300, 300, 1, 2, 2, dilation=250),
        {},
        r"bytes of shared memory for patch and taps <= 232448, got 1132",
    ),
    (
        "conv/direct-tiled",
        TOY.with_(C=70_000, K=70_000, groups=70_000),
        {},
        r"blocks along the filters \(grid.y\) <= 65535, got 70000",
    ),
    ("conv/implicit-gemm", TOY.with_(C=70_000, K=70_000, groups=70_000), {}, r"groups \(grid.z\) <= 65535, got 70000"),
    ("conv/implicit-gemm", TOY.with_(N=2**26), {}, r"N\*C\*H\*W must stay below 2\^31, got 4294967296"),
    (
        "conv/implicit-gemm",
        ConvShape(1, 1, 1, 1, 1, 1, 1, pad=(0, 2**30 - 32)),
        {},
        r"N\*P\*Q must stay below 2\^31 - 64, got",
    ),
    ("conv/implicit-gemm", TOY.with_(K=HUGE), {}, r"K/groups/BM blocks \(grid.y\) <= 65535, got"),
    ("conv/implicit-gemm", TOY, {"BM": 32, "TM": 8, "TN": 8}, r"BM % 64 == 0, got 32"),
    (
        "conv/implicit-gemm-plain",
        TOY,
        {"BM": 128, "BN": 128, "BK": 8},
        r"BK % warps == 0 \(each warp copies a row\), got 8 % 16",
    ),
    ("conv/direct", TOY.with_(C=4, K=4, groups=2), {}, "groups must be 1, got 2"),
    ("conv/im2col-gemm", TOY.with_(C=4, K=4, groups=4), {}, "groups must be 1, got 4"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    with pytest.raises(RuleError, match=message):
        (RUNGS | BASIC_RUNGS)[name].check(shape, tiles)


@pytest.mark.parametrize("key", CONV_LAYER_PRESETS)
def test_every_layer_preset_is_supported(key):
    for rung in conv_implicit.RUNGS:
        assert list(rung.rules(CONV_LAYER_PRESETS[key].shape, rung.default_tiles)) == []


# -- plain shapes --------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes())
def test_plain_shape_needs_no_bias_relu_step(s):
    for rung in BASIC_RUNGS.values():
        steps = rung.build(s, rung.default_tiles).steps
        assert "bias_relu" not in [step.name for step in steps]
        assert [b.name for b in rung.build(s, rung.default_tiles).of_role("input")] == ["x", "w"]
