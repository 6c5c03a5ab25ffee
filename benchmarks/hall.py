"""A hall on paper: how long readers wait, from the measured processor time of a rerun.
python -m benchmarks.hall CPU_MS [CPU_MS ...] [--readers 100 300] [--processes 1 2 4 8]

Each reader changes a control every 3 s and stays with one process. The reruns of a process share one core (Python's global
lock). The longer of two processor times is taken as often as the shorter: pass the samples of a measurement. Printed is a
Markdown table: the median and p95 of the time until a rerun has had its processor time, and how busy each process is.
With more processes than cores the times are too short.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Sequence

import numpy as np

EVERY_S, LONG_S = 3.0, 120.0


def waits(readers: int, processes: int, cpu_s: Sequence[float], seed: int = 0) -> np.ndarray:
    """Returns the seconds of each rerun in LONG_S: of all processes, each with its share of the readers."""
    rng, found = random.Random(seed), []
    for process in range(processes):
        mine = len(range(process, readers, processes))
        arrivals = sorted(
            phase + EVERY_S * n + rng.uniform(-0.3, 0.3)
            for phase in (rng.uniform(0, EVERY_S) for _ in range(mine))
            for n in range(int(LONG_S / EVERY_S))
        )
        found += shared(arrivals, [rng.choice(cpu_s) for _ in arrivals])
    return np.array(found)


def shared(arrivals: Sequence[float], work: Sequence[float]) -> list[float]:
    """Returns how long each job takes on a core that all present jobs share equally.

    In virtual time, which advances by 1/n of real time while n jobs are there, a job ends its work after it came.
    """
    ends: list[tuple[float, float]] = []  # (virtual end, arrival)
    now = virtual = 0.0
    took: list[float] = []

    def advance(until: float) -> None:
        nonlocal now, virtual
        while ends and now + (ends[0][0] - virtual) * len(ends) <= until:
            end, came = ends[0]
            now, virtual = now + (end - virtual) * len(ends), end
            heapq.heappop(ends)
            took.append(now - came)
        if ends:
            virtual += (until - now) / len(ends)
        now = until

    for came, needs in zip(arrivals, work, strict=True):
        advance(came)
        heapq.heappush(ends, (virtual + needs, came))
    while ends:
        advance(now + (ends[0][0] - virtual) * len(ends) + 1e-12)
    return took


def table(cpu_s: Sequence[float], readers: Sequence[int], processes: Sequence[int]) -> str:
    lines = ["| readers | processes | each busy | median | p95 |", "|---|---|---|---|---|"]
    for many in readers:
        for n in processes:
            busy = many / EVERY_S * float(np.mean(cpu_s)) / n
            if busy >= 1:
                lines.append(f"| {many} | {n} | {busy:.0%}: too few | – | – |")
                continue
            ms = 1e3 * waits(many, n, cpu_s)
            lines.append(f"| {many} | {n} | {busy:.0%} | {np.median(ms):.0f} ms | {np.percentile(ms, 95):.0f} ms |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cpu_ms", nargs="+", type=float)
    parser.add_argument("--readers", nargs="+", type=int, default=[100, 300])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4, 8])
    args = parser.parse_args()
    print(table([ms / 1e3 for ms in args.cpu_ms], args.readers, args.processes))


if __name__ == "__main__":
    main()
