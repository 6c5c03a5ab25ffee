"""Memory of the attention ladder over N: allocated by each rung's program, available on devices, measured. And the traffic
of each rung at one shape. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import TYPE_CHECKING

from kernels.attention import traffic as attention_traffic
from kernels.attention.shape import AttentionShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import LADDERS, find
from kernels.machine.memory_levels import Levels
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.records import availability
from visuals import units
from visuals.charts.bars import FONT, PIECE
from visuals.charts.ladder_notes import capitalized

if TYPE_CHECKING:  # Plotly is slow to import: only when a chart is drawn
    from plotly.graph_objects import Figure

Tokens = Mapping[str, str]
HEIGHT = 400
MAX_N = 2**30  # upper bound of the search
BEYOND = 4  # the axis ends at so many times the largest N that fits
DASHES = ("solid", "dash", "dot")
LEGEND_CHARS = 40  # of a name in the legend, in the width of a phone
MAX_LABELS = 7  # of N on the axis, there
# Marks of measurements by their badge: Plotly's name of the symbol, and the symbol.
MARKS = {"recorded": ("diamond", "◆"), "measured": ("circle", "●")}
HOVER = {  # by badge: Plotly fills its own fields
    "recorded": mark(
        "%{customdata[0]} at N = %{x:,}: %{customdata[1]} (%{customdata[2]} bytes), recorded on %{customdata[3]}"
    ),
    "measured": mark(
        "%{customdata[0]} at N = %{x:,}: %{customdata[1]} (%{customdata[2]} bytes), measured on %{customdata[3]}"
    ),
}


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device."""

    device: str
    bytes: int

    @classmethod
    def from_levels(cls, levels: Levels) -> DeviceMemory:
        """Returns the device's largest level."""
        return cls(levels.device, levels.levels[-1].bytes or 0)


@dataclass(frozen=True)
class Line:
    """Rungs that allocate equally over N. `last`: the largest N that a rule allows; None if beyond the chart."""

    rungs: tuple[Rung, ...]
    last: int | None

    @property
    def title(self) -> str:
        return " · ".join(tr(rung.title) for rung in self.rungs)


@dataclass(frozen=True)
class Dot:
    """The peak memory of one run."""

    rung: str  # its name
    N: int
    bytes: int
    predicted: int | None  # None for a library's kernels
    device: str
    kind: str  # of MARKS

    @property
    def title(self) -> str:
        return tr(find(self.rung).title)


@dataclass(frozen=True)
class Chart:
    """Memory over N at the B, H, d and type of `shape`, up to N = `right`. `rooms`: largest first."""

    shape: AttentionShape
    lines: tuple[Line, ...]
    device_memories: tuple[DeviceMemory, ...]
    dots: tuple[Dot, ...]
    right: int

    @property
    def marks(self) -> list[int]:
        """The N of the axis' marks: powers of two."""
        return [2**n for n in range(3, self.right.bit_length())]


# -- predicted -------------------------------------------------------------------------------------
def allocated(rung: Rung, s: AttentionShape) -> int:
    """Returns the bytes of inputs, output and workspace of the rung's program."""
    return rung.build(s, rung.default_tiles).nbytes()


def runs(rung: Rung, s: AttentionShape) -> bool:
    return availability.runs(rung, s, rung.default_tiles)


def largest_N_in(rung: Rung, s: AttentionShape, capacity: int) -> int:
    """Returns the largest N at which the rung may run and fits into `capacity` bytes; 0 if there is none."""
    return _largest_N(lambda N: runs(rung, s.with_(N=N)) and allocated(rung, s.with_(N=N)) <= capacity)


def _largest_N(condition: Callable[[int], bool]) -> int:
    """Returns the largest N up to MAX_N that meets the condition, by bisection; it must hold for all smaller N."""
    low, high = 0, MAX_N
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if condition(middle) else (low, middle - 1)
    return low


