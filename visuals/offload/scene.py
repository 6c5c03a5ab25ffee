"""The scenes of a work on both sides: the processor's time and the GPU's parts on one axis, and a program around the work."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernels.i18n import tr
from kernels.model.launch import ceil
from kernels.offload import gpu
from kernels.offload.machines import Machine
from visuals import units
from visuals.offload import captions
from visuals.offload.captions import PART_TITLES, PROCESSOR, ROLES
from visuals.offload.evidence import OffloadEvidence, limit_text
from visuals.scene.diagram import Box, Diagram
from visuals.scene.gantt import Bar, gantt
from visuals.scene.parts import Annotation, Captions, Group, Source, Tensor, Write
from visuals.scene.scene import Scene

CPU, GPU = "cpu", "gpu"  # the tensors: an interval of the processor's time, and of the GPU's
TITLES = {CPU: PROCESSOR, GPU: "GPU"}
LINES = {  # of the program on the GPU, by part
    "in": "self._copy_in(copies)",
    "call": "self.backend.launch(",
    "kernel": "self.wait()",
    "out": "self.backend.copy_out(",
}


@dataclass(frozen=True)
class Moment:
    """An interval of the picture: what the GPU's side does in it ("" after its end), and whether the processor is busy."""

    start: float
    end: float
    part: str
    busy: bool


def moments(found: OffloadEvidence) -> list[Moment]:
    """Returns the intervals between the ends of the parts and of the processor's work, in their order."""
    ends, at = [], 0.0
    for name, ms in found.on_gpu.parts.items():
        if ms > 0:
            at += ms
            ends.append((at, name))
    cpu = found.cpu.ms if found.cpu else 0.0
    edges = sorted({0.0, cpu, *(end for end, _ in ends)})
    return [
        Moment(start, end, next((name for until, name in ends if end <= until), ""), end <= cpu)
        for start, end in pairwise(edges)
    ]


def work_scene(found: OffloadEvidence) -> Scene:
    """Returns the scene of a work at a size that was measured on the GPU: a step for each moment, and one for the result."""
    spans = moments(found)
    texts = [captions.part(found, m.part, m.start, m.end) for m in spans]
    rows = [tr(PROCESSOR), *(tr(title) for title in PART_TITLES.values())]
    return _scene(
        f"{found.key} {found.point.size} {found.copies} {found.measured is not None}",
        tr(found.work.title),
        [*texts, captions.verdict(found)],
        gantt(list(_bars(found, spans)), rows, spans[-1].end, len(spans) + 1, heights=(1.6, 1.1, 1.1, 1.1, 1.1)),
        tr("part"),
        tr("Both sides begin at the same time. Each was measured alone, with the caches overwritten before."),
        _source([m.part for m in spans]),
    )


def _bars(found: OffloadEvidence, spans: Sequence[Moment]) -> Iterator[Bar]:
    order = list(PART_TITLES)
    total = {name: units.time_(ms) for name, ms in found.on_gpu.parts.items()}
    widest = {
        name: max((m for m in spans if m.part == name), key=lambda m: m.end - m.start)
        for name in {m.part for m in spans} - {""}
    }
    busy = max((m for m in spans if m.busy), key=lambda m: m.end - m.start, default=None)
    for at, m in enumerate(spans):
        if m.busy:
            lines = (tr(found.work.cpu_title), units.time_(found.on_cpu.ms)) if m is busy else ("",)
            yield Bar(CPU, at, 0, m.start, m.end, "workspace", lines, at)
        if m.part:
            lines = (total[m.part],) if m is widest[m.part] else ("",)
            yield Bar(GPU, at, 1 + order.index(m.part), m.start, m.end, ROLES[m.part], lines, at)


def _source(parts: Sequence[str]) -> Source:
    """Returns the program that was timed on the GPU, with the line that runs in each interval, none at the end."""
    text, first = inspect.getsourcelines(gpu._Program.run)
    found = {
        name: next(n for n, line in enumerate(text) if pattern in line and _is_part(text, n, name))
        for name, pattern in LINES.items()
    }
    lines = [first + found[part] if part else 0 for part in parts]
    return Source("gpu.py", inspect.cleandoc("\n" + "".join(text)), np.array([*lines, 0]), first)


def _is_part(text: Sequence[str], n: int, name: str) -> bool:
    """Returns whether a line belongs to a part: the wait for the kernel is the one after the launches."""
    return name != "kernel" or any(LINES["call"] in line for line in text[:n])


