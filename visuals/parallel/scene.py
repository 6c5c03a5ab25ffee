"""A parallel step on the stage: the tasks of each GPU on a time axis. A box is as long as its task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from kernels.i18n import cached, mark, tr
from kernels.ladders import ladder_of
from kernels.model.program import Launch
from kernels.parallel import times
from kernels.parallel.plan import PIPELINES, Plan
from kernels.parallel.timeline import COMPUTE, LINK, SEND, Task
from kernels.training.graph import BACKWARD, FORWARD, UPDATE, node_program
from visuals import units
from visuals.parallel.evidence import ParallelEvidence
from visuals.scene.diagram import Area, Box, Diagram
from visuals.scene.parts import Annotation, Captions, Group, Read, Source, Tensor, Write
from visuals.scene.scene import Scene
from visuals.scene.source import resources
from visuals.training.graph_words import PHASES
from visuals.training.plan import FAINT, HUES, NAMES, ROLES
from visuals.training.scene import function_text

TASKS, GPUS = "tasks", "gpus"  # the tensors of the scene
HUE = {FORWARD: "input", BACKWARD: "output", UPDATE: "filter"}
LINK_HUE = "workspace"
COLLECTIVES = {ALL_REDUCE: mark("all-reduce"), REDUCE_SCATTER: mark("reduce-scatter"), ALL_GATHER: mark("all-gather")}
NAMED = 0.065  # share of the width for the names of the GPUs
NARROWEST = 0.0015  # share of the width of a box
COMPUTE_HEIGHT, LINK_HEIGHT = 1.0, 0.62
SAID = 3  # things that a caption says at most


@dataclass(frozen=True)
class Part:
    """One task on one GPU: what a box shows."""

    task: int
    gpu: int
    stream: str


@dataclass
class Layout:
    evidence: ParallelEvidence

    def __post_init__(self):
        line = self.line = self.evidence.timeline
        self.tasks = line.tasks
        self.parts = [
            Part(n, gpu, COMPUTE if stream == COMPUTE else LINK)
            for n, task in enumerate(line.tasks)
            for gpu, stream in task.streams
        ]
        moments = sorted({round(start, 6) for start in line.starts})
        self.moments = np.array(moments)

    @property
    def steps(self) -> int:
        return len(self.moments)

    def step_of(self, task: int) -> int:
        """Returns the step at which a task starts."""
        return int(np.searchsorted(self.moments, round(self.line.starts[task], 6)))


@cached(24)
def step_scene(plan: Plan) -> Scene:
    """Returns the time axis of a step. RuleError, ShapeError or KeyError as the timeline and the memory raise them."""
    layout = Layout(ParallelEvidence(plan))
    starts = [layout.step_of(n) for n in range(len(layout.tasks))]
    by_step = [[n for n, start in enumerate(starts) if start == k] for k in range(layout.steps)]
    cells = _cells_by_task(layout)
    first, *more = _sources(layout, by_step)
    return Scene(
        key=f"{plan.network} {plan.way} {plan.gpus} {plan.batch} {plan.micro} {plan.bucket_bytes} {plan.optimizer}",
        title=tr("A step of {network}, {way}", network=layout.evidence.title, way=layout.evidence.way),
        tensors=(
            Tensor(TASKS, "t", tr("tasks"), "output", 1, 1, len(layout.parts)),
            Tensor(GPUS, "g", tr("GPUs"), "input", 1, 1, plan.gpus),
        ),
        groups=(Group(((TASKS,), (GPUS,))),),
        steps=layout.steps,
        step_name=tr("moment"),
        order_name=tr("order in time"),
        order_note=tr("Predicted: each step of the stage is a moment at which something starts."),
        writes=(_write(layout, starts),),
        reads=(_reads(layout, by_step, cells),),
        captions=Captions.of([_caption(layout, k, tasks) for k, tasks in enumerate(by_step)]),
        annotations=(_annotation(layout, cells), _about_gpus(layout)),
        source=first,
        next_sources=tuple(more),
        diagram=_diagram(layout, starts),
    )


def _sources(layout: Layout, by_step: list[list[int]]) -> Iterator[Source]:
    """Yields the kernel of each step: the longest of the first task that computes, until another task computes."""
    shown: tuple[str, str] | None = None
    for step, tasks in enumerate(by_step):
        computing = [layout.tasks[n] for n in tasks if layout.tasks[n].nodes] or ([] if step else [_first(layout)])
        if not computing:
            continue
        launch = _longest(layout, computing[0])
        if (launch.source, launch.entry) == shown:
            continue
        shown = launch.source, launch.entry
        text, first = function_text(launch.source, launch.entry)
        yield Source(launch.source.rpartition("/")[2], text, np.array([first]), first, {}, resources(launch), step)


def _first(layout: Layout) -> Task:
    """Returns the first task that computes."""
    return next(task for task in layout.tasks if task.nodes)


def _longest(layout: Layout, task: Task) -> Launch:
    """Returns the first launch of a task's longest node."""
    plan = layout.evidence.plan
    node = max(task.nodes, key=lambda node: times.node_us(plan.network, node, plan.images, plan.optimizer))
    return node_program(node, ladder_of).launch()


