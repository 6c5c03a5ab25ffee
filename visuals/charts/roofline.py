"""The roofline: the FLOP/s a device can reach at each intensity, and the rungs below it.

Roofs are measured ceilings (kernels.machine.ceilings) stored in a row; a dot is a row. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from kernels import records
from kernels.i18n import tr
from kernels.ladders import ladder_of
from kernels.machine import ceilings as measured_ceilings
from kernels.model.row import Row
from kernels.records import files
from visuals import units
from visuals.charts import bandwidth, bars, products
from visuals.charts.products import other_units as other_units
from visuals.charts.products import row_units

if TYPE_CHECKING:  # with it comes Plotly
    from visuals.charts.plain_figure import PlainFigure

HEIGHT = 330
SECTOR = 32  # bytes
SLOPE = 10  # the axis reaches at least from 1/SLOPE of the ridge's intensity, so that the slope is visible
MAX_LISTED = 4  # titles that a sentence lists if they are all titles
MAX_UNJOINED = 4  # dots of one kind; more are joined by a line in the ladder's order
LABEL_PX = 15  # labels closer than this share one label
LINE_PX = 20  # a line of text with its leading
PLOT_PX = 250  # the width of the axes on a narrow page: labels that are apart there are apart everywhere
CHAR_PX, TEXT_PX, DOT_PX = 7.5, 15, 6  # a digit's width, a label's height, a dot's radius
FP32_LABEL_PX = 125
MIN_LAUNCH_SHARE = 0.2  # of a time: above that the launches are the limit
KIND_COLOUR = {"measured": "output", "recorded": "workspace"}  # as their badges
KIND_SYMBOL = {"measured": "circle", "recorded": "diamond"}
MARGIN = {"l": 4, "r": 4, "t": 8, "b": 4}
RATES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1e3, "kFLOP/s"))


@dataclass(frozen=True)
class Roof:
    """The ceilings of one device: its copy bandwidth and its FP32 peak."""

    device: str
    kind: str  # "measured" or "recorded"
    bytes_per_s: float
    flops_per_s: float
    ceilings: Mapping  # the ceilings as stored in the row

    @property
    def ridge(self) -> float:
        """FLOP per byte above which arithmetic is the limit."""
        return self.flops_per_s / self.bytes_per_s

    def bound(self, intensity: float) -> float:
        return min(self.flops_per_s, intensity * self.bytes_per_s)


@dataclass(frozen=True)
class Dot:
    """A rung's row under the roof. `moved` are the bytes that its warps requested, if the emulator counted them."""

    number: int  # in the ladder, from 1
    title: str
    row: Row
    kind: str
    stale: bool = False
    moved: int | None = None

    @property
    def intensity(self) -> float:
        """FLOP per byte that must move through memory."""
        return self.row["flops"] / bandwidth.bytes_of(self.row)

    @property
    def rate(self) -> float:
        return self.row["flops"] / self.row["median_ms"] * 1e3

    def share_of(self, roof: Roof) -> float | None:
        """Returns the rate as a share of what a roof allows. Under the slope it is the strip's share of memory bandwidth;
        None if caches held a part of the data before the run."""
        if self.intensity >= roof.ridge:
            return self.rate / roof.flops_per_s
        return None if bandwidth.is_cached(self.row) else bandwidth.share(self.row)


def defined_flops(row: Row) -> int:
    """Returns the FLOPs of the definition at a row's shape: for any convolution algorithm, those of direct
    convolution."""
    return ladder_of(row["rung"]).shape(**row["shape"]).flops


def as_defined(rows: Iterable[Row]) -> bool:
    """Returns whether the FLOPs of all rows are those of the definition: then executed and effective rates are equal."""
    return all(row["flops"] == defined_flops(row) for row in rows)


def is_opaque(row: Row) -> bool:
    """Returns whether only a vendor's library knows what the rung executes, moves and allocates
    (kernels.model.program.Cost)."""
    return row.get("predicted_workspace_bytes") is None


