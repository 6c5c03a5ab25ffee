from __future__ import annotations

import pytest

from kernels.engines.emulator.occupancy import occupancy
from tests.helpers.offenders import every


@every(
    ("registers", "shared", "threads", "blocks", "limit"),
    [
        (32, 0, 256, 8, "warps"),  # 64 warps of 8
        (64, 0, 256, 4, "registers"),  # 65,536 / (64 * 256)
        (33, 0, 256, 6, "registers"),  # 33 * 32 = 1,056 is allocated as 1,280 a warp
        (32, 0, 32, 32, "blocks"),
        (40, 0, 64, 24, "registers"),  # 1,280 a warp: 12 in each of 4 parts, 48 warps, though 51 would fit in one
        (32, 48 * 1024, 128, 4, "shared memory"),  # 228 KB / 49 KB
        (255, 0, 1024, 0, "registers"),  # 255 * 32 = 8,160 -> 8,192 a warp, 32 warps: 262,144
    ],
)
def test_occupancy_equals_hand_computed_cases(registers, shared, threads, blocks, limit):
    result = occupancy(registers, shared, threads)
    assert (result.blocks, result.limit) == (blocks, limit)
    assert result.share == pytest.approx(result.warps / 64)
