"""A Drawn has the same JSON as a go.Figure after the same calls."""

from __future__ import annotations

import plotly.graph_objects as go

from visuals.charts.plain_figure import PlainFigure


def test_same_calls_give_the_same_figure():
    figures = []
    for figure in (PlainFigure(), go.Figure(layout={"template": None})):
        figure.add_scatter(x=[1, 2], y=[3, 4], mode="lines", line={"color": "#123456"})
        figure.update_layout(xaxis={"type": "log", "title": {"text": "x"}}, height=300)
        figure.add_annotation(x=1, y=2, text="one", showarrow=False)
        figure.update_layout(xaxis={"range": [0, 1], "title": {"standoff": 4}}, height=200)
        figure.add_annotation(x=2, y=2, text="two", showarrow=False)
        figures.append(figure.to_dict())
    figures[1]["layout"].pop("template", None)
    assert figures[0] == figures[1]
    assert figures[0]["layout"]["xaxis"] == {"type": "log", "title": {"text": "x", "standoff": 4}, "range": [0, 1]}
