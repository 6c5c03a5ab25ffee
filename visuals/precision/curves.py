"""Recorded trainings as bars on the stage: the loss falls or it does not; the loss scale and the skipped steps beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.model.row import Json
from kernels.precision import record
from kernels.precision.record import Curve
from visuals.scene.parts import Captions, Group, Reading, Tensor, Write
from visuals.scene.scene import Scene
from visuals.strip.curve import shares, smooth, thinned

ROWS, TOP = 10, 3.2  # of a chart, and the loss that fills it
LOWER, HIGHER = 4, 10  # the loss that fills the curves; the higher one if any leaves TOP
EPOCH = 30  # steps
EVERY = 3  # training steps of a column
NAMES: Mapping[str, tuple[str, str]] = {  # title and colour of each run
    "fp32": (mark("FP32"), "input"),
    "none": (mark("FP16, no loss scale"), "workspace"),
    "static": (mark("FP16, loss scale 2^16"), "filter"),
    "dynamic": (mark("FP16, dynamic loss scale"), "output"),
    "master": (mark("FP16, weights kept in FP32"), "output"),
    "lost": (mark("FP16 weights alone"), "workspace"),
    "lost_bf16": (mark("BF16 weights alone"), "filter"),
    "fp32_slow": (mark("FP32"), "input"),
}
# The short name of each run beside its curve.
KEYS: Mapping[str, str] = {
    "fp32": mark("FP32"),
    "none": mark("no scale"),
    "static": mark("fixed scale"),
    "dynamic": mark("dynamic scale"),
    "master": mark("FP16 and FP32 weights"),
    "lost": mark("FP16 weights"),
    "lost_bf16": mark("BF16 weights"),
    "fp32_slow": mark("FP32"),
}
SCALING, WEIGHTS = ("fp32", "none", "static", "dynamic"), ("fp32_slow", "master", "lost", "lost_bf16")
ORDER_NOTE = mark("Recorded trainings on the processor, side by side. Each column is the mean of three training steps.")
CAPTION = mark(
    "Training step {0}. Loss: FP32 [{1}](input), FP16 without a loss scale [{2}](workspace), with a fixed one [{3}](filter), with a "
    "dynamic one [{4}](output)."
)
SKIPPED = mark("Gradients overflowed. The dynamic scale is 2^{5}. Updates skipped in these three steps: {6}.")
WEIGHTS_CAPTION = mark(
    "Training step {0}. Loss: FP32 [{1}](input), FP16 with FP32 weights [{2}](output), FP16 weights alone [{3}](workspace), BF16 "
    "weights alone [{4}](filter)."
)


def columns(values: np.ndarray) -> np.ndarray:
    """Returns the mean of each EVERY steps."""
    return np.asarray(values, np.float64).reshape(-1, EVERY).mean(axis=1)


def curves_scene(names: Sequence[str]) -> Scene:
    """Returns the scene of recorded runs, SCALING or WEIGHTS."""
    found = {name: record.curve(name) for name in names}
    losses = {name: columns(one.loss) for name, one in found.items()}
    steps = len(losses[names[0]])
    tensors = [_chart(name, steps) for name in names]
    writes = [_bars(name, loss) for name, loss in losses.items()]
    groups = [
        Group(((names[0], names[1]), (names[2], names[3])), "global", tr("loss, 0 to {top}", top=decimal(f"{TOP:g}")))
    ]
    readings = [Reading(tr(NAMES[name][0]), np.round(loss, 3), "recorded", "") for name, loss in losses.items()]
    captions = Captions((tr(WEIGHTS_CAPTION),), np.zeros(steps, int), _args(losses, steps))
    if "dynamic" in found:
        more = _scale_rows(found["dynamic"], steps)
        tensors += more[0]
        writes += more[1]
        groups.append(Group((("scale",), ("skipped",)), "workspace", tr("the dynamic loss scale")))
        captions = _scaling_captions(found["dynamic"], losses, steps)
        readings.append(Reading(tr("dynamic scale, power of two"), _powers(found["dynamic"]), "recorded"))
    return Scene(
        key=f"curves {' '.join(names)}",
        title=tr("loss of recorded trainings"),
        tensors=tuple(tensors),
        groups=tuple(groups),
        steps=steps,
        step_name=tr("three training steps"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=tuple(writes),
        captions=captions,
        readings=tuple(readings),
    )


# -- the curves beside the strip -------------------------------------------------------------------------
def strip_curve(names: Sequence[str]) -> Json:
    """Returns the losses of recorded runs as lines over all their steps, for the strip."""
    losses = {name: smooth(list(enumerate(map(float, record.curve(name).loss), start=1))) for name in names}
    steps = max(points[-1][0] for points in losses.values())
    above = max(loss for points in losses.values() for _, loss in points) > TOP
    top = HIGHER if above else LOWER
    ends = _ends(names)
    edge = tr("Losses above {top} are at the upper edge.", top=HIGHER) if above else ""
    return {
        "title": tr("Loss, step by step"),
        "badge": {"kind": "recorded", "text": tr("recorded on a processor")},
        "lines": [
            {"role": NAMES[name][1], "name": tr(KEYS[name]), "points": shares(thinned(points), steps, top)}
            for name, points in losses.items()
        ],
        "top": decimal(f"{top:g}"),
        "right": "",
        "epochs": tr("{n} steps", n=steps),
        "text": " ".join(filter(None, (ends, edge))),
        "error": "",
        "aria": ends,
        "kind": "one-axis secret",  # hidden until the question of a chapter is answered
    }


def _ends(names: Sequence[str]) -> str:
    """Returns the loss with which each run ends, in a sentence: the mean of its last epoch, as in the table."""
    ends = [tr("{run} {loss}", run=tr(KEYS[name]), loss=decimal(f"{last_epoch(name):.3g}")) for name in names]
    return tr("Mean of the last {n} steps: {runs}.", n=EPOCH, runs=", ".join(ends))


def last_epoch(name: str) -> float:
    """Returns the mean loss of a run's last epoch."""
    return float(record.curve(name).loss[-EPOCH:].mean())


