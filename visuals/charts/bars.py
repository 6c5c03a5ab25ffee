"""Plotly figures of measurements: rows (kernels.records.row) in, figure out. Pure functions.

Rows made before a field was measured lack it: then a figure is None, or leaves the field out.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernels.ladders import ladder_of
from visuals.charts import units

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

Row = Mapping
Titled = Sequence[tuple[str, Row]]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"  # the theme's
BAR_PX, MEMORY_PX, COPY_PX, TIMELINE_PX = 44, 38, 26, 270
TEXT_PX = 118  # the column of figures at the right
STAGES_PX = 92  # px under a timeline, for the names of its stages
TITLE_CHARS = 22  # characters of a title in a line beside its bar
STAGE_CHARS = 13  # characters of a stage's name in STAGES_PX
HEAD_CHARS, MIN_CHARS = 36, 11  # characters of titles over all panels of a timeline; minimum over one panel
MAX_SAMPLES = 100
MAX_LINEAR_RATIO = 50  # longest bar / shortest bar: above that the axis is logarithmic
COPIES = (
    ("h2d_pageable", "inputs in, pageable", "input"),
    ("h2d_pinned", "inputs in, pinned", "input"),
    ("d2h_pageable", "output back, pageable", "output"),
    ("d2h_pinned", "output back, pinned", "output"),
)


# -- times ---------------------------------------------------------------------------------------
def times(titled: Titled, tokens: Mapping[str, str]) -> Figure:
    """Draw (title, row) pairs: the median as a bar, every sample on it, p20 to p80 as its whisker, the numbers at its
    end. A thin line under it shows the launch overhead: the time of as many launches of an empty kernel."""
    import plotly.graph_objects as go

    rows = [row for _, row in titled]
    axis_end = min(max(max(r["samples_ms"]) for r in rows) * 1.02, max(r["p80_ms"] for r in rows) * 1.6)
    axis_start = log_axis_start(rows)
    figure = go.Figure(_median_bars(titled, tokens))
    _launches(figure, rows, axis_start, tokens)
    for i, row in enumerate(rows):
        _strip(figure, i, row, axis_end, tokens)
        spread = f"{units.time_(row['p20_ms'])} to {units.time_(row['p80_ms'])}"
        _write_value(
            figure,
            i,
            f"<b>{units.time_(row['median_ms'])}</b><br><span style='font-size:11px;color:{tokens['dim']}'>"
            f"{_drop_repeated_unit(spread)}</span>",
            tokens,
        )
    _finish(figure, BAR_PX, [title for title, _ in titled], axis_end, tokens)
    if axis_start:
        powers = range(round(math.log10(axis_start)), math.ceil(math.log10(axis_end)))
        figure.update_xaxes(
            type="log", range=[math.log10(axis_start), math.log10(axis_end)], visible=True, showticklabels=False, ticks="",
            tickvals=[10.0**p for p in powers], gridcolor=tokens["line"], zeroline=False,
        )  # fmt: skip
    return figure


def log_axis_start(rows: Sequence[Row]) -> float:
    """Returns the start of a logarithmic axis of the times, in ms: the power of ten below all of them. 0 if the times
    are close enough for bars that begin at 0."""
    shortest, longest = min(r["median_ms"] for r in rows), max(r["median_ms"] for r in rows)
    return 10.0 ** math.floor(math.log10(shortest * 0.8)) if longest > MAX_LINEAR_RATIO * shortest else 0.0


def launch_count(row: Row) -> int:
    """Returns how many launches or calls a run makes: its steps, which a row lists only if there are several."""
    return max(1, len(row.get("parts_ms") or ()))


def launch_word(row: Row) -> str:
    """Returns what the row's engine counts: "calls" for the cpu engine, else "launches"."""
    return "calls" if row["engine"] == "cpu" else "launches"


