"""GEMM + col2im as a scene: one product gives the gradient of the data matrix, then each column goes back to its window.

By atomics, each thread adds a column to the pixels of its window, as kernels/conv/cuda/22_col2im_atomics.cu. A pixel in
several windows gets several additions: there they collide. By gather, each pixel reads the elements that were copied from
it, as 23_col2im_gather.cu. Both play the links of im2col in the other direction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr, trn
from visuals.conv.backward import frame
from visuals.conv.backward.links import Links, padded_lists
from visuals.scene.parts import Annotation, Captions, Group, MatMul, Reading, Sum, Tensor, product
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

ATOMICS, GATHER = "conv-dinput/gemm-atomics", "conv-dinput/gemm-gather"
ATOMICS_NOTE = mark(
    "One window after another. On the GPU all windows are added at the same time. The L2 cache does the additions to a "
    "pixel one by one. Their order changes from run to run."
)
GATHER_NOTE = mark("One pixel after another. On the GPU all pixels are computed at the same time.")


# -- by atomics ------------------------------------------------------------------------------------------
def atomics_kinds(s: ConvShape) -> frame.Kinds:
    add = "atomicAdd(&channel_gradient"
    window = tr("Thread {0} adds column {0} of the [column gradients](workspace) to the window of output ({1}, {2}).")
    if s.C > 1:
        window = tr(
            "{n} threads, one per channel, add column {0} of the [column gradients](workspace) to the window of output ({1}, {2}).",
            n=s.C,
        )
    return {
        "zero": ("y[i] = 0.0f", tr("The [gradient of the input](output) is set to 0. Atomic additions need a start.")),
        "product": _product_kind(s),
        "first": (add, window + " " + tr("Atomic additions: {3}. No other window has added to these pixels yet.")),
        "again": (
            add,
            window + " " + tr("Atomic additions: {3}. Of them, {4} are to pixels that other windows add to as well."),
        ),
        "padding": (add, window + " " + tr("The whole window is in the padding: nothing is added.")),
    }


def atomics_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of image 0 of inputs dy [N,K,P,Q] and w [K,C,R,S]."""
    found, links = frame.run(ATOMICS, s, tiles, inputs), Links(s)
    kinds = atomics_kinds(s)
    r = frame.recorder(kinds)
    r.step("zero", 0, 0, 0, 0, 0)
    r.put("dx", np.zeros(s.C * s.H * s.W))
    r.put("adds", np.zeros(s.C * s.H * s.W))
    _multiply(r, found)
    sums, adds = np.zeros(s.C * s.H * s.W, np.float32), np.zeros(s.C * s.H * s.W, int)
    left = links.additions.copy()
    for window in range(s.PQ):
        _add_window(r, links, found, window, sums, adds, left)
    counter = frame.image(
        "adds", tr("additions to each pixel"), "workspace", s.C, (s.H, s.W), note=tr("counted here, not stored")
    )
    return frame.assemble(
        found,
        r,
        kinds,
        [0, 1, 2],
        [*_tensors(found), counter],
        _groups("adds"),
        tr(ATOMICS_NOTE),
        matmuls=(MatMul("wt", "dy", "col"),),
        annotations=(_pixels(links), _columns(links)),
        readings=_atomic_readings(r),
    )


