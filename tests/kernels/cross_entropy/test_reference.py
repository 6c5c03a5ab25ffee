"""The references of cross-entropy: the definition, and its gradient by three independent ways."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import given
from hypothesis import strategies as st

from kernels.cross_entropy import reference
from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape, CrossEntropyStepShape

shapes = st.tuples(st.integers(1, 6), st.one_of(st.integers(1, 9), st.integers(1, 60)))


def inputs(M: int, N: int, seed: int = 0, spread: float = 3.0) -> tuple[np.ndarray, ...]:
    """Returns (x, labels, g) in the types of the kernels."""
    rng = np.random.default_rng(seed)
    x = (spread * rng.standard_normal((M, N))).astype(np.float32)
    return x, rng.integers(0, N, M, dtype=np.int32), rng.standard_normal(M).astype(np.float32)


def weighted_loss(x, labels, g):
    """Returns the sum of g times each row's loss, as its definition says it: -log of a probability."""
    p = anp.exp(x - anp.max(x, axis=1, keepdims=True))
    p = p / anp.sum(p, axis=1, keepdims=True)
    return -anp.sum(g * anp.log(p[np.arange(len(labels)), labels]))


def dx_of(s: tuple[int, int], x, labels, g) -> np.ndarray:
    """Returns the reference gradient. The log-sum-exp is exact: only a float32 one is an input of the ladder."""
    exact = reference.forward(CrossEntropyShape(*s), x, labels)["lse"][0]
    return reference.backward(CrossEntropyBackwardShape(*s), x, labels, exact, g)[0]


@given(shapes, st.integers(0, 99))
def test_loss_is_the_definition(s, seed):
    x, labels, _ = inputs(*s, seed)
    e = np.exp(x.astype(np.float64))
    (loss, loss_scale), (lse, lse_scale) = reference.forward(CrossEntropyShape(*s), x, labels).values()
    np.testing.assert_allclose(lse, np.log(e.sum(axis=1)), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(loss, -np.log(e[np.arange(s[0]), labels] / e.sum(axis=1)), rtol=1e-12, atol=1e-12)
    assert (loss_scale >= np.abs(loss)).all() and (lse_scale >= np.abs(lse)).all()


@given(shapes, st.integers(0, 99))
def test_gradient_is_that_of_automatic_differentiation(s, seed):
    x, labels, g = inputs(*s, seed)
    expected = grad(weighted_loss)(x.astype(np.float64), labels, g.astype(np.float64))
    np.testing.assert_allclose(dx_of(s, x, labels, g), expected, rtol=1e-11, atol=1e-12)
    step = reference.step(CrossEntropyStepShape(*s), x, labels, g)
    np.testing.assert_allclose(step["dx"][0], expected, rtol=1e-11, atol=1e-12)
    forward = reference.forward(CrossEntropyShape(*s), x, labels)["loss"][0]
    np.testing.assert_array_equal(step["loss"][0], forward)


@given(st.tuples(st.integers(1, 3), st.integers(1, 6)), st.integers(0, 99))
def test_gradient_is_that_of_finite_differences(s, seed):
    x, labels, g = inputs(*s, seed)
    dx, wide = dx_of(s, x, labels, g), x.astype(np.float64)
    step = 1e-5
    for at in np.ndindex(*s):
        above, below = wide.copy(), wide.copy()
        above[at] += step
        below[at] -= step
        slope = (weighted_loss(above, labels, g) - weighted_loss(below, labels, g)) / (2 * step)
        assert slope == pytest.approx(dx[at], abs=1e-8)


@pytest.mark.gpu
@pytest.mark.parametrize("s", [(1, 1), (5, 77), (64, 10)])
def test_gradient_is_that_of_pytorch(s):
    torch = pytest.importorskip("torch")
    x, labels, g = inputs(*s)
    wide = torch.tensor(x.astype(np.float64), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(wide, torch.tensor(labels).long(), reduction="none")
    (dx,) = torch.autograd.grad(loss, wide, torch.tensor(g.astype(np.float64)))
    np.testing.assert_allclose(dx_of(s, x, labels, g), dx.numpy(), rtol=1e-11, atol=1e-12)
    forward = reference.forward(CrossEntropyShape(*s), x, labels)["loss"][0]
    np.testing.assert_allclose(loss.detach().numpy(), forward, rtol=1e-11, atol=1e-12)


def test_a_label_that_is_off_by_one_gives_another_loss():
    x, labels, _ = inputs(4, 9)
    loss = reference.forward(CrossEntropyShape(4, 9), x, labels)["loss"][0]
    shifted = reference.forward(CrossEntropyShape(4, 9), x, (labels + 1) % 9)["loss"][0]
    assert (np.abs(loss - shifted) > 1e-3).all()


def test_references_of_many_rows_go_through_several_chunks(monkeypatch):
    s = 7, 33
    x, labels, g = inputs(*s)
    whole = reference.step(CrossEntropyStepShape(*s), x, labels, g)
    monkeypatch.setattr(reference, "CHUNK", 2 * 33)
    parts = reference.step(CrossEntropyStepShape(*s), x, labels, g)
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name])
