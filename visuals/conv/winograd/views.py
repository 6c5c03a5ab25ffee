# fmt: off
"""What the stage shows of Winograd in steps: thread by thread how filters and input are transformed, position by position their products,
and thread by thread the way back. The halves of a transform, X d and then X d Xᵀ, are a step each."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv import winograd_matrices
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import tiles_of
from kernels.conv.winograd_cpu import R, round_up_to_4
from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Step, View, in_turn, step
from visuals.scene.parts import Group

ORDER = mark("explaining order")
ORDER_NOTE = mark("The stage shows one thread after the other in the transforms, and one position after the other in the products. On the GPU, each of the four launches runs all its threads at once. All positions are multiplied at the same time. All values are those of the kernels in the emulator.")
X, W, Y = Buffer("x", "input", mark("input")), Buffer("w", "filter", mark("filters")), Buffer("y", "output", mark("output"))
FIRST_HALF, SECOND_HALF = "term = X[i][k] * d[k][j]", "term = Xd[i][k] * X[j][k]"
HALVES = tuple(PerThread(name, role, title, mark("half done"), title, of="Xd", **in_turn(1)) for name, role, title in (("Gg", "filter", "G g"), ("Bd", "input", "Bᵀ d"), ("AZ", "output", "Aᵀ Z")))
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
PLACE = {  # of a thread: filter and channel in the first launch, tile and channel or filter in the others
    "row": "(tiles + 3) // 4 * 4", "tile_of": "number % row", "map_of": "number // row",
    "filter_of": "thread % 32", "channel_of": "thread // 32 + block // ((shape.K + 34) // 32) * 8",
    "across": "(shape.Q + M - 1) // M", "tiles": "shape.N * ((shape.P + M - 1) // M) * across", "T": "M + 2",
    "p": "tile_of // across * M", "q": "tile_of % across * M",
}
OTHER_POSITIONS = mark("The other positions ({others}) are multiplied in the same way, at the same time. [Z](output) is complete.")
NO_FILTER, NO_TILE = "(filter_of >= shape.K) + (channel_of >= shape.C)", "(tile_of >= tiles) + (map_of >= shape.C)"
NO_OUTPUT = "(tile_of >= tiles) + (map_of >= shape.K)"


def transform(call: str, name: str, first: tuple[Say | str, ...], second: tuple[Say | str, ...], by: str, inside: str = "") -> Mapping[str, Step]:
    """Returns the two halves of a transform that a line calls. `name`: of the tensor of the first. `inside`: the line of the kernel, if the
    call is in a function."""
    return {
        "half": step(FIRST_HALF, *first, to="Xd[i][j] = first", inside=inside or call, lit=call, shows={name: "Xd"}, by=by, merge=True),
        "whole": step(SECOND_HALF, *second, to="Y[i][j] = first", inside=inside or call, lit=call, by=by, merge=True),
    }


FILTERS: Mapping[str, Step] = {
    "taps": step("taps[k][tap] = inside", "Launch 1: the block loads the [filters](filter) into shared memory, {sum(w.times)} weights. Each thread transforms one channel of one filter.", together=True, merge=True),
    **transform("transform_2d(G, g, u)", "Gg",
        (Say("", NO_FILTER), mark("Launch 1: thread {thread} transforms [filter](filter) {filter_of}, channel {channel_of}. First half: [G g](filter), the product of G and each column of the filter.")),
        (Say("", NO_FILTER), mark("Launch 1, second half: [U](filter) = (G g) Gᵀ. Both halves take {filter_additions} additions and {filter_multiplications} multiplications.")),
        f"where({NO_FILTER}, -1, thread)"),
    "store": step("U[(size_t)position",
        "Launch 1: each of {active} threads stores one value in each of the {T * T} matrices [U](filter). Threads beyond the last filter store zeros: the length of a row is a multiple of 4, so the product copies 16 bytes at a time.",
        together=True, merge=True),
}
INPUT: Mapping[str, Step] = {
    "load": step("load_tile(input, shape",
        Say("", NO_TILE),
        Say("Launch 2, tile {tile_of}: thread {number} reads the pixels of channel {map_of} of the [input](input) under it: {x.times}. The other {T * T - x.times} positions are outside the input: they are zero. The tile gives the output from row {p}, column {q}.", "x.times < T * T"),
        "Launch 2, tile {tile_of}: thread {number} reads {T} × {T} pixels of channel {map_of} of the [input](input). The tile gives the output from row {p}, column {q}. Neighbouring tiles start {M} pixels apart, so they overlap by 2.",
        by=f"where({NO_TILE}, -1, number)", merge=True),
    **transform("transform_2d(BT, d, v)", "Bd",
        (Say("", NO_TILE), mark("Launch 2, tile {tile_of}, channel {map_of}: first half of its transform, [Bᵀ d](input).")),
        (Say("", NO_TILE), mark("Launch 2, tile {tile_of}, channel {map_of}, second half: [V](input) = (Bᵀ d) B. Both halves take {input_additions} additions and {input_multiplications} multiplications.")),
        f"where({NO_TILE}, -1, number)"),
    "store": step("V[(size_t)position", "Launch 2: each of {active} threads stores one value in each of the {T * T} matrices [V](input). Threads beyond the last tile store zeros.", together=True, merge=True),
}
PRODUCT: Mapping[str, Step] = {
    "product": step("copy_async<16>(&tile_u[", "Launch 3, position ({block // T}, {block % T}): [Z](output)[{block}] = [U](filter)[{block}]ᵀ · [V](input)[{block}] multiplies a {shape.K} × {shape.C} matrix by a {shape.C} × {tiles} matrix. The {T * T} products are independent of each other.",
        to="*(float4*)&Z[(size_t)k * v_length", by="block", merge=True),
}
OUTPUT: Mapping[str, Step] = {
    "gather": step("z[position / T][position % T] =",
        Say("", NO_OUTPUT), "Launch 4, tile {tile_of}: thread {number} gathers {T * T} values of [Z](output) for filter {map_of}, one from each matrix.",
        by=f"where({NO_OUTPUT}, -1, number)", merge=True),
    **transform("transform_2d(AT, z, out)", "AZ",
        (Say("", NO_OUTPUT), mark("Launch 4, tile {tile_of}, filter {map_of}: first half, [Aᵀ Z](output).")),
        (Say("", NO_OUTPUT), mark("Launch 4, tile {tile_of}, filter {map_of}, second half: (Aᵀ Z) A. Both halves take {output_additions} additions and {output_multiplications} multiplications.")),
        f"where({NO_OUTPUT}, -1, number)"),
    "store": step("store_tile(output, shape",
        Say("Launch 4, tile {tile_of}: thread {number} stores the {y.times} values of [y](output) from row {p}, column {q} on. The other {M * M - y.times} are outside the output and are dropped.", "y.times < M * M"),
        "Launch 4, tile {tile_of}: thread {number} stores {M} × {M} values of [y](output), from row {p}, column {q} on.",
        by="number", merge=True),
}


def counted(m: int) -> dict[str, str]:
    """Returns the operations of both halves of each transform, as names of a view."""
    t = winograd_matrices.derive(m, R)
    counts = {name: winograd_matrices.operations_2d(matrix) for name, matrix in (("filter", t.G), ("input", t.BT), ("output", t.AT))}
    return {f"{name}_{what}": str(getattr(count, what)) for name, count in counts.items() for what in ("additions", "multiplications")}


def view(s: ConvShape, tiles: Mapping[str, int]) -> View:
    """Returns the view at a shape and tile sizes. The matrices of the positions are one below the other."""
    m = tiles["M"]
    T2, row = (m + 2) ** 2, round_up_to_4(tiles_of(s, m))
    tensors = (
        X, W, Y,
        Buffer("U", "filter", "U = G g Gᵀ", shape=(T2 * s.C, round_up_to_4(s.K))), Buffer("V", "input", "V = Bᵀ d B", shape=(T2 * s.C, row)),
        Buffer("Z", "output", "Z = Uᵀ V", shape=(T2 * s.K, row)), *HALVES,
    )
    groups = (
        Group((("x", "w", "y"),), "global", mark("global memory")),
        Group((("U", "V", "Z"),), "workspace", mark("workspaces: a matrix for each position, one below the other")),
        Group((("Gg", "Bd", "AZ"),), "registers", mark("registers of a thread")),
    )
    names = PLACE | {"number": f"block * {tiles['BLOCK']} + thread"} | counted(m)
    return View(tensors, groups, (FILTERS, INPUT, PRODUCT, OUTPUT), MOVED, names=names, group=1, others=("", "", OTHER_POSITIONS), order=(ORDER, ORDER_NOTE))
