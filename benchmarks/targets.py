"""Figures with targets: one measurement as a line, a Markdown table of lines, and a file with every sample."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import report
from kernels.machine.processor import device_name


@dataclass(frozen=True)
class Line:
    """One measurement: a figure, its target, and every sample."""

    what: str
    unit: str
    value: float
    target: str
    met: bool
    n: int
    detail: str
    samples: list[float]


def line(what, unit, value, target_value, samples, detail="", at_least=False) -> Line:
    met = value >= target_value if at_least else value <= target_value
    target = f"{'≥' if at_least else '≤'} {target_value:g} {unit}"
    return Line(what, unit, float(value), target, bool(met), len(samples), detail, [float(s) for s in samples])


def spread(samples: Sequence[float]) -> str:
    low, high = np.percentile(samples, [20, 80])
    return f"p20 {low:.3g}, p80 {high:.3g}"


def seconds(work: Callable[[], object]) -> float:
    """Returns the seconds that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def publish(lines: Sequence[Line], out: str | None, load_average: float, chromium: str = "") -> None:
    """Print the table, and write all samples to the file `out`, if it is given. `chromium`: version of the browser, if
    there was one."""
    browser = f"Chromium {chromium}, headless, no GPU, 1440 × 900; " if chromium else ""
    about = f"{device_name()}; {browser}Python {sys.version.split()[0]}; load average before {load_average:.1f}"
    print(f"{about}\n\n| what | measured | target | met | n | spread |\n|---|---|---|---|---|---|")
    for measured in lines:
        met = "yes" if measured.met else "**no**"
        value = f"{measured.value:.3g} {measured.unit}"
        print(f"| {measured.what} | {value} | {measured.target} | {met} | {measured.n} | {measured.detail} |")
    if out:
        report.write_json(Path(out), {"about": about, "lines": [asdict(measured) for measured in lines]})
