"""The gradient of the input, direct, as a scene: which outputs did this input pixel feed?

The links are those of the forward pass, in the other direction. Beside the gradient of the output stands the same
gradient spread by the stride, with empty cells between its values: the filter, turned by 180 degrees, slides over it.
The first pixel takes one step per tap, as the loops of kernels/conv/cuda/20_dinput_direct.cu. Each other pixel takes one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr, trn
from visuals.conv.backward import frame
from visuals.conv.backward.links import HOLE, Links, padded_lists
from visuals.scene.parts import Annotation, Captions, Group, Reading, Sum, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

RUNG = "conv-dinput/direct"
NOTE = mark(
    "The steps show one thread after another. The first thread takes one step per tap. On the GPU all threads of a "
    "block run at the same time."
)


def kinds_of(s: ConvShape) -> frame.Kinds:
    """Returns the kinds of steps. {0} r, {1} s, {2} distance, {3} output row, {4} output column, {5} gradient, {6} tap,
    {7} sum; of a pixel {0} c, {1} h, {2} w, {3} outputs, {4} taps without one, {5} gradient."""
    row = f"{{8}} + {s.pad_h} − {{0}}·{s.dilation_h} = {{2}}"
    column = f"{{9}} + {s.pad_w} − {{1}}·{s.dilation_w} = {{2}}"

    def hole(stride: int) -> str:
        return tr("It is not a multiple of the stride {stride}. This is a hole between two outputs.", stride=stride)

    products = (
        tr("The [gradient](input) {5} times the [tap](filter) {6} makes the [sum](output) {7}.")
        if s.K == 1
        else trn(
            "The product of [gradient](input) and [tap](filter) of {n} filter makes the [sum](output) {7}.",
            "The products of [gradient](input) and [tap](filter) of {n} filters make the [sum](output) {7}.",
            s.K,
        )
    )
    return {
        "row_hole": ("if (p < 0) continue", f"r = {{0}}: {row}. " + hole(s.u)),
        "row_outside": ("if (p < 0) continue", f"r = {{0}}: {row}. " + tr("The output has no such row.")),
        "column_hole": ("if (q < 0) continue", f"r = {{0}}, s = {{1}}: {column}. " + hole(s.v)),
        "column_outside": (
            "if (q < 0) continue",
            f"r = {{0}}, s = {{1}}: {column}. " + tr("The output has no such column."),
        ),
        "link": (
            "tap_sum +=",
            tr("r = {0}, s = {1}: the output in row {3}, column {4} read this pixel through this tap.")
            + " "
            + products,
        ),
        "store": (
            "input_gradient[(size_t)n",
            tr("All taps are complete. The thread stores its [sum](output) {7} as the gradient of pixel ({8}, {9})."),
        ),
        "pixel": ("input_gradient[(size_t)n", _pixel(s)),
        "lonely": (
            "input_gradient[(size_t)n",
            tr("Channel {0}, pixel ({1}, {2}): it fed no output. Its [gradient](output) is 0."),
        ),
    }


def _pixel(s: ConvShape) -> str:
    fed = tr("Channel {0}, pixel ({1}, {2}). Outputs of each filter that it fed: {3}.")
    rest = tr("Taps without an output: {4} of {n}.", n=s.R * s.S)
    return " ".join((fed, rest, tr("Its [gradient](output) is {5}.")))


def dinput_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of image 0 of inputs dy [N,K,P,Q] and w [K,C,R,S]."""
    found, links = frame.run(RUNG, s, tiles, inputs), Links(s)
    kinds = kinds_of(s)
    r = frame.recorder(kinds)
    first_pixel(r, links, found)
    for pixel in range(1, s.C * s.H * s.W):
        one_pixel(r, links, found, pixel)
    spread = s.stride != (1, 1)
    return frame.assemble(
        found,
        r,
        kinds,
        [0],
        tensors(found, spread),
        groups(spread),
        tr(NOTE),
        sums=(sum_of(links),),
        annotations=annotations_of(links),
        readings=readings(r),
    )


