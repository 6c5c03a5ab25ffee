"""Plotly figures of measurements: rows (kernels.records.row) in, figure out. Pure functions.

Rows made before a field was measured lack it: then a figure is None, or leaves the field out.
"""

from __future__ import annotations

import math
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.i18n import mark, tr, trn
from kernels.ladders import ladder_of
from kernels.model.row import Row
from visuals import units

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

    from visuals.charts.plain_figure import PlainFigure

Titled = Sequence[tuple[str, Row]]
CONFIG = Path(__file__).parents[2] / ".streamlit" / "config.toml"
FONT = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"]["font"]
BAR_PX, MEMORY_PX = 44, 38
LOG_AXIS_PX = 46  # px under bars on a logarithmic axis, for its ticks and its title
TEXT_PX = 118  # the column of figures at the right
TITLE_CHARS, MAX_TITLE_CHARS = (18, 26)  # characters of a title in a line beside its bar; more if it saves a third line
MAX_SAMPLES = 100
MAX_LINEAR_RATIO = 50  # longest bar / shortest bar: above that the axis is logarithmic
PIECE = 512  # bytes: GPU memory is handed out in multiples of it
MAX_PIECE_SHARE = 0.01  # of the peak: a difference below that is not worth a note
COPIES = (
    ("h2d_pageable", mark("to GPU, pageable"), "input"),
    ("h2d_pinned", mark("to GPU, pinned"), "input"),
    ("d2h_pageable", mark("from GPU, pageable"), "output"),
    ("d2h_pinned", mark("from GPU, pinned"), "output"),
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
        _write_value(
            figure,
            i,
            f"<b>{units.time_(row['median_ms'])}</b><br><span style='font-size:11px;color:{tokens['dim']}'>"
            f"{span(row)}</span>",
            tokens,
        )
    _finish(figure, BAR_PX, [title for title, _ in titled], axis_end, tokens)
    if axis_start:
        powers = range(round(math.log10(axis_start)), math.ceil(math.log10(axis_end)))
        dim = {"size": 12, "color": tokens["dim"]}
        figure.update_layout(height=height(len(rows)) + LOG_AXIS_PX, margin_b=LOG_AXIS_PX)
        figure.update_xaxes(
            type="log",
            range=[math.log10(axis_start), math.log10(axis_end)],
            visible=True,
            tickfont=dim,
            ticks="outside",
            tickvals=[10.0**p for p in powers],
            ticktext=_end_texts(powers),
            tickangle=0,
            tickcolor=tokens["line"],
            gridcolor=tokens["line"],
            zeroline=False,
            title={"text": tr("logarithmic axis: 10× per line"), "font": dim, "standoff": 4},
        )
    return figure


def log_axis_start(rows: Sequence[Row]) -> float:
    """Returns the start of a logarithmic axis of the times, in ms: the power of ten below all of them. 0 if the times
    are close enough for bars that begin at 0."""
    shortest, longest = min(r["median_ms"] for r in rows), max(r["median_ms"] for r in rows)
    return 10.0 ** math.floor(math.log10(shortest * 0.8)) if longest > MAX_LINEAR_RATIO * shortest else 0.0


def _end_texts(powers: Sequence[int]) -> list[str]:
    """Returns the texts of ticks at these powers of ten ms: of the first and the last, so that they fit on any page."""
    ends = (powers[0], powers[-1])
    return [units.time_(10.0**p) if p in ends else "" for p in powers]


def times_px(rows: Sequence[Row]) -> int:
    """Returns the pixels of `times` for these rows."""
    return height(len(rows)) + (LOG_AXIS_PX if log_axis_start(rows) else 0)


def launch_count(row: Row) -> int:
    """Returns how many launches or calls a run makes: its steps, which a row lists only if there are several."""
    return max(1, len(row.get("parts_ms") or ()))


def calls_functions(row: Row) -> bool:
    """Returns whether a row's engine calls functions. The other engines launch kernels."""
    return row["engine"] == "cpu"


def overhead_name(row: Row) -> str:
    """Returns the name of the overhead of a row's engine."""
    return tr("call overhead") if calls_functions(row) else tr("launch overhead")


def launch_ms(row: Row) -> float:
    """Returns the row's launch overhead on its device, in ms; 0 if that was not measured."""
    return launch_count(row) * (row.get("ceilings") or {}).get("launch_us", 0) / 1e3


def _launches(figure: Figure, rows: Sequence[Row], axis_start: float, tokens: Mapping[str, str]) -> None:
    """Draw the launch overhead as a line under each bar, if it is above `axis_start`."""
    for i, row in enumerate(rows):
        if (ms := launch_ms(row)) > axis_start:
            label = _overhead_text(row, units.time_(ms))
            figure.add_scatter(
                x=[axis_start, ms],
                y=[i + 0.4] * 2,
                mode="lines",
                line={"color": tokens["dim"], "width": 4},
                hovertemplate=f"{label}<extra></extra>",
            )


def _overhead_text(row: Row, time: str) -> str:
    if calls_functions(row):
        return trn("{n} empty call takes {time}", "{n} empty calls take {time}", launch_count(row), time=time)
    return trn(
        "{n} launch of an empty kernel takes {time}",
        "{n} launches of an empty kernel take {time}",
        launch_count(row),
        time=time,
    )


def span(row: Row) -> str:
    """Format p20 to p80, with the unit once if it is the same: "178 to 221 µs"."""
    low, high = units.time_(row["p20_ms"]), units.time_(row["p80_ms"])
    number, _, unit = low.rpartition(" ")
    return tr("{low} to {high}", low=number if high.endswith(f" {unit}") else low, high=high)


def _median_bars(titled: Titled, tokens: Mapping[str, str]):
    import plotly.graph_objects as go

    rows, median = [row for _, row in titled], tr("median")
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
            [title, *(units.time_(r[k]) for k in ("median_ms", "p20_ms", "p80_ms")), r["n"]] for title, r in titled
        ],
        hovertemplate=f"%{{customdata[0]}}: {median} %{{customdata[1]}}<br>"
        "p20 %{customdata[2]}, p80 %{customdata[3]}, n = %{customdata[4]}<extra></extra>",
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
        label = tr(
            "{n} of {total} samples are beyond the axis, up to {time}",
            n=units.whole(len(beyond)),
            total=units.whole(row["n"]),
            time=units.time_(max(beyond)),
        )
        figure.add_scatter(
            x=[axis_end * 0.99],
            y=[i],
            mode="markers",
            hovertemplate=f"{label}<extra></extra>",
            marker={"symbol": "triangle-right", "size": 8, "color": tokens["dim"]},
        )


