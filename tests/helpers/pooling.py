"""Hypothesis strategies of pooling shapes, and x with hard values."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, output_size


def extents(draw, window: int, stride: int, pad: int, dilation: int, ceil: int) -> int:
    """Draws an extent that the window fits."""
    least = next(
        n
        for n in range(1, 100)
        if output_size(n, window, stride, pad, dilation, ceil) >= 1 and (not pad or dilation <= n)
    )
    return draw(st.integers(least, least + 9))


@st.composite
def windows(draw, max_window: int = 4, dilated: bool = True) -> dict[str, int]:
    """Draws a window, stride, padding, dilation and ceil mode, with the fields' names."""
    out = {"ceil": draw(st.integers(0, 1))}
    for window, stride, pad, dilation in (("R", "u", "pad_h", "dilation_h"), ("S", "v", "pad_w", "dilation_w")):
        out[window], out[stride] = draw(st.integers(1, max_window)), draw(st.integers(1, 4))
        out[pad] = draw(st.integers(0, out[window] // 2))
        out[dilation] = draw(st.integers(1, 3)) if dilated else 1
    return out


@st.composite
def max_shapes(draw, chosen: st.SearchStrategy | None = None) -> MaxPoolShape:
    """Draws any window, or one of `chosen`, on planes that are a little larger than it."""
    fields = draw(windows() if chosen is None else chosen)
    H = extents(draw, *(fields[n] for n in ("R", "u", "pad_h", "dilation_h", "ceil")))
    W = extents(draw, *(fields[n] for n in ("S", "v", "pad_w", "dilation_w", "ceil")))
    return MaxPoolShape(draw(st.integers(1, 2)), draw(st.integers(1, 3)), H, W, **fields)


@st.composite
def avg_shapes(draw, chosen: st.SearchStrategy | None = None) -> AvgPoolShape:
    fields = dict(draw(windows(dilated=False) if chosen is None else chosen))
    fields = {name: value for name, value in fields.items() if not name.startswith("dilation")}
    H = extents(draw, *(fields[n] for n in ("R", "u", "pad_h")), 1, fields["ceil"])
    W = extents(draw, *(fields[n] for n in ("S", "v", "pad_w")), 1, fields["ceil"])
    include_pad = draw(st.integers(0, 1))
    return AvgPoolShape(draw(st.integers(1, 2)), draw(st.integers(1, 3)), H, W, **fields, include_pad=include_pad)


global_shapes = st.builds(GlobalShape, st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))

# -- hard values -------------------------------------------------------------------------------------
KINDS = ("ties", "zeros", "negative", "infinite", "NaN")


def hard(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns x, float32, with few different values, none above zero, or values that are no numbers."""
    rng = np.random.default_rng(3)
    if kind == "zeros":
        return np.zeros(shape, np.float32)
    if kind == "negative":
        return -1e30 - rng.random(shape, np.float32) * np.float32(1e30)
    x = rng.integers(-1, 2, shape).astype(np.float32)
    if kind == "infinite":
        x[rng.random(shape) < 0.6] = -np.inf
        x[rng.random(shape) < 0.1] = np.inf
    if kind == "NaN":
        x[rng.random(shape) < 0.3] = np.nan
    return x


def brute_force(s: MaxPoolShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (y, index) of max pooling, window by window in Python: the rules of PyTorch's kernel, one after another."""
    y, index = np.zeros(s.y_shape, x.dtype), np.zeros(s.y_shape, int)
    for n, c, p, q in np.ndindex(s.y_shape):
        rows = [h for r in range(s.R) if 0 <= (h := p * s.u - s.pad_h + r * s.dilation_h) < s.H]
        cols = [w for t in range(s.S) if 0 <= (w := q * s.v - s.pad_w + t * s.dilation_w) < s.W]
        best, place = -np.inf, rows[0] * s.W + cols[0]
        for h in rows:
            for w in cols:
                if x[n, c, h, w] > best or np.isnan(x[n, c, h, w]):
                    best, place = x[n, c, h, w], h * s.W + w
        y[n, c, p, q], index[n, c, p, q] = best, place
    return y, index
