"""The measurement protocol shared by the engines: how many samples, in which order, for how long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels.model.program import RuleError

MODES = ("cold", "hot")


@dataclass(frozen=True)
class Budget:
    """The end of a measurement: `samples` samples of each candidate, or `seconds` for all together once each candidate
    has `min_samples` samples."""

    samples: int = 100
    seconds: float = 2.0
    min_samples: int = 5
    warm_up_s: float = 0.1  # clocks idle low: the first milliseconds are not the machine's speed

    def __post_init__(self):
        for name, value in vars(self).items():
            minimum = 1 if name in ("samples", "min_samples") else 0
            if not isinstance(value, int | float) or not minimum <= value < math.inf:
                raise RuleError(f"{name} of a budget is a number of {minimum} or more, got {value!r}")


def interleave(
    samplers: Sequence[Callable[[], float]],
    budget: Budget,
    progress: Callable[[float], None] = lambda share: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[tuple[float, ...]]:
    """Call each sampler in turn, round after round, so that drift of the machine affects all equally.

    A sampler runs its candidate once and returns milliseconds. Returns the samples of each.
    """
    samples_by_candidate: list[list[float]] = [[] for _ in samplers]
    start = clock()
    for round_ in range(budget.samples):
        spent = clock() - start
        if round_ >= budget.min_samples and spent > budget.seconds:
            break
        for sampler, samples in zip(samplers, samples_by_candidate, strict=True):
            samples.append(sampler())
        progress(min(1.0, max((round_ + 1) / budget.samples, spent / max(budget.seconds, 1e-9))))
    return [tuple(samples) for samples in samples_by_candidate]


def warm_up(run: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
    """Run repeatedly until `seconds` have passed; not at all if `seconds` is 0."""
    end = clock() + seconds
    while clock() < end:
        run()
