"""Numbers as text: bytes, times, rates, notes on times, and the badge with their kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from html import escape

from kernels.engines.protocol import AHEAD

MAX_CLOCK_DROP = 0.03  # share of the clock; a larger drop is reported
MAX_GAP = timedelta(hours=1)  # between two measurements of one sweep

KINDS = ("measured", "counted", "recorded", "predicted")
UNKNOWN = "unknown"  # cannot be predicted, because only a vendor's library knows it


def badge(kind: str, detail: str = "") -> str:
    """Returns the HTML of a badge: the kind of number beside it, and its source."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    text = f"{kind} {detail}".strip()
    return f'<span class="kt-badge kt-badge-{kind}">{escape(text)}</span>'


def bytes_(count: float | None) -> str:
    """Format bytes: 1536 -> "1.54 KB" (powers of 1000), None -> "unknown"."""
    if count is None:
        return UNKNOWN
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:,.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def time_(ms: float) -> str:
    """Format ms: 0.0047 -> "4.7 µs"."""
    if ms < 1:
        return f"{ms * 1e3:.3g} µs"
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1e3:.3g} s"


def count(number: float | None) -> str:
    """Format a count: 1296 -> "1,296", 231211008 -> "231 M", None -> "unknown"."""
    if number is None:
        return UNKNOWN
    if number < 1e5:
        return f"{number:,.0f}"
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    raise AssertionError


def rate(flops: float, ms: float) -> str:
    """Format FLOPs in ms as a rate: "26.8 TFLOP/s"."""
    per_second = flops / ms * 1e3
    for unit, scale in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)):
        if per_second >= scale:
            return f"{per_second / scale:.3g} {unit}"
    return f"{per_second / 1e3:.3g} kFLOP/s"


def bandwidth(bytes_per_s: float) -> str:
    """Format bytes per second: 4.1e12 -> "4.1 TB/s"."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= scale:
            return f"{bytes_per_s / scale:.3g} {unit}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"


def share(part: float) -> str:
    """Format a share: 0.4512 -> "45 %", 0.00123 -> "0.12 %"."""
    if 0 < part < 1e-5:
        return "< 0.001 %"
    return f"{100 * part:,.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def ratio(number: float | None) -> str:
    """Format a ratio: 0.404 -> "0.404", 1253.7 -> "1,250": three digits, no power of ten below a million; None ->
    "unknown"."""
    if number is None:
        return UNKNOWN
    return f"{float(f'{number:.3g}'):,.0f}" if 100 <= number < 1e6 else f"{number:.3g}"


def provenance(row: Mapping) -> str:
    """Returns the text of a badge for one measured row: device, mode, n."""
    return f"{row['device']}, {row['mode']}, n = {row['n']}"


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
    return (
        f"Waits for the processor are in the time of {', '.join(named)}: more launches than the GPU’s queue holds, or a "
        f"wait for the GPU within (samples queued before the GPU came to them: {', '.join(dict.fromkeys(named.values()))})."
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
    sentences = (
        f"from {before:,} to {after:,} MHz ({', '.join(titles)})" for (before, after), titles in drops.items()
    )
    last = ": steps, timed by themselves and last, are slower than in the whole" * parts
    return f"The SM clock fell during the run, {' and '.join(sentences)}{last}." if drops else ""


def sweeps_note(titled: Iterable[tuple[str, Mapping]]) -> str:
    """Returns a note on times that are not of one sweep: over MAX_GAP from the others; "" if all are of one sweep."""
    sweeps: list[list[tuple[str, Mapping]]] = []
    dated = [pair for pair in titled if "time" in pair[1]]
    for title, row in sorted(dated, key=lambda pair: pair[1]["time"]):
        if not sweeps or _measured_at(row) - _measured_at(sweeps[-1][-1][1]) > MAX_GAP:
            sweeps.append([])
        sweeps[-1].append((title, row))
    others = sorted(sweeps, key=len)[:-1]
    sentences = (
        f"{', '.join(title for title, _ in sweep)} ({_measured_at(sweep[0][1]):%Y-%m-%d %H:%M} UTC)"
        for sweep in others
    )
    return f"Measured in another run than the rest: {'; '.join(sentences)}." if others else ""


def _measured_at(row: Mapping) -> datetime:
    return datetime.fromisoformat(row["time"])
