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
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from kernels import engines
from kernels.jobs import faults, framing
from kernels.jobs.job import Request, Rows
from kernels.ladders import find
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.model.result import Result
from kernels.model.shape import ShapeError
from kernels.records.row import commit, kernel_digest, row
from kernels.runner import Progress, VerificationError, compare

Answer = Callable[[Request, Progress], Rows]
made_at = cache(commit)


def compare_rows(request: Request, progress: Progress) -> Rows:
    """A row for each rung; of one that its library does not support, the library's words ("unsupported")."""
    told: Rows = []
    results = compare(
        request.rungs,
        request.shape,
        request.inputs,
        request.engine,
        request.tiles,
        mode=request.mode,
        budget=Budget(seconds=request.seconds, least=3),
        progress=progress,
        refused=lambda rung, said: told.append({"rung": rung, "unsupported": said}),
    )
    return [*map(_row, results), *told]


def _row(result: Result) -> dict[str, Any]:
    """As records.row makes it; of an engine that measures nothing, what it counted."""
    program = find(result.rung).build(result.shape, result.tiles)
    if result.measurement:
        return row(result, program, made_at())
    return {
        "rung": result.rung,
        "shape": result.shape.params(),
        "tiles": dict(result.tiles),
        "engine": result.engine,
        "counters": result.counters.to_json() if result.counters else None,
        "error": result.error,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": made_at(),
        "kernels": kernel_digest(program),
    }


def serve(take: Callable[[], bytes], tell: Callable[..., None], answer: Answer = compare_rows) -> None:
    """Answer requests until one leaves the process unfit for another, or `take` raises EOFError."""
    stays = True
    while stays:
        tell("ready")
        try:
            packed = take()
        except EOFError:
            return
        stays = _one(packed, tell, answer)


def _one(packed: bytes, tell: Callable[..., None], answer: Answer) -> bool:
    """Answer one request; whether this process is fit for another."""
    doing, request = "starting", None

    def progress(share: float, text: str) -> None:
        nonlocal doing
        doing = text
        tell("progress", share, text)

    try:
        request = pickle.loads(packed)
        tell("rows", answer(request, progress))
        return True
    except (RuleError, ShapeError, VerificationError) as e:
        text, stays = str(e), True
    except Exception as e:
        text, stays = _words(e, request, doing), not faults.of_gpu(e)
    tell("error", text, stays)
    return stays


def _words(error: Exception, request: Request | None, doing: str) -> str:
    if request is None:
        return f"the request cannot be read: {type(error).__name__}: {error}"
    # The runner names the rung it verifies; all that are timed were verified, and are named here.
    where = f"while {doing}" + ("" if doing.startswith("verifying ") else f" ({', '.join(request.rungs)})")
    if faults.of_gpu(error):
        return faults.words(error, where)
    if isinstance(error, MemoryError):
        return (
            f"{request.shape} does not fit in this machine's memory, {where}; take a smaller shape or batch"
        )
    return f"{type(error).__name__} {where}: {error}"


# -- the process -----------------------------------------------------------------------------------
def main(answer: Answer = compare_rows) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl + C is the app's: it closes stdin
    _first_to_go()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to stderr, never between the messages
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    serve(inbox.get, lambda *message: framing.send(answers, pickle.dumps(message)), answer)


def _listen(requests, inbox: queue.SimpleQueue) -> None:
    """Pass requests on. When the app ends, however it ends, stdin does: then this process must as well,
    even in the middle of a run."""
    try:
        while True:
            inbox.put(framing.receive(requests))
    finally:
        os._exit(0)


def _first_to_go() -> None:
    """Where memory runs out, Linux ends this process before the app."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _warm_up() -> None:
    """Import what a run needs before the first request. CuPy that does not load is the matter of the runs that need it."""
    cuda = engines.load("cuda")
    if cuda.status().ready:
        with contextlib.suppress(RuleError):
            cuda.load()
    made_at()


if __name__ == "__main__":
    _warm_up()
    main()
