"""The kernels and shapes at which the emulator's counters are held against Nsight Compute's: every kernel of the
project at two shapes or more, ragged ones among them, but for those named in APART."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

from benchmarks import hardware_cases_rungs as rungs
from benchmarks import hardware_cases_teaching as teaching
from benchmarks import hardware_cases_wmma as wmma
from benchmarks.hardware_case import Case

# What is no case, by how its name begins in kernels/cuda, and why.
APART = {
    "machine/": "they measure the device: no memory counter has anything to count",
}


@cache
def cases() -> dict[str, Case]:
    """Every case by name, in the order they are launched."""
    listed = (
        *teaching.CASES, *rungs.IM2COL, *rungs.MEMORY, *rungs.GEMM, *rungs.CONV, *rungs.ATTENTION, *rungs.SOFTMAX,
        *rungs.FUSION, *wmma.CASES,
    )  # fmt: skip
    named = {case.name: case for case in listed}
    assert len(named) == len(listed), "two cases bear one name"
    return named


def named(*patterns: str) -> dict[str, Case]:
    """Cases whose names match one of the patterns ("wmma-*"), or all of them. ValueError if none does."""
    chosen = {
        name: case
        for name, case in cases().items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not chosen:
        raise ValueError(f"no case is named like {' or '.join(patterns)}")
    return chosen
