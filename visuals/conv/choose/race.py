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

from kernels.i18n import decimal, mark, tr
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.records.statistics import within_spread
from visuals import units
from visuals.conv.choose.families import FAMILIES, family

SECONDS = 4.0  # duration of the race on the page
LINE = 94  # per cent of a lane where the first ends: the rest is space for its spread


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
def verdict(lanes: Sequence[Lane], guess: str, title: str, why_not: str = "") -> str:
    """Returns a sentence on a guess (a rung's name and title). `why_not` is the reason why it did not run."""
    first, n = winner(lanes), len(lanes)
    lane = next((lane for lane in lanes if lane.rung == guess), None)
    if lane is None:
        missing = (
            tr("Your guess, {guess}, did not run here: {reason}.", guess=title, reason=why_not)
            if why_not
            else tr("Your guess, {guess}, did not run here.", guess=title)
        )
        return f"{missing} " + tr("The fastest is {kernel}.", kernel=first.title)
    if lane is first or lane.rank == 1:
        return tr("Your guess, {guess}, is the fastest of {n}.", guess=title, n=n)
    text = tr(
        "Your guess, {guess}, is number {rank} of {n}: {ratio}× the time of the fastest, {kernel}.",
        guess=title,
        rank=lane.rank,
        n=n,
        ratio=units.ratio(lane.ratio),
        kernel=first.title,
    )
    if within_spread(lane.row, first.row):
        text += " " + tr("Their spreads overlap: no measurable difference.")
    return text


def finish(lanes: Sequence[Lane]) -> str:
    """Returns a caption on the first, the second and the last."""
    by_time = sorted(lanes, key=lambda lane: lane.row["median_ms"])
    first, time = by_time[0], units.time_(by_time[0].row["median_ms"])
    if len(by_time) == 1:
        return tr("Only {kernel} ran: {time}.", kernel=first.title, time=time)
    second, last = by_time[1], by_time[-1]
    sentences = [
        tr("The fastest is {kernel}: {time}.", kernel=first.title, time=time),
        tr("No measurable difference from {kernel}: their spreads overlap.", kernel=second.title)
        if within_spread(first.row, second.row)
        else tr("Next is {kernel}: {ratio}× that time.", kernel=second.title, ratio=units.ratio(second.ratio)),
    ]
    if len(by_time) > 2:
        sentences.append(tr("The slowest is {kernel}: {ratio}×.", kernel=last.title, ratio=units.ratio(last.ratio)))
    titled = [(lane.title, lane.row) for lane in by_time]
    notes = (units.disturbed_note(titled), units.waits_note(titled), units.sweeps_note(titled))
    return " ".join(filter(None, (*sentences, *notes)))


def clock(ms: float) -> tuple[int, str]:
    """Returns a time as a whole number of the largest unit that still gives two digits, for a counting clock."""
    for unit, scale in (("ms", 1.0), ("µs", 1e3)):
        if ms * scale >= 10:
            return round(ms * scale), unit
    return max(1, round(ms * 1e6)), "ns"


def pace(lanes: Sequence[Lane]) -> str:
    """Returns a sentence on how much slower or faster than the machine the page runs."""
    slower = slowdown(lanes)
    ratio = slower if slower >= 1 else 1 / slower
    times = units.count(float(f"{ratio:.2g}"))
    if slower >= 1:
        return tr("Slowed {ratio}×; the race stops when the fastest kernel finishes.", ratio=times)
    return tr("Sped up {ratio}×; the race stops when the fastest kernel finishes.", ratio=times)


# -- HTML ----------------------------------------------------------------------------------------
COLUMNS = {  # by their key, which the style sheet uses
    "time": mark("time"),
    "ratio": mark("× fastest"),
    "workspace": mark("workspace"),
    "error": mark("relative error"),
    "effective": mark("effective rate"),
    "actual": mark("actual rate"),
}


@cache
def css() -> str:
    """Returns the style sheet of the page, with the colour of each family on its lanes before the start."""
    hues = "".join(f".st-key-lanes_{f.key} {{ --kt-hue: var(--kt-{f.token}); }}" for f in FAMILIES.values())
    return Path(__file__).with_name("race.css").read_text(encoding="utf-8") + hues


