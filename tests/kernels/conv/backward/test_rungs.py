"""Both gradients and transposed convolution without a GPU: results at any shape, races, faults, rules, work per SM."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.backward import cpu as backward_cpu
from kernels.conv.backward import dinput, dweight
from kernels.conv.backward.ladder import DINPUT, DWEIGHT
from kernels.conv.backward.presets import BACKWARD_PRESETS
from kernels.conv.backward.transpose import PRESETS, TRANSPOSE
from kernels.conv.backward.transpose_shape import TransposeShape, parse_transpose
from kernels.conv.common import struct
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.ladders import ladder_of
from kernels.model.launch import ceil
from kernels.model.program import INPUT, WORKSPACE, RuleError
from kernels.model.shape import ShapeError
from kernels.runner import seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import verified_output
from tests.helpers.shapes import plain_layer_shapes, transpose_shapes

OURS = {rung.name: rung for ladder in (DINPUT, DWEIGHT, TRANSPOSE) for rung in ladder.rungs if not rung.library}
# Winograd runs few shapes: test_winograd.py.
OF_CONV = [name for name in OURS if not name.startswith("conv-transpose") and not name.endswith("/winograd")]
OF_TRANSPOSE = [name for name in OURS if name.startswith("conv-transpose")]
IMPLICIT = [name for name in OF_CONV if "implicit" in name]
DINPUT_FAST, DWEIGHT_FAST = OURS["conv-dinput/implicit-gemm"], OURS["conv-dweight/implicit-gemm"]
TOY = BACKWARD_PRESETS["backward-stride-toy"].shape
# Several blocks, partly outside, several images in a tile, two groups; stride and dilation that share a divisor.
RAGGED = ConvShape(3, 6, 9, 7, 10, 3, 2, stride=(2, 1), pad=(2, 1), dilation=(1, 2), groups=2, mode="convolution")
SHARED_DIVISOR = ConvShape(2, 2, 17, 15, 3, 4, 3, stride=(4, 6), pad=1, dilation=(2, 4))


def runs_at(name: str, s) -> bool:
    return not any(OURS[name].rules(s, OURS[name].default_tiles))


def runnable(name: str, s: ConvShape) -> ConvShape:
    """Returns the shape, or that of one group if the rung has no groups."""
    return s if runs_at(name, s) else s.with_(groups=1)


# -- results at any shape ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", OF_CONV)
@settings(max_examples=3)
@given(shape=plain_layer_shapes())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape):
    verified_output(emulator, OURS[name], runnable(name, shape))


@pytest.mark.parametrize("name", OF_CONV)
@settings(max_examples=10)
@given(shape=plain_layer_shapes(max_extent=5))
def test_cpu_agrees_with_the_reference_at_any_shape(name, shape):
    assert verified_output(cpu, OURS[name], runnable(name, shape)).dtype == np.float32


@pytest.mark.parametrize("name", OF_TRANSPOSE)
@settings(max_examples=3)
@given(shape=transpose_shapes())
def test_transposed_convolution_agrees_with_the_reference_at_any_shape(name, shape):
    shape = runnable(name, shape)
    for engine in (cpu, emulator):
        assert verified_output(engine, OURS[name], shape).shape == shape.y_shape


@pytest.mark.parametrize("s", [TOY, SHARED_DIVISOR], ids=str)
@pytest.mark.parametrize("name", OF_CONV)
def test_emulator_agrees_at_ragged_shapes(name, s):
    verified_output(emulator, OURS[name], runnable(name, s))


@needs_nvrtc
@pytest.mark.parametrize("name", IMPLICIT)
def test_every_compiled_set_of_tile_sizes_agrees(name):
    s = RAGGED.with_(N=1)
    for tiles in OURS[name].tile_sets(s):
        verified_output(emulator, OURS[name], s, tiles)


@pytest.mark.parametrize("name", ["conv-dinput/direct", "conv-dinput/gemm-gather", "conv-dinput/implicit-gemm"])
def test_pixels_that_fed_nothing_have_the_gradient_zero(name):
    """A 1x1 filter with stride 2 reads one pixel of four. The others get an exact 0 and are not left unwritten."""
    s = ConvShape(2, 3, 6, 6, 4, 1, 1, stride=2)
    dx = verified_output(emulator, OURS[name], s)
    read = np.zeros((6, 6), bool)
    read[::2, ::2] = True
    assert (dx[..., ~read] == 0).all() and (dx[..., read] != 0).all()


@pytest.mark.parametrize("name", OF_CONV)
def test_large_and_small_values(name):
    s = runnable(name, RAGGED)
    program = OURS[name].build(s, OURS[name].default_tiles)
    for scale in (1e-4, 1e4):
        inputs = {key: scale * a for key, a in seeded_inputs(program.of_role(INPUT)).items()}
        inputs = {key: a.astype(np.float32) for key, a in inputs.items()}
        verified_output(emulator, OURS[name], s, inputs=inputs)


@pytest.mark.parametrize("name", ["conv-dweight/direct", "conv-dweight/im2col-gemm", "conv-dweight/implicit-gemm"])
def test_a_long_sum_of_positive_terms_keeps_its_digits(name):
    """The sum grows to 200,000 times a term, so a term loses most of its digits when it is added to one sum."""
    s, rng = ConvShape(8, 1, 160, 160, 1, 1, 1), np.random.default_rng(0)
    inputs = {"x": rng.random(s.x_shape, np.float32), "dy": rng.random(s.y_shape, np.float32)}
    verified_output(cpu, OURS[name], s, inputs=inputs)
    ones = {"x": np.ones(s.x_shape, "f4"), "dy": np.ones(s.y_shape, "f4")}
    assert verified_output(cpu, OURS[name], s, inputs=ones) == s.N * s.PQ
    assert s.N * s.PQ // dweight.terms_of_part(s, DWEIGHT_FAST.default_tiles) >= 49  # parts of at most 4,096 terms


# -- races, orders, faults -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in OF_CONV if "atomics" not in name])
def test_warp_order_changes_nothing_and_no_races(name):
    s = runnable(name, RAGGED)
    rung_runs.same_in_any_order(lambda options: verified_output(emulator, OURS[name], s, options=options))


@pytest.mark.parametrize("name", [name for name in OF_CONV if "atomics" in name])
def test_atomics_have_no_races_in_any_order(name):
    """The order of their additions changes the last bits, so only the reference is compared."""
    s = runnable(name, RAGGED)

    def close(options):
        return np.zeros_like(verified_output(emulator, OURS[name], s, options=options))

    rung_runs.same_in_any_order(close)


FAULTS = {
    "a barrier left out": (DINPUT_FAST, 0, "      __syncthreads();\n", ""),
    "the remainder of the padding forgotten": (
        DINPUT_FAST,
        0,
        "(first + pad) % stride, tap = 0",
        "first % stride, tap = 0",
    ),
    "the flip forgotten": (DINPUT_FAST, 0, "if (shape.flip) {", "if (false) {"),
    "the last pixel of a part": (DWEIGHT_FAST, 0, "k < end_term && m < rows_left", "k < end_term - 1 && m < rows_left"),
    "the last part forgotten": (DWEIGHT_FAST, 1, "part < part_count; ++part", "part < part_count - 1; ++part"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault: it is stopped, has a race, or gives another result."""
    rung, number, right, wrong = FAULTS[fault]
    # Taps above the first output, a padding that the stride does not divide.
    s = RAGGED.with_(N=6, R=4, pad_h=1)
    program = rung.build(s, rung.default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT))
    rung_runs.assert_fault_in_launch_is_detected(rung, s, program, inputs, number, right, wrong)


