"""The convolution on a stage: a smaller one of the same kind, if the whole one has too many cells to see."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from kernels.i18n import tr

SIDE, CHANNELS, FILTERS = 8, 2, 2  # the most of each that a stage shows
ROW = 24  # the most samples of a 1-D convolution


def watched(s: ConvShape, images: int = 1) -> ConvShape:
    """Returns the convolution on the stage: fewer channels, filters, images and pixels, the rest unchanged.

    Filter, stride, padding, dilation and mode stay. A page says that the extents are smaller.
    """
    smaller = s.with_(N=min(s.N, images), C=min(s.maps, CHANNELS), K=min(s.filters, FILTERS), groups=1, bias=0, relu=0)
    return with_sides(smaller, ROW if s.H == s.R == 1 else SIDE)


def with_sides(s: ConvShape, side: int) -> ConvShape:
    """Returns a convolution with at most so many rows and columns of pixels, but as many as its filter needs."""
    sizes = (
        min(size, max(side, span - sum(padding), 1))
        for size, span, padding in zip((s.H, s.W), (s.span_h, s.span_w), s.pad_widths, strict=True)
    )
    return s.with_(**dict(zip("HW", sizes, strict=True)))


def smaller(whole: object, part: object) -> str:
    """Returns that a stage shows another shape than the whole one; "" if it shows that."""
    if part == whole:
        return ""
    return tr("The stage shows a smaller convolution of the same kind: {part}.", part=str(part))
