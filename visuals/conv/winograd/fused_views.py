# fmt: off
"""What the stage shows of fused Winograd: thread by thread how the input is transformed into shared memory, the products of the block, and
thread by thread the way back."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv.shape import ConvShape
from kernels.conv.winograd import FUSED_TILES, WARPS, tiles_of
from kernels.conv.winograd_cpu import round_up_to_4
from kernels.i18n import mark
from kernels.model.launch import ceil
from visuals.conv.winograd.views import FILTERS, MOVED, ORDER, PLACE, W, X, Y, counted, transform
from visuals.scene.compiler.view import Buffer, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Group

ORDER_NOTE = mark("The stage shows one thread after the other in the transforms, or the rest of a warp together. On the GPU, all threads of a block run at the same time, and many blocks run at once. All values are those of the kernels in the emulator.")
DETAILED = 2  # tiles of a warp that take steps of their own on the way back
BY_TILE, BY_OUTPUT = f"where(no_tile, -1, where(map_of > 0, warp * {FUSED_TILES}, thread))", f"where(no_output, -1, warp * {FUSED_TILES} + where(tile_of < {DETAILED}, tile_of, {DETAILED}))"
AGAIN = mark("Launch 2, warp {warp}, channel {map_of}: {active} lanes do the same with their tiles of this channel.")
REST = f"tile_of == {DETAILED}"
FUSED: Mapping[str, Step] = {
    "copy": step("copy_async<16>(&tile_u", "Launch 2: the threads of a block begin to copy [U](filter) to shared memory, at most {BC} channels and {BK} filters at a time.", to="block_k + load_k < row_length", together=True, merge=True),
    "load": step("load_tile(input, shape",
        Say("", "no_tile"),
        Say("Launch 2, warp {warp}: {active} lanes load their tiles of channel {map_of} of the [input](input).", "map_of > 0"),
        Say("Launch 2, tile {tile_of}: lane {lane} loads the pixels of the [input](input) under it into [d](input): {x.times}. The other {T * T - x.times} positions are outside the input: they are zero. The tile gives the output from row {p}, column {q}.", "x.times < T * T"),
        "Launch 2, tile {tile_of}: lane {lane} loads {T} × {T} pixels of the [input](input) into [d](input). The tile gives the output from row {p}, column {q}. Neighbouring tiles start {M} pixels apart, so they overlap by 2.",
        by=BY_TILE, merge=True),
    **transform("transform_2d(BT, d, v)", "Bd",
        (Say("", "no_tile"), Say(AGAIN, "map_of > 0"), mark("Launch 2, tile {tile_of}: first half of its transform, [Bᵀ d](input). Each column of d is multiplied by Bᵀ.")),
        (Say("", "no_tile + (map_of > 0)"), mark("Launch 2, tile {tile_of}, second half: [V](input) = (Bᵀ d) B. Both halves take {input_additions} additions and {input_multiplications} multiplications. The lane stores the {T * T} values to shared memory.")),
        BY_TILE, inside="transform(0);"),
    "store": step("tile_v[stage][position][warp]", "", by=BY_TILE, merge=True),
    "multiply": step("const float* u = &tile_u",
        "Launch 2: each warp multiplies {T * T // WARPS} of {T * T} positions. [Z](output) = [U](filter) · [V](input), position by position, and a sum over the channels. A tile takes {T * T} multiplications for each filter and channel; direct convolution takes {9 * M * M}.",
        to="sum[e][i][j] +=", together=True, merge=True),
    "exchange": step("*(float4*)&tile_z",
        Say("Launch 2: the sums [Z](output) go through shared memory to the threads that transform them back, one tile of a filter each.", "first_i == 0"), "",
        to="*(float4*)&sum[e][first_i", together=True, merge=True),
    "gather": step("z[position / T][position % T] =",
        Say("", "no_output"), Say("Launch 2, filter {filter_back}, tiles from {tile_of} on: {active} lanes of warp {warp} load their sums [z](output).", REST),
        "Launch 2, tile {tile_of}, filter {filter_back}: lane {lane} of warp {warp} loads {T * T} sums, one of each position, into [z](output).",
        by=BY_OUTPUT, merge=True),
    **{f"{kind}_back": of for kind, of in transform("transform_2d(AT, z, out)", "AZ",
        (Say("", "no_output"), Say(mark("Launch 2, filter {filter_back}, tiles from {tile_of} on: {active} lanes of warp {warp} do the same. First half, [Aᵀ Z](output)."), REST), mark("Launch 2, tile {tile_of}, filter {filter_back}: first half, [Aᵀ Z](output).")),
        (Say("", "no_output"), Say(mark("Launch 2, filter {filter_back}, tiles from {tile_of} on: {active} lanes of warp {warp} do the same. Second half, (Aᵀ Z) A."), REST), mark("Launch 2, tile {tile_of}, filter {filter_back}, second half: (Aᵀ Z) A. Both halves take {output_additions} additions and {output_multiplications} multiplications.")),
        BY_OUTPUT).items()},
    "output": step("store_tile(output, shape",
        Say("", "no_output"), Say("Launch 2, filter {filter_back}, tiles from {tile_of} on: {active} lanes of warp {warp} store their values of [y](output).", REST),
        Say("Launch 2, tile {tile_of}, filter {filter_back}: the lane stores the {y.times} values of [y](output) from row {p}, column {q} on. The other {M * M - y.times} are outside the output and are dropped.", "y.times < M * M"),
        "Launch 2, tile {tile_of}, filter {filter_back}: the lane stores {M} × {M} values of [y](output), from row {p}, column {q} on.",
        by=BY_OUTPUT, merge=True),
}


def fused_view(s: ConvShape, m: int, tiles: Mapping[str, int]) -> View:
    """Returns the view at a shape with at most 32 tiles. V and Z have a row for each channel or filter of a position."""
    T, count, bk, bc, warps = m + 2, tiles_of(s, m), tiles["BK"], tiles["BC"], WARPS[m]
    down = bk // 8  # lanes of a warp along the filters; as many sums of a lane along the tiles
    position, filter_ = f"warp * {T * T // warps} + cell // {8 * down}", f"lane_k + cell // {down} % 4 + cell // {4 * down} % 2 * {4 * down}"
    sums = f"where({filter_} < {s.K}, ({position}) * {s.K} + {filter_}, -1)", f"lane_tile + cell % 4 + cell % {down} // 4 * {128 // down}"
    names = PLACE | {
        "tile_of": f"thread % {FUSED_TILES}", "map_of": f"thread // {FUSED_TILES}", "across": str(ceil(s.Q, m)),
        "filter_back": f"z_row // 2 * 4 + z_row % 2 + first_i % 4 + first_i // 4 * {4 * down}",
        "no_tile": f"(thread % {FUSED_TILES} >= {count}) + (thread // {FUSED_TILES} >= {s.C})",
        "no_output": f"(thread % {FUSED_TILES} >= {count}) + (filter_back >= {s.K})",
    }
    tensors = (
        X, W, Y, Buffer("U", "filter", "U = G g Gᵀ", shape=(T * T * s.C, round_up_to_4(s.K))),
        Shared("V", "input", "V = Bᵀ d B", of="shared", dtype="f4", **box(2 * T * T * bc * bk, s.C, count, FUSED_TILES, T * T, bc * FUSED_TILES), during=("store", "multiply")),
        PerThread("Z", "output", "Z = Σ U · V", of="sum", place=sums, part=(range(T * T * s.K), range(count)), during=("multiply",)),
        square("d", "input", "d", "d", (T, T), "no_tile + thread // 32", "load", "half"),
        square("Bd", "input", "Bᵀ d", "Xd", (T, T), "no_tile + thread // 32", "half", "whole"),
        square("z", "output", "z", "z", (T, T), f"no_output + (tile_of > {DETAILED})", "gather", "half_back"),
        square("AZ", "output", "Aᵀ Z", "Xd", (m, T), f"no_output + (tile_of > {DETAILED})", "half_back", "whole_back"),
    )
    groups = (
        Group((("x", "w", "y"),), "global", mark("global memory")),
        Group((("U",),), "workspace", mark("workspace")),
        Group((("V",),), "shared", mark("shared memory of the block")),
        Group((("Z",), ("d", "Bd"), ("z", "AZ")), "registers", mark("registers: the sums of the block, and what one thread holds")),
    )
    return View(tensors, groups, (FILTERS, FUSED), MOVED, names=names | counted(m), group=1, order=(ORDER, ORDER_NOTE))


def square(name: str, role: str, title: str, of: str, extents: tuple[int, int], none: str, *during: str) -> PerThread:
    """Returns an array of the thread whose step it is. `none`: of which threads it is not shown."""
    rows, columns = map(range, extents)
    place = f"where({none}, -1, cell // {len(columns)})", f"cell % {len(columns)}"
    return PerThread(name, role, title, of=of, place=place, part=(rows, columns), during=during)
