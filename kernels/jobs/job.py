"""Request: what to run. Run: one execution. Job: the handle that each caller of Worker.submit gets."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import pickle
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kernels.activity import DONE, WAITING
from kernels.model.row import Json
from kernels.model.shape import Shape

Rows = list[Json]
Part = Callable[[object], None]  # called with what a run sends before its end
SECONDS = "KERNEL_THEATRE_SECONDS"  # environment variable: the seconds in which a run takes its samples


if TYPE_CHECKING:
    from kernels.jobs.client import Queue
    from kernels.jobs.worker import Worker


class JobError(RuntimeError):
    """Why a job gave no result, as a sentence for the page."""


def seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Returns the seconds in which the pages' runs take their samples: 3 unless the environment has another number."""
    try:
        given = float(environ.get(SECONDS, ""))
    except ValueError:
        return 3.0
    return given if 0 < given < math.inf else 3.0


class Work(Protocol):
    """What a queue takes: a Request, or a run of another kind. `label` and `shape` name it in messages."""

    @property
    def CACHED(self) -> bool: ...
    @property
    def label(self) -> str: ...
    @property
    def shape(self) -> object: ...
    def key(self) -> Hashable: ...
    def packed(self) -> bytes: ...


@dataclass(frozen=True)
class Request:
    """The arguments of kernels.runner.compare; `inputs` are NumPy arrays by buffer name."""

    CACHED = True  # whether the worker keeps the result for equal requests

    rungs: tuple[str, ...]
    shape: Shape
    inputs: Json | None = None
    engine: str | None = None
    tiles: dict[str, int] = field(default_factory=dict)
    mode: str = "cold"
    seconds: float = field(default_factory=seconds)

    @property
    def label(self) -> str:
        return ", ".join(self.rungs)

    def key(self) -> Hashable:
        """Returns a key that is equal for equal requests; inputs are compared by content."""
        inputs = tuple((name, _digest(value)) for name, value in sorted((self.inputs or {}).items()))
        tiles = repr(sorted(self.tiles.items()))  # tile sizes of a single rung are a dict, which has no hash
        return tuple(self.rungs), repr(self.shape), inputs, self.engine, tiles, self.mode, self.seconds

    def packed(self) -> bytes:
        """Returns the pickled request. JobError if it cannot be pickled."""
        return packed(self)


def packed(request: object) -> bytes:
    """Returns a request of any kind, pickled. JobError if it cannot be pickled."""
    try:
        return pickle.dumps(request, protocol=5)
    except Exception as e:  # whatever an object in `inputs` raises
        raise JobError(f"this request cannot be sent to the process that runs kernels: {e}") from None


def _digest(value: object) -> str:
    array = np.asarray(value)
    head = f"{array.dtype.str}{array.shape}".encode()
    if array.dtype.hasobject:  # their bytes are addresses; the runner rejects such inputs with a message
        return hashlib.sha256(head + repr(value).encode()).hexdigest()
    return hashlib.sha256(head + array.tobytes()).hexdigest()


class Run:
    """One execution, shared by all jobs with the same request."""

    def __init__(self, key: Hashable, packed: bytes, cached: bool = True):
        self.key, self.packed, self.cached = key, packed, cached
        self.parts: tuple[Any, ...] = ()  # what it has sent before its end
        self.share, self.text = 0.0, WAITING
        self.ahead = 0  # of a run in the job service: how many come before it
        self.jobs: list[Job] = []
        self.sent = False  # whether a process works on it
        self.note = ""  # what Worker's on_rows returned
        self.name = secrets.token_hex(8)
        self.device = ""  # of a pool: the one that its owner wants, "" for any
        self.needs_gpu = False  # of a pool
        self.restarts = 0  # of a pool: how many machines ended while they executed it


class Job:
    """One submitted request, as its owner sees it. Safe to read from any thread."""

    def __init__(self, request: Work, owner: str, run: Run):
        self.request: Any = request  # of the kind that was submitted
        self.owner = owner
        self.cached = False  # whether its rows came from the cache and were not measured for this job
        self.measured_at: float | None = None  # when its rows were measured, as time.time()
        self.queue: Worker | Queue | None = None  # of a pool's job that another queue runs
        self._run = run
        self._done = threading.Event()
        self._rows: Rows | None = None
        self._error = ""
        self._listeners: set[Callable[[], None]] = set()

    @property
    def share(self) -> float:
        return 1.0 if self._rows is not None else self._run.share

    @property
    def text(self) -> str:
        """Returns a text for the page about the current state."""
        return DONE if self._rows is not None else self._run.text

    @property
    def parts(self) -> tuple[Any, ...]:
        """Returns what the run has sent so far, in order; nothing for a run that sends only its rows."""
        return self._run.parts

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Rows:
        """Returns one row per rung, as a copy. JobError says what went wrong, TimeoutError that the job still runs."""
        if not self._done.wait(timeout):
            raise TimeoutError("the job is still running")
        if self._rows is None:
            raise JobError(self._error)
        return copy.deepcopy(self._rows)

    def finish(self, rows: Rows | None = None, error: str = "", cached_at: float | None = None) -> None:
        """End the job with rows or an error. Only the worker calls it; a second call changes nothing."""
        if self.done:
            return
        self._rows, self._error = rows, error
        if rows is not None:
            self.cached = cached_at is not None
            self.measured_at = cached_at if self.cached else time.time()
        self._done.set()
        self.tell()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener`, which must not wait, after each change of this job, until the function that this returns is
        called."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
