"""Winograd on a GPU: verify every rung at the 3x3 layers of ResNet-50, batch 32, and time each step.

    python3 benchmarks/winograd.py --out OUT [--tune]

Compiles and verifies every rung at every tile size, at odd shapes and at the four layers. Then times all rungs of a
layer together, cold, and each step alone. --tune adds the other tile sizes of each rung; without it the tile sizes of
M = 2, 4 and 6 are timed. Prints effective and executed TFLOP/s, registers and spills, and writes all figures to
OUT/winograd.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.compiling import compile_all
from benchmarks.measure import Candidate, Verified
from benchmarks.report import Column
from kernels.conv import common as conv_common
from kernels.conv import reference
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import MAX_ERROR, RUNGS
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, Program
from kernels.model.rung import Rung
from kernels.runner import seeded_inputs

LAYERS = tuple(ConvShape(32, c, n, n, c, 3, 3, pad=1) for c, n in ((64, 56), (128, 28), (256, 14), (512, 7)))
ODD = (
    ConvShape(1, 1, 3, 3, 1, 3, 3),
    ConvShape(3, 17, 7, 9, 70, 3, 3, pad=1, mode="convolution"),
    ConvShape(2, 130, 13, 6, 33, 3, 3, pad=(3, 0), bias=1, relu=1),
    ConvShape(5, 7, 30, 31, 129, 3, 3, pad=2),
)
BUDGET = Budget(samples=40, seconds=1.2, min_samples=5)
COLUMNS = (
    report.RUNG,
    report.MEDIAN_MS,
    report.SPREAD,
    Column("effective", ".2f", "effective_tflops"),
    Column("executed", ".2f", "executed_tflops"),
    Column("MB", ".1f", lambda row: row["workspace_bytes"] / 1e6),
    report.ERROR,
    report.TILES,
)


def candidates(shape: ConvShape, tune: bool) -> Iterator[Candidate]:
    for rung in RUNGS:
        for tiles in rung.tile_sets(shape):
            changed = {name for name, value in rung.default_tiles.items() if tiles[name] != value}
            if tune or changed <= {"M"}:
                yield rung, tiles
    if tune:  # tile sizes of the products, both sides changed together
        rung = RUNGS[-1]
        for m in (2, 4):
            for sides in ({"BM": 128, "BN": 64}, {"BM": 64, "BN": 64}, {"BM": 128}):
                yield rung, rung.default_tiles | {"M": m} | sides


def m_of(rung: Rung, tiles: Mapping[str, int]) -> int:
    return tiles.get("M") or int(rung.name[-1])


# -- verification ------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Problem(measure.Problem):
    """A problem whose scale of errors depends on M: it is computed once for each M."""

    scales: dict[int, np.ndarray] = field(default_factory=dict)

    def scale_of(self, rung: Rung, tiles: Mapping[str, int]) -> np.ndarray:
        m = m_of(rung, tiles)
        if m not in self.scales:
            self.scales[m] = super().scale_of(rung, tiles)
        return self.scales[m]

    def correct(self, rung: Rung, tiles: Mapping[str, int], out: np.ndarray, error: float) -> bool:
        return error < MAX_ERROR[m_of(rung, tiles)] and super().correct(rung, tiles, out, error)


def problem(shape: ConvShape) -> Problem:
    inputs = seeded_inputs([b for b in conv_common.buffers(shape) if b.role == INPUT])
    return Problem(shape, inputs, expected(shape, **inputs), None)


def expected(shape: ConvShape, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Returns the float64 reference, without the ladder's error scale, which would double the time."""
    y = reference.conv2d(shape, x.astype("f8"), w.astype("f8"))
    y = y if b is None else y + b[:, None, None]
    return np.maximum(y, 0) if shape.relu else y


def verify() -> list[str]:
    """Verify every rung at every tile size, at odd shapes and at the layers, and return messages about failures."""
    shapes = (*ODD, *(s.with_(N=1) for s in LAYERS))
    _, failed = measure.verify((candidates(s, tune=True), problem(s)) for s in shapes)
    print(f"every tile size at {len(shapes)} shapes: {len(failed)} failures", "\n".join(failed))
    return failed


# -- timing ------------------------------------------------------------------------------------------
def measured(shape: ConvShape, tune: bool) -> tuple[list[dict], list[str]]:
    """Returns (a row for each candidate, the fastest first; messages about failures)."""
    verified, failed = measure.open_verified(candidates(shape, tune), problem(shape))
    rows = measure.time_together(verified, "cold", BUDGET, lambda v, timed: row(shape, v, timed))
    measure.close(verified)
    return sorted(rows, key=lambda r: r["median_ms"]), failed


def row(shape: ConvShape, v: Verified, timed: Timed) -> dict:
    figures, cost = measure.figures(timed), v.rung.cost(shape, v.session.program)
    median = figures["median_ms"]
    return {
        "rung": v.rung.name,
        "shape": shape.params(),
        "tiles": dict(v.tiles),
        "error": v.error,
        **figures,
        "effective_tflops": shape.flops / median / 1e9,
        "executed_tflops": cost.flops / median / 1e9,
        "workspace_bytes": cost.workspace_bytes,
        "steps_ms": dict(timed.parts_ms),
        "compiled": compiled(v.session.program),
    }


def compiled(program: Program) -> dict[str, tuple[int, int]]:
    """Returns registers and bytes of local memory (spills) of each step."""
    return {name: (k["registers"], k["local"]) for name, k in measure.compiled(program).items()}


def steps_text(row: report.Row) -> str:
    """Returns time, share of the sum, registers and spills of each step."""
    total = sum(row["steps_ms"].values())
    steps = (
        f"{name.removeprefix('winograd_')} {ms:.4f} ms {ms / total:.0%} ({registers} registers, {local} B local)"
        for (name, ms), (registers, local) in zip(row["steps_ms"].items(), row["compiled"].values(), strict=True)
    )
    return f"{'':24} {' | '.join(steps)}"


def time_layers(out: Path, tune: bool, elapsed: Callable[[], float], results: dict) -> None:
    """Time the rungs at each layer, print a table of each, and write the rows so far to the file."""
    for shape in LAYERS:
        rows, failed = measured(shape, tune)
        results["rows"] += rows
        results["failed"] += failed
        report.write_json(out / "winograd.json", results)
        print(f"\n{shape}, {elapsed():.0f} s so far\n{report.table(rows, COLUMNS, steps_text)}", flush=True)


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--tune", action="store_true", help="other tile sizes too")
    return options.parse_args()


def main() -> None:
    args, elapsed = arguments(), report.stopwatch()
    args.out.mkdir(parents=True, exist_ok=True)
    compile_all(r.build(s, t) for s in (LAYERS[0], ODD[2]) for r, t in candidates(s, tune=True))
    failed = verify()
    results = {"device": cuda.device_name(), "conditions": cuda.conditions(), "failed": failed, "rows": []}
    time_layers(args.out, args.tune, elapsed, results)


if __name__ == "__main__":
    main()
