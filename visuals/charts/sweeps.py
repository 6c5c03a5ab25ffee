"""Plotly figures of sweeps: over tile sizes, over the rungs of a ladder, over sizes of the problem.

Rows (kernels.records.row) in, figure or sentence out. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.row import Row
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.bars import FONT, wrap_title

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

Tokens = Mapping[str, str]
TILES_PX, SIZES_PX, BAR_PX = 230, 300, 42
MAX_LEAD, CUT_AXIS = 3, 1.3  # a bar longer than MAX_LEAD times the next is cut at CUT_AXIS times the next
MAX_TICKS = 6  # with a text, under sizes
MAX_PANELS_PER_LINE = 4  # panels side by side, at most
TEXT_PX = 110  # px, the column of numbers at the right of the ladder
# Crossing lines differ in hue, dash and symbol, so that no reader depends on one of them.
HUES = ("input", "filter", "output", "workspace", "write", "dim", "accent")
DASHES = ("solid", "dash", "dot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


def rate(row: Row) -> float:
    """Returns the FLOP/s at the median."""
    return row["flops"] / row["median_ms"] * 1e3


def provenance(rows: Sequence[Row]) -> str:
    """Returns the text of a badge for rows measured one after the other: device, mode, the range of n, and whether other
    programs disturbed one."""
    min_n, max_n = min(r["n"] for r in rows), max(r["n"] for r in rows)
    n = f"{min_n}" if min_n == max_n else tr("{low} to {high}", low=min_n, high=max_n)
    about = rows[0]["device"], rows[0]["mode"], f"n = {n}", units.disturbance(*rows)
    return ", ".join(filter(None, about))


def tiles_text(tiles: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in tiles.items())


# -- over tile sizes -----------------------------------------------------------------------------
def tiles(rows: Sequence[Row], chosen: Mapping[str, int], tokens: Tokens) -> Figure:
    """Draw a panel for each tile size that varies: every combination as a dot with its spread (p20 to p80), the best at
    each value joined by a line, the best of all as a star. A ring marks the combination `chosen` on the page."""
    from plotly.subplots import make_subplots

    names = varied_tiles(rows)
    lines, across = _grid(len(names))
    figure = make_subplots(lines, across, shared_yaxes=True, horizontal_spacing=0.03, vertical_spacing=0.3 / lines)
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


def _panel(figure: Figure, cell: dict, name: str, rows: Sequence[Row], chosen, scale: float, tokens: Tokens) -> None:
    """Draw the panel of one tile size; `cell` is its row and col in the figure."""
    values = sorted({row["tiles"][name] for row in rows})
    position = {value: n for n, value in enumerate(values)}
    _dots(figure, cell, rows, [position[r["tiles"][name]] for r in rows], scale, tokens)
    peaks = [max(rate(r) for r in rows if r["tiles"][name] == v) / scale for v in values]
    figure.add_scatter(
        x=list(range(len(values))),
        y=peaks,
        mode="lines",
        line={"color": tokens["input"], "width": 2},
        hoverinfo="skip",
        **cell,
    )
    chosen_rows = [row for row in rows if row["tiles"] == dict(chosen)]
    top = fastest(rows)
    marked = [(top, "star", "write", 13)] if top else []
    for row, symbol, role, size in (*marked, *((r, "circle-open", "ink", 14) for r in chosen_rows)):
        figure.add_scatter(
            x=[position[row["tiles"][name]]],
            y=[rate(row) / scale],
            mode="markers",
            hoverinfo="skip",
            marker={"symbol": symbol, "size": size, "color": tokens[role]},
            **cell,
        )
    figure.update_xaxes(
        title={"text": name, "standoff": 4},
        tickvals=list(range(len(values))),
        ticktext=[str(v) for v in values],
        range=[-0.6, len(values) - 0.4],
        showgrid=False,
        showline=True,
        **cell,
        **_axis(tokens),
    )


def varied_tiles(rows: Sequence[Row]) -> list[str]:
    """Returns the tile sizes with more than one value; if there is none, the first."""
    names = list(rows[0]["tiles"])
    return [n for n in names if len({r["tiles"][n] for r in rows}) > 1] or names[:1]


def _dots(figure: Figure, cell: dict, rows: Sequence[Row], x: list[int], scale: float, tokens: Tokens) -> None:
    low = [(rate(r) - r["flops"] / r["p80_ms"] * 1e3) / scale for r in rows]
    high = [(r["flops"] / r["p20_ms"] * 1e3 - rate(r)) / scale for r in rows]
    median = tr("median")
    figure.add_scatter(
        x=x,
        y=[rate(r) / scale for r in rows],
        mode="markers",
        **cell,
        marker={"size": 7, "color": tokens["input"], "opacity": 0.6},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": high,
            "arrayminus": low,
            "color": tokens["dim"],
            "thickness": 1,
            "width": 3,
        },
        customdata=[
            [
                tiles_text(r["tiles"]),
                units.time_(r["median_ms"]),
                units.time_(r["p20_ms"]),
                units.time_(r["p80_ms"]),
                r["n"],
                units.rate(r["flops"], r["median_ms"]),
            ]
            for r in rows
        ],
        hovertemplate=f"%{{customdata[0]}}<br>%{{customdata[5]}}: {median} %{{customdata[1]}}<br>"
        "p20 %{customdata[2]}, p80 %{customdata[3]}, n = %{customdata[4]}<extra></extra>",
    )


def tiles_sentence(rows: Sequence[Row], default: Mapping[str, int]) -> str:
    """Returns sentences on the best combination, compared with the rung's default and the worst."""
    top = fastest(rows)
    if top is None:
        return ""
    worst = max(rows, key=lambda r: r["median_ms"])
    sentences = [
        tr(
            "{tiles} is fastest: {time} ({rate}).",
            tiles=tiles_text(top["tiles"]),
            time=units.time_(top["median_ms"]),
            rate=units.rate(top["flops"], top["median_ms"]),
        )
    ]
    default_row = next((r for r in rows if r["tiles"] == dict(default)), None)
    if default_row is top:
        sentences.append(tr("This is the default."))
    elif default_row:
        fields = {"tiles": tiles_text(default), "ratio": units.ratio(default_row["median_ms"] / top["median_ms"])}
        sentences.append(
            tr("The spread of the default, {tiles}, overlaps with it ({ratio}× the time).", **fields)
            if within_spread(default_row, top)
            else tr("The default, {tiles}, takes {ratio}× the time.", **fields)
        )
    if worst is not top:
        sentences.append(
            tr(
                "The slowest, {tiles}, takes {ratio}× the time.",
                tiles=tiles_text(worst["tiles"]),
                ratio=units.ratio(worst["median_ms"] / top["median_ms"]),
            )
        )
    return " ".join(sentences)


