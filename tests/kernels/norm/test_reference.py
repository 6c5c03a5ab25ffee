"""The float64 references of the norms: the gradients equal those of automatic differentiation and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.norm import reference
from kernels.norm.shape import (
    EPS,
    LAYOUTS,
    BatchNormBackwardShape,
    BatchNormInferenceShape,
    BatchNormShape,
    LayerNormBackwardShape,
    LayerNormShape,
    RmsNormBackwardShape,
    RmsNormShape,
)

small = st.integers(1, 3)
extents = st.tuples(small, small, small, st.integers(1, 4), st.sampled_from(LAYOUTS))
row_extents = st.tuples(small, st.integers(1, 9))


def normalized(np_, x, axes, gamma, beta, centred=True):
    """Returns the definition, with `np_` NumPy or autograd's. gamma and beta have the dimensions of x."""
    centre = np_.mean(x, axis=axes, keepdims=True) if centred else 0.0
    distance = x - centre
    variance = np_.mean(distance * distance, axis=axes, keepdims=True)
    return gamma * distance / np_.sqrt(variance + EPS) + beta


def axes_of(layout: str) -> tuple[int, ...]:
    return (0, 1, 2) if layout == "nhwc" else (0, 2, 3)


def vectors(rng, s, n: int):
    """Returns n vectors [C], and each shaped to be combined with maps."""
    found = [rng.standard_normal(s.C) for _ in range(n)]
    return found, [v.reshape((1, 1, 1, -1) if s.layout == "nhwc" else (1, -1, 1, 1)) for v in found]


# -- against automatic differentiation ------------------------------------------------------------------
@settings(max_examples=25)
@given(extents, st.integers(0, 99))
def test_batch_norm_and_its_gradients_equal_autograd(extents, seed):
    import autograd.numpy as anp
    from autograd import grad

    s, rng = BatchNormShape(*extents), np.random.default_rng(seed)
    x, dy = rng.standard_normal((2, *s.dims))
    (gamma, beta), wide = vectors(rng, s, 2)

    def loss(x, gamma, beta):
        return anp.sum(normalized(anp, x, axes_of(s.layout), gamma, beta) * dy)

    forward = reference.batch_norm(s, x, gamma, beta)
    np.testing.assert_allclose(forward["y"][0], normalized(np, x, axes_of(s.layout), *wide), rtol=1e-9, atol=1e-9)
    mean, invstd = forward["mean"][0], forward["invstd"][0]
    backward = reference.batch_norm_backward(BatchNormBackwardShape(*extents), dy, x, gamma, mean, invstd)
    expected = [grad(loss, n)(x, *wide) for n in range(3)]
    for name, gradient in zip(("dx", "dgamma", "dbeta"), expected, strict=True):
        found = backward[name][0]
        np.testing.assert_allclose(found, gradient.reshape(found.shape), rtol=1e-7, atol=1e-7)


@settings(max_examples=25)
@given(row_extents, st.booleans(), st.integers(0, 99))
def test_norms_of_rows_and_their_gradients_equal_autograd(extents, centred, seed):
    import autograd.numpy as anp
    from autograd import grad

    rng = np.random.default_rng(seed)
    x, dy = rng.standard_normal((2, *extents))
    gamma, beta = rng.standard_normal((2, extents[1]))
    beta = beta if centred else 0 * beta

    def loss(x, gamma, beta):
        return anp.sum(normalized(anp, x, 1, gamma, beta, centred) * dy)

    y, backward = _rows(extents, x, dy, gamma, beta, centred)
    np.testing.assert_allclose(y, normalized(np, x, 1, gamma, beta, centred), rtol=1e-9, atol=1e-9)
    for n, name in enumerate(("dx", "dgamma", "dbeta")):
        if name in backward:
            np.testing.assert_allclose(backward[name][0], grad(loss, n)(x, gamma, beta), rtol=1e-7, atol=1e-7)


def _rows(extents, x, dy, gamma, beta, centred):
    """Returns y and the gradients of layer norm, or of RMS norm."""
    if centred:
        forward = reference.layer_norm(LayerNormShape(*extents), x, gamma, beta)
        saved = forward["mean"][0], forward["invstd"][0]
        shape = LayerNormBackwardShape(*extents)
        return forward["y"][0], reference.layer_norm_backward(shape, dy, x, gamma, *saved)
    forward = reference.rms_norm(RmsNormShape(*extents), x, gamma)
    shape = RmsNormBackwardShape(*extents)
    return forward["y"][0], reference.rms_norm_backward(shape, dy, x, gamma, forward["invrms"][0])


