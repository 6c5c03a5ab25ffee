"""The time of the kernel on the stage: the figure, its badge, its neighbours as bars, and the comparison in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from kernels.model.row import Json
from kernels.records import comparable
from kernels.records.statistics import fastest, same_time, undecided, within_ratio
from visuals import units
from visuals.charts.ladder_notes import fastest_library
from visuals.strip.evidence import Evidence, Row

MAX_BARS = 4
TIMES_AS_FAST = 2  # from here on "3.2× as fast" is clearer than "320 % of the speed"
CACHES = {
    "cold": mark("Before each run the caches were overwritten (cold)."),
    "hot": mark("The caches held the data of the run before (hot)."),
}


def times(evidence: Evidence, can_run: bool = True) -> Json:
    """Returns the texts and bars of the time of a kernel, or why there is none. `can_run`: whether there is a button Run."""
    row = evidence.row
    if row is None:
        return {
            "value": "–",
            "badge": None,
            "name": evidence.title,
            "text": _no_time(evidence, can_run),
            "bars": _bars(evidence),
        }
    return {
        "value": units.time_(row["median_ms"]),
        "badge": badge(row, evidence.kind),
        "name": evidence.title,
        "spread": _spread(row),
        "text": verdict(evidence),
        "bars": _bars(evidence),
    }


def badge(row: Row, kind: str) -> dict[str, str]:
    """Returns the kind of a row, its source (device, cache mode, n) and, as a hint, what these words mean."""
    device = str(row["device"]).removeprefix("NVIDIA ")
    text = source(row, kind)
    runs = trn("The median of {n} run.", "The median of {n} runs.", row["n"])
    hint = " ".join(filter(None, (runs, tr(CACHES.get(row["mode"], "")))))
    return {"kind": kind, "text": f"{text} · {device} · {row['mode']} · n = {row['n']}", "hint": hint}


def source(row: Row, kind: str) -> str:
    """Returns where a row comes from, in a few words."""
    return _where(row) if kind == "measured" else tr("recorded")


def _where(row: Row) -> str:
    """Returns where a row was measured: here, or on a machine of the pool, which the row names. On a processor NumPy
    computed it."""
    if row.get("machine"):
        return tr("measured on {machine}", machine=row["machine"])
    return tr("measured here with NumPy") if row["engine"] == "cpu" else tr("measured here")


def _spread(row: Row) -> str:
    low, high = (units.time_(row[key]) for key in ("p20_ms", "p80_ms"))
    return low if low == high else tr("{low} to {high} (p20 to p80)", low=low, high=high)


def _no_time(evidence: Evidence, can_run: bool) -> str:
    if any(evidence.rung.rules(evidence.shape, evidence.tiles)):
        return tr("This kernel cannot run this shape.")
    if evidence.not_here:
        return tr("Run does not measure this kernel here: {why}.", why=evidence.not_here)
    sizes = ", ".join(f"{name} {size}" for name, size in evidence.tiles.items())
    if not sizes or dict(evidence.tiles) == evidence.rung.default_tiles:
        none = tr("No recording exists for this shape.")
    else:
        none = tr("No recording exists for {sizes} at this shape.", sizes=sizes)
    return " ".join((none, tr("Press Run to measure it here."))) if can_run else none


def verdict(evidence: Evidence) -> str:
    """Returns how the kernel compares with the rung before it, and with the fastest library."""
    row = evidence.timed
    sentences = []
    if other := _compared_with(evidence):
        sentences.append(compared(row, other, evidence))
    library = fastest_library(evidence.rows.values())
    if library and library is not row and library is not other:
        sentences.append(_of_library(row, library, evidence))
    return " ".join(sentences)


def _of_library(row: Row, library: Row, evidence: Evidence) -> str:
    """Returns the speed as a share of the library's, or how many times as fast the kernel is."""
    speed = library["median_ms"] / row["median_ms"]
    if speed >= TIMES_AS_FAST or undecided(row, library):
        return compared(row, library, evidence)
    return tr("{share} of the speed of {name}.", share=units.share(speed), name=_name(library, evidence))


def compared(row: Row, other: Row, evidence: Evidence) -> str:
    """Returns one sentence that compares a row with another one of the same shape."""
    name = _name(other, evidence)
    if undecided(row, other):
        return tr("Too few runs to compare it with {name}.", name=name)
    if within_ratio(row, other):
        return tr("As fast as {name}: within 5 %.", name=name)
    if same_time(row, other):
        return tr("As fast as {name}: the spreads overlap.", name=name)
    ratio = row["median_ms"] / other["median_ms"]
    if ratio > 1:
        return tr("{ratio}× the time of {name}.", ratio=units.ratio(ratio), name=name)
    return tr("{ratio}× as fast as {name}.", ratio=units.ratio(1 / ratio), name=name)


