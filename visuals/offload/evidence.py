"""What is known of a work on a processor and on a GPU: its times over size, where they cross, and Amdahl's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernels.offload import crossover, recorded
from kernels.offload.crossover import Crossing
from kernels.offload.works import NONE, WORKS, Point, Work, at, points

MEASURED, RECORDED = "measured", "recorded"


@dataclass(frozen=True)
class OffloadEvidence:
    """A work at the recorded size nearest to `size`. `copies`: which copies count. `measured`: the row of a run on this
    processor (kernels.jobs.transfer.sizes), if there is one."""

    key: str
    size: int
    copies: str = NONE
    measured: Mapping[str, Any] | None = None

    @property
    def work(self) -> Work:
        return WORKS[self.key]

    @cached_property
    def point(self) -> Point:
        return at(self.key, self.size)

    @property
    def kind(self) -> str:
        """Returns the kind of the processor's times."""
        return MEASURED if self.measured else RECORDED

    @property
    def cpu_device(self) -> str:
        """Returns the processor; "" if nothing is known of one."""
        return str((self.measured or recorded.newest() or {}).get("device", ""))

    @cached_property
    def cpu_by_size(self) -> dict[int, float]:
        """Returns the processor's median ms by size, smallest first: measured here, else recorded."""
        if self.measured:
            rows = self.measured["points"]
        else:
            rows = (recorded.newest() or {}).get("works", {}).get(self.key, ())
        return {row["size"]: row["ms"] for row in sorted(rows, key=lambda row: row["size"])}

    @property
    def cpu_ms(self) -> float | None:
        """Returns the processor's time at this size; None if it was not measured: it is not extrapolated."""
        return self.cpu_by_size.get(self.point.size)

    @property
    def gpu_ms(self) -> float:
        return self.point.gpu_ms(self.copies)

    def crossing(self, copies: str) -> Crossing | None:
        """Returns the size from which the GPU is faster, among the sizes that both have."""
        both = [point for point in points(self.key) if point.size in self.cpu_by_size]
        return crossover.crossing(
            [point.size for point in both],
            [self.cpu_by_size[point.size] for point in both],
            [point.gpu_ms(copies) for point in both],
        )

    @property
    def copy_share(self) -> float:
        """Returns the share of the GPU's time that is not the kernel: call and copies, which no faster kernel shortens."""
        return 1 - self.point.kernel_ms / self.gpu_ms

    @property
    def kernel_limit(self) -> float:
        """Returns how many times as fast the GPU's total becomes if its kernel takes no time (Amdahl)."""
        return crossover.limit(1 - self.copy_share)
