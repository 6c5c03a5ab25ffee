"""What is known of a work on a processor and on a GPU: its times over size, where they cross, and Amdahl's figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from kernels.i18n import decimal, tr
from kernels.model.program import INPUT, OUTPUT
from kernels.model.row import Row
from kernels.offload import crossover, figures, recorded
from kernels.offload.figures import Figures, Range
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE, PINNED, WORKS, Point, Work, at, live
from visuals import units

MEASURED, RECORDED = "measured", "recorded"
NAMES = {CPU: "device", GPU: "gpu"}  # of a side's device, in a record and in the row of a run
_MARKS = re.compile(r"\((?:R|TM)\)| (?:Processor|CPU)\b|^NVIDIA ")


@dataclass(frozen=True)
class Side:
    """The rows of a work on one side, where they come from, and when they were recorded ("" if they were measured here)."""

    kind: str
    device: str
    date: str
    rows: Sequence[Row]

    @property
    def source(self) -> str:
        """Returns kind and device: "recorded (H100 80GB HBM3)"."""
        return tr("{kind} ({source})", kind=tr(self.kind), source=self.device)


@dataclass(frozen=True)
class OffloadEvidence:
    """A work at the measured size nearest to `size`. `copies`: which copies count. `left`: the share of a program that stays
    on the processor. `measured`: the row of a run on this machine (kernels.jobs.transfer.sizes), if there is one."""

    key: str
    size: int
    copies: str = NONE
    left: float = 0.05
    measured: Row | None = None

    def with_(self, **changes: Any) -> OffloadEvidence:
        return replace(self, **changes)

    @property
    def work(self) -> Work:
        return WORKS[self.key]

    @cached_property
    def point(self) -> Point:
        return at(self.key, self.size)

    # -- the two sides -------------------------------------------------------------------------------
    def side(self, name: str) -> Side:
        """Returns CPU or GPU: measured here, else recorded."""
        if self.measured and (rows := self.measured["works"].get(name)):
            return Side(MEASURED, short(self.measured[NAMES[name]]), "", rows)
        record = recorded.newest() or {}
        return Side(RECORDED, short(record.get(NAMES[name], "")), record.get("date", ""), recorded.rows(self.key, name))

    @cached_property
    def cpu_by_size(self) -> dict[int, Figures]:
        """Returns the processor's times: measured here, else recorded."""
        return {row["size"]: figures.of_cpu(row) for row in self.side(CPU).rows}

    def gpu_by_size(self, copies: str) -> dict[int, Figures]:
        """Returns the GPU's times with these copies."""
        found = {row["size"]: figures.of_gpu(row, copies) for row in self.side(GPU).rows}
        return {size: one for size, one in found.items() if one}

    @cached_property
    def cpu(self) -> Figures | None:
        """Returns the processor's time at this size; None if it was not measured: it is not extrapolated."""
        return self.cpu_by_size.get(self.point.size)

    @cached_property
    def gpu(self) -> Figures | None:
        """Returns the GPU's time at this size; None if it was not measured."""
        return self.of_gpu(self.copies)

    @property
    def on_gpu(self) -> Figures:
        """Returns the GPU's time at a size that is on the stage: it was measured."""
        assert self.gpu is not None
        return self.gpu

    @property
    def on_cpu(self) -> Figures:
        """Returns the processor's time where it is compared: it was measured."""
        assert self.cpu is not None
        return self.cpu

    def of_gpu(self, copies: str) -> Figures | None:
        return self.gpu_by_size(copies).get(self.point.size)

    @property
    def is_live(self) -> bool:
        """Returns whether a run on this machine measures this size."""
        return self.point in live(self.key)

    @property
    def call_again_ms(self) -> float | None:
        """Returns the ms of a call soon after another run, when its code is in the caches; None if it was not measured."""
        row = next((row for row in self.side(GPU).rows if row["size"] == self.point.size), None)
        return row[PINNED]["parts_ms"]["call"] if row else None

    # -- comparisons -----------------------------------------------------------------------------------
    @property
    def gain(self) -> float | None:
        """Returns how many times as fast the GPU is, below 1 if the processor is faster."""
        return self.cpu.ms / self.gpu.ms if self.cpu and self.gpu else None

    def crossing(self, copies: str) -> Range | None:
        """Returns from which size on the GPU is faster, among the sizes that both sides have."""
        return figures.crossing(self.cpu_by_size, self.gpu_by_size(copies))

    @property
    def repeats(self) -> int | None:
        """Returns how many runs on arrays that are copied once make the GPU faster; None if none do or it is not known."""
        alone = self.of_gpu(NONE)
        return figures.repeats_to_win(self.cpu, alone, self.gpu) if self.cpu and alone and self.gpu else None

    @property
    def beside_kernel(self) -> float:
        """Returns the share of the GPU's time that is not the kernel: call and copies, which no faster kernel shortens."""
        return 1 - self.gpu.parts["kernel"] / self.gpu.ms if self.gpu else 0.0

    @property
    def kernel_limit(self) -> float | None:
        """Returns how many times as fast the GPU's total becomes if its kernel takes no time (Amdahl)."""
        return crossover.limit(1 - self.beside_kernel) if self.gpu else None

    @property
    def speedup(self) -> float | None:
        """Returns how many times as fast a program becomes if all but `left` of it runs on the GPU."""
        return crossover.speedup(1 - self.left, self.gain) if self.gain else None

    @property
    def limit(self) -> float:
        """Returns the speedup of the program if the GPU takes no time."""
        return crossover.limit(1 - self.left)

    # -- what is computed --------------------------------------------------------------------------------
    @cached_property
    def bytes_in(self) -> int:
        return self._bytes(INPUT)

    @cached_property
    def bytes_out(self) -> int:
        return self._bytes(OUTPUT)

    def _bytes(self, role: str) -> int:
        return sum(4 * prod(b.shape) for b in self.work.gpu_program(self.point.shape).of_role(role))

    @cached_property
    def threads(self) -> int:
        """Returns the threads of the kernel's launch."""
        return sum(prod(step.grid) * prod(step.block) for step in self.work.gpu_program(self.point.shape).launches)

    @property
    def size_text(self) -> str:
        return size_text(self.key, self.point.size)


