"""The float64 reference compared with the definition, seven nested loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv import reference
from kernels.conv.shape import ConvShape
from kernels.model.verify import agrees, relative_error
from tests.helpers.shapes import conv_shapes, layer_shapes


def seven_loops(s: ConvShape, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    y = np.zeros(s.y_shape)
    for n in range(s.N):
        for k in range(s.K):
            for p in range(s.P):
                for q in range(s.Q):
                    for c in range(s.maps):
                        for r in range(s.R):
                            for t in range(s.S):
                                h = p * s.u - s.pad_h + r * s.dilation_h
                                v = q * s.v - s.pad_w + t * s.dilation_w
                                if 0 <= h < s.H and 0 <= v < s.W:
                                    tap = (s.R - 1 - r, s.S - 1 - t) if s.flip else (r, t)
                                    y[n, k, p, q] += x[n, k // s.filters * s.maps + c, h, v] * w[k, c, *tap]
    return y


@settings(max_examples=20)
@given(conv_shapes(max_extent=3))
def test_reference_equals_the_definition(s):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(s.x_shape), rng.standard_normal(s.w_shape)
    ref, scale = reference.conv(s, x, w)
    np.testing.assert_allclose(ref, seven_loops(s, x, w), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scale, seven_loops(s, abs(x), abs(w)), rtol=1e-12, atol=1e-12)


@settings(max_examples=20)
@given(layer_shapes())
def test_layer_equals_definition_with_bias_and_relu(s):
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape) for shape in (s.x_shape, s.w_shape, s.K))
    y, expected_scale = seven_loops(s, x, w), seven_loops(s, abs(x), abs(w))
    if s.bias:
        y, expected_scale = y + b[:, None, None], expected_scale + abs(b)[:, None, None]
    ref, scale = reference.conv(s, x, w, **({"b": b} if s.bias else {}))
    np.testing.assert_allclose(ref, np.maximum(y, 0) if s.relu else y, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scale, expected_scale, rtol=1e-12, atol=1e-12)


def test_a_causal_convolution_reads_no_later_sample():
    """NumPy's own convolution: its first W values are the causal ones."""
    s = ConvShape(1, 1, 1, 20, 1, 1, 4, pad=(0, 3), extra=(0, -3), mode="convolution")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(s.x_shape), rng.standard_normal(s.w_shape)
    np.testing.assert_allclose(reference.conv2d(s, x, w).ravel(), np.convolve(x.ravel(), w.ravel())[:20])


def test_padding_at_the_wrong_end_is_found():
    """A kernel that swaps the two ends, or pads both equally, would not agree."""
    s = ConvShape(1, 2, 6, 9, 3, 3, 5, pad=(2, 4), extra=(-2, -4))
    swapped = s.with_(extra_h=2, extra_w=4, pad_h=0, pad_w=0)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(s.x_shape), rng.standard_normal(s.w_shape)
    ref, scale = reference.conv(s, x, w)
    wrong = reference.conv2d(swapped, x, w)
    equal = reference.conv2d(s.with_(pad_h=1, extra_h=0, pad_w=2, extra_w=0), x, w)
    assert wrong.shape == equal.shape == ref.shape
    assert not agrees(wrong, ref, scale, 1e-5) and not agrees(equal, ref, scale, 1e-5)


def test_convolution_flips_the_filter():
    s = ConvShape(1, 1, 1, 3, 1, 1, 3)
    x, w = np.array([[[[1.0, 10, 100]]]]), np.array([[[[1.0, 2, 3]]]])
    assert reference.conv2d(s, x, w).item() == 321
    assert reference.conv2d(s.with_(mode="convolution"), x, w).item() == 123


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1 + 1e-3])
def test_one_wrong_element_never_agrees(wrong):
    ref = scale = np.ones(1000)
    out = ref.copy()
    assert agrees(out, ref, scale, 1e-5)
    out[777] = wrong
    assert not agrees(out, ref, scale, 1e-5)
    assert relative_error(out, ref) > 1e-5


def test_relative_error_of_zeros():
    assert relative_error(np.zeros(3), np.zeros(3)) == 0
    assert relative_error(np.ones(4), np.zeros(4)) == 2  # nothing to be relative to: the norm of the error
