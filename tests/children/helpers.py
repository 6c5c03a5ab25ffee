"""What the tests of the worker share."""

from __future__ import annotations

import time

from kernels.jobs.job import Request


def act(what: str, **fields) -> Request:
    """A request for tests.children.acts."""
    return Request((what,), fields.pop("shape", None), **fields)


def until(true, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def begun(job, doing: str = "verifying") -> None:
    """Wait until the child works on the job and says that it is `doing` something."""
    until(lambda: job.done or job.text.startswith(doing))
    assert not job.done