# -- phases and parts ------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(plain_layer_shapes(max_extent=5))
def test_phases_have_every_pixel_once_and_every_link(s):
    """The phases together read each (pixel, tap, output) that the definition has, and no other."""
    conv, phases = struct(s), dinput.phase_steps(s)
    pixels, links = [], []
    for first in range(min(s.u, s.H)):
        rows, taps, outputs = backward_cpu._axis(
            first, "H", "u", "pad_h", "dilation_h", "R", "tap_step_h", conv, phases
        )
        pixels += rows.tolist()
        links += [
            (h, r, p)
            for r, line in zip(taps, outputs, strict=True)
            for h, p in zip(rows, line, strict=True)
            if 0 <= p < s.P
        ]
    assert sorted(pixels) == list(range(s.H))
    expected = [
        (p * s.u - s.pad_h + r * s.dilation_h, r, p)
        for p in range(s.P)
        for r in range(s.R)
        if 0 <= p * s.u - s.pad_h + r * s.dilation_h < s.H
    ]
    assert sorted(links) == sorted(expected)


RESNET = [f"backward-resnet50-res{stage}-3x3-n32" for stage in (2, 3, 4, 5)]


@every("key", RESNET)
@every("name", IMPLICIT)
def test_some_set_of_tile_sizes_gives_every_sm_of_an_h200_work(name, key):
    """The busiest of 132 SMs has at most a tenth more blocks than the average. With every set a quarter more, if the sum
    is split."""
    s, rung = BACKWARD_PRESETS[key].shape, OURS[name]
    programs = [rung.build(s, tiles) for tiles in rung.tile_sets(s)]
    grids = [step.grid for p in programs for step in p.steps if "implicit" in step.source or "atomics" in step.source]
    blocks = [int(np.prod(grid)) for grid in grids]
    assert any(ceil(n, dweight.SMS) * dweight.SMS <= 1.1 * n for n in blocks), blocks
    if "dweight" in name:
        assert all(ceil(n, dweight.SMS) * dweight.SMS <= 1.25 * n for n in blocks), blocks


