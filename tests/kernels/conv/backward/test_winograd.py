"""The gradient of the input by Winograd's algorithm: results at any shape, faults, rules, work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import winograd_matrices
from kernels.conv.backward import dinput_winograd
from kernels.conv.backward.ladder import DINPUT
from kernels.conv.shape import MODES, ConvShape
from kernels.engines import cpu, emulator
from kernels.model.program import INPUT, RuleError
from kernels.runner import seeded_inputs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.rung_runs import reference_and_scale, same_in_any_order, verified_output

RUNG = DINPUT.rung("conv-dinput/winograd")
SHAPE = ConvShape(2, 5, 9, 7, 9, 3, 3, pad=1)


@st.composite
def shapes(draw, max_size: int = 12) -> ConvShape:
    """Draws a shape, 3x3, stride 1: partial tiles, every padding up to 2, both modes."""
    pad = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    H, W = (draw(st.integers(max(1, 3 - 2 * p), max_size)) for p in pad)
    N, C, K = (
        draw(st.integers(1, 3)),
        draw(st.one_of(st.integers(1, 9), st.just(67))),
        draw(st.integers(1, 18)),
    )
    return ConvShape(N, C, H, W, K, 3, 3, pad=pad, mode=draw(st.sampled_from(MODES)))


@settings(max_examples=30)
@given(shape=shapes(max_size=20), m=st.sampled_from(winograd_matrices.TILES))
def test_cpu_agrees_with_the_reference_at_any_shape(shape, m):
    assert verified_output(cpu, RUNG, shape, {"M": m}).dtype == np.float32


@pytest.mark.slow
@needs_nvrtc
@settings(max_examples=4)
@given(shape=shapes(), data=st.data())
def test_emulator_agrees_with_the_reference_at_any_shape(shape, data):
    tiles = {name: data.draw(st.sampled_from(choices), name) for name, choices in RUNG.tiles.items()}
    verified_output(emulator, RUNG, shape, tiles)


@pytest.mark.parametrize("mode", MODES)
def test_filters_that_are_turned_the_wrong_way_are_found(mode):
    s = SHAPE.with_(mode=mode)
    other = MODES[1 - MODES.index(mode)]
    dx = verified_output(emulator, RUNG, s)
    rng = np.random.default_rng(0)
    given = {"dy": rng.standard_normal(s.y_shape, "f4"), "w": rng.standard_normal(s.w_shape, "f4")}
    right, scale = reference_and_scale(RUNG, s, RUNG.default_tiles, given)
    wrong, _ = reference_and_scale(RUNG, s.with_(mode=other), RUNG.default_tiles, given)
    assert dx.shape == s.x_shape and (np.abs(right - wrong) > 100 * RUNG.tolerance * scale).mean() > 0.9


@pytest.mark.slow
@needs_nvrtc
def test_warp_order_changes_nothing_and_no_races():
    program = RUNG.build(SHAPE, RUNG.default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT))
    same_in_any_order(lambda options: emulator.Session(program, inputs, options).verify_run())


def test_the_convolution_of_dy_has_the_extents_of_x():
    for pad in ((0, 2), (1, 1), (2, 0)):
        s = SHAPE.with_(pad_h=pad[0], pad_w=pad[1])
        turned = dinput_winograd.convolution(s)
        assert turned.x_shape == s.y_shape and turned.y_shape == s.x_shape


def test_it_multiplies_less_than_the_definition():
    s = DINPUT.presets["backward-resnet50-res3-3x3-n32"].shape
    executed = RUNG.cost(s, RUNG.build(s, RUNG.default_tiles)).flops
    assert s.flops / 4 < executed < s.flops / 2


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"pad_h": 3}, "pad_h must be 2 or less: dy is padded by 2 - pad_h, got 3"),
        ({"u": 2}, "stride must be 1 in both axes"),
        ({"R": 2}, "R and S must be 3, got 2 and 3"),
        ({"C": 6, "K": 9, "groups": 3}, "groups"),
        ({"bias": 1}, "bias must be 0"),
    ],
)
def test_a_shape_that_it_cannot_compute_names_the_rule(changes, rule):
    with pytest.raises(RuleError, match=rule):
        verified_output(cpu, RUNG, SHAPE.with_(**changes))
