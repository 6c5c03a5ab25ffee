"""Requests of the lessons around the kernel: a transfer program on the GPU, and the sizes of a work on both sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from kernels import engines
from kernels.activity import SIZES, TRANSFERS
from kernels.engines.cuda.device import device_name
from kernels.jobs.job import Part, Rows, packed
from kernels.machine import processor
from kernels.offload import measure as offload
from kernels.offload.works import live
from kernels.transfers.measure import REPEATS, WARM_UP, measure
from kernels.transfers.scenarios import Settings

SIZES_S = 60.0  # no further size begins after it: the worker ends a job at its deadline, with all that was measured
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class TransferRun:
    """A scenario to be measured on the GPU."""

    CACHED = True

    settings: Settings

    @property
    def label(self) -> str:
        return f"transfer {self.settings.scenario}"

    @property
    def shape(self) -> str:
        return f"{self.settings.scenario} of {self.settings.rows} rows, n = {self.settings.n}"

    def key(self) -> Hashable:
        return "transfer", self.settings

    def packed(self) -> bytes:
        return packed(self)


@dataclass(frozen=True)
class SizesRun:
    """The sizes of a work to be measured on this processor, and on the GPU if there is one."""

    CACHED = True

    work: str

    @property
    def label(self) -> str:
        return f"sizes of {self.work}"

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
    """Returns one row: work, device and the rows of both sides, as kernels.offload.measure.times returns them; gpu is the
    GPU's name, "" without one. A slow machine has fewer passes, or lacks the largest sizes."""
    count = offload.PASSES * len(live(request.work))

    def tell(share: float) -> None:
        progress(share, SIZES.replace("{n}", str(round(share * count))).replace("{all}", str(count)))

    with_gpu = engines.load("cuda").status().ready
    end = time.monotonic() + SIZES_S
    found = offload.times(request.work, with_gpu=with_gpu, progress=tell, end=end)
    names = {"device": processor.device_name(), "gpu": device_name() if with_gpu else ""}
    return [{"work": request.work, **names, "works": found}]