def has_intensity(row: Row) -> bool:
    """Returns whether a row has an intensity above 0: a copy, for example, computes nothing."""
    return bool(row["flops"] and bandwidth.bytes_of(row))


@dataclass(frozen=True)
class Mark:
    """A rung without a time at this shape: only its predicted intensity."""

    number: int
    title: str
    intensity: float
    units: str = ""  # if other than the FP32 units of the roof

    def has_limit(self, roof: Roof) -> bool:
        """Returns whether a roof limits the rung. Of other units than FP32 only the memory's slope is known."""
        return not self.units or self.intensity <= roof.ridge

    def max_rate(self, roof: Roof) -> float:
        """Returns the FLOP/s that a roof allows a rung that it limits."""
        return roof.bound(self.intensity)


def roof_of(row: Row | None, kind: str) -> Roof | None:
    """Returns the roof stored in a row; None if none was measured."""
    if row is None:
        return None
    ceilings = row.get("ceilings") or {}
    copy, flops = ceilings.get("copy_bytes_per_s"), ceilings.get("fp32_flops_per_s")
    if not (copy and flops):
        return None
    return Roof(ceilings.get("device", row["device"]), kind, copy, flops, ceilings)


@cache
def recorded_roofs() -> Mapping[records.Gpu, Roof]:
    return {gpu: roof for gpu, row in files.read() if (roof := roof_of(row, "recorded"))}


def roofs(rows: Iterable[tuple[Row, str]], ladder: str) -> list[Roof]:
    """Returns the roofs of these (row, kind), then of the GPU that the ladder is shown from; one for each device. A
    ladder without recordings has the roof of the first GPU."""
    gpu = records.shown(ladder)
    of_gpu = recorded_roofs().get(gpu) if gpu else next(iter(recorded_roofs().values()), None)
    found = {}
    for roof in (*(roof_of(row, kind) for row, kind in rows), of_gpu):
        if roof:
            found.setdefault(roof.device, roof)
    return list(found.values())


# -- text ----------------------------------------------------------------------------------------
def ceilings_text(roof: Roof) -> str:
    """Returns how a roof was measured, for the text beside its badge."""
    t = roof.ceilings
    return tr(
        "Peak bandwidth is {copy} (copy {how}; best of {n}). Peak FP32 rate is {fp32} ({how_fp32}; best of {n_fp32}). "
        "Below {ridge} FLOP/byte bandwidth is the limit, above it arithmetic.",
        copy=units.bandwidth(roof.bytes_per_s),
        how=units.in_decimal_units(measured_ceilings.shown(t.get("copy", ""))),
        n=t.get("copy_n", "?"),
        fp32=_rate(roof.flops_per_s),
        how_fp32=measured_ceilings.shown(t.get("fp32", "")),
        n_fp32=t.get("fp32_n", "?"),
        ridge=units.ratio(roof.ridge),
    )


def verdict(dots: Sequence[Dot], all_roofs: Sequence[Roof]) -> list[str]:
    """Returns sentences on each device's fastest fresh rung: its share of the roof, and what limits it. The fastest rung
    on other units gets its own sentence, because it has another roof."""
    sentences = []
    for kind, other in product(("measured", "recorded"), (False, True)):
        fresh = [d for d in dots if d.kind == kind and not d.stale and bool(row_units(d.row)) == other]
        if not fresh:
            continue
        dot = max(fresh, key=lambda d: d.rate)
        roof = next((r for r in all_roofs if r.device == dot.row["device"]), None)
        sentences.append(_below_roof(dot, roof) if roof else _without_roof(dot))
    return sentences


def _without_roof(dot: Dot) -> str:
    return tr(
        "{title} does {rate} on {device}. The peaks of this device were not measured, so it has no roof.",
        **_fields(dot),
    )


def _fields(dot: Dot) -> dict[str, str]:
    return {"title": units.named(dot.title, first=True), "rate": _rate(dot.rate), "device": dot.row["device"]}


