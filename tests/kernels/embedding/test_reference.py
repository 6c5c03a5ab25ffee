"""The references of an embedding: the definition, its gradient by three independent ways, and the tokens that are drawn."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.embedding import reference
from kernels.embedding.shape import EQUAL, TOKENS, ZIPF, EmbeddingBackwardShape, EmbeddingShape

sizes = st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 6))


def inputs(M: int, V: int, d: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Returns (tokens, table, dy) in the types of the kernels."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, V, M, dtype=np.int32)
    return tokens, rng.standard_normal((V, d), np.float32), rng.standard_normal((M, d), np.float32)


def loss(table, tokens, dy):
    """Returns a number whose gradient with respect to y is dy. The rows are picked by a product with one-hot rows."""
    one_hot = (tokens[:, None] == np.arange(len(table))).astype(np.float64)
    return anp.sum(dy * anp.dot(one_hot, table))


@settings(max_examples=20)
@given(sizes, st.integers(0, 99))
def test_rows_are_those_of_the_table(s, seed):
    tokens, table, _ = inputs(*s, seed)
    y, scale = reference.forward(EmbeddingShape(*s), tokens, table)
    for m, token in enumerate(tokens):
        np.testing.assert_array_equal(y[m], table[token])
    np.testing.assert_array_equal(scale, np.abs(y))


@settings(max_examples=20)
@given(sizes, st.integers(0, 99))
def test_gradient_is_that_of_automatic_differentiation(s, seed):
    tokens, table, dy = inputs(*s, seed)
    expected = grad(loss)(table.astype(np.float64), tokens, dy.astype(np.float64))
    dtable, scale = reference.backward(EmbeddingBackwardShape(*s), tokens, dy)
    np.testing.assert_allclose(dtable, expected, rtol=1e-12, atol=1e-12)
    assert (scale >= np.abs(dtable) - 1e-12).all()


@settings(max_examples=20)
@given(st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3)), st.integers(0, 99))
def test_gradient_is_that_of_finite_differences(s, seed):
    tokens, table, dy = inputs(*s, seed)
    dtable, _ = reference.backward(EmbeddingBackwardShape(*s), tokens, dy)
    for at in np.ndindex(dtable.shape):
        above, below = table.astype(np.float64), table.astype(np.float64)
        above[at] += 1e-4
        below[at] -= 1e-4
        assert (loss(above, tokens, dy) - loss(below, tokens, dy)) / 2e-4 == pytest.approx(dtable[at], abs=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("s", [(1, 1, 1), (61, 9, 7)])
def test_gradient_is_that_of_pytorch(s):
    torch = pytest.importorskip("torch")
    tokens, table, dy = inputs(*s)
    wide = torch.tensor(table.astype(np.float64), requires_grad=True)
    y = torch.nn.functional.embedding(torch.tensor(tokens).long(), wide)
    (expected,) = torch.autograd.grad(y, wide, torch.tensor(dy.astype(np.float64)))
    dtable, _ = reference.backward(EmbeddingBackwardShape(*s), tokens, dy)
    np.testing.assert_allclose(dtable, expected.numpy(), rtol=1e-12, atol=1e-12)


@settings(max_examples=20)
@given(sizes, st.sampled_from(TOKENS))
def test_tokens_of_every_distribution_are_in_the_vocabulary(s, name):
    tokens, _, _ = inputs(*s)
    drawn = {"tokens": tokens} | reference.distributed(EmbeddingShape(*s, name), {"tokens": tokens})
    assert drawn["tokens"].dtype == np.int32
    assert drawn["tokens"].min() >= 0 and drawn["tokens"].max() < s[1]
    assert name != EQUAL or len(set(drawn["tokens"])) == 1


def test_zipf_tokens_are_as_frequent_as_their_rank_says():
    """Token t has the share log((t + 2) / (t + 1)) / log(V + 1), which is about 1 / (t + 1) of the first one's."""
    s = EmbeddingShape(200_000, 50257, 1, ZIPF)
    tokens = np.random.default_rng(0).integers(0, s.V, s.M, dtype=np.int32)
    counts = np.bincount(reference.distributed(s, {"tokens": tokens})["tokens"], minlength=s.V)
    rank = np.arange(10)
    expected = np.log((rank + 2) / (rank + 1)) / np.log(s.V + 1)
    np.testing.assert_allclose(counts[:10] / s.M, expected, rtol=0.1)
