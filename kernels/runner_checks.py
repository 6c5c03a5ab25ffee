"""What run() and compare() refuse before anything is computed: arguments of the wrong kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.ladders import ladder_of
from kernels.machine.timing import MODES, Budget
from kernels.model.numerals import check_whole
from kernels.model.program import Launch, Program, RuleError
from kernels.model.rung import Ladder
from kernels.model.shape import ShapeError


def check_request(
    rungs: Any, shape: Any, inputs: Any, engine: Any, tiles: Any, seed: Any, mode: Any, budget: Any
) -> Ladder:
    """The ladder of the rungs. ShapeError or RuleError names the rule that an argument breaks."""
    if isinstance(rungs, str) or not isinstance(rungs, Sequence) or not rungs:
        raise RuleError(f"rungs are a list of at least one name, got {rungs!r}")
    for rung in rungs:
        if not isinstance(rung, str):
            raise RuleError(f'a rung is a name such as "conv/direct", got {rung!r}')
    ladder = ladder_of(rungs[0])
    for rung in rungs:
        ladder.rung(rung)
    if not isinstance(shape, ladder.shape):
        raise ShapeError(f"{rungs[0]} takes a shape of type {ladder.shape.__name__}, got {shape!r}")
    if engine is not None and not isinstance(engine, str):
        raise RuleError(f"an engine is a name, got {engine!r}")
    if not isinstance(mode, str) or mode not in MODES:
        raise RuleError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise RuleError(f"budget is a Budget, got {budget!r}")
    for name, given in (("inputs", inputs), ("tiles", tiles)):
        if given is not None and not isinstance(given, Mapping):
            raise RuleError(f"{name} is a dict of values by name, got {given!r}")
    for name, value in (tiles or {}).items():
        if name in rungs and not isinstance(value, Mapping):
            raise RuleError(f"tiles of {name} are a dict of numbers by name, got {value!r}")
        for tile, number in value.items() if name in rungs else ((name, value),):
            check_whole(f"the tile size {tile}", number)
    check_whole("seed", seed)
    return ladder


def check_trace(rung: str, program: Program, trace: Any) -> None:
    """RuleError if no launch of the program has a block of this number."""
    check_whole("trace", trace)
    blocks = [
        step.grid[0] * step.grid[1] * step.grid[2] for step in program.steps if isinstance(step, Launch)
    ]
    if blocks and trace >= max(blocks):
        raise RuleError(f"{rung}: the block to trace is one of 0 .. {max(blocks) - 1}, got {trace}")
