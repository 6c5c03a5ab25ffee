"""The references of the backward passes are the gradients of the forward definitions: by automatic differentiation, by
central differences, and by PyTorch in float64."""

from __future__ import annotations

import math
from functools import partial

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.elementwise import normal, reference
from kernels.elementwise.shape import (
    ERF,
    FORMS,
    KEPT,
    LAYOUTS,
    BiasBackwardShape,
    GeluBackwardShape,
    GeluShape,
    ReluBackwardShape,
    ReluShape,
    ResidualBackwardShape,
)

EPS = 2.0**-20  # of central differences
extents = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))


def values(shape, seed: int) -> np.ndarray:
    """Returns numbers at least 1/8 from 0: there ReLU has a gradient."""
    x = np.random.default_rng(seed).normal(size=shape)
    return x + np.copysign(0.125, x)


def relu(x):
    return anp.where(x > 0, x, 0.0)


def add_bias(layout: str, x, b):
    return x + (b[:, None, None] if layout == "nchw" else b)


def slopes(f, x: np.ndarray) -> np.ndarray:
    """Returns the central differences of a scalar function f at x."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = EPS
        found[i] = (f(x + step) - f(x - step)) / (2 * EPS)
    return found


def check(f, x: np.ndarray, gradient: np.ndarray) -> None:
    """Asserts that `gradient` is that of the scalar function f at x, by differentiation and by differences."""
    np.testing.assert_allclose(gradient, autograd.grad(f)(x), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, slopes(f, x), rtol=1e-6, atol=1e-8)


@settings(max_examples=15)
@given(extents=extents, keep=st.sampled_from(KEPT), seed=st.integers(0, 99))
def test_relu(extents, keep, seed):
    x, dy = values(extents, seed), values(extents, seed + 100)
    shape = ReluBackwardShape(*extents, keep)
    kept = {"y": np.maximum(x, 0)} if keep == "y" else {"mask": reference.mask_of(ReluShape(*extents, keep), x)}
    dx, scale = reference.relu_backward(shape, dy, **kept)
    check(lambda t: anp.sum(dy * relu(t)), x, dx)
    np.testing.assert_array_equal(scale, np.abs(dx))


# The coefficients of erf's power series: erf(z) = 2 / sqrt(pi) * sum of (-1)^n z^(2n + 1) / (n! (2n + 1)).
SERIES = [2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(60)]


def gelu(form: str, x):
    """Returns GELU from its definition: erf by its power series, independent of the table in normal.py."""
    if form == ERF:
        z = x / math.sqrt(2)
        erf, square = 0.0, z * z
        for term in reversed(SERIES):
            erf = erf * square + term
        return 0.5 * x * (1 + z * erf)
    return 0.5 * x * (1 + anp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@settings(max_examples=15)
@given(extents=extents, form=st.sampled_from(FORMS), seed=st.integers(0, 99))
def test_gelu(extents, form, seed):
    x, dy = values(extents, seed), values(extents, seed + 100)
    dx, scale = reference.gelu_backward(GeluBackwardShape(*extents, form), dy, x)
    check(lambda t: anp.sum(dy * gelu(form, t)), x, dx)
    y, _ = reference.gelu(GeluShape(*extents, form), x)
    np.testing.assert_allclose(y, gelu(form, x), rtol=1e-12, atol=1e-14)
    assert (scale >= np.abs(dx)).all()


def test_the_forms_of_gelu_differ_a_little():
    x = np.linspace(-5, 5, 1001).reshape(1, 1, 1, -1)
    exact, by_tanh = (reference.gelu(GeluShape(*x.shape, form), x)[0] for form in FORMS)
    assert 1e-4 < np.abs(exact - by_tanh).max() < 5e-4


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=50))
def test_erf_is_that_of_the_standard_library(numbers):
    found = normal.erf(np.array(numbers))
    np.testing.assert_allclose(found, [math.erf(z) for z in numbers], rtol=4e-16, atol=5e-16)


def test_erf_of_what_is_no_finite_number():
    found = normal.erf(np.array([np.nan, np.inf, -np.inf, -0.0], np.float32))
    assert np.isnan(found[0]) and found[1:3].tolist() == [1, -1] and np.signbit(found[3])


@settings(max_examples=15)
@given(extents=extents, layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 99))
def test_bias(extents, layout, seed):
    shape = BiasBackwardShape(*extents, layout)
    x, dy, b = values(shape.maps, seed), values(shape.maps, seed + 1), values(shape.C, seed + 2)
    db, scale = reference.bias_backward(shape, dy)
    check(lambda t: anp.sum(dy * add_bias(layout, x, t)), b, db)
    np.testing.assert_allclose(scale, np.abs(dy).sum(axis=shape.axes))
    np.testing.assert_allclose(reference.bias(shape, x, b)[0], add_bias(layout, x, b))


@settings(max_examples=15)
@given(extents=extents, seed=st.integers(0, 99))
def test_residual(extents, seed):
    """b has a second use: its gradient there is in db before. Both gradients together are that of both uses."""
    shape = ResidualBackwardShape(*extents)
    a, b, dy, other = (values(extents, seed + n) for n in range(4))
    a += np.where(np.abs(a + b) < 1e-3, 0.5, 0)  # where the sum is near 0 a difference shows no gradient
    y = np.maximum(a + b, 0)
    found = reference.residual_backward(shape, dy, y, other)
    check(lambda t: anp.sum(dy * relu(t + b)), a, found["da"][0])
    check(lambda t: anp.sum(dy * relu(a + t)) + anp.sum(other * t), b, found["db"][0])


def test_a_wrong_gradient_is_detected():
    """A deliberate fault: the gradient also passes where x is negative."""
    x, dy = values((2, 3), 0), values((2, 3), 1)
    with pytest.raises(AssertionError):
        check(lambda t: anp.sum(dy * relu(t)), x, dy)


# -- PyTorch ------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pytorch_in_float64_gives_the_same(layout):
    torch = pytest.importorskip("torch")
    tensor = partial(torch.tensor, dtype=torch.float64, requires_grad=True)
    shape = BiasBackwardShape(2, 3, 4, 5, layout)
    x, b, shortcut, dy = (values(size, n) for n, size in enumerate((shape.maps, shape.C, shape.maps, shape.maps)))
    tx, tb, ts = tensor(x), tensor(b), tensor(shortcut)
    before = add_bias(layout, tx, tb)
    out = torch.relu(before + ts)
    before.retain_grad()
    out.backward(torch.tensor(dy))
    y = reference.residual(shape, reference.bias(shape, x, b)[0], shortcut)[0]
    np.testing.assert_allclose(y, out.detach().numpy(), rtol=1e-14)
    found = reference.residual_backward(ResidualBackwardShape(2, 3, 4, 5), dy, y, np.zeros_like(dy))
    np.testing.assert_allclose(found["da"][0], before.grad.numpy(), rtol=1e-14)
    np.testing.assert_allclose(found["db"][0], ts.grad.numpy(), rtol=1e-14)
    np.testing.assert_allclose(reference.bias_backward(shape, found["da"][0])[0], tb.grad.numpy(), rtol=1e-12)
    for form, approximate in ((ERF, "none"), ("tanh", "tanh")):
        tg = tensor(x)
        torch.nn.functional.gelu(tg, approximate=approximate).backward(torch.tensor(dy))
        found, _ = reference.gelu_backward(GeluBackwardShape(*shape.maps, form), dy, x)
        np.testing.assert_allclose(found, tg.grad.numpy(), rtol=1e-12, atol=1e-14)
    dx, _ = reference.relu_backward(ReluBackwardShape(*shape.maps), dy, y=y)
    np.testing.assert_allclose(dx, tx.grad.numpy(), rtol=1e-14)
