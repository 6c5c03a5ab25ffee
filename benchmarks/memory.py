"""Strides, banks, thread mappings and layouts on this machine's GPU (or processor): verified, timed cold and hot.

    python benchmarks/memory.py --out FOLDER [--engine cuda] [--seconds 0.4]

writes memory.jsonl, rows as `python -m kernels record` writes them, and levels.json, the sizes of the device's
memories with the measured copy bandwidth; prints each slowdown with the counted sectors and wavefronts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import report
from benchmarks.report import Column
from kernels import engines
from kernels.machine import memory_levels
from kernels.machine.timing import MODES, Budget
from kernels.memory import ladder as memory_ladder
from kernels.model.rung import Ladder
from kernels.records import availability
from kernels.records import row as records_row
from kernels.records.row import commit
from kernels.runner import compare
from visuals.memory.charts import sectors, wavefronts

COLUMNS = (
    report.RUNG,
    Column("mode", "", "mode"),
    Column("shape", "", lambda row: " ".join(f"{name} {value}" for name, value in row["shape"].items())),
    Column("µs", ".2f", lambda row: row["median_ms"] * 1e3),
    Column("slowdown", ".2f", "slowdown"),
    Column("counted", ".2f", "counted"),
)


def shapes(engine: str) -> Iterator[tuple[Ladder, object]]:
    """Yields the presets of every ladder that has a rung for the engine, except the toys."""
    for ladder in memory_ladder.LADDERS:
        if any(engine in rung.engines for rung in ladder.rungs):
            yield from ((ladder, p.shape) for key, p in ladder.presets.items() if not key.endswith("-toy"))


def measured(engine: str, seconds: float, commit_hash: str) -> Iterator[dict]:
    for ladder, shape in shapes(engine):
        for mode in MODES:
            rungs = [r.name for r in availability.supported_rungs(ladder, engine, shape)]
            for result in compare(rungs, shape, engine=engine, mode=mode, budget=Budget(seconds=seconds)):
                program = ladder.rung(result.rung).build(shape, result.tiles)
                yield records_row.row(result, program, commit_hash)


def counted(row: dict) -> float | None:
    """Returns the sectors of a warp, or the wavefronts of a read, at a row's stride."""
    stride = row["shape"].get("stride")
    if row["rung"] == "stride/copy":
        return sectors(stride)
    return wavefronts(stride, row["rung"] == "banks/padded") if row["rung"].startswith("banks/") else None


def table(rows: Sequence[dict]) -> str:
    """Returns the rows with the slowdown at each stride, relative to the first one, measured and counted."""
    first: dict[tuple[str, str], tuple[float, float]] = {}
    described = []
    for row in rows:
        ratios = {}
        if count := counted(row):
            base_ms, base_count = first.setdefault((row["rung"], row["mode"]), (row["median_ms"], count))
            ratios = {"slowdown": row["median_ms"] / base_ms, "counted": count / base_count}
        described.append(row | ratios)
    return report.table(described, COLUMNS)


def driver_agrees(levels: memory_levels.Levels) -> None:
    """Assert that the sizes from the driver, queried by number, are those that CuPy returns by name."""
    import cupy

    by_name = cupy.cuda.Device().attributes
    sizes = {level.name: level.bytes for level in levels.levels}
    assert sizes["registers"] == 4 * by_name["MaxRegistersPerMultiprocessor"]
    assert sizes["shared memory"] == by_name["MaxSharedMemoryPerMultiprocessor"]
    assert sizes["L2 cache"] == by_name["L2CacheSize"]
    assert sizes["global memory (HBM or GDDR)"] == cupy.cuda.Device().mem_info[1]


def measure_levels(engine: str) -> dict:
    """Returns the sizes of the device's memories with the measured copy bandwidth."""
    ceilings = engines.load(engine).ceilings()
    levels = memory_levels.gpu(engines.load("cuda").status()) if engine == "cuda" else memory_levels.cpu()
    levels = levels.with_copy(ceilings)
    if engine == "cuda":
        driver_agrees(levels)
    return levels.to_json() | {"date": ceilings["date"]}


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--engine", default=engines.default(), choices=("cuda", "cpu"))
    options.add_argument("--seconds", type=float, default=0.4, help="of each comparison")
    options.add_argument("--commit", help="commit to name in the rows where git is not at hand")
    return options.parse_args()


def main() -> None:
    args, elapsed = arguments(), report.stopwatch()
    args.out.mkdir(parents=True, exist_ok=True)
    levels = measure_levels(args.engine)
    report.write_json(args.out / "levels.json", levels)
    rows = []
    with (args.out / "memory.jsonl").open("w", encoding="utf-8") as file:
        for row in measured(args.engine, args.seconds, args.commit or commit()):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    print(table(rows))
    print(json.dumps(levels, indent=1))
    print(f"{len(rows)} rows in {elapsed():.0f} s")


if __name__ == "__main__":
    main()
