"""The levels of memory of a device, from the fastest to the largest: the size of each, and its source.

Sizes come from the driver (GPU) or from the system (processor): nothing is run and no context is created. The engines
measure how fast the largest level is copied (kernels.machine.ceilings).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from kernels.i18n import mark, tr_filled
from kernels.machine import driver, elsewhere
from kernels.machine.status import Status

RECORDED = Path(__file__).parents[1] / "records" / "recordings" / "nvidia-h200.levels.json"
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
DRIVER, SYSTEM = mark("reported by the driver"), mark("reported by the system")
ABSENT = mark("not reported here")
CACHES = mark("L1 cache"), mark("L2 cache"), mark("L3 cache")
# Texts of levels with numbers in them; `shown` translates them.
EACH_SM, REGISTERS_NOTE = mark("each of {sms} SMs"), mark("{n} of 4 bytes, for up to {threads} threads")
SHARED_NOTE, CORES, LINES = (
    mark("at most {bytes} bytes for one block"),
    mark("cores {cores} together"),
    mark("lines of {bytes} bytes"),
)
TEMPLATES = {text: text for text in (EACH_SM, REGISTERS_NOTE, SHARED_NOTE, CORES, LINES)}
# CUdevice_attribute of cuda.h
_MULTIPROCESSORS, _L2, _THREADS, _SHARED_SM, _REGISTERS_SM, _SHARED_BLOCK = 16, 38, 39, 81, 82, 97


@dataclass(frozen=True)
class Level:
    """One level. `bytes` is None if its size is not reported. `each`: the part of the device that has one."""

    name: str
    bytes: int | None
    each: str
    source: str  # DRIVER, SYSTEM or ABSENT
    note: str = ""
    line_bytes: int | None = None  # of a cache of the processor


@dataclass(frozen=True)
class Cache(Level):
    """A data cache of the processor: both sizes are known."""

    bytes: int
    line_bytes: int = 0


@dataclass(frozen=True)
class Levels:
    """All levels of one device. `copy_bytes_per_s`: bytes read and written by a copy larger than the caches, measured;
    None if it was not. `date` of a recording, "" for this machine now."""

    device: str
    levels: tuple[Level, ...]
    copy_bytes_per_s: float | None = None
    copy: str = ""
    date: str = ""

    def with_copy(self, ceilings: Mapping | None) -> Levels:
        """Returns these levels with the copy rate that an engine's ceilings measured on this device."""
        if not ceilings or ceilings["device"] != self.device:
            return self
        return replace(self, copy_bytes_per_s=ceilings["copy_bytes_per_s"], copy=ceilings["copy"])

    def to_json(self) -> dict:
        return asdict(self)

    def bytes_of(self, name: str) -> int | None:
        """Returns the size of a level by the first words of its name; None if it is not reported."""
        return next((level.bytes for level in self.levels if level.name.startswith(name)), None)

    @property
    def sms(self) -> int | None:
        """Returns the number of the GPU's SMs, which its levels name; None if they do not."""
        pattern = re.escape(EACH_SM).replace(r"\{sms\}", "([0-9]+)")
        found = filter(None, (re.fullmatch(pattern, level.each) for level in self.levels))
        return next((int(match[1]) for match in found), None)


def shown(text: str) -> str:
    """Returns a text of a level, such as `each` or `note`, in the reader's language."""
    return tr_filled(text, TEMPLATES)


@cache
def recorded() -> Levels | None:
    """Returns the levels of the GPU that the first recordings were made on; None if none are shipped. Those of other
    GPUs: kernels.records.levels."""
    return read(RECORDED)


