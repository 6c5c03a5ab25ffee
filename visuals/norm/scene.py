"""The norms as scenes: a channel or a row on its way through a kernel, with sums, means and variances as numbers.

Forward and backward have the same places: x and dx on one side, y and dy on the other, and between them the threads.
Forward reads x and writes y; backward reads dy and writes dx, over the same links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.model.shape import Shape
from kernels.norm.shape import NHWC, MapsShape
from visuals.norm import parts, unit
from visuals.norm.captions import MARKS, REPEATED, template
from visuals.norm.plan import Executed, Step, execute, folded, links
from visuals.scene.parts import Annotation, Captions, Group, Reading, Source, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import LANES, mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of

ORDER = mark("step by step")
ORDER_NOTE = mark(
    "One step is one loop iteration of the threads of a block, one level of a tree, or the part of one block. A "
    "barrier is a point where all threads of a block wait. Other blocks run at the same time. Sums in registers are "
    "computed here as in the kernel. Outputs and partial results are those of the kernel in the emulator."
)
FLOAT = 4  # bytes
STEP_FUNCTIONS: dict[str, Callable[[Executed], Iterator[Step]]] = {
    "batch-norm/two-pass": unit.two_pass,
    "batch-norm/welford": unit.welford,
    "batch-norm/sums": unit.sums,
    "batch-norm/split": parts.split,
    "batch-norm/split-nhwc": parts.split,
    "batch-norm-inference/formula": parts.formula,
    "batch-norm-inference/folded": parts.folded,
    "batch-norm-backward/two-pass": unit.channel_backward,
    "batch-norm-backward/split": parts.backward_split,
    "batch-norm-backward/split-nhwc": parts.backward_split_nhwc,
    "batch-norm-backward/split-nhwc-one-sum": parts.backward_one_sum,
    "layer-norm/three-reads": unit.two_pass,
    "layer-norm/welford": unit.welford,
    "layer-norm/warp": unit.warp,
    "layer-norm/registers": unit.registers,
    "layer-norm-backward/atomics": unit.row_backward,
    "layer-norm-backward/columns": unit.rows_then_columns,
    "layer-norm-backward/registers": parts.row_sums,
    "rms-norm/two-reads": unit.rms_two_reads,
    "rms-norm/warp": unit.warp,
    "rms-norm/registers": unit.registers,
    "rms-norm-backward/atomics": unit.row_backward,
    "rms-norm-backward/registers": parts.row_sums,
}
# The places of the tensors of the size of x, forward and backward: one side, the other side.
SIDES = ("x", "dx"), ("y", "dy")
VECTORS = ("gamma", "beta"), ("mean", "invstd", "var", "invrms"), ("dgamma", "dbeta")
FACTORS = ("gamma", "beta")  # of the role of filters
MAX_LINKS = 40_000  # of an annotation
LABELS = {
    "n": mark("n so far"),
    "mean": mark("mean so far"),
    "M2": mark("M2 so far"),
    "sum": mark("sum so far"),
    "squares": mark("sum of squares so far"),
    "variance": mark("variance, once computed"),
    "mean of x²": mark("mean of x², once computed"),
    "sum_beta": mark("dbeta so far"),
    "sum_gamma": mark("dgamma so far"),
    "sum_g": mark("sum of g so far"),
    "sum_gx": mark("sum of g · x̂ so far"),
}
# Beside which a name is followed by its own: registers of threads, cells of shared memory.
SPACES = {"own": "registers", "all": "registers", "row": "registers", "shared": "shared", "warp": "shared"}


def norm_scene(
    rung: str, shape: Shape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray] | None = None
) -> Scene:
    """Returns the scene of one of our rungs at a shape. Missing inputs are seeded. Raises RuleError if the rung cannot run
    the shape."""
    given = inputs or {}
    run = execute(rung, shape, tiles, given)
    steps = folded(list(STEP_FUNCTIONS[rung](run)), REPEATED)
    r = _record(steps)
    tensors = _tensors(run, steps)
    sources = _sources(run, steps)
    sizes = ",".join(f"{name}={value}" for name, value in run.tiles.items())
    return Scene(
        key=f"{rung} {shape} {sizes} {_digest(given)}",
        title=tr(find(rung).title),
        tensors=tuple(tensors.values()),
        groups=_groups(tensors),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(),
        readings=tuple(_readings(steps, r)),
        annotations=tuple(_annotations(run, tensors)),
        source=sources[0],
        next_sources=tuple(sources[1:]),
        lanes=r.lanes(),
    )


def _digest(inputs: Mapping[str, np.ndarray]) -> str:
    found = blake2b(digest_size=6)
    for name in sorted(inputs):
        found.update(name.encode() + np.ascontiguousarray(inputs[name], np.float32).tobytes())
    return found.hexdigest() if inputs else ""


# -- tensors ---------------------------------------------------------------------------------------------
def _tensors(run: Executed, steps: Sequence[Step]) -> dict[str, Tensor]:
    """Returns the tensors of the program, then those of registers and shared memory that the steps write."""
    made = {}
    for b in run.program.buffers:
        role = "filter" if b.name in FACTORS else b.role
        values = run.arrays[b.name] if b.role == INPUT else None
        planes, rows, cols = _extents(run, b.name, b.shape)
        made[b.name] = Tensor(
            b.name,
            b.name,
            _titled(b.name),
            role,
            planes,
            rows,
            cols,
            values,
            note=_note(run.shape, planes),
            plane_name="image" if planes > 1 else "",
        )
    for name, size in _sizes(steps).items():
        if name not in made:
            cols = _columns(run, name, size)
            made[name] = Tensor(
                name, name.partition("_")[2] or name, _titled(name), "workspace", 1, -(-size // cols), cols
            )
    return made


def _extents(run: Executed, name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns (planes, rows, columns) of a buffer: flat cells are places in memory."""
    s = run.shape
    if len(shape) == 4:
        return (s.N, s.HW, s.C) if s.layout == NHWC else (s.N, s.C, s.HW)
    if len(shape) == 3:
        return 1, shape[0], shape[1] * shape[2]
    if len(shape) == 2:
        return 1, *shape
    by_row = not isinstance(s, MapsShape) and name in ("mean", "invstd", "invrms")
    return (1, shape[0], 1) if by_row else (1, 1, shape[0])


