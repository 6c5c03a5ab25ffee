"""The launches of each rung of a chain as bars over time, one rung below the other. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import ChainShape
from kernels.i18n import tr, trn
from kernels.ladders import find
from kernels.model.row import Row
from visuals import units
from visuals.charts import bars as charts_bars

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LANE_PX, TEXT_PX = 52, 112
FOLD = "fold"


@dataclass(frozen=True)
class Bar:
    """One launch of a rung. It starts at `start` and takes `ms`."""

    name: str
    start: float
    ms: float


def bars(row: Row) -> list[Bar]:
    """Returns the launches of a row one after the other, each measured by itself. A single step takes all of the
    time."""
    parts = dict(row.get("parts_ms") or {}) or {_only(row): row["median_ms"]}
    result, start = [], 0.0
    for name, ms in parts.items():
        result.append(Bar(name, start, ms))
        start += ms
    return result


def _only(row: Row) -> str:
    """Returns the name of a rung's one launch or call."""
    if row["rung"] not in PLANS:
        return tr("all calls")
    return PLANS[row["rung"]](ChainShape(**row["shape"]), row["tiles"]).parts[0].launch.name


def longest_launch(titled: Sequence[tuple[str, Row]]) -> str:
    """Returns the longest launch of the first rung and its share of the sum of its launches."""
    title, row = titled[0]
    launches = bars(row)
    longest, total = max(launches, key=lambda bar: bar.ms), sum(bar.ms for bar in launches)
    fields = {
        "title": units.named(title, first=True),
        "name": longest.name.replace("_", " "),
        "time": units.time_(longest.ms),
    }
    if len(launches) == 1:
        return tr("{title}: {name} takes {time}.", **fields)
    return trn(
        "{title}: {name} takes longest, {time}. That is {share} of the time of {n} launch.",
        "{title}: {name} takes longest, {time}. That is {share} of the time of {n} launches.",
        len(launches),
        share=units.share(longest.ms / total),
        **fields,
    )


def px(titled: Sequence) -> int:
    return LANE_PX * len(titled) + 44


def timeline(titled: Sequence[tuple[str, Row]], tokens: Mapping[str, str]) -> Figure:
    """Draws (title, row) pairs: one bar per launch, side by side on one time axis. Under each bar a line has the
    length of an empty launch. A tick marks the median of the whole chain."""
    import plotly.graph_objects as go

    figure = go.Figure()
    lanes = [(i, row, bars(row)) for i, (_, row) in enumerate(titled)]
    end = max(max(lane_bars[-1].start + lane_bars[-1].ms, row["median_ms"]) for _, row, lane_bars in lanes)
    for i, row, lane_bars in lanes:
        _lane(figure, i, row, lane_bars, tokens)
        figure.add_annotation(
            x=1,
            xref="paper",
            y=i,
            xanchor="left",
            xshift=8,
            showarrow=False,
            align="left",
            text=f"<b>{units.time_(row['median_ms'])}</b><br><span style='font-size:11px;color:{tokens['dim']}'>{_steps(row, lane_bars)}</span>",
            font={"color": tokens["ink"], "size": 13},
        )
    charts_bars.lay_out(figure, px(titled), tokens)
    axis = {"fixedrange": True, "zeroline": False}
    figure.update_layout(
        barmode="overlay",
        uniformtext={"mode": "hide", "minsize": 10},
        margin={"l": 0, "r": TEXT_PX, "t": 4, "b": 30},
        xaxis=axis
        | {
            "range": [0, end * 1.01],
            "gridcolor": tokens["line"],
            "tickfont": {"color": tokens["dim"], "size": 11},
            "nticks": 6,
            **_unit(end),
        },
        yaxis=axis
        | {
            "tickvals": list(range(len(titled))),
            "ticktext": [charts_bars.wrap_title(escape(title)) for title, _ in titled],
            "range": [len(titled) - 0.5, -0.5],
            "automargin": True,
            "showgrid": False,
            "ticklabelstandoff": 8,
        },
    )
    return figure


def _unit(end: float) -> dict:
    """Returns the marks of the axis, four to ten, in steps of 1, 2 or 5 times a power of ten.

    The first and the last have a label: more of them overlap on a phone.
    """
    power = 10.0 ** math.floor(math.log10(end / 4))
    step = max(m * power for m in (1, 2, 5) if m * power <= end / 4)
    marks = [n * step for n in range(int(end / step) + 1)]
    labels = ["0", *[""] * (len(marks) - 2), units.time_(marks[-1])]
    return {"tickvals": marks, "ticktext": labels, "tickangle": 0}


def _steps(row: Row, lane_bars: Sequence[Bar]) -> str:
    if find(row["rung"]).library:
        return tr("timed as a whole")
    if row["engine"] == "cpu":
        return trn("{n} call", "{n} calls", len(lane_bars))
    return trn("{n} launch", "{n} launches", len(lane_bars))


def _lane(figure: Figure, i: int, row: Row, lane_bars: Sequence[Bar], tokens: Mapping[str, str]) -> None:
    """Draws a rung's bars."""
    figure.add_bar(
        y=[i] * len(lane_bars),
        x=[bar.ms for bar in lane_bars],
        base=[bar.start for bar in lane_bars],
        width=0.5,
        orientation="h",
        marker={
            "color": [tokens["filter" if bar.name.startswith(FOLD) else "input"] for bar in lane_bars],
            "line": {"color": tokens["ground"], "width": 2},
            "opacity": 0.8,
        },
        text=[bar.name.replace("_", " ") for bar in lane_bars],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": tokens["ground"], "size": 11},
        customdata=[[bar.name, units.time_(bar.ms)] for bar in lane_bars],
        hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
    )
    on_cpu = row["engine"] == "cpu"
    if ms := (row.get("ceilings") or {}).get("launch_us", 0) / 1e3:
        empty = tr("an empty call") if on_cpu else tr("an empty launch")
        for bar in lane_bars:
            figure.add_scatter(
                x=[bar.start, bar.start + ms],
                y=[i + 0.33] * 2,
                mode="lines",
                line={"color": tokens["dim"], "width": 4},
                hovertemplate=f"{empty}: {units.time_(ms)}<extra></extra>",
            )
    whole = tr("the whole chain")
    figure.add_scatter(
        x=[row["median_ms"]] * 2,
        y=[i - 0.36, i + 0.36],
        mode="lines",
        line={"color": tokens["ink"], "width": 2},
        hovertemplate=f"{whole}: {units.time_(row['median_ms'])}<extra></extra>",
    )
