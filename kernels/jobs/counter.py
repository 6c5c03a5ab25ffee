"""The process that counts: child.py, which runs only when nothing else wants the processor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kernels.jobs.child import main

LOWEST_PRIORITY = 19  # the largest niceness there is


def give_way() -> None:
    """Gives this process the lowest priority.

    Linux shares a busy processor first between sessions ("autogroups"), and by niceness only within each. So this process has
    a session of its own, and gives that the lowest priority too. SCHED_IDLE: it never delays a process that wakes up.
    """
    if not hasattr(os, "nice"):  # Windows
        return
    os.nice(LOWEST_PRIORITY)
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(LOWEST_PRIORITY))
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    give_way()
    main()
