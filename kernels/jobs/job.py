"""What is asked (Request), what is executed (Run), and what each who asked holds (Job)."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


class JobError(RuntimeError):
    """Why a job gave no result, in words a reader can use."""


@dataclass(frozen=True)
class Request:
    """What kernels.runner.compare is asked; `inputs` are NumPy arrays by buffer name."""

    rungs: tuple[str, ...]
    shape: Any
    inputs: dict[str, Any] | None = None
    engine: str | None = None
    tiles: dict[str, int] = field(default_factory=dict)
    mode: str = "cold"
    seconds: float = 3.0

    def key(self) -> Hashable:
        """Equal for requests that ask for the same; inputs are compared by content."""
        inputs = tuple((name, _digest(value)) for name, value in sorted((self.inputs or {}).items()))
        tiles = repr(sorted(self.tiles.items()))  # what a rung has of its own is a dict
        return tuple(self.rungs), repr(self.shape), inputs, self.engine, tiles, self.mode, self.seconds

    def packed(self) -> bytes:
        """As it is sent to the process that runs it. JobError where it cannot be."""
        try:
            return pickle.dumps(self, protocol=5)
        except Exception as e:  # whatever an object in `inputs` raises
            raise JobError(f"this request cannot be sent to the process that runs kernels: {e}") from None


def _digest(value: Any) -> str:
    array = np.asarray(value)
    head = f"{array.dtype.str}{array.shape}".encode()
    if array.dtype.hasobject:  # bytes of these are addresses; the runner will refuse them in words
        return hashlib.sha256(head + repr(value).encode()).hexdigest()
    return hashlib.sha256(head + array.tobytes()).hexdigest()


class Run:
    """One execution, for every job that asked for the same."""

    def __init__(self, key: Hashable, packed: bytes):
        self.key, self.packed = key, packed
        self.share, self.text = 0.0, "waiting"
        self.jobs: list[Job] = []
        self.sent = False  # a process works on it


class Job:
    """One submitted request, as its owner sees it. Read from any thread."""

    def __init__(self, request: Request, owner: str, run: Run):
        self.request, self.owner = request, owner
        self.kept = False  # answered from what was kept, not run for this job
        self.answered_at: float | None = None  # when its rows were measured, as time.time() tells it
        self._run = run
        self._done = threading.Event()
        self._rows: Rows | None = None
        self._error = ""

    @property
    def share(self) -> float:
        return 1.0 if self._rows is not None else self._run.share

    @property
    def text(self) -> str:
        """What goes on, in words."""
        return "done" if self._rows is not None else self._run.text

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Rows:
        """One row per rung, the caller's own. JobError says what went wrong."""
        if not self._done.wait(timeout):
            raise TimeoutError("the job is still running")
        if self._rows is None:
            raise JobError(self._error)
        return copy.deepcopy(self._rows)

    def finish(self, rows: Rows | None = None, error: str = "", kept_at: float | None = None) -> None:
        """The worker's to call; what came first stands."""
        if self.done:
            return
        self._rows, self._error = rows, error
        if rows is not None:
            self.kept = kept_at is not None
            self.answered_at = kept_at if self.kept else time.time()
        self._done.set()
