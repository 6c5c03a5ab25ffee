"""The process that counts: child.py at the lowest priority."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kernels.jobs.child import main

LOWEST_PRIORITY = 19  # the largest niceness there is
OF_SESSION = 10  # a tenth of what a busy app gets: with 5, a third, readers of a full hall waited for counts of others


def give_way() -> None:
    """Gives this process the lowest priority, and on Linux a session of a low one.

    Linux shares a busy processor first between sessions ("autogroups"), and by niceness only within each. The job service has
    a session of its own, so without this its counts would get as much as the app.
    """
    if not hasattr(os, "nice"):  # Windows
        return
    os.nice(LOWEST_PRIORITY)
    with contextlib.suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(OF_SESSION))


if __name__ == "__main__":
    give_way()
    main()
