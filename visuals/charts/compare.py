"""Two runs side by side, as HTML: their samples on one axis, and all fields of their rows with differences marked.

Pure functions of rows. Rows may come from anywhere, so every text in them is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from kernels.engines.protocol import COPIED
from kernels.i18n import decimal, mark, tr
from kernels.model.row import Row
from kernels.records import rows
from visuals import units
from visuals.charts.bars import css, span

NAMES = ("A", "B")
MAX_DOTS = 240  # dots of a run; more samples are thinned evenly by rank
LANE = 40  # px, height of a swarm
DOT = 5  # px
AXIS_PX = 640  # assumed px of the axis, to find which dots would overlap
ZOOM = 0.45  # if the smallest value is above this share of the largest, the axis does not begin at 0
# Fields shown by `figured` or in the picture, so not listed again by `explained`.
IN_FIGURES = frozenset(
    {
        "median_ms",
        "p20_ms",
        "p80_ms",
        "n",
        "samples_ms",
        "flops",
        "peak_bytes",
        "workspace_bytes",
        "error",
        "input_bytes",
        "output_bytes",
        "parts_ms",
        "predicted_bytes",
        "predicted_workspace_bytes",
    }
)
LABELS = {
    "mode": mark("caches"),
    "engine": mark("engine"),
    "device": mark("device"),
    "shape": mark("shape"),
    "tiles": mark("tile sizes"),
    "rung": mark("kernel"),
    "kernels": mark("digest of the kernels"),
    "event_floor_ms": mark("time of an empty measurement, ms"),
    "clock_sm_mhz": mark("SM clock before, MHz"),
    "clock_sm_mhz_after": mark("SM clock after, MHz"),
    "clock_memory_mhz": mark("memory clock before, MHz"),
    "clock_memory_mhz_after": mark("memory clock after, MHz"),
    "cuda": "CUDA",
    "cublas": "cuBLAS",
    "cufft": "cuFFT",
    "cudnn": "cuDNN",
    "cupy": "CuPy",
    "torch": "PyTorch",
    "queue_room": mark("time of the cache flushes ÷ time of queueing"),
    "queued": mark("samples queued before the GPU was free"),
    "disturbed": mark("disturbed by other programs"),
    "others": mark("use by other programs"),
    "numpy": "NumPy",
    "python": "Python",
    "ceilings": mark("peaks of the device"),
    "copies_ms": mark("copies"),
    "timeline": mark("memory, stages"),
    "time": mark("measured at (UTC)"),
    "date": mark("measured on"),
}
FIRST = (
    "rung",
    "shape",
    "tiles",
    "engine",
    "device",
    "mode",
    "time",
    "date",
    "driver",
    "cuda",
    "cublas",
    "cupy",
    "numpy",
    "python",
    "system",
)
MAX_CELL_CHARS = 160  # characters of a value, at most
LIBRARIES = ("cublas", "cufft", "cudnn", "torch")  # versions; None if the library is not installed
NOT_INSTALLED = mark("not installed")


# -- the samples ---------------------------------------------------------------------------------
def strips(run: Row, against: Row | None = None) -> str:
    """Draw every sample as a dot, p20 to p80 as a band, the median as a line; two runs share the axis."""
    runs = [r for r in (run, against) if r]
    low, high, ticks = _axis([ms for r in runs for ms in r["samples_ms"]])
    lanes = "".join(_lane(name, r, low, high) for name, r in zip(NAMES, runs, strict=False))
    marks = "".join(
        f'<i class="kt-tick" style="left:{_percent(t, low, high)}"><span>{units.time_(t) if t else "0"}</span></i>'
        for t in ticks
    )
    max_dots = max(len(r["samples_ms"]) for r in runs)
    notes = [
        tr("Each dot is one of {n} samples, drawn from {total}.", n=MAX_DOTS, total=units.whole(max_dots))
        if max_dots > MAX_DOTS
        else tr("Each dot is a sample."),
        tr("The band is p20 to p80, the line the median."),
        tr("The axis does not begin at 0.") if low else "",
    ]
    return (
        f'<div class="kt-strips"><div class="kt-lanes">{lanes}<div class="kt-axis" aria-hidden="true">{marks}</div></div>'
        f'<p class="kt-quiet">{" ".join(filter(None, notes))}</p></div>'
    )


def _lane(name: str, row: Row, low: float, high: float) -> str:
    times = {key: units.time_(row[f"{key}_ms"]) for key in ("median", "p20", "p80")}
    label = tr("{name}: median {median}, p20 {p20}, p80 {p80}, n = {n}", name=name, n=row["n"], **times)
    left, middle, right = (_share(row[k], low, high) for k in ("p20_ms", "median_ms", "p80_ms"))
    dots = "".join(
        f'<i class="kt-dot" style="{css(left=f"{100 * x:.2f}%", top=f"{y:.1f}px")}"></i>'
        for x, y in _swarm(row["samples_ms"], low, high)
    )
    return (
        f'<div class="kt-lane kt-run-{name}" role="img" aria-label="{escape(label)}"><b>{name}</b>'
        f'<i class="kt-band" style="{css(left=f"{100 * left:.2f}%", right=f"{100 * (1 - right):.2f}%")}"></i>{dots}'
        f'<i class="kt-median" style="left:{100 * middle:.2f}%"></i></div>'
    )


def _axis(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Returns (low, high, ticks) of an axis: from 0 unless all values are far from it; ticks are round numbers."""
    low_ms, high_ms = min(values), max(values)
    if low_ms < ZOOM * high_ms:
        low_ms = 0.0
    step = _round_step(max(high_ms - low_ms, high_ms * 1e-3) / 5)
    low = 0.0 if not low_ms else max(0.0, math.floor(low_ms / step) * step)
    high = math.ceil(high_ms / step) * step
    if high - low < step:
        high = low + step
    count = round((high - low) / step)
    return low, high, [low + i * step for i in range(count + 1)]