def _below_roof(dot: Dot, roof: Roof) -> str:
    fields = _fields(dot)
    if other := row_units(dot.row):
        over, fields["units"] = dot.rate / roof.flops_per_s, tr(other)
        if best := products.beside(dot.row):
            share = units.share(dot.rate / best.flops_per_s)
            return tr(
                "{title} does {rate} on {device}: {share} of the fastest {format} product recorded there, {best}. "
                "The peak of {units} was not measured.",
                share=share,
                format=best.format,
                best=best.text,
                **fields,
            )
        return (
            tr(
                "{title} does {rate} on {device}, {ratio}× the FP32 peak. The peak of {units} was not measured.",
                ratio=units.ratio(over),
                **fields,
            )
            if over > 1
            else tr(
                "{title} does {rate} on {device}, {share} of the FP32 peak. The peak of {units} was not measured.",
                share=units.share(over),
                **fields,
            )
        )
    roof = roof_of(dot.row, dot.kind) or roof  # as the strip
    launching = bars.launch_ms(dot.row) / dot.row["median_ms"]
    if dot.row["mode"] == "cold" and launching > MIN_LAUNCH_SHARE:
        fields |= {"share": units.share(launching), "title": units.named(dot.title)}
        return (
            tr(
                "Call overhead alone is {share} of the time of {title} on {device}. At this size the roofline says nothing.",
                **fields,
            )
            if bars.calls_functions(dot.row)
            else tr(
                "Launch overhead alone is {share} of the time of {title} on {device}. At this size the roofline says nothing.",
                **fields,
            )
        )
    if (share := dot.share_of(roof)) is None:
        return tr("{title} does {rate} on {device}. Caches held a part of its data before the run.", **fields)
    fields |= {
        "share": units.share(share),
        "bound": _rate(roof.bound(dot.intensity)),
        "intensity": units.ratio(dot.intensity),
    }
    if dot.intensity < roof.ridge:
        return tr(
            "{title} does {rate} on {device}: {share} of the {bound} that memory bandwidth allows at {intensity} FLOP/byte.",
            **fields,
        )
    text = tr(
        "{title} does {rate} on {device}: {share} of the {bound} that the FP32 peak allows at {intensity} FLOP/byte.",
        **fields,
    )
    above = tr(
        "This is above the limit: it executes fewer FLOPs than defined, or the peak was measured on a busy device."
    )
    return f"{text} {above}" if share > 1 else text


def bounds(marks: Sequence[Mark], all_roofs: Sequence[Roof]) -> str:
    """Returns what the roofs allow rungs without a time at these settings; "" without roofs or without such rungs."""
    return " ".join(sentence for roof in all_roofs for sentence in _bounds(marks, roof))


def _bounds(marks: Sequence[Mark], roof: Roof) -> Iterator[str]:
    titles_by_rate: dict[str, list[str]] = {}
    limited = [mark for mark in marks if mark.has_limit(roof)]
    for mark in limited:
        titles_by_rate.setdefault(_rate(mark.max_rate(roof)), []).append(mark.title)
    if limited:
        rates = "; ".join(f"{_listed(titles, len(limited))} {rate}" for rate, titles in titles_by_rate.items())
        yield tr(
            "Without a time at these settings: the roof of {device} allows at most {rates}.",
            device=roof.device,
            rates=rates,
        )
    titles_by_units: dict[str, list[str]] = {}
    for mark in marks:
        if mark not in limited:
            titles_by_units.setdefault(tr(mark.units), []).append(mark.title)
    for units_, titles in titles_by_units.items():
        yield tr(
            "The peak of {units} on {device} was not measured. It limits {titles}.",
            units=units_,
            device=roof.device,
            titles=_listed(titles, len(marks)),
        )


def _listed(titles: Sequence[str], total: int) -> str:
    return tr("all {n} kernels", n=total) if len(titles) == total > MAX_LISTED else ", ".join(titles)


def _rate(flops_per_s: float) -> str:
    return units.rate(flops_per_s, 1e3)


