"""Scenes of a program: its launches executed in the emulator, and steps that each light a line of their launch's source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import Launch, Program
from kernels.model.shape import Shape
from visuals.scene.parts import FIELD, Captions, Group, Source, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene
from visuals.scene.source import Mark, resources, source_of

ORDER = mark("explaining order")
ORDER_NOTE = mark(
    "The picture follows one block step by step. The other blocks follow in one step. On a GPU many blocks run at once, and "
    "the scheduler chooses the order of the warps. Stored values are those of the emulator."
)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class StepKind:
    """A kind of step: the position of its launch in the program, the line that it lights, and its caption."""

    launch: int
    line: Mark
    caption: str


@dataclass(frozen=True)
class Executed:
    """A rung's program at a shape, executed: its launches, and all buffers after each of them."""

    program: Program
    tiles: Mapping[str, int]
    after: tuple[Arrays, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.program.launches

    @property
    def last(self) -> Arrays:
        return self.after[-1]


def executed(rung: str, shape: Shape, tiles: Mapping[str, int], inputs: Arrays) -> Executed:
    """Run a rung of launches in the emulator. Raises RuleError if it cannot run the shape."""
    found = find(rung)
    all_tiles = found.check(shape, dict(tiles))
    program = found.build(shape, all_tiles)
    states = []
    for n in range(len(program.steps)):
        session = emulator.Session(replace(program, steps=program.steps[: n + 1]), dict(inputs), Options())
        with np.errstate(all="ignore"):
            session.verify_run()
        states.append({b.name: np.array(session.fetch(b.name)) for b in program.buffers})
    return Executed(program, all_tiles, tuple(states))


def recorder(kinds: Mapping[str, StepKind]) -> Recorder:
    return Recorder({name: (n, tr(kind.caption)) for n, (name, kind) in enumerate(kinds.items())})


def launch_scene(
    rung: str,
    key: str,
    run: Executed,
    r: Recorder,
    kinds: Mapping[str, StepKind],
    tensors: Sequence[Tensor],
    groups: Sequence[Group],
    **parts: Any,
) -> Scene:
    """Returns the scene of a program from its recorded steps. `parts`: further fields of the scene."""
    sizes = ",".join(f"{name}={value}" for name, value in run.tiles.items())
    first, *others = _sources(run, r, list(kinds.values()))
    return Scene(
        key=f"{rung} {key} {sizes}",
        title=tr(find(rung).title),
        tensors=tuple(tensors),
        groups=tuple(groups),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=_captions(r),
        source=first,
        next_sources=tuple(others),
        lanes=r.lanes(),
        **parts,
    )


def _captions(r: Recorder) -> Captions:
    """Returns the captions. The numbers of a step are filled up with zeros: kinds that do not occur may need more."""
    captions = r.captions()
    width = 1 + max(int(n) for text in captions.templates for n in FIELD.findall(text) or ["0"])
    missing = max(0, width - captions.args.shape[1])
    return replace(captions, args=np.pad(captions.args, ((0, 0), (0, missing))))


def _sources(run: Executed, r: Recorder, kinds: Sequence[StepKind]) -> Iterator[Source]:
    """Yields the source of each launch, from its first step on."""
    of_step = np.array([kinds[k].launch for k in r.kinds])
    starts = np.flatnonzero(np.diff(of_step, prepend=-1))
    for start, stop in pairwise([*starts, r.steps]):
        launch = run.launches[of_step[start]]
        used = sorted(set(r.kinds[start:stop]))
        kind = np.array([used.index(k) for k in r.kinds[start:stop]])
        lines = [kinds[k].line for k in used]
        yield source_of(launch.source, lines, kind, detail=resources(launch), since=int(start))
