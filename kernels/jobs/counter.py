"""The process that counts: child.py at the lowest priority."""

from __future__ import annotations

import os

from kernels.jobs.child import main

LOWEST_PRIORITY = 19  # the largest niceness there is

if __name__ == "__main__":
    if hasattr(os, "nice"):  # Windows has none
        os.nice(LOWEST_PRIORITY)
    main()