def _note(shape: MapsShape, planes: int) -> str:
    if planes == 1:
        return ""
    if shape.layout == NHWC:
        return tr("one plane per image, one row per pixel, one column per channel")
    return tr("one plane per image, one row per channel")


def _titled(name: str) -> str:
    kind, _, own = name.partition("_")
    titles = {
        "own": tr("{name} of each thread", name=own),
        "shared": tr("{name}: one row per level of the tree", name=own),
        "warp": tr("{name} of each warp", name=own),
        "all": tr("{name}, parts merged so far", name=own),
        "row": tr("the row in registers"),
    }
    return titles.get(kind, name)


def _sizes(steps: Sequence[Step]) -> dict[str, int]:
    """Returns how many cells of each tensor the steps write, up to the last."""
    sizes: dict[str, int] = {}
    for step in steps:
        for name, (cells, _) in step.writes.items():
            sizes[name] = max(sizes.get(name, 0), int(cells.max()) + 1)
    return sizes


def _columns(run: Executed, name: str, size: int) -> int:
    """Returns the columns of a tensor in registers or shared memory: threads, or numbers of a row."""
    kind, _, own = name.partition("_")
    if own.startswith("partial_") or own in ("dgamma", "dbeta"):
        return run.shape.N
    if kind == "shared":
        return run.tiles["BLOCK"]
    if kind == "row":
        threads = run.tiles.get("BLOCK", LANES)
        return min(size, threads * run.defines(0).get("WIDTH", 1))
    return size


