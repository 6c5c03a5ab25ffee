"""What the worker costs, and how soon it serves again: python -m benchmarks.jobs [OUT.json]

Prints a Markdown table of what was measured beside its target, and writes every sample to OUT.json.

* Round trip: submit() to result() of a request whose answer is one row that is there already, in a child
  that is idle. Three messages of progress come with it, as in a real run.
* The same for a real run, the emulator counting the toy convolution: the time through the worker less the
  time of kernels.run in this process, medians of interleaved pairs.
* After a deadline: a run that takes minutes is stopped; from the moment its owner is told so to the rows of
  the request that waited behind it (the toy on the emulator).
* A hundred threads submit at once, ten distinct requests among them: from the gate to the last answer, less
  what the ten runs take one after the other in this process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.page import Line, line, publish, spread
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


def here(request: Request) -> None:
    """The same without the worker."""
    compare(request.rungs, request.shape, request.inputs, request.engine, request.tiles)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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


def beyond(worker: Worker) -> Line:
    there, alone = [], []
    for _ in range(PAIRS + 2):
        there.append(1e3 * seconds(lambda: worker.submit(toy(), fresh=True).result(60)))
        alone.append(1e3 * seconds(lambda: here(toy())))
    there, alone = there[2:], alone[2:]
    detail = f"medians {median(there):.3g} ms in the worker, {median(alone):.3g} ms in this process"
    return line(
        "the toy on the emulator: worker less in-process",
        "ms",
        median(there) - median(alone),
        5,
        there,
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
    return line(
        "deadline to the rows of the next request, the slowest",
        "s",
        max(samples),
        1,
        samples,
        spread(samples),
    )


def crowd() -> Line:
    """The slowest of a few crowds, each with shapes of its own, the first left out as a warm up. Every reader
    is answered and each request is run once, or this fails."""
    samples, wholes, runs = [], [], []
    worker = Worker(on_rows=runs.append)
    for c in range(1, CROWDS + 2):
        runs.clear()
        alone = sum(seconds(lambda k=k, c=c: here(toy(k + 1, c))) for k in range(DISTINCT))
        whole = seconds(lambda c=c: press(worker, c))
        assert len(runs) == DISTINCT, f"{len(runs)} runs"
        wholes.append(whole)
        samples.append(1e3 * (whole - alone))
    worker.close()
    wholes, samples = wholes[1:], samples[1:]
    detail = f"{READERS} answered, {DISTINCT} runs each time, {max(wholes):.2f} s in all"
    what = f"{READERS} threads press Run, {DISTINCT} requests: beyond the runs alone"
    return line(what, "ms", max(samples), 500, samples, detail)


def press(worker: Worker, c: int) -> None:
    gate, answered = threading.Barrier(READERS), []

    def reader(i: int) -> None:
        gate.wait()
        answered.append(worker.submit(toy(i % DISTINCT + 1, c), owner=f"reader {i}").result(120))

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answered) == READERS and all(rows[0]["counters"] for rows in answered)


def main() -> None:
    busy = os.getloadavg()[0]
    worker = Worker()
    real = beyond(worker)
    worker.close()
    publish([trip(), real, after_a_deadline(), crowd()], "", busy)


if __name__ == "__main__":
    main()
