"""An example in one dimension: a sum of waves, and its spectrum, in which each wave is one spike. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.i18n import tr
from visuals.charts.bars import FONT

if TYPE_CHECKING:  # Plotly is slow to import: only once a chart is drawn
    from plotly.graph_objects import Figure

SAMPLES = 64
WAVES = ((3, 1.0), (11, 0.5))  # periods in the samples, height
HEIGHT = 230  # px
Wave = tuple[int, float]


def wave(periods: int, height: float, samples: int = SAMPLES) -> np.ndarray:
    """Returns float64 [samples]: one sine wave."""
    return height * np.sin(2 * np.pi * periods * np.arange(samples) / samples)


def heights(x: np.ndarray) -> np.ndarray:
    """Returns float64 [samples // 2]: the height of the wave of 0, 1, 2 ... periods in x, by NumPy's FFT."""
    result = 2 * np.abs(np.fft.rfft(x))[: len(x) // 2] / len(x)
    result[0] /= 2
    return result


def sentence() -> str:
    return tr("In the samples the waves are mixed. In the spectrum each wave is one number.")


def caption(waves: Sequence[Wave] = WAVES) -> str:
    parts = "; ".join(
        tr("{periods} periods, height {height}", periods=periods, height=f"{height:g}") for periods, height in waves
    )
    return " ".join(
        (
            tr("{n} samples of a sum of waves: {waves}.", n=SAMPLES, waves=parts),
            tr(
                "A product of spectra makes each wave larger or smaller, independently of the others: that is a filter."
            ),
        )
    )


def chart(tokens: Mapping[str, str], waves: Sequence[Wave] = WAVES) -> Figure:
    """Returns the waves and their sum on the left, the heights of its spectrum on the right."""
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, horizontal_spacing=0.09, subplot_titles=(tr("the sum"), tr("its spectrum")))
    parts = [wave(*item) for item in waves]
    for (periods, _), part in zip(waves, parts, strict=True):
        figure.add_scatter(
            y=part,
            mode="lines",
            line={"color": tokens["dim"], "width": 1, "dash": "dot"},
            row=1,
            col=1,
            hovertemplate=tr("the wave of {periods} periods: %{y:.3g}", periods=periods) + "<extra></extra>",
        )
    total = np.sum(parts, axis=0)
    figure.add_scatter(
        y=total,
        mode="lines+markers",
        line={"color": tokens["input"], "width": 1.5},
        marker={"size": 4},
        row=1,
        col=1,
        hovertemplate=tr("sample %{x}: %{y:.3g}") + "<extra></extra>",
    )
    figure.add_bar(
        y=heights(total),
        marker={"color": tokens["input"]},
        row=1,
        col=2,
        hovertemplate=tr("%{x} periods: %{y:.3g}") + "<extra></extra>",
    )
    axis = {
        "fixedrange": True,
        "automargin": True,
        "zeroline": False,
        "gridcolor": tokens["line"],
        "linecolor": tokens["line"],
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "title_font": {"size": 12, "color": tokens["dim"]},
    }
    figure.update_xaxes(showgrid=False, showline=True, **axis)
    figure.update_yaxes(nticks=5, **axis)
    figure.update_xaxes(title={"text": tr("sample"), "standoff": 4}, col=1)
    figure.update_xaxes(title={"text": tr("periods"), "standoff": 4}, col=2)
    figure.update_annotations(font={"size": 12, "color": tokens["dim"]})
    return figure.update_layout(
        height=HEIGHT,
        margin={"l": 30, "r": 8, "t": 24, "b": 40},
        showlegend=False,
        bargap=0.25,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "color": tokens["ink"]},
        hoverlabel={"font": {"family": FONT, "size": 12}},
    )
