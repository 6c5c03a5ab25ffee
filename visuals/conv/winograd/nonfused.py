"""Nonfused Winograd as a scene: filters and input become T*T matrices each, then their products, then the output.

The three workspaces have the layout of the kernels (kernels/conv/cuda/07_winograd_filter.cu, 09_winograd_*.cu): U
[T*T, C, fours(K)], V [T*T, C, fours(tiles)], Z [T*T, K, fours(tiles)]. The rows of one position are below those
of the position before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.winograd import FILTER_BLOCK, positions, tiles_of
from kernels.conv.winograd_cpu import round_up_to_4
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from visuals.conv.winograd import halves
from visuals.conv.winograd.fused import ORDER, common_tensors, counted, joined, overlap, readings
from visuals.conv.winograd.halves import Halves
from visuals.conv.winograd.part import NONFUSED, Numbers, Part, derived, operations, output_terms, sum_of, terms
from visuals.scene.parts import Group, Sum, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import mask_of
from visuals.scene.scene import Scene
from visuals.units import bytes_

ORDER_NOTE = mark(
    "The stage shows one thread after the other in the transforms, and one position after the other in the products. On the "
    "GPU, each of the four launches runs all its threads at once. All positions are multiplied at the same time."
)
(
    FILTER_HALF,
    FILTER,
    FILTER_END,
    INPUT_HALF,
    INPUT_HALF_ZEROS,
    INPUT,
    INPUT_END,
    PRODUCT,
    OUTPUT_HALF,
    OUTPUT,
    OUTPUT_CUT,
) = range(11)
_FILES = tuple(
    (file, 'extern "C"', "")
    for file in ("07_winograd_filter.cu", "09_winograd_input.cu", "09_winograd_product.cu", "09_winograd_output.cu")
)
_MARKS = (  # by kind of step
    "transform_2d(G, g, u)",
    halves.SECOND_HALF,
    "transform_2d(G, g, u)",
    "transform_2d(BT, d, v)",
    "transform_2d(BT, d, v)",
    halves.SECOND_HALF,
    "transform_2d(BT, d, v)",
    "sum[i][j] +=",
    "transform_2d(AT, z, out)",
    halves.SECOND_HALF,
    halves.SECOND_HALF,
)


def steps_scene(part: Part, tiles: Mapping[str, int], n: Numbers) -> Scene:
    """Returns the scene of a part through winograd-nonfused at these tile sizes, whose M is the part's."""
    s, rung = part.s, find(NONFUSED)
    tiles = rung.check(s, {**tiles, "M": part.m})
    r = _record(part, tiles, n)
    sizes = ",".join(f"{k}={v}" for k, v in tiles.items())
    return Scene(
        key=f"{rung.name} {part.i0},{part.j0} {sizes} " + ",".join(f"{k}={v}" for k, v in s.params().items()),
        title=rung.name,
        tensors=(*common_tensors(part, n)[:3], *_tensors(part), halves.tensor(part)),
        groups=(
            Group((("x", "w", "y"),), "global", tr("global memory")),
            Group(
                (("U", "V", "Z"),),
                "workspace",
                tr("workspaces: {n} matrices each, one below the other", n=positions(part.m)),
            ),
            Group((("Xd",),), "registers", tr("registers")),
        ),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        captions=r.captions(_templates(part)),
        readings=readings(r),
        source=halves.listing(
            tr("four kernels"),
            (*_FILES, halves.TRANSFORM),
            _MARKS,
            np.array(r.kinds),
            detail="07_winograd_filter.cu, 09_winograd_*.cu",
        ),
        lanes=r.lanes(),
        sums=_sums(part),
    )


def columns(part: Part) -> tuple[int, int]:
    """Returns the number of visible columns of U and of V and Z. If all are visible, it includes the zeros that
    pad a row to a multiple of four."""
    K = round_up_to_4(part.K) if part.K == part.s.K else part.K
    return K, round_up_to_4(part.tiles) if part.is_whole and part.s.N == 1 else part.tiles