def predictable(rungs: Sequence[Rung], s: AttentionShape) -> list[Rung]:
    """Returns the rungs that run such a shape and whose allocations are known. Those of a library's kernels are not."""
    smallest = s.with_(N=1)
    return [rung for rung in rungs if runs(rung, smallest) and _workspace(rung, smallest) is not None]


def _workspace(rung: Rung, s: AttentionShape) -> int | None:
    return rung.cost(s, rung.build(s, rung.default_tiles)).workspace_bytes


def chart_of(
    rungs: Sequence[Rung], s: AttentionShape, rooms: Sequence[DeviceMemory], dots: Sequence[Dot] = ()
) -> Chart | None:
    """Returns the chart; None if no rung of known memory runs such a shape."""
    rooms, predictable_rungs = tuple(sorted(rooms, key=lambda device: -device.bytes)), predictable(rungs, s)
    if not predictable_rungs:
        return None
    smallest_max_N = min(
        largest_N_in(rung, s, rooms[0].bytes) for rung in predictable_rungs
    )  # where the first rung no longer fits
    right = 2 ** (max(2 * s.N, min(BEYOND * smallest_max_N, MAX_N)) - 1).bit_length()
    groups: dict[tuple, list[Rung]] = {}
    for rung in predictable_rungs:
        last = _largest_N(lambda N, rung=rung: runs(rung, s.with_(N=N)))
        key = allocated(rung, s.with_(N=64)), last if last < right else None
        groups.setdefault(key, []).append(rung)
    lines = tuple(Line(tuple(members), last) for (_, last), members in groups.items())
    return Chart(s, lines, rooms, tuple(dots), right)


# -- measured --------------------------------------------------------------------------------------
def dots(rows: Sequence[Row], s: AttentionShape, kind: str, ladder: str = "attention") -> list[Dot]:
    """Returns the peaks of rows of a ladder measured on a GPU at the B, H, d and type of `s`, one for each rung and N. CPU
    rows are left out: NumPy allocates temporary arrays of its own."""
    peaks: dict[tuple[str, int], Dot] = {}
    for row in rows:
        if row["engine"] != "cuda" or not row["rung"].startswith(f"{ladder}/"):
            continue
        row_shape = LADDERS[ladder].shape(**row["shape"])
        if row_shape == s.with_(N=row_shape.N, causal=row_shape.causal, scale=row_shape.scale):
            rung = find(row["rung"])
            program = rung.build(row_shape, row["tiles"])
            opaque = rung.cost(row_shape, program).workspace_bytes is None
            predicted = None if opaque else program.nbytes()
            dot = Dot(rung.name, row_shape.N, row["peak_bytes"], predicted, row["device"], kind)
            peaks.setdefault((rung.name, row_shape.N), dot)
    return list(peaks.values())


