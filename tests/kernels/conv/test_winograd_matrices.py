"""A, G and B of Winograd's F(m, r): exact for any filter and input, equal to the paper, and to the kernels' header."""

from __future__ import annotations

import dataclasses
import itertools
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import winograd_matrices
from tests.helpers.offenders import every

SIZES = [(m, r) for m in range(1, 7) for r in range(1, 6)]
fractions = st.fractions(-100, 100, max_denominator=50)


def defined(g: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Returns the correlation in one or two dimensions, computed term by term."""
    extent = [n - r + 1 for n, r in zip(d.shape, g.shape, strict=True)]
    y = np.zeros(extent, object)
    for i in np.ndindex(*extent):
        for k in np.ndindex(*g.shape):
            y[i] += g[k] * d[tuple(np.add(i, k))]
    return y


def basis(*shape: int):
    for at in np.ndindex(*shape):
        e = np.zeros(shape, object)
        e[at] = Fraction(1)
        yield e


@every(("m", "r"), SIZES)
def test_identity_holds_for_every_pair_of_basis_vectors(m, r):
    """Both sides are linear in g and in d, so the identity holds for all g and d."""
    t = winograd_matrices.derive(m, r)
    assert (len(t.AT), len(t.G), len(t.BT)) == (m, m + r - 1, m + r - 1)
    for g, d in itertools.product(basis(r), basis(t.n)):
        assert (winograd_matrices.correlate(t, g, d) == defined(g, d)).all()


@pytest.mark.parametrize(("m", "r"), [(2, 3), (3, 2)])
def test_identity_holds_for_every_pair_in_two_dimensions(m, r):
    t = winograd_matrices.derive(m, r)
    for g, d in itertools.product(basis(r, r), basis(t.n, t.n)):
        assert (winograd_matrices.correlate(t, g, d) == defined(g, d)).all()


@settings(max_examples=12)
@given(size=st.sampled_from(SIZES), dimensions=st.sampled_from([1, 2]), data=st.data())
def test_identity_holds_for_any_filter_and_input(size, dimensions, data):
    m, r = size
    t = winograd_matrices.derive(m, r)

    def some(n: int) -> np.ndarray:
        count = n**dimensions
        values = data.draw(st.lists(fractions, min_size=count, max_size=count))
        return np.array(values, object).reshape((n,) * dimensions)

    g, d = some(r), some(t.n)
    assert (winograd_matrices.correlate(t, g, d) == defined(g, d)).all()


@settings(max_examples=20)
@given(size=st.sampled_from(SIZES), data=st.data())
def test_wrong_entry_breaks_the_identity(size, data):
    """The tests above would detect one wrong entry at any position."""
    t = winograd_matrices.derive(*size)
    name = data.draw(st.sampled_from(["AT", "G", "BT"]))
    X = np.array(getattr(t, name), object)
    at = tuple(data.draw(st.integers(0, n - 1)) for n in X.shape)
    X[at] += data.draw(fractions.filter(bool))
    wrong = dataclasses.replace(t, **{name: tuple(map(tuple, X))})
    pairs = itertools.product(basis(t.r), basis(t.n))
    assert any((winograd_matrices.correlate(wrong, g, d) != defined(g, d)).any() for g, d in pairs)


@settings(max_examples=20)
@given(data=st.data(), m=st.integers(1, 4), r=st.integers(1, 4))
def test_any_different_points_work(data, m, r):
    points = data.draw(st.lists(fractions, min_size=m + r - 2, max_size=m + r - 2, unique=True))
    t = winograd_matrices.derive(m, r, tuple(points))
    for g, d in itertools.product(basis(r), basis(t.n)):
        assert (winograd_matrices.correlate(t, g, d) == defined(g, d)).all()


@pytest.mark.parametrize(
    ("m", "r", "points", "message"),
    [
        (0, 3, winograd_matrices.POINTS, "m >= 1 and r >= 1, got F\\(0, 3\\)"),
        (2, 3, (Fraction(1), Fraction(0), Fraction(1)), "3 different points beside infinity, got 2"),
        (6, 5, winograd_matrices.POINTS[:4], "9 different points beside infinity, got 4"),
    ],
)
def test_invalid_derivation_is_explained(m, r, points, message):
    with pytest.raises(ValueError, match=message):
        winograd_matrices.derive(m, r, points)


# As printed in Lavin and Gray, arXiv 1509.09308, sections 4.1 and 4.3: (A^T, G, B^T).
PRINTED = {
    2: ("1 1 1 0; 0 1 -1 -1", "1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1", "1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1"),
    4: (
        "1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1",
        "1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1",
        "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1",
    ),
}


@pytest.mark.parametrize("m", PRINTED)
def test_matrices_equal_the_paper(m):
    """They may differ in the sign of a position, which may be in any two of its three factors."""

    def parsed(text: str) -> np.ndarray:
        return np.array([[Fraction(e) for e in row.split()] for row in text.split(";")], object)

    def terms(AT, G, BT):
        return [np.multiply.outer(np.multiply.outer(AT[:, i], G[i]), BT[i]) for i in range(len(BT))]

    derived, printed = winograd_matrices.derive(m, 3).arrays(object), tuple(map(parsed, PRINTED[m]))
    for derived_term, printed_term in zip(terms(*derived), terms(*printed), strict=True):
        assert (derived_term == printed_term).all()
    for X, Y in zip(derived, printed, strict=True):
        assert (abs(X) == abs(Y)).all()


def test_operation_counts_equal_the_paper():
    assert [winograd_matrices.multiplications_2d(m, 3) for m in (2, 4, 6)] == [(36, 16), (144, 36), (324, 64)]
    t = winograd_matrices.derive(2, 3)
    assert winograd_matrices.operations_2d(t.BT) == winograd_matrices.Count(32, 0)
    assert winograd_matrices.operations_2d(t.AT) == winograd_matrices.Count(24, 0)
    assert winograd_matrices.operations_2d(t.G).additions == 28


@pytest.mark.parametrize("m", winograd_matrices.TILES)
def test_data_transforms_are_exact_in_float32(m):
    """Only entries of G are rounded, as the scaling requires, and no denominator of G is negative."""
    t = winograd_matrices.derive(m, 3)
    for X, rounded in zip((t.AT, t.BT), t.arrays()[::2], strict=True):
        assert ([[Fraction(float(e)) for e in row] for row in rounded] == np.array(X, object)).all()
    first = [next(e for e in row if e) for row in t.G]
    assert all(e > 0 for e in first)


def test_header_file_equals_the_derivation():
    assert winograd_matrices.HEADER.read_text(encoding="utf-8") == winograd_matrices.header(), (
        "run: python -m kernels.conv.winograd_matrices"
    )
    assert all(len(line) <= 72 for line in winograd_matrices.header().splitlines())


@pytest.mark.parametrize("m", winograd_matrices.TILES)
def test_header_tables_equal_the_derivation(m):
    """Reads the header as a compiler would: the branch of m, its three tables, their quotients."""
    branch = re.split(r"#(?:if|elif|endif).*", winograd_matrices.header())[1 + winograd_matrices.TILES.index(m)]
    tables = dict(re.findall(r"float (\w+)\[\d+\]\[\d+\] = \{(.*?)\};", branch, re.DOTALL))
    t = winograd_matrices.derive(m, 3)
    for name, X in (("AT", t.AT), ("G", t.G), ("BT", t.BT)):
        rows = re.findall(r"\{([^{}]*)\}", tables[name])
        table = tuple(tuple(Fraction(e.replace(".f", "")) for e in row.split(", ")) for row in rows)
        assert table == X
