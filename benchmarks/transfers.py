"""Moving data on a GPU: copies by size and memory, the scenarios of the lesson, pieces, calls, a leak.

    python -m benchmarks.transfers OUT.json [--seconds 50]

Writes a list with one record, as in kernels/records/transfers.json, after each part. A part that fails leaves its error in
"failed", and the next one follows. After --seconds no new part begins: those left out are named in "failed" too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kernels.engines import cuda
from kernels.engines.cuda.device import load, smi
from kernels.transfers import measure
from kernels.transfers.cuda import CudaBackend
from kernels.transfers.operations import Timeline
from kernels.transfers.scenarios import BATCH, BATCHES, SCENARIOS, SHORT, Settings

ROWS, LARGE_ROWS = 8192, 32_768  # of the stage, and of the overlap that counts
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of pieces
SIZES = (4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
COPY_REPEATS, CALL_REPEATS = 11, 200


def spread(samples: list[float]) -> dict[str, Any]:
    """Returns median, p20, p80 and n of samples in ms."""
    p20, median, p80 = (round(float(v), 6) for v in np.percentile(samples, (20, 50, 80)))
    return {"ms": median, "p20_ms": p20, "p80_ms": p80, "n": len(samples)}


def timed(call: Callable[[], None], repeats: int) -> dict[str, Any]:
    """Returns the spread of a call by the host's clock, after one that does not count."""
    call()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        samples.append(1e3 * (time.perf_counter() - start))
    return spread(samples)


# -- copies ------------------------------------------------------------------------------------------
def copies() -> dict[str, Any]:
    """Returns each way of copying by size: a copy, then a wait. The last bytes are compared."""
    found: dict[str, list] = {}
    backend = CudaBackend()
    stream = backend.stream("main")
    for nbytes in SIZES:
        shape = (nbytes // 4,)
        device = backend.allocate(shape, "pool")
        for pinned in (True, False):
            memory = "pinned" if pinned else "pageable"
            host = backend.pinned(shape, pinned)
            host.array[...] = np.arange(shape[0], dtype=np.float32) % 1021
            last = float(host.array[-1])
            into = timed(lambda d=device, h=host: (backend.copy_in(d, h, stream), stream.synchronize()), COPY_REPEATS)
            host.array[...] = np.nan
            back = timed(lambda d=device, h=host: (backend.copy_out(d, h, stream), stream.synchronize()), COPY_REPEATS)
            if float(host.array[-1]) != last or not np.isfinite(host.array).all():
                raise RuntimeError(f"a copy of {nbytes:,} bytes did not arrive")
            found.setdefault(f"h2d_{memory}", []).append({"bytes": nbytes, **into})
            found.setdefault(f"d2h_{memory}", []).append({"bytes": nbytes, **back})
        del device
    backend.close()
    return found


# -- calls -------------------------------------------------------------------------------------------
def costs() -> dict[str, Any]:
    """Returns the ms of single calls: a launch, cudaMalloc, cudaFree, an array from a pool that has it. The GPU is idle."""
    backend, cupy = CudaBackend(), load()
    nbytes = 4 * int(np.prod(SHORT))
    malloc, free, pool = [], [], []
    for _ in range(CALL_REPEATS):
        start = time.perf_counter()
        memory = cupy.cuda.Memory(nbytes)
        middle = time.perf_counter()
        del memory
        free.append(1e3 * (time.perf_counter() - middle))
        malloc.append(1e3 * (middle - start))
        start = time.perf_counter()
        array = backend.allocate(SHORT, "pool")
        del array
        pool.append(1e3 * (time.perf_counter() - start))
    skip = CALL_REPEATS // 10
    found = {"malloc": spread(malloc[skip:]), "free": spread(free[skip:]), "pool": spread(pool[skip:])}
    backend.close()
    medians = {f"{name}_ms": row["ms"] for name, row in found.items()}
    ceilings = cuda.ceilings()
    medians |= {"call_ms": ceilings["launch_host_us"] / 1e3, "gap_ms": ceilings["launch_us"] / 1e3}
    return {**medians, "spread": found}


# -- scenarios -----------------------------------------------------------------------------------------
def settings() -> Iterator[Settings]:
    """Yields each scenario at its usual size."""
    for key, row in SCENARIOS.items():
        yield Settings(key, ROWS if row.kind in (BATCH, BATCHES) else 1, row.default_n)


def pieces(rows: int) -> list[dict[str, Any]]:
    """Returns the total of a batch over the number of pieces, each verified, with the ms of each queue."""
    found = []
    for n in COUNTS:
        row = measure.measure(Settings("pieces", rows, n), repeats=5)
        busy = Timeline.from_json(row["timeline"]).busy
        kept = {k: row[k] for k in ("total_ms", "p20_ms", "p80_ms", "error")}
        found.append({"n": n, "samples": row["n"], **kept, "busy_ms": {k: round(v, 6) for k, v in busy.items()}})
    return found


def parts() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields each part by its place in the record, the most needed first."""
    yield "copies", copies
    yield "costs", costs
    for s in settings():
        yield f"scenarios/{s.scenario}", lambda s=s: measure.measure(s)
    yield "pieces", lambda: pieces(ROWS)
    yield "large/pinned", lambda: measure.measure(Settings("pinned", LARGE_ROWS), repeats=3)
    yield "large/pieces", lambda: measure.measure(Settings("pieces", LARGE_ROWS, 32), repeats=5)
    for key in ("leak", "no_leak"):
        yield f"logs/{key}", lambda key=key: measure.leak_log(Settings(key, ROWS, SCENARIOS[key].default_n))
    yield "pieces_large", lambda: pieces(LARGE_ROWS)


def record(
    out: Callable[[Mapping[str, Any]], None], seconds: float, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """Returns the record. `out` gets it after each part, complete so far."""
    start = clock()
    found: dict[str, Any] = {
        "device": cuda.status().text,
        "driver": smi("driver_version")[0],
        "cupy": load().__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "failed": {},
        "seconds": {},
    }
    for name, part in parts():
        begun = clock()
        if begun - start > seconds:
            found["failed"][name] = f"not begun: {seconds:g} s were over"
            continue
        try:
            group, _, key = name.partition("/")
            value = part()
            if key:
                found.setdefault(group, {})[key] = value
            else:
                found[group] = value
        except Exception as e:  # the other parts are still measured
            found["failed"][name] = f"{type(e).__name__}: {e}"[:500]
        found["seconds"][name] = round(clock() - begun, 2)
        print(f"{name}: {found['failed'].get(name, 'done')} ({found['seconds'][name]} s)", flush=True)
        out(found)
    out(found)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--seconds", type=float, default=50.0)
    args = arguments.parse_args()
    found = record(lambda row: args.out.write_text(json.dumps([row]) + "\n", encoding="utf-8"), args.seconds)
    for key, row in found.get("scenarios", {}).items():
        print(f"{key}: {row['total_ms']:.4g} ms ({row['p20_ms']:.4g} to {row['p80_ms']:.4g}, n = {row['n']})")
    for point in found.get("pieces", ()):
        print(f"{point['n']} pieces: {point['total_ms']:.4g} ms")
    print("failed:", found["failed"] or "nothing")


if __name__ == "__main__":
    main()
