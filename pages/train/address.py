"""The URL of the lesson on training: network, batch, optimiser, learning rate, epochs; and its scene."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kernels import engines
from kernels.i18n import mark, tr
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.training.digits import TRAINING
from kernels.training.loop import KEPT, Settings
from kernels.training.networks import NETWORKS, attention_rules
from kernels.training.step import OPTIMIZERS, Memory
from pages.parts.address import Choice, Fields, Number, Values
from visuals import units
from visuals.scene.scene import Scene, required
from visuals.training.evidence import StepEvidence
from visuals.training.plan import all_bytes
from visuals.training.scene import step_scene

MAX_BATCH, MAX_PARTS, MAX_EPOCHS, MAX_SEED = 65_536, 8, 50, 9_999


def _whole_parts(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rule that the images of a step do not divide into the parts, and one part instead."""
    if values["batch"] % values["parts"]:
        yield (
            tr(
                "parts must divide the batch, got {batch} images in {parts} parts",
                batch=values["batch"],
                parts=values["parts"],
            ),
            {"parts": 1},
        )


def _rules(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rules that the values break, and values instead."""
    yield from _whole_parts(values)
    parts = 1 if values["batch"] % values["parts"] else int(values["parts"])
    for rule in attention_rules(NETWORKS[values["network"]], int(values["batch"]) // parts):
        yield rule, {"batch": FIELDS.defaults["batch"], "parts": 1}


FIELDS = Fields(
    "train",
    {
        "network": Choice(next(iter(NETWORKS)), tuple(NETWORKS)),
        "batch": Number(32, 1, MAX_BATCH, width=158),
        "optimizer": Choice(next(iter(OPTIMIZERS)), tuple(OPTIMIZERS), mark("optimiser"), 150),
        "lr": Number(0.05, 0, 1e6, whole=False, step=0.01, label=mark("learning rate"), width=216),
        "keep": Choice(1, (1, 2, 3, 4, 6), mark("keep 1 layer in"), 168),
        "parts": Number(1, 1, MAX_PARTS, width=126),
        "epochs": Number(10, 1, MAX_EPOCHS, width=154),
        "seed": Number(0, 0, MAX_SEED),
    },
    _rules,
)


def memory(values: Values) -> Memory:
    """Returns how the step saves memory: one layer in `keep` keeps its result, the images come in `parts`."""
    keep = int(values["keep"])
    return Memory(every=keep if keep > 1 else 0, parts=int(values["parts"]))


def settings(values: Values) -> Settings:
    """Returns what Train runs at these values."""
    return Settings(
        values["network"],
        int(values["batch"]),
        values["optimizer"],
        {"lr": float(values["lr"])},
        int(values["seed"]),
        memory(values),
    )


def scene(
    values: Values, times: Mapping[str, float], here: bool = False, held: Mapping[str, int] | None = None
) -> tuple[Scene | None, str]:
    """Returns the scene of the step, or None and the rule that a shape breaks."""
    try:
        return step_scene(
            values["network"], int(values["batch"]), values["optimizer"], times, memory(values), here, held
        ), ""
    except (RuleError, ShapeError) as error:
        return None, str(error)


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    return required(scene(FIELDS.read(params)[0], {}))


def refusal(values: Values) -> str:
    """Returns why these values cannot be trained with here, with the bytes and what would help; "" if they can."""
    batch = int(values["batch"])
    if batch > TRAINING:
        return tr(
            "batch must be at most {images} to train: there are no more images. The stage shows any batch.",
            images=units.count(TRAINING),
        )
    needed = all_bytes(values["network"], batch, values["optimizer"], memory(values))
    return too_large(values, needed, engines.load("cpu").free_bytes())


def too_large(values: Values, needed: int, free: int) -> str:
    """Returns why a step does not fit in `free` bytes, and what recomputing would save; "" if it fits."""
    if needed <= free:
        return ""
    name = values["network"], int(values["batch"]), values["optimizer"]
    activations = StepEvidence(*name, memory=memory(values)).plan.largest("activation")
    text = tr(
        "A step needs {needed}, and {free} are free. Its activations have up to {activations}.",
        needed=units.bytes_(needed),
        free=units.bytes_(free),
        activations=units.bytes_(activations),
    )
    if memory(values).every:
        return text + " " + tr("A smaller batch or more parts need less.")
    less = all_bytes(*name, replace(memory(values), every=KEPT))
    if less >= needed:
        return text + " " + tr("Computing layers again would not save memory here. A smaller batch needs less.")
    saved = tr(
        "With one layer in {kept} kept and the others computed again, a step needs {less}: {saved} less.",
        kept=KEPT,
        less=units.bytes_(less),
        saved=units.bytes_(needed - less),
    )
    return f"{text} {saved}"
