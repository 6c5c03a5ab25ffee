"""The float64 references of pooling: against brute force, against automatic differentiation and finite differences of the
forward definition, and against PyTorch on the processor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.pooling import reference
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from tests.helpers.pooling import KINDS, avg_shapes, brute_force, global_shapes, hard, max_shapes


def distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns float64 values of which no two are nearer than 1: a small step changes no maximum."""
    return rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float64)


def windowed(s, padded, m=np):
    """Returns the taps of all windows, [R*S, N, C, P, Q], of a padded x, with the functions of a module `m`: NumPy, or autograd's."""
    return m.stack(
        [
            padded[
                :,
                :,
                r * s.dilation_h : r * s.dilation_h + (s.P - 1) * s.u + 1 : s.u,
                c * s.dilation_w : c * s.dilation_w + (s.Q - 1) * s.v + 1 : s.v,
            ]
            for r in range(s.R)
            for c in range(s.S)
        ]
    )


def pad_widths(s) -> list[tuple[int, int]]:
    below = max(0, (s.P - 1) * s.u + (s.R - 1) * s.dilation_h + 1 - s.pad_h - s.H)
    right = max(0, (s.Q - 1) * s.v + (s.S - 1) * s.dilation_w + 1 - s.pad_w - s.W)
    return [(0, 0), (0, 0), (s.pad_h, below), (s.pad_w, right)]


def max_definition(s: MaxPoolShape, x, m):
    padding = np.pad(np.zeros(s.x_shape), pad_widths(s), constant_values=-1e9)
    return m.max(windowed(s, m.pad(x, pad_widths(s), mode="constant") + padding, m), axis=0)


def avg_definition(s: AvgPoolShape, x, m):
    """The mean over ones: pixels of the plane, and of the padding if it counts. Ceil mode adds none."""
    inside = np.ones((1, 1, s.H + 2 * s.pad_h, s.W + 2 * s.pad_w))
    if not s.include_pad:
        inside[:] = 0
        inside[..., s.pad_h : s.pad_h + s.H, s.pad_w : s.pad_w + s.W] = 1
    (_, _, (_, below), (_, right)) = pad_widths(s)
    grown = np.pad(inside, [(0, 0), (0, 0), (0, max(0, below - s.pad_h)), (0, max(0, right - s.pad_w))])
    return m.sum(windowed(s, m.pad(x, pad_widths(s), mode="constant"), m), axis=0) / np.sum(windowed(s, grown), axis=0)


def global_definition(s: GlobalShape, x, m):
    return m.mean(x, axis=(2, 3))


def forward_and_backward(s, x: np.ndarray, dy: np.ndarray):
    """Returns (y, dx) of the references of a shape's kind."""
    if isinstance(s, MaxPoolShape):
        y, index = reference.maxima(s, x)
        return y, reference.max_pool_backward(s, dy, index)[0]
    if isinstance(s, AvgPoolShape):
        return reference.avg_pool(s, x)[0], reference.avg_pool_backward(s, dy)[0]
    return reference.global_avg_pool(s, x)[0], reference.global_avg_pool_backward(s, dy)[0]


def definition(s, x, m=np):
    return {MaxPoolShape: max_definition, AvgPoolShape: avg_definition, GlobalShape: global_definition}[type(s)](
        s, x, m
    )


any_shape = st.one_of(max_shapes(), avg_shapes(), global_shapes)


