"""Who holds what: a row for each GPU, a bar for each role of memory. What a GPU holds is filled, what others hold is empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernels.i18n import cached, mark, tr
from kernels.parallel.memory import HELD
from kernels.parallel.plan import DATA, PIPELINES, TENSOR, ZERO_1, ZERO_2, ZERO_3, Plan
from kernels.training.graph import ACTIVATION, GRADIENT, STATE, WEIGHT
from visuals import units
from visuals.parallel.evidence import ParallelEvidence
from visuals.parallel.scene import NAMED
from visuals.scene.diagram import Area, Box, Diagram
from visuals.scene.parts import Annotation, Captions, Group, Tensor, Write
from visuals.scene.scene import Scene
from visuals.training.plan import FAINT, HUES, NAMES

GPUS, REST = "gpus", "rest"  # the tensors of the scene beside one for each role
GAP = 0.006  # share of the width between two bars
LEAST = 0.19  # share of the width of the narrowest bar
STEPS = len(HELD) + 1  # a role each, then all that one GPU alone would hold
# Who holds the parts of each role, by way.
SPLIT = {
    DATA: {
        WEIGHT: mark("Each GPU holds all [weights](filter): {bytes}."),
        GRADIENT: mark(
            "Each GPU computes all [gradients](output), from its own images: {bytes}. They are added over all GPUs."
        ),
        STATE: mark("Each GPU holds the whole [optimiser state](filter): {bytes}. All GPUs do the same update."),
        ACTIVATION: mark("The [activations](input) are split: each GPU has those of its images, {bytes} of {whole}."),
    },
    TENSOR: {
        WEIGHT: mark("The large [weights](filter) are split: each GPU holds {bytes} of {whole}."),
        GRADIENT: mark("Each GPU has the [gradients](output) of its weights: {bytes}."),
        STATE: mark("It also holds their [optimiser state](filter): {bytes}."),
        ACTIVATION: mark(
            "Each GPU sees all images. Of the [activations](input) it has {bytes}, on one GPU they are {whole}."
        ),
    },
}
SPLIT[ZERO_1] = SPLIT[DATA] | {
    STATE: mark("The [optimiser state](filter) is split: {bytes} of {whole} on each GPU. It updates only its part.")
}
SPLIT[ZERO_2] = SPLIT[ZERO_1] | {
    GRADIENT: mark(
        "A [gradient](output) stays only where it is used. A GPU holds {bytes} of {whole}: its part and one bucket."
    )
}
SPLIT[ZERO_3] = SPLIT[ZERO_2] | {
    WEIGHT: mark("The [weights](filter) are split too. A GPU holds {bytes} of {whole}: its part and the layers in use.")
}
PIPELINE = {
    WEIGHT: mark("Each GPU holds the [weights](filter) of its layers: up to {bytes} of {whole}."),
    GRADIENT: mark(
        "It has the [gradients](output) of these weights, once for each micro-batch and sum in use: up to {bytes}."
    ),
    STATE: mark("It also holds their [optimiser state](filter): up to {bytes}."),
    ACTIVATION: mark(
        "[Activations](input) of micro-batches wait for the way back: up to {bytes} on a GPU, {whole} on one GPU alone."
    ),
}
for each in PIPELINES:
    SPLIT[each] = PIPELINE


@cached(24)
def shares_scene(plan: Plan) -> Scene:
    """Returns who holds what, one role at each step. RuleError or ShapeError as the memory raises them."""
    evidence = ParallelEvidence(plan)
    bars = _bars(evidence)
    boxes = [*_names(plan), *(box for role in HELD for box in _role(evidence, role, *bars[role]))]
    rest = [box for role in HELD for box in _rest(boxes, role, *bars[role])]
    boxes += [replace(box, index=n) for n, box in enumerate(rest)]
    tensors = [Tensor(role, role[0], tr(NAMES[role]), HUES[role], 1, 1, plan.gpus) for role in HELD]
    others = [Tensor(REST, "r", tr("on other GPUs"), "workspace", 1, 1, len(rest))] if rest else []
    found = (Tensor(GPUS, "g", tr("GPUs"), "input", 1, 1, plan.gpus), *tensors, *others)
    return Scene(
        key=f"{plan.network} {plan.way} {plan.gpus} {plan.batch} {plan.micro} {plan.bucket_bytes} {plan.optimizer} memory",
        title=tr("Who holds what: {network}, {way}", network=evidence.title, way=evidence.way),
        tensors=found,
        groups=(Group(tuple((t.name,) for t in found)),),
        steps=STEPS,
        step_name=tr("role"),
        order_name=tr("explaining order"),
        order_note=tr("Roles of memory one after the other. The most bytes of each role during a step."),
        writes=tuple(_writes(evidence)),
        captions=_captions(evidence),
        annotations=tuple(_annotations(evidence, len(rest))),
        diagram=_diagram(evidence, boxes),
    )


def _held(evidence: ParallelEvidence, role: str) -> np.ndarray:
    """Returns the bytes of a role on each GPU."""
    return np.array([holding.largest(role) for holding in evidence.holdings], float)


def _whole(evidence: ParallelEvidence, role: str) -> float:
    """Returns the bytes that the bar of a role stands for: on one GPU alone, or on the fullest if that is more."""
    return max(float(evidence.alone.largest(role)), float(_held(evidence, role).max()))


def _bars(evidence: ParallelEvidence) -> dict[str, tuple[float, float]]:
    """Returns the left and right end of the bar of each role, as shares of the width: as wide as it has bytes, but not
    narrower than LEAST."""
    sizes = np.array([_whole(evidence, role) for role in HELD])
    room = 1 - NAMED - GAP * (len(HELD) - 1) - LEAST * len(HELD)
    widths = LEAST + room * sizes / sizes.sum()
    ends = NAMED + np.cumsum(widths + GAP) - GAP
    return {
        role: (float(end - width), float(min(1.0, end))) for role, end, width in zip(HELD, ends, widths, strict=True)
    }


def _names(plan: Plan) -> Iterator[Box]:
    for gpu in range(plan.gpus):
        name = (tr("GPU {n}", n=gpu + 1),)
        yield Box(GPUS, gpu, 0, gpu, "input", name, 0, STEPS - 1, kernel=True, right=NAMED - 0.005)


def _role(evidence: ParallelEvidence, role: str, left: float, right: float) -> Iterator[Box]:
    """Yields a role's boxes on each GPU: its part, where it lies in the whole, and the bytes."""
    step, last = HELD.index(role), STEPS - 1
    held, whole = _held(evidence, role), _whole(evidence, role)
    before = np.concatenate([[0.0], np.cumsum(held)[:-1]])
    for gpu in range(evidence.plan.gpus):
        part = min(1.0, held[gpu] / whole)
        at = 0.0 if part == 1 else _offset(evidence, gpu, part, before[gpu] / whole)
        first = left + (right - left) * at
        stop = min(right, first + max(0.004, (right - left) * part))
        lines = (tr(NAMES[role]), units.bytes_(held[gpu]))
        yield Box(role, gpu, 0, gpu, HUES[role], lines, step, last, left=min(first, stop - 0.003), right=stop)