# -- copies --------------------------------------------------------------------------------------
def copies_table(row: Row) -> str:
    """Returns an HTML list with bars: the times to copy the inputs to the GPU and the output back, with pageable and
    with pinned memory, and the rates. "" if they were not measured."""
    copies_ms = row.get("copies_ms") or {}
    bars = [(copies_ms[key], title, role) for key, title, role in COPIES if key in copies_ms]
    longest = max((ms for ms, _, _ in bars), default=0)
    lines = ""
    for ms, title, role in bars:
        size = row["input_bytes"] if role == "input" else row["output_bytes"]
        detail = f"{units.time_(ms)} · {units.bandwidth(size / ms * 1e3)}"
        lines += bar_line(tr(title), ms / longest, detail, role)
    return f'<dl class="kt-bars">{lines}</dl>' if lines else ""


def bar_line(title: str, share: float, text: str, role: str = "input") -> str:
    """Returns the HTML of a bar in a list `kt-bars`: its title, its length as a share of the longest, its text."""
    fill = f'<i style="{css(width=f"{100 * share:.1f}%", background=f"var(--kt-{role})")}"></i>'
    return f'<div><dt>{escape(title)}</dt><dd class="kt-bar">{fill}</dd><dd>{escape(text)}</dd></div>'


def css(**properties: str) -> str:
    """Returns properties as the value of a style attribute."""
    return ";".join(f"{name}:{value}" for name, value in properties.items())


