"""Memory of the attention ladder over N: what each rung's program allocates, what devices have, what was measured. And
what each rung moves at one shape. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import TYPE_CHECKING

from kernels.attention import traffic as attention_traffic
from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from kernels.machine.memory_levels import Levels
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.model.rung import Rung
from kernels.records import availability
from visuals.charts import units
from visuals.charts.bars import FONT

if TYPE_CHECKING:  # Plotly is slow to import: only once a chart is drawn
    from plotly.graph_objects import Figure

Row = Mapping
Tokens = Mapping[str, str]
HEIGHT = 400
MOST_N = 2**30  # no further is looked
BEYOND = 4  # the axis goes on to so many times the N that still fits
DASHES = ("solid", "dash", "dot")
# Of what was measured, by its badge: Plotly's name of the mark, and the mark.
MARKS = {"recorded": ("diamond", "◆"), "measured": ("circle", "●")}


@dataclass(frozen=True)
class Room:
    """The memory of a device."""

    device: str
    bytes: int

    @classmethod
    def of(cls, told: Levels) -> Room:
        """Its largest level."""
        return cls(told.device, told.levels[-1].bytes)


@dataclass(frozen=True)
class Line:
    """Rungs that allocate alike over N; `last` is where a rule ends them, None where none does within the chart."""

    rungs: tuple[Rung, ...]
    last: int | None

    @property
    def title(self) -> str:
        return " · ".join(rung.title for rung in self.rungs)


@dataclass(frozen=True)
class Dot:
    """The most that was allocated in a run."""

    rung: str  # its name
    N: int
    bytes: int
    predicted: int | None  # None: only the library knows
    device: str
    kind: str  # of MARKS

    @property
    def title(self) -> str:
        return find(self.rung).title


@dataclass(frozen=True)
class Chart:
    """Memory over N at B, H, d and type of `shape`, up to `right`. `rooms` from the largest."""

    shape: AttentionShape
    lines: tuple[Line, ...]
    rooms: tuple[Room, ...]
    dots: tuple[Dot, ...]
    right: int

    @property
    def marks(self) -> list[int]:
        """The N of the axis: powers of two."""
        return [2**n for n in range(3, self.right.bit_length())]


# -- predicted -------------------------------------------------------------------------------------
def allocated(rung: Rung, s: AttentionShape) -> int:
    """Bytes of inputs, output and workspace as its program has them."""
    return rung.build(s, rung.default_tiles).nbytes()


def runs(rung: Rung, s: AttentionShape) -> bool:
    return availability.runs(rung, s, rung.default_tiles)


def fits(rung: Rung, s: AttentionShape, room: int) -> int:
    """The largest N at which its rules allow it and so many bytes hold it; 0 where there is none."""
    return _last(lambda N: runs(rung, s.with_(N=N)) and allocated(rung, s.with_(N=N)) <= room)


def _last(holds: Callable[[int], bool]) -> int:
    """The largest N up to MOST_N for which it holds; what holds for an N holds for all below it."""
    low, high = 0, MOST_N
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def known(rungs: Sequence[Rung], s: AttentionShape) -> list[Rung]:
    """Those of which it is known what they allocate, a library's own kernels are not, and that run such a shape."""
    least = s.with_(N=1)
    return [rung for rung in rungs if runs(rung, least) and _workspace(rung, least) is not None]


def _workspace(rung: Rung, s: AttentionShape) -> int | None:
    return rung.cost(s, rung.build(s, rung.default_tiles)).workspace_bytes


def chart_of(
    rungs: Sequence[Rung], s: AttentionShape, rooms: Sequence[Room], dots: Sequence[Dot] = ()
) -> Chart | None:
    """None where no rung whose memory is known runs such a shape."""
    rooms, told = tuple(sorted(rooms, key=lambda room: -room.bytes)), known(rungs, s)
    if not told:
        return None
    first = min(fits(rung, s, rooms[0].bytes) for rung in told)  # the first to fit no more
    right = 2 ** (max(2 * s.N, min(BEYOND * first, MOST_N)) - 1).bit_length()
    alike: dict[tuple, list[Rung]] = {}
    for rung in told:
        last = _last(lambda N, rung=rung: runs(rung, s.with_(N=N)))
        key = allocated(rung, s.with_(N=64)), last if last < right else None
        alike.setdefault(key, []).append(rung)
    lines = tuple(Line(tuple(of), last) for (_, last), of in alike.items())
    return Chart(s, lines, rooms, tuple(dots), right)