@every("key", BACKWARD_PRESETS)
def test_parts_cover_the_sum_and_are_short(key):
    s, tiles = BACKWARD_PRESETS[key].shape, DWEIGHT_FAST.default_tiles
    terms, inner = dweight.terms_of_part(s, tiles), s.N * s.PQ
    parts = ceil(inner, terms)
    assert terms % tiles["BK"] == 0 and terms <= dweight.MAX_TERMS + tiles["BK"]
    assert (parts - 1) * terms < inner <= parts * terms
    workspace = DWEIGHT_FAST.build(s, tiles).nbytes(WORKSPACE)
    assert workspace == (4 * parts * s.elements["w"] if parts > 1 else 0)


def test_a_single_part_is_stored_directly():
    program = DWEIGHT_FAST.build(TOY, DWEIGHT_FAST.default_tiles)
    assert [step.name for step in program.steps] == ["dweight_implicit_gemm"] and not program.of_role(WORKSPACE)


# -- rules -----------------------------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=5)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    name = data.draw(st.sampled_from(OF_CONV))
    shape = runnable(name, data.draw(plain_layer_shapes()))
    tiles = rung_runs.some_tiles(data, OURS[name], shape)
    rung_runs.runs_or_names_its_rule(OURS[name], shape, tiles, "<=|==|stay below")


@every("name", OF_CONV)
def test_every_choice_is_in_a_legal_set(name):
    rung_runs.each_choice_is_legal(OURS[name], TOY)


@every("name", OURS)
def test_no_precompiled_kernel_spills(name):
    shape = ladder_of(name).presets[next(iter(ladder_of(name).presets))].shape
    for tiles in OURS[name].tile_sets(shape):
        for step in OURS[name].build(shape, tiles).steps:
            if step.source.startswith("conv/"):
                info = precompiled.resources(step.source, step.defines)
                assert info["spill_bytes"] == 0 and 0 < info["registers"] <= 255, (step.source, tiles)


