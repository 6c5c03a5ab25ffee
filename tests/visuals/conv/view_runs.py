"""Runs of the convolution kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from tests.helpers.view_runs import ViewRun, seeded
from visuals.conv.backward.scene import SCENES
from visuals.conv.direct.views import DIRECT, WARPS, tiled_view
from visuals.scene.compiler.program import first_blocks

STRIDED = ConvShape(1, 2, 6, 6, 2, 3, 3, stride=2, pad=1)
DENSE = ConvShape(2, 1, 8, 8, 2, 3, 3, pad=1)  # a sum in two parts, one phase
PADDED = ConvShape(1, 2, 5, 5, 3, 3, 3, pad=1)


def runs() -> Iterator[ViewRun]:
    yield seeded("conv/direct", DIRECT, PADDED, {})
    yield seeded("conv/direct warps", WARPS, PADDED, {"BLOCK": 64}, blocks=first_blocks(1))
    tiled = seeded(
        "conv/direct-tiled", DIRECT, PADDED, {"TILE": 8, "TK": 4, "TP": 2, "CHUNK": 1}, blocks=first_blocks(1)
    )
    yield ViewRun(tiled.name, tiled_view(PADDED, tiled.tiles), PADDED, tiled.tiles, tiled.inputs, tiled.blocks)
    for rung, scene in SCENES.items():
        transposed = rung.startswith("conv-transpose")
        for s in (DENSE,) if "winograd" in rung else (STRIDED, DENSE) if "implicit" in rung else (STRIDED,):
            run = seeded(rung, DIRECT, TransposeShape.of(s) if transposed else s, {})
            name = f"{rung} {s.stride}"
            yield ViewRun(name, scene.view(s, run.tiles, transposed), run.shape, run.tiles, run.inputs, scene.blocks)
