"""A rung executed in the emulator at one row: its result, and the bytes of x and y that its threads move."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels import sources
from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.program import Launch, RuleError, buffer_of
from kernels.softmax.shape import SoftmaxShape

FUNCTIONS = {"ld": "load_four(", "st": "store_four("}  # that load x and store y in kernels that also move parts of rows


@dataclass(frozen=True)
class RunResult:
    """A rung executed at one row: its launches, output and counters."""

    launches: tuple[Launch, ...]
    output: np.ndarray  # float32 [n]
    counters: Counters

    def moved(self, op: str) -> int:
        """Returns the bytes of x that threads load ("ld"), or the bytes of y that they store ("st")."""
        if all({"x", "y"}.issuperset(filter(buffer_of, launch.args)) for launch in self.launches):
            return self.counters.total[f"bytes_{op}"]
        text = {launch.source.rpartition("/")[2]: sources.text(launch.source).splitlines() for launch in self.launches}
        return sum(
            count[f"bytes_{op}"]
            for line, count in self.counters.lines.items()
            if line.file in text and FUNCTIONS[op] in text[line.file][line.number - 1]
        )


@lru_cache(maxsize=128)
def run_rung(rung: str, tiles: tuple[tuple[str, int], ...], row: bytes) -> RunResult:
    """Run one of our rungs in the emulator at a row (bytes of float32). A grid may have any number of blocks: the code is
    the same. RuleError names a rule that the row breaks."""
    x = np.frombuffer(row, np.float32).reshape(1, -1)
    found, shape, sizes = find(rung), SoftmaxShape(1, x.size), dict(tiles)
    for rule in found.rules(shape, sizes):
        raise RuleError(rule)
    program = found.build(shape, sizes)
    session = emulator.Session(program, {"x": x}, Options())
    with np.errstate(all="ignore"):
        output = np.array(session.verify_run())
    return RunResult(program.launches, output.ravel(), session.counted)
