"""Edge values and random numbers that the tests of the emulator's arithmetic share."""

from __future__ import annotations

import numpy as np

f32, f64, i32, u32, i64, u64 = np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64
rng = np.random.default_rng(7)
START = rng.bit_generator.state


def _pairs(edges, extra: int, bits: int, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Returns every pair of edge values, and random pairs of every magnitude."""
    mask = (1 << bits) - 1
    random_bits = [
        int(x) >> int(s)
        for x, s in zip(rng.integers(0, 1 << 63, extra) * 2 + 1, rng.integers(0, 60, extra), strict=True)
    ]
    values = np.array([(e & mask) for e in edges], f"u{bits // 8}")
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    random_bits = np.array([w & mask for w in random_bits], f"u{bits // 8}")
    return np.concatenate([a, random_bits]).view(dtype), np.concatenate([b, random_bits[::-1]]).view(dtype)


EDGES = [0, 1, -1, 2, -2, 7, -7, 10, 31, 32, 33, 127, 128, 255, -128, 32767, -32768, 65535, 65536, 0x55555555]
EDGES_32 = [*EDGES, 2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1, 0x00FF00FF, 1 << 30]
EDGES_64 = [*EDGES_32, 2**32, 2**32 - 1, 2**33 + 5, -(2**33), 2**63 - 1, -(2**63), 2**62, 0x0123456789ABCDEF]
SIGNED, UNSIGNED = _pairs(EDGES_32, 300, 32, i32), _pairs(EDGES_32, 300, 32, u32)
SIGNED_64, UNSIGNED_64 = _pairs(EDGES_64, 300, 64, i64), _pairs(EDGES_64, 300, 64, u64)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.25, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 3.4e38, -3.4e38,
     2147483648.0, -2147483648.0, 4294967296.0, 1e10, -1e10, 1e20, -1e20, 127.5, 255.5, 65504.0, 70000.0, 1e-7],
    f32,
)  # fmt: skip


def _floats(n: int = 2000) -> np.ndarray:
    """Returns the special floats, then random floats of all magnitudes."""
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(u32)
    return np.concatenate([SPECIAL, bits.view(f32)])


def _wrap(value: int, dtype) -> int:
    bits = 8 * np.dtype(dtype).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> (bits - 1) else value


def _python(f, dtype, *arrays) -> np.ndarray:
    """Returns f, computed on Python's unbounded integers and wrapped into the type."""
    return np.array([_wrap(f(*map(int, row)), dtype) for row in zip(*arrays, strict=True)], dtype)


def _quotient(a: int, b: int) -> int:
    """Returns the quotient of C, rounded towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def assert_same(actual: np.ndarray, expected: np.ndarray, what: str = "") -> None:
    """Asserts that both arrays are equal bit for bit, except for the bits of a NaN."""
    expected = np.asarray(expected)
    assert actual.dtype == expected.dtype, what
    if actual.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected), what)
        actual, expected = (np.where(np.isnan(x), 0, x) for x in (actual, expected))
        np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected), what)
    np.testing.assert_array_equal(actual, expected, what)