# -- over the rungs of a ladder ------------------------------------------------------------------
def ladder(titled: Sequence[tuple[str, Row]], library: Row | None, tokens: Tokens) -> Figure:
    """Draw (title, row) pairs: the rate as a bar with its spread, and its share of `library`'s rate."""
    import plotly.graph_objects as go

    rows = [row for _, row in titled]
    rates, median = [rate(row) for row in rows], tr("median")
    fast, slow = ([r["flops"] / r[f"p{q}_ms"] * 1e3 for r in rows] for q in (20, 80))
    figure = go.Figure(
        go.Bar(
            y=list(range(len(rows))),
            x=rates,
            width=0.6,
            orientation="h",
            marker={"color": [tokens["dim" if row is library else "input"] for row in rows], "cornerradius": 3},
            error_x={
                "type": "data",
                "symmetric": False,
                "color": tokens["ink"],
                "thickness": 2,
                "width": 5,
                "array": [f - r for f, r in zip(fast, rates, strict=True)],
                "arrayminus": [r - s for s, r in zip(slow, rates, strict=True)],
            },
            customdata=[[title, _rate(row), units.time_(row["median_ms"]), row["n"]] for title, row in titled],
            hovertemplate=f"%{{customdata[0]}}: %{{customdata[1]}}<br>{median} %{{customdata[2]}}, n = %{{customdata[3]}}<extra></extra>",
        )
    )
    for n, row in enumerate(rows):
        share = units.share(rate(row) / rate(library)) if library else ""
        part = f"<br><span style='font-size:11px;color:{tokens['dim']}'>{share}</span>" if share else ""
        figure.add_annotation(
            x=1,
            xref="paper",
            y=n,
            text=f"<b>{_rate(row)}</b>{part}",
            showarrow=False,
            xanchor="left",
            xshift=8,
            align="left",
            font={"size": 13, "color": tokens["ink"]},
        )
    axis_end = _axis_end(fast)
    if beyond := [n for n, value in enumerate(rates) if value > axis_end]:
        figure.add_scatter(
            x=[axis_end * 0.99] * len(beyond),
            y=beyond,
            mode="markers",
            hoverinfo="skip",
            marker={"symbol": "triangle-right", "size": 12, "color": tokens["ground"]},
        )
    figure.update_xaxes(visible=False, range=[0, axis_end], fixedrange=True)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[wrap_title(title) for title, _ in titled],
        range=[len(rows) - 0.5, -0.5],
        ticklabelstandoff=8,
        automargin=True,
        showgrid=False,
        zeroline=False,
        fixedrange=True,
    )
    _lay_out(figure, ladder_px(len(rows)), tokens)
    # minreducedwidth: of the bars, on a narrow page; otherwise the start of titles is cut off.
    return figure.update_layout(margin={"l": 0, "r": TEXT_PX, "t": 4, "b": 4}, minreducedwidth=32)


