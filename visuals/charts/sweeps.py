"""Plotly figures of sweeps: over tile sizes, over the rungs of a ladder, over sizes of the problem.

Rows (kernels.records.row) in, figure or sentence out. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.bars import FONT

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

Row = Mapping
Tokens = Mapping[str, str]
TILES_PX, SIZES_PX, BAR_PX = 230, 300, 30
MAX_PANELS_PER_LINE = 4  # panels side by side, at most
TEXT_PX = 164  # px, the column of numbers at the right of the ladder
# Crossing lines differ in hue, dash and symbol, so that no reader depends on one of them.
HUES = ("input", "filter", "output", "workspace", "write", "dim", "accent")
DASHES = ("solid", "dash", "dot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


def rate(row: Row) -> float:
    """Returns the FLOP/s at the median."""
    return row["flops"] / row["median_ms"] * 1e3


def provenance(rows: Sequence[Row]) -> str:
    """Returns the text of a badge for rows measured one after the other: device, mode, the range of n."""
    min_n, max_n = min(r["n"] for r in rows), max(r["n"] for r in rows)
    n = f"{min_n}" if min_n == max_n else f"{min_n} to {max_n}"
    return f"{rows[0]['device']}, {rows[0]['mode']}, n = {n}"


def tiles_text(tiles: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in tiles.items())


# -- over tile sizes -----------------------------------------------------------------------------
def tiles(rows: Sequence[Row], chosen: Mapping[str, int], tokens: Tokens) -> Figure:
    """Draw a panel for each tile size that varies: every combination as a dot with its spread (p20 to p80), the best at
    each value joined by a line, the best of all as a star. A ring marks the combination `chosen` on the page."""
    from plotly.subplots import make_subplots

    names = varied_tiles(rows)
    lines, across = _grid(len(names))
    figure = make_subplots(
        lines, across, shared_yaxes=True, horizontal_spacing=0.03, vertical_spacing=0.3 / lines
    )
    scale, unit = _unit(max(map(rate, rows)))
    for n, name in enumerate(names):
        _panel(figure, {"row": n // across + 1, "col": n % across + 1}, name, rows, chosen, scale, tokens)
    figure.update_yaxes(rangemode="tozero", gridcolor=tokens["line"], **_axis(tokens))
    figure.update_yaxes(title={"text": unit, "standoff": 6}, col=1)
    return _lay_out(figure, tiles_px(rows), tokens)


def _grid(panels: int) -> tuple[int, int]:
    """Returns (lines, panels in each) for so many panels."""
    lines = -(-panels // MAX_PANELS_PER_LINE)
    return lines, -(-panels // lines)


def tiles_px(rows: Sequence[Row]) -> int:
    return TILES_PX * _grid(len(varied_tiles(rows)))[0]


def _panel(
    figure: Figure, cell: dict, name: str, rows: Sequence[Row], chosen, scale: float, tokens: Tokens
) -> None:
    """Draw the panel of one tile size; `cell` is its row and col in the figure."""
    values = sorted({row["tiles"][name] for row in rows})
    position = {value: n for n, value in enumerate(values)}
    _dots(figure, cell, rows, [position[r["tiles"][name]] for r in rows], scale, tokens)
    peaks = [max(rate(r) for r in rows if r["tiles"][name] == v) / scale for v in values]
    figure.add_scatter(
        x=list(range(len(values))), y=peaks, mode="lines", line={"color": tokens["input"], "width": 2},
        hoverinfo="skip", **cell,
    )  # fmt: skip
    chosen_rows = [row for row in rows if row["tiles"] == dict(chosen)]
    for row, symbol, role, size in (
        (fastest(rows), "star", "write", 13),
        *((r, "circle-open", "ink", 14) for r in chosen_rows),
    ):
        figure.add_scatter(
            x=[position[row["tiles"][name]]], y=[rate(row) / scale], mode="markers", hoverinfo="skip",
            marker={"symbol": symbol, "size": size, "color": tokens[role]}, **cell,
        )  # fmt: skip
    figure.update_xaxes(
        title={"text": name, "standoff": 4}, tickvals=list(range(len(values))), ticktext=[str(v) for v in values],
        range=[-0.6, len(values) - 0.4], showgrid=False, showline=True, **cell, **_axis(tokens),
    )  # fmt: skip


def varied_tiles(rows: Sequence[Row]) -> list[str]:
    """Returns the tile sizes with more than one value; if there is none, the first."""
    names = list(rows[0]["tiles"])
    return [n for n in names if len({r["tiles"][n] for r in rows}) > 1] or names[:1]


def _dots(
    figure: Figure, cell: dict, rows: Sequence[Row], x: list[int], scale: float, tokens: Tokens
) -> None:
    low = [(rate(r) - r["flops"] / r["p80_ms"] * 1e3) / scale for r in rows]
    high = [(r["flops"] / r["p20_ms"] * 1e3 - rate(r)) / scale for r in rows]
    figure.add_scatter(
        x=x, y=[rate(r) / scale for r in rows], mode="markers", **cell,
        marker={"size": 7, "color": tokens["input"], "opacity": 0.6},
        error_y={"type": "data", "symmetric": False, "array": high, "arrayminus": low,
                 "color": tokens["dim"], "thickness": 1, "width": 3},
        customdata=[[tiles_text(r["tiles"]), units.time_(r["median_ms"]), units.time_(r["p20_ms"]),
                     units.time_(r["p80_ms"]), r["n"], units.rate(r["flops"], r["median_ms"])] for r in rows],
        hovertemplate="%{customdata[0]}<br>%{customdata[5]}: median %{customdata[1]}<br>"
                      "p20 %{customdata[2]}, p80 %{customdata[3]}, n = %{customdata[4]}<extra></extra>",
    )  # fmt: skip


def tiles_sentence(rows: Sequence[Row], default: Mapping[str, int]) -> str:
    """Returns a sentence on the best combination, compared with the rung's default and the worst."""
    top, worst = fastest(rows), max(rows, key=lambda r: r["median_ms"])
    text = f"Best: {tiles_text(top['tiles'])} with {units.rate(top['flops'], top['median_ms'])} ({units.time_(top['median_ms'])})"
    default_row = next((r for r in rows if r["tiles"] == dict(default)), None)
    if default_row and default_row is not top:
        overlap = " (their spreads overlap)" if within_spread(default_row, top) else ""
        text += f", {default_row['median_ms'] / top['median_ms']:.3g} times as fast as the usual {tiles_text(default)}{overlap}"
    elif default_row:
        text += ", the usual combination"
    if worst is not top:
        text += f". Worst: {tiles_text(worst['tiles'])}, {worst['median_ms'] / top['median_ms']:.3g} times as long"
    return text + "."