def _name(row: Row, evidence: Evidence) -> str:
    return units.quoted(evidence.ladder.rung(row["rung"]).title_on(row["engine"]))


def _timed(evidence: Evidence) -> list[Row]:
    return [evidence.rows[r.name] for r in evidence.ladder.rungs if r.name in evidence.rows]


def _compared_with(evidence: Evidence) -> Row | None:
    """Returns the row of the rung before; for the first rung that of the next. A library's is the last choice."""
    rows, row = _timed(evidence), evidence.timed
    own = [r for r in rows if r is row or not evidence.ladder.rung(r["rung"]).library]
    pool = own if len(own) > 1 else rows
    at = pool.index(row)
    return pool[at - 1] if at else next(iter(pool[1:]), None)


def _bars(evidence: Evidence) -> list[Json]:
    """Returns the bars of the kernel and its neighbours. If they were recorded on different days, each names its day."""
    rows, tags = neighbours(evidence), _tags(evidence)
    longest = max((row["p80_ms"] for row in rows), default=1.0)
    dated = evidence.kind == "recorded" and len({row["date"] for row in rows}) > 1
    return [
        _bar(row, longest, evidence) | (_dated(row) if dated else {}) | {"tag": tags.get(row["rung"], "")}
        for row in rows
    ]


def _bar(row: Row, longest: float, evidence: Evidence) -> Json:
    return {
        "title": evidence.ladder.rung(row["rung"]).title_on(row["engine"]),
        "share": row["median_ms"] / longest,
        "low": row["p20_ms"] / longest,
        "high": row["p80_ms"] / longest,
        "text": units.time_(row["median_ms"]),
        "current": row is evidence.row,
    }


def _dated(row: Row) -> dict[str, str]:
    """Returns the day of a bar's row, and the whole date as a hint."""
    return {"day": units.day(row["date"]), "hint": tr("Recorded on {date}.", date=row["date"])}


def _fastest(evidence: Evidence) -> tuple[Row | None, Row | None]:
    """Returns the fastest row of our kernels and that of the libraries; None if there is none."""
    rows = _timed(evidence)
    ours = fastest(row for row in rows if not evidence.ladder.rung(row["rung"]).library)
    return ours, fastest_library(rows)


def _tags(evidence: Evidence) -> dict[str, str]:
    """Returns what a bar is beside the kernel, in a word or two, by rung name. A kernel of ours alone has no tag, and no
    library whose name is in its title."""
    ours, library = _fastest(evidence)
    tags = {}
    if ours and sum(not evidence.ladder.rung(name).library for name in evidence.rows) > 1:
        tags[ours["rung"]] = _of_ours(ours, evidence)
    if library and (rung := evidence.ladder.rung(library["rung"])).library not in rung.title:
        tags[library["rung"]] = tr("library")
    return tags


def _of_ours(ours: Row, evidence: Evidence) -> str:
    """Returns what our fastest row is among all that compute the same. A kernel of another lesson, or with other tile sizes,
    may be faster."""
    if evidence.hides_fastest:
        return tr("fastest so far")
    others = (row for row in comparable(ours) if row["rung"] != ours["rung"] and not find(row["rung"]).library)
    best = fastest(others)
    return tr("our fastest of these") if best and best["median_ms"] < ours["median_ms"] else tr("our fastest")


def neighbours(evidence: Evidence) -> Sequence[Row]:
    """Returns at most MAX_BARS rows in the ladder's order: the kernel's own, our fastest kernel's, the fastest library's,
    those of our kernels beside it."""
    rows = _timed(evidence)
    if len(rows) <= MAX_BARS:
        return rows
    row = evidence.row or rows[0]
    ours = [r for r in rows if r is row or not evidence.ladder.rung(r["rung"]).library]
    at, last = ours.index(row), len(ours)
    beside = [ours[n] for n in (at - 1, at + 1, at - 2, at + 2, at - 3) if 0 <= n < last]
    chosen = [r for r in (row, *_fastest(evidence), *beside, *rows) if r]
    kept = list({id(r): r for r in chosen})[:MAX_BARS]
    return [r for r in rows if id(r) in kept]