def _axis_end(rates: Sequence[float]) -> float:
    """Returns the end of an axis for these bars: if one is far longer than the others, it is cut."""
    first, second = sorted((*rates, 0.0), reverse=True)[:2]
    return CUT_AXIS * second if second and first > MAX_LEAD * second else first


def ladder_px(rungs: int) -> int:
    return BAR_PX * rungs + 8


# -- over sizes ----------------------------------------------------------------------------------
Line = tuple[str, Sequence[tuple[float, Row]]]  # a title; points (size, row), sorted by size


def named_lines(lines: Sequence[Line]) -> dict[str, str]:
    """Returns {title: colour role} of the lines that have a name: the first, the fastest at the largest size, the fastest
    library call that is as exact as the others, the fastest kernel of ours. Eleven equal lines could not be distinguished.
    """
    largest = max(size for _, points in lines for size, _ in points)
    last = {title: points[-1][1] for title, points in lines if points[-1][0] == largest}
    rungs = {title: find(row["rung"]) for title, row in last.items()}
    roles = {lines[0][0]: "filter"}
    for role, titles in (
        ("workspace", rungs),
        ("output", [title for title, rung in rungs.items() if rung.library and not rung.rounds_to]),
        ("input", [title for title, rung in rungs.items() if not rung.library]),
    ):
        if titles:
            roles[max(titles, key=lambda title: rate(last[title]))] = role
    return {title: roles[title] for title, _ in lines if title in roles}


