"""The measurement protocol, apart from what each engine knows: how often, in which order, until when."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels.model.program import RuleError

MODES = ("cold", "hot")


@dataclass(frozen=True)
class Budget:
    """Stop at `samples` samples each, or after `seconds` for all together once each has `least`."""

    samples: int = 100
    seconds: float = 2.0
    least: int = 5
    warm_up_s: float = 0.1  # clocks idle low: the first milliseconds are not the machine's speed

    def __post_init__(self):
        for name, value in vars(self).items():
            least = 1 if name in ("samples", "least") else 0
            if not isinstance(value, int | float) or not least <= value < math.inf:
                raise RuleError(f"{name} of a budget is a number of {least} or more, got {value!r}")


def interleave(
    takes: Sequence[Callable[[], float]],
    budget: Budget,
    progress: Callable[[float], None] = lambda share: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[tuple[float, ...]]:
    """Call each `take` in turn, round after round, so that drift of the machine falls on all alike.

    A take runs its candidate once and returns milliseconds.
    """
    taken: list[list[float]] = [[] for _ in takes]
    start = clock()
    for round_ in range(budget.samples):
        spent = clock() - start
        if round_ >= budget.least and spent > budget.seconds:
            break
        for take, samples in zip(takes, taken, strict=True):
            samples.append(take())
        progress(min(1.0, max((round_ + 1) / budget.samples, spent / max(budget.seconds, 1e-9))))
    return [tuple(samples) for samples in taken]


def warm_up(
    run: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Run again and again until `seconds` have passed; not at all where none are left."""
    end = clock() + seconds
    while clock() < end:
        run()
