"""One row of weights of the trained digits net as it becomes INT8: scale, whole numbers, and back."""

from __future__ import annotations

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.precision import record
from kernels.precision.integer import CHANNEL, matrix, weights_of
from kernels.precision.quantize import HIGH, Quantizer, by_channel, by_extremes
from visuals.scene.parts import Group, Reading, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

COUNT = 20  # weights on the stage
ORDER_NOTE = mark("The weights are those of the trained net. A GPU does all weights at once.")
CAPTIONS = {
    "start": mark("{0} of the {1} weights of output {2}, as training left them in FP32."),
    "scale_tensor": mark(
        "The largest weight of the whole layer is {0}, apart from its sign. It becomes 127, so the scale is {0} / 127 = {1}."
    ),
    "scale_channel": mark(
        "The largest weight of this output is {0}, apart from its sign. It becomes 127, so the scale is {0} / 127 = {1}."
    ),
    "divide": mark("Each weight is divided by the scale. The first one gives {0}."),
    "round": mark("The results are rounded to whole numbers. They use {0} of the 255 values from −127 to 127."),
    "back": mark(
        "The [net](output) computes with whole numbers. Times the scale, the first one is {0} instead of {1}."
    ),
    "error": mark("No error is larger than half of the scale, {0}. The mean error of this row is {1}."),
}


def quantizer(layer: str, per: str) -> Quantizer:
    """Returns the quantizer of the weights of a layer [inputs, outputs]: one scale, or one for each output."""
    w = layer_weights(layer)
    return by_channel(w, axis=1) if per == CHANNEL else by_extremes(w, symmetric=True)


def layer_weights(layer: str) -> np.ndarray:
    """Returns the weights of a layer of the trained net, float64 [inputs, outputs]."""
    return matrix(weights_of(record.net()), layer).astype(np.float64)


def int8_scene(layer: str, output: int, per: str) -> Scene:
    """Returns the scene of the first weights of one output of a layer, with one scale for the tensor or for the channel."""
    w, q = layer_weights(layer), quantizer(layer, per)
    row, scale = w[:, output], float(q.scale[output if per == CHANNEL else 0])
    whole, back = q.quantize(w)[:, output], q.dequantize(q.quantize(w))[:, output]
    n, used = min(COUNT, len(row)), len(np.unique(whole))
    r = Recorder({name: (at, tr(text)) for at, (name, text) in enumerate(CAPTIONS.items())})
    r.step("start", n, len(row), output)
    r.step(f"scale_{per}", scale * HIGH, scale)
    r.put("scale", [scale])
    r.step("divide", row[0] / scale)
    r.put("units", row[:n] / scale)
    r.step("round", used)
    r.put("q", whole[:n])
    r.step("back", back[0], row[0])
    r.put("back", back[:n])
    r.step("error", scale / 2, np.abs(back - row).mean())
    r.put("error", (back - row)[:n] / scale)
    return Scene(
        key=f"int8 {layer} {output} {per}",
        title=tr("weights of {layer} in INT8", layer=layer),
        tensors=_tensors(row[:n], scale),
        groups=(
            Group((("w",),), "global", tr("layer {layer}, output {output}", layer=layer, output=output)),
            Group((("scale",), ("units",)), "registers", tr("on the way")),
            Group((("q",),), "workspace", tr("stored: one byte for a weight instead of four")),
            Group((("back",), ("error",)), "global", tr("what is left of the weights")),
        ),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        captions=r.captions(),
        readings=(
            Reading(tr("scale"), np.full(r.steps, scale, np.float32), role="workspace"),
            Reading(tr("values used by this row"), np.full(r.steps, used, np.int64), role="output"),
        ),
    )


def _tensors(shown: np.ndarray, scale: float) -> tuple[Tensor, ...]:
    def row(name: str, title: str, role: str, values: np.ndarray | None = None, note: str = "") -> Tensor:
        return Tensor(name, name, title, role, 1, 1, len(shown), values, note=note, timed=True)

    return (
        row("w", tr("weights"), "filter", shown.astype(np.float32)),
        Tensor("scale", "scale", tr("scale"), "workspace", 1, 1, 1, note=decimal(f"{scale:.3g}")),
        row("units", tr("weights / scale"), "workspace", None, tr("in steps of INT8")),
        row("q", tr("whole numbers, INT8"), "output"),
        row("back", tr("whole numbers times scale"), "filter"),
        row("error", tr("error"), "workspace", None, tr("in steps of INT8: at most 0.5")),
    )