# -- the figure ------------------------------------------------------------------------------------
def memory(chart: Chart, tokens: Tokens) -> Figure:
    """Returns the figure: bytes over N, both logarithmic. Lines: predicted, one for rungs that allocate equally. Horizontal
    lines: memory of each device. Vertical line: the N of the page. Marks: measured peaks."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for n, line in enumerate(chart.lines):
        _predicted(figure, chart, line, DASHES[n % len(DASHES)], tokens)
    for kind, (symbol, _) in MARKS.items():
        if kind_dots := [dot for dot in chart.dots if dot.kind == kind]:
            figure.add_scatter(
                x=[d.N for d in kind_dots],
                y=[d.bytes for d in kind_dots],
                mode="markers",
                showlegend=False,
                marker={"symbol": symbol, "size": 9, "color": tokens["write"]},
                customdata=[[d.title, units.bytes_(d.bytes), decimal(f"{d.bytes:,}"), d.device] for d in kind_dots],
                hovertemplate=f"{tr(HOVER[kind])}<extra></extra>",
            )
    _device_lines(figure, chart, tokens)
    figure.add_vline(chart.shape.N, line={"color": tokens["ink"], "width": 1, "dash": "dot"})
    labelled = chart.marks[:: max(2, ceil(len(chart.marks), MAX_LABELS))]
    axis = {
        "fixedrange": True,
        "linecolor": tokens["line"],
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "title_font": {"size": 12, "color": tokens["dim"]},
    }
    figure.update_xaxes(
        type="log",
        showgrid=False,
        showline=True,
        title={"text": "N", "standoff": 4},
        tickangle=0,
        tickvals=labelled,
        ticktext=[_short(N) for N in labelled],
        **axis,
    )
    figure.update_yaxes(
        type="log",
        gridcolor=tokens["line"],
        tickvals=[10.0**n for n in range(2, 16)],
        title={"text": tr("bytes"), "standoff": 6},
        ticktext=["100 B", *(f"{n} {unit}" for unit in ("KB", "MB", "GB", "TB") for n in (1, 10, 100)), "1 PB"],
        **axis,
    )
    return figure.update_layout(
        height=HEIGHT,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=True,
        legend={"orientation": "h", "y": -0.16, "yanchor": "top", "x": 0, "font": {"size": 12}},
        margin={"l": 0, "r": 6, "t": 8, "b": 4},
        font={"family": FONT, "color": tokens["ink"], "size": 13},
        hoverlabel={"bgcolor": tokens["panel"], "bordercolor": tokens["line"], "font": {"color": tokens["ink"]}},
    )


def _short(N: int) -> str:
    """Returns N in powers of two: 65536 -> "64 K"."""
    for unit, scale in (("M", 2**20), ("K", 2**10)):
        if scale <= N:
            return f"{N // scale} {unit}"
    return str(N)


def _legend(title: str) -> str:
    """Returns the HTML of a name in the legend. Rungs that share a line have a line of text each if one is too short."""
    return escape(title).replace(" · ", " ·<br>" if len(title) > LEGEND_CHARS else " · ")


def _predicted(figure: Figure, chart: Chart, line: Line, dash: str, tokens: Tokens) -> None:
    """Draws one line, with a cross at the N where a rule ends it."""
    last = line.last or chart.right
    lengths = sorted(
        {n for n in chart.marks if n <= last} | {min(chart.shape.N, last)} | ({last} if line.last else set())
    )
    sizes = [allocated(line.rungs[0], chart.shape.with_(N=N)) for N in lengths]
    colour = tokens["workspace" if _workspace(line.rungs[0], chart.shape) else "output"]
    hover = tr("{title} at N = %{x:,}: %{customdata}, predicted", title=escape(tr(line.rungs[0].title)))
    figure.add_scatter(
        x=lengths,
        y=sizes,
        mode="lines",
        name=_legend(line.title),
        line={"color": colour, "width": 2, "dash": dash},
        customdata=[units.bytes_(b) for b in sizes],
        hovertemplate=f"{hover}<extra></extra>",
    )
    if line.last:
        figure.add_scatter(
            x=lengths[-1:],
            y=sizes[-1:],
            mode="markers",
            marker={"symbol": "x", "size": 9, "color": colour},
            showlegend=False,
            hovertemplate=f"{escape(_end_of(chart.shape, line, tr(line.rungs[0].title)))}<extra></extra>",
        )


def _device_lines(figure: Figure, chart: Chart, tokens: Tokens) -> None:
    """Draws a horizontal line at each device's memory, with its name."""
    for device in chart.device_memories:
        figure.add_hline(device.bytes, line={"color": tokens["write"], "width": 1.5, "dash": "dash"})
        figure.add_annotation(
            x=0,
            xref="paper",
            y=log10(device.bytes),
            yref="y",
            text=f"{escape(device.device)}: {units.bytes_(device.bytes)}",
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            xshift=6,
            font={"size": 12, "color": tokens["write"]},
        )


# -- sentences ------------------------------------------------------------------------------------
def ends(s: AttentionShape, line: Line) -> str:
    """Returns the rule that ends a line."""
    rung = line.rungs[0]
    return next(availability.reasons(rung, s.with_(N=(line.last or 0) + 1), rung.default_tiles)).partition(", got ")[0]


def _end_of(s: AttentionShape, line: Line, name: str) -> str:
    return tr("{title} ends at N = {N}: {rule}.", title=name, N=decimal(f"{line.last:,}"), rule=ends(s, line))


