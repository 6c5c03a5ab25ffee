"""The positions in fragments compared with mma.sync and ldmatrix in the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.gemm import fragments
from kernels.gemm.fragments import M16N8K16
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.emulated_numbers import rng

pytestmark = needs_nvrtc

MMA = """extern "C" __global__ void k(float* D, const unsigned* A, const unsigned* B, const float* C) {
  const unsigned *a = A + threadIdx.x * 4, *b = B + threadIdx.x * 2;
  const float* c = C + threadIdx.x * 4;
  float* d = D + threadIdx.x * 4;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
        "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}"""
LDMATRIX = """extern "C" __global__ void k(unsigned* out, const unsigned short* in, const unsigned* offset) {
  __shared__ __align__(16) unsigned short s[256];
  for (int i = threadIdx.x; i < 256; i += 32) s[i] = in[i];
  __syncthreads();
  unsigned* r = out + threadIdx.x * 4;
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + offset[threadIdx.x];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%0, %%1, %%2, %%3}, [%%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}"""


def _distributed(name: str, matrix: np.ndarray) -> np.ndarray:
    """Return [32, values]: each lane's values of a matrix, by their positions."""
    f = M16N8K16[name]
    lane, value = np.divmod(np.arange(32 * f.values), f.values)
    return np.ascontiguousarray(matrix[f.position(lane, value)].reshape(32, f.values))


def _product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns the result of mma.sync for matrices distributed by position, as a matrix."""
    operands = {
        "A": _distributed("A", a.astype(np.float16)).view(np.uint32),
        "B": _distributed("B", b.astype(np.float16)).view(np.uint32),
        "C": _distributed("C", c.astype(np.float32)),
    }
    lanes = emulate(MMA, operands, {"D": ((32, 4), np.float32)})["D"]
    lane, value = np.indices((32, 4))
    d = np.full((16, 8), np.nan)
    d[M16N8K16["C"].position(lane, value)] = lanes
    return d


def test_mma_multiplies_matrices_distributed_by_position():
    a, b, c = (rng.integers(-8, 9, shape) for shape in ((16, 16), (16, 8), (16, 8)))
    np.testing.assert_array_equal(_product(a, b, c), a @ b + c)


@pytest.mark.parametrize("name", ["A", "B", "C"])
@pytest.mark.parametrize("value", [0, 1, 3])
def test_value_at_a_wrong_position_is_detected(monkeypatch, name, value):
    correct = M16N8K16[name]

    def wrong(lane, v):
        row, column = correct.position(lane, v)
        return row, np.where(v == value, (column + 1) % correct.columns, column)

    monkeypatch.setitem(
        M16N8K16,
        name,
        fragments.Fragment(name, correct.rows, correct.columns, correct.values, correct.per_register, wrong),
    )
    a, b, c = (rng.integers(-8, 9, shape) for shape in ((16, 16), (16, 8), (16, 8)))
    assert (_product(a, b, c) != a @ b + c).any()


def _ldmatrix(matrices: np.ndarray, transposed: bool) -> np.ndarray:
    """Return [32, 4, 2]: the 16-bit values each lane loads from four consecutive 8 x 8 matrices."""
    matrix, row = divmod(np.arange(32), 8)  # lane l passes the address of row l % 8 of matrix l // 8
    offset = (matrix * 128 + row * 16).astype(np.uint32)
    source = LDMATRIX % (".trans" if transposed else "")
    run = emulate(source, {"in": matrices, "offset": offset}, {"out": ((32, 4), np.uint32)})
    return run["out"].view(np.uint16).reshape(32, 4, 2)


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_loads_the_documented_positions(transposed):
    matrices = rng.permutation(256).astype(np.uint16).reshape(4, 8, 8)
    loaded = _ldmatrix(matrices, transposed)
    lane, value = np.indices((32, 2))
    row, column = fragments.ldmatrix_position(lane, value, transposed)
    for n in range(4):
        np.testing.assert_array_equal(loaded[:, n], matrices[n, row, column])


def test_four_ldmatrix_matrices_are_fragment_a_in_register_order():
    """Checks the order of k. A product cannot, because A and B could have the same wrong order."""
    a = np.arange(256, dtype=np.uint16).reshape(16, 16)
    parts = np.stack([a[:8, :8], a[8:, :8], a[:8, 8:], a[8:, 8:]])
    np.testing.assert_array_equal(_ldmatrix(parts, False).reshape(32, 8), _distributed("A", a))


def test_two_transposed_ldmatrix_matrices_are_fragment_b():
    b = np.arange(128, dtype=np.uint16).reshape(16, 8)
    parts = np.stack([b[:8], b[8:], b[:8], b[8:]])
    loaded = _ldmatrix(parts, True).reshape(32, 8)
    np.testing.assert_array_equal(loaded[:, :4], _distributed("B", b))


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_every_element_has_one_holder(name):
    f = M16N8K16[name]
    assert 32 * f.values == f.rows * f.columns
    holders = f.holders()
    lane, value = holders[..., 0], holders[..., 1]
    rows, columns = np.indices((f.rows, f.columns))
    np.testing.assert_array_equal(f.position(lane, value), [rows, columns])
    assert len(np.unique(lane * f.values + value)) == f.rows * f.columns
