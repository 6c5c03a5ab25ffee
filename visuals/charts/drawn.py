"""A figure as Plotly's JSON says it.

`go.Figure` checks every property as it is set, 15 ms of processor for the roofline: too much where each new shape
draws one and a hundred readers share two cores. So the tests check it instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plotly.basedatatypes import BaseFigure


class Drawn(BaseFigure):
    """Takes these calls as a go.Figure does, and keeps what they say as it was said. It has no template."""

    def __init__(self, told: dict[str, Any] | None = None):
        self._told: dict[str, Any] = told or {"data": [], "layout": {}}

    def add_scatter(self, **trace) -> None:
        self._told["data"].append({"type": "scatter", **trace})

    def add_annotation(self, **annotation) -> None:
        self._told["layout"].setdefault("annotations", []).append(annotation)

    def update_layout(self, **layout) -> None:
        _merge(self._told["layout"], layout)

    def to_dict(self) -> dict[str, Any]:
        return self._told


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value
