"""The softmax ladder on a GPU: verify every rung, and compare its time with PyTorch's and with a copy.

    python3 benchmarks/softmax.py --out OUT [--seconds 100] [--shapes M=8192,N=1024 ...]

All rungs that support a shape, at several sets of tile sizes, and PyTorch's if it is installed, are verified and timed
in the same rounds, cold and hot. A row's share of the copy is the time to read x and write y once at the copy rate
measured on this device, divided by its own time: 100 % is the limit of memory. A hot x that fits into the L2 may exceed
it. Prints a table for each shape and mode. Writes OUT/softmax.json: rows with times, GB/s, both shares, error, bytes and
registers.
After --seconds no new timing starts, and the shapes left out are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.measure import Verified
from benchmarks.report import Column
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.machine.timing import MODES, Budget
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.shape import SoftmaxShape, parse_softmax

LADDER, LIBRARY = softmax_ladder.LADDER, softmax_ladder.LIBRARY
SHAPES = (
    SoftmaxShape(8192, 1024),
    SoftmaxShape(32768, 1024),
    SoftmaxShape(64, 50257),
    SoftmaxShape(256, 128256),
    SoftmaxShape(65536, 128),
    SoftmaxShape(4096, 8192),
    SoftmaxShape(1001, 777),
    SoftmaxShape(128, 128),
    SoftmaxShape(4, 2**20),
)
SETS = {  # of tile sizes, besides the default
    **{f"softmax/{name}": [{"BLOCK": b} for b in (128, 512, 1024)] for name in ("unsafe", "three-pass", "online")},
    "softmax/warp-shuffle": [{"WARPS": 4}],
    "softmax/registers": [
        {"PER": 2},
        {"PER": 8},
        {"PER": 16},
        {"PER": 32},
        {"BLOCK": 128},
        {"BLOCK": 128, "PER": 8},
        {"BLOCK": 512},
        {"BLOCK": 1024},
        {"BLOCK": 1024, "PER": 8},
        {"BLOCK": 32},
        {"BLOCK": 32, "PER": 32},
    ],
    "softmax/cluster": [
        {"CLUSTER": 4, "BLOCK": 512},
        {"CLUSTER": 2, "BLOCK": 1024},
        {"CLUSTER": 4, "BLOCK": 1024, "PER": 32},
        {"BLOCK": 1024, "PER": 32},
        {"CLUSTER": 2, "BLOCK": 128, "PER": 8},
    ],
    "softmax/split": [
        {"BLOCKS": 132, "BLOCK": 1024},
        {"BLOCKS": 264, "BLOCK": 512},
        {"BLOCKS": 264},
        {"LOADS": 4},
        {"BLOCK": 512},
    ],
    "softmax/one-launch": [
        {"PER": 28},
        {"BLOCKS": 264, "BLOCK": 512},
        {"BLOCKS": 132, "BLOCK": 1024},
        {"BLOCKS": 132, "BLOCK": 512},
    ],
}
BUDGET = Budget(samples=100, seconds=3.0, warm_up_s=0.05)
COLUMNS = (
    report.RUNG,
    Column("us", ".2f", lambda row: 1e3 * row["median_ms"]),
    report.SPREAD,
    report.SAMPLES,
    Column("GB/s", ".0f", "gb_per_s"),
    Column("of copy", ".1%", "of_copy"),
    Column("of lib", ".1%", "of_library"),
    report.ERROR,
    report.REGISTERS,
    report.TILES,
)


def measured(s: SoftmaxShape, copy_bytes_per_s: float) -> list[dict]:
    """Returns a row in each mode for each candidate with a correct result; the others are printed."""
    problem = measure.problem(s, softmax_ladder.buffers(s), LADDER.reference)
    verified, _ = measure.open_verified(measure.candidates(LADDER.rungs, s, SETS), problem)
    rows = []
    for mode in MODES:
        mode_rows = measure.time_together(
            verified, mode, BUDGET, lambda v, timed, mode=mode: row(s, mode, v, timed, copy_bytes_per_s)
        )
        base = report.fastest_ms(mode_rows, (LIBRARY.name,))
        rows += [r | {"of_library": report.speed_relative_to(base, r)} for r in mode_rows]
    measure.close(verified)
    return rows


def row(s: SoftmaxShape, mode: str, v: Verified, timed: Timed, copy_bytes_per_s: float) -> dict:
    figures, kernels = measure.figures(timed), measure.compiled(v.session.program).values()
    median = figures["median_ms"]
    return {
        "shape": s.params(),
        "mode": mode,
        "rung": v.rung.name,
        "tiles": v.tiles,
        **figures,
        "gb_per_s": s.bytes / median / 1e6,
        "of_copy": s.bytes / copy_bytes_per_s * 1e3 / median,
        "error": v.error,
        "predicted_bytes": v.rung.cost(s, v.session.program).bytes,
        "workspace_bytes": v.session.memory.workspace,
        **{name: max((kernel[name] for kernel in kernels), default=None) for name in ("registers", "local")},
    }


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--seconds", type=float, default=100.0, help="nothing new is begun after so many")
    options.add_argument("--shapes", type=parse_softmax, nargs="*", default=SHAPES)
    return options.parse_args()


def time_shapes(args: argparse.Namespace, elapsed: Callable[[], float], results: dict) -> None:
    """Time the rungs at each shape, print a table of each mode, and write the rows so far to the file."""
    for s in report.in_time(args.shapes, elapsed, args.seconds):
        rows = measured(s, results["ceilings"]["copy_bytes_per_s"])
        results["rows"] += rows
        report.write_json(args.out / "softmax.json", results)
        slowest_first = sorted(rows, key=lambda r: -r["median_ms"])
        for mode in MODES:
            text = report.table([r for r in slowest_first if r["mode"] == mode], COLUMNS)
            print(f"\n{s}, {mode}, {elapsed():.0f} s so far\n{text}", flush=True)


def main() -> int:
    args, elapsed = arguments(), report.stopwatch()
    if not (status := cuda.status()).ready:
        print(status.text)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    measure.print_unavailable([LIBRARY], args.shapes[0])
    ceilings = cuda.ceilings()
    results = {"device": cuda.device_name(), "conditions": cuda.conditions(), "ceilings": ceilings, "rows": []}
    copy_gb_per_s = ceilings["copy_bytes_per_s"] / 1e9
    print(f"{results['device']}, copy {copy_gb_per_s:,.0f} GB/s (bytes read and written)", flush=True)
    time_shapes(args, elapsed, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
