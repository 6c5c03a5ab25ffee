"""The URL of the lesson on training: network, batch, optimiser, learning rate, epochs; and its scene."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels import engines
from kernels.i18n import tr
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.training.digits import TRAINING
from kernels.training.loop import Settings
from kernels.training.networks import NETWORKS
from kernels.training.step import OPTIMIZERS
from pages.parts.address import Choice, Fields, Number
from visuals import units
from visuals.scene.scene import Scene
from visuals.training.evidence import StepEvidence
from visuals.training.plan import all_bytes
from visuals.training.scene import step_scene

MAX_BATCH, MAX_EPOCHS, MAX_SEED = 65_536, 50, 9_999
FIELDS = Fields(
    "train",
    {
        "network": Choice(next(iter(NETWORKS)), tuple(NETWORKS)),
        "batch": Number(50, 1, MAX_BATCH),
        "optimizer": Choice(next(iter(OPTIMIZERS)), tuple(OPTIMIZERS)),
        "lr": Number(0.05, 0, 1e6, whole=False),
        "epochs": Number(10, 1, MAX_EPOCHS),
        "seed": Number(0, 0, MAX_SEED),
    },
)
Values = Mapping[str, Any]


def settings(values: Values) -> Settings:
    """Returns what Train runs at these values."""
    return Settings(
        values["network"], int(values["batch"]), values["optimizer"], {"lr": float(values["lr"])}, int(values["seed"])
    )  # fmt: skip


def scene(values: Values, times: Mapping[str, float]) -> tuple[Scene | None, str]:
    """Returns the scene of the step, or None and the rule that a shape breaks."""
    try:
        return step_scene(values["network"], int(values["batch"]), values["optimizer"], times), ""
    except (RuleError, ShapeError) as error:
        return None, str(error)


def refusal(values: Values) -> str:
    """Returns why these values cannot be trained with here, with the bytes and what would help; "" if they can."""
    batch = int(values["batch"])
    if batch > TRAINING:
        return tr(
            "batch must be at most {images} to train: there are no more images. The stage shows any batch.",
            images=units.count(TRAINING),
        )
    needed = all_bytes(values["network"], batch, values["optimizer"])
    return too_large(values, needed, engines.load("cpu").free_bytes())


def too_large(values: Values, needed: int, free: int) -> str:
    """Returns why a step does not fit in `free` bytes, and what recomputing would save; "" if it fits."""
    if needed <= free:
        return ""
    evidence = StepEvidence(values["network"], int(values["batch"]), values["optimizer"])
    return tr(
        "A step needs {needed}, and {free} are free. Its activations have {activations}. Computing the results of ReLU, norms "
        "and pooling again would save {saved}. A smaller batch needs less.",
        needed=units.bytes_(needed), free=units.bytes_(free),
        activations=units.bytes_(evidence.plan.largest("activation")), saved=units.bytes_(evidence.recomputable()),
    )  # fmt: skip
