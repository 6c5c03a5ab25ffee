"""Plotly figures of measurements: rows (kernels.records.row) in, figure out. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from visuals import figures

if TYPE_CHECKING:  # Plotly is slow to import: only once a chart is drawn
    from plotly.graph_objects import Figure

Row = Mapping
BAR_PX = 34


def times(titled: Sequence[tuple[str, Row]], tokens: Mapping[str, str]) -> Figure:
    """(title, row) pairs: the median as a bar, p20 to p80 as its whisker, the figure at its end."""
    import plotly.graph_objects as go

    titles, rows = zip(*titled, strict=True)
    medians = [r["median_ms"] for r in rows]
    longest = max(r["p80_ms"] for r in rows)
    bars = go.Bar(
        y=list(titles),
        x=medians,
        orientation="h",
        marker={"color": tokens["input"], "cornerradius": 3},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [r["p80_ms"] - r["median_ms"] for r in rows],
            "arrayminus": [r["median_ms"] - r["p20_ms"] for r in rows],
            "color": tokens["ink"],
            "thickness": 1.2,
            "width": 3,
        },
        customdata=[
            [figures.time_(r["median_ms"]), figures.time_(r["p20_ms"]), figures.time_(r["p80_ms"]), r["n"]]
            for r in rows
        ],
        hovertemplate="%{y}: median %{customdata[0]}<br>p20 %{customdata[1]}, p80 %{customdata[2]}, n = %{customdata[3]}<extra></extra>",
    )
    figure = go.Figure(bars)
    for row, title in zip(rows, titles, strict=True):
        _write_at_end(figure, row["p80_ms"], title, figures.time_(row["median_ms"]), tokens)
    return _finish(figure, len(rows), longest, tokens)


def memory(titled: Sequence[tuple[str, Row]], tokens: Mapping[str, str]) -> Figure:
    """(title, row) pairs: bytes allocated, split into input + filters, output and workspace."""
    import plotly.graph_objects as go

    titles, rows = zip(*titled, strict=True)
    figure = go.Figure()
    for key, name, role in (
        ("input_bytes", "input + filters", "input"),
        ("output_bytes", "output", "output"),
        ("workspace_bytes", "workspace", "workspace"),
    ):
        figure.add_bar(
            y=list(titles),
            x=[r[key] for r in rows],
            orientation="h",
            name=name,
            marker={"color": tokens[role]},
            customdata=[[figures.bytes_(r[key]), f"{r[key]:,}"] for r in rows],
            hovertemplate=f"%{{y}}, {name}: %{{customdata[0]}} (%{{customdata[1]}} bytes)<extra></extra>",
        )
    for row, title in zip(rows, titles, strict=True):
        total = row["input_bytes"] + row["output_bytes"] + row["workspace_bytes"]
        _write_at_end(figure, total, title, figures.bytes_(row["peak_bytes"]), tokens)
    longest = max(r["input_bytes"] + r["output_bytes"] + r["workspace_bytes"] for r in rows)
    return _finish(figure, len(rows), longest, tokens)


def height(rows: int) -> int:
    """Pixels of a chart of so many bars."""
    return BAR_PX * rows + 8


def _write_at_end(figure: Figure, x: float, y: str, text: str, tokens: Mapping[str, str]) -> None:
    figure.add_annotation(
        x=x, y=y, text=text, showarrow=False, xanchor="left", xshift=8, font={"color": tokens["ink"], "size": 13}
    )  # fmt: skip


def _finish(figure: Figure, rows: int, longest: float, tokens: Mapping[str, str]) -> Figure:
    figure.update_layout(
        barmode="stack",
        bargap=0.45,
        height=height(rows),
        margin={"l": 0, "r": 0, "t": 4, "b": 4},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        font={"color": tokens["ink"], "size": 13},
        xaxis={"visible": False, "range": [0, longest * 1.5], "fixedrange": True},
        yaxis={"autorange": "reversed", "fixedrange": True, "ticklabelstandoff": 8, "automargin": True},
        hoverlabel={
            "bgcolor": tokens["panel"],
            "bordercolor": tokens["line"],
            "font": {"color": tokens["ink"]},
        },
    )
    return figure
