"""The scenes of direct convolution, plain and tiled, compiled from what their threads did on a small picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr
from visuals.conv.direct.views import DIRECT, WARPS, tiled_view
from visuals.conv.inputs import Inputs
from visuals.conv.part import Part, gather_index, variation
from visuals.conv.watched import with_sides
from visuals.scene.compiler.program import every_block, first_blocks, scene_of_rung
from visuals.scene.compiler.view import unfolded
from visuals.scene.parts import Annotation, Captions, Sum
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene

MANY_TERMS = 12  # of a sum: 3 x 3 taps of one channel are fewer
SIDE, CHANNELS, FILTERS = 8, 3, 4  # the most of each if the whole has too many products
MAX_THREADS, MAX_TERMS = 800, 5_000  # one step each, and all their products
MAX_TILED_TERMS = 50  # of a sum of the tiled kernel: all threads of a block add each
ORDERS = {"explaining": "conv/direct", "warps": "conv/direct", "tiled": "conv/direct-tiled"}  # the rung of each


def shown(s: ConvShape, order: str = "explaining") -> ConvShape:
    """Returns the convolution on the stage: one image, the whole of a small one, else fewer channels, filters and pixels."""
    channels = max(1, min(CHANNELS, MAX_TILED_TERMS // (s.R * s.S))) if order == "tiled" else CHANNELS
    part = s.with_(N=1, C=min(s.maps, channels), K=min(s.filters, FILTERS), groups=1, bias=0, relu=0)
    if part.PQ > MAX_THREADS or part.CRS * part.PQ > MAX_TERMS:
        part = with_sides(part, SIDE)
    filters = min(MAX_THREADS // part.PQ, MAX_TERMS // (part.PQ * part.CRS))
    return part.with_(K=min(part.K, max(1, filters)))


def arrays(inputs: Inputs, part: ConvShape) -> Mapping[str, np.ndarray]:
    """Returns x and w of the convolution on the stage: the square of the picture that varies most."""
    picture = inputs.planes()[0]
    corners = [
        (h, w)
        for h in range(0, inputs.shape.H - part.H + 1, part.H)
        for w in range(0, inputs.shape.W - part.W + 1, part.W)
    ]
    h, w = max(corners, key=lambda at: variation(picture[at[0] : at[0] + part.H, at[1] : at[1] + part.W]))
    x = inputs.x(1, part.C)[:, :, h : h + part.H, w : w + part.W]
    return {"x": np.ascontiguousarray(x, np.float32), "w": inputs.w(part.K, part.C)}


def direct_scene(inputs: Inputs, order: str, tiles: Mapping[str, int], every_step: bool = False) -> Scene:
    """Returns the scene of `shown(inputs.shape, order)` in one of ORDERS, at all tile sizes of its rung. Many products of a sum are
    folded, unless `every_step`. RuleError names a rule that the shape breaks, or that these tile sizes cannot be compiled."""
    s = shown(inputs.shape, order)
    view = {"explaining": DIRECT, "warps": WARPS}.get(order) or tiled_view(s, tiles)
    if every_step or s.CRS <= MANY_TERMS:
        view = unfolded(view)
    index = gather_index(s, Part(s.C, s.K, s.P, s.Q, s.H, s.W))
    return scene_of_rung(
        ORDERS[order],
        s,
        tiles,
        arrays(inputs, s),
        view,
        f"{order} {every_step} {','.join(f'{name}={value}' for name, value in s.params().items())}",
        blocks=every_block if order == "explaining" else first_blocks(1),
        tensors=_tensors(s),
        sums=(_output_sum(s, index),),
        annotations=_annotations(s, index),
    )


def _tensors(s: ConvShape) -> Mapping[str, Mapping]:
    """Returns what the tensors in global memory say of their planes, and the padding that is drawn round the input."""
    taps = tr("{n} of {rows} × {columns}", n=decimal(f"{s.K * s.C:,}"), rows=s.R, columns=s.S)

    def planes(*extents: int) -> str:
        return part_note(*((0, size, size) for size in extents), plane="plane")

    return {
        "x": {"plane_name": tr("channel"), "pad": (s.pad_h, s.pad_w, *s.after), "note": planes(s.C, s.H, s.W)},
        "w": {"plane_name": tr("map"), "note": taps if s.C == 1 else f"{s.K} × {s.C} × {s.R} × {s.S}"},
        "y": {"plane_name": tr("filter"), "note": planes(s.K, s.P, s.Q)},
    }


# -- cells of each other -------------------------------------------------------------------------------
def _output_sum(s: ConvShape, index: np.ndarray) -> Sum:
    """Returns y as the sum over its receptive field: the terms whose pixel lies in the input."""
    inside = (index >= 0).T  # [P*Q, terms]
    output, term = np.nonzero(inside)
    k = np.repeat(np.arange(s.K), len(output))
    start = np.concatenate([[0], np.cumsum(np.tile(inside.sum(axis=1), s.K))])
    return Sum("y", "x", start, np.tile(index.T[inside], s.K), k * s.CRS + np.tile(term, s.K), left="w")


def _annotations(s: ConvShape, index: np.ndarray) -> tuple[Annotation, ...]:
    """Returns, for each pixel, how many threads read it; for each tap, the pixels that it is multiplied by."""
    term, output = np.nonzero(index >= 0)
    pixel = index[term, output]
    windows = np.bincount(pixel, minlength=s.C * s.H * s.W)
    address = np.arange(windows.size)
    k, c, r, t = np.unravel_index(np.arange(s.K * s.CRS), (s.K, s.C, s.R, s.S))
    products = np.tile(np.bincount(term, minlength=s.CRS), s.K)
    taps = np.stack([k, c, r, t, np.arange(s.K * s.CRS), products], axis=1)
    links = np.tile(_padded_lists(term, pixel, s.CRS), (s.K, 1))
    pixels = np.stack([address, windows, windows * s.K], axis=1)
    return (
        Annotation("x", Captions(_of_pixels(s), np.minimum(windows, 2), pixels)),
        Annotation("w", Captions(_of_taps(s), np.minimum(products, 2), taps), {"x": links}),
    )


def _of_pixels(s: ConvShape) -> tuple[str, ...]:
    """Returns the sentences on a pixel in no window, in one, in more. {0} address, {1} windows, {2} threads that read it."""
    if s.K > 1:
        one = tr("It is in 1 window. {2} threads load it: 1 window × {filters} filters.", filters=s.K)
        more = tr("It is in {1} windows. {2} threads load it: {1} windows × {filters} filters.", filters=s.K)
    else:
        one = tr("It is in 1 window. 1 thread loads it.")
        more = tr("It is in {1} windows. {2} threads load it, one per window.")
    address, none = tr("Its address is {0}."), tr("It is in no window. No thread loads it.")
    return tuple(f"{address} {text}" for text in (none, one, more))


def _of_taps(s: ConvShape) -> tuple[str, ...]:
    """Returns the sentences on a tap that is multiplied by no pixel, one, more. {0} k, {1} c, {2} r, {3} s, {4} address, {5}
    pixels."""
    name = tr("Filter {0}, channel {1}, tap ({2}, {3}), address {4}.")
    if s.flip:
        name += " " + tr(
            "The filter is flipped: this tap multiplies row {last_row} − {2}, column {last_column} − {3} of each window.",
            last_row=s.R - 1,
            last_column=s.S - 1,
        )
    products = (
        tr("It multiplies only zeros of the padding."),
        tr("It multiplies the outlined [pixel](input)."),
        tr("It multiplies the {5} outlined [pixels](input), one per [output](output)."),
    )
    return tuple(f"{name} {text}" for text in products)


def _padded_lists(key: np.ndarray, value: np.ndarray, keys: int) -> np.ndarray:
    """Returns int64[keys, n]: the values that belong to each key, padded with -1."""
    count = np.bincount(key, minlength=keys)
    out = np.full((keys, max(1, int(count.max(initial=0)))), -1)
    order = np.argsort(key, kind="stable")
    position = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
    out[key[order], position] = value[order]
    return out
