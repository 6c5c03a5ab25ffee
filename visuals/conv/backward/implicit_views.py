# fmt: off
"""What the stage shows of the implicit products for convolution's gradients: block after block, with the tiles in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.conv.backward.dinput import phase_steps
from kernels.conv.backward.dweight import terms_of_part
from kernels.conv.implicit import PIECE, threads
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from visuals.conv.backward.views import DW, DY, X, of_input
from visuals.scene.compiler.view import BLOCK, Buffer, Bytes, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Group

NOTE = mark("The steps show one block after another. On the GPU the blocks run at the same time. Tiles are copied while earlier ones are multiplied. All values are those of the kernel in the emulator.")
BLOCKS: dict[str, Any] = {"group": BLOCK, "order": (mark("block by block"), NOTE)}
SHARED, REGISTERS = mark("shared memory of the block"), mark("registers of its threads")


def sums(tiles: Tiles, rows: int, columns: int, first: tuple[str, str], *during: str) -> PerThread:
    """Returns the sums of a block as a matrix, laid out as ThreadTile of implicit.cuh. `first`: row and column of the block."""
    TM, TN = tiles["TM"], tiles["TN"]
    across = 8 if TN < TM else 4
    WM, WN = 32 // across * TM, across * TN
    warps = tiles["BN"] // WN
    row = f"{first[0]} + warp // {warps} * {WM} + (lane // {2 * across} * 2 + lane % 2) * 4 + cell // {TN} // 4 * {4 * (WM // TM)} + cell // {TN} % 4"
    column = f"{first[1]} + warp % {warps} * {WN} + lane // 2 % {across} * 4 + cell % {TN} // 4 * {4 * (WN // TN)} + cell % {TN} % 4"
    return PerThread("sums", "output", mark("sums of the block"), of="sum", during=during, place=(row, column), part=(range(rows), range(columns)))


def stages(tiles: Tiles, pitches: tuple[int, int], shown: tuple[int, int], looks: tuple[tuple[str, str], tuple[str, str]], terms: int) -> tuple[Shared, ...]:
    """Returns the two tiles of each stage that is used, with a row for each of at most `terms` terms. `pitches`: from one row to the next.
    `shown`: columns. `looks`: roles and titles."""
    BK, (a, b) = tiles["BK"], pitches
    found = []
    for stage in range(min(ceil(terms, BK), tiles["STAGES"])):
        first = stage * BK * (a + b)
        for name, start, pitch, columns, (role, title) in (("A", first, a, shown[0], looks[0]), ("B", first + BK * a, b, shown[1], looks[1])):
            found.append(Shared(f"{name}{stage}", role, title, symbol=name, of="stages", dtype="f4", **box(start, min(BK, terms), columns, pitch)))
    return tuple(found)


def in_shared(tiles: tuple[Shared, ...]) -> Group:
    return Group(tuple((a.name, b.name) for a, b in zip(tiles[::2], tiles[1::2], strict=True)), "shared", SHARED)


# -- the gradient of the filters, cut into parts -------------------------------------------------------------
INSIDE = "correlate(sum,"
PART = {
    "start": step("int first_term = part * terms",
        Say("There is one part: the block adds terms {first_term} to {end_term - 1}. A term is one output position of one image.", "parts == 1"),
        Say("Part {part} of {parts}, counted from 0: the block adds terms {first_term} to {end_term - 1}. A term is one output position of one image.", "block == 0"),
        Say("Part {part} of {parts}: another block adds terms {first_term} to {end_term - 1} and adds its sums to the same addresses. Additions to one address collide.", "sum(dw.times) > 0"),
        mark("Part {part} of {parts}: another block adds terms {first_term} to {end_term - 1} in the same way."), to="int end_term ="),
    "copy": step("int k = k_tile + load_col + l",
        Say("", "sum(dy.times) == 0"),
        Say("The threads begin to copy terms from {k_tile} on into stage {stage}: {sum(dy.times)} [gradients](workspace) and the [pixels](input) under all taps. The padding and what is outside become 0."), inside=INSIDE, each="k_tile"),
    "multiply": step("const float* tile_a = stage + thread.row",
        Say("All threads wait until the tiles from term {k_tile} on are complete. They add the products of {BK} terms to their [sums](output)."), to="sum[i][j] += a[i] * b[j]", inside=INSIDE, merge=True),
}
ADD_PARTS = {
    "add": step("sum += parts", "The second kernel adds part {part}. The order is the same in every run. Thread {thread} has the [sum](output) {sum}."),
    "done": step("result[element] = sum", "Each thread stores the [sum](output) of {part_count} parts: the gradient of one tap."),
}


def stored(count: int, width: int, *, atomics: bool) -> Mapping[str, Step]:
    if atomics:
        return {"store": step("for_each_sum<1>", "The block adds its {sum(dw.times)} sums to the gradient by atomics.", merge=True)}
    target = mark("The block stores its {sum(dw.times)} sums directly as the gradient.") if count == 1 else mark("The block stores its {sum(parts_of.times)} sums in the array of part {part}.")
    return {"store": step(f"for_each_sum<{width}>", target, merge=True)}


def parts(s: ConvShape, tiles: Tiles, *, atomics: bool = False) -> View:
    terms = terms_of_part(s, tiles)
    count, shown = ceil(s.N * s.PQ, terms), (min(s.K, tiles["BM"]), min(s.CRS, tiles["BN"]))
    across, down = ceil(s.CRS, tiles["BN"]), ceil(s.K, tiles["BM"])
    corner = f"block // {across} % {down} * {tiles['BM']}", f"block % {across} * {tiles['BN']}"
    shared = stages(tiles, (tiles["BM"] + PIECE, tiles["BN"] + PIECE), shown, (("workspace", mark("gradients")), ("input", mark("columns"))), min(terms, s.N * s.PQ))
    several = count > 1 and not atomics
    extra = (
        Buffer("parts_of", "workspace", mark("parts (workspace)"), mark("one matrix per part"), "parts", of="parts", shape=(count, s.K, s.CRS), plane=mark("part")),
        PerThread("total", "output", mark("sums of all parts"), of="sum", during=("add",), place=(f"element // {s.CRS}", f"element % {s.CRS}"), part=(range(s.K), range(s.CRS))),
    ) if several else ()
    groups = (Group((("parts_of",),), "workspace"), Group((("total",),), "registers", mark("registers of the second kernel"))) if several else ()
    zero = ({"zero": step("y[i] = 0.0f", "The [gradient of the filters](output) is set to 0.", together=True)},) if atomics else ()
    of_block = {**PART, **stored(count, 4 if s.CRS % 4 == 0 and not atomics else 1, atomics=atomics)}
    counted = (Bytes(mark("atomic additions"), "dw", "ld", per="4"), Bytes(mark("of these, to a tap that has one already"), "dw", "ld", per="4", again=True)) if atomics else ()
    return View(
        (X, DY, DW, *shared, sums(tiles, s.K, s.CRS, corner, "start", "multiply"), *extra),
        (Group((("x", "dy", "dw"),), "global"), in_shared(shared), Group((("sums",),), "registers", REGISTERS), *groups),
        (*zero, of_block, *((ADD_PARTS,) if several else ())),
        (Bytes(mark("gradients copied"), "dy", "ld", per="4"), *counted), detailed=threads(tiles), **BLOCKS,
    )


# -- the gradient of the input, phase by phase -----------------------------------------------------------------
def phases(s: ConvShape, tiles: Tiles, transposed: bool) -> View:
    dx, dy, w = of_input(transposed)

    def of(gradient: str, output: str) -> str:
        return output if transposed else gradient

    steps_of = phase_steps(s)
    inner, columns = s.K * ceil(s.R, int(steps_of["tap_step_h"])) * ceil(s.S, int(steps_of["tap_step_w"])), s.N * ceil(s.H, s.u) * ceil(s.W, s.v)
    shown = min(s.C, tiles["BM"]), min(columns, tiles["BN"])
    shared = stages(tiles, (tiles["BM"] + PIECE, tiles["BN"]), shown, (("filter", mark("filters")), ("input", mark("data matrix"))), inner)
    copied = (
        Say("", "sum(w.times) == 0"),
        Say(of(mark("The threads begin to copy terms from {k_tile} on into stage {stage}: {sum(w.times)} [taps](filter), and for each pixel of the phase the [gradients](input) under them. Positions outside of the output become 0."), mark("The threads begin to copy terms from {k_tile} on into stage {stage}: {sum(w.times)} [taps](filter), and for each output of the phase the [pixels](input) under them. Positions outside of the input become 0."))),
    )
    store = of(mark("The [sums](output) are stored to every row {vertical.first} + i·{shape.u} and column {horizontal.first} + j·{shape.v} of the gradient."), mark("The [sums](output) are stored to every row {vertical.first} + i·{shape.u} and column {horizontal.first} + j·{shape.v} of the output."))
    steps = {
        "start": step("Magic by_taps = find_magic",
            Say(of(mark("Phase of pixel ({vertical.first}, {horizontal.first}): {phase_area} pixels of each channel. No tap reads them, so there is nothing to multiply."), mark("Phase of output ({vertical.first}, {horizontal.first}): {phase_area} outputs of each map. No tap reaches them: they are 0.")), "taps == 0"),
            Say(of(mark("The stride is 1, so all {phase_area} pixels of a channel are one phase. Each is read through all {taps} taps."), mark("The stride is 1, so all {phase_area} outputs of a map are one phase. Each is reached through all {taps} taps.")), "shape.u == 1 and shape.v == 1"),
            Say(of(mark("Phase of pixel ({vertical.first}, {horizontal.first}): {phase_area} pixels of each channel. Taps that read them: {taps} of {shape.R * shape.S}."), mark("Phase of output ({vertical.first}, {horizontal.first}): {phase_area} outputs of each map. Taps that reach them: {taps} of {shape.R * shape.S}.")))),
        "ahead": step("int k = k_tile + load_a_col + l", *copied, inside="load_tiles(i, i * BK)", each="k_tile"),
        "copy": step("int k = k_tile + load_a_col + l", *copied, inside="load_tiles(fill_stage", each="k_tile"),
        "multiply": step("const float* tile_a = stage + thread.row", "All threads wait until the tiles from term {k_tile} on are complete. They add the products of these terms to their [sums](output). No factor is a hole.", to="sum[i][j] +=", inside="multiply(sum, stages + read_stage", merge=True),
        "store": step(f"store<{4 if s.stride == (1, 1) and s.H * s.W % 4 == 0 else 1}>(input_gradient", store, merge=True),
    }
    return View(
        (dx, dy, w, *shared, sums(tiles, s.C, columns, ("block_row", "block_col"), "multiply", "store")),
        (Group((("dx", "dy", "w"),), "global"), in_shared(shared), Group((("sums",),), "registers", REGISTERS)),
        (steps,), (Bytes(of(mark("gradients copied"), mark("pixels copied")), "dy", "ld", per="4"),), **BLOCKS,
    )
