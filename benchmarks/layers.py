"""The layers of a training step on a GPU: every rung verified, and its time compared with a copy and with the library.

    python3 benchmarks/layers.py --out OUT [--seconds 300] [--budget 0.5] [LADDER ...]

Without names: every ladder of a training step. A ladder's presets that move `--bytes` or compute 5 GFLOP are measured,
or its largest one. Cold, samples interleaved. A row's share of the copy is the time of a cold copy of as many bytes,
measured on this device before, divided by its own time: 100 % is the limit of memory. Prints a table for each shape, then
one of all shapes, and writes OUT/layers.json. After --seconds no new shape is begun, and the shapes left out are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import copies, report
from benchmarks.report import Column
from kernels.engines import cuda
from kernels.ladders import LADDERS
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.model.result import Result
from kernels.model.rung import Ladder
from kernels.records import availability
from kernels.records.copies import interpolated
from kernels.runner import VerificationError, compare

# Ladders that are no part of a training step's layers.
OTHERS = {
    "conv",
    "conv-fp16",
    "fusion-fp16",
    "gemm",
    "gemm-8bit",
    "attention",
    "softmax",
    "fusion",
    "loops",
    "attention-loops",
    "add",
    "stride",
    "banks",
    "branch",
    "layout",
    "instruction-rate",
}
MIN_FLOPS = 5e9
SUMMARY = (
    report.RUNG,
    Column("shape", "", "shape"),
    Column("us", ".1f", lambda row: 1e3 * row["median_ms"]),
    Column("copy us", ".1f", lambda row: row["copy_ms"] and 1e3 * row["copy_ms"]),
    Column("of copy", ".0%", "of_copy"),
    Column("library us", ".1f", lambda row: row["library_ms"] and 1e3 * row["library_ms"]),
)
COLUMNS = (
    report.RUNG,
    Column("us", ".2f", lambda row: 1e3 * row["median_ms"]),
    report.SPREAD,
    report.SAMPLES,
    Column("GB/s", ".0f", "gb_per_s"),
    report.TFLOPS,
    Column("of copy", ".1%", "of_copy"),
    Column("of lib", ".1%", "of_library"),
    report.ERROR,
)


def shapes(ladder: Ladder, min_bytes: float) -> list[Any]:
    """Returns the shapes of a ladder's presets that move so many bytes or compute MIN_FLOPS, or the one that moves most."""
    all_shapes = list(dict.fromkeys(preset.shape for preset in ladder.presets.values()))
    large = [s for s in all_shapes if s.bytes >= min_bytes or s.flops >= MIN_FLOPS]
    return large or [max(all_shapes, key=lambda s: s.bytes)]


def measured(ladder: Ladder, s: Any, copy_ms: float | None, seconds: float) -> list[dict]:
    """Returns a row of each rung that this machine runs; the others, and what is wrong, are printed."""
    rungs = [r.name for r in availability.supported_rungs(ladder, "cuda", s)]
    results: list[Result] = []
    try:
        results = compare(
            rungs, s, engine="cuda", budget=Budget(seconds=seconds, min_samples=10), refused=lambda *why: print(*why)
        )
    except (RuleError, VerificationError) as e:
        print(f"FAILED {ladder.name} {s}: {e}", flush=True)
        for name in rungs:
            results += alone(name, s, seconds)
    libraries = [r.name for r in ladder.rungs if r.library]
    rows = [row(r, s, copy_ms) for r in results]
    base = report.fastest_ms(rows, libraries)
    return [r | {"of_library": report.speed_relative_to(base, r)} for r in rows]


def alone(name: str, s: Any, seconds: float) -> Iterator[Result]:
    """Yields the result of one rung, or prints why there is none."""
    try:
        yield from compare([name], s, engine="cuda", budget=Budget(seconds=seconds, min_samples=10))
    except (RuleError, VerificationError) as e:
        print(f"FAILED {name} {s}: {e}", flush=True)


def row(result: Result, s: Any, copy_ms: float | None) -> dict:
    m = result.measurement
    return {
        "shape": s.params(),
        "rung": result.rung,
        "tiles": dict(result.tiles),
        "n": m.n,
        "median_ms": m.median_ms,
        "p20_ms": m.p20_ms,
        "p80_ms": m.p80_ms,
        "gb_per_s": s.bytes / m.median_ms / 1e6,
        "tflops": s.flops / m.median_ms / 1e9,
        "of_copy": copy_ms and copy_ms / m.median_ms,
        "error": result.error,
        "parts_ms": dict(m.parts_ms),
    }


def summary(ladder: Ladder, s: Any, rows: list[dict], copy_ms: float | None) -> dict | None:
    """Returns our fastest rung of a shape beside the copy and the fastest library; None if none of ours was timed."""
    libraries = [r.name for r in ladder.rungs if r.library]
    ours = [row for row in rows if row["rung"] not in libraries]
    if not ours:
        return None
    best = min(ours, key=lambda row: row["median_ms"])
    return best | {"shape": str(s), "copy_ms": copy_ms, "library_ms": report.fastest_ms(rows, libraries)}


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("ladders", nargs="*", default=[name for name in LADDERS if name not in OTHERS])
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--seconds", type=float, default=300.0, help="nothing new is begun after so many")
    options.add_argument("--budget", type=float, default=0.5, help="seconds for the samples of one shape")
    options.add_argument("--bytes", type=float, default=2e8, help="that a shape moves at least")
    return options.parse_args()


def main() -> int:
    args, elapsed = arguments(), report.stopwatch()
    if not (status := cuda.status()).ready:
        print(status.text)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    ceilings = cuda.ceilings()
    copied = list(copies.copies())
    results = {
        "device": cuda.device_name(),
        "conditions": cuda.conditions(),
        "ceilings": ceilings,
        "copies": copied,
        "rows": [],
    }
    print(f"{results['device']}\n{report.table(copied, copies.COLUMNS)}", flush=True)
    best = []
    cases = [(LADDERS[name], s) for name in args.ladders for s in shapes(LADDERS[name], args.bytes)]
    for ladder, s in report.in_time(cases, elapsed, args.seconds, lambda case: f"{case[0].name} {case[1]}"):
        copy_ms = interpolated(s.bytes, copied)
        rows = measured(ladder, s, copy_ms, args.budget)
        best += filter(None, [summary(ladder, s, rows, copy_ms)])
        results["rows"] += rows
        report.write_json(args.out / "layers.json", results)
        text = report.table(sorted(rows, key=lambda r: -r["median_ms"]), COLUMNS)
        print(f"\n{ladder.name} {s}, {s.bytes / 1e6:,.0f} MB, {elapsed():.0f} s so far\n{text}", flush=True)
    print(f"\n{report.table(best, SUMMARY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
