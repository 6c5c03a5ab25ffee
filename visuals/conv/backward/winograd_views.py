# fmt: off
"""What the stage shows of Winograd's kernels for both gradients: transforms tile by tile, the product of one position, transforms back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.conv.backward.dinput_winograd import convolution
from kernels.conv.backward.dweight_winograd import terms_of_part
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import R
from kernels.i18n import mark
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from visuals.conv.backward.views import DW, DY, X, of_input
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, View, step
from visuals.scene.parts import Group

NOTE = mark("One tile after another. Of the products the stage shows the block of the first position. On the GPU each of the four launches runs all its threads at once. All values are those of the kernel in the emulator.")
ORDER: dict[str, Any] = {"order": (mark("tile by tile"), NOTE)}
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
OTHERS = mark("The other blocks ({others}) multiply the matrices of the other positions in the same way.")
WORKSPACES, OF_THREAD = mark("workspaces: a matrix for each position, one below the other"), mark("registers of thread 0")
AGAIN = mark("The other tiles up to tile {tile} are transformed in the same way.")
TILE = {
    "tile": step("load_tile(input",
        Say("Beyond the last tile threads store zeros: {active}. So a row of [V](input) has a multiple of 4 numbers.", "tile >= tiles.count"),
        Say("Tile {tile} has a thread for each plane: {active}. A thread loads {V_side} × {V_side} values, zeros where it is outside. It stores [V](input) = Bᵀ d B: {V.times} numbers, one in each of {V.times} matrices. The first is {V_first}."),
        to="v[position / T][position % T]", merge=True, apart="tile", fold=AGAIN),
}
NAMES = {"V_side": "M + 2", "V_first": "v[0]", "U_first": "u[0]"}


def matrices(name: str, role: str, title: str, positions: int, rows: int, columns: int) -> Buffer:
    return Buffer(name, role, title, shape=(positions * rows, columns))


def square(name: str, role: str, title: str, symbol: str, side: int, during: str) -> PerThread:
    """Returns the square d of thread 0, which has another size in each launch."""
    place = f"cell // {side} + {side} * thread", f"cell % {side}"
    return PerThread(name, role, title, symbol=symbol, of="d", during=(during,), place=place, part=(range(side), range(side)))


def product(text: str, last: str) -> Mapping[str, Any]:
    """Returns the steps of the product of the first position. `last`: the line of its store."""
    return {
        "copy": step(("load_tiles(i, begin + i * BK)", 0), "Position 0 of {T2} has a block of its own. Its threads begin to copy the matrices of [U](filter) and [V](input) into shared memory.", merge=True),
        "multiply": step("__align__(16) float a[8], b[8]", text, to="sum[i][j] +=", merge=True),
        "store": step(last, "Each thread stores its sums that belong to [Z](output). The first is {Z}.", merge=True),
    }


def sides(s: ConvShape, tiles: Tiles) -> tuple[int, int]:
    """Returns the positions of a tile, and the tiles of all images, rounded up to 4."""
    return (tiles["M"] + R - 1) ** 2, 4 * ceil(s.N * ceil(s.P, tiles["M"]) * ceil(s.Q, tiles["M"]), 4)


def parts_of(s: ConvShape, tiles: Tiles) -> int:
    """Returns in how many parts the sum over the tiles is cut."""
    return ceil(sides(s, tiles)[1], terms_of_part(s, tiles))


def dinput(s: ConvShape, tiles: Tiles) -> View:
    dx, dy, w = of_input(transposed=False)
    positions, row = sides(convolution(s), tiles)
    turned = mark("The forward pass turned its taps. So each thread copies them to [g](filter) as they are.") if s.flip else mark("Each thread copies its 9 taps to [g](filter) turned by 180°: the last one becomes the first. Thread {thread} begins with {g[0]}.")
    filters = {
        "load": step("int c = i / (MAPS * 9)", "The threads load the [taps](filter) of all filters and channels into shared memory. Then they wait at the barrier.", to="taps[c][tap] = inside", merge=True),
        "turn": step("g[i / 3][i % 3]", turned, merge=True),
        "u": step("transform_2d(G, g, u)", "Each thread computes U = G g Gᵀ. A thread with a filter stores {U.times} numbers of [U](filter), one in each of {U.times} matrices. Threads without a filter store zeros, so that a row has a multiple of 4 numbers.", to="u[position / T][position % T]", merge=True),
    }
    result = {
        "result": step("z[position / T][position % T] =",
            Say("Tile {tile} has a thread for each channel: {active}. A thread loads {Z.times} sums of [Z](output) and computes Aᵀ Z A. It stores {dx.times} pixels of [dx](output)."), to="store_tile(output", merge=True, apart="tile", fold=AGAIN),
    }
    multiply = product(mark("All threads wait until the tiles are complete. Each element of [Z](output) = [U](filter)ᵀ [V](input) is a sum over {shape.C} filters."), "*(float4*)&Z[(size_t)k * v_length + tile]")
    return View(
        (
            dy, w, dx, matrices("U", "filter", mark("U = G g Gᵀ"), positions, s.K, 4 * ceil(s.C, 4)),
            matrices("V", "input", mark("V = Bᵀ d B"), positions, s.K, row), matrices("Z", "output", mark("Z = Uᵀ V"), positions, s.C, row),
            PerThread("own_g", "filter", mark("g, turned"), symbol="g", of="g", threads=range(1)), PerThread("own_d", "input", mark("d, of filter 0"), symbol="d", of="d", threads=range(1)),
        ),
        (Group((("dy", "w", "dx"),), "global", mark("global memory")), Group((("own_g", "own_d"),), "registers", OF_THREAD), Group((("U", "V", "Z"),), "workspace", WORKSPACES)),
        (filters, TILE, multiply, result), MOVED, names=NAMES | {"T2": str(positions)}, others=("", "", OTHERS), **ORDER,
    )


def dweight(s: ConvShape, tiles: Tiles) -> View:
    (positions, row), parts = sides(s, tiles), parts_of(s, tiles)
    gradient = {
        "dy": step("bool inside = tile < tiles.count",
            Say("Beyond the last tile threads store zeros: {active}. So a row of [U](workspace) has a multiple of 4 numbers.", "tile >= tiles.count"),
            Say("Tile {tile} has a thread for each filter: {active}. A thread loads {dy.times} values of [dy](workspace). The rest of its tile is outside and zero. It stores [U](workspace) = A dY Aᵀ: {U.times} numbers. The forward pass ended with Aᵀ Z A, and its gradient goes back through A."),
            to="u[position / T][position % T]", merge=True, apart="tile", fold=AGAIN),
    }
    taps = {
        "taps": step("float z[T][T] = {}",
            Say("Filter {filter // shape.C}, map {filter % shape.C}: one thread adds the {parts} parts of {Z.times // parts} sums [Z](output). Then Gᵀ Z G are the {dw.times} [taps](output).", "parts > 1"),
            Say("Filter {filter // shape.C}, map {filter % shape.C}: one thread loads {Z.times} sums [Z](output) and computes Gᵀ Z G: the {dw.times} [taps](output)."),
            to="taps[tap / 3][tap % 3]", merge=True, apart="filter"),
    }
    multiply = product(mark("All threads wait until the tiles are complete. Each element of [Z](output) = [U](workspace) [V](input)ᵀ is a sum over all tiles of all images."), "Z[(size_t)k * shape.C + c] = sum[i][j]")
    return View(
        (
            X, DY, DW, matrices("U", "workspace", mark("U = A dY Aᵀ"), positions, s.K, row), matrices("V", "input", mark("V = Bᵀ d B"), positions, s.C, row),
            matrices("Z", "output", mark("Z = U Vᵀ"), parts * positions, s.K, s.C),
            square("own_dy", "workspace", mark("dY, of filter 0"), "dY", tiles["M"], "dy"), square("own_d", "input", mark("d, of map 0"), "d", tiles["M"] + R - 1, "tile"),
        ),
        (Group((("x", "dy", "dw"),), "global", mark("global memory")), Group((("own_dy", "own_d"),), "registers", OF_THREAD), Group((("U", "V", "Z"),), "workspace", WORKSPACES)),
        (gradient, TILE, multiply, taps), MOVED, names=NAMES | {"T2": str(positions)}, others=("", "", OTHERS), **ORDER,
    )
