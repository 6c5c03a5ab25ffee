"""Sums of more and more terms in FP32, FP16 and BF16: where a sum stops growing, and how parts help."""

from __future__ import annotations

import numpy as np

from kernels.i18n import mark, tr
from kernels.precision import sums
from kernels.precision.formats import FP16
from visuals.scene.parts import Captions, Group, Reading, Tensor, Write
from visuals.scene.scene import Scene

STEPS = sums.MAX_POWER + 1
TITLES = {
    "exact": (mark("exact sum"), "input"),
    "fp32": (mark("added in FP32"), "output"),
    "fp16": (mark("added in FP16"), "workspace"),
    "bf16": (mark("added in BF16"), "filter"),
    "parts": (mark("FP16 for {n} terms, then FP32"), "output"),
}
ORDER_NOTE = mark(
    "Each step doubles the number of terms. The sums were computed on the processor, one term after another."
)
CAPTIONS = (
    mark(
        "Terms so far: {0}. The exact sum is [{1}](input). The sum in FP16 is [{2}](workspace), {3} % off. BF16 has [{4}](filter)."
    ),
    mark(
        "Terms so far: {0}. The exact sum is [{1}](input). In FP16 it stays at [{2}](workspace), in BF16 at [{4}](filter). Each further term is "
        "at most half of the distance between two numbers there."
    ),
)


def relative_errors(name: str) -> np.ndarray:
    """Returns the relative error of a way of adding after each step, in %."""
    found = sums.measured()
    return 100 * np.abs(found[name] - found["exact"]) / found["exact"]


def sums_scene() -> Scene:
    """Returns the scene of the sums of kernels.precision.sums."""
    found = {name: values.astype(np.float32) for name, values in sums.measured().items()}
    now = np.arange(STEPS)
    errors = {name: relative_errors(name) for name in TITLES}
    stuck = np.append(False, np.diff(found["fp16"]) == 0)
    args = np.column_stack([
        2**now, np.round(found["exact"], 2), found["fp16"], np.round(errors["fp16"], 2), found["bf16"],
    ])  # fmt: skip
    return Scene(
        key="sums", title=tr("a sum, term by term"),
        tensors=tuple(
            Tensor(name, name, tr(title, n=sums.PART) if name == "parts" else tr(title), role, 1, 1, STEPS, timed=True, note=tr("of 1, 2, 4 … terms") if name == "exact" else "")
            for name, (title, role) in TITLES.items()
        ),
        groups=(Group(tuple((name,) for name in TITLES), "registers", tr("terms between 0 and 1")),),
        steps=STEPS, step_name=tr("doubling"), order_name=tr("explaining order"), order_note=tr(ORDER_NOTE),
        writes=tuple(Write(name, now, values) for name, values in found.items()),
        captions=Captions(tuple(map(tr, CAPTIONS)), stuck.astype(int), args),
        readings=(
            Reading(tr("error in FP32, %"), np.round(errors["fp32"], 5), "measured", "output"),
            Reading(tr("error in FP16, %"), np.round(errors["fp16"], 3), "measured", "workspace"),
            Reading(tr("error in BF16, %"), np.round(errors["bf16"], 3), "measured", "filter"),
            Reading(tr("error of FP16 parts, %"), np.round(errors["parts"], 4), "measured", "output"),
        ),
    )  # fmt: skip


def limit() -> float:
    """Returns the sum at which FP16 stops: from there on its numbers are 2 apart, and a term is at most half of that."""
    return float(2.0 ** (FP16.mantissa_bits + 1))
