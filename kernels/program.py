"""Program: what an engine runs, as data. Rung, Ladder: what a reader chooses from. Result: what came out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

INPUT, OUTPUT, WORKSPACE = "input", "output", "workspace"

# An argument of a launch: a Buffer's name, or a value with the kernel's own type (a NumPy scalar,
# a structured NumPy scalar for a struct).
Arg = str | np.generic
Tiles = Mapping[str, int]


ENGINES = ("cuda", "cpu", "emulator")
LEAST_CAPABILITY = 7, 5  # compute capability; CUDA 13 compiles for no older GPU
MOST_STATIC_SHARED = 48 * 2**10  # bytes of shared memory that any kernel may declare
MOST_SHARED = 227 * 2**10  # bytes of shared memory that a block may have on sm_90


class RuleError(ValueError):
    """A request that breaks a rule of a rung, an engine or the machine; the message names it."""


class RefusedError(RuleError):
    """A rung that this machine cannot run, for want of a library, of memory or of a newer GPU; others may run."""


class UnsupportedError(RefusedError):
    """A request that a vendor's library, asked, does not support; the message says so in its words."""


@dataclass(frozen=True)
class Buffer:
    name: str
    role: str  # INPUT, OUTPUT or WORKSPACE
    shape: tuple[int, ...]
    dtype: str = "float32"
    positive: bool = False  # an input that holds nothing below 0, a variance say

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `twin` is the same step in NumPy, called with the kernel's own arguments."""

    source: str  # file under kernels/cuda, or the name of one that kernels.fusion writes
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    twin: Callable[..., None]
    defines: tuple[tuple[str, int], ...] = ()
    shared: int = 0  # bytes of dynamic shared memory
    label: str = ""  # where a program launches a kernel twice: what tells them apart

    @property
    def name(self) -> str:
        return self.label or self.entry


@dataclass(frozen=True)
class LibraryCall:
    """One call into a vendor library; `routine` names the function in kernels.engines.cuda_libraries. Without a
    `twin` only the cuda engine runs it: what the library does inside is not ours to repeat."""

    routine: str
    args: tuple[Arg, ...]
    twin: Callable[..., None] | None

    @property
    def name(self) -> str:
        return self.routine


@dataclass(frozen=True)
class HostLoop:
    """Loops written for the processor (or its library in their place): only the cpu engine runs them, on the
    arrays themselves. `prepare` compiles what `twin` will call, before anything is timed or counted."""

    name: str
    source: str  # the file a reader is shown, under kernels
    args: tuple[Arg, ...]
    twin: Callable[..., None]
    prepare: Callable[[], None]


Step = Launch | LibraryCall | HostLoop


@dataclass(frozen=True)
class Program:
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    def of_role(self, role: str) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.role == role)

    def nbytes(self, *roles: str) -> int:
        """Bytes of the buffers of these roles (of all where none is named)."""
        return sum(b.nbytes for b in self.buffers if not roles or b.role in roles)


def refuse_steps(program: Program, engine: str) -> None:
    """RuleError where a step is another engine's alone."""
    for step in program.steps:
        if isinstance(step, HostLoop) and engine != "cpu":
            raise RuleError(f"{step.name} is loops for the processor: the cpu engine runs them, not {engine}")
        if isinstance(step, LibraryCall) and not step.twin and engine != "cuda":
            raise RuleError(f"{step.name} is a library of the GPU: the cuda engine runs it, not {engine}")


@dataclass(frozen=True)
class Cost:
    """What a formula predicts of a program: FLOPs, bytes through HBM, workspace bytes.

    No formula describes what happens inside a vendor's library: its workspace is None. `flops` are those of the
    definition then, and `bytes` those of the tensors, each once; what it executes and moves itself is unknown.
    """

    flops: int
    bytes: int
    workspace_bytes: int | None

    @property
    def executed_flops(self) -> int | None:
        """FLOPs that the program executes; None where only a library knows."""
        return None if self.workspace_bytes is None else self.flops

    @property
    def moved_bytes(self) -> int | None:
        """Bytes that the program reads and writes through HBM; None where only a library knows."""
        return None if self.workspace_bytes is None else self.bytes


