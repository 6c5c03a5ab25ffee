"""A race of rungs at one shape as HTML: one lane per rung. A bar's length is how far it is when the first
finishes.

Pure functions. The stylesheet (race.css) moves the bars and hides the figures until the finish. With reduced
motion the finish is visible at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from kernels.model.rung import Rung
from kernels.records.statistics import within_spread
from visuals.charts import units
from visuals.conv.choose.families import family

Row = Mapping
SECONDS = 4.0  # duration of the race on the page
LINE = 94  # per cent of a lane where the first ends: the rest is space for its spread
ORDINALS = ("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
            "fifteenth sixteenth seventeenth eighteenth").split()  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """One rung with its time. `effective`: FLOPs of direct convolution. `executed`: FLOPs of the algorithm
    itself, None if a library does not report them."""

    rung: str
    title: str
    row: Row
    effective: int
    executed: int | None
    rank: int  # from 1; the same for equal medians
    ratio: float  # its time divided by the winner's


@dataclass(frozen=True)
class NotStarted:
    """Rungs that do not start, and the reason."""

    titles: tuple[str, ...]
    reason: str


def executed_flops(rung: Rung, shape, tiles: Mapping[str, int]) -> int | None:
    """Returns the FLOPs that a rung of the ladder executes itself; None if only a library knows them. Matrix
    products execute those of direct convolution."""
    return rung.cost(shape, rung.build(shape, tiles)).executed_flops


def lanes(rungs: Sequence[Rung], shape, rows: Mapping[str, Row]) -> list[Lane]:
    """Returns a lane for each rung that has a row, in the order of the ladder. `shape` is that of the rows."""
    present = [rung for rung in rungs if rung.name in rows]
    times = sorted(rows[rung.name]["median_ms"] for rung in present)
    return [
        Lane(
            rung.name,
            rung.title_on(row["engine"]),
            row,
            shape.flops,
            executed_flops(rung, shape, row["tiles"]),
            times.index(row["median_ms"]) + 1,
            row["median_ms"] / times[0],
        )
        for rung in present
        for row in (rows[rung.name],)
    ]


def winner(lanes: Sequence[Lane]) -> Lane:
    return min(lanes, key=lambda lane: lane.row["median_ms"])


def slowdown(lanes: Sequence[Lane]) -> float:
    """Returns how many times slower than the machine the page runs."""
    return SECONDS * 1e3 / winner(lanes).row["median_ms"]


# -- sentences -----------------------------------------------------------------------------------
def ordinal(rank: int) -> str:
    return ORDINALS[rank - 1] if rank <= len(ORDINALS) else f"{rank}th"


def verdict(lanes: Sequence[Lane], guess: str, title: str, why_not: str = "") -> str:
    """Returns a sentence on a guess (a rung's name and title). `why_not` is the reason why it did not run."""
    first = winner(lanes)
    lane = next((lane for lane in lanes if lane.rung == guess), None)
    if lane is None:
        return f"You said {title}, which did not run here{f': {why_not}' if why_not else ''}. The first is {first.title}."
    if lane is first or lane.rank == 1:
        return f"You said {title}: first of {len(lanes)}."
    rank = "last" if lane.rank == len(lanes) else ordinal(lane.rank)
    overlap = (
        " Their spreads overlap: they cannot be told apart." if within_spread(lane.row, first.row) else ""
    )
    return (
        f"You said {title}: {rank} of {len(lanes)}, {units.ratio(lane.ratio)} times the time of "
        f"the first, {first.title}.{overlap}"
    )


def finish(lanes: Sequence[Lane]) -> str:
    """Returns a caption on the first, the second and the last."""
    by_time = sorted(lanes, key=lambda lane: lane.row["median_ms"])
    if len(by_time) == 1:
        return f"{by_time[0].title} ran alone: {units.time_(by_time[0].row['median_ms'])}."
    first, second = by_time[:2]
    comparison = (
        f"{second.title} cannot be told apart from it: their spreads overlap"
        if within_spread(first.row, second.row)
        else f"{second.title} took {units.ratio(second.ratio)} times as long"
    )
    last = (
        f" The last, {by_time[-1].title}, took {units.ratio(by_time[-1].ratio)} times as long."
        if len(by_time) > 2
        else ""
    )
    text = f"{first.title} is the first after {units.time_(first.row['median_ms'])}; {comparison}.{last}"
    titled = [(lane.title, lane.row) for lane in by_time]
    return " ".join(filter(None, (text, units.waits_note(titled), units.sweeps_note(titled))))


def clock(ms: float) -> tuple[int, str]:
    """Returns a time as a whole number of the largest unit that still gives two digits, for a counting clock."""
    for unit, scale in (("ms", 1.0), ("µs", 1e3)):
        if ms * scale >= 10:
            return round(ms * scale), unit
    return max(1, round(ms * 1e6)), "ns"


def _times(ratio: float) -> str:
    return units.count(float(f"{ratio:.2g}"))


# -- HTML ----------------------------------------------------------------------------------------
HEADINGS = ("time, p20 to p80", "× first", "workspace", "relative error", "effective", "actual")


@cache
def css() -> str:
    return Path(__file__).with_name("race.css").read_text(encoding="utf-8")


def html(
    lanes: Sequence[Lane], out: Sequence[NotStarted] = (), guess: str = "", said: str = "", turn: int = 0
) -> str:
    """Returns the lanes, then the rungs that did not start. At the finish it shows the first one, and the
    sentence `said` on a `guess`. Another `turn` starts the animation again."""
    count, unit = clock(winner(lanes).row["median_ms"])
    slower = slowdown(lanes)
    pace = f"slowed {_times(slower)} times" if slower >= 1 else f"sped up {_times(1 / slower)} times"
    headings = "".join(f'<th scope="col" class="kt-num">{heading}</th>' for heading in HEADINGS)
    lines = "".join(_lane(lane, winner(lanes), lane.rung == guess) for lane in lanes)
    not_started = "".join(
        f'<tr class="kt-out"><td></td><td colspan="{len(HEADINGS) + 2}"><b>{escape(", ".join(o.titles))}</b>: {escape(o.reason)}</td></tr>'
        for o in out
    )
    return (
        f'<div class="kt-race kt-turn-{turn % 2}" style="--kt-seconds:{SECONDS:g}s;--kt-count:{count};--kt-end:{LINE}%">'
        f'<p class="kt-clock" role="timer" aria-label="{count:,} {unit}"><b></b> {unit} '
        f"<span>{pace}: when the first is done, the picture stops</span></p>"
        f'<p class="kt-verdict">{escape(said)}</p>'
        f'<table><thead><tr><td></td><th scope="col">rung</th><th scope="col">how far, when the first is done</th>'
        f"{headings}</tr></thead><tbody>{lines}{not_started}</tbody></table>"
        f'<p class="kt-why">{escape(finish(lanes))}</p></div>'
    )


def _lane(lane: Lane, first: Lane, guessed: bool) -> str:
    row, best = lane.row, first.row["median_ms"]
    low, high = (LINE * best / row[name] for name in ("p80_ms", "p20_ms"))
    position = LINE * best / row["median_ms"]
    classes = ["kt-first"] * (lane.rank == 1) + ["kt-guess"] * guessed
    classes += ["kt-tied"] * (lane is not first and within_spread(row, first.row))
    ms = row["median_ms"]
    cells = (
        f"<b>{units.time_(ms)}</b> <small>{units.time_(row['p20_ms'])} to {units.time_(row['p80_ms'])}</small>",
        f"{lane.ratio:.2f}" if lane.ratio < 10 else units.ratio(lane.ratio),
        units.bytes_(row["workspace_bytes"]),
        f"{row['error']:.1e}",
        units.rate(lane.effective, ms),
        "–" if lane.executed is None else units.rate(lane.executed, ms),
    )
    cells_html = "".join(
        f'<td class="kt-num" data-name="{name}"><span>{cell}</span></td>'
        for name, cell in zip(HEADINGS, cells, strict=True)
    )
    yours = ' <em class="kt-yours">your guess</em>' if guessed else ""
    return (
        f'<tr class="{" ".join(classes)}" data-rung="{escape(lane.rung)}" '
        f'style="--kt-to:{position:.2f}%;--kt-hue:var(--kt-{family(lane.rung).token})">'
        f'<td class="kt-place"><span>{lane.rank}</span></td><th scope="row">{escape(lane.title)}{yours}</th>'
        f'<td class="kt-track"><div><i></i><u style="left:{low:.2f}%;width:{max(0.0, min(high, 100.0) - low):.2f}%"></u></div></td>{cells_html}</tr>'
    )