def launch_ms(row: Row) -> float:
    """Returns the row's launch overhead on its device, in ms; 0 if that was not measured."""
    return launch_count(row) * (row.get("ceilings") or {}).get("launch_us", 0) / 1e3


def _launches(figure: Figure, rows: Sequence[Row], axis_start: float, tokens: Mapping[str, str]) -> None:
    """Draw the launch overhead as a line under each bar, if it is above `axis_start`."""
    for i, row in enumerate(rows):
        if (ms := launch_ms(row)) > axis_start:
            label = f"{launch_word(row)} of nothing ({launch_count(row)}): {units.time_(ms)}"
            figure.add_scatter(
                x=[axis_start, ms], y=[i + 0.4] * 2, mode="lines", line={"color": tokens["dim"], "width": 4},
                hovertemplate=f"{label}<extra></extra>",
            )  # fmt: skip


def _drop_repeated_unit(spread: str) -> str:
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


def thinned(samples: Sequence[float], max_samples: int = MAX_SAMPLES) -> list[float]:
    """Returns at most `max_samples` of the samples, evenly by rank, so that the spread stays the same."""
    if len(samples) <= max_samples:
        return list(samples)
    ordered, step = sorted(samples), (len(samples) - 1) / (max_samples - 1)
    return [ordered[round(i * step)] for i in range(max_samples)]


def _strip(figure: Figure, i: int, row: Row, axis_end: float, tokens: Mapping[str, str]) -> None:
    """Draw the samples over bar i, spread over its height; those beyond `axis_end` as one arrow with their number."""
    samples = thinned(row["samples_ms"])
    inside = [ms for ms in samples if ms <= axis_end]
    figure.add_scatter(
        x=[float(f"{ms:.4g}") for ms in inside],
        y=[round(i - 0.27 + 0.54 * (n * 0.618 % 1), 2) for n in range(len(inside))],
        mode="markers",
        marker={"color": tokens["ink"], "size": 3.5, "opacity": 0.5},
        hoverinfo="skip",
    )
    if beyond := [ms for ms in row["samples_ms"] if ms > axis_end]:
        label = f"{len(beyond)} of {row['n']} samples beyond, up to {units.time_(max(beyond))}"
        figure.add_scatter(
            x=[axis_end * 0.99], y=[i], mode="markers", hovertemplate=f"{label}<extra></extra>",
            marker={"symbol": "triangle-right", "size": 8, "color": tokens["dim"]},
        )  # fmt: skip


# -- copies --------------------------------------------------------------------------------------
def copies(row: Row, tokens: Mapping[str, str]) -> Figure | None:
    """Draw the times to copy the inputs to the GPU and the output back, with pageable and with pinned memory."""
    copies_ms = row.get("copies_ms")
    if not copies_ms:
        return None
    import plotly.graph_objects as go

    bars = [(copies_ms[key], title, role) for key, title, role in COPIES if key in copies_ms]
    sizes = [row["input_bytes"] if role == "input" else row["output_bytes"] for _, _, role in bars]
    rates = [units.bandwidth(size / ms * 1e3) for size, (ms, _, _) in zip(sizes, bars, strict=True)]
    figure = go.Figure(
        go.Bar(
            y=list(range(len(bars))),
            x=[ms for ms, _, _ in bars],
            width=0.5,
            orientation="h",
            marker={"color": [tokens[role] for _, _, role in bars], "cornerradius": 3},
            customdata=[[title, units.time_(ms), units.bytes_(size), rate, copies_ms.get("n", "?")]
                        for (ms, title, _), size, rate in zip(bars, sizes, rates, strict=True)],
            hovertemplate="%{customdata[0]}: median %{customdata[1]}, n = %{customdata[4]}<br>%{customdata[2]}, %{customdata[3]}<extra></extra>",
        )
    )  # fmt: skip
    for i, (ms, _, _) in enumerate(bars):
        _write_value(figure, i, units.time_(ms), tokens)
    longest = max(ms for ms, _, _ in bars)
    return _finish(figure, COPY_PX, [title for _, title, _ in bars], longest, tokens)