def _write(layout: Layout, starts: Sequence[int]) -> Write:
    steps = np.array([starts[part.task] for part in layout.parts])
    us = np.array([layout.tasks[part.task].us for part in layout.parts], np.float32)
    return Write(TASKS, steps, us, cells=np.arange(len(layout.parts)))


def _cells_by_task(layout: Layout) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in layout.tasks]
    for n, part in enumerate(layout.parts):
        found[part.task].append(n)
    return found


def _reads(layout: Layout, by_step: list[list[int]], cells: list[list[int]]) -> Read:
    """Returns what the tasks of each step wait for."""
    rows = [
        sorted({cell for n in tasks for need in layout.tasks[n].needs for cell in cells[need]}) for tasks in by_step
    ]
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Read(TASKS, start, np.array([cell for row in rows for cell in row], int))


# -- texts -----------------------------------------------------------------------------------------------
def gpus_text(gpus: Sequence[int], all_gpus: int) -> str:
    """Returns the names of GPUs, counted from 1."""
    numbers = sorted({gpu + 1 for gpu in gpus})
    if len(numbers) == 1:
        return tr("GPU {n}", n=numbers[0])
    if len(numbers) == all_gpus == 2:
        return tr("Both GPUs")
    if len(numbers) == all_gpus:
        return tr("All {n} GPUs", n=all_gpus)
    return tr("GPUs {list}", list=", ".join(map(str, numbers)))


def _caption(layout: Layout, step: int, tasks: Sequence[int]) -> str:
    same: dict[tuple, list[int]] = {}
    for n in tasks:
        task = layout.tasks[n]
        same.setdefault((task.name, task.kind, task.micro, task.nbytes), []).append(n)
    sentences = [_sentence(layout, found) for found in same.values()]
    rest = len(sentences) - SAID
    shown = sentences[:SAID]
    if rest > 0:
        shown.append(tr("{n} more start now.", n=rest))
    time = units.time_(layout.moments[step] / 1e3) if layout.moments[step] else "0 µs"
    return tr("{time}: {what}", time=time, what=" ".join(shown))


def _sentence(layout: Layout, tasks: Sequence[int]) -> str:
    """Returns what a task does, on all GPUs that do it at this moment."""
    task = layout.tasks[tasks[0]]
    plan = layout.evidence.plan
    gpus = gpus_text([gpu for n in tasks for gpu in layout.tasks[n].gpus], plan.gpus)
    fields = {"gpus": gpus, "name": _name(task), "bytes": units.bytes_(task.nbytes), "n": task.micro + 1}
    if task.kind == SEND:
        source, target = (int(n) + 1 for n in task.name.split(" → "))
        return tr(
            "GPU {source} sends [{bytes}](workspace) of micro-batch {n} to GPU {target}.",
            source=source,
            target=target,
            **fields,
        )
    if task.kind in COLLECTIVES:
        kind = tr(COLLECTIVES[task.kind])
        return tr("{gpus}: {kind} of [{name}](workspace), {bytes}.", kind=kind, **fields)
    if task.kind == UPDATE:
        return (
            tr("{gpus} update their [weights](filter).", **fields)
            if len(tasks) > 1
            else tr("{gpus} updates its [weights](filter).", **fields)
        )
    if task.micro >= 0:
        return _micro_sentence(task.kind, fields)
    if task.kind == FORWARD:
        return tr("{gpus}: [{name}](input), forward.", **fields)
    return tr("{gpus}: [{name}](output), backward.", **fields)


def _micro_sentence(kind: str, fields: dict) -> str:
    if kind == FORWARD:
        return tr("{gpus}: micro-batch {n} [forward](input).", **fields)
    return tr("{gpus}: micro-batch {n} [backward](output).", **fields)


def _name(task: Task) -> str:
    """Returns the name of what a task computes or moves, without brackets and braces, which captions could not hold."""
    word, _, number = task.name.partition(" ")
    if word == "bucket" and number.isdigit():
        return tr("bucket {n}", n=number)
    return task.name.translate(str.maketrans("", "", "[](){}"))


def _annotation(layout: Layout, cells: list[list[int]]) -> Annotation:
    texts = [_about(layout, part) for part in layout.parts]
    rows = [[c for need in layout.tasks[part.task].needs for c in cells[need]] for part in layout.parts]
    widest = max(1, max(map(len, rows)))
    links = np.array([row + [-1] * (widest - len(row)) for row in rows], int)
    return Annotation(TASKS, Captions.of(texts), {TASKS: links})


