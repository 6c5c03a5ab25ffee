"""The references of a fully connected layer: the definition, and both gradients by three independent ways."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import given
from hypothesis import strategies as st

from kernels.linear import reference
from kernels.linear.shape import InputGradientShape, LinearShape, WeightGradientShape

sizes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


def inputs(M: int, N: int, K: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Returns (x, W, b, dy), float32."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(size, np.float32) for size in ((M, K), (N, K), (N,), (M, N)))


def loss(x, W, b, dy):
    """Returns a number whose gradient with respect to y is dy."""
    return anp.sum(dy * (anp.dot(x, W.T) + b))


def gradients(s: tuple[int, int, int], x, W, dy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the reference (dx, dW, db)."""
    weights = reference.dweight(WeightGradientShape(*s), dy, x)
    return reference.dinput(InputGradientShape(*s), dy, W)[0], weights["dW"][0], weights["db"][0]


@given(sizes, st.integers(0, 99))
def test_y_is_the_definition(s, seed):
    x, W, b, _ = inputs(*s, seed)
    y, scale = reference.forward(LinearShape(*s), x, W, b)
    for m, n in np.ndindex(y.shape):
        terms = [float(x[m, k]) * float(W[n, k]) for k in range(s[2])] + [float(b[n])]
        assert y[m, n] == pytest.approx(sum(terms), abs=1e-12)
        assert scale[m, n] == pytest.approx(sum(map(abs, terms)), rel=1e-12)


@given(sizes, st.integers(0, 99))
def test_gradients_are_those_of_automatic_differentiation(s, seed):
    x, W, b, dy = (a.astype(np.float64) for a in inputs(*s, seed))
    for n, found in enumerate(gradients(s, *(a.astype(np.float32) for a in (x, W, dy)))):
        np.testing.assert_allclose(found, grad(loss, n)(x, W, b, dy), rtol=1e-12, atol=1e-12)


@given(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)), st.integers(0, 99))
def test_gradients_are_those_of_finite_differences(s, seed):
    x, W, b, dy = inputs(*s, seed)
    arguments, step = [a.astype(np.float64) for a in (x, W, b, dy)], 1e-4
    for n, found in enumerate(gradients(s, x, W, dy)):
        for at in np.ndindex(found.shape):
            above, below = ([a.copy() for a in arguments] for _ in range(2))
            above[n][at] += step
            below[n][at] -= step
            assert (loss(*above) - loss(*below)) / (2 * step) == pytest.approx(found[at], abs=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("s", [(1, 1, 1), (5, 7, 11), (32, 10, 84)])
def test_gradients_are_those_of_pytorch(s):
    torch = pytest.importorskip("torch")
    x, W, b, dy = inputs(*s)
    wide = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (x, W, b)]
    y = torch.nn.functional.linear(*wide)
    found = torch.autograd.grad(y, wide, torch.tensor(dy.astype(np.float64)))
    np.testing.assert_allclose(
        reference.forward(LinearShape(*s), x, W, b)[0], y.detach().numpy(), rtol=1e-11, atol=1e-12
    )
    for expected, ours in zip(found, gradients(s, x, W, dy), strict=True):
        np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-11, atol=1e-12)
