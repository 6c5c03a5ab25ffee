"""What other programs used while a run was timed, and whether that may have changed its times.

The limits come from an experiment: docs/measuring.md, "Disturbed times".
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None

MAX_WAIT = 0.01  # share of a sample that its threads may wait for a core
SHORT_S = 1e-3  # of a sample
MAX_WAITED = 0.05  # share of the samples that may have waited longer
MAX_CORES = 0.10  # share of the machine's cores that other programs may use
MIN_WINDOW_S = 0.3  # the system counts a core's time in steps of 10 ms: less is too coarse
CORES, GPU = "cores", "gpu"  # what other programs used
THREADS = Path("/proc/self/task")

Readings = Mapping[str, float]  # by name: "waited", "cores", "programs"


def fields(readings: Readings) -> dict[str, object]:
    """Returns the fields of a row: the readings, and what other programs used that may have changed its times, "" if
    nothing. No fields if the system gave no reading."""
    return {"others": dict(readings), "disturbed": disturbed(readings)} if readings else {}


def disturbed(readings: Readings) -> str:
    """Returns GPU or CORES if other programs used more of it than a time bears, else ""."""
    if readings.get("programs", 0) > 0:
        return GPU
    over = readings.get("waited", 0) >= MAX_WAITED or readings.get("cores", 0) >= MAX_CORES
    return CORES if over else ""


# -- waiting for a core ----------------------------------------------------------------------------
def waiting_s() -> float | None:
    """Returns the seconds that the threads of this process have been ready and waited for a core; None if the system does
    not count them (only Linux does)."""
    counted = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(THREADS):
            with contextlib.suppress(OSError, IndexError):  # a thread that has ended
                counted.append(int((THREADS / thread / "schedstat").read_text("ascii").split()[1]))
    return sum(counted) * 1e-9 if counted else None


def interruptions() -> float | None:
    """Returns how often the system has taken a core from a thread of this process; None on Windows, which does not count."""
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw) if resource else None


class Waits:
    """Counts the samples of one kernel whose threads waited for a core for more than MAX_WAIT of their time.

    Reading the time that threads waited moves data out of the caches: 12 us became 14 us. In samples below SHORT_S any
    interruption counts instead, which one cheap call returns; it takes more than MAX_WAIT of such a sample.
    """

    def __init__(self):
        self._samples, self._waited, self._short = 0, 0, False

    def timed_s(self, work: Callable[[], object]) -> float:
        """Returns the seconds that `work` takes, as one sample. The counters are read outside of it."""
        read = interruptions if self._short else waiting_s
        before = read()
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        after = read()
        if before is not None and after is not None:
            self._samples += 1
            self._waited += after - before > (0 if self._short else MAX_WAIT * seconds)
        self._short = seconds < SHORT_S
        return seconds

    def readings(self) -> Readings:
        """Returns the share of the samples that waited; nothing if the system counts neither."""
        return {"waited": self._waited / self._samples} if self._samples else {}


# -- the cores -------------------------------------------------------------------------------------
def core_seconds() -> tuple[float, float, float] | None:
    """Returns the seconds of all cores since the start of the machine, those of them in use (by other virtual machines
    too), and those that this process used. None without psutil."""
    try:
        import psutil
    except ImportError:  # a machine that only measures may lack it
        return None
    found = psutil.cpu_times()._asdict()
    for part in ("guest", "guest_nice"):  # they are in user and nice too
        found.pop(part, None)
    total = sum(found.values())
    return total, total - found["idle"] - found.get("iowait", 0), time.process_time()


class Cores:
    """The cores that other programs use from now on."""

    def __init__(self, read: Callable[[], tuple[float, float, float] | None] | None = None):
        self._read = read or core_seconds
        self._start = self._read()

    def readings(self) -> Readings:
        """Returns the share of all cores that other programs used. Nothing if too little time has passed."""
        now = self._read()
        if not (self._start and now):
            return {}
        total, used, own = (b - a for a, b in zip(self._start, now, strict=True))
        long_enough = total >= MIN_WINDOW_S * (os.cpu_count() or 1)
        return {"cores": max(0.0, (used - own) / total)} if long_enough else {}


# -- the GPU ---------------------------------------------------------------------------------------
class Programs:
    """The other programs that execute on a GPU from now on, as NVML counts them. `bus`: the GPU's PCI address."""

    def __init__(self, bus: str):
        self._bus, self._since_us = bus, int(time.time() * 1e6)

    def readings(self) -> Readings:
        """Returns how many other programs used the GPU's multiprocessors. Nothing without pynvml, or if this GPU does not
        count them."""
        try:
            import pynvml  # pyright: ignore[reportMissingImports]  # optional
        except ImportError:
            return {}
        try:
            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByPciBusId(self._bus.encode())
            samples = pynvml.nvmlDeviceGetProcessUtilization(device, self._since_us)
        except pynvml.NVMLError_NotFound:
            samples = ()  # nothing executed
        except pynvml.NVMLError:
            return {}
        active = {sample.pid for sample in samples if sample.smUtil}
        # In a container the driver's numbers of processes are not this system's: then one of them is this process.
        others = active - {os.getpid()}
        return {"programs": len(others) if os.getpid() in active else max(0, len(others) - 1)}