# -- the chart -----------------------------------------------------------------------------------
def chart(
    all_roofs: Sequence[Roof], dots: Sequence[Dot], marks: Sequence[Mark], tokens: Mapping[str, str]
) -> PlainFigure:
    """Draw, log-log, a roof for each device, filled dots at the predicted intensity, hollow dots at the counted one,
    and vertical marks for rungs that were not run."""
    from visuals.charts.plain_figure import PlainFigure

    (x0, x1), (y0, y1) = _ranges(all_roofs, dots, marks)
    figure = PlainFigure()
    first = max(all_roofs, key=lambda roof: roof.bytes_per_s, default=None)
    for roof in all_roofs:
        height = None if roof is first else copy_label_height(roof, dots, y0, y1)
        _draw_roof(figure, roof, x0, _free_right(roof, dots, x0, x1), x1, y0, height, tokens)
    for mark in marks:
        _draw_mark(figure, mark, all_roofs, y0, y1, tokens)
    for x, text in mark_labels(marks):
        _write(figure, x, y0, text, tokens, yanchor="bottom")
    _draw_paths(figure, dots, tokens)
    for dot in dots:
        _draw_dot(figure, dot, all_roofs, tokens)
    for label in placed_labels(dots, (x0, x1), (y0, y1)):
        _write(figure, label.x, label.y, label.text, tokens, **SIDES[label.side])
    bars.lay_out(figure, HEIGHT, tokens)
    axis = {
        "type": "log",
        "fixedrange": True,
        "gridcolor": tokens["line"],
        "zeroline": False,
        "dtick": 1,
        "tickfont": {"size": 12, "color": tokens["dim"]},
        "automargin": True,
    }
    rate = tr("effective FLOP/s") if as_defined(dot.row for dot in dots) else tr("FLOP/s executed")
    figure.update_layout(
        margin=MARGIN,
        xaxis={
            **axis,
            "range": [x0, x1],
            "exponentformat": "none",
            "title": _title(tr("FLOP per byte that must move"), tokens),
        },
        yaxis={**axis, "range": [y0, y1], "title": _title(rate, tokens), **_rate_ticks(y0, y1)},
    )
    return figure


def _title(text: str, tokens: Mapping[str, str]) -> dict:
    return {"text": text, "font": {"size": 12, "color": tokens["dim"]}, "standoff": 4}


def _rate_ticks(y0: float, y1: float) -> dict:
    powers = range(math.ceil(y0), math.floor(y1) + 1)
    return {"tickvals": [10.0**p for p in powers], "ticktext": [_power(p) for p in powers]}


def _power(p: int) -> str:
    for scale, unit in RATES:
        if 10.0**p >= scale:
            return f"{10.0**p / scale:g} {unit[0]}"
    return f"{10.0**p:g}"


def _ranges(roofs_: Sequence[Roof], dots: Sequence[Dot], marks: Sequence[Mark]):
    """Returns the decades (low, high) of both axes, with a margin around all that is drawn."""
    x = [d.intensity for d in dots] + [m.intensity for m in marks]
    x += [value for r in roofs_ for value in (r.ridge, r.ridge / SLOPE)]
    x += [d.row["flops"] / d.moved for d in dots if d.moved]
    y = [d.rate for d in dots] + [value for r in roofs_ for value in (r.flops_per_s, r.flops_per_s / SLOPE)]
    y += [m.max_rate(r) for r in roofs_ for m in marks if m.has_limit(r)]
    x, y = x or [1.0], y or [1e9]
    return ((math.log10(min(x)) - 0.5, math.log10(max(x)) + 0.8), (math.log10(min(y)) - 0.6, math.log10(max(y)) + 0.5))


def copy_label_height(roof: Roof, dots: Sequence[Dot], y0: float, y1: float) -> float:
    """Returns the log of the rate at which the label of a slope begins, above the numbers of the axis: the lowest beside
    which no number of a dot is written."""
    line = LINE_PX * (y1 - y0) / (HEIGHT - 60)
    taken = [y for _, y, _ in labels(dots, y1 - y0)]
    lowest, highest = y0 + 0.35, math.log10(roof.flops_per_s)
    heights = [lowest + n * line for n in range(max(1, math.floor((highest - lowest) / line)))]
    return next((y for y in heights if all(abs(y - line / 2 - t) >= line for t in taken)), lowest)