HUGE = 2**31 - 1
RULES = [
    ("conv-dinput/direct", TOY.with_(N=70_000), r"N \(grid.y\) <= 65535, got 70000"),
    ("conv-dinput/direct", TOY.with_(bias=1), "bias must be 0: its gradient is an operation of its own, got 1"),
    ("conv-dinput/gemm-atomics", TOY.with_(C=4, K=4, groups=2), "groups must be 1, got 2"),
    (
        "conv-dinput/gemm-gather",
        ConvShape(1, 1, 8, 8, 70_000, 3, 3).with_(C=1_200_000),
        r"C\*R\*S/TILE blocks \(grid.y\) <= 65535",
    ),
    (
        "conv-dinput/implicit-gemm",
        ConvShape(1, 1, 300, 300, 1, 1, 1, stride=300),
        r"groups\*phases \(grid.z\) <= 65535, got 90000",
    ),
    ("conv-dinput/implicit-gemm", TOY.with_(N=2**28), r"N\*K\*P\*Q must stay below 2\^31, got"),
    ("conv-dinput/cudnn-algo-1", TOY.with_(relu=1), "relu must be 0"),
    ("conv-dweight/direct", TOY.with_(K=2**28), r"K\*C/groups\*R\*S must stay below 2\^31 - BLOCK, got"),
    ("conv-dweight/im2col-gemm", TOY.with_(C=2, groups=2), "groups must be 1, got 2"),
    (
        "conv-dweight/implicit-gemm",
        ConvShape(1, 2**15, 2**8, 2**8, 1, 200, 200),
        r"N\*C\*H\*W must stay below 2\^31, got",
    ),
    (
        "conv-dweight/implicit-gemm",
        TOY.with_(C=70_000, K=70_000, groups=70_000),
        r"groups\*parts \(grid.z\) <= 65535, got 70000",
    ),
]


@every(("name", "shape", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, message):
    with pytest.raises(RuleError, match=message):
        ladder_of(name).rung(name).check(shape, {})


TRANSPOSE_ERRORS = [
    ({"stride": 2, "output_pad": 2}, "output_pad_h must be below the stride u, got 2 >= 2"),
    ({"stride": (2, 1), "output_pad": (1, 1)}, "output_pad_w must be below the stride v, got 1 >= 1"),
    ({"pad": 4}, "the padding must leave an output: P must be at least 1, got -3"),
    ({"groups": 2}, "K must be a multiple of groups|C must be a multiple of groups"),
    ({"stride": 0}, "u must be in 1"),
]


@pytest.mark.parametrize(("fields", "message"), TRANSPOSE_ERRORS)
def test_a_malformed_transposed_shape_names_the_rule(fields, message):
    with pytest.raises(ShapeError, match=message):
        TransposeShape(1, 1, 3, 3, 1, 3, 3, **fields)


@settings(max_examples=20)
@given(transpose_shapes())
def test_a_transposed_shape_is_read_back_from_its_parameters(s):
    text = ",".join(f"{name}={value}" for name, value in s.params().items())
    assert parse_transpose(text) == s and (s.conv.P, s.conv.Q) == (s.H, s.W)


@pytest.mark.parametrize("key", PRESETS)
def test_every_transposed_preset_is_supported(key):
    s = PRESETS[key].shape
    assert all(runs_at(name, s) or s.groups > 1 for name in OF_TRANSPOSE)
    assert runs_at("conv-transpose/implicit-gemm", s) and runs_at("conv-transpose/direct", s)


@every("key", BACKWARD_PRESETS)
def test_every_preset_is_supported(key):
    s = BACKWARD_PRESETS[key].shape
    assert all(runs_at(name, s) or s.groups > 1 for name in OF_CONV)


def test_atomics_cost_the_output_set_to_zero_read_and_written():
    atomics, gather = (OURS[f"conv-dinput/gemm-{name}"] for name in ("atomics", "gather"))
    costs = [rung.cost(TOY, rung.build(TOY, rung.default_tiles)) for rung in (atomics, gather)]
    assert costs[0].bytes - costs[1].bytes == 2 * 4 * TOY.elements["x"]
    assert not re.search("zero", " ".join(step.name for step in gather.build(TOY, gather.default_tiles).steps))
