"""Plotly figures of measurements: rows (kernels.records.row) in, figure out. Pure functions.

Rows made before a field was measured lack it: such a figure is None, or does without.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernels.ladders import ladder_of
from visuals.charts import units

if TYPE_CHECKING:  # Plotly is slow to import: only once a chart is drawn
    from plotly.graph_objects import Figure

Row = Mapping
Titled = Sequence[tuple[str, Row]]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"  # the theme's
BAR_PX, MEMORY_PX, COPY_PX, TIMELINE_PX = 44, 38, 26, 270
TEXT_PX = 118  # the column of figures at the right
STAGES_PX = 92  # under a timeline, for the names of its stages
TITLE_CHARS = 22  # of a title in a line beside its bar
STAGE_CHARS = 13  # of a stage's name in STAGES_PX
HEAD_CHARS, LEAST_CHARS = 36, 11  # that stand side by side over all panels of a timeline; in a line of one
MOST_SAMPLES = 100
MOST_LINEAR = 50  # the longest bar by the shortest: beyond that their axis is logarithmic
COPIES = (
    ("h2d_pageable", "inputs in, pageable", "input"),
    ("h2d_pinned", "inputs in, pinned", "input"),
    ("d2h_pageable", "output back, pageable", "output"),
    ("d2h_pinned", "output back, pinned", "output"),
)


# -- times ---------------------------------------------------------------------------------------
def times(titled: Titled, tokens: Mapping[str, str]) -> Figure:
    """(title, row) pairs: the median as a bar, every sample on it, p20 to p80 as its whisker, the figures at
    its end; under it a thin bar as long as so many launches of nothing take."""
    import plotly.graph_objects as go

    rows = [row for _, row in titled]
    edge = min(max(max(r["samples_ms"]) for r in rows) * 1.02, max(r["p80_ms"] for r in rows) * 1.6)
    left = decade_under(rows)
    figure = go.Figure(_median_bars(titled, tokens))
    _launches(figure, rows, left, tokens)
    for i, row in enumerate(rows):
        _strip(figure, i, row, edge, tokens)
        spread = f"{units.time_(row['p20_ms'])} to {units.time_(row['p80_ms'])}"
        _write_at_end(
            figure,
            i,
            f"<b>{units.time_(row['median_ms'])}</b><br><span style='font-size:11px;color:{tokens['dim']}'>"
            f"{_without_unit_twice(spread)}</span>",
            tokens,
        )
    _finish(figure, BAR_PX, [title for title, _ in titled], edge, tokens)
    if left:
        powers = range(round(math.log10(left)), math.ceil(math.log10(edge)))
        figure.update_xaxes(
            type="log", range=[math.log10(left), math.log10(edge)], visible=True, showticklabels=False, ticks="",
            tickvals=[10.0**p for p in powers], gridcolor=tokens["line"], zeroline=False,
        )  # fmt: skip
    return figure


def decade_under(rows: Sequence[Row]) -> float:
    """Where a logarithmic axis of their times begins, in ms: the power of ten under all of them. 0 where they are
    near enough for bars from 0."""
    least, most = min(r["median_ms"] for r in rows), max(r["median_ms"] for r in rows)
    return 10.0 ** math.floor(math.log10(least * 0.8)) if most > MOST_LINEAR * least else 0.0


def launches_of(row: Row) -> int:
    """How many launches or calls a run of it makes: its steps, which are told only where there are several."""
    return max(1, len(row.get("parts_ms") or ()))


def launch_word(row: Row) -> str:
    """What its engine launches: the cpu engine calls."""
    return "calls" if row["engine"] == "cpu" else "launches"


def launch_ms(row: Row) -> float:
    """What so many launches of nothing take on its device; 0 where that was not measured."""
    return launches_of(row) * (row.get("ceilings") or {}).get("launch_us", 0) / 1e3


def _launches(figure: Figure, rows: Sequence[Row], left: float, tokens: Mapping[str, str]) -> None:
    """Under each bar a line as long as so many launches of nothing take, where the axis, from `left` on, reaches it."""
    for i, row in enumerate(rows):
        if (ms := launch_ms(row)) > left:
            told = f"{launch_word(row)} of nothing ({launches_of(row)}): {units.time_(ms)}"
            figure.add_scatter(
                x=[left, ms], y=[i + 0.4] * 2, mode="lines", line={"color": tokens["dim"], "width": 4},
                hovertemplate=f"{told}<extra></extra>",
            )  # fmt: skip


def _without_unit_twice(spread: str) -> str:
    low, unit, rest = spread.split(" ", 2)
    return f"{low} {rest}" if spread.endswith(f" {unit}") else spread


def _median_bars(titled: Titled, tokens: Mapping[str, str]):
    import plotly.graph_objects as go

    rows = [row for _, row in titled]
    return go.Bar(
        y=list(range(len(rows))),
        x=[r["median_ms"] for r in rows],
        width=0.62,
        orientation="h",
        marker={"color": tokens["input"], "cornerradius": 3, "opacity": 0.55},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [r["p80_ms"] - r["median_ms"] for r in rows],
            "arrayminus": [r["median_ms"] - r["p20_ms"] for r in rows],
            "color": tokens["ink"],
            "thickness": 2,
            "width": 6,
        },
        customdata=[
            [title, *(units.time_(r[k]) for k in ("median_ms", "p20_ms", "p80_ms")), r["n"]]
            for title, r in titled
        ],
        hovertemplate="%{customdata[0]}: median %{customdata[1]}<br>p20 %{customdata[2]}, p80 %{customdata[3]}, n = %{customdata[4]}<extra></extra>",
    )


def thinned(samples: Sequence[float], most: int = MOST_SAMPLES) -> list[float]:
    """At most so many of the samples, evenly by rank: the spread stays as it is."""
    if len(samples) <= most:
        return list(samples)
    ordered, step = sorted(samples), (len(samples) - 1) / (most - 1)
    return [ordered[round(i * step)] for i in range(most)]


def _strip(figure: Figure, i: int, row: Row, edge: float, tokens: Mapping[str, str]) -> None:
    """The samples over bar i, spread in its height; those beyond the edge as one arrow that tells of them."""
    kept = thinned(row["samples_ms"])
    inside = [ms for ms in kept if ms <= edge]
    figure.add_scatter(
        x=[float(f"{ms:.4g}") for ms in inside],
        y=[round(i - 0.27 + 0.54 * (n * 0.618 % 1), 2) for n in range(len(inside))],
        mode="markers",
        marker={"color": tokens["ink"], "size": 3.5, "opacity": 0.5},
        hoverinfo="skip",
    )
    if beyond := [ms for ms in row["samples_ms"] if ms > edge]:
        told = f"{len(beyond)} of {row['n']} samples beyond, up to {units.time_(max(beyond))}"
        figure.add_scatter(
            x=[edge * 0.99], y=[i], mode="markers", hovertemplate=f"{told}<extra></extra>",
            marker={"symbol": "triangle-right", "size": 8, "color": tokens["dim"]},
        )  # fmt: skip


# -- copies --------------------------------------------------------------------------------------
def copies(row: Row, tokens: Mapping[str, str]) -> Figure | None:
    """The inputs to the GPU and the output back, from pageable and from pinned memory."""
    told = row.get("copies_ms")
    if not told:
        return None
    import plotly.graph_objects as go

    lines = [(told[key], title, role) for key, title, role in COPIES if key in told]
    sizes = [row["input_bytes"] if role == "input" else row["output_bytes"] for _, _, role in lines]
    rates = [units.bandwidth(size / ms * 1e3) for size, (ms, _, _) in zip(sizes, lines, strict=True)]
    figure = go.Figure(
        go.Bar(
            y=list(range(len(lines))),
            x=[ms for ms, _, _ in lines],
            width=0.5,
            orientation="h",
            marker={"color": [tokens[role] for _, _, role in lines], "cornerradius": 3},
            customdata=[[title, units.time_(ms), units.bytes_(size), rate, told.get("n", "?")]
                        for (ms, title, _), size, rate in zip(lines, sizes, rates, strict=True)],
            hovertemplate="%{customdata[0]}: median %{customdata[1]}, n = %{customdata[4]}<br>%{customdata[2]}, %{customdata[3]}<extra></extra>",
        )
    )  # fmt: skip
    for i, (ms, _, _) in enumerate(lines):
        _write_at_end(figure, i, units.time_(ms), tokens)
    longest = max(ms for ms, _, _ in lines)
    return _finish(figure, COPY_PX, [title for _, title, _ in lines], longest, tokens)


def copies_words(rows: Sequence[Row]) -> str:
    """What the copies cost beside the fastest of these runs; "" where they were not measured."""
    told = rows[0].get("copies_ms") or {}
    if not {"h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned"} <= told.keys():
        return ""
    fastest = min(r["median_ms"] for r in rows)
    ways = {kind: told[f"h2d_{kind}"] + told[f"d2h_{kind}"] for kind in ("pageable", "pinned")}
    first = rows[0]
    return (
        f"{units.bytes_(first['input_bytes'])} in and {units.bytes_(first['output_bytes'])} back take "
        f"{units.ratio(ways['pageable'] / fastest)} times as long as the fastest rung computes, from pinned memory "
        f"{units.ratio(ways['pinned'] / fastest)} times."
    )


# -- memory --------------------------------------------------------------------------------------
def roles(row: Row) -> tuple[tuple[str, str], ...]:
    """(role, what it is called on the ladder of a row)."""
    return ("input", ladder_of(row["rung"]).inputs), ("output", "output"), ("workspace", "workspace")


def alike(titled: Titled) -> list[list[tuple[str, Row]]]:
    """The (title, row) pairs, three or more together that allocate the same bytes all along, the others alone."""
    groups: dict[tuple, list[tuple[str, Row]]] = {}
    for title, row in titled:
        stages = row.get("timeline") or ()
        all_ = (row, *({f"{role}_bytes": s[role] for role, _ in roles(row)} for s in stages))
        key = row["peak_bytes"], *(s[f"{role}_bytes"] for s in all_ for role, _ in roles(row))
        groups.setdefault(key, []).append((title, row))
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > 2 else [[one] for one in group])
    ]


def together(group: Titled, all_: int) -> tuple[str, Row]:
    """One (title, row) for rungs that allocate alike, of `all_` in the chart; what each calls its steps is "step"."""
    (title, row), *others = group
    if not others:
        return title, row
    title = f"all {all_} rungs" if len(group) == all_ else f"{title} and {len(others)} others"
    stages = [
        {**stage, "at": stage["at"] if len({r["timeline"][n]["at"] for _, r in group}) == 1 else "step"}
        for n, stage in enumerate(row.get("timeline") or ())
    ]
    return title, {**row, "timeline": stages}


def memory(titled: Titled, tokens: Mapping[str, str]) -> Figure:
    """(title, row) pairs: bytes allocated, split into inputs, output and workspace."""
    import plotly.graph_objects as go

    titles, rows = zip(*titled, strict=True)
    figure = go.Figure()
    for role, name in roles(rows[0]):
        told = [r[f"{role}_bytes"] for r in rows]
        figure.add_bar(
            y=list(range(len(rows))),
            x=told,
            width=0.5,
            orientation="h",
            name=name,
            marker={"color": tokens[role]},
            customdata=[[title, units.bytes_(b), f"{b:,}"] for title, b in zip(titles, told, strict=True)],
            hovertemplate=f"%{{customdata[0]}}, {name}: %{{customdata[1]}} (%{{customdata[2]}} bytes)<extra></extra>",
        )
    for i, row in enumerate(rows):
        _write_at_end(figure, i, f"<b>{units.bytes_(row['peak_bytes'])}</b>", tokens)
    longest = max(sum(r[f"{role}_bytes"] for role, _ in roles(r)) for r in rows)
    return _finish(figure, MEMORY_PX, list(titles), longest, tokens)


def timeline(titled: Titled, tokens: Mapping[str, str]) -> Figure | None:
    """Bytes by role as the program goes on, a panel a rung: what is allocated first, then its steps. The peak
    is a line with its figure."""
    from plotly.subplots import make_subplots

    told = [(title, row) for title, row in titled if row.get("timeline")]
    if not told:
        return None
    steps = [len(row["timeline"]) for _, row in told]
    widths = [max(3, n) for n in steps]
    figure = make_subplots(1, len(told), shared_yaxes=True, horizontal_spacing=0.04, column_widths=widths)
    heads = [
        _narrow(title, max(LEAST_CHARS, HEAD_CHARS * width // sum(widths)))
        for (title, _), width in zip(told, widths, strict=True)
    ]
    for column, (head, (title, row)) in enumerate(zip(heads, told, strict=True), 1):
        stages = row["timeline"]
        for role, name in roles(row):
            figure.add_bar(
                x=list(range(len(stages))),
                y=[stage[role] for stage in stages],
                marker={"color": tokens[role]},
                customdata=[[f"{title}, {s['at']}", units.bytes_(s[role])] for s in stages],
                hovertemplate=f"%{{customdata[0]}}: {name} %{{customdata[1]}}<extra></extra>",
                row=1,
                col=column,
            )
        _panel(figure, column, head, row, tokens)
    lay_out(figure, TIMELINE_PX, tokens)
    lines = max(head.count("<br>") for head in heads) + 1
    figure.update_layout(bargap=0.12, margin={"l": 0, "r": 0, "t": max(42, 6 + 16 * lines), "b": STAGES_PX})
    most = max(row["peak_bytes"] for _, row in told)
    figure.update_yaxes(visible=False, range=[0, most * 1.18], fixedrange=True)
    return figure


def _panel(figure: Figure, column: int, title: str, row: Row, tokens: Mapping[str, str]) -> None:
    """One rung's axis, title and peak."""
    stages, dim = row["timeline"], tokens["dim"]
    figure.update_xaxes(
        tickvals=list(range(len(stages))), ticktext=[_shortened(s["at"]) for s in stages], range=[-0.5, len(stages) - 0.5],
        tickfont={"size": 11, "color": dim}, tickangle=-90, showgrid=False, zeroline=False, ticks="",
        fixedrange=True, row=1, col=column, linecolor=tokens["line"], showline=True,
    )  # fmt: skip
    peak = row["peak_bytes"]
    figure.add_hline(peak, line={"color": tokens["ink"], "width": 1, "dash": "dot"}, row=1, col=column)
    figure.add_annotation(
        x=-0.5, y=peak, text=f"peak {units.bytes_(peak)}", showarrow=False, xanchor="left", yanchor="bottom",
        font={"size": 11, "color": tokens["ink"]}, row=1, col=column,
    )  # fmt: skip
    figure.add_annotation(
        x=0, y=1, xref="x domain", yref="y domain", text=title, align="left", showarrow=False, xanchor="left", yanchor="bottom",
        yshift=6, font={"size": 12, "color": tokens["ink"]}, row=1, col=column,
    )  # fmt: skip