def memory_sentences(chart: Chart, squares: str) -> list[str]:
    """Returns sentences: the largest and the smallest allocation, the N that each device can hold, the measured peaks.

    `squares` is a sentence on what grows with N²: it follows the first one."""
    s = chart.shape
    here = [line for line in chart.lines if not line.last or line.last >= s.N] or chart.lines
    rungs, largest_capacity = [line.rungs[0] for line in here], chart.device_memories[0].bytes
    largest = max(rungs, key=lambda rung: allocated(rung, s))
    smallest = min(rungs, key=lambda rung: (allocated(rung, s), -largest_N_in(rung, s, largest_capacity)))
    big, small = allocated(largest, s), allocated(smallest, s)
    sentences = []
    if big > small:
        sentences.append(
            tr(
                "At N = {N}, {largest} allocates {big}: {ratio}× the {small} of {smallest}. {squares}",
                N=decimal(f"{s.N:,}"),
                largest=tr(largest.title),
                big=units.bytes_(big),
                ratio=units.ratio(big / small),
                small=units.bytes_(small),
                smallest=tr(smallest.title),
                squares=squares,
            )
        )
    for device in chart.device_memories:
        sentences.append(_largest_fitting(largest, s, device))
        if big > small:
            sentences.append(_largest_fitting(smallest, s, device))
    sentences += [_end_of(s, line, capitalized(line.title)) for line in chart.lines if line.last]
    if chart.dots:
        sentences.append(_measured(chart.dots))
    return sentences


def _largest_fitting(rung: Rung, s: AttentionShape, device: DeviceMemory) -> str:
    last = largest_N_in(rung, s, device.bytes)
    fields = {
        "memory": units.bytes_(device.bytes),
        "device": device.device,
        "title": tr(rung.title),
        "N": decimal(f"{last:,}"),
    }
    if last == MAX_N:
        return tr("On {device} ({memory}), {title} fits beyond N = {N}.", **fields)
    return tr("On {device} ({memory}), {title} fits up to N = {N}.", **fields)


def _measured(dots: Sequence[Dot]) -> str:
    """Returns a sentence on the measurement that differs most from its prediction."""
    compared = {dot: dot.predicted for dot in dots if dot.predicted}
    if not compared:
        return tr("No measured peak has a prediction. Only the library knows its own allocations.")
    worst, predicted = max(compared.items(), key=lambda pair: abs(pair[0].bytes / pair[1] - 1))
    deviation = abs(worst.bytes / predicted - 1)
    if not deviation:
        return trn(
            "{n} measured peak has a prediction. It equals the prediction to the byte.",
            "{n} measured peaks have a prediction. All equal it to the byte.",
            len(compared),
        )
    known = trn("{n} measured peak has a prediction.", "{n} measured peaks have a prediction.", len(compared))
    fields = {
        "title": worst.title,
        "N": decimal(f"{worst.N:,}"),
        "bytes": units.bytes_(worst.bytes),
        "share": units.share(deviation),
    }
    if worst.bytes > predicted:
        largest = tr(
            "The largest deviation is that of {title} at N = {N}: {bytes}, {share} more than predicted.", **fields
        )
    else:
        largest = tr(
            "The largest deviation is that of {title} at N = {N}: {bytes}, {share} less than predicted.", **fields
        )
    return " ".join(filter(None, (known, largest, _pieces(worst))))


def _pieces(dot: Dot) -> str:
    """Returns how GPU memory is allocated if that alone can explain a measured peak; "" otherwise."""
    if dot.bytes % PIECE or not 0 < dot.bytes - (dot.predicted or 0) < 8 * PIECE:
        return ""
    return tr("GPU memory is allocated in pieces of {piece} B.", piece=PIECE)


# -- traffic at one shape --------------------------------------------------------------------------
@dataclass(frozen=True)
class Traffic:
    """The bytes that a kernel moves: at least to and from HBM, and requested by its threads. None: unknown, of a library."""

    title: str
    hbm: int | None
    requested: int | None


