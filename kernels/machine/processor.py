"""The processor of this machine: name, cores, free memory, what Numba may use."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kernels.model import numerals
from kernels.model.program import Tiles


@cache
def device_name() -> str:
    """The processor's name and the cores this process may use."""
    name = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux: what platform says
    return f"{name or platform.machine()}, {os.cpu_count()} cores"


def free_bytes() -> int:
    """Bytes a new process could take. A machine that only measures may lack psutil: it runs Linux."""
    try:
        import psutil
    except ImportError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return psutil.virtual_memory().available


@cache
def last_level_cache() -> int:
    """Bytes of the largest cache Linux reports, 64 MiB where it reports none."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]])
    return max(sizes, default=64 * 2**20)


@cache
def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


# Rows measured on a larger machine are told of here too: what this one cannot run, a rule says.
THREADS = tuple(sorted({2**i for i in range(9)} | {cores()}))


@cache
def _numba_missing() -> bool:
    return importlib.util.find_spec("numba") is None


def threads_told() -> tuple[int, str]:
    """Threads that Numba may start, and why so many: NUMBA_NUM_THREADS may ask for more than there are cores."""
    asked = os.environ.get("NUMBA_NUM_THREADS", "")
    if threads := numerals.count(asked):
        return threads, "what NUMBA_NUM_THREADS says"
    return cores(), "the cores this process may use"


def machine_rules(tiles: Tiles) -> Iterator[str]:
    """What loops of Numba ask of the machine."""
    if _numba_missing():
        yield "Numba must be installed, and there is none for this machine"
    most, why = threads_told()
    if tiles["THREADS"] > most:
        yield f"THREADS <= {most}, {why}, got {tiles['THREADS']}"
