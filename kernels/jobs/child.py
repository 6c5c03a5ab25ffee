"""The process that runs jobs: requests come pickled on stdin, messages go pickled to stdout."""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kernels.activity import STARTING, VERIFYING
from kernels.engines.cuda.devices import DevicesHung
from kernels.jobs import faults, framing
from kernels.jobs.episode import Episode, train
from kernels.jobs.exchange import Exchange, exchange
from kernels.jobs.job import Part, Request, Rows
from kernels.jobs.parallel_step import ParallelStep, parallel_step
from kernels.jobs.transfer import SizesRun, TransferRun, sizes, transfer
from kernels.ladders import find
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.model.result import Result
from kernels.model.row import Json
from kernels.model.shape import ShapeError
from kernels.records.row import commit, kernel_digest, row
from kernels.runner import Progress, VerificationError, compare

Handler = Callable[[Request, Progress], Rows]
# Requests of other kinds, each with what runs it.
HANDLERS: Mapping[type, Callable[[Any, Progress, Part], Rows]] = {
    Episode: train,
    Exchange: exchange,
    ParallelStep: parallel_step,
    TransferRun: transfer,
    SizesRun: sizes,
}
current_commit = cache(commit)


def compare_rows(request: Request, progress: Progress) -> Rows:
    """Returns a row for each rung. For a rung that its library does not support, the row holds the library's message
    ("unsupported")."""
    unsupported: Rows = []
    results = compare(
        request.rungs,
        request.shape,
        request.inputs,
        request.engine,
        request.tiles,
        mode=request.mode,
        budget=Budget(seconds=request.seconds, min_samples=3),
        progress=progress,
        refused=lambda rung, reason: unsupported.append({"rung": rung, "unsupported": reason}),
    )
    return [*map(_row, results), *unsupported]


def _row(result: Result) -> Json:
    """Returns the row as records.row makes it, or the counters if the engine measures no times."""
    program = find(result.rung).build(result.shape, result.tiles)
    if result.measurement:
        return row(result, program, current_commit())
    return {
        "rung": result.rung,
        "shape": result.shape.params(),
        "tiles": dict(result.tiles),
        "engine": result.engine,
        "counters": result.counters.to_json() if result.counters else None,
        "error": result.error,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": current_commit(),
        "kernels": kernel_digest(program),
    }


def handle_requests(receive: Callable[[], bytes], send: Callable[..., None], handler: Handler = compare_rows) -> None:
    """Handle requests until `receive` raises EOFError, or until an error makes this process unusable."""
    usable = True
    while usable:
        send("ready")
        try:
            packed = receive()
        except EOFError:
            return
        usable = _handle_one(packed, send, handler)


def _handle_one(packed: bytes, send: Callable[..., None], handler: Handler) -> bool:
    """Handle one request and return whether this process can take another."""
    activity, request = STARTING, None

    def progress(share: float, text: str) -> None:
        nonlocal activity
        activity = text
        send("progress", share, text)

    try:
        request = pickle.loads(packed)
        if special := HANDLERS.get(type(request)):
            rows = special(request, progress, lambda part: send("part", part))
        else:
            rows = handler(request, progress)
        send("rows", rows)
        return True
    except (RuleError, ShapeError, VerificationError) as e:
        text, usable = str(e), True
    except DevicesHung as e:
        text, usable = str(e), False
    except Exception as e:
        text, usable = _error_text(e, request, activity), not faults.is_gpu_error(e)
    send("error", text, usable)
    return usable


def _error_text(error: Exception, request: Request | None, activity: str) -> str:
    if request is None:
        return f"the request cannot be read: {type(error).__name__}: {error}"
    # While it verifies, the runner names the rung. Rungs are timed together: name them all here.
    where = f"while {activity}" + ("" if activity.startswith(VERIFYING.partition("{")[0]) else f" ({request.label})")
    if faults.is_gpu_error(error):
        return faults.sentence(error, where)
    if isinstance(error, MemoryError):
        return f"{request.shape} does not fit in this machine's memory, {where}; take a smaller shape or batch"
    return f"{type(error).__name__} {where}: {error}"


# -- the process -----------------------------------------------------------------------------------
def main(handler: Handler = compare_rows) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the app handles Ctrl + C: it closes stdin
    _end_first_without_memory()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a library goes to stderr, never between the messages
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    handle_requests(inbox.get, lambda *message: framing.send(output, pickle.dumps(message)), handler)


def _listen(requests, inbox: queue.SimpleQueue) -> None:
    """Queue the requests. When the app ends, for whatever reason, stdin ends. Then this process must end as well, even
    in the middle of a run."""
    try:
        while True:
            inbox.put(framing.receive(requests))
    finally:
        os._exit(0)


def _end_first_without_memory() -> None:
    """Make Linux end this process before the app if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _warm_up() -> None:
    """Import what a run needs before the first request. If CuPy does not load, the runs that need it report that."""
    from kernels.engines import cuda

    if cuda.status().ready:
        with contextlib.suppress(RuleError):
            cuda.load()
    current_commit()


if __name__ == "__main__":
    _warm_up()
    main()