# -- what all share ------------------------------------------------------------------------------
def height(rows: int, px: int = BAR_PX) -> int:
    """Pixels of a chart of so many bars."""
    return px * rows + 8


def broken(title: str) -> str:
    """A rung's title in two lines: bars are long where titles are narrow."""
    if " + " in title:
        return title.replace(" + ", " +<br>")
    return "<br>".join(textwrap.wrap(title, TITLE_CHARS, break_long_words=False, break_on_hyphens=False))


def _shortened(stage: str) -> str:
    """The name of a stage as it fits under a timeline; whole when pointed at."""
    return stage if len(stage) <= STAGE_CHARS else f"{stage[: STAGE_CHARS - 1]}…"


def _narrow(title: str, most: int) -> str:
    """The same in lines of at most so many characters, a longer word apart."""
    return "<br>".join(textwrap.wrap(title, most, break_long_words=False))


def _write_at_end(figure: Figure, i: int, text: str, tokens: Mapping[str, str]) -> None:
    """The figure of bar i, in the column at the right."""
    figure.add_annotation(
        x=1, xref="paper", y=i, text=text, showarrow=False, xanchor="left", xshift=8, align="left",
        font={"color": tokens["ink"], "size": 13},
    )  # fmt: skip


def _finish(figure: Figure, px: int, titles: list[str], longest: float, tokens: Mapping[str, str]) -> Figure:
    lay_out(figure, height(len(titles), px), tokens)
    figure.update_layout(
        barmode="stack",
        minreducedwidth=32,  # of the bars, on a narrow page: else titles lose their beginning
        margin={"l": 0, "r": TEXT_PX, "t": 4, "b": 4},
        xaxis={"visible": False, "range": [0, longest], "fixedrange": True},
        yaxis={
            "tickvals": list(range(len(titles))), "ticktext": [broken(title) for title in titles], "range": [len(titles) - 0.5, -0.5],
            "fixedrange": True, "ticklabelstandoff": 8, "automargin": True, "showgrid": False, "zeroline": False,
        },
    )  # fmt: skip
    return figure


def lay_out(figure: Figure, height: int, tokens: Mapping[str, str]) -> None:
    figure.update_layout(
        barmode="stack",
        height=height,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        font={"color": tokens["ink"], "size": 13, "family": FONT},
        hoverlabel={
            "bgcolor": tokens["panel"],
            "bordercolor": tokens["line"],
            "font": {"color": tokens["ink"], "family": FONT},
        },
    )
