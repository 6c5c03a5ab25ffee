"""What each cell of a gradient's scene is made of, and what a reader learns of it when pointing at it."""

from __future__ import annotations

import numpy as np

from kernels.i18n import tr
from visuals.conv.backward.links import Links, padded_lists
from visuals.scene.parts import Annotation, Captions, Sum


def of_pixels(links: Links) -> Sum:
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


def outputs(links: Links, transposed: bool) -> Annotation:
    """Returns a note on each output: the pixels that it read in the forward pass, which now get its gradient."""
    s = links.s
    read = [links.pixel[:, output][links.pixel[:, output] >= 0] for output in range(s.PQ)]
    k, output = np.divmod(np.arange(s.K * s.PQ), s.PQ)
    args = np.stack([k, output // s.Q, output % s.Q, np.array([len(read[o]) for o in output])], axis=1)
    text = tr("Filter {0}, output ({1}, {2}) read {3} pixels. Its gradient goes back to the same pixels.")
    if transposed:
        text = tr("Channel {0}, input pixel ({1}, {2}) is spread over {3} outputs of each map.")
    captions = Captions((text,), np.zeros(len(args), int), args)
    return Annotation("dy", captions, {"dx": padded_lists([read[o] for o in output])})


def phases(links: Links, transposed: bool) -> Annotation:
    """Returns a note on each pixel: its phase, and the taps that it was read through if they are inside the output."""
    s = links.s
    h, w = np.divmod(np.arange(s.H * s.W), s.W)
    taps = [int(links.taps_of_phase(i % s.u, j % s.v)) for i, j in zip(h, w, strict=True)]
    numbers = np.stack([h % s.u, w % s.v, taps], axis=1)
    text = tr("Phase of pixel ({0}, {1}): read through {2} taps.")
    if transposed:
        text = tr("Phase of output ({0}, {1}): reached through {2} taps.")
    return Annotation("dx", Captions((text,), np.zeros(s.C * s.H * s.W, int), np.tile(numbers, (s.C, 1))))


# -- the gradient of the data matrix -----------------------------------------------------------------------
def of_columns(links: Links) -> Sum:
    """Returns the gradient of the data matrix as a sum over the filters."""
    s, k = links.s, np.arange(links.s.K)
    row, output = np.divmod(np.arange(s.CRS * s.PQ)[:, None], s.PQ)
    start = s.K * np.arange(s.CRS * s.PQ + 1)
    return Sum("col", "dy", start, (k * s.PQ + output).ravel(), (k * s.CRS + row).ravel(), left="w")


def of_windows(links: Links) -> Sum:
    """Returns dx as a sum over the data matrix's gradient, each element once."""
    rows, outputs = np.nonzero(links.pixel >= 0)
    order = np.argsort(links.pixel[rows, outputs], kind="stable")
    start = np.cumsum([0, *links.additions])
    return Sum("dx", "col", start, (rows * links.s.PQ + outputs)[order], np.ones(len(order), np.float32))


def columns(links: Links, transposed: bool) -> Annotation:
    """Returns a note on each element of the data matrix's gradient: the pixel that it was copied from."""
    s, flat = links.s, links.pixel.ravel()
    c, h, w = np.unravel_index(np.maximum(flat, 0), (s.C, s.H, s.W))
    texts = (
        tr("This element was copied from channel {0}, pixel ({1}, {2}). Its gradient goes back there."),
        tr("This element was a zero of the padding. Its gradient is dropped."),
    )
    if transposed:
        texts = (
            tr("This element is added to channel {0}, output ({1}, {2})."),
            tr("The padding cuts this element off."),
        )
    captions = Captions(texts, (flat < 0).astype(int), np.stack([c, h, w], axis=1))
    return Annotation("col", captions, {"dx": flat[:, None]})


def additions(links: Links, transposed: bool) -> Annotation:
    """Returns a note on each pixel: how many windows contain it, and their elements."""
    s = links.s
    elements = [np.flatnonzero(links.pixel.ravel() == pixel) for pixel in range(s.C * s.H * s.W)]
    texts = (
        tr("This pixel is in no window."),
        tr("This pixel is in 1 window. No additions collide."),
        tr("This pixel is in {0} windows. {0} threads add to this address: their additions collide."),
    )
    if transposed:
        texts = (
            tr("No window reaches this output."),
            tr("1 window reaches this output. No additions collide."),
            tr("{0} windows reach this output. {0} threads add to this address: their additions collide."),
        )
    count = links.additions
    return Annotation("dx", Captions(texts, np.minimum(count, 2), count[:, None]), {"col": padded_lists(elements)})


# -- the gradient of the filters ---------------------------------------------------------------------------
def taps(links: Links) -> Annotation:
    """Returns a note on each tap: the pixels of image 0 that it multiplied."""
    s = links.s
    pixels = [links.pixel[tap % s.CRS][links.pixel[tap % s.CRS] >= 0] for tap in range(s.K * s.CRS)]
    args = np.stack([*np.unravel_index(np.arange(s.K * s.CRS), s.w_shape), [len(p) for p in pixels]], axis=1)
    text = tr("Filter {0}, channel {1}, tap ({2}, {3}): in each image it multiplied the {4} outlined pixels.")
    return Annotation("dw", Captions((text,), np.zeros(len(args), int), args), {"x": padded_lists(pixels)})