def html(
    lanes: Sequence[Lane], out: Sequence[NotStarted] = (), guess: str = "", said: str = "", replay: int = 0
) -> str:
    """Returns the lanes, then the rungs that did not start. At the finish it shows the first one, and the
    sentence `said` on a `guess`. Another `replay` starts the animation again."""
    count, unit = clock(winner(lanes).row["median_ms"])
    kernel, progress = tr("kernel"), tr("progress when the fastest finishes")
    spread_name = " <small>" + tr("p20 to p80") + "</small>"
    headings = "".join(
        f'<th scope="col" class="kt-num" data-column="{key}">{tr(name)}{spread_name if key == "time" else ""}</th>'
        for key, name in COLUMNS.items()
    )
    lines = "".join(_lane(lane, winner(lanes), lane.rung == guess) for lane in lanes)
    not_started = "".join(
        f'<tr class="kt-out"><td></td><td colspan="{len(COLUMNS) + 2}"><b>{escape(", ".join(o.titles))}</b>: {escape(o.reason)}</td></tr>'
        for o in out
    )
    return (
        f'<div class="kt-race kt-replay-{replay % 2}" style="--kt-seconds:{SECONDS:g}s;--kt-count:{count};--kt-digits:{len(str(count))};--kt-end:{LINE}%;--kt-rows:{len(lanes) + len(out)}">'
        f'<p class="kt-clock" role="timer" aria-label="{decimal(f"{count:,}")} {unit}"><b></b> {unit} '
        f"<span>{escape(pace(lanes))}</span></p>"
        f'<p class="kt-verdict">{escape(said)}</p>'
        f'<table><thead><tr><td></td><th scope="col">{kernel}</th><th scope="col">{progress}</th>'
        f"{headings}</tr></thead><tbody>{lines}{not_started}</tbody></table>"
        f'<p class="kt-why">{escape(finish(lanes))}</p></div>'
    )


def style(**properties: str) -> str:
    """Returns the value of a style attribute."""
    return ";".join(f"{name}:{value}" for name, value in properties.items())


def _lane(lane: Lane, first: Lane, guessed: bool) -> str:
    row, best = lane.row, first.row["median_ms"]
    low, high = (LINE * best / row[name] for name in ("p80_ms", "p20_ms"))
    position = LINE * best / row["median_ms"]
    classes = ["kt-first"] * (lane.rank == 1) + ["kt-guess"] * guessed
    classes += ["kt-tied"] * (lane is not first and within_spread(row, first.row))
    spread_bar = style(left=f"{low:.2f}%", width=f"{max(0.0, min(high, 100.0) - low):.2f}%")
    ms = row["median_ms"]
    spread = tr("{p20} to {p80}", p20=units.time_(row["p20_ms"]), p80=units.time_(row["p80_ms"]))
    cells = (
        f"<b>{units.time_(ms)}</b> <small>{spread}</small>",
        f"{lane.ratio:.2f}" if lane.ratio < 10 else units.ratio(lane.ratio),
        units.bytes_(row["workspace_bytes"]),
        f"{row['error']:.1e}",
        units.rate(lane.effective, ms),
        "–" if lane.executed is None else units.rate(lane.executed, ms),
    )
    cells_html = "".join(
        f'<td class="kt-num" data-column="{key}" data-name="{tr(name)}"><span>{cell}</span></td>'
        for (key, name), cell in zip(COLUMNS.items(), cells, strict=True)
    )
    your_guess = tr("your guess")
    yours = f' <em class="kt-yours">{your_guess}</em>' if guessed else ""
    return (
        f'<tr class="{" ".join(classes)}" data-rung="{escape(lane.rung)}" '
        f'style="--kt-to:{position:.2f}%;--kt-hue:var(--kt-{family(lane.rung).token})">'
        f'<td class="kt-place"><span>{lane.rank}</span></td><th scope="row">{escape(lane.title)}{yours}</th>'
        f'<td class="kt-track"><div><i></i><u style="{spread_bar}"></u></div></td>{cells_html}</tr>'
    )
