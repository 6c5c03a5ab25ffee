"""Winograd's kernels as scenes, compiled from what they did on a small picture: fused, in steps, and on one tile with one filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.shape import MODES, ConvShape
from kernels.conv.winograd_cpu import R, round_up_to_4
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.launch import ceil
from kernels.model.program import Launch
from visuals.conv.direct.scene import arrays
from visuals.conv.inputs import Inputs
from visuals.conv.watched import with_sides
from visuals.conv.winograd.fused_views import fused_view
from visuals.conv.winograd.nested_views import MATRICES, nested_view
from visuals.conv.winograd.part import NONFUSED, sum_of, sums, tiles_of
from visuals.conv.winograd.views import view
from visuals.scene.compiler.program import every_block, first_blocks, scene_of_rung
from visuals.scene.parts import MatMul, Sum, Tensor
from visuals.scene.recorder import Recorder, part_note
from visuals.scene.scene import Scene
from visuals.units import bytes_

TILES = {2: 4, 4: 3, 6: 2}  # along each side of a larger map, by m
MAX_PRODUCTS = 4  # positions that are multiplied one by one
MAPS = {2: 2, 4: 2, 6: 1}  # channels and filters at most, by m


def shown(s: ConvShape, m: int) -> ConvShape:
    """Returns the convolution on the stage: one image, fewer channels, filters and pixels of a large one."""
    part = s.with_(N=1, C=min(s.maps, MAPS[m]), K=min(s.filters, 2), groups=1, bias=0, relu=0)
    return with_sides(part, TILES[m] * m)


def steps_scene(inputs: Inputs, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of `shown` of the inputs' shape through winograd-nonfused at all its tile sizes. RuleError names a rule that the
    shape breaks, or that these tile sizes cannot be compiled."""
    m = tiles["M"]
    s = shown(inputs.shape, m)
    T, T2, row = m + R - 1, (m + R - 1) ** 2, round_up_to_4(len(tiles_of(s, m)))
    squares = {"Gg": {"rows": T, "cols": 3}, "Bd": {"rows": T, "cols": T}, "AZ": {"rows": m, "cols": T}}
    workspaces = {
        "U": {"note": _workspace(T2, s.C, round_up_to_4(s.K))},
        "V": {"note": _workspace(T2, s.C, row)},
        "Z": {"note": _workspace(T2, s.K, row)},
    }
    tensors = _tensors(s, m) | squares | workspaces
    return _scene(NONFUSED, inputs, s, tiles, view(s, tiles), blocks=_watched, tensors=tensors, sums=sums(s, m))


