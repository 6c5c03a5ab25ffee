"""The float64 references of both gradients and of transposed convolution, compared with independent definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import reference as forward
from kernels.conv.backward import reference
from kernels.conv.backward.transpose import transpose_reference
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from tests.helpers.shapes import plain_layer_shapes, transpose_shapes


def arrays(s) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns random float64 x, w and dy of a convolution."""
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape) for shape in (s.x_shape, s.w_shape, s.y_shape))


def autograd_forward(np_, s: ConvShape, x, w):
    """Returns y [N,K,P,Q] of the padded x, with the operations of `np_`: one term per tap and group."""
    terms = []
    for group in range(s.groups):
        maps = x[:, group * s.maps : (group + 1) * s.maps]
        filters = w[group * s.filters : (group + 1) * s.filters]
        total = 0.0
        for r, t in product(range(s.R), range(s.S)):
            h, v = (s.R - 1 - r, s.S - 1 - t) if s.flip else (r, t)
            h, v = h * s.dilation_h, v * s.dilation_w
            window = maps[:, :, h : h + (s.P - 1) * s.u + 1 : s.u, v : v + (s.Q - 1) * s.v + 1 : s.v]
            total = total + np_.einsum("ncpq,kc->nkpq", window, filters[:, :, r, t])
        terms.append(total)
    return np_.concatenate(terms, axis=1)


@settings(max_examples=20)
@given(plain_layer_shapes())
def test_gradients_equal_automatic_differentiation(s):
    import autograd
    import autograd.numpy as np_

    x, w, dy = arrays(s)
    pad = ((0, 0), (0, 0), *s.pad_widths)

    def loss(x, w):
        return np_.sum(autograd_forward(np_, s, np_.pad(x, pad, "constant"), w) * dy)

    dx, dw = autograd.grad(loss, (0, 1))(x, w)
    np.testing.assert_allclose(reference.dinput(s, dy, w)[0], dx, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(reference.dweight(s, x, dy)[0], dw, rtol=1e-10, atol=1e-10)


@settings(max_examples=10)
@given(s=plain_layer_shapes(max_extent=2), seed=st.integers(0, 99))
def test_gradients_equal_finite_differences(s, seed):
    """The loss is linear in x and in w, so a central difference has rounding errors only."""
    x, w, dy = arrays(s)
    rng = np.random.default_rng(seed)

    def loss(x, w):
        return (forward.conv2d(s, x, w) * dy).sum()

    for array, gradient in ((x, reference.dinput(s, dy, w)[0]), (w, reference.dweight(s, x, dy)[0])):
        at = tuple(rng.integers(0, n) for n in array.shape)
        kept = array[at]
        array[at] = kept + 1e-3
        above = loss(x, w)
        array[at] = kept - 1e-3
        below = loss(x, w)
        array[at] = kept
        assert gradient[at] == pytest.approx((above - below) / 2e-3, rel=1e-6, abs=1e-8)


@settings(max_examples=20)
@given(plain_layer_shapes())
def test_all_three_are_one_sum_over_the_same_links(s):
    """The sum of dy * conv(x, w) is that of dx * x and of dw * w, and likewise for the error scales."""
    x, w, dy = arrays(s)
    for a, b, c, part in ((x, w, dy, 0), (abs(x), abs(w), abs(dy), 1)):
        total = (forward.conv2d(s, a, b) * c).sum()
        assert (reference.dinput(s, dy, w)[part] * a).sum() == pytest.approx(total, rel=1e-9, abs=1e-9)
        assert (reference.dweight(s, x, dy)[part] * b).sum() == pytest.approx(total, rel=1e-9, abs=1e-9)


def spread(s: TransposeShape, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Returns y [N,K,P,Q] by the definition: each input pixel adds its window to the output."""
    y = np.zeros(s.y_shape)
    per_group, maps = s.C // s.groups, s.K // s.groups
    for c, h, v, r, t in product(range(s.C), range(s.H), range(s.W), range(s.R), range(s.S)):
        p, q = h * s.u - s.pad_h + r * s.dilation_h, v * s.v - s.pad_w + t * s.dilation_w
        if 0 <= p < s.P and 0 <= q < s.Q:
            first = c // per_group * maps
            y[:, first : first + maps, p, q] += np.outer(x[:, c, h, v], w[c, :, r, t])
    return y


@settings(max_examples=20)
@given(transpose_shapes())
def test_transposed_convolution_spreads_each_pixel_over_its_window(s):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(s.x_shape), rng.standard_normal(s.w_shape)
    y, scale = transpose_reference(s, x, w)
    np.testing.assert_allclose(y, spread(s, x, w), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(scale, spread(s, abs(x), abs(w)), rtol=1e-10, atol=1e-10)


# -- PyTorch, which only a machine with a GPU has ------------------------------------------------------
TORCH_SHAPES = (
    ConvShape(2, 4, 9, 8, 6, 3, 2, stride=(2, 1), pad=(1, 0), dilation=(1, 2), groups=2),
    ConvShape(1, 3, 7, 7, 5, 3, 3, pad=1),
    ConvShape(2, 4, 11, 10, 4, 1, 1, stride=3, groups=4),
    ConvShape(2, 3, 9, 7, 5, 3, 3, stride=(2, 1), pad=(0, 2), extra=(1, -2)),
)


@pytest.mark.gpu
@pytest.mark.parametrize("s", TORCH_SHAPES, ids=str)
def test_gradients_equal_pytorchs_in_float64(s):
    torch = pytest.importorskip("torch")
    x, w, dy = (torch.tensor(a) for a in arrays(s))
    x.requires_grad_(), w.requires_grad_()
    padded = torch.nn.functional.pad(x, (*s.pad_widths[1], *s.pad_widths[0]))
    y = torch.nn.functional.conv2d(padded, w, stride=s.stride, dilation=s.dilation, groups=s.groups)
    y.backward(dy)
    dx = reference.dinput(s, dy.numpy(), w.detach().numpy())[0]
    dw = reference.dweight(s, x.detach().numpy(), dy.numpy())[0]
    np.testing.assert_allclose(dx, x.grad.numpy(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(dw, w.grad.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.gpu
@settings(max_examples=20)
@given(transpose_shapes())
def test_transposed_convolution_equals_pytorchs_in_float64(s):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(s.x_shape), rng.standard_normal(s.w_shape)
    y = torch.nn.functional.conv_transpose2d(
        torch.tensor(x),
        torch.tensor(w),
        stride=(s.u, s.v),
        output_padding=(s.output_pad_h, s.output_pad_w),
        dilation=(s.dilation_h, s.dilation_w),
        groups=s.groups,
    ).numpy()
    y = y[:, :, s.pad_h : s.pad_h + s.P, s.pad_w : s.pad_w + s.Q]  # PyTorch cuts both ends equally: cut here
    np.testing.assert_allclose(transpose_reference(s, x, w)[0], y, rtol=1e-10, atol=1e-10)