def copies_sentence(rows: Sequence[Row]) -> str:
    """Returns a sentence that compares the copies with the fastest of these runs; "" if they were not measured."""
    copies_ms = rows[0].get("copies_ms") or {}
    if not {"h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned"} <= copies_ms.keys():
        return ""
    fastest = min(r["median_ms"] for r in rows)
    round_trip_ms = {
        kind: copies_ms[f"h2d_{kind}"] + copies_ms[f"d2h_{kind}"] for kind in ("pageable", "pinned")
    }
    first = rows[0]
    return (
        f"{units.bytes_(first['input_bytes'])} in and {units.bytes_(first['output_bytes'])} back take "
        f"{units.ratio(round_trip_ms['pageable'] / fastest)} times as long as the fastest rung computes, from pinned memory "
        f"{units.ratio(round_trip_ms['pinned'] / fastest)} times."
    )


# -- memory --------------------------------------------------------------------------------------
def roles(row: Row) -> tuple[tuple[str, str], ...]:
    """Returns (role, its name on the ladder of a row)."""
    return ("input", ladder_of(row["rung"]).inputs), ("output", "output"), ("workspace", "workspace")


def group_by_memory(titled: Titled) -> list[list[tuple[str, Row]]]:
    """Group (title, row) pairs that allocate the same bytes at every stage, if three or more; the others stay
    single."""
    groups: dict[tuple, list[tuple[str, Row]]] = {}
    for title, row in titled:
        stages = row.get("timeline") or ()
        allocations = (row, *({f"{role}_bytes": s[role] for role, _ in roles(row)} for s in stages))
        key = row["peak_bytes"], *(s[f"{role}_bytes"] for s in allocations for role, _ in roles(row))
        groups.setdefault(key, []).append((title, row))
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > 2 else [[one] for one in group])
    ]


def combine_group(group: Titled, total: int) -> tuple[str, Row]:
    """Returns one (title, row) for rungs that allocate the same, of `total` in the chart; steps of different names are
    "step"."""
    (title, row), *others = group
    if not others:
        return title, row
    title = f"all {total} rungs" if len(group) == total else f"{title} and {len(others)} others"
    stages = [
        {**stage, "at": stage["at"] if len({r["timeline"][n]["at"] for _, r in group}) == 1 else "step"}
        for n, stage in enumerate(row.get("timeline") or ())
    ]
    return title, {**row, "timeline": stages}


def memory(titled: Titled, tokens: Mapping[str, str]) -> Figure:
    """Draw (title, row) pairs: bytes allocated, split into inputs, output and workspace."""
    import plotly.graph_objects as go

    titles, rows = zip(*titled, strict=True)
    figure = go.Figure()
    for role, name in roles(rows[0]):
        values = [r[f"{role}_bytes"] for r in rows]
        figure.add_bar(
            y=list(range(len(rows))),
            x=values,
            width=0.5,
            orientation="h",
            name=name,
            marker={"color": tokens[role]},
            customdata=[[title, units.bytes_(b), f"{b:,}"] for title, b in zip(titles, values, strict=True)],
            hovertemplate=f"%{{customdata[0]}}, {name}: %{{customdata[1]}} (%{{customdata[2]}} bytes)<extra></extra>",
        )
    for i, row in enumerate(rows):
        _write_value(figure, i, f"<b>{units.bytes_(row['peak_bytes'])}</b>", tokens)
    longest = max(sum(r[f"{role}_bytes"] for role, _ in roles(r)) for r in rows)
    return _finish(figure, MEMORY_PX, list(titles), longest, tokens)


