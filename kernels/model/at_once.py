"""Calls that may run at the same time: NumPy and BLAS let other threads run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

MAX_THREADS = 16  # if each holds large arrays of its own
HAS_THREADS = sys.platform != "emscripten"  # Python in a browser cannot start one


T = TypeVar("T")


def at_once(compute: Callable[[T], None], parts: Iterable[T], most: int | None = None) -> None:
    """Calls compute(part) for every part, `most` at once in threads; one after another if Python has no threads.

    Without `most` there is a thread for each of the computer's processors.
    """
    if not HAS_THREADS:
        for part in parts:
            compute(part)
        return
    from concurrent.futures import ThreadPoolExecutor  # loads logging: `import kernels` does without

    cpus = os.cpu_count() or 1
    with ThreadPoolExecutor(min(most or cpus, cpus)) as pool:
        list(pool.map(compute, parts))