def short(device: str) -> str:
    """Returns a device's name without marks: "Intel(R) Xeon(R) Processor, 16 cores" -> "Intel Xeon, 16 cores"."""
    return _MARKS.sub("", device)


def size_text(key: str, size: float) -> str:
    """Returns a size of a work in words, two digits of a size between two measured ones."""
    number = units.count(size)
    if key == "gemm":
        return tr("{n} × {n}", n=units.whole(size))
    return tr("{n} elements", n=number) if key == "add" else tr("{n} multiply-adds", n=number)


def rounded(size: float) -> int:
    """Returns a size with two digits: the times between two measured sizes are interpolated."""
    return int(float(f"{size:.2g}"))


def crossing_text(key: str, found: Range | None) -> str:
    """Returns where the GPU becomes faster; "" if it does not."""
    if not found:
        return ""
    low, high = rounded(found.low), rounded(found.high)
    if found.first:
        return tr("{size}, the smallest one", size=size_text(key, found.low))
    if key == "gemm":
        return tr("n = {low} to {high}", low=low, high=high) if low < high else tr("about n = {n}", n=low)
    if low == high:
        return tr("about {size}", size=size_text(key, low))
    return tr("{low} to {high}", low=units.count(low), high=size_text(key, high))


def facts(found: OffloadEvidence) -> dict[str, str]:
    """Returns the fields of sentences about a work at a size; "" for what is not known."""
    cpu, gpu, gain = found.cpu, found.gpu, found.gain
    parts = gpu.parts if gpu else {}
    texts = {name: units.time_(parts[name]) if name in parts else "" for name in ("in", "call", "kernel", "out")}
    for copies in COPIES:
        one = found.of_gpu(copies)
        texts[copies] = units.time_(one.ms) if one else ""
        texts[f"crossing_{copies}"] = crossing_text(found.key, found.crossing(copies))
    return texts | {
        "size": found.size_text,
        "cpu": units.time_(cpu.ms) if cpu else "",
        "gpu": units.time_(gpu.ms) if gpu else "",
        "copied": units.time_(gpu.copies_ms) if gpu and gpu.copies_ms else "",
        "call_again": units.time_(found.call_again_ms) if found.call_again_ms else "",
        "gain": units.ratio(gain) if gain else "",
        "loss": units.ratio(1 / gain) if gain else "",
        "repeats": str(found.repeats) if found.repeats else "",
        "beside": units.share(found.beside_kernel) if gpu else "",
        "kernel_limit": units.ratio(found.kernel_limit) if gpu else "",
        "left": units.share(found.left),
        "speedup": units.ratio(found.speedup) if found.speedup else "",
        "limit": limit_text(found.limit),
        "threads": units.whole(found.threads),
        "bytes": units.bytes_(found.bytes_in + found.bytes_out),
        "source": source_text(found),
    }


def limit_text(limit: float) -> str:
    return decimal("∞") if limit == float("inf") else units.ratio(limit)


def source_text(found: OffloadEvidence) -> str:
    """Returns where the times of both sides come from."""
    cpu, gpu = found.side(CPU), found.side(GPU)
    if cpu.kind == gpu.kind:
        return tr("{kind} ({cpu}; {gpu})", kind=tr(cpu.kind), cpu=cpu.device, gpu=gpu.device)
    return f"{cpu.source}, {gpu.source}"
