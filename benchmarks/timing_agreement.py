"""Comparison of our cold times with triton's do_bench and Nsight Compute's gpu__time_duration, on a GPU:

    PYTHONPATH=. python benchmarks/timing_agreement.py OUT.json

Every launch of the conv ladder at a few presets, from 5 us to 50 ms, is timed alone. All three empty the caches before
each sample: we and do_bench overwrite the L2, the profiler uses --cache-control all. Clocks are not changed. do_bench
and we time with CUDA events, so both times include the cost of the events (`floor_ms`). The profiler counts from the
first instruction to the last.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import report
from kernels.conv import ladder as conv_ladder
from kernels.conv.presets import CONV_PRESETS
from kernels.engines import cuda
from kernels.engines.cuda import timing as cuda_timing
from kernels.machine.timing import Budget, interleave, warm_up
from kernels.model.program import INPUT, Launch
from kernels.runner import seeded_inputs

RUNGS = ("conv/direct", "conv/im2col-gemm")
PRESETS = ("toy", "lenet-conv1", "resnet50-res2-3x3-n1", "resnet50-res5-3x3-n1", "resnet50-res3-3x3-n32", "vgg-conv1_2")
LARGE = replace(CONV_PRESETS["vgg-conv1_2"].shape, N=16)
PROFILED = 7  # launches of each under the profiler; the first is not counted
BUDGET = Budget(samples=100, seconds=8.0)


def steps() -> Iterator[tuple[str, cuda.Session, int]]:
    """Yields (name, session, index of the launch in it); a session is closed after its last launch."""
    shapes = {key: CONV_PRESETS[key].shape for key in PRESETS} | {"vgg-conv1_2, N=16": LARGE}
    for key, shape in shapes.items():
        for rung in map(conv_ladder.LADDER.rung, RUNGS):
            program = rung.build(shape, rung.default_tiles)
            session = cuda.open(program, seeded_inputs(program.of_role(INPUT)))
            session.verify_run()
            for index, step in enumerate(program.steps):
                if isinstance(step, Launch):
                    yield f"{key}: {step.entry}", session, index
            session.close()


def ours(session: cuda.Session, index: int) -> list[float]:
    stream = cuda.own_stream()
    with stream:
        warm_up(lambda: (session.run_step(index), stream.synchronize()), 0.1)
        sampler = cuda_timing.sampler(lambda: session.run_step(index), stream, cuda_timing.flusher(stream))
        return list(interleave([sampler], BUDGET)[0])


def do_bench(session: cuda.Session, index: int) -> list[float]:
    import torch
    from triton.testing import do_bench

    with torch.cuda.stream(torch.cuda.ExternalStream(cuda.own_stream().ptr)), cuda.own_stream():
        return do_bench(lambda: session.run_step(index), warmup=100, rep=1000, return_mode="all")


# -- under the profiler ------------------------------------------------------------------------------
def launch_all() -> None:
    """Run each launch PROFILED times under ncu, with the profiler on only during these launches."""
    import cupy

    for name, session, index in steps():
        print(name, file=sys.stderr)
        with cuda.own_stream():
            cuda.own_stream().synchronize()
            cupy.cuda.runtime.profilerStart()
            for _ in range(PROFILED):
                session.run_step(index)
            cuda.own_stream().synchronize()
            cupy.cuda.runtime.profilerStop()


def profiled(ncu: str, out: Path) -> list[float]:
    """Returns gpu__time_duration in ms of every profiled launch, in order."""
    log = out.with_suffix(".ncu.csv")
    command = [
        ncu,
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--profile-from-start",
        "off",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--log-file",
        str(log),
        "--metrics",
        "gpu__time_duration.sum",
        sys.executable,
        str(Path(__file__).resolve()),
        "launch",
    ]
    root = str(Path(__file__).resolve().parents[1])
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": root})
    text = "\n".join(line for line in log.read_text().splitlines() if not line.startswith("=="))
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row.get("ID", "").isdigit()]
    return [float(row["gpu__time_duration.sum"].replace(",", "")) / 1e6 for row in rows]


def spread(samples: list[float]) -> dict[str, float]:
    p20, median, p80 = (float(f"{v:.5g}") for v in np.percentile(samples, [20, 50, 80]))
    return {"median_ms": median, "p20_ms": p20, "p80_ms": p80, "n": len(samples)}


def main(out: Path) -> None:
    import torch

    torch.zeros(1, device="cuda")
    cases = []
    for name, session, index in steps():
        case = {"name": name, "ours": spread(ours(session, index)), "do_bench": spread(do_bench(session, index))}
        cases.append(case)
        print(name, *(case[method]["median_ms"] for method in ("ours", "do_bench")), flush=True)
    durations = profiled(os.environ.get("NCU", "ncu"), out)
    assert len(durations) == PROFILED * len(cases), (len(durations), len(cases))
    for n, case in enumerate(cases):
        case["ncu"] = spread(durations[n * PROFILED + 1 : (n + 1) * PROFILED])
    conditions = cuda.conditions() | {"device": cuda.device_name(), "date": datetime.date.today().isoformat()}
    report.write_json(out, {"about": conditions, "cases": cases})
    print(table(json.loads(out.read_text())))


def table(recording: dict) -> str:
    """Returns Markdown: medians, and by how much ours is above the others."""
    lines = ["| launch | ours | do_bench | ncu | to do_bench | to ncu |", "|---|---|---|---|---|---|"]
    for case in recording["cases"]:
        ms = {method: case[method]["median_ms"] for method in ("ours", "do_bench", "ncu")}
        differences = [f"{100 * (ms['ours'] / ms[method] - 1):+.1f} %" for method in ("do_bench", "ncu")]
        lines.append(
            f"| {case['name']} | " + " | ".join([*(f"{1e3 * v:,.2f} µs" for v in ms.values()), *differences]) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    launch_all() if sys.argv[1] == "launch" else main(Path(sys.argv[1]))