def _groups(tensors: Mapping[str, Tensor]) -> tuple[Group, ...]:
    """Returns one side of the layer, the threads, their shared memory, the workspace, and the other side."""
    front, back = (tuple(name for name in side if name in tensors) for side in SIDES)
    vectors = [tuple(n for n in names if n in tensors) for names in VECTORS]
    per_row = tuple(n for n in vectors[1] if tensors[n].rows == tensors[front[0]].rows > 1)
    vectors[1] = tuple(n for n in vectors[1] if n not in per_row)  # the others are beside the rows that they belong to
    rows = ((*front, *per_row), *filter(None, vectors))
    groups = [Group(rows, "global", tr("global memory: {names}", names=", ".join(front)))]
    for space, title in (("registers", tr("registers")), ("shared", tr("shared memory of the block"))):
        rows = tuple((n,) for n in tensors if SPACES.get(n.partition("_")[0]) == space)
        if rows:
            groups.append(Group(rows, space, title))
    named = {n for g in groups for row in g.rows for n in row} | set(back)
    if workspace := tuple((n,) for n in tensors if n not in named):
        groups.append(Group(workspace, "workspace", tr("workspace: partial results")))
    return (*groups, Group((back,), "global", tr("global memory: {names}", names=", ".join(back))))


# -- steps -----------------------------------------------------------------------------------------------
def _record(steps: Sequence[Step]) -> Recorder:
    """Returns the steps, with the bytes of x and dy read and of y and dx written."""
    kinds = dict.fromkeys(step.kind for step in steps)
    r = Recorder({kind: (n, template(kind)) for n, kind in enumerate(kinds)})
    sides = {name for side in SIDES for name in side}
    for step in steps:
        warp, mask = -1, 0
        if step.active is not None:
            warp = int(step.active[0]) // LANES
            mask = mask_of(step.active[step.active // LANES == warp] % LANES)
        read = sum(len(cells) for name, cells in step.reads.items() if name in sides)
        stored = sum(len(cells) for name, (cells, _) in step.writes.items() if name in sides)
        r.step(step.kind, *step.args, warp=warp, mask=mask, read=FLOAT * read, written=FLOAT * stored)
        for name, cells in step.reads.items():
            r.look(name, cells)
        for name, (cells, values) in step.writes.items():
            r.put(name, values, cells)
    return r


def _sources(run: Executed, steps: Sequence[Step]) -> list[Source]:
    """Returns the file of each launch, from its first step on."""
    launch_of = np.array([step.launch for step in steps])
    found = []
    for n in dict.fromkeys(launch_of.tolist()):
        launch, at = run.launches[n], np.flatnonzero(launch_of == n)
        marks = MARKS[launch.source.rpartition("/")[2].removesuffix(".cu")]
        kind = np.array([list(marks).index(steps[t].line or steps[t].kind) for t in at.tolist()])
        file = launch.source.rpartition("/")[2]
        found.append(
            source_of(
                launch.source,
                tuple(marks.values()),
                kind,
                notes=margin(run.counters, file),
                detail=resources(launch),
                since=int(at[0]),
            )
        )
    return found


def _readings(steps: Sequence[Step], r: Recorder) -> Iterator[Reading]:
    for name, label in LABELS.items():
        if any(name in step.totals for step in steps):
            values, now = [], 0.0
            for step in steps:
                now = step.totals.get(name, now)
                values.append(now)
            yield Reading(tr(label), np.array(values), role="workspace")
    yield Reading(tr("bytes of tensors read"), r.so_far("read"), "predicted")
    yield Reading(tr("bytes of tensors written"), r.so_far("written"), "predicted")


def _annotations(run: Executed, tensors: Mapping[str, Tensor]) -> Iterator[Annotation]:
    """Yields what each y depends on: every x of its channel or row. And what each dx depends on, over the same links."""
    forward = "y" in tensors
    source, out = ("x", "y") if forward else ("dy", "dx")
    if "var" in tensors:  # inference: one x each
        linked, text = np.arange(run.shape.elements)[:, None], tr("y depends on one x.")
    elif isinstance(run.shape, MapsShape):
        linked = links(run.shape)
        text = tr("Depends on every {source} of its channel, {n} numbers.", source=source, n="{0}")
    else:
        linked = links(run.shape)
        text = tr("Depends on every {source} of its row, {n} numbers.", source=source, n="{0}")
    if linked.size <= MAX_LINKS:
        args = np.full((run.shape.elements, 1), linked.shape[1])
        captions = Captions((text,), np.zeros(run.shape.elements, int), args)
        yield Annotation(out, captions, {source: linked})