def copies_sentence(rows: Sequence[Row]) -> str:
    """Returns a sentence that compares the copies with the fastest of these runs; "" if they were not measured."""
    copies_ms = rows[0].get("copies_ms") or {}
    if not {"h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned"} <= copies_ms.keys():
        return ""
    fastest = min(r["median_ms"] for r in rows)
    pageable, pinned = (copies_ms[f"h2d_{kind}"] + copies_ms[f"d2h_{kind}"] for kind in ("pageable", "pinned"))
    return tr(
        "Copying data to and from the GPU takes {pageable}× the time of the fastest kernel ({pinned}× from pinned memory).",
        pageable=units.ratio(pageable / fastest),
        pinned=units.ratio(pinned / fastest),
    )


# -- memory --------------------------------------------------------------------------------------
def roles(row: Row) -> tuple[tuple[str, str], ...]:
    """Returns (role, its name on the ladder of a row)."""
    inputs = ladder_of(row["rung"]).inputs
    return ("input", tr(inputs)), ("output", tr("output")), ("workspace", tr("workspace"))


def group_by_memory(titled: Titled) -> list[list[tuple[str, Row]]]:
    """Group (title, row) pairs that allocate the same bytes at every stage, if three or more; the others stay
    single."""
    groups: dict[tuple, list[tuple[str, Row]]] = {}
    for title, row in titled:
        stages = row.get("timeline") or ()
        allocations = (row, *({f"{role}_bytes": s[role] for role, _ in roles(row)} for s in stages))
        key = row["peak_bytes"], *(s[f"{role}_bytes"] for s in allocations for role, _ in roles(row))
        groups.setdefault(key, []).append((title, row))
    return [part for group in groups.values() for part in ([group] if len(group) > 2 else [[one] for one in group])]


def combine_group(group: Titled, total: int) -> tuple[str, Row]:
    """Returns one (title, row) for rungs that allocate the same, of `total` in the chart; steps of different names are
    "step"."""
    (title, row), *others = group
    if not others:
        return title, row
    title = (
        tr("all {n} kernels", n=total)
        if len(group) == total
        else tr("{title} and {n} others", title=title, n=len(others))
    )
    step = tr("step")
    stages = [
        {**stage, "at": stage["at"] if len({r["timeline"][n]["at"] for _, r in group}) == 1 else step}
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
            customdata=[
                [title, units.bytes_(b), units.exact_bytes(b)] for title, b in zip(titles, values, strict=True)
            ],
            hovertemplate=f"%{{customdata[0]}}, {name}: %{{customdata[1]}} (%{{customdata[2]}})<extra></extra>",
        )
    for i, row in enumerate(rows):
        _write_value(figure, i, f"<b>{units.bytes_(row['peak_bytes'])}</b>", tokens)
    longest = max(sum(r[f"{role}_bytes"] for role, _ in roles(r)) for r in rows)
    return _finish(figure, MEMORY_PX, list(titles), longest, tokens)


def pieces_note(titled: Titled) -> str:
    """Returns why a workspace is larger than predicted: GPU memory comes in pieces. "" if none is."""
    needed = [(t, r) for t, r in titled if r["engine"] == "cuda" and r.get("predicted_workspace_bytes")]
    for title, row in needed:
        more = row["workspace_bytes"] - row["predicted_workspace_bytes"]
        if row["workspace_bytes"] % PIECE == 0 and more > MAX_PIECE_SHARE * row["peak_bytes"] and more < 8 * PIECE:
            return tr(
                "GPU memory is allocated in pieces of {piece} B. The workspace of {title} needs {needed} and gets {got}: "
                "{more} more.",
                piece=PIECE,
                title=title,
                needed=units.exact_bytes(row["predicted_workspace_bytes"]),
                got=units.exact_bytes(row["workspace_bytes"]),
                more=units.exact_bytes(more),
            )
    return ""


def small_pieces_note(titled: Titled) -> str:
    """Returns `pieces_note`, or that small tensors are rounded up; "" if neither makes a difference."""
    if (text := pieces_note(titled)) or not any(_is_in_pieces(row) for _, row in titled):
        return text
    return tr("GPU memory is allocated in pieces of {piece} B. Small tensors take more than they need.", piece=PIECE)