# -- tensors ---------------------------------------------------------------------------------------------
def tensors(found: frame.Run, spread: bool) -> list[Tensor]:
    s = found.s
    out = [
        frame.image("dx", tr("gradient of the input"), "output", s.C, (s.H, s.W), plane_name=tr("channel")),
        frame.image(
            "dy", tr("gradient of the output"), "input", s.K, (s.P, s.Q), found["dy"][0], plane_name=tr("filter")
        ),
        frame.filters("w", tr("filters"), s, values=found["w"]),
        frame.image("fed", tr("gradients"), "input", s.K, (s.R, s.S), note=tr("of the outputs that this pixel fed")),
        frame.image("tap", tr("taps"), "filter", s.K, (s.R, s.S)),
        frame.image("prod", tr("products"), "output", s.K, (s.R, s.S), note=tr("gradient × tap")),
        frame.image("sum", tr("sum"), "output", 1, (1, 1), note=""),
    ]
    if spread:
        out.append(_spread(s))
    return out


def _spread(s: ConvShape) -> Tensor:
    """Returns the gradient with the holes of the stride, and around it the border that a full convolution reads."""
    rows, columns = (s.P - 1) * s.u + 1, (s.Q - 1) * s.v + 1
    pad = (
        max(0, s.span_h - 1 - s.pad_h),
        max(0, s.span_w - 1 - s.pad_w),
        max(0, s.H - 1 + s.pad_h - (rows - 1)),
        max(0, s.W - 1 + s.pad_w - (columns - 1)),
    )
    note = tr("not in memory; the stride leaves holes")
    return frame.image(
        "spread",
        tr("gradient of the output, spread"),
        "workspace",
        s.K,
        (rows, columns),
        pad=pad,
        note=note,
        plane_name=tr("filter"),
    )


def groups(spread: bool) -> list[Group]:
    own = Group((("fed", "tap", "prod", "sum"),), "registers", tr("registers of one thread"))
    picture = [Group((("spread",),), "workspace", tr("the same gradient, spread by the stride"))] if spread else []
    return [Group((("dx", "dy", "w"),)), *picture, own]


def spread_cells(s: ConvShape, outputs: np.ndarray) -> np.ndarray:
    """Returns the cells of the spread gradient that hold these outputs (flat in K, P, Q)."""
    k, p, q = np.unravel_index(outputs, (s.K, s.P, s.Q))
    rows, columns = (s.P - 1) * s.u + 1, (s.Q - 1) * s.v + 1
    return (k * rows + p * s.u) * columns + q * s.v


# -- steps -----------------------------------------------------------------------------------------------
def first_pixel(r: Recorder, links: Links, found: frame.Run) -> None:
    """Adds the steps of pixel (0, 0) of channel 0: a row of taps that no output used, or one tap, at a time."""
    s, total = links.s, np.float32(0)
    for row, p in enumerate(links.rows[0]):
        d_row = s.pad_h - row * s.dilation_h
        if p < 0:
            r.step("row_hole" if p == HOLE else "row_outside", row, 0, d_row, 0, 0, 0, 0, 0, 0, 0)
            spread_first(r, links)
            continue
        for column, q in enumerate(links.columns[0]):
            if q < 0:
                distance = s.pad_w - column * s.dilation_w
                kind = "column_hole" if q == HOLE else "column_outside"
                r.step(kind, row, column, distance, 0, 0, 0, 0, 0, 0, 0)
                spread_first(r, links)
                continue
            total = _link(r, links, found, row, column, int(p), int(q), total)
    r.step("store", 0, 0, 0, 0, 0, 0, 0, found["dx"][0, 0, 0, 0], 0, 0)
    spread_first(r, links)
    r.put("sum", found["dx"][0, 0, 0, 0])
    r.put("dx", found["dx"][0, 0, 0, 0], np.array([0]))


def spread_first(r: Recorder, links: Links) -> None:
    """Fills the spread gradient at the first step: it is the same values at other places."""
    s = links.s
    if r.now == 0 and s.stride != (1, 1):
        outputs = np.arange(s.K * s.PQ)
        r.copy("spread", "dy", outputs, spread_cells(s, outputs))


