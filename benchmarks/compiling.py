"""Helpers of the ladders' benchmarks: compile kernels ahead, several at a time, and format tile sizes.

    python -m benchmarks.compiling PRESETS

compiles the kernels that `python -m kernels record --presets PRESETS` will run, so that a sweep waits for no compiler.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

from kernels.engines import cuda
from kernels.machine.timing import MODES
from kernels.model.program import Launch, Program, RuleError
from kernels.sweep import Sweep


def compile_all(programs: Sequence[Program]) -> None:
    """Compile every kernel of the programs into CuPy's cache on disk; print the compiler's message if one fails."""
    steps = (step for program in programs for step in program.steps if isinstance(step, Launch))
    keys = list(dict.fromkeys((step.source, step.entry, step.defines) for step in steps))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=context) as pool:
        for key, message in zip(keys, pool.map(_compiled, keys), strict=True):
            if message:
                print(key, message)


def _compiled(key: tuple) -> str:
    """Compile one kernel, in a separate process, and return the compiler's message if it fails."""
    try:
        cuda.compile_kernel(*key)
    except RuleError as e:
        return str(e)
    return ""


def tiles_text(tiles: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in tiles.items())


if __name__ == "__main__":
    groups = Sweep("cuda", sys.argv[1].split(","), MODES).groups()
    compile_all([group.program(rung) for group in groups for rung in group.rungs])
