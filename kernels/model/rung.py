"""A rung of a ladder: one implementation with its rules, cost and facts; and the ladder of a problem."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import numpy as np

from kernels.i18n import mark, tr
from kernels.model.names import unknown, unknown_field
from kernels.model.preset import Preset
from kernels.model.program import Program, RuleError, Tiles
from kernels.model.shape import S, ShapeError, check_complete

ENGINES = ("cuda", "cpu", "emulator")
FP32, FP16, TENSOR_CORES, INT8 = ("FP32", mark("FP16 arithmetic"), mark("tensor cores"), mark("INT8 arithmetic"))
UNITS = (FP32, FP16, TENSOR_CORES, INT8)  # arithmetic units of a GPU
HOPPER = 9, 0  # the only compute capability with the instructions of sm_90a
MIN_CAPABILITY = 7, 5  # compute capability; CUDA 13 compiles for no older GPU


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


def any_gpu(shape: object) -> tuple[int, int]:
    return MIN_CAPABILITY


@dataclass(frozen=True)
class Rung(Generic[S]):
    """One algorithm variant.

    A tolerance t allows |out - ref| <= t * bound. The bound is the same computation on absolute values: the backward-error
    scale of a sum. `scale(shape, tiles, inputs)` returns it in float64 for an algorithm that computes something else
    than the definition, so that its rounding errors spread.
    """

    name: str  # "conv/im2col-gemm"
    title: str
    idea: str
    build: Callable[[S, Tiles], Program]
    cost: Callable[[S, Program], Cost]
    rules: Callable[[S, Tiles], Iterable[str]]  # yields each rule of this rung the shape breaks
    tolerance: float
    tiles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # choices, the default first
    library: str = ""  # the vendor library that does part of the work
    # Finds the library of a rung that is one call of it; RuleError says why it cannot be called here. That is no rule:
    # rules depend on the shape and the tile sizes only (kernels.records.availability).
    find_library: Callable[[], object] | None = None
    scale: Callable[[S, Tiles, Mapping[str, np.ndarray]], np.ndarray] | None = None  # else the ladder's
    sets: tuple[Tiles, ...] | None = None  # see tile_sets; what one leaves out is the default
    # Returns the sizes, one of `sets`, that were measured to be faster than the default at a shape; {} if none were.
    faster: Callable[[S], Tiles] | None = None
    engines: tuple[str, ...] = ENGINES  # of its ladder's, those that run it; without "cpu" if `not_on_cpu` is given
    # What the NumPy steps compute, in the words of a processor. A rung of a GPU's ladder that the cpu engine runs has
    # one, so that nothing is timed under the name of hardware that a processor does not have.
    cpu_title: str = ""
    cpu_tiles: tuple[str, ...] = ()  # those of `tiles` that the NumPy steps use
    # Why the cpu engine does not run it, as a clause: a processor does not have its idea, or its NumPy steps are the
    # computation of another rung. They still check the kernels.
    not_on_cpu: str = ""
    capability: Callable[[S], tuple[int, int]] = any_gpu  # the lowest that runs the kernels of a shape
    last_capability: tuple[int, int] | None = None  # the highest that runs its kernels, if later ones do not
    units: str = FP32  # of UNITS: those that compute a 32-bit shape
    rounds_to: str = ""  # the type that its factors are rounded to, if it is coarser than the shape's
    family: str = ""  # the key of its algorithm family, on a ladder that has several
    short_title: str = ""  # for a narrow cell, on such a ladder
    unmeasured: bool = False  # whether no recording and no counter of Nsight Compute has it yet
    no_scene: str = ""  # why no stage shows it, unless the reason is that its library's source is closed

    def __post_init__(self):
        if self.not_on_cpu:
            object.__setattr__(self, "engines", tuple(e for e in self.engines if e != "cpu"))

    @property
    def needs(self) -> str:
        """Returns which GPUs run it if later ones do not, as a sentence; "" if later ones do."""
        if self.last_capability is None:
            return ""
        required = ".".join(map(str, self.last_capability))
        return tr("Of all GPUs, only those of compute capability {required} run it.", required=required)

    def title_on(self, engine: str) -> str:
        """Returns the name of what an engine runs: on the cpu engine that of the processor's algorithm.

        A row of an older version can be of a rung that the cpu engine does not run now. Its title says so.
        """
        if engine != "cpu":
            return tr(self.title)
        if self.not_on_cpu:
            return tr("NumPy steps of “{title}”", title=tr(self.title))
        return tr(self.cpu_title or self.title)

    def tiles_on(self, engine: str) -> Mapping[str, tuple[int, ...]]:
        """Returns the tile sizes that an engine uses, with their choices. NumPy steps use some of them or none."""
        if engine != "cpu" or not self.cpu_title:
            return self.tiles
        return {name: choices for name, choices in self.tiles.items() if name in self.cpu_tiles}

    def distinct(self, sets: Iterable[Mapping[str, int]], engine: str) -> list[dict[str, int]]:
        """Returns the sets of tile sizes that an engine computes in different ways: the first of those that differ only
        in sizes that it does not use."""
        found = {}
        for tiles in sets:
            found.setdefault(tuple(tiles[name] for name in self.tiles_on(engine)), dict(tiles))
        return list(found.values())

    def why_not_on(self, engine: str) -> str:
        """Returns why an engine does not run it, as a clause; "" if it does."""
        if engine in self.engines:
            return ""
        if engine == "cpu" and self.not_on_cpu:
            return tr(self.not_on_cpu)
        return tr("runs on the {engines} engine only", engines=" or ".join(self.engines))

    @property
    def default_tiles(self) -> dict[str, int]:
        return {name: choices[0] for name, choices in self.tiles.items()}

    def tiles_at(self, shape: S) -> dict[str, int]:
        """Returns the tile sizes to run a shape with, if a reader chooses none: the default if the faster ones break a rule."""
        default = self.default_tiles
        if not self.faster:
            return default
        tiles = default | dict(self.faster(shape))
        return default if any(self.rules(shape, tiles)) else tiles

    def tile_sets(self, shape: S) -> Iterator[dict[str, int]]:
        """Yields the tile sizes that are compiled ahead and recorded: the default, then `sets`. If that is None, each other
        choice once, with as few of the other sizes changed as the rules need at this shape (two at most). A choice that
        breaks a rule even then is left out."""
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
                nearby = self._nearby(default | {name: value}, [other for other in self.tiles if other != name])
                found = next((tiles for tiles in nearby if not any(self.rules(shape, tiles))), None)
                if found:
                    yield found

    def _nearby(self, tiles: dict[str, int], names: list[str]) -> Iterator[dict[str, int]]:
        """Yields `tiles`, then those with one of `names` changed, then with two."""
        for count in range(3):
            for changed in itertools.combinations(names, count):
                for values in itertools.product(*(self.tiles[name] for name in changed)):
                    yield tiles | dict(zip(changed, values, strict=True))

    def check(self, shape: S, tiles: Tiles | None) -> dict[str, int]:
        """Returns all tile sizes, defaults filled in. RuleError names the first rule that is broken."""
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
class Ladder(Generic[S]):
    """A family of rungs that compute the same thing.

    `reference(shape, **inputs)` gives (result, error scale) in float64; of a program with several outputs such a pair
    for each, by the buffer's name. Whole numbers have the scale 0: they must be exact.
    """

    name: str
    shape: type[S]  # the shape's class, made from its params()
    parse: Callable[[str], S]
    reference: Callable[..., Any]
    rungs: tuple[Rung, ...]
    presets: Mapping[str, Preset[S]]
    engines: tuple[str, ...] = ENGINES  # those that run its rungs
    # Returns, by name, the inputs that are results of an earlier kernel (the indices of maxima, a saved mean), from the
    # others: derive(shape, inputs). None: every input is free.
    derive: Callable[[S, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] | None = None
    # Returns, by name, random inputs that are changed so that a small fault of a kernel shows: revealing(shape, random).
    # `random` has those that a caller did not give. None: any random numbers show it.
    revealing: Callable[[S, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] | None = None
    swept: tuple[str, ...] | None = None  # presets recorded hot and at other tile sizes too; None: all
    work: str = mark("the definition")  # what the FLOPs of a shape are those of
    inputs: str = mark("inputs")  # what its inputs are called in a chart of memory
    # Fields of a shape in which a recording must agree to say anything of another shape. None named: all that are no
    # whole numbers. The other whole numbers are extents.
    matching: tuple[str, ...] = ()
    later_fields: Mapping[str, object] = field(
        default_factory=dict
    )  # that older recordings lack, and what their lack means

    def rung(self, name: str) -> Rung:
        for rung in self.rungs:
            if rung.name == name:
                return rung
        raise RuleError(unknown("rung", name, [r.name for r in self.rungs]))

    def shape_of(self, text: str) -> S:
        """Returns the shape of a preset's name, or that of a text such as "N=1,C=3". ShapeError names what is wrong."""
        if preset := self.presets.get(text):
            return preset.shape
        if "=" not in text:
            raise ShapeError(unknown("preset", text, self.presets, self.name))
        return self.parse(text)

    def shape_with(self, fields: Mapping[str, Any]) -> S:
        """Returns the shape with these fields. ShapeError names a field that does not exist or is missing."""
        parameters = inspect.signature(self.shape).parameters
        for name in fields:
            if name not in parameters:
                raise ShapeError(unknown_field(name, parameters, self.name))
        check_complete(fields, (name for name, p in parameters.items() if p.default is p.empty))
        return self.shape(**fields)

    def only(self, *names: str) -> Ladder:
        """Returns the same ladder with only these rungs, in its order: those that a lesson compares."""
        for name in names:
            self.rung(name)
        return replace(self, rungs=tuple(rung for rung in self.rungs if rung.name in names))
