"""FFT compared with sliding windows as the filter grows: FLOPs by formula, times if there are recordings. Also
the cost of whole images compared with tiles. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernels import records
from kernels.conv import fft
from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import WORKSPACE
from kernels.model.row import Row
from kernels.model.rung import Ladder, Rung
from kernels.records import statistics
from visuals import units
from visuals.charts import conclusions
from visuals.charts.bars import FONT
from visuals.charts.sweeps import DASHES, HUES, SYMBOLS
from visuals.conv.fft import notes

if TYPE_CHECKING:  # Plotly is slow to import: only once a chart is drawn
    from plotly.graph_objects import Figure

RUNG = fft.RUNGS[0]
TAPS = range(1, 32)
TICKS = (1, 3, 5, 7, 9, 11, 15, 19, 23, 27, 31)
RULE = "rule"  # the only line of a tiling that a rule forbids
HEIGHT, WITH_TIMES = 340, 580  # px, without and with measured times under the FLOPs

Tiles = Mapping[str, int]
Tokens = Mapping[str, str]
Points = Sequence[tuple[int, Row]]  # (R, row)


def with_taps(s: ConvShape, taps: int) -> ConvShape:
    """Returns the shape with filters of taps x taps and the padding changed so that the output keeps its size.
    The output grows by one if that is not possible. It grows if no padding is left to remove. If the padding differs at
    the two ends of an axis, the padding before the input changes first."""
    changed = {"R": taps, "S": taps}
    for axis, dilation, more in (("h", s.dilation_h, taps - s.R), ("w", s.dilation_w, taps - s.S)):
        pad, extra, growth = getattr(s, f"pad_{axis}"), getattr(s, f"extra_{axis}"), dilation * more
        before = max(0, pad + growth if extra else pad - (-growth // 2))
        after = max(0, 2 * pad + extra + growth - before) if extra else before
        changed |= {f"pad_{axis}": before, f"extra_{axis}": after - before}
    return replace(s, **changed)


@dataclass(frozen=True)
class Flops:
    """FLOPs at one filter size; None if a rule forbids the FFT."""

    taps: int
    direct: int
    transforms: int | None
    products: int | None

    @property
    def fft(self) -> int | None:
        return None if self.transforms is None or self.products is None else self.transforms + self.products


def flops(s: ConvShape, tiles: Tiles) -> Flops:
    """Returns the FLOPs at one shape: direct 2*N*K*C*P*Q*R*S, those of the FFT as in conv_fft.executed_flops."""
    if any(RUNG.rules(s, tiles)):
        return Flops(s.R, s.flops, None, None)
    cut = fft.cut(s, tiles)
    products = (
        8 * s.N * int(cut["down"]) * int(cut["across"]) * s.K * s.C * int(cut["rows"]) * (int(cut["columns"]) // 2 + 1)
    )
    return Flops(s.R, s.flops, fft.executed_flops(s, tiles) - products, products)


def curve(s: ConvShape, tiles: Tiles) -> list[Flops]:
    """Returns the FLOPs of square filters of 1 to 31 taps a side."""
    return [flops(with_taps(s, taps), tiles) for taps in TAPS]


def crossing(counts: Sequence[Flops]) -> int | None:
    """Returns the R from which on the FFT executes fewer FLOPs than direct, as far as it can run; None if there
    is none."""
    found = None
    for f in reversed(counts):
        if f.fft is None:
            continue
        if f.fft >= f.direct:
            break
        found = f.taps
    return found


def flops_sentence(s: ConvShape, counts: Sequence[Flops]) -> str:
    """Returns from which R on the FFT executes fewer FLOPs than direct convolution, or the rule that forbids it."""
    if not any(f.fft is not None for f in counts):
        rule = next(iter(RUNG.rules(s, RUNG.default_tiles)), "")
        return tr("The FFT cannot run this shape: {rule}.", rule=rule)
    fields = {"size": f"{s.H} × {s.W}", "R": crossing(counts)}
    if fields["R"] is None:
        return tr("On images of {size}, the FFT executes more FLOPs than direct convolution at every R.", **fields)
    if fields["R"] > 1:
        return tr("From R = {R} on, the FFT executes fewer FLOPs than direct convolution.", **fields)
    return tr("The FFT executes fewer FLOPs than direct convolution at every R.")


def caption(s: ConvShape, counts: Sequence[Flops]) -> str:
    """Returns the ratio of the curves at the page's shape, and where a rule ends the curve of the FFT."""
    sentences, supported = [], [f for f in counts if f.fft is not None]
    if not supported:
        return ""
    if crossing(counts) is not None:
        current = next((f for f in supported if f.taps == s.R == s.S), None)
        if current and current.fft is not None:
            ratio = units.ratio(current.fft / current.direct)
            sentences.append(
                tr("At R = {R} the FFT executes {ratio}× the FLOPs of direct convolution.", R=s.R, ratio=ratio)
            )
        sentences.append(
            tr("Fewer FLOPs do not always take less time: transforms and spectra move many bytes per FLOP.")
        )
    if len(supported) < len(counts):
        sentences.append(
            tr("The curve of the FFT ends at R = {R}: a rule forbids larger filters.", R=supported[-1].taps)
        )
    return " ".join(sentences)


