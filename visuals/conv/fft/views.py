# fmt: off
"""What the stage shows of the FFT kernels. With cuFFT: padding, its calls, products of frequencies, and the pixels that are kept. In tiles:
rows and columns of a tile in the registers of threads, products of frequencies, and the way back.

Real and imaginary parts are tensors of their own here, `Xr` and `Xi`. The scene shows one tensor of each pair (spectra.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.fft import FREQUENCIES
from kernels.conv.fft_tiled import frequencies
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import round_up_to_4
from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, Say, Shared, Step, View, box, every, step
from visuals.scene.parts import Group

ORDER = mark("explaining order")
ORDER_NOTE = mark("The stage shows one step for each call of cuFFT, whose source is not public. Blocks of the product follow each other. On the GPU they run at the same time. All values are those of the kernels in the emulator; the processor computes what cuFFT does.")
TILED_NOTE = mark("The stage shows one warp after the other. On the GPU the warps of a block run at the same time, and many blocks run at once. All values are those of the kernels in the emulator.")
X, W, Y = Buffer("x", "input", mark("input")), Buffer("w", "filter", mark("filter")), Buffer("y", "output", mark("output"))
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
GLOBAL = Group((("x", "w", "y"),), "global", mark("global memory"))
WRAPS = "(row + (shape.R - 1) * shape.dilation_h >= tiling.rows) + (column + (shape.S - 1) * shape.dilation_w >= tiling.columns)"
MAX_BLOCKS = 8  # of a product, one step each


def pair(name: str, role: str, title: str, of: str, shape: tuple[int, ...], stride: int = 1) -> tuple[Buffer, Buffer]:
    """Returns the real and the imaginary parts of complex numbers. `stride`: floats between both, and between two numbers 2 of it."""
    real, imaginary = (Buffer(f"{name}{part}", role, title, symbol=name, of=of, **every(n * stride, 2 * stride, shape)) for n, part in enumerate("ri"))
    return real, imaginary


PAD_INPUT: Mapping[str, Step] = {
    "pad": step("int element = blockIdx.x",
        "Launch 1: each thread copies one number of the [input](input) to arrays of {tiling.rows} × {tiling.columns} in the [workspace](workspace). Numbers outside the input are zero.",
        to="padded[element] = value", lit="padded[element] = value", merge=True),
}
PAD_FILTER: Mapping[str, Step] = {
    "pad": step("int element = blockIdx.x",
        "Launch 2: the {shape.R * shape.S} taps of the [filter](filter) are copied into the corner of an array of the same size, {tiling.rows} × {tiling.columns}; the rest is zero. Two spectra can only be multiplied if they have the same frequencies.",
        to="padded[element] = value", lit="padded[element] = value", merge=True),
}
MULTIPLY: Mapping[str, Step] = {
    "multiply": step("load_tiles(0, 0)",
        Say("Launch 3: block {block} multiplies {FREQUENCIES} frequencies, [Y](output) = [X](input) · conj([W](filter)). At ({down}, {across}): X = ({Xre}, {Xim}), W = ({Wre}, {Wim}). For X = (a, b) and W = (c, d) the product is (a·c + b·d, b·c − a·d). So Y = ({sum[0][0].x}, {sum[0][0].y}).", "C == 1", "thread == own"),
        Say("Launch 3: block {block} multiplies {FREQUENCIES} frequencies, [Y](output) = Σ [X](input) · conj([W](filter)) over {C} channels. At ({down}, {across}), channel 0: X = ({Xre}, {Xim}), W = ({Wre}, {Wim}). Over all channels, Y = ({sum[0][0].x}, {sum[0][0].y}).", "C > 1", "thread == own"),
        to="frequency] = sum[i][j]", lit="sum[i][j].x += x[i].x * w[j].x", by="block", merge=True),
}
PICK: Mapping[str, Step] = {
    "pick": step("int dense_h = output_pixel",
        Say("Launch 4: row {dense_h // shape.u} of the [output](output) is taken from row {row} of [d](output) and divided by {tiling.rows * tiling.columns}. The windows of {sum(wraps > 0)} of its {active} pixels wrap around the end of the array. These values are wrong, except by chance.", "wraps > 0"),
        Say("Launch 4: row {dense_h // shape.u} of the [output](output) is taken from row {row} of [d](output) and divided by {tiling.rows * tiling.columns}. The stride keeps one pixel of every {shape.v}.", "shape.v > 1"),
        "Launch 4: row {dense_h // shape.u} of the [output](output) is taken from row {row} of [d](output) and divided by {tiling.rows * tiling.columns}.",
        to="output[output_pixel] =", lit="sum /= (float)", by="output_pixel // shape.Q", merge=True,
        cells={"y": mark("It is d[{row}, {column}] / {tiling.rows * tiling.columns}.")}),
}
CALLS = {
    "cufft_input": mark("cuFFT transforms each channel of the padded [input](input): X = FFT(x). The spectrum of real numbers is stored by half, the rest are conjugates. The element at (0, 0) is the sum of all numbers."),
    "cufft_filter": mark("cuFFT transforms each channel of the padded [filter](filter): W = FFT(w). Direct convolution does not need this work."),
    "cufft_output": mark("cuFFT transforms back: [d](output) = FFT⁻¹([Y](output)). It is the output at every position of the filter, as if the stride were 1, times the size of the array."),
}
OTHER_BLOCKS = mark("The other blocks ({others}) multiply the other frequencies in the same way, at the same time. [Y](output) is complete.")


def whole_view(s: ConvShape, cut: np.void) -> View:
    """Returns the view of conv/fft. `cut`: how the input is cut into transforms."""
    rows, columns, tiles = int(cut["rows"]), int(cut["columns"]), int(cut["down"]) * int(cut["across"])
    half = columns // 2 + 1
    tensors = (
        X, W, Y, Buffer("xp", "input", mark("padded input"), symbol="x", of="x_padded", shape=(tiles * s.C, rows, columns)),
        *pair("X", "input", "X = FFT(x)", "x_spectra", (tiles * s.C, rows, half)),
        Buffer("wp", "filter", mark("padded filter"), symbol="w", of="w_padded", shape=(s.C, rows, columns)),
        *pair("W", "filter", "W = FFT(w)", "w_spectra", (s.C, rows, half)),
        *pair("Y", "output", "Y = Σ X · conj(W)" if s.C > 1 else "Y = X · conj(W)", "y_spectra", (tiles, rows, half)),
        Buffer("d", "output", "d = FFT⁻¹(Y)", of="y_padded", shape=(tiles, rows, columns)),
    )
    own = int(rows * half > 1)  # the frequency of the caption, in its block
    at = f"(block_frequency + {own})"
    names = {"down": f"{at} // {half}", "across": f"{at} % {half}"} | {f"{name}{part}": f"{name}{part[0]}[{at}]" for name in "XW" for part in ("re", "im")}
    names |= {"own": str(own), "FREQUENCIES": str(FREQUENCIES), "wraps": WRAPS}
    groups = Group((("x", "w", "y"),)), Group((("xp", "Xr", "Xi", "wp", "Wr", "Wi", "Yr", "Yi", "d"),), "workspace", mark("workspace, in global memory"))
    return View(tensors, groups, (PAD_INPUT, PAD_FILTER, MULTIPLY, PICK), MOVED, names=names, calls=CALLS, others=("", "", OTHER_BLOCKS), order=(ORDER, ORDER_NOTE))


# -- in tiles ------------------------------------------------------------------------------------------------
def transform(launch: str, rows: str, columns: str) -> Mapping[str, Step]:
    """Returns the rows and the columns of tiles that a launch transforms. `launch`: the kinds begin with it."""
    return {
        f"{launch}_rows": step("transform_rows(tile, part)", rows, by="part", merge=True),
        f"{launch}_columns": step("float re[T], im[T]", columns, to="shape.C * row_length);", lit="Transform<T, -1>::run(re, im)", by="part", merge=True),
    }


FILTER: Mapping[str, Step] = {
    "filter_zero": step("values[i] = 0.0f", "", merge=True),
    "filter_load": step("int filter = i / taps", "Launch 1: the {taps} taps of the [filter](filter) are copied into the corner of a tile of {SIZE} × {SIZE} numbers in shared memory, and divided by {SIZE * SIZE}. The rest is zero.", to="filters[source] * (", lit="= filters[source]", merge=True),
    **transform("filter",
        mark("Launch 1, warp {warp}: each lane transforms rows {2 * part} and {2 * part + 1} of a tile in its registers, as one complex row. A real row becomes {SIZE // 2} pairs. The first pair is its frequencies 0 and {SIZE // 2}, both real. Rows without taps are zero and left out."),
        mark("Launch 1, warp {warp}: each lane transforms complex column {part} of a tile in its registers. It stores the conjugates to [U](filter). Column 0 has the two real columns 0 and {SIZE // 2}.")),
}
INPUT: Mapping[str, Step] = {
    "input_corners": step("corners[threadIdx.x] = corner_of", "", merge=True),
    "input_load": step("Corner corner = corners[tile]", "Launch 2: the threads of a block load tiles of {SIZE} × {SIZE} pixels of the [input](input) into shared memory. Pixels outside the input are zero. Neighbouring tiles overlap: each gives {tiling.step_h} × {tiling.step_w} outputs.", to="inside ? input[", lit="inside ? input[", merge=True),
    **transform("input",
        mark("Launch 2, warp {warp}: each lane transforms rows {2 * part} and {2 * part + 1} of a tile in its registers, as one complex row. A real row becomes {SIZE // 2} pairs. The first pair is its frequencies 0 and {SIZE // 2}, both real."),
        mark("Launch 2, warp {warp}: each lane transforms complex column {part} of a tile in its registers and stores it to [V](input). Column 0 has the two real columns 0 and {SIZE // 2}.")),
}
PRODUCT: Mapping[str, Step] = {
    "product": step("copies_u.begin(", "Launch 3: block {block} multiplies one frequency, [Z](output) = [U](filter) · [V](input), complex numbers, and adds the products of all channels. For filter 0 and tile 0 it is ({re[0][0]}, {im[0][0]}).", to="*(float4*)&Z[((size_t)K + k)", lit="re[i][j] += a[0][i] * b[0][j]", by="block", merge=True),
}
OUTPUT: Mapping[str, Step] = {
    "output_corners": step("corners[threadIdx.x] =", "", merge=True),
    "output_columns": step("Z += (size_t)filter * row_length", "Launch 4, warp {warp}: each lane loads a complex column of [Z](output), transforms it back in its registers and stores it to a tile in shared memory.", to="tile_values[i * T + 2 * part + 1] = im[i]", lit="Transform<T, 1>::run(re, im)", by="part", merge=True),
    "output_rows": step("invert_rows(tile_values, part)", "Launch 4, warp {warp}: each lane transforms rows {2 * part} and {2 * part + 1} of a tile back, from pairs to pixels.", by="part", merge=True),
    "output_store": step("Corner corner = corners[tile]", "Launch 4: the threads store pixels of a tile to the [output](output), at most {tiling.step_h} × {tiling.step_w} of its {SIZE} × {SIZE}. In the others the window wraps around the end of the tile.", to="apply_bias_relu(values", lit="output[corner.map", merge=True),
}
OTHER_CHANNELS = mark("The other blocks ({others}) transform the other channels in the same way, at the same time.")
OTHER_BLOCKS_TILED = mark("The other blocks ({others}) multiply the other frequencies in the same way, at the same time. [Z](output) is complete.")


def tiled_view(s: ConvShape, cut: np.void) -> View:
    """Returns the view of conv/fft-tiled: the first tile and channel. In shared memory a tile has an odd pitch."""
    T = int(cut["rows"])
    count, row, filters = frequencies(T), round_up_to_4(int(cut["down"]) * int(cut["across"])), round_up_to_4(s.K)

    def tile(name: str, role: str, title: str, launch: str) -> Shared:
        kinds = tuple(f"{launch}_{kind}" for kind in ("zero", "load", "rows", "columns", "store"))
        return Shared(name, role, title, of="values", dtype="f4", **box(0, T, T, T), during=kinds)

    tensors = (
        X, W, Y, tile("wt", "filter", mark("filter in a tile"), "filter"), tile("xt", "input", mark("tile of the input"), "input"), tile("d", "output", mark("tile of the output"), "output"),
        *pair("U", "filter", "U", "U", (1, count), s.C * filters), *pair("V", "input", "V", "V", (1, count), s.C * row), *pair("Z", "output", "Z = Σ U · V", "Z", (1, count), s.K * row),
    )
    groups = (
        GLOBAL, Group((("wt", "xt", "d"),), "shared", mark("shared memory of a block: its first tile")),
        Group((("Ur", "Ui", "Vr", "Vi", "Zr", "Zi"),), "workspace", mark("workspace: spectra of the first tile")),
    )
    return View(tensors, groups, (FILTER, INPUT, PRODUCT, OUTPUT), MOVED, names={"taps": str(s.R * s.S)}, others=(OTHER_CHANNELS, OTHER_CHANNELS, OTHER_BLOCKS_TILED, ""), order=(ORDER, TILED_NOTE))



def grid(T: int) -> np.ndarray:
    """Returns int64[frequencies]: the cell of each stored frequency of a tile in a spectrum of T rows and T / 2 + 1 columns. In columns 0 and
    T / 2 the others are conjugates of these."""
    half = T // 2
    inner = [(k, column) for column in range(1, half) for k in range(T)]
    outer = [(k, column) for column in (0, half) for k in range(half + 1)]
    return np.array([k * (half + 1) + column for k, column in inner + outer])