def _free_right(roof: Roof, dots: Sequence[Dot], x0: float, x1: float) -> float:
    """Returns the log of the intensity at which the label of the FP32 peak ends: left of dots and of the line that joins
    them."""
    label = FP32_LABEL_PX * (x1 - x0) / PLOT_PX
    near = [x for x in (math.log10(dot.intensity) for dot in dots) if x > x1 - label and 10**x > roof.ridge]
    return min(near, default=x1)


def _draw_roof(
    figure: PlainFigure,
    roof: Roof,
    x0: float,
    label_x: float,
    x1: float,
    y0: float,
    label_height: float | None,
    tokens: Mapping[str, str],
) -> None:
    colour = tokens[KIND_COLOUR[roof.kind]]
    left = max(10**x0, 10**y0 / roof.bytes_per_s)
    xs = [left, roof.ridge, 10**x1]
    figure.add_scatter(
        x=xs,
        y=[roof.bound(x) for x in xs],
        mode="lines",
        line={"color": colour, "width": 2},
        hovertemplate=f"{roof.device}: {units.bandwidth(roof.bytes_per_s)}, FP32 {_rate(roof.flops_per_s)}<extra></extra>",
    )
    line_px = (HEIGHT - 60) / (math.log10(roof.flops_per_s / 10**y0) + 1)  # about a decade is above the roof
    if label_height is None:  # left of the slope, where no dot is
        copy_x = math.log10(roof.ridge) - 1.5 * LINE_PX / line_px
        copy_side = {"xanchor": "right", "yanchor": "bottom", "xshift": -4}
    else:  # under the slope
        copy_x = max(math.log10(left), label_height - math.log10(roof.bytes_per_s))
        copy_side = {"xanchor": "left", "yanchor": "top", "xshift": 16}
    fp32_side = {"xanchor": "right", "yanchor": "bottom", "xshift": -4 if label_x == x1 else -12}
    for x, text, side in (
        (label_x, f"FP32 {_rate(roof.flops_per_s)}", fp32_side),
        (copy_x, tr("copy {rate}", rate=units.bandwidth(roof.bytes_per_s)), copy_side),
    ):
        figure.add_annotation(
            x=x, y=math.log10(roof.bound(10**x)), text=text, showarrow=False, font={"size": 12, "color": colour}, **side
        )


def _draw_mark(
    figure: PlainFigure, mark: Mark, all_roofs: Sequence[Roof], y0: float, y1: float, tokens: Mapping[str, str]
) -> None:
    limits = [roof for roof in all_roofs if mark.has_limit(roof)]
    tops = [mark.max_rate(roof) for roof in limits]
    top = max(tops, default=10**y1)
    figure.add_scatter(
        x=[mark.intensity] * 2,
        y=[10**y0, top],
        mode="lines",
        line={"color": tokens["dim"], "width": 1.5, "dash": "dot"},
        hovertemplate=tr(
            "{title}: {intensity} FLOP/byte predicted", title=mark.title, intensity=units.ratio(mark.intensity)
        )
        + "<extra></extra>",
    )
    figure.add_scatter(
        x=[mark.intensity] * len(tops),
        y=tops,
        mode="markers",
        marker={"symbol": "line-ew-open", "size": 14, "color": tokens["ink"], "line": {"width": 2}},
        hovertemplate=[
            tr("{title}: at most {rate} on {device}", title=mark.title, rate=_rate(t), device=r.device)
            + "<extra></extra>"
            for t, r in zip(tops, limits, strict=True)
        ],
    )


def _draw_paths(figure: PlainFigure, dots: Sequence[Dot], tokens: Mapping[str, str]) -> None:
    """Draw a thin line from rung to rung through the dots of one kind, if there are many."""
    for kind, stale in product(KIND_COLOUR, (False, True)):
        path = sorted((d for d in dots if (d.kind, d.stale) == (kind, stale)), key=lambda d: d.number)
        if len(path) > MAX_UNJOINED:
            figure.add_scatter(
                x=[d.intensity for d in path],
                y=[d.rate for d in path],
                mode="lines",
                hoverinfo="skip",
                line={"color": tokens[KIND_COLOUR[kind]], "width": 1},
                opacity=0.35 if stale else 0.7,
            )


