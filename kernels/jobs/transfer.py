"""Requests of the lessons around the kernel: a transfer program on the GPU, and the sizes of a work on the processor."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels.activity import SIZES, TRANSFERS
from kernels.engines.cuda.device import device_name
from kernels.jobs.job import Rows, packed
from kernels.machine import processor
from kernels.offload import cpu
from kernels.offload.works import WORKS, live
from kernels.transfers.measure import REPEATS, WARM_UP, measure
from kernels.transfers.scenarios import Settings

Progress = Callable[[float, str], None]
Part = Callable[[Any], None]


@dataclass(frozen=True)
class TransferRun:
    """A scenario to be measured on the GPU."""

    CACHED: ClassVar[bool] = True

    settings: Settings

    @property
    def rungs(self) -> tuple[str]:
        """Returns its name in messages."""
        return (f"transfer {self.settings.scenario}",)

    @property
    def shape(self) -> str:
        return f"{self.settings.scenario} of {self.settings.rows} rows, n = {self.settings.n}"

    def key(self) -> Hashable:
        return "transfer", self.settings

    def packed(self) -> bytes:
        return packed(self)


@dataclass(frozen=True)
class SizesRun:
    """The sizes of a work to be measured on this processor."""

    CACHED: ClassVar[bool] = True

    work: str

    @property
    def rungs(self) -> tuple[str]:
        return (f"sizes of {self.work}",)

    @property
    def shape(self) -> str:
        return f"the sizes of {self.work}"

    def key(self) -> Hashable:
        return "sizes", self.work

    def packed(self) -> bytes:
        return packed(self)


def transfer(request: TransferRun, progress: Progress, part: Part = lambda part: None) -> Rows:
    """Returns one row: what kernels.transfers.measure.measure returns, with scenario and device."""
    runs = REPEATS + WARM_UP

    def tell(share: float) -> None:
        text = TRANSFERS.replace("{n}", str(round(share * runs))).replace("{all}", str(runs))
        progress(share, text)

    s = request.settings
    return [{"scenario": s.scenario, "device": device_name(), **measure(s, progress=tell)}]


def sizes(request: SizesRun, progress: Progress, part: Part = lambda part: None) -> Rows:
    """Returns one row: work, device and the times of each size. Parts hold one size each."""
    count = len(live(request.work)) if request.work in WORKS else 0

    def tell(share: float) -> None:
        progress(share, SIZES.replace("{n}", str(round(share * count))).replace("{all}", str(count)))

    found = cpu.times(request.work, tell, part)
    return [{"work": request.work, "device": processor.device_name(), "points": found}]
