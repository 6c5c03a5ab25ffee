"""Numbers as text: bytes, times, rates, notes on times, and the badge with their kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from html import escape

from kernels.engines.protocol import AHEAD
from kernels.i18n import decimal, mark, tr
from kernels.machine.others import CORES, GPU

MAX_CLOCK_DROP = 0.03  # share of the clock; a larger drop is reported
MAX_GAP = timedelta(hours=1)  # between two measurements of one sweep

KINDS = (mark("measured"), mark("counted"), mark("recorded"), mark("predicted"))
_BINARY = re.compile(r"(\d+(?:\.\d+)?) ([KMGT])iB")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")  # a line of text never ends within one
_WORD = re.compile(r"(?<![\w.])[^\W\d_A-Z]{2,}(?![\w.])")  # in small letters
UNKNOWN = mark("unknown")  # cannot be predicted, because only a vendor's library knows it


def badge(kind: str, detail: str = "") -> str:
    """Returns the HTML of a badge: the kind of number beside it, and its source."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    text = _DATE.sub(r'<span class="kt-date">\g<0></span>', escape(f"{tr(kind)} {detail}".strip()))
    return f'<span class="kt-badge kt-badge-{kind}">{text}</span>'


def bytes_(count: float | None) -> str:
    """Format bytes: 1536 -> "1.54 KB" (powers of 1000), None -> "unknown"."""
    if count is None:
        return tr(UNKNOWN)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return decimal(f"{count:,.0f} B" if unit == "B" else f"{count:.3g} {unit}")
        count /= 1000
    raise AssertionError


def time_(ms: float) -> str:
    """Format ms: 0.0047 -> "4.7 µs", 65_000_000 -> "18.1 h"."""
    if ms < 1:
        return decimal(f"{ms * 1e3:.3g} µs")
    if ms < 6e5:
        return decimal(f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1e3:.3g} s")
    return decimal(f"{ms / 6e4:.3g} min" if ms < 6e6 else f"{ms / 3.6e6:.3g} h")


def count(number: float | None) -> str:
    """Format a count: 1296 -> "1,296", 231211008 -> "231 M", None -> "unknown"."""
    if number is None:
        return tr(UNKNOWN)
    if number < 1e5:
        return whole(number)
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return decimal(f"{number / scale:.3g} {unit}")
    raise AssertionError


def rate(flops: float, ms: float) -> str:
    """Format FLOPs in ms as a rate: "26.8 TFLOP/s"."""
    per_second = flops / ms * 1e3
    for unit, scale in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)):
        if per_second >= scale:
            return f"{ratio(per_second / scale)} {unit}"
    return f"{ratio(per_second / 1e3)} kFLOP/s"


