"""The roofline: the FLOP/s a device can reach at each intensity, and the rungs below it.

Roofs are measured ceilings (kernels.machine.ceilings) stored in a row; a dot is a row. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from kernels import records
from kernels.ladders import find, ladder_of
from kernels.model.rung import FP32, TENSOR_CORES
from visuals.charts import bars, units

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Row = Mapping
HEIGHT = 330
SECTOR = 32  # bytes
SLOPE = 10  # the axis reaches at least from 1/SLOPE of the ridge's intensity, so that the slope is visible
MAX_LISTED = 4  # titles that a sentence lists if they are all titles
MAX_UNJOINED = 4  # dots of one kind; more are joined by a line in the ladder's order
LABEL_PX = 15  # labels closer than this share one label
LINE_PX = 20  # a line of text with its leading
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
        return self.row["flops"] / self.row["predicted_bytes"]

    @property
    def rate(self) -> float:
        return self.row["flops"] / self.row["median_ms"] * 1e3


def defined_flops(row: Row) -> int:
    """Returns the FLOPs of the definition at a row's shape: for any convolution algorithm, those of direct
    convolution."""
    return ladder_of(row["rung"]).shape(**row["shape"]).flops


def as_defined(rows: Iterable[Row]) -> bool:
    """Returns whether the FLOPs of all rows are those of the definition: then executed and effective rates are equal."""
    return all(row["flops"] == defined_flops(row) for row in rows)


SIXTEEN_BITS = ("fp16", "bf16")  # here only tensor cores multiply them


def row_units(row: Row) -> str:
    """Returns the units of a row's rung if they are not the FP32 units of the roof, else "". The cpu engine has no
    others."""
    return other_units(row["rung"], row["shape"]) if row["engine"] == "cuda" else ""


def other_units(rung: str, params: Mapping[str, Any]) -> str:
    """Returns the same for a rung on a GPU, at a shape with these parameters."""
    used = TENSOR_CORES if params.get("dtype") in SIXTEEN_BITS else find(rung).units
    return "" if used == FP32 else used


def is_opaque(row: Row) -> bool:
    """Returns whether only a vendor's library knows what the rung executes, moves and allocates
    (kernels.model.program.Cost)."""
    return row.get("predicted_workspace_bytes") is None


def has_intensity(row: Row) -> bool:
    """Returns whether a row has an intensity above 0: a copy, for example, computes nothing."""
    return bool(row["flops"] and row.get("predicted_bytes"))


@dataclass(frozen=True)
class Mark:
    """A rung without a time at this shape: only its predicted intensity."""

    number: int
    title: str
    intensity: float
    units: str = ""  # if other than the FP32 units of the roof

    def max_rate(self, roof: Roof) -> float:
        """Returns the FLOP/s that a roof allows. For other units than FP32 only the memory's slope is known."""
        return self.intensity * roof.bytes_per_s if self.units else roof.bound(self.intensity)


def roof_of(row: Row | None, kind: str) -> Roof | None:
    """Returns the roof stored in a row; None if none was measured."""
    ceilings = (row or {}).get("ceilings") or {}
    copy, flops = ceilings.get("copy_bytes_per_s"), ceilings.get("fp32_flops_per_s")
    if not (copy and flops):
        return None
    return Roof(ceilings.get("device", row["device"]), kind, copy, flops, ceilings)


@cache
def recorded_roofs() -> tuple[Roof, ...]:
    """Returns one roof for each device of the shipped recordings."""
    found = {row["device"]: roof for row in records.recordings() if (roof := roof_of(row, "recorded"))}
    return tuple(found.values())


def roofs(rows: Iterable[tuple[Row, str]]) -> list[Roof]:
    """Returns the roofs of these (row, kind), then of other recorded devices; one for each device."""
    found = {}
    for roof in (*(roof_of(row, kind) for row, kind in rows), *recorded_roofs()):
        if roof:
            found.setdefault(roof.device, roof)
    return list(found.values())


