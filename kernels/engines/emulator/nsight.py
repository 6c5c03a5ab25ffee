"""The metrics of Nsight Compute that count the same as the emulator's counters.

Which are equal on an H200, and how far the others differ, is in docs/emulator.md. These counters have none:

bytes_ld, bytes_st    smsp__sass_data_bytes_mem_global_op_ld counts the bytes that several lanes load only once
shared_requests_*     smsp__inst_executed_op_shared_ld differed in 55 of 118 cases on an H200
flops_*, atomics      Nsight Compute counts each kind of instruction separately
barriers, bulk_bytes  no metric was compared
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_SHARED = "l1tex__data_{}_mem_shared_op_{}.sum"
_COPIES = "sm__sass_l1tex_data_{}_mem_shared_op_ldgsts_cache_{}.sum"
_OPS = ("ld", "st")
_PASSES = {"wavefronts": "pipe_lsu_wavefronts", "bank_conflicts": "bank_conflicts_pipe_lsu"}
# The emulator's memory counters that equal the hardware's numbers.
EQUAL = {
    **{f"{name}_{op}": _GLOBAL.format(name, op) for name in ("requests", "sectors") for op in _OPS},
    **{f"{name}_{op}": _SHARED.format(metric, op) for name, metric in _PASSES.items() for op in _OPS},
}
# Copies by cp.async are included in the loads above. The hardware counts their writes to shared memory separately from
# stores, both through the L1 cache and past it.
COPIES = {
    f"{name}_copied": tuple(_COPIES.format(metric, path) for path in ("access", "bypass"))
    for name, metric in _PASSES.items()
}
COMPARED = (*EQUAL, *COPIES)
INSTRUCTIONS = "smsp__inst_executed.sum"


@dataclass(frozen=True)
class Match:
    """The metrics whose sum is the same as a counter, less another counter that is a part of it. `machine`: the metrics count
    machine code, the counter PTX."""

    metrics: tuple[str, ...]
    less: str = ""
    machine: bool = False

    def text(self, less: bool) -> str:
        """Returns the metrics, with the counter that they leave out if `less`."""
        return " + ".join((*self.metrics, *([self.less] if less else []))) + (" (machine code)" if self.machine else "")

    def counted(self, counter: str, total: Mapping[str, float]) -> float:
        """Returns the part of a counter that the metrics count."""
        return total[counter] - (total[self.less] if self.less else 0)


# In the order of counters.FIELDS, then those of Counters.to_json that follow from them.
MATCHES = {
    "warp_instructions": Match((INSTRUCTIONS,), machine=True),
    "thread_instructions": Match(("smsp__thread_inst_executed.sum",), machine=True),
    "branches": Match(("smsp__sass_branch_targets.sum",), machine=True),
    "divergent_branches": Match(("smsp__sass_branch_targets_threads_divergent.sum",), machine=True),
    **{name: Match((EQUAL[name],)) for name in ("requests_ld", "requests_st", "sectors_ld", "sectors_st")},
    **{f"{name}_ld": Match((EQUAL[f"{name}_ld"],)) for name in _PASSES},
    **{f"{name}_st": Match((EQUAL[f"{name}_st"],), f"{name}_copied") for name in _PASSES},
    **{name: Match(metrics) for name, metrics in COPIES.items()},
    **{f"bytes_moved_{op}": Match((_GLOBAL.format("bytes", op),)) for op in _OPS},
    **{
        f"sectors_per_request_{op}": Match((f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{op}.ratio",))
        for op in _OPS
    },
}
METRICS = frozenset(metric for match in MATCHES.values() for metric in match.metrics)


def table(total: Mapping[str, int]) -> list[str]:
    """Returns a line for each counter that is not zero: its name, its count and the metrics that count the same."""
    lines = []
    for name, count in total.items():
        if count:
            match = MATCHES.get(name)
            metrics = match.text(less=bool(match.less and total[match.less])) if match else ""
            lines.append(f"{name:22} {count:>14,}  {metrics}".rstrip())
    return lines


def to_json() -> dict[str, dict]:
    """Returns the metrics of each counter, in the form of Match."""
    return {name: asdict(match) for name, match in MATCHES.items()}