def _link(r: Recorder, links: Links, found: frame.Run, row, column, p, q, total) -> np.float32:
    s, k = links.s, np.arange(links.s.K)
    tap, output = links.tap(row, column), p * s.Q + q
    gradient, taps = found["dy"][0].reshape(s.K, s.PQ)[:, output], found["w"].reshape(s.K, s.C, -1)[:, 0, tap]
    products = gradient * taps
    tap_sum = np.float32(0)
    for product in products:  # in the kernel's order
        tap_sum += product
    total = np.float32(total + tap_sum)
    r.step("link", row, column, 0, p, q, gradient[0], taps[0], total, 0, 0, added=s.K)
    spread_first(r, links)
    cells = k * s.R * s.S + tap
    r.copy("fed", "dy", k * s.PQ + output, cells)
    r.copy("tap", "w", k * s.C * s.R * s.S + tap, cells)
    r.put("prod", products, cells)
    r.put("sum", total)
    if s.stride != (1, 1):
        r.look("spread", spread_cells(s, k * s.PQ + output))
    return total


def one_pixel(r: Recorder, links: Links, found: frame.Run, pixel: int) -> None:
    """Adds the step of one whole pixel (flat in C, H, W). Taps without an output hold zeros."""
    s = links.s
    c, h, w = (int(n) for n in np.unravel_index(pixel, (s.C, s.H, s.W)))
    taps, outputs = links.fed(h, w)
    k, area = np.arange(s.K)[:, None], s.R * s.S
    value = found["dx"][0, c, h, w]
    r.step(
        "pixel" if len(taps) else "lonely",
        c,
        h,
        w,
        len(taps),
        area - len(taps),
        value,
        0,
        0,
        0,
        0,
        added=s.K * len(taps),
    )
    index = np.full((s.K, area), -1)
    index[:, taps] = k * s.PQ + outputs
    r.copy("fed", "dy", index)
    filters = (k * s.C + c) * area + np.arange(area)
    r.copy("tap", "w", filters)
    gradient = np.append(found["dy"][0].ravel(), np.float32(0))[index]
    r.put("prod", gradient * found["w"].ravel()[filters])
    r.put("sum", value)
    r.put("dx", value, np.array([pixel]))
    if len(taps) and s.stride != (1, 1):
        r.look("spread", spread_cells(s, k * s.PQ + outputs))


def readings(r: Recorder) -> tuple[Reading, ...]:
    return (Reading(tr("multiply-adds"), r.so_far("added"), "predicted"),)


# -- links of the cells ------------------------------------------------------------------------------------
def sum_of(links: Links) -> Sum:
    """Returns dx as a sum: for each pixel its outputs, times the taps."""
    s, cells, factors, counts = links.s, [], [], []
    k = np.arange(s.K)[:, None]
    for pixel in range(s.C * s.H * s.W):
        c, h, w = np.unravel_index(pixel, (s.C, s.H, s.W))
        taps, outputs = links.fed(int(h), int(w))
        cells.append((k * s.PQ + outputs).ravel())
        factors.append(((k * s.C + c) * s.R * s.S + taps).ravel())
        counts.append(cells[-1].size)
    start = np.cumsum([0, *counts])
    return Sum("dx", "dy", start, np.concatenate(cells).astype(int), np.concatenate(factors).astype(int), left="w")


def annotations_of(links: Links) -> tuple[Annotation, ...]:
    """Returns a note on each output: the pixels that it read in the forward pass, which now get its gradient."""
    s = links.s
    read = [links.pixel[:, output][links.pixel[:, output] >= 0] for output in range(s.PQ)]
    k, output = np.divmod(np.arange(s.K * s.PQ), s.PQ)
    args = np.stack([k, output // s.Q, output % s.Q, np.array([len(read[o]) for o in output])], axis=1)
    text = tr("Filter {0}, output ({1}, {2}) read {3} pixels. Its gradient goes back to the same pixels.")
    return (
        Annotation(
            "dy", Captions((text,), np.zeros(len(args), int), args), {"dx": padded_lists([read[o] for o in output])}
        ),
    )