# -- text ----------------------------------------------------------------------------------------
def ceilings_text(roof: Roof) -> str:
    """Returns how a roof was measured, for the text beside its badge."""
    t = roof.ceilings
    return (
        f"copy {units.bandwidth(roof.bytes_per_s)} ({t.get('copy', '')}; best of {t.get('copy_n', '?')}), "
        f"FP32 {_rate(roof.flops_per_s)} ({t.get('fp32', '')}; best of {t.get('fp32_n', '?')}). "
        f"They meet at {units.ratio(roof.ridge)} FLOP per byte"
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
        if roof:
            sentences.append(_below_roof(dot, roof))
        else:
            sentences.append(
                f"{dot.title} does {_rate(dot.rate)} on {dot.row['device']}; its row tells of no ceilings, "
                "so it has no roof here."
            )
    return sentences


def _below_roof(dot: Dot, roof: Roof) -> str:
    if other := row_units(dot.row):
        over = dot.rate / roof.flops_per_s
        peak = (
            f"{units.ratio(over)} times the FP32 peak"
            if over > 1
            else f"{units.share(over)} of the FP32 peak"
        )
        return f"{dot.title} does {_rate(dot.rate)} on {roof.device}, {peak} ({other}: another roof, not measured here)."
    bound = roof.bound(dot.intensity)
    limit = "the memory's slope" if dot.intensity < roof.ridge else "the FP32 roof"
    text = (
        f"{dot.title} does {_rate(dot.rate)} on {roof.device}: {units.share(dot.rate / bound)} of the "
        f"{_rate(bound)} that {limit} allows {units.ratio(dot.intensity)} FLOP per byte."
    )
    launching = bars.launch_ms(dot.row) / dot.row["median_ms"]
    if dot.row["mode"] == "cold" and launching > 0.2:
        noun, n = bars.launch_word(dot.row), bars.launch_count(dot.row)
        text += f" As many {noun} of nothing ({n}) take {units.share(launching)} of its time: it is too small for a roof to matter."
    elif dot.rate > bound and dot.intensity < roof.ridge:
        text += " More than the slope allows: part of what it moves stayed in the caches."
    elif dot.rate > bound:
        text += " More than the roof: it executes less than the definition asks for, or the peak was taken while others kept the device busy."
    return text


def bounds(marks: Sequence[Mark], all_roofs: Sequence[Roof]) -> str:
    """Returns what the roofs allow rungs that were not run at this shape; "" without roofs or without such rungs."""
    parts = []
    for roof in all_roofs:
        titles_by_rate = {}
        for mark in marks:
            titles_by_rate.setdefault(_rate(mark.max_rate(roof)), []).append(mark.title)
        parts += [
            f"{_listed(titles, len(marks))} at most {rate} on {roof.device}"
            for rate, titles in titles_by_rate.items()
        ]
    return "Not run at this shape; by the roofs " + "; ".join(parts) + "." if parts else ""


def _listed(titles: Sequence[str], total: int) -> str:
    return f"each of the {total} rungs" if len(titles) == total > MAX_LISTED else ", ".join(titles)


def _rate(flops_per_s: float) -> str:
    return units.rate(flops_per_s, 1e3)


# -- the chart -----------------------------------------------------------------------------------
def chart(
    all_roofs: Sequence[Roof], dots: Sequence[Dot], marks: Sequence[Mark], tokens: Mapping[str, str]
) -> Figure:
    """Draw, log-log, a roof for each device, filled dots at the predicted intensity, hollow dots at the counted one,
    and vertical marks for rungs that were not run."""
    from visuals.charts.plain_figure import PlainFigure

    (x0, x1), (y0, y1) = _ranges(all_roofs, dots, marks)
    figure = PlainFigure()
    for roof in all_roofs:
        _draw_roof(figure, roof, x0, x1, y0, copy_label_height(roof, dots, y0, y1), tokens)
    for mark in marks:
        _draw_mark(figure, mark, all_roofs, y0, y1, tokens)
    for x, text in mark_labels(marks):
        _write(figure, x, y0, text, tokens, yanchor="bottom")
    _draw_paths(figure, dots, tokens)
    for dot in dots:
        _draw_dot(figure, dot, all_roofs, tokens)
    for x, y, text in labels(dots, y1 - y0):
        _write(figure, x, y, text, tokens)
    bars.lay_out(figure, HEIGHT, tokens)
    axis = {
        "type": "log", "fixedrange": True, "gridcolor": tokens["line"], "zeroline": False, "dtick": 1,
        "tickfont": {"size": 12, "color": tokens["dim"]}, "automargin": True,
    }  # fmt: skip
    rate = "effective FLOP/s" if as_defined(dot.row for dot in dots) else "FLOP/s executed"
    figure.update_layout(
        margin=MARGIN,
        xaxis={**axis, "range": [x0, x1], "exponentformat": "none", "title": _title("FLOP per byte moved", tokens)},
        yaxis={**axis, "range": [y0, y1], "title": _title(rate, tokens), **_rate_ticks(y0, y1)},
    )  # fmt: skip
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
    y += [m.max_rate(r) for r in roofs_ for m in marks]
    x, y = x or [1.0], y or [1e9]
    return (
        (math.log10(min(x)) - 0.5, math.log10(max(x)) + 0.8),
        (math.log10(min(y)) - 0.6, math.log10(max(y)) + 0.5),
    )


def copy_label_height(roof: Roof, dots: Sequence[Dot], y0: float, y1: float) -> float:
    """Returns the log of the rate at which the label of a slope begins, above the numbers of the axis: the lowest beside
    which no number of a dot is written."""
    line = LINE_PX * (y1 - y0) / (HEIGHT - 60)
    taken = [y for _, y, _ in labels(dots, y1 - y0)]
    lowest, highest = y0 + 0.35, math.log10(roof.flops_per_s)
    heights = [lowest + n * line for n in range(max(1, math.floor((highest - lowest) / line)))]
    return next((y for y in heights if all(abs(y - line / 2 - t) >= line for t in taken)), lowest)


def _draw_roof(
    figure: Figure,
    roof: Roof,
    x0: float,
    x1: float,
    y0: float,
    label_height: float,
    tokens: Mapping[str, str],
) -> None:
    colour = tokens[KIND_COLOUR[roof.kind]]
    left = max(10**x0, 10**y0 / roof.bytes_per_s)
    xs = [left, roof.ridge, 10**x1]
    figure.add_scatter(
        x=xs, y=[roof.bound(x) for x in xs], mode="lines", line={"color": colour, "width": 2},
        hovertemplate=f"{roof.device}: copy {units.bandwidth(roof.bytes_per_s)}, FP32 {_rate(roof.flops_per_s)}<extra></extra>",
    )  # fmt: skip
    copy = f"copy {units.bandwidth(roof.bytes_per_s)}"
    for x, text, side in (
        (x1, f"FP32 {_rate(roof.flops_per_s)}", {"xanchor": "right", "yanchor": "bottom", "xshift": -4}),
        # Under the slope.
        (
            max(math.log10(left), label_height - math.log10(roof.bytes_per_s)),
            copy,
            {"xanchor": "left", "yanchor": "top", "xshift": 16},
        ),
    ):
        figure.add_annotation(
            x=x, y=math.log10(roof.bound(10**x)), text=text, showarrow=False,
            font={"size": 12, "color": colour}, **side,
        )  # fmt: skip


def _draw_mark(
    figure: Figure, mark: Mark, all_roofs: Sequence[Roof], y0: float, y1: float, tokens: Mapping[str, str]
) -> None:
    tops = [mark.max_rate(roof) for roof in all_roofs]
    top = max(tops, default=10**y1)
    figure.add_scatter(
        x=[mark.intensity] * 2, y=[10**y0, top], mode="lines",
        line={"color": tokens["dim"], "width": 1.5, "dash": "dot"},
        hovertemplate=f"{mark.title}: predicted {units.ratio(mark.intensity)} FLOP per byte<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[mark.intensity] * len(tops), y=tops, mode="markers",
        marker={"symbol": "line-ew-open", "size": 14, "color": tokens["ink"], "line": {"width": 2}},
        hovertemplate=[
            f"{mark.title}: at most {_rate(t)} on {r.device}<extra></extra>"
            for t, r in zip(tops, all_roofs, strict=True)
        ],
    )  # fmt: skip


def _draw_paths(figure: Figure, dots: Sequence[Dot], tokens: Mapping[str, str]) -> None:
    """Draw a thin line from rung to rung through the dots of one kind, if there are many."""
    for kind, stale in product(KIND_COLOUR, (False, True)):
        path = sorted((d for d in dots if (d.kind, d.stale) == (kind, stale)), key=lambda d: d.number)
        if len(path) > MAX_UNJOINED:
            figure.add_scatter(
                x=[d.intensity for d in path], y=[d.rate for d in path], mode="lines", hoverinfo="skip",
                line={"color": tokens[KIND_COLOUR[kind]], "width": 1}, opacity=0.35 if stale else 0.7,
            )  # fmt: skip


def _draw_dot(figure: Figure, dot: Dot, all_roofs: Sequence[Roof], tokens: Mapping[str, str]) -> None:
    colour, opacity = tokens[KIND_COLOUR[dot.kind]], 0.35 if dot.stale else 1
    roof = next((r for r in all_roofs if r.device == dot.row["device"]), None)
    share_text = (
        f"<br>{units.share(dot.rate / roof.bound(dot.intensity))} of what the roof allows" if roof else ""
    )
    if other := row_units(dot.row):
        share_text = f"<br>{other}: another roof, not measured here"
    stale = "stale: " if dot.stale else ""
    if dot.moved:
        counted = dot.row["flops"] / dot.moved
        figure.add_scatter(
            x=[dot.intensity, counted], y=[dot.rate] * 2, mode="lines", hoverinfo="skip",
            line={"color": tokens["input"], "width": 1}, opacity=opacity,
        )  # fmt: skip
        figure.add_scatter(
            x=[counted], y=[dot.rate], mode="markers", opacity=opacity,
            marker={"symbol": "circle", "size": 10, "color": tokens["ground"],
                    "line": {"width": 2, "color": tokens["input"]}},
            hovertemplate=f"{stale}{dot.title}: counted {units.ratio(counted)} FLOP per byte of {units.bytes_(dot.moved)} in sectors<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=[dot.intensity], y=[dot.rate], mode="markers", opacity=opacity,
        marker={"symbol": KIND_SYMBOL[dot.kind], "size": 11, "color": colour},
        hovertemplate=f"{stale}{dot.title}, {dot.kind} {units.provenance(dot.row)}: {_rate(dot.rate)}<br>"
        f"predicted {units.ratio(dot.intensity)} FLOP per byte{share_text}<extra></extra>",
    )  # fmt: skip


def _write(figure: Figure, x: float, y: float, text: str, tokens: Mapping[str, str], **options) -> None:
    """Write numbers of rungs right of (log x, log y)."""
    figure.add_annotation(
        x=x, y=y, text=text, showarrow=False, xanchor="left", xshift=9,
        font={"size": 13, "color": tokens["ink"]}, **options,
    )  # fmt: skip


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


def labels(dots: Sequence[Dot], decades: float) -> list[tuple[float, float, str]]:
    """Returns (log x, log y, numbers) to write right of the dots. Dots of one intensity that are too close for two
    labels share one."""
    per_px = decades / (HEIGHT - 60)
    groups: list[list[Dot]] = []
    for dot in sorted(dots, key=lambda d: (d.stale, round(math.log10(d.intensity), 2), d.rate)):
        close_groups = (group for group in groups if _labels_overlap(group[-1], dot, LABEL_PX * per_px))
        if group := next(close_groups, None):
            group.append(dot)
        else:
            groups.append([dot])
    return [
        (
            max(math.log10(d.intensity) for d in group),
            sum(math.log10(d.rate) for d in group) / len(group),
            _numbers(d.number for d in group),
        )
        for group in groups
    ]
