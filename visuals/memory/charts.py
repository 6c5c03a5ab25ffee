"""Figures of the lesson on threads and memory: measured slowdown over stride with the emulator's counts; and the table of
a device's memory levels. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

from kernels.i18n import mark, tr
from kernels.machine import ceilings
from kernels.machine.memory_levels import ABSENT, Level, Levels, shown
from kernels.memory.shape import BanksShape, StrideShape
from kernels.model.row import Row
from kernels.runner import run
from visuals import units
from visuals.charts.bars import FONT

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

HEIGHT = 300
WARPS = 8  # of the counted launch; requests of one warp do not depend on how many there are


@dataclass(frozen=True)
class Line:
    """Measurements over stride: rows by stride, of one device, mode and rung. `role`: colour token."""

    name: str
    rows: Mapping[int, Row]
    role: str = "input"
    symbol: str = "circle"

    @property
    def slowdowns(self) -> dict[int, float]:
        """Time relative to stride 1, by stride; empty if stride 1 is missing."""
        base = self.rows.get(1)
        return {s: row["median_ms"] / base["median_ms"] for s, row in sorted(self.rows.items())} if base else {}


# -- counts ---------------------------------------------------------------------------------------
@lru_cache(maxsize=256)
def sectors(stride: int) -> float:
    """Returns the sectors that a warp of stride/copy reads and writes in the emulator."""
    total = run("stride/copy", StrideShape(32 * WARPS, stride), engine="emulator").counted.total
    return (total["sectors_ld"] + total["sectors_st"]) / WARPS


@lru_cache(maxsize=256)
def wavefronts(stride: int, padded: bool) -> float:
    """Returns the wavefronts of each shared read of a warp of banks/ in the emulator."""
    rung = "banks/padded" if padded else "banks/plain"
    total = run(rung, BanksShape(32, stride), engine="emulator").counted.total
    return total["wavefronts_ld"] / total["shared_requests_ld"]


def relative(counts: Mapping[int, float]) -> dict[int, float]:
    """Returns each count relative to stride 1, by stride."""
    return {stride: count / counts[1] for stride, count in sorted(counts.items())}


# -- the chart -------------------------------------------------------------------------------------
def slowdown(
    lines: Sequence[Line], counted: Mapping[str, Mapping[int, float]], stride: int, tokens: Mapping[str, str]
) -> Figure:
    """Returns the figure: slowdown relative to stride 1, measured (solid, p20 to p80), and relative number of sectors or
    wavefronts, counted (dotted, by name). A vertical line marks the scene's stride. Both axes are logarithmic."""
    import plotly.graph_objects as go

    figure = go.Figure()
    marks = sorted({s for line in lines for s in line.rows} | {s for counts in counted.values() for s in counts})
    for (name, counts), dash in zip(counted.items(), ("dot", "dash"), strict=False):
        figure.add_scatter(
            x=list(counts),
            y=list(counts.values()),
            name=name,
            mode="lines",
            line={"color": tokens["dim"], "width": 2, "dash": dash},
            hovertemplate=tr("{name}: {ratio}× the value at stride 1", name=escape(name), ratio="%{y:.3g}")
            + "<extra></extra>",
        )
    for line in lines:
        if line.slowdowns:
            figure.add_trace(_measured(line, tokens))
    figure.add_vline(stride, line={"color": tokens["write"], "width": 1.5})
    highest = max(
        [
            *(y for line in lines for y in line.slowdowns.values()),
            *(y for counts in counted.values() for y in counts.values()),
            2,
        ]
    )
    powers = [2**n for n in range(12) if 2**n <= highest * 1.5]
    axis = {
        "type": "log",
        "fixedrange": True,
        "automargin": True,
        "zeroline": False,
        "gridcolor": tokens["line"],
        "tickfont": {"color": tokens["dim"]},
    }
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 0, "r": 8, "t": 4, "b": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": tokens["ink"], "size": 13, "family": FONT},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        xaxis=axis
        | {
            "tickvals": marks,
            "title": {"text": tr("stride, in floats"), "font": {"size": 12}, "standoff": 8},
            "showgrid": False,
        },
        yaxis=axis
        | {
            "tickvals": powers,
            "ticksuffix": " ×",
            "title": {"text": tr("relative to stride 1"), "font": {"size": 12}, "standoff": 12},
        },
    )
    return figure


