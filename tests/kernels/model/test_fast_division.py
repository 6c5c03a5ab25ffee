"""Division by multiplication: exact for every number and divisor by the proof, and tested as the GPU computes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.model.fast_division import BITS, Magic, magic
from tests.helpers.emulated import elementwise, needs_nvrtc

MAX_NUMBER = (1 << BITS) - 1
NUMBERS = st.integers(0, MAX_NUMBER)
# Small numbers, neighbours of powers of two, any.
DIVISORS = st.one_of(
    st.integers(1, 1000),
    st.builds(
        lambda bits, offset: min(max((1 << bits) + offset, 1), MAX_NUMBER), st.integers(0, BITS), st.integers(-2, 2)
    ),
    st.integers(1, MAX_NUMBER),
)


@given(DIVISORS)
def test_conditions_of_the_proof(d):
    """multiplier * d = 2^(31 + shift) + e with 0 <= e < d <= 2^shift: then n e < 2^(31 + shift) for all n < 2^31,
    and n * multiplier / 2^(31 + shift) lies between n / d and (n + 1) / d."""
    m = magic(d)
    assert 0 <= m.multiplier * d - (1 << (BITS + m.shift)) < d <= 1 << m.shift
    assert 0 < m.multiplier < 1 << 32 and 0 <= m.shift <= BITS  # each fits its 32 bits
    assert MAX_NUMBER * (d - 1) < 1 << (BITS + m.shift)


@given(DIVISORS, NUMBERS)
def test_divide_gives_the_quotient(d, n):
    assert magic(d).divide(n) == n // d


@given(DIVISORS, NUMBERS)
def test_divide_gives_the_quotient_next_to_each_multiple(d, n):
    for number in {
        0,
        n // d * d - 1,
        n // d * d,
        n // d * d + 1,
        MAX_NUMBER // d * d - 1,
        MAX_NUMBER // d * d,
        MAX_NUMBER,
    }:
        if 0 <= number <= MAX_NUMBER:
            assert magic(d).divide(number) == number // d


def test_every_divisor_and_number_of_a_small_square():
    n = np.arange(3000, dtype=np.uint64)
    for d in range(1, 3000):
        np.testing.assert_array_equal(magic(d).divide(n), n // np.uint64(d))


@given(DIVISORS.filter(lambda d: d & (d - 1)), NUMBERS)
def test_multiplier_is_the_smallest_possible(d, n):
    """The multiplier is the smallest that works: one less, and a multiple of d gives a wrong quotient."""
    m = magic(d)
    too_small = Magic(d, m.multiplier - 1, m.shift)
    multiple = max(n // d * d, d)
    assert too_small.divide(multiple) == multiple // d - 1


@pytest.mark.parametrize("d", [0, -3, 1 << 31])
def test_invalid_divisor_is_named(d):
    with pytest.raises(ValueError, match=r"must lie in 1 \.\. 2\^31 - 1, got"):
        magic(d)


@needs_nvrtc
def test_kernels_divide_the_same_way():
    from kernels import sources

    rng = np.random.default_rng(0)
    d = np.concatenate(
        [[1, 2, 3, 7, MAX_NUMBER, 1 << 30, (1 << 30) + 1], rng.integers(1, MAX_NUMBER, 500), rng.integers(1, 99, 500)]
    )
    n = rng.integers(0, 1 << BITS, len(d))
    n[::3] = n[::3] // d[::3] * d[::3]
    magics = [magic(int(value)) for value in d]
    out = elementwise(
        {"q": ("divide(n, Magic{m, s})", np.int32)},
        {
            "n": ("int", n.astype(np.int32)),
            "m": ("unsigned", np.array([b.multiplier for b in magics], np.uint32)),
            "s": ("int", np.array([b.shift for b in magics], np.int32)),
        },
        prelude=sources.text("cuda/magic.cuh"),
    )
    np.testing.assert_array_equal(out["q"], n // d)