def timeline(titled: Titled, tokens: Mapping[str, str]) -> Figure | None:
    """Draw bytes by role over the stages of the program, one panel per rung: first the allocations, then the steps. The
    peak is a line with its number. None if no row has stages."""
    from plotly.subplots import make_subplots

    panels = [(rung_title, row) for rung_title, row in titled if row.get("timeline")]
    if not panels:
        return None
    steps = [len(row["timeline"]) for _, row in panels]
    widths = [max(3, n) for n in steps]
    figure = make_subplots(1, len(panels), shared_yaxes=True, horizontal_spacing=0.04, column_widths=widths)
    titles = [
        _wrap(rung_title, max(MIN_CHARS, HEAD_CHARS * width // sum(widths)))
        for (rung_title, _), width in zip(panels, widths, strict=True)
    ]
    for column, (title, (rung_title, row)) in enumerate(zip(titles, panels, strict=True), 1):
        stages = row["timeline"]
        for role, name in roles(row):
            figure.add_bar(
                x=list(range(len(stages))),
                y=[stage[role] for stage in stages],
                marker={"color": tokens[role]},
                customdata=[[f"{rung_title}, {s['at']}", units.bytes_(s[role])] for s in stages],
                hovertemplate=f"%{{customdata[0]}}: {name} %{{customdata[1]}}<extra></extra>",
                row=1,
                col=column,
            )
        _panel(figure, column, title, row, tokens)
    lay_out(figure, TIMELINE_PX, tokens)
    lines = max(title.count("<br>") for title in titles) + 1
    figure.update_layout(bargap=0.12, margin={"l": 0, "r": 0, "t": max(42, 6 + 16 * lines), "b": STAGES_PX})
    max_peak = max(row["peak_bytes"] for _, row in panels)
    figure.update_yaxes(visible=False, range=[0, max_peak * 1.18], fixedrange=True)
    return figure


def _panel(figure: Figure, column: int, title: str, row: Row, tokens: Mapping[str, str]) -> None:
    """Draw one rung's axis, title and peak."""
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


# -- shared -------------------------------------------------------------------------------------
def height(rows: int, px: int = BAR_PX) -> int:
    """Returns the pixels of a chart of so many bars."""
    return px * rows + 8


def wrap_title(title: str) -> str:
    """Break a rung's title into short lines with <br>, which leaves more width for the bars."""
    if " + " in title:
        return title.replace(" + ", " +<br>")
    return "<br>".join(textwrap.wrap(title, TITLE_CHARS, break_long_words=False, break_on_hyphens=False))


def _shortened(stage: str) -> str:
    """Shorten the name of a stage to fit under a timeline; the hover text has it whole."""
    return stage if len(stage) <= STAGE_CHARS else f"{stage[: STAGE_CHARS - 1]}…"


def _wrap(title: str, max_chars: int) -> str:
    """Break a title into lines of at most `max_chars` characters; a longer word gets its own line."""
    return "<br>".join(textwrap.wrap(title, max_chars, break_long_words=False))


def _write_value(figure: Figure, i: int, text: str, tokens: Mapping[str, str]) -> None:
    """Write the value of bar i into the column at the right."""
    figure.add_annotation(
        x=1, xref="paper", y=i, text=text, showarrow=False, xanchor="left", xshift=8, align="left",
        font={"color": tokens["ink"], "size": 13},
    )  # fmt: skip


def _finish(figure: Figure, px: int, titles: list[str], longest: float, tokens: Mapping[str, str]) -> Figure:
    lay_out(figure, height(len(titles), px), tokens)
    figure.update_layout(
        barmode="stack",
        minreducedwidth=32,  # of the bars, on a narrow page: otherwise the start of titles is cut off
        margin={"l": 0, "r": TEXT_PX, "t": 4, "b": 4},
        xaxis={"visible": False, "range": [0, longest], "fixedrange": True},
        yaxis={
            "tickvals": list(range(len(titles))), "ticktext": [wrap_title(title) for title in titles], "range": [len(titles) - 0.5, -0.5],
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
