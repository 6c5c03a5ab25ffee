"""Measuring the rungs of a ladder on a GPU: open candidates, verify their outputs, and time them in the same rounds.

A candidate is a rung with tile sizes. Only a candidate with a correct output is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Any

import numpy as np

from benchmarks.report import tiles_text
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, Buffer, Launch, Program, RuleError, Tiles, UnsupportedError
from kernels.model.rung import Rung
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs

Candidate = tuple[Rung, dict[str, int]]
ERRORS = (RuleError, RuntimeError, MemoryError)  # what a candidate that does not run here may raise


# -- candidates --------------------------------------------------------------------------------------
def candidates(rungs: Iterable[Rung], shape: Any, sets: Mapping[str, Iterable[Tiles]]) -> Iterator[Candidate]:
    """Yields each rung that can run a shape on this machine: with its default tile sizes, then with each change of them in
    `sets`, which has the names of rungs as keys."""
    for rung in rungs:
        tile_sizes = [rung.default_tiles | dict(changed) for changed in ({}, *sets.get(rung.name, ()))]
        for tiles in (dict(items) for items in dict.fromkeys(tuple(t.items()) for t in tile_sizes)):
            if availability.runs(rung, shape, tiles):
                yield rung, tiles


def print_unavailable(rungs: Iterable[Rung], shape: Any) -> None:
    """Print why a rung cannot run a shape on this machine, for each one that cannot."""
    for rung in rungs:
        if reason := next(availability.reasons(rung, shape, {}), ""):
            print(f"{rung.name}: {reason}")


# -- verification ------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Problem:
    """A shape with its inputs, the float64 reference of its output, and the scale of the output's rounding errors."""

    shape: Any
    inputs: dict[str, np.ndarray]
    ref: np.ndarray
    scale: np.ndarray | None

    def scale_of(self, rung: Rung, tiles: Tiles) -> np.ndarray:
        return rung.scale(self.shape, tiles, self.inputs) if rung.scale else self.scale

    def correct(self, rung: Rung, tiles: Tiles, out: np.ndarray, error: float) -> bool:
        """Returns whether an output, whose relative L2 error is given, is correct."""
        return agrees(out, self.ref, self.scale_of(rung, tiles), rung.tolerance)


def problem(shape: Any, buffers: Iterable[Buffer], reference: Callable) -> Problem:
    """Returns a shape with seeded inputs, for the input buffers among `buffers`."""
    inputs = seeded_inputs([b for b in buffers if b.role == INPUT])
    return Problem(shape, inputs, *reference(shape, **inputs))


@dataclass(frozen=True, eq=False)
class Verified:
    """A candidate with a correct output and the relative L2 error of this output. Its session is open."""

    rung: Rung
    tiles: dict[str, int]
    session: cuda.Session
    error: float


@dataclass(frozen=True, eq=False)
class Failure:
    """A candidate that did not run, or whose output is wrong."""

    rung: Rung
    tiles: dict[str, int]
    shape: Any
    message: str
    unsupported: bool = False  # a library does not support the shape: not a fault

    def __str__(self) -> str:
        return " ".join(filter(None, (self.rung.name, tiles_text(self.tiles), f"{self.shape}: {self.message}")))


def opened(program: Program, inputs: dict[str, np.ndarray]) -> tuple[cuda.Session, np.ndarray]:
    """Returns an open session and the output of its first run. If the run fails, the session is closed."""
    session = cuda.open(program, inputs)
    try:
        return session, session.verify_run()
    except BaseException:
        session.close()
        raise


def checked(chosen: Iterable[Candidate], given: Problem) -> Iterator[Verified | Failure]:
    """Opens, runs and yields each candidate, one after the other."""
    for rung, tiles in chosen:
        try:
            for rule in rung.rules(given.shape, tiles):
                raise RuleError(rule)
            session, out = opened(rung.build(given.shape, tiles), given.inputs)
        except ERRORS as e:
            yield Failure(rung, tiles, given.shape, str(e), isinstance(e, UnsupportedError))
            continue
        error = relative_error(out, given.ref, given.scale_of(rung, tiles), rung.tolerance)
        if given.correct(rung, tiles, out, error):
            del out  # may be large, and the caller keeps the generator while it opens the others
            yield Verified(rung, tiles, session, error)
        else:
            session.close()
            yield Failure(rung, tiles, given.shape, f"WRONG, relative L2 error {error:.1e}")


def verify(cases: Iterable[tuple[Iterable[Candidate], Problem]]) -> tuple[int, list[str]]:
    """Returns (number of correct outputs, messages about failures). A candidate whose library does not support the shape
    counts as neither."""
    correct, failed = 0, []
    for result in chain.from_iterable(starmap(checked, cases)):
        if isinstance(result, Verified):
            result.session.close()
            correct += 1
        elif not result.unsupported:
            failed.append(str(result))
    return correct, failed


def open_verified(chosen: Iterable[Candidate], given: Problem) -> tuple[list[Verified], list[str]]:
    """Returns (the candidates with a correct output, messages about failures), and prints why each other one is left out.
    If a library does not support the shape, this is printed, but it is not a failure."""
    verified, failed = [], []
    for candidate in checked(chosen, given):
        if isinstance(candidate, Verified):
            verified.append(candidate)
            continue
        print(candidate, flush=True)
        if not candidate.unsupported:
            failed.append(str(candidate))
    return verified, failed


def close(verified: Iterable[Verified]) -> None:
    for candidate in verified:
        candidate.session.close()


# -- timing ------------------------------------------------------------------------------------------
def time_together(
    verified: Sequence[Verified], mode: str, budget: Budget, row: Callable[[Verified, Timed], dict]
) -> list[dict]:
    """Time the candidates with interleaved samples, and return a row of each. The sessions stay open."""
    timed = cuda.sample([candidate.session for candidate in verified], mode, budget)
    return [row(candidate, t) for candidate, t in zip(verified, timed, strict=True)]


def figures(timed: Timed) -> dict[str, float]:
    """Returns the number of samples, their median, p20 and p80."""
    p20, median, p80 = np.quantile(timed.samples_ms, (0.2, 0.5, 0.8)).tolist()
    return {"n": len(timed.samples_ms), "median_ms": median, "p20_ms": p20, "p80_ms": p80}


def compiled(program: Program) -> dict[str, dict[str, int]]:
    """Returns registers, bytes of local memory (spills) and bytes of static shared memory of each launch's kernel, from
    the driver, by the name of the step."""
    kernels = {
        step.name: cuda.compile_kernel(step.source, step.entry, step.defines)
        for step in program.steps
        if isinstance(step, Launch)
    }
    return {
        name: {
            "registers": int(kernel.num_regs),
            "local": int(kernel.local_size_bytes),
            "shared": int(kernel.shared_size_bytes),
        }
        for name, kernel in kernels.items()
    }


def compiled_first(program: Program) -> dict[str, int]:
    """Returns `compiled` of the first launch; {} if the program has none."""
    return next(iter(compiled(program).values()), {})
