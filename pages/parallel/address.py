"""The URL of the lesson on parallel training: network, way, GPUs, images, micro-batches, buckets; and its two pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.i18n import mark
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.parallel import memory
from kernels.parallel.plan import DATA, WAYS, Plan
from kernels.parallel.timeline import one_gpu
from kernels.training.networks import NETWORKS
from kernels.training.step import OPTIMIZERS
from pages.parts.address import Choice, Fields, Number, Values, fewest_resets
from visuals.parallel.evidence import ParallelEvidence
from visuals.parallel.scene import step_scene
from visuals.parallel.shares import shares_scene
from visuals.scene.scene import Scene, required

TIME, MEMORY = "time", "memory"
MAX_GPUS, MAX_BATCH, MAX_MICRO, MAX_BUCKET = 8, 65_536, 16, 1_000
KB = 1_000
RULED = ("gpus", "micro", "batch", "way", "network")  # the fields between which there are rules


def plan(values: Values) -> Plan:
    """Returns the step at these values. RuleError names the rule that they break."""
    return Plan(
        values["network"],
        values["way"],
        int(values["gpus"]),
        int(values["batch"]),
        int(values["micro"]),
        KB * int(values["bucket"]),
        values["optimizer"],
    )


def _broken(values: Values) -> str:
    """Returns the rule that the step breaks, or the same step on one GPU, with which it is compared; "" if both can run."""
    try:
        one_gpu(plan(values))
    except RuleError as error:
        return str(error)
    return ""


def _rules(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rule that the values break, and default values for the fewest fields instead."""
    if rule := _broken(values):
        yield rule, fewest_resets(dict(values), FIELDS.defaults, RULED, lambda other: not _broken(other))


FIELDS = Fields(
    "parallel",
    {
        "network": Choice("transformer", tuple(NETWORKS)),
        "way": Choice(DATA, tuple(WAYS)),
        "gpus": Number(4, 1, MAX_GPUS, label=mark("GPUs"), width=132),
        "batch": Number(256, 1, MAX_BATCH, label=mark("images"), width=184),
        "micro": Number(4, 1, MAX_MICRO, label=mark("micro-batches"), width=204),
        "bucket": Number(64, 1, MAX_BUCKET, label=mark("bucket in KB"), width=192),
        "optimizer": Choice(next(iter(OPTIMIZERS)), tuple(OPTIMIZERS), mark("optimiser"), 152),
        "picture": Choice(TIME, (TIME, MEMORY), mark("picture"), 148),
    },
    _rules,
)


def evidence(values: Values) -> ParallelEvidence:
    return ParallelEvidence(plan(values))


def scene(values: Values) -> tuple[Scene | None, str]:
    """Returns the scene at these values, or None and why there is none."""
    try:
        chosen = plan(values)
        return (shares_scene if values["picture"] == MEMORY else step_scene)(chosen), ""
    except (RuleError, ShapeError) as error:
        return None, str(error)


def too_large(values: Values, free: int = memory.H200_BYTES) -> str:
    """Returns why the step does not fit in a GPU's memory, and what would save some; "" if it fits."""
    found = evidence(values)
    try:
        memory.check(found.plan, found.costs, free)
    except RuleError as error:
        return str(error)
    return ""


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    return required(scene(FIELDS.read(params)[0]))
