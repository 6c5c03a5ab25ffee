"""Compiling the kernels of a benchmark ahead, several at a time.

    python -m benchmarks.compiling PRESETS

compiles the kernels that `python -m kernels record --presets PRESETS` will run, so that a sweep waits for no compiler.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from benchmarks.report import stopwatch
from kernels.engines import cuda
from kernels.machine.timing import MODES
from kernels.model.program import Launch, Program, RuleError
from kernels.sweep import Sweep

Item = TypeVar("Item")


def in_processes(work: Callable[[Item], str], items: Sequence[Item]) -> list[str]:
    """Returns work(item) for each item, computed in several processes. `work` is a function of a module."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=context) as pool:
        return list(pool.map(work, items))


def compile_all(programs: Iterable[Program]) -> None:
    """Compile every kernel of the programs into CuPy's cache on disk; print the compiler's message if one fails."""
    elapsed = stopwatch()
    steps = (step for program in programs for step in program.steps if isinstance(step, Launch))
    keys = list(dict.fromkeys((step.source, step.entry, step.defines) for step in steps))
    for key, message in zip(keys, in_processes(_compiled, keys), strict=True):
        if message:
            print(key, message)
    print(f"{len(keys)} kernels compiled in {elapsed():.0f} s", flush=True)


def _compiled(key: tuple) -> str:
    """Compile one kernel, in a separate process, and return the compiler's message if it fails."""
    try:
        cuda.compile_kernel(*key)
    except RuleError as e:
        return str(e)
    return ""


if __name__ == "__main__":
    groups = Sweep("cuda", sys.argv[1].split(","), MODES).groups()
    compile_all([group.program(rung) for group in groups for rung in group.rungs])
