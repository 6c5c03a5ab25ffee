"""Both gradients by Winograd's algorithm: results at any shape, faults, rules, work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import winograd_cpu, winograd_matrices
from kernels.conv.backward import dinput_winograd, dweight_winograd
from kernels.conv.backward.ladder import DINPUT, DWEIGHT
from kernels.conv.shape import MODES, ConvShape
from kernels.engines import cpu, emulator
from kernels.model.program import INPUT, RuleError
from kernels.runner import seeded_inputs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import (
    assert_fault_in_launch_is_detected,
    reference_and_scale,
    same_in_any_order,
    verified_output,
)

RUNGS = (DINPUT.rung("conv-dinput/winograd"), DWEIGHT.rung("conv-dweight/winograd"))
rungs = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
SHAPE = ConvShape(2, 5, 9, 7, 9, 3, 3, pad=1)


@st.composite
def shapes(draw, max_size: int = 12) -> ConvShape:
    """Draws a shape, 3x3, stride 1: partial tiles, every padding up to 2 at each end, both modes."""
    pad = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    extra = tuple(draw(st.integers(-p, 2 - p)) for p in pad)  # after the input, 0 .. 2 too
    H, W = (draw(st.integers(max(1, 3 - 2 * p - e), max_size)) for p, e in zip(pad, extra, strict=True))
    N, C, K = (draw(st.integers(1, 3)), draw(st.one_of(st.integers(1, 9), st.just(67))), draw(st.integers(1, 18)))
    return ConvShape(N, C, H, W, K, 3, 3, pad=pad, extra=extra, mode=draw(st.sampled_from(MODES)))


@settings(max_examples=15)
@given(shape=shapes(max_size=20), rung=st.sampled_from(RUNGS), m=st.sampled_from(winograd_matrices.TILES))
def test_cpu_agrees_with_the_reference_at_any_shape(shape, rung, m):
    assert verified_output(cpu, rung, shape, {"M": m}).dtype == np.float32


@needs_nvrtc
@rungs
@settings(max_examples=2)
@given(shape=shapes(), data=st.data())
def test_emulator_agrees_with_the_reference_at_any_shape(rung, shape, data):
    verified_output(emulator, rung, shape, data.draw(st.sampled_from(list(rung.tile_sets(shape)))))


@rungs
@pytest.mark.parametrize("mode", MODES)
def test_filters_that_are_turned_the_wrong_way_are_found(rung, mode):
    s, program = SHAPE.with_(mode=mode), rung.build(SHAPE, rung.default_tiles)
    verified_output(emulator, rung, s)
    given = seeded_inputs(program.of_role(INPUT))
    right, scale = reference_and_scale(rung, s, rung.default_tiles, given)
    wrong, _ = reference_and_scale(rung, s.with_(mode=MODES[1 - MODES.index(mode)]), rung.default_tiles, given)
    assert (np.abs(right - wrong) > 100 * rung.tolerance * scale).mean() > 0.8


@needs_nvrtc
@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        ("30_dinput_winograd_filter.cu", "shape.flip ? i : 8 - i", "shape.flip ? 8 - i : i"),
        ("31_dweight_winograd_gradient.cu", "p < shape.P && q < shape.Q", "p < shape.P"),
        ("32_dweight_winograd_product.cu", "min(begin + terms, length)", "min(begin + terms - 1, length)"),
        ("33_dweight_winograd_filter.cu", "part < parts", "part < parts - 1"),
    ],
)
def test_fault_in_a_kernel_is_detected(source, right, wrong):
    rung = RUNGS[0] if "dinput" in source else RUNGS[1]
    program = rung.build(SHAPE, rung.default_tiles)
    n = next(n for n, step in enumerate(program.steps) if step.source.endswith(source))
    inputs = seeded_inputs(program.of_role(INPUT))
    assert_fault_in_launch_is_detected(rung, SHAPE, program, inputs, n, right, wrong)


def test_a_long_sum_is_cut_into_parts():
    s = DWEIGHT.presets["backward-resnet50-res3-3x3-n32"].shape
    tiles = RUNGS[1].default_tiles
    row, terms = dweight_winograd.row_of(s, 4), dweight_winograd.terms_of_part(s, tiles)
    assert terms <= dweight_winograd.MAX_TERMS and terms % tiles["BK"] == 0
    large = s.with_(N=512)
    assert (
        dweight_winograd.terms_of_part(large, tiles) <= dweight_winograd.MAX_TERMS < dweight_winograd.row_of(large, 4)
    )
    assert row == winograd_cpu.round_up_to_4(s.N * 7 * 7)


@needs_nvrtc
@rungs
def test_warp_order_changes_nothing_and_no_races(rung):
    program = rung.build(SHAPE, rung.default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT))
    same_in_any_order(lambda options: emulator.Session(program, inputs, options).verify_run())


def test_the_convolution_of_dy_has_the_extents_of_x():
    for pad in ((0, 2), (1, 1), (2, 0)):
        s = SHAPE.with_(pad_h=pad[0], pad_w=pad[1])
        turned = dinput_winograd.convolution(s)
        assert turned.x_shape == s.y_shape and turned.y_shape == s.x_shape


@rungs
def test_it_multiplies_less_than_the_definition(rung):
    s = DINPUT.presets["backward-resnet50-res3-3x3-n32"].shape
    executed = rung.cost(s, rung.build(s, rung.default_tiles)).flops
    assert s.flops / 4 < executed < s.flops / 2


@every(
    ("changes", "rule"),
    [
        ({"pad_h": 3}, "pad_h must be 2 or less: dy is padded by 2 - pad_h, got 3"),
        ({"extra_w": 2}, "pad_w must be 2 or less: dy is padded by 2 - pad_w, got 3"),
        ({"u": 2}, "stride must be 1 in both axes"),
        ({"R": 2}, "R and S must be 3, got 2 and 3"),
        ({"C": 6, "K": 9, "groups": 3}, "groups"),
        ({"bias": 1}, "bias must be 0"),
    ],
)
def test_a_shape_that_it_cannot_compute_names_the_rule(changes, rule):
    with pytest.raises(RuleError, match=rule):
        verified_output(cpu, RUNGS[0], SHAPE.with_(**changes))
