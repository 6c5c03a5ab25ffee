"""Text for the benchmarks of loops on the processor: the machine, and a time with its spread and rate."""

from __future__ import annotations

from kernels.engines import cpu
from kernels.machine.processor import device_name
from kernels.model.result import Measurement
from visuals import units


def machine() -> str:
    conditions = cpu.conditions()
    return f"{device_name()}; Python {conditions['python']}, NumPy {conditions['numpy']}; cold"


def cells(m: Measurement, flops: int) -> str:
    """Returns two cells of a Markdown table: the median with p20 to p80 and n, and the rate."""
    spread = f"{units.time_(m.p20_ms)} to {units.time_(m.p80_ms)}"
    return f"{units.time_(m.median_ms)} ({spread}, n = {m.n}) | {units.rate(flops, m.median_ms)}"
