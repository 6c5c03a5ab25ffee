# fmt: off
"""What the stage shows of the kernels for convolution's gradients. Those of a transposed convolution are the kernels for the gradient of
the input, with other names: its input is the gradient of the output, and its output is the gradient of the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shared, View, in_turn, step
from visuals.scene.parts import Group

NOTE = mark("The steps show one thread after another. The first thread takes one step per line. On the GPU all threads of a block run at the same time. All values are those of the kernel in the emulator.")
ATOMIC_NOTE = mark("One tap of all windows after another. On the GPU the L2 cache does the additions to a pixel one by one. Their order changes from run to run, and with it the last digits. All values are those of the kernel in the emulator.")
BY_THREAD = mark("thread by thread")
THREADS: dict[str, Any] = {"group": 1, "alone": 1024, "detailed": 1, "order": (BY_THREAD, NOTE)}
SUM = PerThread("sum", "output", mark("sum"), **in_turn(1))
OF_THREAD = mark("registers of one thread")


def of_input(transposed: bool) -> tuple[Buffer, Buffer, Buffer]:
    """Returns the tensors of the gradient of the input, or of a transposed convolution: result, what is spread, filters."""
    titles = (mark("output"), mark("input")) if transposed else (mark("gradient of the input"), mark("gradient of the output"))
    symbols = ("y", "x") if transposed else ("dx", "dy")
    return (
        Buffer("dx", "output", titles[0], symbol=symbols[0], of=symbols[0], plane=mark("channel")),
        Buffer("dy", "input", titles[1], symbol=symbols[1], of=symbols[1], plane=mark("filter")),
        Buffer("w", "filter", mark("filters"), plane=mark("filter and channel")),
    )


# -- the gradient of the input, direct ---------------------------------------------------------------------
OF_PIXEL = {
    "col": "input_pixel % shape.W", "row_distance": "h + shape.pad_h - r * shape.dilation_h", "column_distance": "col + shape.pad_w - s * shape.dilation_w",
    "taps": "shape.R * shape.S", "fed": "dy.times // shape.K",
}
ROW = mark("r = {r}: {h} + {shape.pad_h} − {r}·{shape.dilation_h} = {row_distance}.")
COLUMN = mark("r = {r}, s = {s}: {col} + {shape.pad_w} − {s}·{shape.dilation_w} = {column_distance}.")


def dinput_direct(transposed: bool = False) -> View:
    dx, dy, w = of_input(transposed)

    def of(gradient: str, output: str) -> str:
        return output if transposed else gradient

    return View(
        (dx, dy, w, PerThread("tap_sum", "output", mark("sum of one tap"), **in_turn(1)), SUM),
        (Group((("dx", "dy", "w"),), "global"), Group((("tap_sum", "sum"),), "registers", OF_THREAD)),
        (
            {
                "start": step("float sum = 0.0f",
                    Say(of(mark("Thread {input_pixel} has channel {c}, pixel ({h}, {col}). It sets its [sum](output) to 0 and tries all {taps} taps."), mark("Thread {input_pixel} has channel {c}, output ({h}, {col}). It sets its [sum](output) to 0 and tries all {taps} taps.")), "input_pixel == 0"),
                    Say(of(mark("Channel {c}, pixel ({h}, {col}): it fed no output. Its [gradient](output) is 0."), mark("Channel {c}, output ({h}, {col}): no input pixel reaches it. The [output](output) is 0.")), "dy.times == 0"),
                    Say(of(mark("Channel {c}, pixel ({h}, {col}). Outputs of each filter that it fed: {fed}. Taps without an output: {taps - fed} of {taps}. Its [gradient](output) is {sum}."), mark("Channel {c}, output ({h}, {col}). Input pixels of each channel that reach it: {fed}. Taps without one: {taps - fed} of {taps}. The [output](output) is {sum}.")))),
                "row": step("if (p < 0) continue",
                    Say("", "p >= 0"),
                    Say(of(mark("It is not a multiple of the stride {shape.u}. This is a hole between two outputs."), mark("It is not a multiple of the stride {shape.u}. This is a hole between two input pixels.")), "row_distance % shape.u != 0"),
                    Say(of(mark("The output has no such row."), mark("The input has no such row."))), lead=ROW),
                "column": step("if (q < 0) continue",
                    Say("", "q >= 0"),
                    Say(of(mark("It is not a multiple of the stride {shape.v}. This is a hole between two outputs."), mark("It is not a multiple of the stride {shape.v}. This is a hole between two input pixels.")), "column_distance % shape.v != 0"),
                    Say(of(mark("The output has no such column."), mark("The input has no such column."))), lead=COLUMN),
                "link": step("float tap_sum = 0.0f",
                    Say(of(mark("r = {r}, s = {s}: the output in row {p}, column {q} read this pixel through this tap. The [gradient](input) {dy} times the [tap](filter) {w} is added: the [sum](output) is {sum}."), mark("r = {r}, s = {s}: the input pixel in row {p}, column {q} reaches this output through this tap. The [pixel](input) {dy} times the [tap](filter) {w} is added: the [sum](output) is {sum}.")), "shape.K == 1"),
                    Say(of(mark("r = {r}, s = {s}: the output in row {p}, column {q} read this pixel through this tap. The products of [gradient](input) and [tap](filter) of {shape.K} filters make {tap_sum}. The [sum](output) is {sum}."), mark("r = {r}, s = {s}: the input pixel in row {p}, column {q} reaches this output through this tap. The products of [pixel](input) and [tap](filter) of {shape.K} channels make {tap_sum}. The [sum](output) is {sum}."))),
                    to="sum += tap_sum", merge=True),
                "store": step("input_gradient[(size_t)n",
                    of(mark("All taps are complete. The thread stores its [sum](output) {sum} as the gradient of pixel ({h}, {col})."), mark("All taps are complete. The thread stores its [sum](output) {sum} as output ({h}, {col})."))),
            },
        ),
        (Bytes(of(mark("gradients loaded"), mark("pixels loaded")), "dy", "ld", per="4"),), names=OF_PIXEL, **THREADS,
    )


# -- GEMM + col2im ---------------------------------------------------------------------------------------
def product(transposed: bool) -> Mapping[str, Any]:
    """Returns the steps of the matrix product before col2im."""
    text = (
        mark("One matrix product: the [filters](filter), transposed, times the [input](input). Each column of the [result](workspace) is the window over which one input pixel is spread. Each element is a sum of {inner} products.")
        if transposed else
        mark("One matrix product: the [filters](filter), transposed, times the [gradient of the output](input). Each element of the [result](workspace) is the gradient of one element of im2col’s data matrix, a sum of {inner} products.")
    )
    return {"product": step("float sum = 0.0f", text, to="*C = sum", merge=True)}


def columns(s: ConvShape, transposed: bool) -> tuple[Buffer, ...]:
    """Returns the tensors of the matrix product: in matrix shape, but for the filters."""
    dx, dy, w = of_input(transposed)
    title = mark("windows of the input pixels") if transposed else mark("column gradients")
    return (
        dx, replace(dy, shape=(s.K, s.PQ), plane=""), w,
        Buffer("col", "workspace", title, symbol="windows" if transposed else "", shape=(s.CRS, s.PQ)),
    )


def groups() -> tuple[Group, ...]:
    return Group((("dx",),), "global"), Group((("w", "dy"), ("col",)), "workspace", mark("the matrix product"))


OF_WINDOW = {"down": "p * shape.u - shape.pad_h + r * shape.dilation_h", "right": "q * shape.v - shape.pad_w + s * shape.dilation_w"}


def col2im_atomics(s: ConvShape, transposed: bool = False) -> View:
    zero = mark("The [output](output) is set to 0. Atomic additions need a start.") if transposed else mark("The [gradient of the input](output) is set to 0. Atomic additions need a start.")
    tap = (
        mark("Tap ({r}, {s}) of each window: {count(col)} of {active} threads each add their element of the [windows](workspace) to an output.")
        if transposed else
        mark("Tap ({r}, {s}) of each window: {count(col)} of {active} threads each add their element of the [column gradients](workspace) to a pixel.")
    )
    again = mark("Thread {window} adds {col} to ({down}, {right}), which has an addition already: {dx.read} becomes {dx.new}. Such additions collide.")
    first = mark("Thread {window} adds {col} to ({down}, {right}): it is now {dx.new}.")
    return View(
        columns(s, transposed), groups(),
        (
            {"zero": step("y[i] = 0.0f", zero)},
            product(transposed),
            {"tap": step("if (!inside) continue",
                Say(mark("All of them are in the padding: nothing is added."), "count(col) == 0"),
                Say(again, "dx.again > 0"), Say(first, "col.times > 0"),
                to="column[row * row_length]", lit="atomicAdd(&channel_gradient", each="r * shape.S + s", lead=tap)},
        ),
        (Bytes(mark("atomic additions"), "dx", "ld", per="4"), Bytes(mark("of these, to a pixel that has one already"), "dx", "ld", per="4", again=True)),
        names=OF_WINDOW, order=(mark("tap by tap of all windows"), ATOMIC_NOTE),
    )


def col2im_gather(s: ConvShape, transposed: bool = False) -> View:
    def of(gradient: str, output: str) -> str:
        return output if transposed else gradient

    return View(
        (*columns(s, transposed), replace(SUM, during=("pixel",))), (*groups(), Group((("sum",),), "registers", OF_THREAD)),
        (
            {"product": replace(product(transposed)["product"], together=True)},
            {"pixel": step("float sum = 0.0f",
                Say(of(mark("Channel {c}, pixel ({h}, {col_of}). No element of the data matrix was copied from it. Its [gradient](output) is 0."), mark("Channel {c}, output ({h}, {col_of}). No window reaches it. The [output](output) is 0.")), "col.times == 0"),
                Say(of(mark("Channel {c}, pixel ({h}, {col_of}). Elements of the [data matrix](workspace) copied from it: {col.times}. Their gradients add up to {sum}."), mark("Channel {c}, output ({h}, {col_of}). Elements of the [windows](workspace) that reach it: {col.times}. They add up to {sum}."))),
                to="size_t)h * shape.W + w] = sum", merge=True)},
        ),
        (Bytes(mark("elements read"), "col", "ld", per="4"),), names={"col_of": "input_pixel % shape.W"}, **THREADS,
    )


# -- the gradient of the filters ----------------------------------------------------------------------------
X = Buffer("x", "input", mark("input"), of="x", plane=mark("image and channel"))
DY = Buffer("dy", "workspace", mark("gradient of the output"), of="dy", plane=mark("image and filter"))
DW = Buffer("dw", "output", mark("gradient of the filters"), of="dw", plane=mark("filter and channel"))
DWEIGHT_DIRECT = View(
    (X, DY, DW, *(PerThread(name, "output", title, **in_turn(1)) for name, title in (("row_sum", mark("sum of a row")), ("image_sum", mark("sum of an image")))), SUM),
    (Group((("x", "dy", "dw"),), "global"), Group((("row_sum", "image_sum", "sum"),), "registers", OF_THREAD)),
    (
        {
            "start": step("float sum = 0.0f",
                Say("Thread {filter_tap} has filter {k}, channel {c}, tap ({r}, {s}). It sets its [sum](output) to 0.", "filter_tap == 0"),
                mark("Filter {k}, channel {c}, tap ({r}, {s}): a sum of {dy.times} products, {dy.times - x.times} of them with zeros of the padding. Its [gradient](output) is {sum}.")),
            "row": step("float row_sum = 0.0f",
                Say("Image {n}, row {p} of the output: this tap multiplied {dy.times} [pixels](input), {dy.times - x.times} of them zeros of the padding. The products of [pixel](input) and [gradient](workspace) add up to {row_sum}. The sum of the image is {image_sum}.", "x.times < dy.times"),
                mark("Image {n}, row {p} of the output: this tap multiplied {dy.times} [pixels](input). The products of [pixel](input) and [gradient](workspace) add up to {row_sum}. The sum of the image is {image_sum}."),
                to="image_sum += row_sum", each="p", fold=mark("The rows up to row {p} follow in the same way. The sum of image {n} is {image_sum}.")),
            "image": step("sum += image_sum", "All outputs of image {n} are added. The [sum](output) over the images is {sum}."),
            "store": step("filter_gradient[filter_tap]", "The thread stores its [sum](output) {sum} as the gradient of the first tap."),
        },
    ),
    (Bytes(mark("multiply-adds"), "dy", "ld", per="4"),), **THREADS,
)


def dweight_gemm(s: ConvShape) -> View:
    """Returns the view of im2col and the product of gradient and columns. Planes of both matrices are images."""
    return View(
        (
            X, replace(DY, shape=(s.N, s.K, s.PQ), plane=mark("image")), DW,
            Buffer("col", "input", mark("data matrix (workspace)"), of="col", plane=mark("image")),
            Shared("tile_a", "workspace", mark("tile of the gradient")), Shared("tile_b", "input", mark("tile of the columns"), mark("one column more, against bank conflicts")),
            PerThread("sums", "output", mark("sums"), mark("of one image, then of all"), of="tile_sum image_sum sum", during=("multiply", "image"), place=("row", "block_col + thread_col"), part=(range(s.K), range(s.CRS))),
        ),
        (
            Group((("x", "dw"),), "global"), Group((("dy",), ("col",)), "workspace"),
            Group((("tile_a", "tile_b"),), "shared", mark("shared memory of the blocks")), Group((("sums",),), "registers", mark("registers of the threads")),
        ),
        (
            {"column": step("float value = input_pixel(",
                Say(mark("Of {active} threads, {count(x)} load a [pixel](input). The others are in the padding and store 0."), "any(x.times == 0)"),
                Say(mark("Each of {active} threads loads a [pixel](input).")),
                lead=mark("Tap ({r}, {s}) of each window becomes row {r * shape.S + s} of each channel of the [data matrix](input)."),
                to="column[(r * shape.S + s) * row_length] = value", each="r * shape.S + s", fold=mark("Taps up to ({r}, {s}) are copied in the same way."))},
            {
                "load": step("bool a_inside", "Each block loads positions {k_tile} to {where(k_tile + TILE < inner, k_tile + TILE, inner) - 1} of image {n}: a tile of the [gradient](workspace) and one of the [columns](input). What is outside becomes 0. Then all threads wait at the barrier.", to="tile_b[thread_row][thread_col]"),
                "multiply": step("float tile_sum = 0.0f", Say(mark("The products of these positions are added. Thread {thread} has the [sum](output) {image_sum} of image {n}. Then all threads wait at the barrier."), pick="abs(image_sum)"), to="image_sum += tile_sum", merge=True),
                "image": step("sum += image_sum", "All positions of image {n} are added. Thread {thread} has the [sum](output) {sum} over the images."),
                "store": step("if (row < rows && col < cols)", "Each thread stores its [sum](output): the gradient of one tap."),
            },
        ),
        (Bytes(mark("values copied"), "col", "st", per="4"),),
    )