# -- times ---------------------------------------------------------------------------------------
def recorded(ladder: Ladder, s: ConvShape, tiles_of: Callable[[Rung], Tiles], timing: str) -> list[tuple[str, Points]]:
    """Returns (title, points by R) of each rung that was recorded at two filter sizes or more, with the rest of
    the shape as on the page. The FFT has a line for each FFT_TILE."""
    found = []
    for rung in ladder.rungs:
        lines = {"": dict(tiles_of(rung))}
        if rung.name == RUNG.name:
            lines = {f", {tr(tile_name(tile))}": lines[""] | {"FFT_TILE": tile} for tile in rung.tiles["FFT_TILE"]}
        for suffix, tiles in lines.items():
            rows = [(taps, records.recorded(rung.name, with_taps(s, taps), tiles, timing)) for taps in TAPS]
            points = [(taps, row) for taps, row in rows if row]
            if len(points) > 1:
                found.append((rung.title_on(points[0][1]["engine"]) + suffix, points))
    return found


def fft_sentence(times: Sequence[tuple[str, Points]]) -> str:
    """Returns from which R on our fastest FFT was recorded as faster than the kernels without an FFT, or by how much it
    loses.

    Returns "" without a recording of both at one R."""
    pairs = _fft_and_fastest_other(times)
    if not pairs:
        return ""
    best, (ours, other) = max(pairs.items(), key=lambda item: _speedup(*item[1]))
    fields = {"R": best, "ours": tr(find(ours["rung"]).title), "other": tr(find(other["rung"]).title)}
    losses = [taps for taps, pair in pairs.items() if not _is_faster(*pair)]
    if best in losses:
        return tr(
            "In the recordings no FFT wins: at best, at R = {R}, {ours} takes {ratio}× the time of {other}.",
            ratio=units.ratio(1 / _speedup(ours, other)),
            **fields,
        )
    fields["ratio"] = units.ratio(_speedup(ours, other))
    last_loss = max(losses, default=0)
    first = min((taps for taps in pairs if taps > last_loss), default=best)
    if first == best:
        return tr("In the recordings {ours} is {ratio}× as fast as {other} at R = {R}.", **fields)
    return tr(
        "In the recordings of this lesson’s kernels, an FFT wins from R = {first} on. At R = {R} {ours} is {ratio}× as fast as {other}.",
        first=first,
        **fields,
    )


def _fft_and_fastest_other(times: Sequence[tuple[str, Points]]) -> dict[int, tuple[Row, Row]]:
    """Returns, by R, the fastest rows of our FFTs and of the rungs without an FFT."""
    ours, others = {}, {}
    for _, points in times:
        for taps, row in points:
            if row["rung"] in notes.OURS:
                ours.setdefault(taps, []).append(row)
            elif "fft" not in row["rung"]:
                others.setdefault(taps, []).append(row)
    pairs = {
        taps: (statistics.fastest(ours[taps]), statistics.fastest(others[taps]))
        for taps in sorted(ours.keys() & others.keys())
    }
    return {taps: (our, other) for taps, (our, other) in pairs.items() if our and other}


def _speedup(ours: Row, other: Row) -> float:
    return other["median_ms"] / ours["median_ms"]


def _is_faster(ours: Row, other: Row) -> bool:
    return _speedup(ours, other) > 1 and not statistics.within_spread(ours, other)


def fastest(times: Sequence[tuple[str, Points]]) -> str:
    """Returns which line is the lowest in which range of R, with those whose spread overlaps its own; "" if there
    are no lines."""
    by_taps: dict[int, list[tuple[str, Row]]] = {}
    for title, points in times:
        for taps, row in points:
            by_taps.setdefault(taps, []).append((title, row))
    runs: list[list] = []  # title, first R, last R
    for taps in sorted(by_taps):
        best = statistics.fastest(row for _, row in by_taps[taps])
        title = " / ".join(title for title, row in by_taps[taps] if best and statistics.within_spread(row, best))
        if runs and runs[-1][0] == title:
            runs[-1][2] = taps
        else:
            runs.append([title, taps, taps])
    parts = [
        tr("{kernels} at R = {first} to {last}", kernels=title, first=a, last=b)
        if b > a
        else tr("{kernels} at R = {first}", kernels=title, first=a)
        for title, a, b in runs
    ]
    return tr("Fastest in the recordings: {kernels}.", kernels="; ".join(parts)) if parts else ""


