"""A Plotly figure as plain JSON data, without Plotly's checks.

`go.Figure` checks every property when it is set: 15 ms of processor time for the roofline. That is too much if each new
shape draws one and a hundred readers share two cores. The tests check the properties instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from plotly.basedatatypes import BaseFigure

from kernels.model.row import Json, Row


class PlainFigure(BaseFigure):
    """A figure with these methods of go.Figure. It stores their arguments unchanged and has no template."""

    def __init__(self, figure: Json | None = None):
        self._figure: Json = figure or {"data": [], "layout": {}}

    def add_scatter(self, **trace) -> None:
        self._figure["data"].append({"type": "scatter", **trace})

    def add_annotation(self, **annotation) -> None:
        self._figure["layout"].setdefault("annotations", []).append(annotation)

    def update_layout(self, **layout) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # a part of Plotly's
        _merge(self._figure["layout"], layout)

    def to_dict(self) -> Json:
        return self._figure


def _merge(target: Json, changes: Row) -> None:
    for name, value in changes.items():
        if isinstance(value, Mapping):
            _merge(target.setdefault(name, {}), value)
        else:
            target[name] = value
