"""Curves of a training in the strip: points as shares of the chart, smoothed and thinned, and a loss as text."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.i18n import decimal

MAX_POINTS = 160  # of a curve
Points = Sequence[tuple[int, float]]  # (step, value)


def loss_text(loss: float) -> str:
    """Returns a loss as a page shows it: three digits, no power of ten for a small one."""
    return decimal(f"{loss:.3g}" if not 0 <= loss < 1e-3 else "< 0.001" if loss else "0")


def smooth(points: Points, width: int = 5) -> list[tuple[int, float]]:
    """Returns the mean of each point and those before it, at most `width`: losses of single steps jump."""
    return [
        (step, sum(loss for _, loss in points[max(0, n - width + 1) : n + 1]) / min(width, n + 1))
        for n, (step, _) in enumerate(points)
    ]


def thinned(points: Points, most: int = MAX_POINTS) -> list[tuple[int, float]]:
    """Returns at most `most` of the points, evenly, with the last one."""
    if len(points) <= most:
        return list(points)
    stride = -(-len(points) // most)
    kept = list(points[::stride])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def shares(points: Points, steps: int, top: float) -> list[list[float]]:
    """Returns points as shares of the width and the height. What lies beyond the last step, or is no number, is left out."""
    shown = [(step, value) for step, value in points if step <= steps and value == value]
    return [[round(step / steps, 4), round(min(1.0, max(0.0, value / top)), 4)] for step, value in shown]