def chart(s: ConvShape, counts: Sequence[Flops], times: Sequence[tuple[str, Points]], tokens: Tokens) -> Figure:
    """Returns FLOPs over R, with the FFT's split into transforms and products. Times are below, if there are any.
    A line through both marks the page's R."""
    from plotly.subplots import make_subplots

    figure = make_subplots(2 if times else 1, 1, shared_xaxes=True, vertical_spacing=0.08)
    lines = (
        (tr("FLOPs of direct"), "input", "solid", 2.5, [f.direct for f in counts]),
        (tr("FLOPs of the FFT"), "output", "solid", 2.5, [f.fft for f in counts]),
        (tr("products of the FFT"), "output", "dash", 1.5, [f.products for f in counts]),
        (tr("transforms of the FFT"), "workspace", "dot", 1.5, [f.transforms for f in counts]),
    )
    for name, hue, dash, width, values in lines:
        figure.add_scatter(
            x=list(TAPS),
            y=values,
            name=name,
            mode="lines",
            line={"color": tokens[hue], "dash": dash, "width": width},
            customdata=["" if v is None else units.count(v) for v in values],
            row=1,
            col=1,
            hovertemplate=tr("R = %{x}: {name} %{customdata}, predicted", name=name) + "<extra></extra>",
        )
    _times(figure, times, tokens)
    figure.update_yaxes(type="log", exponentformat="SI", dtick=1, gridcolor=tokens["line"], **_axis(tokens))
    figure.update_yaxes(title={"text": tr("FLOPs, predicted"), "standoff": 6}, row=1, col=1)
    figure.update_xaxes(
        range=[0.5, TAPS[-1] + 0.5], tickvals=TICKS, tickangle=0, showgrid=False, showline=True, **_axis(tokens)
    )
    figure.update_xaxes(title={"text": tr("R = S, taps per side"), "standoff": 4}, row=2 if times else 1, col=1)
    if s.R == s.S:
        figure.add_vline(x=s.R, line={"color": tokens["ink"], "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=s.R,
            y=1,
            yref="paper",
            text=tr("this page: R = {R}", R=s.R),
            showarrow=False,
            yanchor="bottom",
            xanchor="left",
            font={"size": 12, "color": tokens["ink"]},
        )
    return figure.update_layout(
        height=px(times),
        margin={"l": 4, "r": 8, "t": 26, "b": 112 if times else 76},
        font={"family": FONT, "size": 12, "color": tokens["ink"]},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        hoverlabel={"font": {"family": FONT, "size": 12}},
    )


def px(times: Sequence) -> int:
    return WITH_TIMES if times else HEIGHT


def _times(figure: Figure, times: Sequence[tuple[str, Points]], tokens: Tokens) -> None:
    for n, (title, points) in enumerate(times):
        rows = [row for _, row in points]
        figure.add_scatter(
            x=[taps for taps, _ in points],
            y=[row["median_ms"] for row in rows],
            name=title,
            row=2,
            col=1,
            mode="lines+markers",
            marker={"symbol": SYMBOLS[n % len(SYMBOLS)], "size": 8},
            line={"color": tokens[HUES[n % len(HUES)]], "width": 1.5, "dash": DASHES[n % len(DASHES)]},
            customdata=[
                [units.time_(r["median_ms"]), units.time_(r["p20_ms"]), units.time_(r["p80_ms"]), r["n"]] for r in rows
            ],
            hovertemplate=tr(
                "{title}, R = %{x}: median %{customdata[0]}<br>p20 %{customdata[1]}, p80 %{customdata[2]}, "
                "n = %{customdata[3]}",
                title=title,
            )
            + "<extra></extra>",
        )
    if times:
        figure.update_yaxes(title={"text": tr("ms, recorded"), "standoff": 6}, row=2, col=1)


def _axis(tokens: Tokens) -> dict:
    return {
        "fixedrange": True,
        "linecolor": tokens["line"],
        "zeroline": False,
        "automargin": True,
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "title_font": {"size": 12, "color": tokens["dim"]},
    }


# -- whole images or tiles -------------------------------------------------------------------------
def tilings(s: ConvShape, spectra: int, rows: Mapping[int, Row], kind: str = "measured") -> dict[str, dict[str, str]]:
    """Returns the cost of each FFT_TILE in figures, by its name. `rows` are those of a `kind`, measured or
    recorded, by FFT_TILE. A tile that a rule forbids has only that rule."""
    found = {}
    if kind == "measured":
        workspace, time = tr("workspace, measured"), tr("time, measured")
    else:
        workspace, time = tr("workspace, recorded"), tr("time, recorded")
    for tile in RUNG.tiles["FFT_TILE"]:
        name, tiles = tile_name(tile), {"FFT_TILE": tile, "SPECTRA": spectra}
        if rule := next(iter(RUNG.rules(s, tiles)), ""):
            found[name] = {RULE: rule}
            continue
        cut = fft.cut(s, tiles)
        area = int(cut["rows"]) * int(cut["columns"])
        transforms = int(cut["down"]) * int(cut["across"])
        valid = int(cut["step_h"]) * int(cut["step_w"])
        w, padded, spectrum = notes.filter_bytes(s, tiles)
        row = rows.get(tile)
        found[name] = {
            tr("size of a transform"): f"{cut['rows']} × {cut['columns']}",
            tr("transforms per channel"): f"{cut['down']} × {cut['across']}" if transforms > 1 else "1",
            tr("pixels of a transform that wrap around"): units.share(1 - valid / area),
            tr("FLOPs executed"): units.count(fft.executed_flops(s, tiles)),
            tr("padded filters + their spectra"): f"{units.bytes_(padded)} + {units.bytes_(spectrum)}",
            tr("both / filters"): f"{units.ratio((padded + spectrum) / w)}×",
            tr("workspace, predicted"): units.bytes_(RUNG.build(s, tiles).nbytes(WORKSPACE)),
            workspace: units.bytes_(row["workspace_bytes"]) if row else "–",
            time: units.time_(row["median_ms"]) if row else "–",
        } | _share_lines(row)
    return found


def _share_lines(row: Row | None) -> dict[str, str]:
    """Returns the share of each part of the steps in the time; "–" where it was not timed."""
    parts = notes.part_shares(row) if row else {}
    return {
        tr("share of the time: {part}", part=tr(name)): units.share(parts[name]) if name in parts else "–"
        for name in notes.PARTS
    }


def tiling_title(tile: int) -> str:
    """Returns the name of an FFT_TILE in a sentence."""
    if not tile:
        return tr("the FFT of whole images")
    return tr("the FFT in tiles of {tile} × {tile}", tile=tile)


def tiling_flops(s: ConvShape, spectra: int) -> dict[int, int]:
    """Returns the FLOPs that each FFT_TILE executes that can run this shape."""
    tiles = {tile: {"FFT_TILE": tile, "SPECTRA": spectra} for tile in RUNG.tiles["FFT_TILE"]}
    return {tile: fft.executed_flops(s, of) for tile, of in tiles.items() if not any(RUNG.rules(s, of))}


def tiling_sentence(s: ConvShape, spectra: int, rows: Mapping[int, Row]) -> str:
    """Returns which FFT_TILE is fastest, or which executes the fewest FLOPs if fewer than two have rows."""
    if len(rows) > 1:
        return conclusions.of_times([(tiling_title(tile), row) for tile, row in rows.items()])
    flops = tiling_flops(s, spectra)
    if not flops:
        return tr("The FFT cannot run this shape.")
    least = min(flops, key=flops.__getitem__)
    fields = {"tiling": units.named(tiling_title(least), first=True), "flops": units.count(flops[least])}
    if len(flops) == 1:
        return tr("{tiling} executes {flops} FLOPs. It is the only one that can run this shape.", **fields)
    return tr("{tiling} executes the fewest FLOPs: {flops}.", **fields)


def tiling_bars(s: ConvShape, spectra: int, rows: Mapping[int, Row]) -> list[tuple[str, float, str]]:
    """Returns (title, length, text) of a bar for each FFT_TILE: its time, or its FLOPs if fewer than two have rows."""
    if len(rows) > 1:
        figures = {tile: (row["median_ms"], units.time_(row["median_ms"])) for tile, row in rows.items()}
    else:
        figures = {tile: (n, units.count(n)) for tile, n in tiling_flops(s, spectra).items()}
    return [(tr("whole") if not tile else f"{tile} × {tile}", length, text) for tile, (length, text) in figures.items()]


def tile_name(tile: int) -> str:
    """Returns the name of an FFT_TILE as the URL has it."""
    return str(tile) if tile else mark("whole")