def read(path: Path) -> Levels | None:
    """Returns the levels in a file as `write` writes it; None if it cannot be read or holds something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Levels(**data | {"levels": tuple(Level(**level) for level in data["levels"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write(path: Path, levels: Levels) -> None:
    path.write_text(json.dumps(levels.to_json(), indent=1) + "\n", encoding="utf-8")


# -- GPU -------------------------------------------------------------------------------------------
def gpu(status: Status) -> Levels | None:
    """Returns the levels of the GPU that the cuda engine with this status uses, as its driver reports them; None if it is
    not ready, or if it is on another machine."""
    if not status.ready or elsewhere.chosen():
        return None
    return gpu_levels(status.text, driver.attribute, driver.total_bytes())


def gpu_levels(device: str, attribute: Callable[[int], int | None], total: int | None) -> Levels:
    """Returns the levels of a GPU. `attribute(number)` is a CUdevice_attribute's value, None if the driver has none;
    `total`: bytes of HBM."""
    registers = attribute(_REGISTERS_SM)
    block, threads, sms = attribute(_SHARED_BLOCK), attribute(_THREADS), attribute(_MULTIPROCESSORS)
    sm = EACH_SM.format(sms=sms) if sms else mark("each SM")

    def level(name: str, count: int | None, each: str, note: str = "") -> Level:
        return Level(name, count, each, ABSENT if count is None else DRIVER, note if count is not None else "")

    return Levels(
        device,
        (
            level(
                mark("registers"),
                registers and 4 * registers,
                sm,
                REGISTERS_NOTE.format(n=f"{registers:,}", threads=threads) if registers and threads else "",
            ),
            level(
                mark("shared memory"),
                attribute(_SHARED_SM),
                sm,
                SHARED_NOTE.format(bytes=f"{block:,}") if block else "",
            ),
            Level("L1 cache", None, sm, ABSENT),
            level("L2 cache", attribute(_L2), mark("all SMs together")),
            level(mark("global memory (HBM or GDDR)"), total, mark("the whole GPU")),
        ),
    )


# -- processor -------------------------------------------------------------------------------------
def cpu() -> Levels:
    """Returns the levels of this machine's processor, as its system reports them."""
    from kernels.machine.processor import device_name

    caches = sysctl_caches(_sysctl) if sys.platform == "darwin" else linux_caches(CPU_CACHES)
    missing = tuple(Level(name, None, "", ABSENT) for name in CACHES if name not in {level.name for level in caches})
    caches = sorted((*caches, *missing), key=lambda level: CACHES.index(level.name))
    return Levels(device_name(), (*caches, _ram()))


def linux_caches(folder: Path) -> list[Level]:
    """Returns the data caches of the core with this folder; an empty list if Linux reports none."""
    caches = []
    for index in sorted(folder.glob("index*")):
        fields = {name: _read(index / name) for name in ("level", "type", "size", "coherency_line_size")}
        size = re.fullmatch(r"(\d+)([KMG])", fields["size"])
        if fields["type"] == "Instruction" or not size or fields["level"] not in ("1", "2", "3"):
            continue
        count = int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2]]
        line = fields["coherency_line_size"]
        shared = _read(index / "shared_cpu_list")
        each = CORES.format(cores=shared) if re.search("[-,]", shared) else mark("each core")
        caches.append(
            Level(
                f"L{fields['level']} cache",
                count,
                each,
                SYSTEM,
                LINES.format(bytes=line) if line else "",
                int(line) if line.isdigit() else None,
            )
        )
    return caches


def sysctl_caches(sysctl: Callable[[str], int | None]) -> list[Level]:
    """Returns the caches of a Mac; those of its performance cores if it has two kinds. `sysctl(name)` returns a number
    of sysctl."""
    line = sysctl("hw.cachelinesize")
    caches = []
    for name, key in (("L1 cache", "l1dcachesize"), ("L2 cache", "l2cachesize"), ("L3 cache", "l3cachesize")):
        count = sysctl(f"hw.perflevel0.{key}") or sysctl(f"hw.{key}")
        if count:
            caches.append(
                Level(
                    name, count, mark("one core or its cluster"), SYSTEM, LINES.format(bytes=line) if line else "", line
                )
            )
    return caches


def _sysctl(name: str) -> int | None:
    import subprocess

    result = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    return int(result.stdout) if result.returncode == 0 and result.stdout.strip().isdigit() else None


def _ram() -> Level:
    try:
        import psutil
    except ImportError:
        return Level(mark("memory (RAM)"), None, "", ABSENT)
    return Level("memory (RAM)", psutil.virtual_memory().total, mark("the whole machine"), SYSTEM)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


# -- data caches ----------------------------------------------------------------------------------------
@cache
def caches() -> tuple[Cache, ...]:
    """Returns this processor's data caches, from the nearest; none if the system reports none."""
    return tuple(Cache(**vars(level)) for level in cpu().levels if level.bytes and level.line_bytes)