def _add_window(r: Recorder, links: Links, found: frame.Run, window: int, sums, adds, left) -> None:
    """Adds the step of one window in all channels. A pixel that no later window adds to has the kernel's value."""
    s = links.s
    rows = np.flatnonzero(links.pixel[:, window] >= 0)
    pixels = links.pixel[rows, window]
    shared = int((links.additions[pixels] > 1).sum())
    earlier = int((adds[pixels] > 0).sum())
    kind = "padding" if not len(rows) else "again" if shared else "first"
    r.step(kind, window, window // s.Q, window % s.Q, len(rows), shared, added=len(rows), shared=earlier)
    if not len(rows):
        return
    sums[pixels] += found["col"][0].reshape(s.CRS, s.PQ)[rows, window]
    adds[pixels] += 1
    left[pixels] -= 1
    stored = found["dx"][0].ravel()
    r.look("col", rows * s.PQ + window)
    r.put("dx", np.where(left[pixels] == 0, stored[pixels], sums[pixels]), pixels)
    r.put("adds", adds[pixels], pixels)


def _atomic_readings(r: Recorder) -> tuple[Reading, ...]:
    return (
        Reading(tr("atomic additions"), r.so_far("added"), "counted"),
        Reading(tr("of them to a pixel that already had one"), r.so_far("shared"), "counted"),
    )


# -- by gather -------------------------------------------------------------------------------------------
def gather_kinds(s: ConvShape) -> frame.Kinds:
    pixel = tr("Channel {0}, pixel ({1}, {2}).")
    return {
        "product": _product_kind(s),
        "pixel": (
            "sum += channel_rows",
            pixel
            + " "
            + tr("Elements of the [data matrix](workspace) copied from it: {3}. Their gradients add up to {4}."),
        ),
        "lonely": (
            "input_gradient[plane",
            pixel + " " + tr("No element of the data matrix was copied from it. Its [gradient](output) is 0."),
        ),
    }


def gather_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of image 0 of inputs dy [N,K,P,Q] and w [K,C,R,S]."""
    found, links = frame.run(GATHER, s, tiles, inputs), Links(s)
    kinds = gather_kinds(s)
    r = frame.recorder(kinds)
    _multiply(r, found)
    stored = found["dx"][0].ravel()
    for pixel, value in enumerate(stored):
        c, h, w = (int(n) for n in np.unravel_index(pixel, (s.C, s.H, s.W)))
        rows, outputs = np.nonzero(links.pixel == pixel)
        r.step("pixel" if len(rows) else "lonely", c, h, w, len(rows), value, read=len(rows))
        r.look("col", rows * s.PQ + outputs)
        r.put("dx", value, np.array([pixel]))
    return frame.assemble(
        found,
        r,
        kinds,
        [0, 1],
        _tensors(found),
        _groups(),
        tr(GATHER_NOTE),
        matmuls=(MatMul("wt", "dy", "col"),),
        sums=(_sum_of(links),),
        annotations=(_columns(links),),
        readings=(Reading(tr("elements read"), r.so_far("read"), "counted"),),
    )


def _sum_of(links: Links) -> Sum:
    """Returns dx as a sum over the data matrix's gradient, each element once."""
    rows, outputs = np.nonzero(links.pixel >= 0)
    order = np.argsort(links.pixel[rows, outputs], kind="stable")
    start = np.cumsum([0, *links.additions])
    return Sum("dx", "col", start, (rows * links.s.PQ + outputs)[order], np.ones(len(order), np.float32))


# -- both ------------------------------------------------------------------------------------------------
def _product_kind(s: ConvShape) -> tuple[str, str]:
    text = trn(
        "One matrix product: the [filters](filter), transposed, times the [gradient of the output](input). Each element of the "
        "[result](workspace) is the gradient of one element of im2col's data matrix, one product.",
        "One matrix product: the [filters](filter), transposed, times the [gradient of the output](input). Each element of the "
        "[result](workspace) is the gradient of one element of im2col's data matrix, a sum of {n} products.",
        s.K,
    )
    return "sum += tile_a[k][thread_row]", text


def _multiply(r: Recorder, found: frame.Run) -> None:
    s = found.s
    r.step("product", 0, 0, 0, 0, 0)
    r.look("wt", np.arange(s.CRS * s.K))
    r.look("dy", np.arange(s.K * s.PQ))
    r.put("col", found["col"][0])


def _tensors(found: frame.Run) -> list[Tensor]:
    s = found.s
    transposed = found["w"].reshape(s.K, s.CRS).T
    return [
        frame.image("dx", tr("gradient of the input"), "output", s.C, (s.H, s.W), plane_name=tr("channel")),
        frame.matrix(
            "wt", tr("filters, transposed"), "filter", (s.CRS, s.K), transposed, tr("read in this order, not moved")
        ),
        frame.matrix("dy", tr("gradient of the output"), "input", (s.K, s.PQ), found["dy"][0]),
        frame.matrix("col", tr("column gradients"), "workspace", (s.CRS, s.PQ)),
    ]


def _groups(*beside: str) -> list[Group]:
    return [Group((("dx", *beside),)), Group(product("wt", "dy", "col"), "workspace", table=True)]


def _columns(links: Links) -> Annotation:
    """Returns a note on each element of the data matrix's gradient: the pixel that it was copied from."""
    s, flat = links.s, links.pixel.ravel()
    c, h, w = np.unravel_index(np.maximum(flat, 0), (s.C, s.H, s.W))
    texts = (
        tr("This element was copied from channel {0}, pixel ({1}, {2}). Its gradient goes back there."),
        tr("This element was a zero of the padding. Its gradient is dropped."),
    )
    captions = Captions(texts, (flat < 0).astype(int), np.stack([c, h, w], axis=1))
    return Annotation("col", captions, {"dx": flat[:, None]})


def _pixels(links: Links) -> Annotation:
    """Returns a note on each pixel: how many windows contain it, and their elements."""
    s = links.s
    elements = [np.flatnonzero(links.pixel.ravel() == pixel) for pixel in range(s.C * s.H * s.W)]
    texts = (
        tr("This pixel is in no window."),
        tr("This pixel is in 1 window. No additions collide."),
        tr("This pixel is in {0} windows. {0} threads add to this address: their additions collide."),
    )
    count = links.additions
    return Annotation("dx", Captions(texts, np.minimum(count, 2), count[:, None]), {"col": padded_lists(elements)})
