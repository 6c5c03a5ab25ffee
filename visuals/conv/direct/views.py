# fmt: off
"""What the stage shows of direct convolution: one thread for each output pixel, in the order of threads or of warps."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv.implicit import PIECE, filter_threads
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shared, View, box, in_turn, row_of, step
from visuals.scene.parts import Group

X, W, Y = Buffer("x", "input", mark("input")), Buffer("w", "filter", mark("filters")), Buffer("y", "output", mark("output"))
SUMS = (
    PerThread("channel_sum", "output", mark("sum of one channel"), **in_turn(1)),
    PerThread("sum", "output", mark("sum"), **in_turn(1)),
)
GLOBAL = Group((("x", "w", "y"),), "global", mark("global memory"))
LOADED = Bytes(mark("pixels loaded"), "x", "ld", per="4"), Bytes(mark("taps loaded"), "w", "ld", per="4")
ORDER = mark("thread by thread")
ORDER_NOTE = mark("The steps show one thread after another. The first thread takes one step per product. On the GPU all threads of a block run at the same time. All values are those of the kernel in the emulator.")
MORE = mark("Products {first} to {last}: each [pixel](input) of the window is multiplied by its [tap](filter) and added in the same way. The [sum of the channel](output) is now {channel_sum}.")
OF_PRODUCT = {
    "down": "where(shape.flip == 1, shape.R - 1 - r, r)", "right": "where(shape.flip == 1, shape.S - 1 - s, s)",
    "h": "p * shape.u - shape.pad_h + down * shape.dilation_h", "w_in": "q * shape.v - shape.pad_w + right * shape.dilation_w",
    "taps": "shape.C * shape.R * shape.S", "zeros": "taps - x.times",
    "top": "p * shape.u - shape.pad_h", "left": "q * shape.v - shape.pad_w",
}
AT = mark("c = {c}, r = {r}, s = {s}: h = {p}·{shape.u} − {shape.pad_h} + {down}·{shape.dilation_h} = {h}, w = {q}·{shape.v} − {shape.pad_w} + {right}·{shape.dilation_w} = {w_in}.")
OF_THREAD = mark("Thread {output_pixel}: k = {k}, p = {p}, q = {q}. Its window starts at row {top}, column {left} of the [input](input).")
STORE = mark("Thread {output_pixel} stores its [sum](output), {sum}, in y[0, {k}, {p}, {q}]. Every other output pixel has its own thread.")
DIRECT = View(
    (X, W, Y, *SUMS), (GLOBAL, Group((("channel_sum", "sum"),), "registers", mark("registers of one thread"))),
    (
        {
            "start": step("float sum = 0.0f",
                Say("The thread sets its [sum](output) to 0.", "output_pixel == 0"),
                Say("The thread multiplies {taps} values of the window by their [taps](filter). 1 of these values is a zero of the padding. The [sum](output) is {sum}.", "zeros == 1"),
                Say("The thread multiplies {taps} values of the window by their [taps](filter). {zeros} of these values are zeros of the padding. The [sum](output) is {sum}.", "zeros > 1"),
                mark("The thread multiplies {taps} values of the window by their [taps](filter). The [sum](output) is {sum}."),
                lead=OF_THREAD),
            "product": step("channel_sum += input_pixel(",
                Say("This position is in the padding. Its value is zero and is not loaded. The [sum of the channel](output) stays {channel_sum}.", "x.times == 0"),
                mark("The [pixel](input) at address {x.at} is {x}. Its [tap](filter) is {w}. Adding the product {x * w} makes the [sum of the channel](output) {channel_sum}."),
                lead=AT, fold=MORE),
            "channel": step("sum += channel_sum",
                Say("The loops over r and s are complete. The [sum of the channel](output) is added: the [sum](output) is {sum}.", "shape.C == 1"),
                mark("The loops over r and s are complete for channel {c}. Its [sum](output) is added: {sum.before} + {channel_sum} = {sum}. A sum for each channel keeps the last bits.")),
            "store": step("output[(size_t)n", STORE),
        },
    ),
    LOADED, group=1, alone=1024, detailed=1, names=OF_PRODUCT, order=(ORDER, ORDER_NOTE),
)
WARPS = View(
    (X, W, Y), (GLOBAL,),
    (
        {
            "product": step("channel_sum += input_pixel(",
                Say("Warp {warp}, c = {c}, r = {r}, s = {s}: the pixels of all {active} active lanes are in the padding. They are zero and are not loaded.", "not any(x.times > 0)"),
                Say("Warp {warp}, c = {c}, r = {r}, s = {s}: of {active} active lanes, {count(x)} load a [pixel](input), from address {min(x.at)} to {max(x.at)}. All load the same [tap](filter), at address {w.at}: one sector (32 bytes).", "not any(w.at != min(w.at))"),
                mark("Warp {warp}, c = {c}, r = {r}, s = {s}: of {active} active lanes, {count(x)} load a [pixel](input), from address {min(x.at)} to {max(x.at)}. They load [taps](filter) of filters {min(k)} to {max(k)}.")),
            "store": step("output[(size_t)n", "Warp {warp} stores its [sums](output), from address {min(y.at)} to {max(y.at)}. Active lanes: {active}."),
        },
    ),
    LOADED, group=32,
    others=(mark("The other blocks ({others}) compute their [outputs](output) in the same way. The [output](output) is complete."),),
)

# -- from shared memory --------------------------------------------------------------------------------------
FOLLOWED = 2  # the thread whose registers are shown: the corner of a picture is often empty
OF_CHUNK = mark("Channels from {chunk} on, {channels} of {shape.C}.")


def tiled_view(s: ConvShape, tiles: Mapping[str, int]) -> View:
    """Returns the view of conv/direct-tiled: block 0 line by line, then the other blocks."""
    channels, filters = min(tiles["CHUNK"], s.maps), filter_threads(s, tiles) * tiles["TK"]
    rows, columns = (tiles["TILE"] - 1) * s.u + s.span_h, (tiles["TILE"] - 1) * s.v + s.span_w
    pitch, taps = filters + PIECE, s.R * s.S
    shared = (
        Shared("patch", "input", mark("patch of the input"), of="shared", **box(channels * taps * pitch, rows, columns, columns, channels), plane=mark("channel")),
        Shared("taps", "filter", mark("taps, a column per filter"), of="shared", **box(0, taps, filters, pitch, channels), plane=mark("channel")),
    )
    sums = PerThread("own_sums", "output", mark("sums"), mark("a row per pixel, a column per filter"), "sum", of="chunk_sum", threads=range(FOLLOWED, FOLLOWED + 1)), PerThread("own_taps", "filter", mark("taps"), symbol="tap", of="filter_taps", **row_of(FOLLOWED))
    return View(
        (X, W, Y, *shared, *sums),
        (
            GLOBAL, Group((("patch", "taps"),), "shared", mark("shared memory of the block")),
            Group((("own_taps", "own_sums"),), "registers", mark("registers of thread 2")),
        ),
        (TILED,), LOADED, names=OF_TILED, others=(mark("The other blocks ({others}) do the same for their pixels and filters. Patches of neighbouring blocks overlap."),),
    )


OF_TILED = {"rows": "(TILE - 1) * shape.u + (shape.R - 1) * shape.dilation_h + 1", "columns": "(TILE - 1) * shape.v + (shape.S - 1) * shape.dilation_w + 1"}
TILED = {
    "patch": step("float value = inside",
        "The threads ({active}) load the [patch](input) under {TILE} × {TILE} outputs into shared memory: {rows} × {columns} pixels of each channel. Each pixel is loaded once. Pixels outside of the image become 0.",
        lead=OF_CHUNK, to="patch[(c * patch_rows", inside="load_patch(patch, input", merge=True),
    "taps": step("int k = i / taps_per_filter",
        Say("They load the [taps](filter) of {shape.K} filters too. The taps of further filters become 0. Then all threads wait at the barrier.", "block_k + count // taps_per_filter > shape.K"),
        mark("They load the [taps](filter) of {count // taps_per_filter} filters too. Then all threads wait at the barrier."),
        to="k < filters_left", inside="load_taps(taps, filters", merge=True),
    "tap": step("const float* pixels = patch",
        "c = {chunk + c}, r = {r}, s = {s}: each thread reads its [pixels](input) ({TP}) and [taps](filter) ({TK}) from shared memory. Each pixel is multiplied by each tap: {TP} · {TK} products for {TP} + {TK} loads. In thread 2 the first [sum](output) is now {at(chunk_sum[0], 2)}.",
        to="chunk_sum[i][k] += pixel", fold=mark("Taps {first} to {last}: each thread reads its [pixels](input) and its [taps](filter) and adds all their products in the same way. In thread 2 the first [sum](output) is now {at(chunk_sum[0], 2)}.")),
    "chunk": step("sum[i][k] += chunk_sum[i][k]", "Each thread adds the [sums](output) of these channels to those of the channels before. Then all threads wait at the barrier.", merge=True),
    "store": step("int output_row = p + i * ROWS",
        "Each thread stores its [sums](output) that belong to an output. Outputs of the block: {sum(output.times)}, sums: {active * TP * TK}.", to="shape.Q + q] =", merge=True),
}