# -- over the rungs of a ladder ------------------------------------------------------------------
def ladder(titled: Sequence[tuple[str, Row]], library: Row | None, tokens: Tokens) -> Figure:
    """Draw (title, row) pairs: the rate as a bar with its spread, and its share of `library`'s rate."""
    import plotly.graph_objects as go

    rows = [row for _, row in titled]
    rates = [rate(row) for row in rows]
    fast, slow = ([r["flops"] / r[f"p{q}_ms"] * 1e3 for r in rows] for q in (20, 80))
    figure = go.Figure(
        go.Bar(
            y=list(range(len(rows))),
            x=rates,
            width=0.6,
            orientation="h",
            marker={"color": [tokens["dim" if row is library else "input"] for row in rows], "cornerradius": 3},
            error_x={"type": "data", "symmetric": False, "color": tokens["ink"], "thickness": 2, "width": 5,
                     "array": [f - r for f, r in zip(fast, rates, strict=True)],
                     "arrayminus": [r - s for s, r in zip(slow, rates, strict=True)]},
            customdata=[[title, _rate(row), units.time_(row["median_ms"]), row["n"]] for title, row in titled],
            hovertemplate="%{customdata[0]}: %{customdata[1]}<br>median %{customdata[2]}, n = %{customdata[3]}<extra></extra>",
        )
    )  # fmt: skip
    for n, row in enumerate(rows):
        part = f" · {units.share(rate(row) / rate(library))}" if library else ""
        figure.add_annotation(
            x=1, xref="paper", y=n, text=f"<b>{_rate(row)}</b>{part}", showarrow=False, xanchor="left", xshift=8,
            font={"size": 13, "color": tokens["ink"]},
        )  # fmt: skip
    figure.update_xaxes(visible=False, range=[0, max(fast)], fixedrange=True)
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[title for title, _ in titled], range=[len(rows) - 0.5, -0.5],
        ticklabelstandoff=8, automargin=True, showgrid=False, zeroline=False, fixedrange=True,
    )  # fmt: skip
    _lay_out(figure, ladder_px(len(rows)), tokens)
    return figure.update_layout(margin={"l": 0, "r": TEXT_PX, "t": 4, "b": 4})