# -- a program around the work -------------------------------------------------------------------------
def program_scene(found: OffloadEvidence) -> Scene:
    """Returns the scene of a program of which the share `left` stays on the processor: before, with the GPU, at the limit."""
    cpu, gpu_ms = found.on_cpu.ms, found.on_gpu.ms
    rest = cpu * found.left / (1 - found.left)
    rows = [tr("processor alone"), tr("with the GPU"), tr("the limit")]
    bars = []
    for row, (ms, role, title) in enumerate(
        [(cpu, "workspace", tr("this work")), (gpu_ms, "filter", tr("GPU")), (0.0, "", "")]
    ):
        if rest:
            bars.append(Bar(CPU, row, row, 0.0, rest, "input", (tr("the rest"), units.time_(rest)), row))
        if ms:
            bars.append(Bar(GPU, row, row, rest, rest + ms, role, (title, units.time_(ms)), row))
    fields = {
        "before": units.time_(rest + cpu),
        "after": units.time_(rest + gpu_ms),
        "rest": units.time_(rest),
        "left": units.share(found.left),
        "cpu": units.time_(cpu),
        "gpu": units.time_(gpu_ms),
        "speedup": units.ratio(found.speedup),
        "limit": limit_text(found.limit),
    }
    texts = [
        tr(text, **fields) for text in (captions.BEFORE, captions.AFTER, captions.LIMIT if rest else captions.NO_LIMIT)
    ]
    return _scene(
        f"program {found.key} {found.point.size} {found.copies} {found.left:g} {found.measured is not None}",
        tr("a program around it"),
        texts,
        gantt(bars, rows, rest + max(cpu, gpu_ms), 3, heights=(2.0, 2.0, 2.0)),
        tr("row"),
        tr("The times of the work are measured. The program around it is computed from them."),
    )


# -- the machine ---------------------------------------------------------------------------------------
ACROSS = 44  # boxes in a row: three rows hold the SMs of an H100


def machine_scene(m: Machine) -> Scene:
    """Returns the scene of a machine: a box for each core and for each SM, all of one width."""
    rows = [tr("cores"), *[tr("SMs"), *[""] * (ceil(m.sms, ACROSS) - 1)]]
    boxes = [_unit(CPU, n, 0, n, "workspace", 0) for n in range(m.cores)]
    boxes += [_unit(GPU, n, 1 + n // ACROSS, n % ACROSS, "filter", 1) for n in range(m.sms)]
    fields = {
        "cores": m.cores,
        "vector": m.vector,
        "sms": m.sms,
        "lanes": m.lanes,
        "processor": units.whole(m.on_processor),
        "gpu": units.whole(m.on_gpu),
    }
    texts = [tr(text, **fields) for text in captions.MACHINE]
    diagram = Diagram(tuple(boxes), (1.6,) * len(rows), rows=tuple(rows))
    return _scene(f"machine {m}", tr("the machine"), texts, diagram, tr("side"), "", cells=(m.cores, m.sms))


def _unit(tensor: str, index: int, row: int, column: int, role: str, first: int) -> Box:
    return Box(
        tensor,
        index,
        0,
        row,
        role,
        ("",),
        first,
        len(captions.MACHINE) - 1,
        left=column / ACROSS,
        right=(column + 1) / ACROSS,
    )


def _scene(key, title, texts, diagram, step_name, note, source=None, cells=None) -> Scene:
    """Returns a scene of some captions. `cells`: of both tensors if they are not written one at a step, but each at its own."""
    steps = len(texts)
    said = Captions(tuple(texts), np.arange(steps), np.zeros((steps, 1), int))
    writes, annotations = [], []
    for at, name in enumerate(TITLES):
        count = cells[at] if cells else steps
        when = np.full(count, at) if cells else np.arange(steps)
        writes.append(Write(name, when, np.arange(1, count + 1, dtype=np.float32), cells=np.arange(count)))
        annotations.append(Annotation(name, Captions(tuple(texts), when, np.zeros((count, 1), int))))
    return Scene(
        key=key,
        title=title,
        tensors=tuple(
            Tensor(n, n, tr(text), "workspace", 1, 1, len(w.cells))
            for (n, text), w in zip(TITLES.items(), writes, strict=True)
        ),
        groups=(Group(((CPU,), (GPU,))),),
        steps=steps,
        step_name=step_name,
        order_name=tr("order of time"),
        order_note=note,
        writes=tuple(writes),
        captions=said,
        annotations=tuple(annotations),
        source=source,
        diagram=diagram,
    )