def _rest(boxes: list[Box], role: str, left: float, right: float) -> Iterator[Box]:
    """Yields what is left of a role's bar on both sides of each part: others hold it, so it is filled at no step."""
    for box in [box for box in boxes if box.tensor == role]:
        for first, stop in ((left, box.left - GAP / 3), (box.right + GAP / 3, right)):
            if stop - first > GAP:
                yield Box(REST, 0, 0, box.row, HUES[role], (), STEPS, STEPS, left=first, right=stop)


def _offset(evidence: ParallelEvidence, gpu: int, part: float, before: float) -> float:
    """Returns where a GPU's part begins in the whole, as a share of it."""
    if evidence.plan.way in PIPELINES:
        return min(1 - part, before)
    return gpu * (1 - part) / max(1, evidence.plan.gpus - 1)


def _writes(evidence: ParallelEvidence) -> Iterator[Write]:
    for step, role in enumerate(HELD):
        yield Write(role, np.array([step]), _held(evidence, role).astype(np.float32))


def _captions(evidence: ParallelEvidence) -> Captions:
    texts = tuple(
        tr(
            SPLIT[evidence.plan.way][role],
            bytes=units.bytes_(_held(evidence, role).max()),
            whole=units.bytes_(evidence.alone.largest(role)),
        )
        for role in HELD
    )
    together = sum(evidence.alone.largest(role) for role in HELD)
    texts += (tr("One GPU alone would hold all of it: {bytes}.", bytes=units.bytes_(together)),)
    return Captions(texts, np.arange(STEPS), np.zeros((STEPS, 1), int))


def _annotations(evidence: ParallelEvidence, rest: int) -> Iterator[Annotation]:
    gpus = range(evidence.plan.gpus)
    yield _note(
        GPUS,
        [
            tr("GPU {n} needs {bytes} at most.", n=n + 1, bytes=units.bytes_(evidence.holdings[n].peak.total))
            for n in gpus
        ],
    )
    for role in HELD:
        held = _held(evidence, role)
        yield _note(
            role,
            [
                tr("{role} on GPU {n}: {bytes}.", role=tr(NAMES[role]), n=n + 1, bytes=units.bytes_(held[n]))
                for n in gpus
            ],
        )

    if rest:
        yield _note(REST, [tr("This part is on other GPUs.")] * rest)


def _note(tensor: str, texts: list[str]) -> Annotation:
    return Annotation(tensor, Captions(tuple(texts), np.arange(len(texts)), np.zeros((len(texts), 1), int)))


def _diagram(evidence: ParallelEvidence, boxes: list[Box]) -> Diagram:
    fullest = evidence.holdings[evidence.fullest]
    steps = np.arange(STEPS)
    areas = [
        Area(tr(NAMES[role]), HUES[role], np.where(steps >= n, float(fullest.largest(role)), 0.0), role in FAINT)
        for n, role in enumerate(HELD)
    ]
    sums = np.sum([area.values for area in areas], axis=0)
    return Diagram(
        boxes=tuple(boxes),
        heights=(1.0,) * evidence.plan.gpus,
        groups=((tr("filled: on this GPU; dashed: on the others, or in a later step"), 0, 0),),
        areas=tuple(areas),
        title=tr("Most bytes of each role, GPU {n}:", n=evidence.fullest + 1),
        totals=tuple(tr("{bytes} so far", bytes=units.bytes_(total)) for total in sums),
    )
