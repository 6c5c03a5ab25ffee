"""Figures in words: bytes, times, rates as a reader says them, and the badge that tells their kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from kernels.engines import AHEAD

KINDS = ("measured", "counted", "recorded", "predicted")


def badge(kind: str, detail: str = "") -> str:
    """HTML of the one badge: what kind of number stands beside it, and from where."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    text = f"{kind} {detail}".strip()
    return f'<span class="kt-badge kt-badge-{kind}">{escape(text)}</span>'


def bytes_(count: float) -> str:
    """1536 -> "1.5 KB" (powers of 1000)."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:,.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def time_(ms: float) -> str:
    """0.0047 -> "4.7 µs"."""
    if ms < 1:
        return f"{ms * 1e3:.3g} µs"
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1e3:.3g} s"


def count(number: float) -> str:
    """1296 -> "1,296", 231211008 -> "231 M"."""
    if number < 1e5:
        return f"{number:,.0f}"
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    raise AssertionError


def rate(flops: float, ms: float) -> str:
    """FLOPs in ms as "26.8 TFLOP/s"."""
    per_second = flops / ms * 1e3
    for unit, scale in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)):
        if per_second >= scale:
            return f"{per_second / scale:.3g} {unit}"
    return f"{per_second / 1e3:.3g} kFLOP/s"


def bandwidth(bytes_per_s: float) -> str:
    """4.1e12 -> "4.1 TB/s"."""
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= scale:
            return f"{bytes_per_s / scale:.3g} {unit}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"


def share(part: float) -> str:
    """0.4512 -> "45 %", 0.00123 -> "0.12 %"."""
    if 0 < part < 1e-5:
        return "< 0.001 %"
    return f"{100 * part:,.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def ratio(number: float) -> str:
    """0.404 -> "0.404", 1253.7 -> "1,250": three digits, never a power of ten below a million."""
    return f"{float(f'{number:.3g}'):,.0f}" if 100 <= number < 1e6 else f"{number:.3g}"


def provenance(row: Mapping) -> str:
    """What a badge says of one measured row: device, mode, n."""
    return f"{row['device']}, {row['mode']}, n = {row['n']}"


def waited(row: Mapping) -> str:
    """How many of a row's samples were queued before the GPU came to them, "3 of 20"; "" where all were, or that was
    not asked. Where some were not, the time holds waits for the processor."""
    told = row.get("queued", AHEAD)
    return "" if told == AHEAD else told


def waits(titled: Iterable[tuple[str, Mapping]]) -> str:
    """What to know of the times that hold waits for the processor, "" where none of them does."""
    named = {title: waited(row) for title, row in titled if waited(row)}
    if not named:
        return ""
    return (
        f"Waits for the processor are in the time of {' and '.join(named)}: more launches than the GPU’s queue holds, or a "
        f"wait for the GPU within (samples queued before the GPU came to them: {', '.join(dict.fromkeys(named.values()))})."
    )