def sizes(lines: Sequence[Line], x_title: str, page_size: float | None, tokens: Tokens) -> Figure:
    """Draw the rate of each rung over the size, both logarithmic; p20 to p80 as whiskers on the named lines. A dotted
    line marks `page_size`, the size chosen on the page."""
    import plotly.graph_objects as go

    figure = go.Figure()
    top, unit = _unit(max(rate(row) for _, points in lines for _, row in points))
    named = named_lines(lines)
    for title, points in sorted(lines, key=lambda line: line[0] in named):  # the named ones are drawn last
        _size_line(figure, title, points, named, top, tokens)
    ticks = sorted({size for _, points in lines for size, _ in points})
    figure.update_xaxes(
        type="log",
        showgrid=False,
        showline=True,
        title={"text": x_title, "standoff": 6},
        tickvals=ticks,
        ticktext=_thinned(ticks),
        tickangle=0,
        **_axis(tokens),
    )
    decades = [math.log10(rate(row) / top) for _, points in lines for _, row in points]
    axis = {}
    if max(decades) - min(decades) > 1.5:  # otherwise Plotly chooses the ticks
        powers = range(math.floor(min(decades)), math.ceil(max(decades)) + 1)
        axis = {"tickvals": [10.0**p for p in powers], "ticktext": [_tick(10.0**p * top) for p in powers]}
    figure.update_yaxes(
        type="log",
        exponentformat="none",
        title={"text": tr("{unit}, logarithmic axis", unit="FLOP/s" if axis else unit), "standoff": 6},
        gridcolor=tokens["line"],
        **axis,
        **_axis(tokens),
    )
    if page_size and ticks[0] <= page_size <= ticks[-1]:
        figure.add_vline(page_size, line={"color": tokens["ink"], "width": 1, "dash": "dot"})
    return _lay_out(figure, SIZES_PX, tokens)


def _thinned(ticks: Sequence[float]) -> list[str]:
    """Returns the texts of the ticks; of many only every second, so that they fit beside each other on a narrow page."""
    step = 1 if len(ticks) <= MAX_TICKS else 2
    return [units.whole(t) if (len(ticks) - 1 - n) % step == 0 else "" for n, t in enumerate(ticks)]


def _size_line(
    figure: Figure, title: str, points: Sequence, named: Mapping[str, str], top: float, tokens: Tokens
) -> None:
    rows = [row for _, row in points]
    colour, median = tokens[named.get(title, "dim")], tr("median")
    spread = {
        "type": "data",
        "symmetric": False,
        "thickness": 1,
        "width": 3,
        "array": [(r["flops"] / r["p20_ms"] * 1e3 - rate(r)) / top for r in rows],
        "arrayminus": [(rate(r) - r["flops"] / r["p80_ms"] * 1e3) / top for r in rows],
    }
    dash = DASHES[list(named).index(title) % len(DASHES)] if title in named else "solid"
    figure.add_scatter(
        x=[size for size, _ in points],
        y=[rate(row) / top for row in rows],
        name=title,
        mode="lines+markers" if title in named else "lines",
        opacity=1 if title in named else 0.4,
        line={"color": colour, "width": 2.5 if title in named else 1, "dash": dash},
        marker={"symbol": SYMBOLS[list(named).index(title)] if title in named else "circle", "size": 7},
        error_y=spread if title in named else None,
        customdata=[[title, _rate(r), units.time_(r["median_ms"]), r["n"]] for r in rows],
        hovertemplate=f"%{{customdata[0]}} at %{{x}}: %{{customdata[1]}}<br>{median} %{{customdata[2]}}, n = %{{customdata[3]}}<extra></extra>",
    )


def _tick(flops_per_s: float) -> str:
    """Returns the short text of a power of ten: "10 T"."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if flops_per_s >= scale * 0.999:
            return f"{flops_per_s / scale:.0f} {prefix}"
    return f"{flops_per_s:.0f}"


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
    return {
        "fixedrange": True,
        "linecolor": tokens["line"],
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "title_font": {"size": 12, "color": tokens["dim"]},
    }


def _lay_out(figure: Figure, height: int, tokens: Tokens) -> Figure:
    return figure.update_layout(
        height=height,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        margin={"l": 0, "r": 6, "t": 8, "b": 4},
        font={"color": tokens["ink"], "size": 13, "family": FONT},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
    )