def _measured(line: Line, tokens: Mapping[str, str]):
    import plotly.graph_objects as go

    base = line.rows[1]["median_ms"]
    rows = [line.rows[s] for s in line.slowdowns]
    return go.Scatter(
        x=list(line.slowdowns),
        y=list(line.slowdowns.values()),
        name=line.name,
        mode="lines+markers",
        line={"color": tokens[line.role], "width": 2},
        marker={"size": 9, "symbol": line.symbol},
        error_y={
            "type": "data",
            "symmetric": False,
            "thickness": 1.5,
            "width": 4,
            "array": [(r["p80_ms"] - r["median_ms"]) / base for r in rows],
            "arrayminus": [(r["median_ms"] - r["p20_ms"]) / base for r in rows],
        },
        customdata=[[units.time_(r["median_ms"]), r["n"]] for r in rows],
        hovertemplate=tr(
            "{name}, stride {stride}: {ratio}× the time of stride 1<br>median {median}, n = {n}",
            name=escape(line.name),
            stride="%{x}",
            ratio="%{y:.3g}",
            median="%{customdata[0]}",
            n="%{customdata[1]}",
        )
        + "<extra></extra>",
    )


# By what was counted: a sentence if the count is that of stride 1, and one if it is not.
COUNTED = {
    "sectors": (mark("The number of sectors is the same."), mark("It needs {ratio}× the sectors.")),
    "passes": (mark("The number of passes is the same."), mark("It needs {ratio}× the passes.")),
}


def slowdown_sentence(line: Line, stride: int, counted: Mapping[int, float], what: str) -> str:
    """Returns sentences with the measured slowdown at a stride and the count there (`what`: a key of COUNTED); "" if it
    was not measured."""
    ratio = line.slowdowns.get(stride)
    if ratio is None or stride == 1:
        return ""
    time, first = (units.time_(line.rows[s]["median_ms"]) for s in (stride, 1))
    same, more = COUNTED[what]
    count = units.ratio(counted[stride])
    return " ".join(
        (
            tr(
                "{kernel}: stride {stride} takes as long as stride 1 ({time}).",
                kernel=line.name,
                stride=stride,
                time=time,
            )
            if units.ratio(ratio) == "1"
            else tr(
                "{kernel}: stride {stride} takes {ratio}× the time of stride 1 ({time} instead of {first}).",
                kernel=line.name,
                stride=stride,
                ratio=units.ratio(ratio),
                time=time,
                first=first,
            ),
            tr(same) if count == "1" else tr(more, ratio=count),
        )
    )


# -- levels ----------------------------------------------------------------------------------------
# Bytes of each SM that the L1 cache and shared memory use together: NVIDIA Hopper Tuning Guide, "Unified Shared Memory/L1/Texture Cache".
L1_AND_SHARED = {"H100": 256 * 1024, "H200": 256 * 1024}


def levels_sentence(memory: Levels) -> str:
    """Returns how the sizes of the memory levels differ: those of the nearest and the farthest level that are known."""
    known = [level for level in memory.levels if level.bytes]
    if len(known) < 2:
        return ""
    first, last = known[0], known[-1]
    return tr(
        "Memory near the threads is small: {first} {size} ({each}), {last} {last_size}.",
        first=tr(first.name),
        size=units.bytes_(first.bytes),
        each=shown(first.each),
        last=tr(last.name),
        last_size=units.bytes_(last.bytes),
    )


def levels_table(memory: Levels) -> str:
    """Returns an HTML table: one row per level with its size, scope and source; last the measured copy."""
    rows = "".join(_level(level, memory) for level in memory.levels)
    if memory.copy_bytes_per_s:
        kind = "recorded" if memory.date else "measured"
        rows += _line(
            tr("copy speed"),
            units.bandwidth(memory.copy_bytes_per_s),
            units.in_decimal_units(ceilings.shown(memory.copy)),
            units.badge(kind),
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in (tr("level"), tr("size"), tr("scope and source")))
    name = escape(tr("Levels of memory"))
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="kt-table kt-levels"><tr>{head}</tr>{rows}</table></div>'
    )


def _level(level: Level, memory: Levels) -> str:
    size = "–" if level.bytes is None else units.bytes_(level.bytes)
    source = tr(level.source)
    if memory.date and level.source != ABSENT:
        source = f"{source}, {memory.date}"
    each = "; ".join(filter(None, (shown(level.each), _note(level, memory))))
    return _line(tr(level.name), size, each, f'<span class="kt-dim">{escape(source)}</span>')


def _note(level: Level, memory: Levels) -> str:
    """Returns the note of a level. That of a GPU's L1 cache says how it shares its memory."""
    names = [other.name for other in memory.levels]
    if level.name != "L1 cache" or "shared memory" not in names:
        return shown(level.note)
    for name, size in L1_AND_SHARED.items():
        if name in memory.device:
            return tr("L1 gets what shared memory leaves of the same {size}", size=units.bytes_(size))
    return tr("L1 gets what shared memory leaves of the same memory")


def _line(name: str, size: str, each: str, source: str) -> str:
    return (
        f'<tr><th scope="row" style="white-space: nowrap">{escape(name)}</th><td>{escape(size)}</td>'
        f'<td style="white-space: normal">{escape(each)} {source}</td></tr>'
    )
