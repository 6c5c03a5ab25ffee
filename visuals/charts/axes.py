"""A figure with two titled axes in the theme's colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # with it comes Plotly
    from visuals.charts.plain_figure import PlainFigure

Tokens = Mapping[str, str]  # the theme's colours by name


def with_axes(x: str, y: str, height: int, tokens: Tokens) -> PlainFigure:
    """Returns an empty figure. `x` and `y` are the titles of its axes, `height` is in pixels."""
    from visuals.charts.plain_figure import PlainFigure

    figure = PlainFigure()
    font = {"size": 12, "color": tokens["dim"]}
    axis = {
        "fixedrange": True,
        "linecolor": tokens["line"],
        "gridcolor": tokens["line"],
        "zeroline": False,
        "automargin": True,
        "tickfont": font,
    }
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        plot_bgcolor="rgba(0,0,0,0)",
        paper_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.03, "yanchor": "bottom", "font": font},
        xaxis={**axis, "title": {"text": x, "font": font}},
        yaxis={**axis, "title": {"text": y, "font": font}},
    )
    return figure