def _draw_dot(figure: PlainFigure, dot: Dot, all_roofs: Sequence[Roof], tokens: Mapping[str, str]) -> None:
    colour, opacity = tokens[KIND_COLOUR[dot.kind]], 0.35 if dot.stale else 1
    roof = next((r for r in all_roofs if r.device == dot.row["device"]), None)
    share_text = ""
    if other := row_units(dot.row):
        share_text = "<br>" + tr("{units}: the peak was not measured", units=tr(other))
    elif roof and (share := dot.share_of(roof_of(dot.row, dot.kind) or roof)) is not None:
        share_text = "<br>" + tr("{share} of the roof", share=units.share(share))
    title = tr("stale: {title}", title=dot.title) if dot.stale else dot.title
    predicted = tr("{intensity} FLOP/byte predicted", intensity=units.ratio(dot.intensity))
    if dot.moved:
        counted = dot.row["flops"] / dot.moved
        figure.add_scatter(
            x=[dot.intensity, counted],
            y=[dot.rate] * 2,
            mode="lines",
            hoverinfo="skip",
            line={"color": tokens["input"], "width": 1},
            opacity=opacity,
        )
        figure.add_scatter(
            x=[counted],
            y=[dot.rate],
            mode="markers",
            opacity=opacity,
            marker={
                "symbol": "circle",
                "size": 10,
                "color": tokens["ground"],
                "line": {"width": 2, "color": tokens["input"]},
            },
            hovertemplate=tr(
                "{title}: {intensity} FLOP/byte counted, {bytes} in sectors",
                title=title,
                intensity=units.ratio(counted),
                bytes=units.bytes_(dot.moved),
            )
            + "<extra></extra>",
        )
    figure.add_scatter(
        x=[dot.intensity],
        y=[dot.rate],
        mode="markers",
        opacity=opacity,
        marker={"symbol": KIND_SYMBOL[dot.kind], "size": 11, "color": colour},
        hovertemplate=f"{title}, {tr(dot.kind)} {units.provenance(dot.row)}: {_rate(dot.rate)}<br>"
        f"{predicted}{share_text}<extra></extra>",
    )


def _write(figure: PlainFigure, x: float, y: float, text: str, tokens: Mapping[str, str], **options) -> None:
    """Write numbers of rungs at (log x, log y), to the right unless `options` say otherwise."""
    place = {"xanchor": "left", "xshift": 9} | options
    figure.add_annotation(x=x, y=y, text=text, showarrow=False, font={"size": 13, "color": tokens["ink"]}, **place)


def mark_labels(marks: Sequence[Mark]) -> list[tuple[float, str]]:
    """Returns (log x, numbers) to write at the marks: marks of one intensity share a label."""
    numbers_at: dict[float, list[int]] = {}
    for mark in marks:
        numbers_at.setdefault(round(math.log10(mark.intensity), 2), []).append(mark.number)
    return [(x, _numbers(numbers)) for x, numbers in numbers_at.items()]


