"""Overhead of the worker, and time to the next run after a deadline: python -m benchmarks.jobs [OUT.json]

Prints a Markdown table of measured figures and targets, and writes every sample to OUT.json.

* Round trip: submit() to result() of a request whose result is one ready row, in an idle child. Three messages of
  progress come with it, as in a real run.
* The same for a real run, the emulator counting the toy convolution: the time through the worker minus the time of
  kernels.run in this process, medians of interleaved pairs.
* After a deadline: a run that takes minutes is stopped. Measured from its JobError to the rows of the next request in
  the queue (the toy on the emulator).
* A hundred threads submit at once, ten distinct requests among them: from the start to the last result, minus the time
  of the ten runs one after the other in this process.
"""

from __future__ import annotations

import os
import sys
import threading
from statistics import median

import numpy as np

from benchmarks.targets import Line, line, publish, seconds, spread
from kernels.conv.shape import ConvShape
from kernels.jobs.job import JobError, Request
from kernels.jobs.worker import Worker
from kernels.runner import compare
from tests.children.helpers import act

TRIPS, PAIRS, DEADLINES, CROWDS = 300, 20, 5, 3
READERS, DISTINCT = 100, 10
DEADLINE_S = 3.0
MINUTES = Request(("conv/direct",), ConvShape(16, 64, 224, 224, 64, 3, 3), engine="cpu")


def toy(k: int = 2, c: int = 1) -> Request:
    return Request(("conv/direct", "conv/im2col-gemm"), ConvShape(1, c, 8, 8, k, 3, 3), engine="emulator")


def run_directly(request: Request) -> None:
    """Run a request without the worker."""
    compare(request.rungs, request.shape, request.inputs, request.engine, request.tiles)


def trip() -> Line:
    worker = Worker(module="tests.children.acts")

    def once() -> None:
        worker.submit(act("sleep 0"), fresh=True).result(60)

    for _ in range(10):
        once()
    samples = [1e3 * seconds(once) for _ in range(TRIPS)]
    worker.close()
    detail = f"{spread(samples)}, p99 {np.percentile(samples, 99):.3g}"
    return line("round trip of a request that does nothing", "ms", median(samples), 5, samples, detail)


def worker_overhead(worker: Worker) -> Line:
    in_worker, in_process = [], []
    for _ in range(PAIRS + 2):
        in_worker.append(1e3 * seconds(lambda: worker.submit(toy(), fresh=True).result(60)))
        in_process.append(1e3 * seconds(lambda: run_directly(toy())))
    in_worker, in_process = in_worker[2:], in_process[2:]
    detail = f"medians {median(in_worker):.3g} ms in the worker, {median(in_process):.3g} ms in this process"
    return line(
        "the toy on the emulator: worker less in-process",
        "ms",
        median(in_worker) - median(in_process),
        5,
        in_worker,
        detail,
    )


def after_a_deadline() -> Line:
    worker = Worker(deadline_s=DEADLINE_S)
    worker.submit(toy()).result(60)
    samples = []
    for _ in range(DEADLINES):
        slow, queued = worker.submit(MINUTES), worker.submit(toy(), fresh=True)
        try:
            slow.result(60)
        except JobError:
            samples.append(seconds(lambda job=queued: job.result(60)))
    worker.close()
    return line("deadline to the rows of the next request, the slowest", "s", max(samples), 1, samples, spread(samples))


def crowd() -> Line:
    """Returns the slowest of a few crowds, each with different shapes; the first is a warm-up and left out. It fails
    unless every reader gets rows and each request runs once."""
    samples, totals, runs = [], [], []
    worker = Worker(on_rows=runs.append)
    for c in range(1, CROWDS + 2):
        runs.clear()
        in_process = sum(seconds(lambda k=k, c=c: run_directly(toy(k + 1, c))) for k in range(DISTINCT))
        total = seconds(lambda c=c: submit_together(worker, c))
        assert len(runs) == DISTINCT, f"{len(runs)} runs"
        totals.append(total)
        samples.append(1e3 * (total - in_process))
    worker.close()
    totals, samples = totals[1:], samples[1:]
    detail = f"{READERS} answered, {DISTINCT} runs each time, {max(totals):.2f} s in all"
    what = f"{READERS} threads press Run, {DISTINCT} requests: beyond the runs alone"
    return line(what, "ms", max(samples), 500, samples, detail)


def submit_together(worker: Worker, c: int) -> None:
    barrier, results = threading.Barrier(READERS), []

    def reader(i: int) -> None:
        barrier.wait()
        results.append(worker.submit(toy(i % DISTINCT + 1, c), owner=f"reader {i}").result(120))

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == READERS and all(rows[0]["counters"] for rows in results)


def main(out: str | None = None) -> None:
    load_average = os.getloadavg()[0]
    worker = Worker()
    real = worker_overhead(worker)
    worker.close()
    publish([trip(), real, after_a_deadline(), crowd()], out, load_average)


if __name__ == "__main__":
    main(*sys.argv[1:2])
