"""Which process runs kernels, as the environment says."""

from __future__ import annotations

import os

VARIABLE = "KERNEL_THEATRE_JOBS"  # "": the job service of this machine; "here": this app alone; tcp://HOST:PORT: a pool
HERE = "here"


def in_this_app() -> bool:
    """Returns whether the app has a queue of its own. Then no other app may run on this machine at the same time."""
    return os.environ.get(VARIABLE, "") == HERE


def pool() -> str:
    """Returns the address of the scheduler of a pool; "" without one."""
    value = os.environ.get(VARIABLE, "")
    return value if "://" in value else ""