# -- measured --------------------------------------------------------------------------------------
def dots(rows: Sequence[Row], s: AttentionShape, kind: str) -> list[Dot]:
    """The peaks of those rows of the ladder that were taken on a GPU at the B, H, d and type of `s`, one for each rung
    and N. A processor runs the same steps in NumPy, with memory of its own."""
    found: dict[tuple[str, int], Dot] = {}
    for row in rows:
        if row["engine"] != "cuda" or not row["rung"].startswith("attention/"):
            continue
        there = AttentionShape(**row["shape"])
        if there == s.with_(N=there.N, causal=there.causal, scale=there.scale):
            rung = find(row["rung"])
            program = rung.build(there, row["tiles"])
            opaque = rung.cost(there, program).workspace_bytes is None
            predicted = None if opaque else program.nbytes()
            dot = Dot(rung.name, there.N, row["peak_bytes"], predicted, row["device"], kind)
            found.setdefault((rung.name, there.N), dot)
    return list(found.values())


# -- the figure ------------------------------------------------------------------------------------
def memory(chart: Chart, tokens: Tokens) -> Figure:
    """Bytes over N, both doubling from mark to mark: a line for rungs that allocate alike, predicted; each device's
    memory across; the N of the page; what was measured as marks."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for n, line in enumerate(chart.lines):
        _predicted(figure, chart, line, DASHES[n % len(DASHES)], tokens)
    for kind, (symbol, _) in MARKS.items():
        if told := [dot for dot in chart.dots if dot.kind == kind]:
            figure.add_scatter(
                x=[d.N for d in told], y=[d.bytes for d in told], mode="markers", showlegend=False,
                marker={"symbol": symbol, "size": 9, "color": tokens["write"]},
                customdata=[[d.title, units.bytes_(d.bytes), f"{d.bytes:,}", d.device] for d in told],
                hovertemplate=f"%{{customdata[0]}} at N = %{{x:,}}: %{{customdata[1]}} (%{{customdata[2]}} bytes), {kind} on "
                "%{customdata[3]}<extra></extra>",
            )  # fmt: skip
    _rooms(figure, chart, tokens)
    figure.add_vline(chart.shape.N, line={"color": tokens["ink"], "width": 1, "dash": "dot"})
    every = chart.marks
    axis = {"fixedrange": True, "linecolor": tokens["line"], "zeroline": False, "automargin": True,
            "tickfont": {"size": 12, "color": tokens["dim"]}, "title_font": {"size": 12, "color": tokens["dim"]}}  # fmt: skip
    figure.update_xaxes(
        type="log", showgrid=False, showline=True, title={"text": "N", "standoff": 4}, tickangle=0,
        tickvals=every[::2], ticktext=[_short(N) for N in every[::2]], **axis,
    )  # fmt: skip
    figure.update_yaxes(
        type="log", gridcolor=tokens["line"], tickvals=[10.0**n for n in range(2, 16)], title={"text": "bytes", "standoff": 6},
        ticktext=["100 B", *(f"{n} {unit}" for unit in ("KB", "MB", "GB", "TB") for n in (1, 10, 100)), "1 PB"],
        **axis,
    )  # fmt: skip
    return figure.update_layout(
        height=HEIGHT, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", showlegend=True,
        legend={"orientation": "h", "y": -0.16, "yanchor": "top", "x": 0, "font": {"size": 12}},
        margin={"l": 0, "r": 6, "t": 8, "b": 4}, font={"family": FONT, "color": tokens["ink"], "size": 13},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
    )  # fmt: skip


def _short(N: int) -> str:
    """65536 -> "64 K": N is counted in powers of two."""
    for unit, scale in (("M", 2**20), ("K", 2**10)):
        if scale <= N:
            return f"{N // scale} {unit}"
    return str(N)


def _predicted(figure: Figure, chart: Chart, line: Line, dash: str, tokens: Tokens) -> None:
    """One line, with a cross where a rule ends it."""
    last = line.last or chart.right
    at = sorted(
        {n for n in chart.marks if n <= last} | {min(chart.shape.N, last)} | ({last} if line.last else set())
    )
    told = [allocated(line.rungs[0], chart.shape.with_(N=N)) for N in at]
    colour = tokens["workspace" if _workspace(line.rungs[0], chart.shape) else "output"]
    figure.add_scatter(
        x=at, y=told, mode="lines", name=escape(line.title), line={"color": colour, "width": 2, "dash": dash},
        customdata=[units.bytes_(b) for b in told],
        hovertemplate=f"{escape(line.rungs[0].title)} at N = %{{x:,}}: %{{customdata}}, predicted<extra></extra>",
    )  # fmt: skip
    if line.last:
        figure.add_scatter(
            x=at[-1:], y=told[-1:], mode="markers", marker={"symbol": "x", "size": 9, "color": colour}, showlegend=False,
            hovertemplate=f"{escape(line.rungs[0].title)} ends at N = {line.last:,}: {escape(ends(chart.shape, line))}<extra></extra>",
        )  # fmt: skip


def _rooms(figure: Figure, chart: Chart, tokens: Tokens) -> None:
    """What each device has, across; and where the first line leaves it."""
    for room in chart.rooms:
        figure.add_hline(room.bytes, line={"color": tokens["write"], "width": 1.5, "dash": "dash"})
        figure.add_annotation(
            x=0, xref="paper", y=log10(room.bytes), yref="y", text=f"{escape(room.device)}: {units.bytes_(room.bytes)}",
            showarrow=False, xanchor="left", yanchor="bottom", xshift=6, font={"size": 12, "color": tokens["write"]},
        )  # fmt: skip


# -- in words --------------------------------------------------------------------------------------
def ends(s: AttentionShape, line: Line) -> str:
    """The rule that ends a line."""
    rung = line.rungs[0]
    return next(availability.reasons(rung, s.with_(N=line.last + 1), rung.default_tiles)).partition(", got ")[
        0
    ]


def words(chart: Chart) -> list[str]:
    """How much the hungriest rung takes against the thriftiest, where each device ends, and what was measured."""
    s = chart.shape
    rungs, room = [line.rungs[0] for line in chart.lines], chart.rooms[0].bytes
    most = max(rungs, key=lambda rung: allocated(rung, s))
    least = min(rungs, key=lambda rung: (allocated(rung, s), -fits(rung, s, room)))
    big, small = allocated(most, s), allocated(least, s)
    told = []
    if big > small:
        told.append(
            f"At N = {s.N:,} {most.title} allocates {units.bytes_(big)}, {units.ratio(big / small)} times the "
            f"{units.bytes_(small)} of {least.title}: S and P are N × N for each head."
        )
    for room in chart.rooms:
        first, last = fits(most, s, room.bytes) + 1, fits(least, s, room.bytes)
        text = (
            f"{room.device} has {units.bytes_(room.bytes)}: from N = {first:,} on {most.title} no longer fits"
        )
        upto = f"up to N = {last:,}" if last < MOST_N else f"beyond N = {MOST_N:,}"
        told.append(f"{text}; {least.title} fits {upto}." if big > small else f"{text}.")
    told += [f"{line.title} ends at N = {line.last:,}: {ends(s, line)}." for line in chart.lines if line.last]
    if chart.dots:
        told.append(_measured(chart.dots))
    return told


def _measured(dots: Sequence[Dot]) -> str:
    """The measurement that is farthest from what was predicted of it."""
    compared = [dot for dot in dots if dot.predicted]
    if not compared:
        return "No peak that was measured has a prediction: only the library knows what it allocates."
    worst = max(compared, key=lambda dot: abs(dot.bytes / dot.predicted - 1))
    off = abs(worst.bytes / worst.predicted - 1)
    if not off:
        return f"All {len(compared)} measured peaks that have a prediction equal it to the byte."
    return (
        f"Of {len(compared)} measured peaks that have a prediction, the farthest from it is {worst.title}’s at N = {worst.N:,}: "
        f"{units.bytes_(worst.bytes)}, {units.share(off)} {'more' if worst.bytes > worst.predicted else 'less'}."
    )


# -- what is moved at one shape --------------------------------------------------------------------
def traffic(
    rungs: Sequence[Rung], s: AttentionShape, tiles_of: Callable[[Rung], Tiles]
) -> tuple[list[str], dict[str, list[str]]]:
    """(titles, columns by name) of the rungs that run: bytes past each level of memory, and how much work a byte feeds."""
    able = [rung for rung in rungs if availability.runs(rung, s, tiles_of(rung))]
    hbm = [rung.cost(s, rung.build(s, tiles_of(rung))).moved_bytes for rung in able]
    asked = [attention_traffic.asked(rung, s, tiles_of(rung)) for rung in able]
    columns = {
        "HBM, if caches keep everything": [units.bytes_(b) for b in hbm],
        "FLOP per byte there": [units.ratio(b and s.flops / b) for b in hbm],
        "asked of global memory by threads": [units.bytes_(b) if b else "–" for b in asked],
        "FLOP per byte asked": [units.ratio(s.flops / b) if b else "–" for b in asked],
    }
    return [rung.title for rung in able], columns


def traffic_words(rung: Rung, s: AttentionShape, tiles: Tiles) -> list[str]:
    """What tiles of Br queries save, and what causal attention leaves out; none for a rung without them."""
    if "Br" not in tiles:
        return []
    Br, Bc = tiles["Br"], tiles["Bc"]
    blocks = ceil(s.N, Br)
    told = [
        f"With Br = {Br} each head’s K and V are asked for by {blocks:,} block{'s' * (blocks > 1)}, ⌈N/Br⌉; with a query a block by "
        f"{s.N:,}."
    ]
    if s.causal:
        every = blocks * ceil(s.N, Bc)
        kept = attention_traffic.tiles_visited(s, Br, Bc)
        told.append(
            f"Causal: of {every:,} tiles of {Br} × {Bc} scores a head {kept:,} are visited ({units.share(kept / every)}), the "
            f"others hold hidden keys alone; the definition has {units.share(s.pairs / s.with_(causal=0).pairs)} of the pairs."
        )
    return told
