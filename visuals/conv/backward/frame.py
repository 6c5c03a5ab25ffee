"""What all scenes of the gradients share: running the kernels, tensors of images and filters, sources, assembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import Program
from visuals.scene.parts import Group, Source, Tensor
from visuals.scene.recorder import Recorder, part_note
from visuals.scene.scene import Scene
from visuals.scene.source import Mark, resources, source_of

ORDER = mark("explaining order")
Kinds = Mapping[str, tuple[Mark, str]]  # kind of step: (the line that is lit, caption template)


@dataclass(frozen=True)
class Run:
    """A rung as the emulator ran it: its program, its inputs, and every buffer after it."""

    rung: str
    s: ConvShape
    program: Program
    arrays: Mapping[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


def run(rung: str, s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Run:
    """Run one of our rungs in the emulator. RuleError if it cannot run the shape."""
    found = find(rung)
    program = found.build(s, found.check(s, tiles))
    arrays = {name: np.ascontiguousarray(a, np.float32) for name, a in inputs.items()}
    session = emulator.Session(program, arrays, emulator.Options())
    session.verify_run()
    return Run(rung, s, program, {b.name: np.array(session.fetch(b.name)) for b in program.buffers})


# -- tensors ---------------------------------------------------------------------------------------------
def image(name: str, title: str, role: str, planes: int, size: tuple[int, int], values=None, **fields: Any) -> Tensor:
    """Returns a tensor of planes, each a channel or a filter's output of one image."""
    flat = None if values is None else np.ravel(values)
    note = part_note((0, planes, planes), (0, size[0], size[0]), (0, size[1], size[1]), plane="plane")
    fields = {"note": note} | fields
    return Tensor(name, name, title, role, planes, *size, flat, **fields)


def matrix(name: str, title: str, role: str, size: tuple[int, int], values=None, note: str = "") -> Tensor:
    flat = None if values is None else np.ravel(values)
    return Tensor(name, name, title, role, 1, *size, flat, note=note or f"{size[0]} × {size[1]}")


def filters(name: str, title: str, s: ConvShape, role: str = "filter", values=None) -> Tensor:
    """Returns filters [K, C, R, S]: one plane for each filter and channel."""
    plane_name = tr("filter") if s.C == 1 else tr("filter and channel")
    return image(name, title, role, s.K * s.C, (s.R, s.S), values, plane_name=plane_name)


# -- assembly --------------------------------------------------------------------------------------------
def recorder(kinds: Kinds) -> Recorder:
    return Recorder({kind: (n, template) for n, (kind, (_, template)) in enumerate(kinds.items())})


def assemble(
    found: Run,
    r: Recorder,
    kinds: Kinds,
    starts: Sequence[int],
    tensors: Sequence[Tensor],
    groups: Sequence[Group],
    note: str,
    **more: Any,
) -> Scene:
    """Returns the scene of a run. Launch i of its program is shown from step starts[i] on."""
    sources = _sources(found.program, r, kinds, starts)
    tiles = ",".join(f"{name}={value}" for step in found.program.launches for name, value in step.defines)
    params = ",".join(f"{name}={value}" for name, value in found.s.params().items())
    return Scene(
        key=f"{found.rung} {params} {tiles}",
        title=tr(find(found.rung).title),
        tensors=tuple(tensors),
        groups=tuple(groups),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=note,
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(),
        source=sources[0],
        next_sources=sources[1:],
        **more,
    )


def _sources(program: Program, r: Recorder, kinds: Kinds, starts: Sequence[int]) -> tuple[Source, ...]:
    names, stops = list(kinds), [*starts[1:], r.steps]
    sources = []
    for step, start, stop in zip(program.launches, starts, stops, strict=True):
        own = sorted(set(r.kinds[start:stop]))
        marks = [kinds[names[kind]][0] for kind in own]
        kind = np.searchsorted(own, r.kinds[start:stop])
        sources.append(source_of(step.source, marks, kind, detail=resources(step), since=start))
    return tuple(sources)
