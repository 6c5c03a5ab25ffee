"""Strides, banks, thread mappings and layouts on this machine's GPU (or processor): verified, timed cold and hot.

    python benchmarks/memory.py --out FOLDER [--engine cuda] [--seconds 0.4]

writes memory.jsonl, rows as `python -m kernels record` writes them, and levels.json, the sizes of the device's
memories with the measured copy bandwidth; prints each slowdown with the counted sectors and wavefronts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

from kernels import engines
from kernels.machine import memory_levels
from kernels.machine.timing import MODES, Budget
from kernels.memory import ladder as memory_ladder
from kernels.model.rung import Ladder
from kernels.records import row as records_row
from kernels.records.row import commit
from kernels.runner import compare
from visuals.memory.charts import sectors, wavefronts

SKIPPED = {"cpu": ("banks",), "cuda": ()}  # a processor has no banks


def shapes(engine: str) -> Iterator[tuple[Ladder, object]]:
    """Yields every ladder's presets except the toys."""
    for ladder in memory_ladder.LADDERS:
        if ladder.name not in SKIPPED[engine]:
            yield from ((ladder, p.shape) for key, p in ladder.presets.items() if not key.endswith("-toy"))


def measured(engine: str, seconds: float, commit_hash: str) -> Iterator[dict]:
    for ladder, shape in shapes(engine):
        for mode in MODES:
            rungs = [r.name for r in ladder.rungs if not any(r.rules(shape, r.default_tiles))]
            for result in compare(rungs, shape, engine=engine, mode=mode, budget=Budget(seconds=seconds)):
                program = ladder.rung(result.rung).build(shape, result.tiles)
                row = records_row.row(result, program, commit_hash)
                yield row


def counted(row: dict) -> float | None:
    """Returns the sectors of a warp, or the wavefronts of a read, at a row's stride."""
    stride = row["shape"].get("stride")
    if row["rung"] == "stride/copy":
        return sectors(stride)
    return wavefronts(stride, row["rung"] == "banks/padded") if row["rung"].startswith("banks/") else None


def print_table(rows: list[dict]) -> None:
    first = {}
    print(f"{'rung':24} {'mode':5} {'shape':32} {'median':>10} {'slowdown':>9} {'counted':>8}")
    for row in rows:
        key, count = (row["rung"], row["mode"]), counted(row)
        shape = " ".join(f"{k} {v}" for k, v in row["shape"].items())
        base, base_count = first.setdefault(key, (row["median_ms"], count)) if count else (None, None)
        ratios = f"{row['median_ms'] / base:9.2f} {count / base_count:8.2f}" if count else ""
        print(f"{row['rung']:24} {row['mode']:5} {shape:32} {row['median_ms'] * 1e3:8.2f} µs {ratios}")


def driver_agrees(levels: memory_levels.Levels) -> None:
    """Assert that the sizes from the driver, queried by number, are those that CuPy returns by name."""
    import cupy

    by_name = cupy.cuda.Device().attributes
    sizes = {level.name: level.bytes for level in levels.levels}
    assert sizes["registers"] == 4 * by_name["MaxRegistersPerMultiprocessor"]
    assert sizes["shared memory"] == by_name["MaxSharedMemoryPerMultiprocessor"]
    assert sizes["L2 cache"] == by_name["L2CacheSize"]
    assert sizes["global memory (HBM or GDDR)"] == cupy.cuda.Device().mem_info[1]


def main() -> None:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--out", type=Path, required=True)
    top.add_argument("--engine", default=engines.default(), choices=("cuda", "cpu"))
    top.add_argument("--seconds", type=float, default=0.4, help="of each comparison")
    top.add_argument("--commit", help="commit to name in the rows where git is not at hand")
    args = top.parse_args()
    start = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    ceilings = engines.load(args.engine).ceilings()
    levels = (
        memory_levels.gpu(engines.load("cuda").status()) if args.engine == "cuda" else memory_levels.cpu()
    ).with_copy(ceilings)
    if args.engine == "cuda":
        driver_agrees(levels)
    text = json.dumps(levels.to_json() | {"date": ceilings["date"]}, indent=1)
    (args.out / "levels.json").write_text(text + "\n", encoding="utf-8")
    rows = []
    with (args.out / "memory.jsonl").open("w", encoding="utf-8") as file:
        for row in measured(args.engine, args.seconds, args.commit or commit()):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    print_table(rows)
    print(text)
    print(f"{len(rows)} rows in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
