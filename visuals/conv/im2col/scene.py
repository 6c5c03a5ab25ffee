"""im2col as a scene of two acts, compiled from what its kernels did: every window of the input becomes a column; then filters times
columns are the output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr, trn
from kernels.ladders import find
from kernels.model.launch import ceil
from visuals.conv.im2col.views import MOST, VIEWS
from visuals.conv.part import Part, copies_per_pixel
from visuals.scene.compiler.program import every_block, scene_of_rung
from visuals.scene.compiler.view import Buffer, PerThread, Shared, Shown, View, box
from visuals.scene.parts import Group, Tensor, Write
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene

FILE = "conv/02_im2col.cu"
MAX_ABREAST = 64  # columns of filters and data matrix that are side by side
MAX_BLOCKS = 4  # of the product, that are shown one by one
RUNGS = {"library": "conv/im2col-cublas"}  # of an order, if it is not ours


def im2col_scene(
    s: ConvShape, part: Part, x: np.ndarray, w: np.ndarray, order: str = "explaining", tiles: Mapping[str, int] = {}
) -> Scene:
    """Returns the scene of a part of image 0 in an order of VIEWS: the kernels run on that part alone. float32: x [N,C,H,W], w [K,C,R,S]
    (the first part.C channels and part.K filters are enough). `tiles`: those that are not the default."""
    rung = find(RUNGS.get(order, "conv/im2col-gemm"))
    sizes = rung.default_tiles | {name: size for name, size in tiles.items() if name in rung.tiles}
    shape, rows, cols = part.shape(s), slice(part.h, part.h + part.H), slice(part.w, part.w + part.W)
    inputs = {
        "x": np.ascontiguousarray(x[:1, : part.C, rows, cols], np.float32),
        "w": np.ascontiguousarray(w[: part.K, : part.C], np.float32),
    }
    scene = scene_of_rung(
        rung.name,
        shape,
        sizes,
        inputs,
        placed(VIEWS[order], shape, sizes.get("TILE", 0)),
        "",
        _notes(s, part),
        lambda launch: every_block(launch)[: ceil(MOST, sizes["BLOCK"]) if launch.source == FILE else MAX_BLOCKS],
    )
    made_of = ",".join(f"{name}={value}" for name, value in (s.params() | sizes).items())
    key = f"im2col {part.p},{part.q} {made_of} {order}"
    note = part_note(*_extents(s, part)["y"], plane="plane")
    return replace(_with_planes(scene, shape, note), key=key, title="im2col")


def placed(view: View, s: ConvShape, tile: int) -> View:
    """Returns a view with the extents of its matrices and the places of its tensors. Of a tile that is larger than the matrices, only
    what is in them is shown: the rest is zeros."""
    shapes = {"D": (s.CRS, s.PQ), "w": (s.K, s.CRS), "C": (s.K, s.PQ)}
    boxes = {"tile_a": shapes["w"], "tile_b": shapes["D"]}

    def sized(shown: Shown) -> Shown:
        if isinstance(shown, Buffer):
            return replace(shown, shape=shapes.get(shown.name, ()))
        if isinstance(shown, Shared):
            rows, columns = (min(tile, size) for size in boxes[shown.name])
            return replace(shown, **box(0, rows, columns, tile))
        assert isinstance(shown, PerThread)
        return replace(shown, part=(range(s.K), range(s.PQ)))

    return replace(view, tensors=tuple(map(sized, view.tensors)), groups=(*_groups(s), *view.groups))


def _groups(s: ConvShape) -> tuple[Group, ...]:
    """Returns the places in global memory. The product is as it is written, the data matrix above the output, filters at its left. Matrices
    that are too wide to be side by side are folded into bands."""
    if s.CRS + s.PQ > MAX_ABREAST:
        return Group((("x",),)), Group((("D",),), "workspace"), Group((("w", "C"),), column=False)
    if s.C == 1 and max(s.H, s.W) <= s.CRS and not any((*s.pad, *s.after)):
        return (Group((("x", "D"), ("w", "C")), table=True),)
    return Group((("x",),)), Group((("", "D"), ("w", "C")), table=True)


def _extents(s: ConvShape, part: Part) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """Returns first, count and whole of each axis, by tensor."""
    return {
        "x": ((0, part.C, s.C), (part.h, part.H, s.H), (part.w, part.W, s.W)),
        "w": ((0, part.K, s.K), (0, part.C * s.R * s.S, s.CRS)),
        "y": ((0, part.K, s.K), (part.p, part.P, s.P), (part.q, part.Q, s.Q)),
    }


def _notes(s: ConvShape, part: Part) -> dict[str, str]:
    extents = _extents(s, part)
    C = f"{part.K} × {part.P * part.Q}"
    if (part.K, part.P * part.Q) != (s.K, s.PQ):
        C = tr("{part} of {whole}", part=C, whole=decimal(f"{s.K:,} × {s.PQ:,}"))
    return {
        "x": part_note(*extents["x"], plane="channel"),
        "w": part_note(*extents["w"]),
        "C": C,
        "D": _matrix_note(s, part),
    }


def _matrix_note(s: ConvShape, part: Part) -> str:
    notes = [
        decimal(f"{s.CRS:,} × {s.PQ:,}"),
        trn("each pixel copied up to {n} time", "each pixel copied up to {n} times", copies_per_pixel(s)),
    ]
    if s.N > 1:
        notes.insert(0, tr("image 0 of {n}", n=s.N))
    rows, columns = part.C * s.R * s.S, part.P * part.Q
    if (rows, columns) != (s.CRS, s.PQ):
        notes.append(tr("part {size}", size=decimal(f"{rows:,} × {columns:,}")))
    return ", ".join(notes)


def _with_planes(scene: Scene, s: ConvShape, note: str) -> Scene:
    """Returns a scene with the output as planes, the bytes of the output matrix under other indices, and with the padding of the input."""
    after = np.zeros(s.K * s.PQ, int)
    for write in scene.writes:
        if write.target == "C":
            steps, cells, _ = scene.written(write)
            after[cells] = steps
    y = Tensor("y", "y", tr("output"), "output", s.K, s.P, s.Q, None, note=note, plane_name=tr("filter"))
    x, *others = scene.tensors
    x = replace(x, pad=(*s.pad, *s.after), plane_name=tr("channel"))
    group = Group((("y",),)) if scene.groups[0].table else replace(scene.groups[0], rows=(("x", "y"),))
    groups = (*scene.groups, group) if scene.groups[0].table else (group, *scene.groups[1:])
    reshape = Write("y", after, source="C", index=np.arange(len(after)), reshapes=True)
    return replace(scene, tensors=(x, *others, y), groups=groups, writes=(*scene.writes, reshape))