def any_gpu(shape: Any) -> tuple[int, int]:
    return LEAST_CAPABILITY


@dataclass(frozen=True)
class Rung:
    """One algorithm variant. `tolerance` t admits |out - ref| <= t * bound, where bound is the same
    computation on absolute values: the usual backward-error scale of a sum. `scale(shape, tiles, inputs)` gives it
    in float64 for an algorithm whose own computation is not the definition's: what it rounds spreads."""

    name: str  # "conv/im2col-gemm"
    title: str
    idea: str
    build: Callable[[Any, Tiles], Program]
    cost: Callable[[Any, Program], Cost]
    rules: Callable[[Any, Tiles], Iterable[str]]  # yields each rule of this rung the shape breaks
    tolerance: float
    tiles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # choices, the default first
    library: str = ""  # the vendor library that does part of the work
    scale: Callable[[Any, Tiles, Mapping[str, np.ndarray]], np.ndarray] | None = None  # else the ladder's
    sets: tuple[Tiles, ...] | None = None  # see tile_sets; what one leaves out is the default
    engines: tuple[str, ...] = ENGINES  # those that run it, of its ladder's
    capability: Callable[[Any], tuple[int, int]] = any_gpu  # the least that runs the kernels of a shape

    def title_on(self, engine: str) -> str:
        """The title as it is true on an engine: the cpu engine calls NumPy's BLAS, not the vendor's."""
        return (
            self.title.replace(self.library, "NumPy BLAS")
            if engine == "cpu" and self.library and engine in self.engines
            else self.title
        )

    @property
    def default_tiles(self) -> dict[str, int]:
        return {name: choices[0] for name, choices in self.tiles.items()}

    def tile_sets(self, shape) -> Iterator[dict[str, int]]:
        """The tile sizes that are compiled ahead and recorded: the default, then `sets`; where that is None each
        other choice once, with as few of the others moved as the rules ask for at this shape (two at most).
        What no rule allows then is left out."""
        default = self.default_tiles
        if any(self.rules(shape, default)):
            return
        yield default
        if self.sets is not None:
            sets = (default | dict(tiles) for tiles in self.sets)
            yield from (tiles for tiles in sets if not any(self.rules(shape, tiles)))
            return
        for name, choices in self.tiles.items():
            for value in choices[1:]:
                near = self._near(default | {name: value}, [other for other in self.tiles if other != name])
                found = next((tiles for tiles in near if not any(self.rules(shape, tiles))), None)
                if found:
                    yield found

    def _near(self, tiles: dict[str, int], names: list[str]) -> Iterator[dict[str, int]]:
        """`tiles`, then those with one of `names` moved, then with two."""
        for count in range(3):
            for moved in itertools.combinations(names, count):
                for values in itertools.product(*(self.tiles[name] for name in moved)):
                    yield tiles | dict(zip(moved, values, strict=True))

    def check(self, shape, tiles: Tiles | None) -> dict[str, int]:
        """All tiles, defaults filled in. RuleError names the first rule broken."""
        given = dict(tiles or {})
        for name, value in given.items():
            if name not in self.tiles:
                known = ", ".join(self.tiles) or "none"
                raise RuleError(f"{self.name} has no tile size {name!r}; it has: {known}")
            if value not in self.tiles[name]:
                choices = ", ".join(map(str, sorted(self.tiles[name])))
                raise RuleError(f"{self.name}: {name} must be one of {choices}, got {value}")
        full = self.default_tiles | given
        for rule in self.rules(shape, full):
            raise RuleError(f"{self.name} cannot run {shape}: {rule}")
        return full


