"""How many numbers the machine of the recordings computes with at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernels.offload import recorded

# FP32 numbers in one instruction of a core. The recorded Xeon reports avx512f: vectors of 512 bits.
VECTORS = {"Intel(R) Xeon(R) Processor": 16}
# SMs, and FP32 lanes of each. NVIDIA, "NVIDIA H100 Tensor Core GPU Architecture", 2022: H100 SXM5. An H200 has the same.
GPUS = {"NVIDIA H100 80GB HBM3": (132, 128), "NVIDIA H200": (132, 128)}
_CORES = re.compile(r"^(.*), (\d+) cores$")


@dataclass(frozen=True)
class Machine:
    """A processor's cores with the numbers in one of their instructions, and a GPU's SMs with their lanes."""

    cores: int
    vector: int
    sms: int
    lanes: int

    @property
    def on_processor(self) -> int:
        return self.cores * self.vector

    @property
    def on_gpu(self) -> int:
        return self.sms * self.lanes


def recorded_machine() -> Machine | None:
    """Returns the machine of the newest record, None if one of its sides is not known."""
    record = recorded.newest() or {}
    found = _CORES.match(record.get("device", ""))
    if not found or found[1] not in VECTORS or record.get("gpu") not in GPUS:
        return None
    return Machine(int(found[2]), VECTORS[found[1]], *GPUS[record["gpu"]])
