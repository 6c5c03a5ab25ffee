"""Sums of more and more terms in FP32, FP16 and BF16: where a sum stops growing, and how parts help."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.i18n import mark, tr
from kernels.model import fp8_sums
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

FP8_TITLES = {
    "exact": (mark("exact sum"), "input"),
    "fp8": (mark("added in tensor cores"), "workspace"),
    "promoted": (mark("{promoted} in tensor cores, then FP32"), "output"),
}
FP8_NOTE = mark(
    "Each step doubles the number of products. The processor adds them as Hopper’s tensor cores do: {n} at a time, cut off "
    "after {bits} bits."
)
FP8_CAPTIONS = (
    mark(
        "Products so far: {0}. The exact sum is [{1}](input). Tensor cores have [{2}](workspace), {4} % off. They cut off each "
        "product after {bits} bits of the largest number."
    ),
    mark(
        "Products so far: {0}. The exact sum is [{1}](input). Tensor cores have [{2}](workspace), {4} % off. With FP32 sums "
        "after every {promoted} products, [{3}](output) is {5} % off."
    ),
)


def relative_errors(name: str) -> np.ndarray:
    """Returns the relative error of a way of adding after each step, in %."""
    return _errors(sums.measured(), name)


def fp8_errors(name: str) -> np.ndarray:
    """Returns the same of a way of adding products of FP8."""
    return _errors(sums.fp8_measured(), name)


def _errors(found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    return 100 * np.abs(found[name] - found["exact"]) / found["exact"]


def shown(errors: np.ndarray) -> np.ndarray:
    """Returns errors with two digits each: only an error of 0 is shown as 0."""
    return np.array([float(f"{error:.2g}") for error in errors])


def sums_scene() -> Scene:
    """Returns the scene of the sums of kernels.precision.sums."""
    found = {name: values.astype(np.float32) for name, values in sums.measured().items()}
    now = np.arange(STEPS)
    errors = {name: relative_errors(name) for name in TITLES}
    stuck = np.append(False, np.diff(found["fp16"]) == 0)
    args = np.column_stack([2**now, found["exact"], found["fp16"], shown(errors["fp16"]), found["bf16"]])
    return Scene(
        key="sums",
        title=tr("a sum, term by term"),
        tensors=tuple(
            Tensor(
                name,
                name,
                tr(title, n=sums.PART) if name == "parts" else tr(title),
                role,
                1,
                1,
                STEPS,
                timed=True,
                note=tr("of 1, 2, 4 … terms") if name == "exact" else "",
            )
            for name, (title, role) in TITLES.items()
        ),
        groups=(Group(tuple((name,) for name in TITLES), "registers", tr("terms between 0 and 1")),),
        steps=STEPS,
        step_name=tr("doubling"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=tuple(Write(name, now, values) for name, values in found.items()),
        captions=Captions(tuple(map(tr, CAPTIONS)), stuck.astype(int), args),
        readings=(
            Reading(tr("error in FP32, %"), shown(errors["fp32"]), "measured", "output"),
            Reading(tr("error in FP16, %"), shown(errors["fp16"]), "measured", "workspace"),
            Reading(tr("error in BF16, %"), shown(errors["bf16"]), "measured", "filter"),
            Reading(tr("error of FP16 parts, %"), shown(errors["parts"]), "measured", "output"),
        ),
    )


def fp8_scene() -> Scene:
    """Returns the scene of sums of FP8 products in tensor cores, alone and promoted to FP32."""
    found = {name: values.astype(np.float32) for name, values in sums.fp8_measured().items()}
    now = np.arange(STEPS)
    errors = {name: fp8_errors(name) for name in FP8_TITLES}
    kind = (2**now > sums.PROMOTED).astype(int)
    columns = [2**now, *(found[name] for name in FP8_TITLES)]
    args = np.column_stack([*columns, shown(errors["fp8"]), shown(errors["promoted"])])
    words = {"n": fp8_sums.DEPTH, "bits": fp8_sums.FRACTION + 1, "promoted": sums.PROMOTED}
    return Scene(
        key="fp8 sums",
        title=tr("a sum of FP8 products in tensor cores"),
        tensors=tuple(
            Tensor(
                name,
                name,
                tr(title, **words),
                role,
                1,
                1,
                STEPS,
                timed=True,
                note=tr("of 1, 2, 4 … products") if name == "exact" else "",
            )
            for name, (title, role) in FP8_TITLES.items()
        ),
        groups=(
            Group(tuple((name,) for name in FP8_TITLES), "registers", tr("products of two numbers between 0 and 1")),
        ),
        steps=STEPS,
        step_name=tr("doubling"),
        order_name=tr("explaining order"),
        order_note=tr(FP8_NOTE, **words),
        writes=tuple(Write(name, now, values) for name, values in found.items()),
        captions=Captions(tuple(tr(text, **words) for text in FP8_CAPTIONS), kind, args),
        readings=(
            Reading(tr("error in tensor cores, %"), shown(errors["fp8"]), "predicted", "workspace"),
            Reading(tr("error if promoted, %"), shown(errors["promoted"]), "predicted", "output"),
        ),
    )


def limit() -> float:
    """Returns the sum at which FP16 stops: from there on its numbers are 2 apart, and a term is at most half of that."""
    return float(2.0 ** (FP16.mantissa_bits + 1))