def traffic(rungs: Sequence[Rung], s: AttentionShape, tiles_of: Callable[[Rung], Tiles]) -> list[Traffic]:
    """Returns the traffic of the rungs that run."""
    return [
        Traffic(
            tr(rung.title),
            rung.cost(s, rung.build(s, tiles_of(rung))).moved_bytes,
            attention_traffic.requested_bytes(rung, s, tiles_of(rung)),
        )
        for rung in rungs
        if availability.runs(rung, s, tiles_of(rung))
    ]


def traffic_table(kernels: Sequence[Traffic], s: AttentionShape) -> tuple[list[str], dict[str, list[str]]]:
    """Returns (titles, columns by name): bytes moved at each level of memory, and FLOP per byte."""
    hbm, requested = [k.hbm for k in kernels], [k.requested for k in kernels]
    columns = {
        tr("HBM bytes with perfect caches"): [units.bytes_(b) for b in hbm],
        tr("FLOP per HBM byte"): [units.ratio(b and s.flops / b) for b in hbm],
        tr("bytes requested by threads"): [units.bytes_(b) if b else "–" for b in requested],
        tr("FLOP per requested byte"): [units.ratio(s.flops / b) if b else "–" for b in requested],
    }
    return [k.title for k in kernels], columns


def traffic_conclusion(kernels: Sequence[Traffic]) -> str:
    """Returns which kernel moves most and which least to and from HBM; "" if that is unknown."""
    known = [kernel for kernel in kernels if kernel.hbm]
    if not known:
        return ""
    most, least = (pick(known, key=lambda kernel: kernel.hbm or 0) for pick in (max, min))
    fields = {
        "most": units.named(most.title, first=True),
        "bytes": units.bytes_(most.hbm),
        "least": units.named(least.title),
        "least_bytes": units.bytes_(least.hbm),
    }
    if most.hbm == least.hbm:
        return tr("All kernels move at least {bytes} to and from HBM (the GPU’s main memory).", **fields)
    return tr(
        "{most} moves at least {bytes} to and from HBM (the GPU’s main memory), {least} only {least_bytes}.", **fields
    )


def traffic_sentences(rung: Rung, s: AttentionShape, tiles: Tiles) -> list[str]:
    """Returns sentences: what tiles of Br queries save, and what causal attention leaves out. [] for a rung without tiles."""
    if "Br" not in tiles:
        return []
    Br, Bc = tiles["Br"], tiles["Bc"]
    blocks = ceil(s.N, Br)
    sentences = [
        trn(
            "With Br = {Br}, {n} block per head loads K and V (⌈N/Br⌉).",
            "With Br = {Br}, {n} blocks per head each load K and V (⌈N/Br⌉).",
            blocks,
            Br=Br,
        )
        + " "
        + trn("With one query per block, {n} block would.", "With one query per block, {n} blocks would.", s.N)
    ]
    if s.window:
        all_tiles, visited = blocks * ceil(s.keys, Bc), attention_traffic.tiles_visited(s, Br, Bc)
        sentences.append(
            tr(
                "Window: the kernel loads {share} of the tiles of {Bc} keys, {visited} of {all} per head.",
                share=units.share(visited / all_tiles),
                Bc=Bc,
                visited=decimal(f"{visited:,}"),
                all=decimal(f"{all_tiles:,}"),
            )
        )
    elif s.causal:
        all_tiles = blocks * ceil(s.keys, Bc)
        visited = attention_traffic.tiles_visited(s, Br, Bc)
        sentences.append(
            tr(
                "Causal: the kernel computes {share} of the tiles of {Br} × {Bc} scores, {visited} of {all} per head. The other tiles have "
                "hidden keys only. The definition needs {pairs} of the pairs.",
                share=units.share(visited / all_tiles),
                Br=Br,
                Bc=Bc,
                visited=decimal(f"{visited:,}"),
                all=decimal(f"{all_tiles:,}"),
                pairs=units.share(s.pairs / s.with_(causal=0).pairs),
            )
        )
    return sentences
