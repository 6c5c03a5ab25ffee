"""A launch at which the emulator's counters are held against Nsight Compute's, as data; and how a step of a rung's
program becomes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernels import sources
from kernels.engines.emulator.compiler import compile as compiler
from kernels.model import values
from kernels.model.program import INPUT, Launch
from kernels.model.rung import Rung
from kernels.runner import seeded_inputs

STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # of the largest number: what a type may round away, twice


@dataclass(frozen=True)
class Case:
    """One launch, its arrays before it (an output holds poison unless the kernel goes on from what is there)
    and which of them it writes. The launch's twin says what must come out."""

    name: str
    shape: str
    launch: Launch
    arrays: Callable[[], dict[str, np.ndarray]]
    outputs: tuple[str, ...]

    @property
    def defines(self) -> tuple[str, ...]:
        return tuple(f"-D{name}={value}" for name, value in self.launch.defines)

    @property
    def digest(self) -> str:
        """Names the text and the defines a measurement was taken of."""
        return compiler.digest(sources.code(self.launch.source), self.defines)

    def expected(self) -> dict[str, np.ndarray]:
        arrays = {name: a.copy() for name, a in self.arrays().items()}
        self.launch.twin(*(arrays[a] if isinstance(a, str) else a for a in self.launch.args))
        return {name: arrays[name] for name in self.outputs}

    def wrong(self, got: Mapping[str, np.ndarray]) -> str:
        """What is wrong with these outputs; empty where nothing is."""
        for name, want in self.expected().items():
            have = got[name].astype(np.float64)
            limit = (
                0.0 if want.dtype.kind == "i" else STEP.get(want.dtype.name, 1e-4) * float(np.abs(want).max())
            )
            bad = ~(np.abs(have - want) <= limit)  # NaN is wrong too
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                return f"{name}{list(at)} is {have[at]}, should be {want[at]}; {int(bad.sum())} are wrong"
        return ""

    def describe(self) -> list[str]:
        """The arguments in words: "x float32 [4096]", "int32 7"."""
        arrays = self.arrays()
        return [
            f"{a} {arrays[a].dtype} {list(arrays[a].shape)}" if isinstance(a, str) else f"{a.dtype} {a}"
            for a in self.launch.args
        ]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def integers(n: int, below: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, below, n, dtype=np.int32)


def unwritten(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.full(shape, values.poison(dtype), dtype)


def poisoned(array: np.ndarray) -> bool:
    """Whether nothing has been written there."""
    poison = values.poison(array.dtype)
    return bool((np.isnan(array) if np.isnan(poison) else array == poison).any())


def ceil(a: int, b: int) -> int:
    return -(-a // b)


# -- steps of a rung -------------------------------------------------------------------------------------------
def steps(rung: Rung, shape: Any, *entries: str, **tiles: int) -> Iterator[Case]:
    """Each launch of the rung's program, or those of `entries` alone. What the steps before it leave is made by
    their twins."""
    full = rung.check(shape, tiles)
    program = rung.build(shape, full)

    def arrays(n: int) -> dict[str, np.ndarray]:
        held = seeded_inputs(program.of_role(INPUT))
        held |= {b.name: unwritten(*b.shape, dtype=b.dtype) for b in program.buffers if b.role != INPUT}
        for before in program.steps[:n]:
            before.twin(*(held[a] if isinstance(a, str) else a for a in before.args))
        return {a: held[a] for a in program.steps[n].args if isinstance(a, str)}

    for n, launch in enumerate(program.steps):
        if isinstance(launch, Launch) and (not entries or launch.entry in entries):
            used = dict(launch.defines) or tiles
            words = (*(f"{name.lower()}{value}" for name, value in used.items()), *str(shape).split())
            name = "-".join((rung.name.partition("/")[0], launch.entry, *words)).replace(",", ".")
            output = next(a for a in reversed(launch.args) if isinstance(a, str))
            yield Case(name, f"{shape} {full}", launch, partial(arrays, n), (output,))