def _is_in_pieces(row: Row) -> bool:
    """Returns whether the rounding to whole pieces is visible in the memory of a row."""
    sizes = [row[f"{role}_bytes"] for role in ("input", "output", "workspace")]
    return row["engine"] == "cuda" and sum(sizes) < 100 * PIECE and all(size % PIECE == 0 for size in sizes)


def timeline(titled: Titled) -> str:
    """Returns HTML: bytes by role over the stages of the program as bars, rung after rung. First come the allocations,
    then the steps. "" if no row has stages."""
    panels = [(title, row) for title, row in titled if row.get("timeline")]
    most = max(
        (sum(stage[role] for role, _ in roles(row)) for _, row in panels for stage in row["timeline"]), default=0
    )
    text = ""
    for title, row in panels:
        lines = "".join(_stage_line(stage, roles(row), most) for stage in row["timeline"])
        text += f'<div><dt style="grid-column:1/-1"><b>{escape(title)}</b></dt></div>{lines}'
    return f'<dl class="kt-bars">{text}</dl>' if text else ""


def _stage_line(stage: Mapping, of: Sequence[tuple[str, str]], most: int) -> str:
    """Returns the HTML of a stage: its name, a bar of its bytes by role, their sum."""
    before, parts = 0, ""
    for role, name in of:
        place = {"left": f"{100 * before / most:.2f}%", "width": f"{100 * stage[role] / most:.2f}%"}
        style = css(**place, **{"border-radius": "0", "background": f"var(--kt-{role})"})
        hint = f"{name} {units.bytes_(stage[role])}"
        parts += f'<i style="{style}" title="{escape(hint)}"></i>'
        before += stage[role]
    return f'<div><dt>{escape(stage["at"])}</dt><dd class="kt-bar">{parts}</dd><dd>{escape(units.bytes_(before))}</dd></div>'


# -- shared -------------------------------------------------------------------------------------
def height(rows: int, px: int = BAR_PX) -> int:
    """Returns the pixels of a chart of so many bars."""
    return px * rows + 8


def wrap_title(title: str) -> str:
    """Break a rung's title into short lines with <br>, which leaves more width for the bars.

    A word that is longer than a line breaks after an underscore: cuDNN's names of algorithms.
    """
    if " + " in title:
        return title.replace(" + ", " +<br>")
    words = (word.replace("_", "_ ") if len(word) > TITLE_CHARS else word for word in title.split(" "))
    spaced, lines = " ".join(words), []
    for chars in range(TITLE_CHARS, MAX_TITLE_CHARS + 1):
        lines = textwrap.wrap(spaced, chars, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= 2:
            break
    return "<br>".join(lines).replace("_ ", "_")


def _write_value(figure: Figure, i: int, text: str, tokens: Mapping[str, str]) -> None:
    """Write the value of bar i into the column at the right."""
    figure.add_annotation(
        x=1,
        xref="paper",
        y=i,
        text=text,
        showarrow=False,
        xanchor="left",
        xshift=8,
        align="left",
        font={"color": tokens["ink"], "size": 13},
    )


def _finish(figure: Figure, px: int, titles: list[str], longest: float, tokens: Mapping[str, str]) -> Figure:
    lay_out(figure, height(len(titles), px), tokens)
    figure.update_layout(
        barmode="stack",
        minreducedwidth=32,  # of the bars, on a narrow page: otherwise the start of titles is cut off
        margin={"l": 0, "r": TEXT_PX, "t": 4, "b": 4},
        xaxis={"visible": False, "range": [0, longest], "fixedrange": True},
        yaxis={
            "tickvals": list(range(len(titles))),
            "ticktext": [wrap_title(title) for title in titles],
            "range": [len(titles) - 0.5, -0.5],
            "fixedrange": True,
            "ticklabelstandoff": 8,
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
        },
    )
    return figure


def lay_out(figure: Figure | PlainFigure, height: int, tokens: Mapping[str, str]) -> None:
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