def fused_scene(inputs: Inputs, m: int, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of `shown` of the inputs' shape through winograd-2x2 or winograd-4x4, with the reads of each pixel so far.
    Errors as of steps_scene."""
    s, T2 = shown(inputs.shape, m), (m + R - 1) ** 2
    tensors = _tensors(s, m) | {
        "U": {"note": _workspace(T2, s.C, round_up_to_4(s.K))},
        "V": {"planes": 1, "rows": T2 * s.C},
    }
    of_sums = sums(s, m, len(tiles_of(s, m)))
    return _with_reads(
        _scene(f"conv/winograd-{m}x{m}", inputs, s, tiles, fused_view(s, m, tiles), tensors=tensors, sums=of_sums), s
    )


def _scene(rung: str, inputs: Inputs, s: ConvShape, tiles: Mapping[str, int], of: Any, **parts: Any) -> Scene:
    key = ",".join(f"{name}={value}" for name, value in s.params().items())
    return scene_of_rung(rung, s, tiles, arrays(inputs, s), of, key, **parts)


def _watched(launch: Launch) -> tuple[int, ...]:
    blocks = every_block(launch)
    return blocks[:MAX_PRODUCTS] if launch.entry == "winograd_product" else blocks


def _workspace(*extents: int) -> str:
    return f"{' × '.join(map(str, extents))}, {bytes_(4 * prod(extents))}"


def _tensors(s: ConvShape, m: int) -> dict[str, dict[str, Any]]:
    """Returns what the tensors in global memory say of their sizes, and the padding that is drawn round the input."""
    x, w, y = (
        part_note(*((0, size, size) for size in extents), plane="plane")
        for extents in ((s.C, s.H, s.W), (s.K * s.C, 3, 3), (s.K, s.P, s.Q))
    )
    below, right = (
        max(0, ceil(outputs, m) * m + R - 1 - pad - size)
        for outputs, pad, size in ((s.P, s.pad_h, s.H), (s.Q, s.pad_w, s.W))
    )
    return {
        "x": {"note": x, "pad": (s.pad_h, s.pad_w, below, right), "plane_name": tr("channel")},
        "w": {"note": w, "plane_name": tr("filter")},
        "y": {"note": y, "plane_name": tr("filter")},
    }


def _with_reads(scene: Scene, s: ConvShape) -> Scene:
    """Returns the scene with a tensor that counts in how many of its steps each pixel of channel 0 was read: a tile's in each."""
    r, counts = Recorder(), np.zeros(s.H * s.W)
    (read,) = (read for read in scene.reads if read.source == "x")
    for t, (start, stop) in enumerate(zip(read.start[:-1], read.start[1:], strict=True)):
        pixels = read.cells[start:stop][read.cells[start:stop] < counts.size]
        counts[pixels] += 1
        r.put("R", counts[pixels], pixels, at=t)
    tensor = Tensor(
        "R",
        "reads",
        tr("reads of each pixel"),
        "workspace",
        1,
        s.H,
        s.W,
        np.zeros(s.H * s.W),
        note=tr("so far, in one channel"),
    )
    groups = replace(scene.groups[0], rows=(("x", "R"), ("w", "y"))), *scene.groups[1:]
    return replace(scene, tensors=(*scene.tensors, tensor), groups=groups, writes=(*scene.writes, *r.writes()))


# -- one tile --------------------------------------------------------------------------------------------
def first_tile(inputs: Inputs, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (d [T, T], w [3, 3]), float32: the first tile of the picture on the stage, with zeros outside, and filter 0; in channel 0."""
    s = shown(inputs.shape, m)
    given, T = arrays(inputs, s), m + R - 1
    padded = np.pad(given["x"][0, 0], ((s.pad_h, T), (s.pad_w, T)))
    return padded[:T, :T], given["w"][0, 0]


def nested_scene(inputs: Inputs, m: int) -> Scene:
    """Returns the scene of the first tile and filter 0, in channel 0. Errors as of steps_scene."""
    return scene_of_tile(m, *first_tile(inputs, m), inputs.shape.mode)


def scene_of_tile(m: int, d: np.ndarray, w: np.ndarray, mode: str = MODES[0]) -> Scene:
    """Returns the scene of a tile d [m + 2, m + 2] and a filter w [3, 3], float32, through winograd-nonfused."""
    s = ConvShape(1, 1, m + 2, m + 2, 1, 3, 3, mode=mode)
    tiles, given = find(NONFUSED).default_tiles | {"M": m}, {"x": d[None, None], "w": w[None, None]}
    key = f"nested {m} {mode}"
    scene = scene_of_rung(NONFUSED, s, tiles, given, nested_view(m), key, blocks=first_blocks(1))
    t = winograd_matrices.derive(m, R)
    matrices = tuple(
        Tensor(
            name, symbol, symbol, role, 1, len(matrix), len(matrix[0]), np.array(matrix, object).astype("f4").ravel()
        )
        for (name, symbol, role), matrix in zip(MATRICES, (t.G, t.BT, t.AT), strict=True)
    )
    rows = (("G", "g", "Gg", "U", "Z"), ("BT", "d", "Bd", "V"), ("AT", "AZ", "y"))
    return replace(
        scene,
        title=f"F({m}×{m}, {R}×{R})",
        tensors=(*scene.tensors, *matrices),
        groups=(replace(scene.groups[0], rows=rows),),
        sums=_sums(m),
        matmuls=(MatMul("G", "g", "Gg"), MatMul("BT", "d", "Bd"), MatMul("AT", "Z", "AZ")),
    )


def _sums(m: int) -> tuple[Sum, ...]:
    """Returns the second half of each transform, and the products: out[i, j] = sum over k of half[i, k] * X[j, k]."""
    T, k = m + R - 1, np.arange

    def second(out: str, half: str, X: str, rows: int, inner: int) -> Sum:
        entries = [(i * inner + k(inner), j * inner + k(inner)) for i in range(rows) for j in range(rows)]
        return sum_of(out, half, entries, X)

    return (
        second("U", "Gg", "G", T, R),
        second("V", "Bd", "BT", T, T),
        second("y", "AZ", "AT", m, T),
        sum_of("Z", "V", [(np.array([i]), np.array([i])) for i in range(T * T)], "U"),
    )
