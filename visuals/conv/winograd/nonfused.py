"""Winograd in steps as a scene, compiled from what its four kernels did on a small picture: filters and input become T*T matrices each, then
their products, then the output. The rows of one position are below those of the position before it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.conv.winograd import positions
from kernels.conv.winograd_cpu import round_up_to_4
from kernels.i18n import tr
from kernels.model.program import Launch
from visuals.conv.direct.scene import arrays
from visuals.conv.inputs import Inputs
from visuals.conv.watched import with_sides
from visuals.conv.winograd.part import NONFUSED, Part, derived, output_terms, sum_of, terms
from visuals.conv.winograd.views import view
from visuals.scene.compiler.program import every_block, scene_of_rung
from visuals.scene.parts import Sum
from visuals.scene.recorder import part_note
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
    part = Part(s, m, s.C, s.K, *Part(s, m, 1, 1, 1, 1).grid)
    is_read = part.pixels == (0, s.H, 0, s.W)  # whether the tiles read the whole input
    scene = scene_of_rung(
        NONFUSED,
        s,
        tiles,
        arrays(inputs, s),
        view(s, tiles),
        ",".join(f"{name}={value}" for name, value in s.params().items()),
        blocks=_watched,
        tensors=_tensors(part),
        sums=_sums(part) if is_read else (),
    )
    return scene


def _watched(launch: Launch) -> tuple[int, ...]:
    blocks = every_block(launch)
    return blocks[:MAX_PRODUCTS] if launch.entry == "winograd_product" else blocks


def _tensors(part: Part) -> Mapping[str, Mapping]:
    """Returns what tensors say of their sizes, the padding that is drawn round the input, and the extents of the halves."""
    s, m, T, T2 = part.s, part.m, part.T, positions(part.m)
    x, w, y = (
        part_note(*((0, size, size) for size in extents), plane="plane")
        for extents in ((s.C, s.H, s.W), (s.K * s.C, 3, 3), (s.K, s.P, s.Q))
    )
    row = round_up_to_4(part.tiles)

    def workspace(rows: int, columns: int) -> str:
        return f"{T2} × {rows} × {columns}, {bytes_(4 * T2 * rows * columns)}"

    return {
        "x": {"note": x, "pad": part.pad, "plane_name": tr("channel")},
        "w": {"note": w, "plane_name": tr("filter")},
        "y": {"note": y, "plane_name": tr("filter")},
        "U": {"note": workspace(s.C, round_up_to_4(s.K))},
        "V": {"note": workspace(s.C, row)},
        "Z": {"note": workspace(s.K, row)},
        "Gg": {"rows": T, "cols": 3},
        "Bd": {"rows": T, "cols": T},
        "AZ": {"rows": m, "cols": T},
    }


def _sums(part: Part) -> tuple[Sum, ...]:
    t, C, K, T2 = derived(part), part.C, part.K, positions(part.m)
    filters, tiles = round_up_to_4(K), round_up_to_4(part.tiles)
    size = part.pixels[1] * part.pixels[3]
    g, d = terms(t.G, part.s.flip), terms(t.BT)
    empty, channels = (np.zeros(0, int), np.zeros(0, np.float32)), np.arange(C)
    windows = [part.window(tile) for tile in range(part.tiles)]

    def pixels(p: int, c: int, tile: int):
        if tile >= part.tiles:
            return empty
        cells = windows[tile][d[p][0]]
        return c * size + cells[cells >= 0], d[p][1][cells >= 0]

    def taps(p: int, c: int, k: int):
        return ((k * C + c) * 9 + g[p][0], g[p][1]) if k < K else empty

    def pairs(p: int, k: int, tile: int):
        return ((p * C + channels) * tiles + tile, (p * C + channels) * filters + k) if tile < part.tiles else empty

    pairs_of_positions = [(p, c) for p in range(T2) for c in range(C)]
    return (
        sum_of("y", "Z", output_terms(part, lambda p, k, tile: (p * K + k) * tiles + tile)),
        sum_of("Z", "V", [pairs(p, k, tile) for p in range(T2) for k in range(K) for tile in range(tiles)], "U"),
        sum_of("V", "x", [pixels(p, c, tile) for p, c in pairs_of_positions for tile in range(tiles)]),
        sum_of("U", "w", [taps(p, c, k) for p, c in pairs_of_positions for k in range(filters)]),
    )