def _tensors(part: Part) -> tuple[Tensor, ...]:
    s, T2 = part.s, positions(part.m)
    filters, tiles = columns(part)
    row, K = round_up_to_4(tiles_of(s, part.m)), round_up_to_4(s.K)

    def workspace(name, title, role, rows, cols, whole, index=None) -> Tensor:
        size = f"{T2} × {whole[0]:,} × {whole[1]:,}, {bytes_(4 * T2 * whole[0] * whole[1])}"
        partial = (rows, cols) != whole
        note = tr("{rows} × {cols} of each position, of {size}", rows=rows, cols=cols, size=size) if partial else size
        return Tensor(name, name, title, role, 1, T2 * rows, cols, note=note, partial=partial, col_index=index)

    numbers = None if tiles == row else np.array([part.number(t) for t in range(tiles)])
    return (
        workspace("U", "U = G g Gᵀ", "filter", part.C, filters, (s.C, K)),
        workspace("V", "V = Bᵀ d B", "input", part.C, tiles, (s.C, row), numbers),
        workspace("Z", "Z = Uᵀ V", "output", part.K, tiles, (s.K, row), numbers),
    )


def _sums(part: Part) -> tuple[Sum, ...]:
    t, C, K, T2 = derived(part), part.C, part.K, positions(part.m)
    filters, tiles = columns(part)
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
        sum_of(
            "Z",
            "V",
            [pairs(p, k, tile) for p in range(T2) for k in range(K) for tile in range(tiles)],
            "U",
            tr("channels") if C < part.s.C else "",
        ),
        sum_of("V", "x", [pixels(p, c, tile) for p, c in pairs_of_positions for tile in range(tiles)]),
        sum_of("U", "w", [taps(p, c, k) for p, c in pairs_of_positions for k in range(filters)]),
    )


