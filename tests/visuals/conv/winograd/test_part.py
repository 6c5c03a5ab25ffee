"""How often tiles of Winograd read a pixel, against a count pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.conv.shape import ConvShape
from tests.helpers.offenders import every
from visuals.conv.winograd.part import reads_per_pixel


@every("m", [2, 4, 6])
@every(("H", "W", "pad"), [(8, 8, 0), (8, 8, 1), (7, 11, 1), (56, 56, 1)])
def test_the_mean_number_of_reads_of_a_pixel(H, W, pad, m):
    s, counts = ConvShape(1, 1, H, W, 1, 3, 3, pad=pad), np.zeros((H, W))
    for top in range(-pad, s.P - pad, m):
        for left in range(-pad, s.Q - pad, m):
            counts[max(top, 0) : top + m + 2, max(left, 0) : left + m + 2] += 1
    assert reads_per_pixel(s, m) == pytest.approx(counts.mean())
