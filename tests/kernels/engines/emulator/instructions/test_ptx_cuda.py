"""Every typed PTX instruction on a real GPU: its results are the emulator's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.ptx_instructions import GROUPS, approximations, differences, emulated, on_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("group", GROUPS)
def test_gpu_computes_the_same_bits(group):
    table = list(GROUPS[group]())
    wrong = []
    for i, results in zip(table, on_gpu(table), strict=True):
        wrong += differences(i, range(len(i.cases)), emulated(i), results)
    assert not wrong, "\n".join(wrong)


def test_approximations_have_the_same_zeros_infinities_and_nan():
    """Their other results differ in the last bits. Sine and cosine of large numbers have no right digits on a GPU."""
    table = [i for i in approximations() if not i.text.startswith(("sin", "cos"))]
    wrong = []
    for i, results in zip(table, on_gpu(table), strict=True):
        got = emulated(i)
        mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[i.floats]
        top = np.uint64((1 << i.bits - 1) - (1 << mantissa))  # the bits of infinity
        magnitude = [bits & np.uint64((1 << i.bits - 1) - 1) for bits in (got, results)]
        special = np.logical_or.reduce([(m == 0) | (m >= top) for m in magnitude])
        at = np.flatnonzero(special)
        wrong += differences(i, at, got[at], results[at])
    assert not wrong, "\n".join(wrong)
