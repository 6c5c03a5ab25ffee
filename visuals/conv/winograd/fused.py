"""Winograd as a scene: tile by tile through the fused kernel, from pixels to outputs.

The tiles, their windows, lanes and blocks are those of kernels/conv/cuda/08_winograd_fused.cu. The numbers are
computed by the CPU implementations. The nonfused kernel, with its matrices in workspaces, is in nonfused.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.winograd import FUSED_TILES, positions, tiles_of
from kernels.conv.winograd_cpu import round_up_to_4
from kernels.i18n import mark, tr
from kernels.ladders import find
from visuals.conv.winograd import halves
from visuals.conv.winograd.halves import Halves
from visuals.conv.winograd.part import Numbers, Operations, Part, derived, operations, output_terms, sum_of, terms
from visuals.scene.parts import Group, Reading, Sum, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import resources
from visuals.units import bytes_

ORDER = mark("explaining order")
ORDER_NOTE = mark(
    "The stage shows one tile after the other, each from its pixels to its outputs. On the GPU, a block computes 32 tiles "
    "and {BK} filters. Its warps transform {BC} channels at a time, in all lanes at once. Many blocks run at the same time."
)
MAX_DETAILED = 4  # up to so many tiles, each takes all its steps; of more, only the first two do
(
    FILTER_HALF,
    FILTER,
    LOAD,
    LOAD_ZEROS,
    TRANSFORM_HALF,
    TRANSFORM,
    MULTIPLY,
    INVERSE_HALF,
    INVERSE,
    INVERSE_CUT,
    TILE,
) = range(11)
_FILES = (("07_winograd_filter.cu", 'extern "C"', ""), halves.TRANSFORM, ("08_winograd_fused.cu", 'extern "C"', ""))
_MARKS = (
    "transform_2d(G, g, u)",
    halves.SECOND_HALF,
    "load_tile(input",
    "load_tile(input",
    "transform_2d(BT, d, v)",
    halves.SECOND_HALF,
    "sum[e][i][j] +=",
    "transform_2d(AT, z, out)",
    halves.SECOND_HALF,
    halves.SECOND_HALF,
    "transform_2d(AT, z, out)",
)
# What the steps count, and its name on the stage.
COUNTED = {
    "direct": mark("multiplications, direct"),
    "product": mark("multiplications, U · V"),
    "additions": mark("additions, transforms"),
    "multiplications": mark("multiplications, transforms"),
}


def fused_scene(part: Part, tiles: Mapping[str, int], n: Numbers) -> Scene:
    """Returns the scene of a part through winograd-2x2 or winograd-4x4 at these tile sizes. `n` is from `numbers`
    of the part."""
    s, m = part.s, part.m
    rung = find(f"conv/winograd-{m}x{m}")
    tiles = rung.check(s, tiles)
    r = _record(part, n)
    kind = np.array(r.kinds)
    sizes = ",".join(f"{k}={v}" for k, v in tiles.items())
    return Scene(
        key=f"{rung.name} {part.i0},{part.j0} {sizes} " + ",".join(f"{k}={v}" for k, v in s.params().items()),
        title=rung.name,
        tensors=(*common_tensors(part, n), *_tensors(part)),
        groups=(
            Group((("x", "R"), ("w", "y")), "global", tr("global memory")),
            Group((("U",),), "workspace", tr("workspace")),
            Group((("V",),), "shared", tr("shared memory")),
            Group((("d", "Xd", "Z"),), "registers", tr("registers")),
        ),
        steps=len(kind),
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE, **tiles),
        writes=r.writes(),
        captions=r.captions(_templates(part)),
        readings=readings(r),
        source=halves.listing(
            tr("two kernels, transform_2d"), _FILES, _MARKS, kind, detail=resources(rung.build(s, tiles).launch(1))
        ),
        lanes=r.lanes(),
        sums=_sums(part),
    )


def readings(r: Recorder) -> tuple[Reading, ...]:
    return tuple(Reading(tr(title), r.so_far(name), "predicted") for name, title in COUNTED.items())


# -- tensors -------------------------------------------------------------------------------------------
def common_tensors(part: Part, n: Numbers) -> tuple[Tensor, ...]:
    """Returns the tensors at the start and the end of both scenes, and the number of reads of each pixel."""
    s, (h, H, w, W), (p, P, q, Q) = part.s, part.pixels, part.out
    planes = part.K * part.C
    plane = tr("filter · {C} + channel", C=part.C)
    if part.C == 1 or part.K == 1:
        plane = tr("filter") if part.C == 1 else tr("channel")
    filters = [tr("{n} of {total} filters", n=part.K, total=s.K)] * (part.K < s.K)
    channels = [tr("{n} of {total} channels", n=part.C, total=s.C)] * (part.C < s.C)
    kept = ", ".join(filters + channels)
    size = "3 × 3" if planes == 1 else f"{planes} × 3 × 3"
    image = [tr("image 0 of {n}", n=s.N)] * (s.N > 1)
    unfinished = [tr("before bias and ReLU")] * (s.bias or s.relu)
    visible = _note((part.C, s.C, mark("{n} channels of {size}")), (h, H, s.H), (w, W, s.W))
    computed = _note((part.K, s.K, mark("{n} planes of {size}")), (p, P, s.P), (q, Q, s.Q))
    return (
        Tensor("x", "x", tr("input"), "input", part.C, H, W, n.x.ravel(), (0, h, w), ", ".join([*image, visible]),
               plane_name=tr("channel") if s.C > 1 else "", pad=part.pad),
        Tensor("w", "g", tr("filters"), "filter", planes, 3, 3, n.w.ravel(), note=kept or size,
               plane_name="" if s.K * s.C == 1 else plane),
        Tensor("y", "y", tr("output"), "output", part.K, P, Q, None, (0, p, q), ", ".join([computed, *unfinished]),
               plane_name=tr("filter") if s.K > 1 else ""),
        Tensor("R", "reads", tr("reads of each pixel"), "workspace", 1, H, W, np.zeros(H * W), (0, h, w),
               tr("so far, in one channel")),
    )  # fmt: skip


def _note(planes: tuple[int, int, str], *axes: tuple[int, int, int]) -> str:
    """Returns the size of a whole tensor and which part of it is visible: (shown, of, message for several planes) and
    (first, count, of)."""
    shown, total, several = planes
    size = " × ".join(f"{of:,}" for _, _, of in axes)
    if shown == total and all(count == of for _, count, of in axes):
        return size if total == 1 else tr(several, n=total, size=size)
    ranges = [f"0–{shown - 1}" if shown > 1 else "0"] * (total > 1) + [
        f"{first}–{first + count - 1}" for first, count, _ in axes
    ]
    whole = f"{total:,} × {size}" if total > 1 else size
    return tr("part {ranges} of {size}", ranges=", ".join(ranges), size=whole)


def _tensors(part: Part) -> tuple[Tensor, ...]:
    T, s, T2 = part.T, part.s, positions(part.m)
    side, channel = f"{T} × {T}", tr("channel") if s.C > 1 else ""
    plane_name = tr("filter") if s.K > 1 else ""
    return (
        Tensor(
            "U",
            "U",
            "U = G g Gᵀ",
            "filter",
            part.K * part.C,
            T,
            T,
            plane_name="" if s.K * s.C == 1 else tr("filter · channel"),
            note=tr("{side}, {bytes} in all", side=side, bytes=bytes_(4 * T2 * s.C * round_up_to_4(s.K))),
        ),
        Tensor("V", "V", "V = Bᵀ d B", "input", part.C, T, T, note=side, plane_name=channel),
        Tensor("d", "d", "d", "input", part.C, T, T, note=side, plane_name=channel),
        halves.tensor(part),
        Tensor("Z", "Z", "Z = Σ U · V", "output", part.K, T, T, plane_name=plane_name),
    )


def _sums(part: Part) -> tuple[Sum, ...]:
    t, T2, C, K = derived(part), positions(part.m), part.C, part.K
    g, d = terms(t.G, part.s.flip), terms(t.BT)
    channels = np.arange(C)
    return (
        sum_of("y", "Z", output_terms(part, lambda position, k, tile: k * T2 + position)),
        sum_of(
            "Z",
            "V",
            [(channels * T2 + p, (k * C + channels) * T2 + p) for k in range(K) for p in range(T2)],
            "U",
            tr("channels") if C < part.s.C else "",
        ),
        sum_of("V", "d", [(c * T2 + cells, by) for c in range(C) for cells, by in d]),
        sum_of("U", "w", [(f * 9 + cells, by) for f in range(K * C) for cells, by in g]),
    )


# -- steps ---------------------------------------------------------------------------------------------
def counted(count: winograd_matrices.Count, times: int = 1) -> dict[str, int]:
    """Returns the counts of `times` transforms, by the names of COUNTED."""
    return {"additions": times * count.additions, "multiplications": times * count.multiplications}


def _record(part: Part, n: Numbers) -> Recorder:
    r, ops, read_counts = Recorder(), operations(part.m), np.zeros(n.x[0].size)
    U = n.U[:, :, : part.K].transpose(2, 1, 0)  # K, C, positions
    half = Halves(part, n)
    for k in range(part.K):
        counts = counted(ops.filter, part.C)
        r.step(FILTER_HALF, k)
        cells = half.put(r, half.of_filter(k))
        r.step(FILTER, k, *counts.values(), **counts)
        r.look("Xd", cells)
        r.put("U", U[k], np.arange(U.size).reshape(part.K, -1)[k])
    detailed = part.tiles if part.tiles <= MAX_DETAILED else 2
    for tile in range(part.tiles):
        _tile(r, half, ops, read_counts, tile, detailed=tile < detailed)
    return r


def _tile(r: Recorder, half: Halves, ops: Operations, read_counts: np.ndarray, tile: int, detailed: bool):
    """Add the steps of one tile, or all its work as one step."""
    part, n = half.part, half.n
    T2, window, out, number = positions(part.m), part.window(tile), part.outputs(tile), part.number(tile)
    lane, inside, valid = number % FUSED_TILES, window[window >= 0], out[out >= 0]
    location, lane_args = (number, *part.at(tile)), {"warp": 0, "mask": mask_of(np.array([lane]))}
    zeros, before, cut = (len(window) - len(inside), int((read_counts[inside] > 0).sum()), len(out) - len(valid))
    pairs = part.K * part.C
    forward, inverse = counted(ops.input, part.C), counted(ops.output, part.K)
    product, direct = T2 * pairs, 9 * len(valid) * pairs
    if detailed:
        first = [float(X.flat[0]) for X in (n.U[0], n.V[0, :, tile], n.Z[0, 0, tile : tile + 1])]
        details = lane, number // FUSED_TILES, before, zeros
        d = r.step(LOAD_ZEROS if zeros else LOAD, *location, *details, **lane_args)
        r.step(TRANSFORM_HALF, *location, **lane_args)
        cells = half.put(r, half.of_input(tile))
        V = r.step(TRANSFORM, *location, *forward.values(), **forward, **lane_args)
        r.look("Xd", cells)
        Z = r.step(MULTIPLY, *location, *first, product, product=product)
        r.step(INVERSE_HALF, *location, **lane_args)
        cells = half.put(r, half.of_output(tile))
        kind = INVERSE_CUT if cut else INVERSE
        y = r.step(kind, *location, *inverse.values(), cut, direct=direct, **inverse, **lane_args)
        r.look("Xd", cells)
    else:
        d = V = Z = y = r.step(TILE, *location, before, product, product=product, direct=direct, **lane_args)
        r.count(**forward)
        r.count(**inverse)
    C, K, cells = np.arange(part.C)[:, None], np.arange(part.K)[:, None], np.arange(T2)
    r.copy("d", "x", np.where(window >= 0, C * read_counts.size + window, -1), C * T2 + cells, at=d)
    read_counts[inside] += 1
    r.put("R", read_counts[inside], inside, at=d)
    r.put("V", n.V[:, :, tile].T, C * T2 + cells, at=V)
    r.put("Z", n.Z[:, :, tile].T, K * T2 + cells, at=Z)
    outputs = K * n.y[0].size + valid
    r.put("y", n.y.ravel()[outputs], outputs, at=y)


# -- captions ------------------------------------------------------------------------------------------
def _templates(part: Part) -> tuple[str, ...]:
    s, m, T = part.s, part.m, part.T
    direct, winograd = winograd_matrices.multiplications_2d(m, 3)
    one_channel, shows_all = s.C == 1, part.K * part.C == s.K * s.C
    sizes = {"m": m, "T": T}
    begin = tr("Tile {0} gives the output from row {1}, column {2}.")
    read = (
        tr("Lane {3} of warp 0 in block {4} reads {T} × {T} pixels of the [input](input) into [d](input).", **sizes)
        if one_channel
        else tr(
            "In block {4}, lane {3} of one warp per channel reads {T} × {T} pixels of the [input](input) into [d](input).",
            **sizes,
        )
    )
    before = joined(tr("{5} of them were read before."), *overlap(part))
    stored = (
        tr("The {T} × {T} values are stored in shared memory.", **sizes)
        if one_channel
        else tr("The {T} × {T} values of each channel are stored in shared memory.", **sizes)
    )
    product = (
        tr("[Z](output) = [U](filter) · [V](input), element by element.")
        if one_channel
        else tr("[Z](output) = [U](filter) · [V](input), element by element, summed over the channels.")
    )
    multiplied = (
        tr("That takes {6} multiplications.")
        if shows_all
        else tr("That takes {6} multiplications for the filters and channels shown.")
    )
    saved = tr(
        "One filter and channel takes {winograd} of them; direct convolution takes {direct}.",
        winograd=winograd,
        direct=direct,
    )
    first = tr("At position (0, 0): {3} × {4} = {5}.") if one_channel else tr("At position (0, 0) the sum is {5}.")
    inverse = tr(
        "Then [y](output) = Xd A gives {m} × {m} values of each filter, from row {1}, column {2}. Both halves take {3} "
        "additions and {4} multiplications.",
        **sizes,
    )
    again = (
        tr("[U](filter) · [V](input) takes {4} multiplications.")
        if shows_all
        else tr("[U](filter) · [V](input) takes {4} multiplications for the filters and channels shown.")
    )
    return (
        joined(
            tr(
                "Filter {0}, first half: [Xd](workspace) = G g. Each column of the [filter](filter) g becomes {T} values.",
                **sizes,
            ),
            tr("An earlier launch does this once for all tiles and images."),
        ),
        tr(
            "Filter {0}, second half: [U](filter) = Xd Gᵀ. Both halves take {1} additions and {2} multiplications. They turn 3 × 3 "
            "weights into {T} × {T} values.",
            **sizes,
        ),
        joined(begin, read, before),
        joined(begin, read, before, tr("{6} positions are outside the input: they are loaded as zero.")),
        tr(
            "The tile is transformed, first half: [Xd](workspace) = Bᵀ [d](input). Each column of d is multiplied by Bᵀ."
        ),
        joined(
            tr(
                "Second half: [V](input) = Xd B. Each row of [Xd](workspace) is multiplied by B. Both halves take {3} additions "
                "and {4} multiplications."
            ),
            stored,
        ),
        joined(product, multiplied, saved, first),
        tr("Inverse transform, first half: [Xd](workspace) = Aᵀ [Z](output). Each column of Z is multiplied by Aᵀ."),
        inverse,
        joined(inverse, tr("{5} values are outside the output and are dropped.")),
        joined(
            tr("Tile {0}, with the same steps: {3} of its pixels were read before.", **sizes),
            again,
            tr("The output starts at row {1}, column {2}."),
        ),
    )


def overlap(part: Part) -> list[str]:
    """Returns a sentence on the distance of tiles, if there are several."""
    if tiles_of(part.s, part.m) == 1:
        return []
    return [tr("Neighbouring tiles start {m} pixels apart, so they overlap by 2.", m=part.m)]


def joined(*sentences: str) -> str:
    return " ".join(sentences)
