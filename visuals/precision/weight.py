"""One weight of a recorded training, step by step: kept in FP32 it moves, kept in FP16 most of its updates are lost."""

from __future__ import annotations

import numpy as np

from kernels.i18n import mark, tr
from kernels.precision import record
from visuals.scene.parts import Captions, Group, Reading, Tensor, Write
from visuals.scene.scene import Scene

STEPS = record.WEIGHT_STEPS
ORDER_NOTE = mark("Recorded on the processor: two trainings that differ only in how weights are kept.")
CAPTIONS = (
    mark(
        "Training step {0}. The [FP32 weight](output) moves by {1} distances between FP16 numbers. The [FP16 weight](workspace) is rounded "
        "back to where it was."
    ),
    mark(
        "Training step {0}. The [FP32 weight](output) moves by {1} distances. The [FP16 weight](workspace) moves by {2}."
    ),
)


def weight_scene() -> Scene:
    """Returns the scene of the weight that kernels.precision.record follows, in units of the distance between its FP16
    neighbours, counted from where each run began."""
    master, lost = (record.followed(name)[: STEPS + 1].astype(np.float64) for name in ("master", "lost"))
    unit = float(record.distance(lost[0]))
    moved = {"master": (master - master[0]) / unit, "lost": (lost - lost[0]) / unit}
    change = {name: np.diff(path) for name, path in moved.items()}
    stays = change["lost"] == 0
    now = np.arange(STEPS)
    args = np.column_stack([1 + now, np.round(change["master"], 3), change["lost"]])
    return Scene(
        key="weight", title=tr("one weight of layer fc1"),
        tensors=(
            Tensor("update", "update", tr("update of the FP32 weight"), "filter", 1, 1, STEPS, timed=True, note=tr("in distances")),
            Tensor("master", "master", tr("weight in FP32"), "output", 1, 1, STEPS, timed=True, note=tr("moved so far")),
            Tensor("lost", "lost", tr("weight in FP16"), "workspace", 1, 1, STEPS, timed=True, note=tr("moved so far")),
        ),
        groups=(
            Group((("update",), ("master",), ("lost",)), "global", tr("one distance is {unit}, between FP16 numbers near {weight}", unit=f"{unit:.3g}", weight=f"{lost[0]:.4f}")),
        ),
        steps=STEPS, step_name=tr("training step"), order_name=tr("explaining order"), order_note=tr(ORDER_NOTE),
        writes=(
            Write("update", now, np.round(change["master"], 2).astype(np.float32)),
            Write("master", now, np.round(moved["master"][1:], 2).astype(np.float32)),
            Write("lost", now, moved["lost"][1:].astype(np.float32)),
        ),
        captions=Captions(tuple(map(tr, CAPTIONS)), (~stays).astype(int), args),
        readings=(
            Reading(tr("FP32 weight"), master[1:].astype(np.float32), "recorded", "output"),
            Reading(tr("FP16 weight"), lost[1:].astype(np.float32), "recorded", "workspace"),
            Reading(tr("updates lost so far"), np.cumsum(stays), "recorded"),
        ),
    )  # fmt: skip
