"""A launch for the comparison of the emulator's counters with Nsight Compute's, as data; and such launches from the
steps of a rung's program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernels import sources
from kernels.engines.emulator.compiler import compile as compiler
from kernels.ladders import ladder_of
from kernels.model import values
from kernels.model.program import INPUT, Launch, Program, buffer_of
from kernels.model.rung import Rung
from kernels.runner import inputs_of

# Relative to the largest number: two roundings of the type, or the sums of FP8 that tensor cores cut off.
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
FP8, FP8_STEP = "float8_e4m3fn", 2.0**-8


@dataclass(frozen=True)
class Case:
    """One launch, its arrays before it (an output is filled with poison unless the kernel updates it) and the names of
    its outputs. The launch's NumPy implementation gives the expected outputs."""

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
        """Returns the digest of the source and the defines that are measured."""
        return compiler.digest(sources.code(self.launch.source), self.defines)

    def expected(self) -> dict[str, np.ndarray]:
        arrays = {name: a.copy() for name, a in self.arrays().items()}
        self.launch.cpu(*_passed(self.launch, arrays))
        return {name: arrays[name] for name in self.outputs}

    def wrong(self, outputs: Mapping[str, np.ndarray]) -> str:
        """Returns a message about wrong outputs; "" if all are correct."""
        step = FP8_STEP if any(a.dtype.name == FP8 for a in self.arrays().values()) else 1e-4
        for name, expected in self.expected().items():
            actual = outputs[name].astype(np.float64)
            unwritten = np.isnan(expected) if expected.dtype.kind not in "iu" else np.zeros(expected.shape, bool)
            limit = (
                0.0
                if expected.dtype.kind in "iu"
                else STEP.get(expected.dtype.name, step)
                * float(np.abs(expected, where=~unwritten, out=np.zeros_like(expected)).max())
            )
            wrong = ~(np.abs(actual - expected) <= limit)  # NaN is wrong too
            wrong &= ~(unwritten & np.isnan(actual))  # but where a launch writes nothing: another one does
            if wrong.any():
                index = tuple(int(i) for i in np.argwhere(wrong)[0])
                return (
                    f"{name}{list(index)} is {actual[index]}, should be {expected[index]}; {int(wrong.sum())} are wrong"
                )
        return ""

    def describe(self) -> list[str]:
        """Returns the arguments as text: "x float32 [4096]", "int32 7"."""
        arrays = self.arrays()
        return [
            f"{name} {arrays[name].dtype} {list(arrays[name].shape)}" if (name := buffer_of(a)) else f"{a.dtype} {a}"
            for a in self.launch.args
        ]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def integers(n: int, below: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, below, n, dtype=np.int32)


def unwritten(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.full(shape, values.poison(dtype), dtype)


def poisoned(array: np.ndarray) -> bool:
    """Returns whether an array still has unwritten elements."""
    poison = values.poison(array.dtype)
    return bool((np.isnan(array) if np.isnan(poison) else array == poison).any())


def ceil(a: int, b: int) -> int:
    return -(-a // b)


# -- steps of a rung -------------------------------------------------------------------------------------------
def steps(rung: Rung, shape: Any, *entries: str, **tiles: int) -> Iterator[Case]:
    """Yields each launch of the rung's program, or only those of `entries`. The NumPy implementations of the steps
    before it compute its inputs."""
    tile_sizes = rung.check(shape, tiles)
    program = rung.build(shape, tile_sizes)

    def arrays(n: int) -> dict[str, np.ndarray]:
        arrays = inputs_of(ladder_of(rung.name), shape, program)
        arrays |= {b.name: unwritten(*b.shape, dtype=b.dtype) for b in program.buffers if b.role != INPUT}
        arrays |= {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers if b.zeroed}
        for previous in program.steps[:n]:
            previous.cpu(*_passed(previous, arrays))
        return {name: arrays[name] for name in _buffers(program.steps[n])}

    for n, launch in enumerate(program.steps):
        if isinstance(launch, Launch) and (not entries or launch.entry in entries):
            defines = dict(launch.defines) or tiles
            parts = (*(f"{name.lower()}{value}" for name, value in defines.items()), *str(shape).split())
            name = "-".join((rung.name.partition("/")[0], *launch.name.split(), *parts)).replace(",", ".")
            yield Case(name, f"{shape} {tile_sizes}", launch, partial(arrays, n), _written(program, launch))


def _written(program: Program, launch: Launch) -> tuple[str, ...]:
    """Returns the outputs of the program that a launch takes; of a launch that takes none, its last buffer."""
    buffers = _buffers(launch)
    results = {b.name for b in program.outputs}
    return tuple(a for a in buffers if a in results) or (buffers[-1],)


def _buffers(launch: Launch) -> list[str]:
    """Returns the names of the buffers that a launch takes, by a pointer or by a tensor map."""
    return [name for a in launch.args if (name := buffer_of(a))]


def _passed(launch: Launch, arrays: Mapping[str, np.ndarray]) -> list[Any]:
    """Returns the arguments of a launch's NumPy implementation."""
    return [arrays[name] if (name := buffer_of(a)) else a for a in launch.args]