def _numbers(numbers: Iterable[int]) -> str:
    """Format [1, 2, 4, 5, 6] as "1, 2, 4–6"."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


def _labels_overlap(one: Dot, other: Dot, decades: float) -> bool:
    """Returns whether labels beside two dots would overlap."""
    up, across = math.log10(one.rate / other.rate), math.log10(one.intensity / other.intensity)
    return abs(up) < decades and abs(across) < 0.12


def _groups(dots: Sequence[Dot], decades: float) -> list[list[Dot]]:
    """Returns the dots that share a label: those of one intensity that are too close for two."""
    per_px = decades / (HEIGHT - 60)
    groups: list[list[Dot]] = []
    for dot in sorted(dots, key=lambda d: (d.stale, round(math.log10(d.intensity), 2), d.rate)):
        close_groups = (group for group in groups if _labels_overlap(group[-1], dot, LABEL_PX * per_px))
        if group := next(close_groups, None):
            group.append(dot)
        else:
            groups.append([dot])
    return groups


def labels(dots: Sequence[Dot], decades: float) -> list[tuple[float, float, str]]:
    """Returns (log x, log y, numbers) to write right of the dots. Dots of one intensity that are too close for two
    labels share one."""
    return [
        (
            max(math.log10(d.intensity) for d in group),
            sum(math.log10(d.rate) for d in group) / len(group),
            _numbers(d.number for d in group),
        )
        for group in _groups(dots, decades)
    ]


@dataclass(frozen=True)
class Label:
    """Numbers beside a group of dots: a point of the group, in logs, and the side of it on which they are written."""

    x: float
    y: float
    text: str
    side: str


SIDES = {
    "right": {"xanchor": "left", "yanchor": "middle", "xshift": 9},
    "left": {"xanchor": "right", "yanchor": "middle", "xshift": -9},
    "above": {"xanchor": "center", "yanchor": "bottom", "xshift": 0, "yshift": 6},
    "below": {"xanchor": "center", "yanchor": "top", "xshift": 0, "yshift": -6},
}
Box = tuple[float, float, float, float]  # left, bottom, right, top in pixels


def placed_labels(dots: Sequence[Dot], x_range: tuple[float, float], y_range: tuple[float, float]) -> list[Label]:
    """Returns the labels, each on the first side of its dots where no dot, ring or other label is."""
    across, up = PLOT_PX / (x_range[1] - x_range[0]), (HEIGHT - 60) / (y_range[1] - y_range[0])

    def point(intensity: float, rate: float) -> tuple[float, float]:
        return (math.log10(intensity) - x_range[0]) * across, (math.log10(rate) - y_range[0]) * up

    points = [point(d.intensity, d.rate) for d in dots]
    points += [point(d.row["flops"] / d.moved, d.rate) for d in dots if d.moved]
    taken: list[Box] = [(x - DOT_PX, y - DOT_PX, x + DOT_PX, y + DOT_PX) for x, y in points]
    for dot in dots:  # the lines to the rings
        if dot.moved:
            (x, y), (ring, _) = point(dot.intensity, dot.rate), point(dot.row["flops"] / dot.moved, dot.rate)
            taken.append((min(x, ring), y - 1, max(x, ring), y + 1))
    placed = []
    for group in _groups(dots, y_range[1] - y_range[0]):
        text = _numbers(d.number for d in group)
        candidates = []
        for side, (x, y) in _anchors(group).items():
            box = _box(side, *point(10**x, 10**y), CHAR_PX * len(text))
            inside = box[0] >= 0 and box[2] <= PLOT_PX and box[1] >= 0 and box[3] <= HEIGHT - 60
            overlaps = sum(_overlap(box, other) for other in taken)
            candidates.append((overlaps + 100 * (not inside), len(candidates), Label(x, y, text, side), box))
        *_, label, box = min(candidates, key=lambda candidate: candidate[:2])
        placed.append(label)
        taken.append(box)
    return placed


def _anchors(group: Sequence[Dot]) -> dict[str, tuple[float, float]]:
    """Returns the point (log x, log y) from which the label of a group is written, by side."""
    x, y = [math.log10(d.intensity) for d in group], [math.log10(d.rate) for d in group]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    return {
        "right": (max(x), middle_y),
        "left": (min(x), middle_y),
        "above": (middle_x, max(y)),
        "below": (middle_x, min(y)),
    }


def _box(side: str, x: float, y: float, width: float) -> Box:
    """Returns the pixels of a label that is written from the point (x, y)."""
    if side in ("right", "left"):
        left = x + 9 if side == "right" else x - 9 - width
        return left, y - TEXT_PX / 2, left + width, y + TEXT_PX / 2
    bottom = y + 6 if side == "above" else y - 6 - TEXT_PX
    return x - width / 2, bottom, x + width / 2, bottom + TEXT_PX


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
