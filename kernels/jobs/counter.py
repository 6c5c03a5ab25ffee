"""The process that counts: as child.py, but last in line for the processor."""

from __future__ import annotations

import os

from kernels.jobs.child import main

LEAST = 19  # the lowest priority there is

if __name__ == "__main__":
    if hasattr(os, "nice"):  # Windows has no such thing
        os.nice(LEAST)
    main()
