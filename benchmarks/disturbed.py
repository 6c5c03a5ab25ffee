"""How far other programs move a time, and whether its row says so.
python -m benchmarks.disturbed OUT.json [--seconds 300] [--neighbour]

Linux, as root, two cores or more. Each kernel of the cpu engine is timed again and again, hot. The reference is taken under SCHED_FIFO: no other
program gets the core of a thread that computes. Other runs have a usual priority, lower or higher, and busy loops beside
them. Printed: the error of the median against the reference, by the readings of kernels.machine.others.

--neighbour: only under SCHED_FIFO on one core, while a program on another core adds to 32 MB for a share of the time. No
thread waits then; what remains is the memory that both use.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.conv.presets import CONV_PRESETS
from kernels.engines import cpu
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find, ladder_of
from kernels.machine import others
from kernels.machine.timing import Budget
from kernels.runner import inputs_of
from kernels.softmax.shape import SoftmaxShape

FIFO = "fifo"
PRIORITIES = (FIFO, FIFO, -20, -15, -10, -5, 0)  # nice of the whole session, as the scheduler groups them
LOOPS = (0, 0, 1)  # busy loops beside a run
BUDGET = Budget(samples=100, seconds=0.4, min_samples=3, warm_up_s=0.2)
CASES = {
    "naive product, 1 thread": ("gemm/naive", GemmShape(96, 96, 96), {}),
    "BLAS product, 2 threads": ("gemm/cublas", GemmShape(384, 384, 384), {}),
    "compiled loops, 2 threads": ("loops/reordered", LADDERS["loops"].shape(256, 256, 256), {"THREADS": 2}),
    "softmax, 1 MB": ("softmax/three-pass", SoftmaxShape(256, 1024), {}),
    "im2col + BLAS": ("conv/im2col-cublas", CONV_PRESETS["resnet50-res5-3x3-n1"].shape, {}),
}
NEIGHBOURS = {
    "softmax, 1 MB": CASES["softmax, 1 MB"],
    "softmax, 32 MB": ("softmax/three-pass", SoftmaxShape(4096, 2048), {}),
}
SHARES = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)  # of its core's time
NEIGHBOUR = """
import os, sys, time
import numpy as np
share, a = float(sys.argv[1]), np.zeros(4_000_000)
os.sched_setaffinity(0, {1})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(9))
end = time.monotonic() + 1.5
while time.monotonic() < end:
    start = time.perf_counter()
    while time.perf_counter() - start < 0.02 * share:
        np.add(a, 1.0, out=a)
    took = time.perf_counter() - start
    rest = took / share * (1 - share) if share else 0.02
    start = time.perf_counter()
    while time.perf_counter() - start < rest:
        pass
"""
WAITED = (0, 0.001, 0.05, 0.1, 0.25, 0.5, 1.01)  # limits of the table's lines


HEAD = ("| runs | n | error, median | error, p90 | over 2 % |", "|---|---|---|---|---|")


def session(name: str, shape: Any, tiles: dict[str, int]) -> cpu.Session:
    rung = find(name)
    program = rung.build(shape, rung.check(shape, tiles))
    opened = cpu.open(program, inputs_of(ladder_of(name), shape, program))
    opened.verify_run()
    return opened


def prioritise(priority: str | int) -> None:
    policy, level = (os.SCHED_FIFO, 10) if priority == FIFO else (os.SCHED_OTHER, 0)
    for thread in os.listdir(others.THREADS):
        os.sched_setscheduler(int(thread), policy, os.sched_param(level))
    Path("/proc/self/autogroup").write_text("0" if priority == FIFO else str(priority), "ascii")


@contextlib.contextmanager
def busy_loops(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    time.sleep(0.3 if loops else 0)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(of: cpu.Session, priority: str | int, loops: int) -> dict[str, Any]:
    with busy_loops(loops):
        prioritise(priority)
        try:
            (timed,) = cpu.sample([of], "hot", BUDGET)
        finally:
            prioritise(0)
    return {"priority": priority, "loops": loops, "median_ms": float(np.median(timed.samples_ms)), **timed.others}


def beside_neighbour(of: cpu.Session, share: float) -> dict[str, Any]:
    """Returns the median beside a program on another core that uses memory for this share of the time."""
    of.run()
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(share)])
    time.sleep(0.6)  # it has imported NumPy
    try:
        return {"share": share, **measure(of, FIFO, 0)}
    finally:
        neighbour.kill()
        neighbour.wait()


def neighbours(seconds: float) -> list[dict[str, Any]]:
    """Returns the runs beside a neighbour, with the error of each against the least median without one."""
    sessions = {case: session(*of) for case, of in NEIGHBOURS.items()}
    os.sched_setaffinity(0, {0})
    runs, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        case, share = random.choice(list(sessions)), random.choice(SHARES)
        runs.append({"case": case, **beside_neighbour(sessions[case], share)})
    alone = {case: min(r["median_ms"] for r in runs if r["case"] == case and not r["share"]) for case in sessions}
    return [r | {"error": r["median_ms"] / alone[r["case"]] - 1} for r in runs]


def neighbour_table(runs: Sequence[dict[str, Any]]) -> str:
    lines = [
        line(
            f"{case}, the other core: {100 * share:g} %", [r for r in runs if (r["case"], r["share"]) == (case, share)]
        )
        for case in NEIGHBOURS
        for share in SHARES
    ]
    return "\n".join((*HEAD, *lines))


def with_errors(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the runs with the error of each median: against the median of its kernel's runs under SCHED_FIFO."""
    reference = {
        case: float(np.median([r["median_ms"] for r in runs if r["case"] == case and r["priority"] == FIFO]))
        for case in {r["case"] for r in runs}
    }
    return [r | {"error": r["median_ms"] / reference[r["case"]] - 1} for r in runs]


def line(label: str, runs: Sequence[dict[str, Any]]) -> str:
    if not runs:
        return f"| {label} | 0 | – | – | – |"
    errors = np.array([r["error"] for r in runs])
    over = np.mean(np.abs(errors) > 0.02)
    cells = (f"{100 * q:+.1f} %" for q in (np.median(errors), np.quantile(errors, 0.9)))
    return f"| {label} | {len(runs)} | {' | '.join(cells)} | {100 * over:.0f} % |"


def table(runs: Sequence[dict[str, Any]]) -> str:
    alone = [r for r in runs if r["priority"] == FIFO]
    beside = [r for r in runs if r["priority"] != FIFO]
    lines = [line("under SCHED_FIFO", alone)]
    for low, high in itertools.pairwise(WAITED):
        label = f"waited in {100 * low:g} to {100 * min(high, 1):g} % of the samples"
        lines.append(line(label, [r for r in beside if low <= r["waited"] < high]))
    for used, label in (("", "not marked"), (others.CORES, "marked")):
        lines.append(line(label, [r for r in runs if others.disturbed(r) == used]))
    return "\n".join((*HEAD, *lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--neighbour", action="store_true")
    args = parser.parse_args()
    if args.neighbour:
        runs = neighbours(args.seconds)
        args.out.write_text(json.dumps(runs, indent=0), "utf-8")
        print(neighbour_table(runs))
        return
    sessions = {case: session(*of) for case, of in CASES.items()}
    runs, end = [], time.monotonic() + args.seconds
    while time.monotonic() < end:
        case, priority, loops = random.choice(list(CASES)), random.choice(PRIORITIES), random.choice(LOOPS)
        runs.append({"case": case, **measure(sessions[case], priority, loops)})
    runs = with_errors(runs)
    args.out.write_text(json.dumps(runs, indent=0), "utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
