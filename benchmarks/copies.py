"""The time of a copy on a GPU by its bytes, cold: the measure of every kernel that memory limits.

    python -m benchmarks.copies OUT.json

Writes rows as in kernels/records/copies.json, each verified, and prints a table. The copies are cudaMemcpyAsync from device
to device, on random data. Caches are overwritten before each sample, as for a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import Column
from kernels.engines import cuda
from kernels.engines.cuda.device import own_stream
from kernels.engines.cuda.timing import flusher, sampler
from kernels.machine.timing import Budget, interleave, warm_up

STEPS = 14  # sizes, each 1.41 times the one before: 45 MB to 4.1 GB
SMALLEST = 45_000_000  # bytes, read and written together
BUDGET = Budget(samples=41, seconds=0.5, min_samples=15)
COLUMNS = (
    Column("bytes", ",.0f", "bytes"),
    Column("us", ".2f", lambda row: 1e3 * row["median_ms"]),
    Column("GB/s", ".0f", lambda row: row["bytes"] / row["median_ms"] / 1e6),
    report.SPREAD,
    report.SAMPLES,
)


def copies() -> Iterator[dict[str, Any]]:
    """Yields a row for each size. RuntimeError if a copy differs from its source."""
    import cupy

    stream, device, day = own_stream(), cuda.device_name(), datetime.now(UTC).date().isoformat()
    for step in range(STEPS):
        half = round(SMALLEST / 2 * 2 ** (step / 2)) // 16 * 16
        source, target = cupy.random.random(half // 8), cupy.empty(half // 8)

        def run(target=target, source=source) -> None:
            target.data.copy_from_device_async(source.data, source.nbytes, stream)

        cupy.cuda.get_current_stream().synchronize()
        with stream:
            warm_up(lambda run=run: (run(), stream.synchronize()), 0.02)
            (samples,) = interleave([sampler(run, stream, flusher(stream))], BUDGET)
            stream.synchronize()
        if not bool((source == target).all()):
            raise RuntimeError(f"a copy of {half:,} bytes differs from its source")
        p20, median, p80 = np.percentile(samples, (20, 50, 80))
        yield {
            "device": device,
            "date": day,
            "bytes": 2 * half,
            "median_ms": round(float(median), 6),
            "p20_ms": round(float(p20), 6),
            "p80_ms": round(float(p80), 6),
            "n": len(samples),
        }


def main() -> None:
    arguments = report.parser(__doc__)
    arguments.add_argument("out", type=Path)
    args = arguments.parse_args()
    rows = list(copies())
    report.write_json(args.out, rows)
    print(report.table(rows, COLUMNS))


if __name__ == "__main__":
    main()
