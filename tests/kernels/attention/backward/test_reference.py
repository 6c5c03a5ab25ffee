"""The float64 reference of attention's backward pass: against automatic differentiation, against finite differences and
against PyTorch; what the forward pass saves; the error scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import reference as forward
from kernels.attention.backward import reference
from kernels.attention.backward.shape import AttentionBackwardShape, parse_backward
from kernels.model.shape import ShapeError
from tests.helpers.shapes import attention_shapes

GRADIENTS = {"dQ": "Q", "dK": "K", "dV": "V"}


def backward_shapes(**limits) -> st.SearchStrategy[AttentionBackwardShape]:
    return attention_shapes(**limits).map(lambda s: AttentionBackwardShape(**s.params()))


def free_inputs(s: AttentionBackwardShape, seed: int = 0, size: float = 1.0) -> dict[str, np.ndarray]:
    """Returns float64 Q, K, V and dO, normally distributed."""
    rng = np.random.default_rng(seed)
    return {name: size * rng.standard_normal(s.qkv_shape) for name in ("Q", "K", "V", "dO")}


def attention(np, s: AttentionBackwardShape, Q, K, V):
    """Returns O by the definition, from functions of `np`: NumPy or autograd's."""
    mask = np.triu(np.full((s.N, s.N), -np.inf if s.causal else 0.0), 1)
    scores = float(np.float32(s.factor)) * np.matmul(Q, np.swapaxes(K, 2, 3)) + mask
    scores = scores - np.max(scores, axis=-1, keepdims=True)
    p = np.exp(scores)
    return np.matmul(p / np.sum(p, axis=-1, keepdims=True), V)


def exact_saved(s: AttentionBackwardShape, inputs) -> dict[str, np.ndarray]:
    """Returns O and L in float64: the formula then has no rounding error to speak of."""
    scores = float(np.float32(s.factor)) * inputs["Q"] @ inputs["K"].swapaxes(2, 3)
    if s.causal:
        scores = np.where(np.triu(np.ones((s.N, s.N), bool), 1), -np.inf, scores)
    m = scores.max(axis=-1)
    L = m + np.log(np.exp(scores - m[..., None]).sum(axis=-1))
    return {"O": attention(np, s, inputs["Q"], inputs["K"], inputs["V"]), "L": L}


def gradients(s: AttentionBackwardShape, inputs) -> dict[str, np.ndarray]:
    found = reference.backward(s, **inputs, **exact_saved(s, inputs))
    return {name: ref for name, (ref, _) in found.items()}


@settings(max_examples=25)
@given(s=backward_shapes(max_extent=20, max_d=12), seed=st.integers(0, 99))
def test_it_equals_automatic_differentiation(s, seed):
    autograd = pytest.importorskip("autograd")
    from autograd import numpy as anp

    inputs = free_inputs(s, seed)

    def loss(Q, K, V):
        return anp.sum(attention(anp, s, Q, K, V) * inputs["dO"])

    with np.errstate(all="ignore"):
        expected = autograd.grad(loss, (0, 1, 2))(inputs["Q"], inputs["K"], inputs["V"])
    for (name, ours), theirs in zip(gradients(s, inputs).items(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11, err_msg=name)


@settings(max_examples=10)
@given(s=backward_shapes(max_extent=6, max_d=5), seed=st.integers(0, 99))
def test_it_equals_central_differences(s, seed):
    inputs, step = free_inputs(s, seed), 1e-5
    rng = np.random.default_rng(seed)
    for name, ours in gradients(s, inputs).items():
        of = GRADIENTS[name]
        for index in rng.integers(0, inputs[of].size, 6):
            sides = []
            for sign in (step, -step):
                moved = {key: inputs[key].copy() for key in "QKV"}
                moved[of].flat[index] += sign
                sides.append((attention(np, s, **moved) * inputs["dO"]).sum())
            assert ours.flat[index] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6, abs=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [0, 1])
def test_it_equals_pytorch_in_float64(causal):
    torch = pytest.importorskip("torch")
    s = AttentionBackwardShape(2, 3, 29, 12, causal=causal)
    inputs = free_inputs(s)
    Q, K, V = (torch.tensor(inputs[name], requires_grad=True) for name in "QKV")
    out = torch.nn.functional.scaled_dot_product_attention(
        Q, K, V, is_causal=bool(causal), scale=float(np.float32(s.factor))
    )
    out.backward(torch.tensor(inputs["dO"]))
    for name, ours in gradients(s, inputs).items():
        theirs = {"dQ": Q, "dK": K, "dV": V}[name].grad.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@settings(max_examples=20)
@given(s=backward_shapes(max_extent=40, max_d=20), dtype=st.sampled_from(["fp32", "fp16"]))
def test_what_the_forward_pass_saves_is_rounded_once(s, dtype):
    s = s.with_(dtype=dtype)
    kind = {"fp32": np.float32, "fp16": np.float16}[dtype]
    inputs = {name: x.astype(kind) for name, x in free_inputs(s).items()}
    found = reference.saved(s, inputs)
    exact = exact_saved(s, {name: x.astype(np.float64) for name, x in inputs.items()})
    assert found["O"].dtype == kind and found["L"].dtype == np.float32
    step = float(np.finfo(kind).eps)
    assert (np.abs(found["O"] - exact["O"]) <= step * np.abs(exact["O"]) + 1e-7).all()
    assert (np.abs(found["L"] - exact["L"]) <= 2.0**-23 * np.abs(exact["L"]) + 1e-12).all()
    output, scale = forward.attention(s, *(inputs[name] for name in "QKV"))
    assert (np.abs(found["O"] - output) <= forward.TOLERANCE * scale).all()


def test_rows_computed_in_parts_give_the_same(monkeypatch):
    s = AttentionBackwardShape(1, 2, 37, 5, causal=1)
    inputs = free_inputs(s)
    inputs |= reference.saved(s, inputs)
    whole = reference.backward(s, **inputs)
    monkeypatch.setattr(reference, "CHUNK", 3 * s.N)
    parts = reference.backward(s, **inputs)
    for name, (ref, scale) in whole.items():
        np.testing.assert_allclose(parts[name][0], ref, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(parts[name][1], scale, rtol=1e-12)


@settings(max_examples=15)
@given(s=backward_shapes(max_extent=30, max_d=16), seed=st.integers(0, 9))
def test_the_scale_is_at_least_each_gradient_and_not_far_above(s, seed):
    """A relative error of the tolerance in one gradient is not hidden: the scale is a small multiple of sums of absolute
    values."""
    inputs = {name: x.astype(np.float32) for name, x in free_inputs(s, seed).items()}
    found = reference.backward(s, **inputs, **reference.saved(s, inputs))
    for name, (ref, scale) in found.items():
        assert (scale >= np.abs(ref)).all() and np.isfinite(scale).all()
        assert np.median(scale) < 1e4 * max(1.0, float(np.abs(ref).max())), name


def test_the_shape_counts_five_products_and_each_tensor_once():
    s = AttentionBackwardShape(2, 3, 10, 4)
    assert s.flops == 5 * 2 * 2 * 3 * 10 * 10 * 4
    assert s.bytes == 4 * (8 * 240 + 60) and s.with_(dtype="fp16").bytes == 2 * 8 * 240 + 4 * 60
    assert s.with_(causal=1).flops == 5 * 2 * 6 * 55 * 4
    assert parse_backward("B=2,H=3,N=10,d=4,causal=1") == s.with_(causal=1)
    with pytest.raises(ShapeError, match="N must be in 1"):
        parse_backward("B=1,H=1,N=0,d=4")