def _chart(name: str, steps: int) -> Tensor:
    title, role = NAMES[name]
    return Tensor(name, name, tr(title), role, 1, ROWS, steps, np.zeros(ROWS * steps, np.float32), timed=True)


def heights(loss: np.ndarray) -> np.ndarray:
    """Returns how many cells of a column are filled: at least one."""
    return np.clip(np.ceil(loss / TOP * ROWS), 1, ROWS).astype(int)


def _bars(name: str, loss: np.ndarray) -> Write:
    """Returns the bars: at step t column t is filled up to its loss, whose value its cells hold."""
    filled = np.arange(ROWS, 0, -1)[:, None] <= heights(loss)
    row, column = np.nonzero(filled)
    order = np.argsort(column, kind="stable")
    row, column = row[order], column[order]
    return Write(name, column, loss[column].astype(np.float32), cells=row * len(loss) + column)


def _scale_rows(one: Curve, steps: int) -> tuple[list[Tensor], list[Write]]:
    power, skipped = _powers(one), _skipped(one)
    tensors = [
        Tensor("scale", "scale", tr("power of two of the scale"), "output", 1, 1, steps, timed=True),
        Tensor("skipped", "skipped", tr("updates skipped"), "workspace", 1, 1, steps, timed=True),
    ]
    now = np.arange(steps)
    return tensors, [Write("scale", now, power.astype(np.float32)), Write("skipped", now, skipped.astype(np.float32))]


def _powers(one: Curve) -> np.ndarray:
    """Returns the power of two of the scale after each column's last step."""
    return np.log2(one.scale.reshape(-1, EVERY)[:, -1])


def _skipped(one: Curve) -> np.ndarray:
    return one.skipped.reshape(-1, EVERY).sum(axis=1)


def _args(losses: Mapping[str, np.ndarray], steps: int) -> np.ndarray:
    return np.column_stack([EVERY * np.arange(1, steps + 1), *(np.round(loss, 3) for loss in losses.values())])


def _scaling_captions(one: Curve, losses: Mapping[str, np.ndarray], steps: int) -> Captions:
    skipped = _skipped(one)
    args = np.column_stack([_args(losses, steps), _powers(one), skipped])
    return Captions((tr(CAPTION), f"{tr(CAPTION)} {tr(SKIPPED)}"), (skipped > 0).astype(int), args)
