"""The processor of this machine: name, cores, free memory, what Numba may use."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kernels.i18n import tr
from kernels.model import numerals
from kernels.model.program import Tiles


@cache
def device_name() -> str:
    """Returns the processor's name and its number of cores."""
    name = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux: use the name from platform
    return f"{name or platform.machine()}, {os.cpu_count()} cores"


def free_bytes() -> int:
    """Returns the bytes that a new process can allocate. A machine that only measures may lack psutil: it runs Linux."""
    try:
        import psutil
    except ImportError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return psutil.virtual_memory().available


@cache
def last_level_cache() -> int:
    """Returns the bytes of the largest cache that Linux reports, 64 MiB if it reports none."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]])
    return max(sizes, default=64 * 2**20)


@cache
def cores() -> int:
    """Returns how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


# Rows measured on a larger machine are shown here too. A rule says what this machine cannot run.
THREADS = tuple(sorted({2**i for i in range(9)} | {cores()}))


@cache
def _numba_missing() -> bool:
    return importlib.util.find_spec("numba") is None


def max_threads() -> tuple[int, str]:
    """Returns how many threads Numba may start, and the reason: NUMBA_NUM_THREADS may set more than there are cores."""
    setting = os.environ.get("NUMBA_NUM_THREADS", "")
    if threads := numerals.count(setting):
        return threads, tr("the value of NUMBA_NUM_THREADS")
    return cores(), tr("the cores that this process may use")


def machine_rules(tiles: Tiles) -> Iterator[str]:
    """Yields the rules that loops of Numba break on this machine."""
    if _numba_missing():
        yield tr("Numba is not installed; it may not exist for this machine")
    threads, reason = max_threads()
    if tiles["THREADS"] > threads:
        yield tr("THREADS <= {limit} ({reason}), got {threads}", limit=threads, reason=reason, threads=tiles["THREADS"])
