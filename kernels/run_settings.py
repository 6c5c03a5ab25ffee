"""The settings of run() and compare(), and which of them are refused before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels import engines
from kernels.ladders import ladder_of
from kernels.machine.timing import MODES, Budget
from kernels.model.numerals import check_whole
from kernels.model.program import Launch, Program, RuleError
from kernels.model.row import Row
from kernels.model.rung import Ladder
from kernels.model.shape import Shape, ShapeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike  # Python in a browser has none


@dataclass(frozen=True)
class RunSettings:
    """How rungs are run. What each means: kernels.runner.run."""

    inputs: Mapping[str, ArrayLike] | None = None
    engine: str | None = None
    tiles: Mapping[str, int | Mapping[str, int]] | None = None
    seed: int = 0
    mode: str = "cold"
    budget: Budget | None = None
    measure: bool = True
    trace: int | None = None

    def engine_name(self) -> str:
        return self.engine or engines.default()

    def check(self, rungs: Sequence[str], shape: Shape | str) -> tuple[Ladder, Shape]:
        """Returns the ladder of the rungs and the shape. ShapeError or RuleError names the rule that an argument breaks."""
        ladder = _ladder(rungs)
        built: Shape = ladder.shape_of(shape) if isinstance(shape, str) else shape
        if not isinstance(built, ladder.shape):
            raise ShapeError(f"{rungs[0]} takes a shape of type {ladder.shape.__name__}, got {shape!r}")
        if self.engine is not None and not isinstance(self.engine, str):
            raise RuleError(f"an engine is a name, got {self.engine!r}")
        if not isinstance(self.mode, str) or self.mode not in MODES:
            raise RuleError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise RuleError(f"budget is a Budget, got {self.budget!r}")
        for name, value in (("inputs", self.inputs), ("tiles", self.tiles)):
            if value is not None and not isinstance(value, Mapping):
                raise RuleError(f"{name} is a dict of values by name, got {value!r}")
        _check_tiles(rungs, self.tiles or {})
        check_whole("seed", self.seed)
        return ladder, built


def _ladder(rungs: Sequence[str]) -> Ladder:
    """Returns the ladder that has all these rungs."""
    if isinstance(rungs, str) or not isinstance(rungs, Sequence) or not rungs:
        raise RuleError(f"rungs are a list of at least one name, got {rungs!r}")
    for rung in rungs:
        if not isinstance(rung, str):
            raise RuleError(f'a rung is a name such as "conv/direct", got {rung!r}')
    ladder = ladder_of(rungs[0])
    for rung in rungs:
        ladder.rung(rung)
    return ladder


def _check_tiles(rungs: Sequence[str], tiles: Row) -> None:
    """Raises RuleError if a tile size is no whole number, or those of a rung are no dict."""
    for name, value in tiles.items():
        if name in rungs and not isinstance(value, Mapping):
            raise RuleError(f"tiles of {name} are a dict of numbers by name, got {value!r}")
        for tile, number in value.items() if name in rungs else ((name, value),):
            check_whole(f"the tile size {tile}", number)


def check_trace(rung: str, program: Program, trace: int) -> None:
    """Raises RuleError if no launch of the program has a block of this number."""
    check_whole("trace", trace)
    blocks = [step.grid[0] * step.grid[1] * step.grid[2] for step in program.steps if isinstance(step, Launch)]
    if blocks and trace >= max(blocks):
        raise RuleError(f"{rung}: the block to trace is one of 0 .. {max(blocks) - 1}, got {trace}")