def _round_step(step: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    scale = 10.0 ** math.floor(math.log10(step))
    return scale * next(m for m in (1, 2, 5, 10) if m * scale >= step * (1 - 1e-9))


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low)


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * _share(value, low, high):.2f}%"


def _swarm(samples: Sequence[float], low: float, high: float) -> list[tuple[float, float]]:
    """Returns (share of the axis, px from the lane's top) of each dot. Dots that would overlap stack around the middle,
    closer if there are many."""
    if len(samples) > MAX_DOTS:
        samples = [float(q) for q in np.quantile(samples, np.linspace(0, 1, MAX_DOTS))]
    columns: dict[int, list[float]] = {}
    for ms in sorted(samples):
        columns.setdefault(int(_share(ms, low, high) * AXIS_PX / DOT), []).append(ms)
    placed = []
    for column in columns.values():
        gap = min(DOT, LANE / len(column))
        for i, ms in enumerate(column):
            offset = (i + 1) // 2 * gap * (1 if i % 2 else -1)
            placed.append((_share(ms, low, high), (LANE + DOT) / 2 + offset))
    return placed


# -- the tables ----------------------------------------------------------------------------------
def figures_table(run: Row, against: Row | None = None) -> str:
    """Returns a table of times, rates, memory and errors; beside each number of B its ratio to A's."""
    runs = [r for r in (run, against) if r]
    lines = [
        _ratio_line(tr("median"), runs, "median_ms", units.time_),
        _line(tr("p20 to p80"), [span(r) for r in runs]),
        _line(tr("samples"), [units.whole(r["n"]) for r in runs]),
        _line(tr("effective rate"), [units.rate(r["flops"], r["median_ms"]) for r in runs]),
        _ratio_line(tr("peak memory"), runs, "peak_bytes", units.bytes_),
        _ratio_line(tr("workspace, part of it"), runs, "workspace_bytes", units.bytes_),
        _line(tr("relative L2 error"), [decimal(f"{r['error']:.1e}") for r in runs]),
    ]
    head = "".join(f'<th scope="col"><b class="kt-run-{n}">{n}</b></th>' for n, _ in zip(NAMES, runs, strict=False))
    return _table(f"<tr><td></td>{head}</tr>{''.join(lines)}", tr("Figures"))