def bandwidth(bytes_per_s: float) -> str:
    """Format bytes per second: 4.1e12 -> "4.1 TB/s"."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= scale:
            return decimal(f"{bytes_per_s / scale:.3g} {unit}")
    return decimal(f"{bytes_per_s / 1e3:.3g} KB/s")


def share(part: float) -> str:
    """Format a share: 0.4512 -> "45 %", 0.00123 -> "0.12 %"."""
    if 0 < part < 1e-5:
        return decimal("< 0.001 %")
    return decimal(f"{100 * part:,.0f} %" if part >= 0.1 else f"{100 * part:.2g} %")


def days(rows: Iterable[Mapping]) -> str:
    """Returns the day on which rows were recorded, or the first and the last day."""
    dates = {row["date"] for row in rows}
    first, last = min(dates), max(dates)
    return first if first == last else tr("{first} to {last}", first=first, last=last)


MONTHS = (
    mark("Jan"),
    mark("Feb"),
    mark("Mar"),
    mark("Apr"),
    mark("May"),
    mark("Jun"),
    mark("Jul"),
    mark("Aug"),
    mark("Sep"),
    mark("Oct"),
    mark("Nov"),
    mark("Dec"),
)


def day(date: str) -> str:
    """Format a date without its year: "2026-11-28" -> "28 Nov"."""
    _, month, number = map(int, date.split("-"))
    return tr("{day} {month}", day=number, month=tr(MONTHS[month - 1]))


def ratio(number: float | None) -> str:
    """Format a ratio: 0.404 -> "0.404", 1253.7 -> "1,250": three digits, no power of ten below a million; None ->
    "unknown"."""
    if number is None:
        return tr(UNKNOWN)
    return decimal(f"{float(f'{number:.3g}'):,.0f}" if 100 <= number < 1e6 else f"{number:.3g}")


def whole(number: float) -> str:
    """Format a whole number in full: 4194304 -> "4,194,304"."""
    return decimal(f"{number:,.0f}")


def exact_bytes(count: int) -> str:
    """Format bytes in full: 1536 -> "1,536 B"."""
    return f"{whole(count)} B"


def in_decimal_units(text: str) -> str:
    """Returns the text with binary sizes in decimal units: "1024 MiB" -> "1.07 GB"."""
    return _BINARY.sub(lambda m: bytes_(float(m[1]) * 1024 ** " KMGT".index(m[2])), text)


def capitalized(text: str) -> str:
    """Returns the text with a capital first letter. A first word that is a name, as mma.sync or cuBLAS, is unchanged."""
    first = text.split()[0]
    is_name = "." in first or first != first.lower()
    return text if is_name else text[:1].upper() + text[1:]


def named(title: str, first: bool = False) -> str:
    """Returns a title for a sentence, capitalized if it is `first` in it. A title that would not read as one name, such
    as "unsafe: no maximum", is in quotation marks."""
    if title.startswith(("a ", "an ")) or "," in title or ":" in title:
        return tr("“{title}”", title=title)
    return capitalized(title) if first else title


def quoted(title: str) -> str:
    """Returns a title for the middle of a sentence. A title that reads as words, such as "loss, then gradient", is in
    quotation marks. One that is a name, such as "cuBLAS FP32", is not."""
    return tr("“{title}”", title=title) if _WORD.search(title) else named(title)


def provenance(row: Mapping) -> str:
    """Returns the text of a badge for one measured row: device, mode, n, and whether other programs disturbed it."""
    return ", ".join(filter(None, (row["device"], row["mode"], f"n = {row['n']}", disturbance(row))))


def queued_samples(row: Mapping) -> str:
    """Returns how many of a row's samples were queued before the GPU reached them, "3 of 20"; "" if all were, or if the
    row does not say. If some were not, the time includes waits for the processor."""
    queued = row.get("queued", AHEAD)
    return "" if queued == AHEAD else queued


def waits_note(titled: Iterable[tuple[str, Mapping]]) -> str:
    """Returns a note on the times that include waits for the processor; "" if none does."""
    named = {title: queued_samples(row) for title, row in titled if queued_samples(row)}
    if not named:
        return ""
    titles, queued = ", ".join(named), ", ".join(dict.fromkeys(named.values()))
    return tr(
        "These times include waits for the CPU: {titles}. Samples queued before the GPU was free: {queued}.",
        titles=titles,
        queued=queued,
    )


DISTURBED = {
    CORES: mark("disturbed: other programs used the cores"),
    GPU: mark("disturbed: other programs used the GPU"),
}
ELSE_DISTURBED = mark("disturbed by other programs")  # as a later version may name it


def disturbance(*rows: Mapping) -> str:
    """Returns what other programs used while one of these rows was timed, in words; "" if no row is disturbed."""
    used = next((row["disturbed"] for row in rows if row.get("disturbed")), "")
    return tr(DISTURBED.get(used, ELSE_DISTURBED)) if used else ""


def disturbed_note(titled: Iterable[tuple[str, Mapping]]) -> str:
    """Returns a note with the titles whose times other programs disturbed; "" if none."""
    titles = [title for title, row in titled if row.get("disturbed")]
    if not titles:
        return ""
    return tr(
        "Other programs ran while these were timed: {titles}. An idle machine may need less time.",
        titles=", ".join(titles),
    )


def clock_note(titled: Iterable[tuple[str, Mapping]]) -> str:
    """Returns a note if the device's clock fell by more than MAX_CLOCK_DROP during the measurement, else ""."""
    drops: dict[tuple[int, int], list[str]] = {}
    parts = False
    for title, row in titled:
        before, after = row.get("clock_sm_mhz") or 0, row.get("clock_sm_mhz_after") or 0
        if after and after < (1 - MAX_CLOCK_DROP) * before:
            drops.setdefault((before, after), []).append(title)
            parts |= bool(row.get("parts_ms"))
    sentences = [
        tr(
            "The SM clock fell from {before} to {after} MHz during the run of {titles}.",
            before=whole(before),
            after=whole(after),
            titles=", ".join(titles),
        )
        for (before, after), titles in drops.items()
    ]
    if parts:
        sentences.append(tr("Steps were timed last, at the lower clock, so they are slower than in the whole run."))
    return " ".join(sentences)


def sweeps_note(titled: Iterable[tuple[str, Mapping]]) -> str:
    """Returns a note on times that are not of one sweep: over MAX_GAP from the others; "" if all are of one sweep."""
    sweeps: list[list[tuple[str, Mapping]]] = []
    dated = [pair for pair in titled if "time" in pair[1]]
    for title, row in sorted(dated, key=lambda pair: pair[1]["time"]):
        if not sweeps or _measured_at(row) - _measured_at(sweeps[-1][-1][1]) > MAX_GAP:
            sweeps.append([])
        sweeps[-1].append((title, row))
    return " ".join(
        tr(
            "Measured in a separate run, at {time} UTC: {titles}.",
            time=f"{_measured_at(sweep[0][1]):%Y-%m-%d %H:%M}",
            titles=", ".join(title for title, _ in sweep),
        )
        for sweep in sorted(sweeps, key=len)[:-1]
    )


def _measured_at(row: Mapping) -> datetime:
    return datetime.fromisoformat(row["time"])
