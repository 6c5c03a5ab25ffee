"""The kernels and shapes for the comparison of the emulator's counters with Nsight Compute's: every kernel of the
project at two or more shapes, including ragged ones, except those in EXCLUDED."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

from benchmarks import hardware_cases_rungs as rungs
from benchmarks import hardware_cases_teaching as teaching
from benchmarks import hardware_cases_wmma as wmma
from benchmarks.hardware_case import Case
from kernels.ladders import LADDERS

# Sources that are no cases, by the beginning of their path, and why.
EXCLUDED = {
    "collectives/": "they run on several GPUs at once, which Nsight Compute would let wait for each other for ever",
    "softmax/09_one_launch": "its blocks load words until other blocks have stored them: the counts differ from run to run",
    "machine/": "they measure the device: no memory counter has anything to count",
}


@cache
def unmeasured() -> frozenset[str]:
    """Returns the sources whose cases no GPU has counted yet: those of rungs that are unmeasured."""
    return frozenset(
        step.source
        for ladder in LADDERS.values()
        for rung in ladder.rungs
        if rung.unmeasured
        for preset in ladder.presets.values()
        if not any(rung.rules(preset.shape, rung.default_tiles))
        for step in rung.build(preset.shape, rung.default_tiles).launches
    )


@cache
def cases() -> dict[str, Case]:
    """Returns every case by name, in the order of the launches."""
    all_cases = (
        *teaching.CASES,
        *rungs.IM2COL,
        *rungs.MEMORY,
        *rungs.GEMM,
        *rungs.EIGHT_BIT,
        *rungs.CONV,
        *rungs.ATTENTION,
        *rungs.SOFTMAX,
        *rungs.FUSION,
        *rungs.FUSION_FP16,
        *rungs.ELEMENTWISE,
        *rungs.OPTIMIZER,
        *rungs.CROSS_ENTROPY,
        *rungs.NORM,
        *rungs.LINEAR,
        *rungs.ATTENTION_BACKWARD,
        *rungs.POOLING,
        *rungs.EMBEDDING,
        *rungs.CONV_BACKWARD,
        *rungs.CONV_FP16,
        *rungs.ATTENTION_LSE,
        *rungs.HEADS,
        *rungs.INSTRUCTION_RATE,
        *wmma.CASES,
    )
    named = {case.name: case for case in all_cases}
    assert len(named) == len(all_cases), "two cases bear one name"
    return named


def named(*patterns: str) -> dict[str, Case]:
    """Returns the cases whose names match one of the patterns ("wmma-*"), or all cases. ValueError if none matches."""
    chosen = {
        name: case
        for name, case in cases().items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not chosen:
        raise ValueError(f"no case is named like {' or '.join(patterns)}")
    return chosen