def fields_table(run: Row, against: Row | None = None, origins: Sequence[str] = ()) -> str:
    """Returns all other fields of a row. Of two rows, differing fields come first and are marked; the rest is folded."""
    runs = [r for r in (run, against) if r]
    names = list(dict.fromkeys([n for n in FIRST if any(n in r for r in runs)] + [n for r in runs for n in r]))
    cells = {
        tr(LABELS.get(n, n.replace("_", " "))): [_value_text(n, r) for r in runs] for n in names if n not in IN_FIGURES
    }
    if origins:
        cells[tr("from")] = list(origins)
    if against is None:
        return _folded(tr("How it was measured"), "".join(_line(n, c) for n, c in cells.items()), " open")
    different = {n: c for n, c in cells.items() if c[0] != c[1]}
    same = {n: c for n, c in cells.items() if n not in different}
    differing = "".join(_line(n, c, differs=True) for n, c in different.items())
    heading = tr("What differs")
    text = f'<h3 class="kt-label">{heading}</h3>{_table(differing, heading)}' if different else ""
    return text + _folded(
        tr("The same in both: {n}", n=len(same)), "".join(_line(n, c[:1], span=2) for n, c in same.items())
    )


def _value_text(name: str, row: Row) -> str:
    """Format a value of a row as short text."""
    value: Any = row.get(name)
    if name == "shape":
        return rows.shape_text(row)
    if name == "tiles" and value is not None:
        return ", ".join(f"{n} {v}" for n, v in value.items()) or tr("none")
    if name == "ceilings" and value:
        return tr(
            "copy {copy}, FP32 {fp32}, an empty kernel {launch}",
            copy=units.bandwidth(value["copy_bytes_per_s"]),
            fp32=units.rate(value["fp32_flops_per_s"], 1e3),
            launch=units.time_(value["launch_us"] / 1e3),
        )
    if name == "copies_ms" and value:
        return ", ".join(f"{way.replace('_', ' ')} {units.time_(value[way])}" for way in COPIED)
    if isinstance(value, list):
        return tr("{n} values", n=len(value))
    if isinstance(value, dict):
        value = json.dumps(value)
    elif isinstance(value, float):
        value = f"{value:.6g}"
    text = tr(NOT_INSTALLED if name in LIBRARIES else units.UNKNOWN) if value is None else str(value)
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"


def _ratio_line(name: str, runs: Sequence[Row], key: str, format_value) -> str:
    cells = [format_value(r[key]) for r in runs]
    if len(runs) == 2 and runs[0][key] and runs[1][key] != runs[0][key]:
        ratio = runs[1][key] / runs[0][key]
        times = decimal(f"{ratio:.2f}") if 0.1 <= ratio < 10 else units.ratio(float(f"{ratio:.2g}"))
        return _line(name, cells, after=f" <small>{times}×</small>")
    return _line(name, cells)


def _line(name: str, cells: Sequence[str], differs: bool = False, span: int = 1, after: str = "") -> str:
    texts = [escape(cell) for cell in cells]
    texts[-1] += after
    wide = f' colspan="{span}"' if span > 1 else ""
    body = "".join(f"<td{wide}>{text}</td>" for text in texts)
    label = tr("differs")
    sign = f' <span class="kt-differs" title="{label}">≠</span>' if differs else ""
    return f'<tr><th scope="row">{escape(name)}{sign}</th>{body}</tr>'


def _table(lines: str, label: str) -> str:
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{label}"><table class="kt-table kt-facts">{lines}'
        "</table></div>"
    )


def _folded(label: str, lines: str, attributes: str = "") -> str:
    if not lines:
        return ""
    return f'<details class="kt-more"{attributes}><summary>{label}</summary>{_table(lines, label)}</details>'
