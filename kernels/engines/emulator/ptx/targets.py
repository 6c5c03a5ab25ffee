"""The oldest architecture that has an instruction (PTX ISA, "Target ISA Notes"). The compiler does not check inline assembly."""

from __future__ import annotations

import re

from kernels.engines.emulator.ptx.kernel import Instruction, Kernel
from kernels.model.program import RuleError

_SINCE = {
    "wgmma": "sm_90a",
    "setmaxnreg": "sm_90a",
    "cp.async.bulk": "sm_90",
    "cp.async": "sm_80",
    "cp.reduce.async": "sm_90",
    "mbarrier.try_wait": "sm_90",
    "mbarrier.expect_tx": "sm_90",
    "mbarrier.complete_tx": "sm_90",
    "mbarrier": "sm_80",
    "barrier.cluster": "sm_90",
    "mapa": "sm_90",
    "getctarank": "sm_90",
    "fence.proxy.async": "sm_90",
    "st.async": "sm_90",
    "red.async": "sm_90",
    "elect": "sm_90",
    "stmatrix": "sm_90",
    "griddepcontrol": "sm_90",
    "redux": "sm_80",
    "createpolicy": "sm_80",
}
_PARTS = {"shared::cluster": "sm_90", "expect_tx": "sm_90", "e4m3": "sm_89", "e5m2": "sm_89", "e4m3x2": "sm_89", "e5m2x2": "sm_89", "tf32": "sm_80"}  # fmt: skip


def since(i: Instruction) -> str:
    """Returns the oldest architecture that has an instruction; "" for one that all have."""
    beginnings = (".".join(i.parts[:n]) for n in range(3, 0, -1))
    found = [_SINCE[name] for name in beginnings if name in _SINCE][:1]
    found += [_PARTS[part] for part in i.parts if part in _PARTS]
    return max(found, default="")


def check(kernel: Kernel, arch: str, compiled: bool = True) -> None:
    """Raises RuleError if the kernel has an instruction that the architecture lacks. `compiled`: from CUDA C++, by --arch."""
    for i in kernel.code:
        needed = since(i)
        if needed and not _has(arch, needed):
            remedy = f"--arch {needed}" if compiled else f"its .target must be {needed}"
            raise RuleError(
                f"{kernel.name}, {i.line or 'unknown line'}: {i.opcode} exists from {needed} on, this is compiled for {arch}; "
                f"{remedy}"
            )


def _has(arch: str, needed: str) -> bool:
    number, wanted = (int(re.sub(r"\D", "", name)) for name in (arch, needed))
    return arch == needed if needed.endswith("a") else number >= wanted