@dataclass(frozen=True)
class Ladder:
    """A family of rungs that compute the same thing. `reference(shape, **inputs)` gives
    (float64 result, float64 error scale)."""

    name: str
    shape: Callable[..., Any]  # the shape's class, made from its params()
    parse: Callable[[str], Any]
    reference: Callable[..., tuple[np.ndarray, np.ndarray]]
    rungs: tuple[Rung, ...]
    presets: Mapping[str, Any]
    engines: tuple[str, ...] = ENGINES  # those that run its rungs
    swept: tuple[str, ...] | None = None  # presets recorded hot and at other tile sizes too; None: all

    def rung(self, name: str) -> Rung:
        for rung in self.rungs:
            if rung.name == name:
                return rung
        raise RuleError(f"no rung {name!r}; there are: {', '.join(r.name for r in self.rungs)}")

    def only(self, *names: str) -> Ladder:
        """The same ladder with these rungs alone, in its own order: what a lesson compares."""
        for name in names:
            self.rung(name)
        return replace(self, rungs=tuple(rung for rung in self.rungs if rung.name in names))

    def able(self, engine: str, shape: Any) -> list[Rung]:
        """The rungs that run a shape on an engine at their usual tile sizes."""
        return [r for r in self.rungs if engine in r.engines and not any(r.rules(shape, r.default_tiles))]


@dataclass(frozen=True)
class Measurement:
    """Time of one program on one device: `samples_ms` in the order taken; bytes as allocated."""

    samples_ms: tuple[float, ...]
    mode: str  # "cold" or "hot"
    peak_bytes: int
    input_bytes: int
    output_bytes: int
    workspace_bytes: int
    device: str
    parts_ms: tuple[tuple[str, float], ...] = ()  # median of each step, timed in runs of their own
    conditions: Mapping[str, Any] = field(default_factory=dict)  # driver, clocks, versions, ceilings ...
    timeline: tuple[Mapping[str, Any], ...] = ()  # each stage ("at") with its most bytes by role
    copies_ms: Mapping[str, float] | None = None  # inputs in (h2d), output back (d2h): medians; n

    def _quantile(self, q: float) -> float:
        return float(np.quantile(self.samples_ms, q))

    @property
    def n(self) -> int:
        return len(self.samples_ms)

    @property
    def median_ms(self) -> float:
        return self._quantile(0.5)

    @property
    def p20_ms(self) -> float:
        return self._quantile(0.2)

    @property
    def p80_ms(self) -> float:
        return self._quantile(0.8)

    def to_json(self) -> dict:
        return {
            "median_ms": self.median_ms,
            "p20_ms": self.p20_ms,
            "p80_ms": self.p80_ms,
            "n": self.n,
            "peak_bytes": self.peak_bytes,
            "workspace_bytes": self.workspace_bytes,
            "device": self.device,
            "mode": self.mode,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "parts_ms": [{"step": name, "median_ms": ms} for name, ms in self.parts_ms],
            "timeline": [dict(stage) for stage in self.timeline],
            "copies_ms": dict(self.copies_ms) if self.copies_ms else None,
        }


@dataclass(frozen=True)
class Result:
    rung: str
    engine: str
    shape: Any
    tiles: Mapping[str, int]
    output: np.ndarray
    error: float  # relative L2 error against the float64 reference
    measurement: Measurement | None
    predicted: Cost
    counters: Any = None
    trace: Any = None

    def to_json(self) -> dict:
        counted = {"counters": self.counters.to_json()} if self.counters else {}
        return counted | {
            "rung": self.rung,
            "engine": self.engine,
            "shape": self.shape.params(),
            "tiles": dict(self.tiles),
            "error": self.error,
            "measurement": self.measurement.to_json() if self.measurement else None,
            "predicted": {
                "flops": self.predicted.executed_flops,
                "bytes": self.predicted.moved_bytes,
                "workspace_bytes": self.predicted.workspace_bytes,
            },
        }
