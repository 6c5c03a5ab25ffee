"""The works of the lesson on CPU and GPU on both sides of this machine: its processor and its GPU, in one go.

    python -m benchmarks.offload OUT.json [--seconds 45]

Writes a list with one record, as kernels/records/offload.json is. After --seconds no new size begins.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels.engines.cuda.device import device_name, smi
from kernels.machine import processor
from kernels.machine.timing import Budget
from kernels.offload import measure
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import WORKS, points

BUDGET = Budget(samples=15, seconds=0.25, min_samples=3, warm_up_s=0.02)
SHARES = {"gemm": 0.4, "conv": 0.7, "add": 1.0}  # of the seconds, when each work ends


def record(
    seconds: float, out: Callable[[Mapping[str, Any]], None] = lambda found: None, budget: Budget = BUDGET
) -> dict[str, Any]:
    """Returns the record of this machine. `out` gets it after each work, complete so far."""
    start, works = time.monotonic(), {}
    found = {
        "device": processor.device_name(),
        "gpu": device_name(),
        "driver": smi("driver_version")[0],
        "date": datetime.now(UTC).date().isoformat(),
        "works": works,
    }
    for key in WORKS:
        end = start + SHARES[key] * seconds
        works[key] = measure.times(key, points(key), with_gpu=True, budget=budget, end=end)
        print(f"{key}: {time.monotonic() - start:.1f} s", flush=True)
        for line in lines(works[key]):
            print(line, flush=True)
        out(found)
    return found


def lines(rows: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Returns the medians of a work as text, a line for each size."""
    of_gpu = {row["size"]: row for row in rows[GPU]}
    return [
        f"  {row['size']:>12,}: processor {row['ms']:.4g} ms {row['passes']}"
        + "".join(
            f", {copies} {of['ms']:.4g} {of['passes']}"
            for copies, of in of_gpu.get(row["size"], {}).items()
            if copies != "size"
        )
        for row in rows[CPU]
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--seconds", type=float, default=45.0)
    args = arguments.parse_args()
    record(args.seconds, lambda found: args.out.write_text(json.dumps([found], indent=1) + "\n", encoding="utf-8"))


if __name__ == "__main__":
    main()
