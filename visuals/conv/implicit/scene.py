"""Implicit GEMM as a scene, compiled from what block 0 did: tiles of a data matrix that is never stored are copied into shared memory,
multiplied and overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from visuals.conv.direct.scene import arrays
from visuals.conv.implicit.indices import cell_notes
from visuals.conv.implicit.plan import Plan
from visuals.conv.implicit.views import view
from visuals.conv.inputs import Inputs
from visuals.conv.part import Part, gather_index
from visuals.conv.watched import with_sides
from visuals.scene.compiler.program import first_blocks, scene_of_rung
from visuals.scene.parts import Group, MatMul, Tensor, View, product
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene

MAX_COLUMNS, MAX_ROWS, MAX_FILTERS, SIDE = (
    100,
    96,
    64,
    8,
)  # of the data matrix on the stage, filters, rows and columns of pixels
NOT_STORED = mark("{size}, not stored")


def shown(s: ConvShape) -> ConvShape:
    """Returns the convolution on the stage: one image, the whole of a small one, else fewer channels, filters and pixels."""
    channels, filters = max(1, min(s.maps, MAX_ROWS // (s.R * s.S))), min(s.filters, MAX_FILTERS)
    part = s.with_(N=1, C=channels, K=filters, groups=1, bias=0, relu=0)
    return with_sides(part, SIDE) if part.PQ > MAX_COLUMNS else part


def implicit_scene(inputs: Inputs, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of block 0 of a rung at `shown` of the inputs' shape, with all its tile sizes. RuleError names a rule that the
    shape breaks, or that these tile sizes cannot be compiled."""
    s = shown(inputs.shape)
    sizes = ",".join(f"{name}={value}" for name, value in tiles.items())
    scene = scene_of_rung(
        rung, s, tiles, arrays(inputs, s), view(s, tiles), "", blocks=first_blocks(1), tensors=_tensors(s, tiles)
    )
    scene = replace(scene, key=f"{rung} {s} {sizes}")
    note = part_note((0, s.CRS, s.CRS), (0, s.PQ, s.PQ))
    data = Tensor("D", "D", tr("data matrix"), "workspace", 1, s.CRS, s.PQ, note=tr(NOT_STORED, size=note))
    index = gather_index(s, Part(s.C, s.K, s.P, s.Q, s.H, s.W))
    return replace(
        scene,
        tensors=(*scene.tensors, data),
        groups=_groups(scene, s, tiles),
        views=(View("D", "x", index.ravel()),),
        matmuls=(MatMul("w", "D", "y"),),
        annotations=cell_notes(Plan(s, rung, dict(tiles))),
    )


def _groups(scene: Scene, s: ConvShape, tiles: Mapping[str, int]) -> tuple[Group, ...]:
    """Returns the places of the tensors. A small scene is wide, so that the product and the tiles are side by side."""
    x, matrices, *others = scene.groups
    table = replace(matrices, rows=product("w", "D", "y"), table=True)
    is_small = tiles["BM"] > s.K and tiles["BN"] > s.PQ
    return (table, *others, x) if is_small else (x, table, *others)


def _tensors(s: ConvShape, tiles: Mapping[str, int]) -> Mapping[str, Mapping]:
    """Returns what tensors say of their sizes. Each window is a row: row and column of its first tap, and offset in x."""
    planes = part_note((0, s.C, s.C), (0, s.H, s.H), (0, s.W, s.W), plane="channel")
    return {
        "x": {"note": planes, "plane_name": tr("map")},
        "w": {"note": f"{s.K} × {s.CRS}"},
        "y": {"note": f"{s.K} × {s.PQ}"},
        "mine": {"rows": tiles["BN"] // 32, "cols": 3},
        "acc": {"note": f"{tiles['TM']} × {tiles['TN']}"},
    }
