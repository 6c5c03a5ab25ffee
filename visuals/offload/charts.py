"""Charts of the lesson on CPU and GPU: both times over the size, and the speedup of a program over that of the work. Plain
Plotly figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.i18n import tr
from kernels.model.row import Json
from kernels.offload import crossover
from kernels.offload.figures import Figures
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE, PAGEABLE, PINNED
from visuals import units
from visuals.charts.axes import Tokens, with_axes
from visuals.offload.captions import BAR_TITLES, PROCESSOR
from visuals.offload.evidence import OffloadEvidence, crossing_text, size_text

if TYPE_CHECKING:  # with it comes Plotly
    from visuals.charts.plain_figure import PlainFigure

HEIGHT = 300
SIGNS = {
    CPU: ("workspace", "square", "solid"),
    NONE: ("filter", "circle", "solid"),
    PINNED: ("input", "diamond", "dash"),
    PAGEABLE: ("output", "triangle-up", "dot"),
}
LEFT = (0.01, 0.05, 0.2, 0.5)  # of the lines of Amdahl's law, beside the one of the page
FACTORS = np.geomspace(1, 1000, 61)


def times(found: OffloadEvidence, tokens: Tokens) -> PlainFigure:
    """Returns the measured times over the size, with p20 to p80, and a band where the GPU becomes faster."""
    figure = with_axes(tr(found.work.axis), tr("time in ms"), HEIGHT, tokens)
    for name, of_size in ((CPU, found.cpu_by_size), *((c, found.gpu_by_size(c)) for c in COPIES)):
        hue, symbol, dash = SIGNS[name]
        title = tr(PROCESSOR if name == CPU else BAR_TITLES[name])
        figure.add_scatter(
            x=list(of_size),
            y=[one.ms for one in of_size.values()],
            name=title,
            mode="lines+markers",
            line={"color": tokens[hue], "dash": dash, "width": 3 if name in (CPU, found.copies) else 1.5},
            marker={"color": tokens[hue], "symbol": symbol, "size": 7},
            error_y=_spread(of_size, tokens[hue]),
            hovertemplate=f"{title}: %{{y:.3g}} ms<extra></extra>",
        )
    shapes = [_line(found.point.size, tokens["write"])]
    if (where := found.crossing(found.copies)) and not where.first:
        shapes.append(_band(where.low, where.high, tokens["accent"]))
    figure.update_layout(shapes=shapes, xaxis={"type": "log", "dtick": 1}, yaxis={"type": "log", "dtick": 1})
    return figure


def _spread(of_size: Mapping[int, Figures], colour: str) -> Json:
    found = of_size.values()
    return {
        "type": "data",
        "symmetric": False,
        "array": [one.p80_ms - one.ms for one in found],
        "arrayminus": [one.ms - one.p20_ms for one in found],
        "color": colour,
        "thickness": 1,
        "width": 3,
    }


def _line(x: float, colour: str) -> Json:
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": colour, "width": 1, "dash": "dot"},
    }


def _band(low: float, high: float, colour: str) -> Json:
    return {
        "type": "rect",
        "x0": low / 1.02,
        "x1": high * 1.02,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "fillcolor": colour,
        "opacity": 0.25,
        "line": {"width": 0},
    }


def times_text(found: OffloadEvidence) -> str:
    """Returns from where on the GPU is faster with the copies of the stage, in a sentence."""
    where = found.crossing(found.copies)
    title = tr(BAR_TITLES[found.copies])
    if not where:
        return tr("{gpu}: slower than the processor up to the largest size.", gpu=title)
    if where.first:
        return tr(
            "{gpu}: faster than the processor at every measured size, from {size} on.",
            gpu=title,
            size=size_text(found.key, where.low),
        )
    return tr("{gpu}: faster than the processor from {size} on.", gpu=title, size=crossing_text(found.key, where))


def times_source(found: OffloadEvidence) -> str:
    """Returns devices, dates, n and spread of the chart, as small print."""
    cpu, gpu = found.side(CPU), found.side(GPU)
    counts = [one.n for by in (found.cpu_by_size, found.gpu_by_size(NONE)) for one in by.values()]
    passes = max((len(one.passes) for one in found.cpu_by_size.values()), default=1)
    sides = ", ".join(
        " ".join(filter(None, (tr(side.kind), side.device, side.date)))
        for side in dict.fromkeys([_key(cpu), _key(gpu)])
    )
    return tr(
        "{sides}. Medians of n = {low} to {high}, bars from p20 to p80. Caches are overwritten before each run. "
        "A run with copies adds them to the run without. The band is the range of {passes} passes over the sizes.",
        sides=sides,
        low=min(counts),
        high=max(counts),
        passes=passes,
    )


def _key(side: Any) -> Any:
    return type(side)(side.kind, side.device, side.date, ())


def amdahl(found: OffloadEvidence, tokens: Tokens) -> PlainFigure:
    """Returns the speedup of a program over that of its work, a line for each share that is left; the page's as a point."""
    figure = with_axes(tr("the work, times as fast"), tr("the program, times as fast"), HEIGHT, tokens)
    for left in sorted({*LEFT, found.left}):
        mine = left == found.left
        figure.add_scatter(
            x=[float(f) for f in FACTORS],
            y=[crossover.speedup(1 - left, float(f)) for f in FACTORS],
            mode="lines",
            name=tr("{left} left", left=units.share(left)),
            line={
                "color": tokens["write" if mine else "dim"],
                "width": 3 if mine else 1,
                "dash": "solid" if mine else "dot",
            },
        )
    if found.speedup:
        figure.add_scatter(
            x=[found.gain],
            y=[found.speedup],
            name=tr("this work"),
            mode="markers",
            marker={"color": tokens["output"], "size": 11, "symbol": "diamond"},
        )
    figure.update_layout(xaxis={"type": "log", "dtick": 1}, yaxis={"type": "log", "dtick": 1})
    return figure