def ladder_px(rungs: int) -> int:
    return BAR_PX * rungs + 8


# -- over sizes ----------------------------------------------------------------------------------
def sizes(
    lines: Sequence[tuple[str, Sequence[tuple[float, Row]]]],
    x_title: str,
    page_size: float | None,
    tokens: Tokens,
) -> Figure:
    """Draw (title, points (size, row)) of each rung: its rate over the size, both logarithmic; p20 to p80 as whiskers.
    A dotted line marks `page_size`, the size chosen on the page."""
    import plotly.graph_objects as go

    figure = go.Figure()
    top, unit = _unit(max(rate(row) for _, points in lines for _, row in points))
    for n, (title, points) in enumerate(lines):
        rows = [row for _, row in points]
        figure.add_scatter(
            x=[size for size, _ in points], y=[rate(row) / top for row in rows], name=title, mode="lines+markers",
            line={"color": tokens[HUES[n % len(HUES)]], "width": 2, "dash": DASHES[n // len(HUES) % len(DASHES)]},
            marker={"symbol": SYMBOLS[n % len(SYMBOLS)], "size": 7},
            error_y={"type": "data", "symmetric": False, "thickness": 1, "width": 3,
                     "array": [(r["flops"] / r["p20_ms"] * 1e3 - rate(r)) / top for r in rows],
                     "arrayminus": [(rate(r) - r["flops"] / r["p80_ms"] * 1e3) / top for r in rows]},
            customdata=[[title, _rate(r), units.time_(r["median_ms"]), r["n"]] for r in rows],
            hovertemplate="%{customdata[0]} at %{x}: %{customdata[1]}<br>median %{customdata[2]}, n = %{customdata[3]}<extra></extra>",
        )  # fmt: skip
    ticks = sorted({size for _, points in lines for size, _ in points})
    figure.update_xaxes(
        type="log", showgrid=False, showline=True, title={"text": x_title, "standoff": 6}, tickvals=ticks, ticktext=[f"{t:,g}" for t in ticks],
        **_axis(tokens),
    )  # fmt: skip
    decades = [math.log10(rate(row)) for _, points in lines for _, row in points]
    if max(decades) - min(decades) > 1.5:
        figure.update_yaxes(dtick=1)  # otherwise Plotly writes a 2 and a 5 in between
    figure.update_yaxes(
        type="log",
        exponentformat="none",
        title={"text": unit, "standoff": 6},
        gridcolor=tokens["line"],
        **_axis(tokens),
    )
    if page_size and ticks[0] <= page_size <= ticks[-1]:
        figure.add_vline(page_size, line={"color": tokens["ink"], "width": 1, "dash": "dot"})
    _lay_out(figure, sizes_px(len(lines)), tokens)
    return figure.update_layout(
        showlegend=True,
        legend={"orientation": "h", "y": -0.24, "yanchor": "top", "x": 0, "font": {"size": 12}},
    )


def sizes_px(lines: int) -> int:
    return SIZES_PX + 18 * (lines // 3)


# -- shared -------------------------------------------------------------------------------------
def _rate(row: Row) -> str:
    return units.rate(row["flops"], row["median_ms"])


def _unit(max_rate: float) -> tuple[float, str]:
    """Returns the divisor of rates up to `max_rate`, and their unit after it."""
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if max_rate >= scale:
            return scale, unit
    return 1e3, "kFLOP/s"


def _axis(tokens: Tokens) -> dict:
    return {"fixedrange": True, "linecolor": tokens["line"], "zeroline": False, "automargin": True,
            "tickfont": {"size": 12, "color": tokens["dim"]}, "title_font": {"size": 12, "color": tokens["dim"]}}  # fmt: skip


def _lay_out(figure: Figure, height: int, tokens: Tokens) -> Figure:
    return figure.update_layout(
        height=height, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", showlegend=False,
        margin={"l": 0, "r": 6, "t": 8, "b": 4}, font={"color": tokens["ink"], "size": 13, "family": FONT},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
    )  # fmt: skip
