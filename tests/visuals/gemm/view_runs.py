"""Runs of the matrix products in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from tests.visuals.gemm.test_scene import DTYPES, smallest
from visuals.gemm import ring
from visuals.gemm.views import KERNELS, view
from visuals.scene.compiler.program import first_blocks

SIZES = {"gemm/mma-sync": ((64, 64, 128), (19, 21, 35))}  # rows that begin at multiples of 16 bytes, and others
OTHERS = ((16, 16, 24), (19, 21, 35))


def runs() -> Iterator[ViewRun]:
    for rung in KERNELS:
        tiles = find(rung).default_tiles | smallest(rung)
        for size in SIZES.get(rung, OTHERS):
            s = GemmShape(*size, beta=2.0, dtype=DTYPES.get(rung, "fp32"))
            yield seeded(rung, view(rung, s, tiles, 32, 32), s, tiles, blocks=first_blocks(1))
    for rung, kind in ring.RINGS.items():
        tiles = find(rung).default_tiles | ({"BLOCKS": kind.blocks} if kind.persistent else {})
        s = GemmShape(2 * kind.blocks * tiles["BM"], tiles["BN"], 6 * 64, dtype="fp16")
        yield seeded(rung, ring.view(rung, s, tiles), s, tiles, blocks=first_blocks(1))