def numbers(s, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = distinct(rng, (s.N, s.C, s.H, s.W))
    return x, rng.standard_normal(definition(s, x).shape)


@settings(max_examples=60)
@given(s=any_shape)
def test_gradients_equal_automatic_differentiation(s):
    import autograd
    import autograd.numpy as anp

    x, dy = numbers(s)
    y, dx = forward_and_backward(s, x, dy)
    np.testing.assert_allclose(y, definition(s, x), rtol=1e-12)
    vjp, _ = autograd.make_vjp(lambda x: definition(s, x, anp))(x)
    np.testing.assert_allclose(dx, vjp(dy), rtol=1e-12, atol=1e-12)


@settings(max_examples=30)
@given(s=any_shape)
def test_gradients_equal_finite_differences(s):
    x, dy = numbers(s)
    _, dx = forward_and_backward(s, x, dy)
    rng = np.random.default_rng(1)
    step = 0.25 * rng.random(x.shape)  # far below the distance of two values: no maximum changes
    up, down = ((forward_and_backward(s, x + sign * step, dy)[0] * dy).sum() for sign in (1, -1))
    scale = np.abs(dx * step).sum() + 1
    assert (up - down) / 2 == pytest.approx((dx * step).sum(), abs=1e-9 * scale * (1 + np.abs(x).max()))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(s=max_shapes())
def test_ties_infinities_and_nan_follow_the_rule(kind, s):
    x = hard(kind, s.x_shape)
    y, index = reference.maxima(s, x)
    expected_y, expected_index = brute_force(s, x)
    np.testing.assert_array_equal(y, expected_y)
    np.testing.assert_array_equal(index, expected_index)


def test_the_first_of_equal_values_and_the_last_nan_count():
    s = MaxPoolShape(1, 1, 2, 3, 2, 3)
    equal = np.full(s.x_shape, 7.0)
    assert reference.maxima(s, equal)[1].item() == 0
    equal[0, 0, 0, 1] = equal[0, 0, 1, 0] = np.nan
    y, index = reference.maxima(s, equal)
    assert np.isnan(y.item()) and index.item() == 3


def test_divisors_count_the_padding_but_not_what_ceil_mode_adds():
    s = AvgPoolShape(1, 1, 4, 4, 3, 3, stride=2, pad=1, ceil=1)
    assert reference.divisors(s).tolist() == [[9, 9, 6], [9, 9, 6], [6, 6, 4]]
    assert reference.divisors(s.with_(include_pad=0)).tolist() == [[4, 6, 2], [6, 9, 3], [2, 3, 1]]


def test_indices_of_the_backward_pass_are_places_of_maxima():
    s = MaxPoolShape(2, 3, 9, 7, 3, 3, stride=2, pad=1)
    dy = np.random.default_rng(0).standard_normal(s.y_shape, dtype=np.float32)
    index = reference.random_indices(s, {"dy": dy})["index"]
    np.testing.assert_array_equal(index, reference.random_indices(s, {"dy": dy})["index"])
    assert (index != reference.random_indices(s, {"dy": dy + 1})["index"]).any()
    h, w = index // s.W, index % s.W
    start_h, start_w = np.arange(s.P)[:, None] * s.u - s.pad_h, np.arange(s.Q) * s.v - s.pad_w
    assert ((h >= start_h) & (h < start_h + s.R) & (w >= start_w) & (w < start_w + s.S)).all()
    taken = [np.bincount(plane.ravel()) for plane in index.reshape(s.planes, -1)]
    assert max(map(max, taken)) > 1  # some pixel is the maximum of two windows


# -- PyTorch -----------------------------------------------------------------------------------------
@pytest.mark.gpu  # only that machine has PyTorch; these calls run on its processor
@settings(max_examples=60)
@given(s=any_shape)
def test_references_equal_pytorch(s):
    torch = pytest.importorskip("torch")
    x, dy = numbers(s)
    leaf = torch.tensor(x, requires_grad=True)
    F, ceil = torch.nn.functional, bool(getattr(s, "ceil", 0))
    if isinstance(s, MaxPoolShape):
        y, index = F.max_pool2d(
            leaf, (s.R, s.S), (s.u, s.v), (s.pad_h, s.pad_w), (s.dilation_h, s.dilation_w), ceil, return_indices=True
        )
        np.testing.assert_array_equal(reference.maxima(s, x)[1], index.numpy())
    elif isinstance(s, AvgPoolShape):
        y = F.avg_pool2d(leaf, (s.R, s.S), (s.u, s.v), (s.pad_h, s.pad_w), ceil, bool(s.include_pad))
    else:
        y = F.adaptive_avg_pool2d(leaf, 1)[:, :, 0, 0]
    y.backward(torch.tensor(dy))
    expected_y, expected_dx = forward_and_backward(s, x, dy)
    np.testing.assert_allclose(expected_y, y.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(expected_dx, leaf.grad.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(s=max_shapes())
def test_ties_infinities_and_nan_equal_pytorch(kind, s):
    torch = pytest.importorskip("torch")
    x = hard(kind, s.x_shape)
    y, index = torch.nn.functional.max_pool2d(
        torch.tensor(x),
        (s.R, s.S),
        (s.u, s.v),
        (s.pad_h, s.pad_w),
        (s.dilation_h, s.dilation_w),
        bool(s.ceil),
        return_indices=True,
    )
    expected_y, expected_index = reference.maxima(s, x)
    np.testing.assert_array_equal(expected_y, y.numpy())
    np.testing.assert_array_equal(expected_index, index.numpy())