# -- against central differences ------------------------------------------------------------------------
def differences(loss, at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Returns the gradient of `loss` by central differences."""
    gradient = np.empty(at.shape)
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (loss(up) - loss(down)) / (2 * step)
    return gradient


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_batch_norm_equal_central_differences(layout):
    extents, rng = (2, 3, 2, 2, layout), np.random.default_rng(4)
    s = BatchNormShape(*extents)
    x, dy = rng.standard_normal((2, *s.dims))
    gamma, beta = rng.standard_normal((2, s.C))

    def y(x, gamma, beta):
        return reference.batch_norm(s, x, gamma, beta)["y"][0]

    forward = reference.batch_norm(s, x, gamma, beta)
    saved = forward["mean"][0], forward["invstd"][0]
    found = reference.batch_norm_backward(BatchNormBackwardShape(*extents), dy, x, gamma, *saved)
    for name, loss, at in (
        ("dx", lambda v: (y(v, gamma, beta) * dy).sum(), x),
        ("dgamma", lambda v: (y(x, v, beta) * dy).sum(), gamma),
        ("dbeta", lambda v: (y(x, gamma, v) * dy).sum(), beta),
    ):
        np.testing.assert_allclose(found[name][0], differences(loss, at), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("centred", [True, False])
def test_gradients_of_rows_equal_central_differences(centred):
    extents, rng = (3, 5), np.random.default_rng(5)
    x, dy = rng.standard_normal((2, *extents))
    gamma, beta = rng.standard_normal((2, extents[1]))
    beta = beta if centred else 0 * beta

    def loss(x, gamma, beta):
        return (_rows(extents, x, dy, gamma, beta, centred)[0] * dy).sum()

    _, found = _rows(extents, x, dy, gamma, beta, centred)
    for name, of in (
        ("dx", lambda v: loss(v, gamma, beta)),
        ("dgamma", lambda v: loss(x, v, beta)),
        ("dbeta", lambda v: loss(x, gamma, v)),
    ):
        if name in found:
            at = {"dx": x, "dgamma": gamma, "dbeta": beta}[name]
            np.testing.assert_allclose(found[name][0], differences(of, at), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("without", ["the mean of g", "the mean of g * xhat"])
def test_a_forgotten_term_is_found(without):
    """A deliberate fault: without one of its terms, dx differs from the central differences."""
    rng = np.random.default_rng(6)
    x, dy = rng.standard_normal((2, 2, 5))
    gamma, beta = rng.standard_normal((2, 5))
    s = reference.statistics(x)
    xhat, g = (x - s.mean) * s.invstd, dy * gamma
    terms = {
        "the mean of g": g.mean(axis=1, keepdims=True),
        "the mean of g * xhat": xhat * (g * xhat).mean(axis=1, keepdims=True),
    }
    expected = differences(lambda v: (_rows((2, 5), v, dy, gamma, beta, True)[0] * dy).sum(), x)
    np.testing.assert_allclose(s.invstd * (g - sum(terms.values())), expected, rtol=1e-6, atol=1e-7)
    del terms[without]
    assert not np.allclose(s.invstd * (g - sum(terms.values())), expected, rtol=1e-2, atol=1e-2)


# -- against PyTorch ------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_norm_equals_pytorch_in_float64(layout):
    torch = pytest.importorskip("torch")
    extents, rng = (3, 4, 5, 6, layout), np.random.default_rng(7)
    s = BatchNormShape(*extents)
    x, dy = rng.standard_normal((2, *s.dims))
    gamma, beta = rng.standard_normal((2, s.C))
    tensors = [torch.tensor(v, requires_grad=True) for v in (x, gamma, beta)]
    maps = tensors[0].permute(0, 3, 1, 2) if layout == "nhwc" else tensors[0]
    y = torch.nn.functional.batch_norm(maps, None, None, tensors[1], tensors[2], True, 0.0, EPS)
    y = y.permute(0, 2, 3, 1) if layout == "nhwc" else y
    y.backward(torch.tensor(dy))
    forward = reference.batch_norm(s, x, gamma, beta)
    saved = forward["mean"][0], forward["invstd"][0]
    found = reference.batch_norm_backward(BatchNormBackwardShape(*extents), dy, x, gamma, *saved)
    np.testing.assert_allclose(forward["y"][0], y.detach().numpy(), rtol=1e-10, atol=1e-10)
    for name, tensor in zip(("dx", "dgamma", "dbeta"), tensors, strict=True):
        np.testing.assert_allclose(found[name][0], tensor.grad.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize("centred", [True, False])
def test_norms_of_rows_equal_pytorch_in_float64(centred):
    torch = pytest.importorskip("torch")
    extents, rng = (7, 33), np.random.default_rng(8)
    x, dy = rng.standard_normal((2, *extents))
    gamma, beta = rng.standard_normal((2, extents[1]))
    tensors = [torch.tensor(v, requires_grad=True) for v in (x, gamma, beta)]
    functional = torch.nn.functional
    if centred:
        y = functional.layer_norm(tensors[0], [33], tensors[1], tensors[2], EPS)
    else:
        y, beta = functional.rms_norm(tensors[0], [33], tensors[1], EPS), 0 * beta
    y.backward(torch.tensor(dy))
    own, found = _rows(extents, x, dy, gamma, beta, centred)
    np.testing.assert_allclose(own, y.detach().numpy(), rtol=1e-10, atol=1e-10)
    for name, tensor in zip(("dx", "dgamma", "dbeta"), tensors, strict=True):
        if name in found:
            np.testing.assert_allclose(found[name][0], tensor.grad.numpy(), rtol=1e-9, atol=1e-10)


# -- saved statistics, inference, scales ----------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
def test_derived_inputs_are_those_that_the_forward_pass_saves(layout):
    extents = (3, 4, 2, 5, layout)
    x = np.random.default_rng(9).standard_normal(BatchNormShape(*extents).dims, np.float32)
    saved = reference.saved_by_channel(BatchNormBackwardShape(*extents), {"x": x})
    ones = np.ones(4, np.float32)
    forward = reference.batch_norm(BatchNormShape(*extents), x, ones, ones)
    for name in ("mean", "invstd"):
        assert saved[name].dtype == np.float32
        np.testing.assert_allclose(saved[name], forward[name][0], rtol=1e-7)


def test_derived_inputs_of_rows():
    x = np.random.default_rng(10).standard_normal((5, 9)).astype(np.float32)
    ones = np.ones(9, np.float32)
    layer, rms = (
        reference.saved_by_row(LayerNormBackwardShape(5, 9), {"x": x}),
        reference.saved_rms(RmsNormBackwardShape(5, 9), {"x": x}),
    )
    forward = reference.layer_norm(LayerNormShape(5, 9), x, ones, ones)
    np.testing.assert_allclose(layer["mean"], forward["mean"][0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(layer["invstd"], forward["invstd"][0], rtol=1e-6)
    np.testing.assert_allclose(rms["invrms"], reference.rms_norm(RmsNormShape(5, 9), x, ones)["invrms"][0], rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inference_is_training_with_its_own_statistics(layout):
    s, rng = BatchNormShape(2, 3, 4, 5, layout), np.random.default_rng(11)
    x = rng.standard_normal(s.dims)
    gamma, beta = rng.standard_normal((2, 3))
    forward = reference.batch_norm(s, x, gamma, beta)
    variance = forward["invstd"][0] ** -2.0 - EPS
    y, scale = reference.batch_norm_inference(
        BatchNormInferenceShape(2, 3, 4, 5, layout), x, gamma, beta, forward["mean"][0], variance
    )
    np.testing.assert_allclose(y, forward["y"][0], rtol=1e-9, atol=1e-9)
    assert (scale >= np.abs(y) - 1e-9).all()


@settings(max_examples=60)
@given(st.floats(-1e5, 1e5, width=32), st.floats(0.0, 10.0, width=32), st.integers(2, 40), st.integers(0, 99))
def test_scales_hold_for_any_change_of_x_by_a_rounding(mean, std, n, seed):
    """The statement behind the scale of 1 / std: each x changed by at most ROUNDING of its size."""
    rng = np.random.default_rng(seed)
    x = mean + std * rng.standard_normal((1, n))
    changed = x * (1 + reference.ROUNDING * rng.uniform(-1, 1, x.shape))
    exact, moved = reference.statistics(x), reference.statistics(changed)
    scale = reference.invstd_scale(exact, reference.backward_limits)
    assert abs(moved.invstd - exact.invstd) <= reference.TOLERANCE * scale * (1 + 1e-6)


def test_the_scale_of_sums_grows_with_the_square_of_the_mean():
    """Ten times the mean: about a hundred times the error that is allowed to sums, at most ten times that of the others."""
    noise = np.random.default_rng(12).standard_normal((1, 4000))
    found = {}
    for mean in (20.0, 200.0):
        s = reference.statistics(noise + mean)
        found[mean] = [
            float(reference.invstd_scale(s, limits)[0, 0])
            for limits in (reference.sums_limits, reference.backward_limits)
        ]
    sums, backward = (found[200.0][n] / found[20.0][n] for n in (0, 1))
    assert 60 < sums < 120 and backward < 11