# -- steps ---------------------------------------------------------------------------------------------
def _record(part: Part, tiles: Mapping[str, int], n: Numbers) -> Recorder:
    r, ops, s = Recorder(), operations(part.m), part.s
    C, K, T2 = part.C, part.K, positions(part.m)
    filters, cols = columns(part)
    cells = {
        "U": np.arange(T2 * C * filters).reshape(T2, C, filters),
        "V": np.arange(T2 * C * cols).reshape(T2, C, cols),
        "Z": np.arange(T2 * K * cols).reshape(T2, K, cols),
    }

    def write(name: str, region) -> None:
        index = cells[name]
        r.put(name, getattr(n, name)[..., : index.shape[-1]][region], index[region])

    def thread(index: int) -> dict[str, int]:
        return {"warp": index % tiles["BLOCK"] // 32, "mask": mask_of(np.array([index % 32]))}

    (across, down), half = FILTER_BLOCK, Halves(part, n)
    for k in range(K):
        for c in range(C):
            lane = {"warp": c % down, "mask": mask_of(np.array([k % across]))}
            r.step(FILTER_HALF, k, c, **lane)
            done = half.put(r, half.of_filter(k, c))
            r.step(FILTER, k, c, **lane, **counted(ops.filter))
            r.look("Xd", done)
            write("U", np.s_[:, c, k])
    if filters > K:
        r.step(FILTER_END, filters - K)
        write("U", np.s_[:, :, K:])
    read_counts = np.zeros(n.x[0].size)
    for tile in range(part.tiles):
        _input(r, half, ops, read_counts, tile, thread, write)
    if cols > part.tiles:
        r.step(INPUT_END, cols - part.tiles)
        write("V", np.s_[:, :, part.tiles :])
    for p in range(T2):
        first = [float(X[p, 0, 0]) for X in (n.U, n.V, n.Z)]
        r.step(PRODUCT, *divmod(p, part.T), p, *first, product=K * C * part.tiles)
        write("Z", np.s_[p])
    for tile in range(part.tiles):
        tile_outputs = part.outputs(tile)
        valid = tile_outputs[tile_outputs >= 0]
        cut = len(tile_outputs) - len(valid)
        counts = {"direct": 9 * len(valid) * K * C} | counted(ops.output, K)
        lane_args = thread(part.number(tile)) if s.K == 1 else {}
        r.step(OUTPUT_HALF, part.number(tile), **lane_args)
        done = half.put(r, half.of_output(tile))
        r.step(OUTPUT_CUT if cut else OUTPUT, part.number(tile), *part.at(tile), cut, **counts, **lane_args)
        r.look("Xd", done)
        outputs = np.arange(K)[:, None] * n.y[0].size + valid
        r.put("y", n.y.ravel()[outputs], outputs)
    return r


def _input(r: Recorder, half: Halves, ops, read_counts: np.ndarray, tile: int, thread, write) -> None:
    part = half.part
    window, number = part.window(tile), part.number(tile)
    inside = window[window >= 0]
    zeros, before = len(window) - len(inside), int((read_counts[inside] > 0).sum())
    lane_args = thread(number) if part.s.C == 1 else {}
    kind = INPUT_HALF_ZEROS if zeros else INPUT_HALF
    r.step(kind, number, *part.at(tile), before, zeros, **lane_args)
    r.look("x", inside)
    done = half.put(r, half.of_input(tile))
    read_counts[inside] += 1
    r.step(INPUT, number, **counted(ops.input, part.C), **lane_args)
    r.look("Xd", done)
    write("V", np.s_[:, :, tile])


# -- captions ------------------------------------------------------------------------------------------
def _templates(part: Part) -> tuple[str, ...]:
    s, m, T, T2 = part.s, part.m, part.T, positions(part.m)
    ops, (filters, tiles) = operations(m), columns(part)
    sizes = {
        "m": m,
        "T": T,
        "T2": T2,
        "C": decimal(f"{s.C:,}"),
        "K": decimal(f"{s.K:,}"),
        "tiles": decimal(f"{tiles_of(s, m):,}"),
    }

    def counts(count) -> dict[str, int]:
        return {"additions": count.additions, "multiplications": count.multiplications}

    read = (
        tr("Launch 2, tile {0}: thread {0} reads {T} × {T} pixels of the [input](input).", **sizes)
        if s.C == 1
        else tr(
            "Launch 2, tile {0}: {C} threads, one per channel, read {T} × {T} pixels of the [input](input).", **sizes
        )
    )
    before = joined(
        tr("The tile gives the output from row {1}, column {2}. {3} of its pixels were read before."), *overlap(part)
    )
    zeros = tr("{4} positions are outside the input: they are loaded as zero.")
    begin = tr("First half of its transform: [Xd](workspace) = Bᵀ d.")
    transform = tr(
        "Launch 2, tile {0}, second half: [V](input) = Xd B. Both halves take {additions} additions and {multiplications} "
        "multiplications. One value is stored in each of the {T2} matrices V.",
        **sizes,
        **counts(ops.input),
    )
    gather = (
        tr("Launch 4, tile {0}: thread {0} gathers {T2} values of [Z](output), one from each matrix.", **sizes)
        if s.K == 1
        else tr(
            "Launch 4, tile {0}: {K} threads, one per filter, gather {T2} values of [Z](output) each, one from each matrix.",
            **sizes,
        )
    )
    inverse = tr(
        "Launch 4, tile {0}, second half: [y](output) = Xd A. Both halves take {additions} additions and {multiplications} "
        "multiplications. They give {m} × {m} values, from row {1}, column {2}.",
        **sizes,
        **counts(ops.output),
    )
    return (
        tr(
            "Launch 1: one thread transforms [filter](filter) {0}, channel {1}. First half: [Xd](workspace) = G g, G times each "
            "column of the filter."
        ),
        tr(
            "Launch 1, second half: [U](filter) = Xd Gᵀ. Both halves take {additions} additions and {multiplications} "
            "multiplications. One value is stored in each of the {T2} matrices U.",
            **sizes,
            **counts(ops.filter),
        ),
        joined(
            trn(
                "Launch 1: {n} thread beyond the last filter stores zeros.",
                "Launch 1: {n} threads beyond the last filter store zeros.",
                filters - part.K,
            ),
            tr("The length of a row of [U](filter) is a multiple of 4, so the product copies 16 bytes at a time."),
        ),
        joined(read, before, begin),
        joined(read, before, zeros, begin),
        transform,
        joined(
            trn(
                "Launch 2: {n} thread beyond the last tile stores zeros.",
                "Launch 2: {n} threads beyond the last tile store zeros.",
                tiles - part.tiles,
            ),
            tr("The length of a row of [V](input) is a multiple of 4."),
        ),
        joined(
            tr(
                "Launch 3, position ({0}, {1}): [Z](output)[{2}] = [U](filter)[{2}]ᵀ · [V](input)[{2}] multiplies a {K} × {C} "
                "matrix by a {C} × {tiles} matrix. The {T2} products are independent of each other.",
                **sizes,
            ),
            tr("The first value is {3} × {4} = {5}.")
            if s.C == 1
            else tr("The first value, a sum over the channels, is {5}."),
        ),
        joined(gather, tr("First half: [Xd](workspace) = Aᵀ Z.")),
        inverse,
        joined(inverse, tr("{3} values are outside the output and are dropped.")),
    )