def _about(layout: Layout, part: Part) -> str:
    task, line = layout.tasks[part.task], layout.line
    fields = {
        "name": _name(task),
        "gpu": part.gpu + 1,
        "time": units.time_(task.us / 1e3),
        "start": units.time_(line.starts[part.task] / 1e3),
        "bytes": units.bytes_(task.nbytes),
        "n": task.micro + 1,
        "phase": tr(PHASES.get(task.kind, "")),
    }
    if task.kind in COLLECTIVES:
        kind = tr(COLLECTIVES[task.kind])
        return tr("{kind} of {name}, {bytes}: {time} from {start} on, predicted.", kind=kind, **fields)
    if task.kind == SEND:
        return tr("A message of {bytes}: {time} from {start} on, predicted.", **fields)
    if task.micro >= 0:
        return tr("Micro-batch {n} on GPU {gpu}, {phase}: {time} from {start} on, predicted.", **fields)
    return tr("{name} on GPU {gpu}, {phase}: {time} from {start} on, predicted.", **fields)


def _about_gpus(layout: Layout) -> Annotation:
    line = layout.line
    texts = [
        tr(
            "GPU {n} computes for {busy} of {total}. It is idle for {idle} of the step.",
            n=gpu + 1,
            busy=units.time_(line.busy(gpu) / 1e3),
            total=units.time_(line.total / 1e3),
            idle=units.share(max(0.0, line.idle(gpu))),
        )
        for gpu in range(layout.evidence.plan.gpus)
    ]
    return Annotation(GPUS, Captions.of(texts))


# -- the picture -----------------------------------------------------------------------------------------
def _diagram(layout: Layout, starts: Sequence[int]) -> Diagram:
    plan, line = layout.evidence.plan, layout.line
    heights = tuple(h for _ in range(plan.gpus) for h in (COMPUTE_HEIGHT, LINK_HEIGHT))
    memory = fullest_memory(layout)
    peak = units.bytes_(int(memory.sum(axis=1).max()))
    fullest = layout.evidence.fullest
    return Diagram(
        boxes=(*_names(layout), *_boxes(layout, starts)),
        heights=heights,
        groups=((tr("time, from 0 to {total} (predicted)", total=units.time_(line.total / 1e3)), 0, 0),),
        areas=tuple(Area(tr(NAMES[role]), HUES[role], memory[:, k], role in FAINT) for k, role in enumerate(ROLES)),
        title=tr("Memory of GPU {n} at each moment:", n=fullest + 1),
        totals=tuple(
            tr("{now} of {peak} at the peak", now=units.bytes_(int(total)), peak=peak) for total in memory.sum(axis=1)
        ),
        phases=tuple(_phases(layout, starts)),
    )


def _names(layout: Layout) -> Iterator[Box]:
    last = layout.steps - 1
    for gpu in range(layout.evidence.plan.gpus):
        name = (tr("GPU {n}", n=gpu + 1),)
        yield Box(GPUS, gpu, 0, 2 * gpu, "input", name, 0, last, kernel=True, right=NAMED - 0.005)


def _boxes(layout: Layout, starts: Sequence[int]) -> Iterator[Box]:
    """Yields the box of each part: from the left end, where its task starts, as wide as it is long."""
    line, last = layout.line, layout.steps - 1
    for n, part in enumerate(layout.parts):
        task = layout.tasks[part.task]
        left, right = (NAMED + (1 - NAMED) * t / line.total for t in (line.starts[part.task], line.ends[part.task]))
        right = min(1.0, max(right, left + NARROWEST))
        hue = HUE.get(task.kind, LINK_HUE)
        row = 2 * part.gpu + (part.stream == LINK)
        left = min(left, right - NARROWEST / 2)
        yield Box(TASKS, n, 0, row, hue, _lines(task), starts[part.task], last, left=left, right=right)


def _lines(task: Task) -> tuple[str, ...]:
    if task.kind == SEND:
        return (f"→ {int(task.name.partition(' → ')[2]) + 1}",)
    if task.kind in COLLECTIVES:
        return (_name(task), units.bytes_(task.nbytes))
    if task.kind == UPDATE:
        return (tr(PHASES[UPDATE]),)
    return (_name(task), units.time_(task.us / 1e3))


def _phases(layout: Layout, starts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yields where each phase begins on the first GPU, in a step whose phases follow each other."""
    if layout.evidence.plan.way in PIPELINES:
        return
    for phase, title in PHASES.items():
        yield tr(title), min(starts[n] for n, task in enumerate(layout.tasks) if task.kind == phase)


def fullest_memory(layout: Layout) -> np.ndarray:
    """Returns the bytes by role on the fullest GPU at each moment: those of the last task that started there."""
    evidence, gpu = layout.evidence, layout.evidence.fullest
    moments = evidence.holdings[gpu].moments
    by_node: dict[str, list[np.ndarray]] = {}
    for moment in moments:
        row = np.array([moment.nbytes[role] for role in ROLES], float)
        by_node.setdefault(moment.node.name, []).append(row)
    found = np.zeros((layout.steps, len(ROLES)))
    now = np.array([moments[0].nbytes[role] for role in ROLES], float)
    mine = {layout.step_of(n): n for n in layout.line.of_stream(gpu, COMPUTE)}
    for step in range(layout.steps):
        if step in mine:
            rows = [row for node in layout.tasks[mine[step]].nodes for row in by_node[node.name]]
            now = max(rows, key=np.sum)
        found[step] = now
    return found
