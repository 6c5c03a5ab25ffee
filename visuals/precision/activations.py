"""What a layer of the trained digits net reads, as INT8 with a zero point: the range comes from a calibration."""

from __future__ import annotations

from functools import cache

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.precision import record
from kernels.precision.integer import CALIBRATION_IMAGES, Inputs, forward
from kernels.precision.quantize import HIGH, LOW, Quantizer
from kernels.training.digits import load
from kernels.training.networks import LENET5
from visuals.scene.parts import Group, Reading, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

COUNT = 20  # activations on the stage
ORDER_NOTE = mark("The activations are those of the first test image. A GPU does all of them at once.")
CAPTIONS = {
    "start": mark("{0} of the {1} numbers that this layer reads for the first test image. None is below 0."),
    "scale": mark(
        "The calibration looked at {2} other images and chose the range 0 to {0}. Its 255 steps are {1} each: the scale."
    ),
    "zero": mark("The range begins at 0, and INT8 begins at −128. So 0 is stored as {0}, the zero point."),
    "divide": mark("Each number is divided by the scale. The largest one here, {1}, gives {0}."),
    "round": mark(
        "The results are rounded, {0} is added, and they are clamped to −128 … 127. {1} of all {2} numbers are clamped."
    ),
    "back": mark("Minus the zero point, times the scale: the largest one is {0} instead of {1}."),
    "error": mark("The largest error here is {0} steps. Only clamped numbers can have an error above 0.5."),
}


@cache
def _inputs() -> Inputs:
    """Returns what each layer reads for the first test image."""
    found = Inputs()
    forward(record.net(), load(LENET5.size)[1].images[:1], found)
    return found


def numbers(layer: str) -> np.ndarray:
    """Returns what a layer reads, float64: of a convolution window after window, so that pixels repeat."""
    return _inputs().by_layer[layer].ravel()


def first_shown(x: np.ndarray) -> int:
    """Returns where the stage begins: at the COUNT neighbours with the largest sum."""
    sums = np.convolve(x, np.ones(COUNT), "valid")
    return int(sums.argmax())


def activations_scene(layer: str, calibration: str) -> Scene:
    """Returns the scene of what a layer reads, quantised with the range of a calibration."""
    x, q = numbers(layer), record.activations(layer, calibration)
    at = first_shown(x)
    shown = x[at : at + COUNT]
    scale, zero = float(q.scale[0]), int(q.zero_point[0])
    units = np.rint(x / scale) + zero
    clamped = int(((units < LOW) | (units > HIGH)).sum())
    r = _recorded(shown, x.size, q, clamped)
    first = tr("layer {layer}, numbers {first} to {last}", layer=layer, first=at, last=at + COUNT - 1)
    return Scene(
        key=f"int8 activations {layer} {calibration}",
        title=tr("what {layer} reads, in INT8", layer=layer),
        tensors=_tensors(shown, scale),
        groups=(
            Group((("x",),), "global", first),
            Group((("scale", "zero"), ("units",)), "registers", tr("on the way")),
            Group((("q",),), "workspace", tr("stored: one byte for a number instead of four")),
            Group((("back",), ("error",)), "global", tr("what is left of the activations")),
        ),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        captions=r.captions(),
        readings=(
            Reading(tr("scale"), np.full(r.steps, scale, np.float32), role="workspace"),
            Reading(tr("zero point"), np.full(r.steps, zero, np.int64), role="workspace"),
            Reading(tr("numbers clamped"), np.full(r.steps, clamped, np.int64), role="output"),
        ),
    )


def _recorded(shown: np.ndarray, count: int, q: Quantizer, clamped: int) -> Recorder:
    """Returns the steps from numbers to INT8 and back. `count`: of all numbers of the layer, `clamped`: of those beyond the
    range."""
    scale, zero, top = float(q.scale[0]), int(q.zero_point[0]), int(shown.argmax())
    whole = q.quantize(shown)
    back = q.dequantize(whole)
    r = Recorder({name: (n, tr(text)) for n, (name, text) in enumerate(CAPTIONS.items())})
    r.step("start", COUNT, count)
    r.step("scale", (HIGH - zero) * scale, scale, CALIBRATION_IMAGES)
    r.put("scale", [scale])
    r.step("zero", zero)
    r.put("zero", [zero])
    r.step("divide", shown[top] / scale, shown[top])
    r.put("units", shown / scale)
    r.step("round", zero, clamped, count)
    r.put("q", whole)
    r.step("back", back[top], shown[top])
    r.put("back", back)
    r.step("error", np.abs(back - shown).max() / scale)
    r.put("error", (back - shown) / scale)
    return r


def _tensors(shown: np.ndarray, scale: float) -> tuple[Tensor, ...]:
    def row(name: str, title: str, role: str, values: np.ndarray | None = None, note: str = "") -> Tensor:
        return Tensor(name, name, title, role, 1, 1, COUNT, values, note=note, timed=True)

    return (
        row("x", tr("activations"), "input", shown.astype(np.float32)),
        Tensor("scale", "scale", tr("scale"), "workspace", 1, 1, 1, note=decimal(f"{scale:.3g}")),
        Tensor("zero", "zero", tr("zero point"), "workspace", 1, 1, 1),
        row("units", tr("activations / scale"), "workspace", None, tr("in steps of INT8")),
        row("q", tr("whole numbers, INT8"), "output"),
        row("back", tr("back in FP32"), "input"),
        row("error", tr("error"), "workspace", None, tr("in steps of INT8")),
    )
