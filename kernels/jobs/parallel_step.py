"""A parallel training step on all GPUs of this machine, as one request to the process that runs kernels.

GPUs that never answer end the process, not the app: a wait has a deadline, and the worker kills the process after its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernels.activity import COMPARING, STEPPING
from kernels.engines.cuda import devices
from kernels.jobs.job import Part, Rows, packed
from kernels.model.program import RuleError
from kernels.model.row import Json
from kernels.parallel import measured
from kernels.parallel.devices import Team
from kernels.parallel.plan import Plan
from kernels.parallel.timeline import one_gpu
from kernels.records.row import commit


@dataclass(frozen=True)
class ParallelStep:
    """A step on several GPUs, and the same images on one GPU."""

    CACHED = True

    plan: Plan

    @property
    def label(self) -> str:
        return f"{self.plan.network}, {self.plan.way} over {self.plan.gpus} GPUs"

    @property
    def shape(self) -> str:
        return f"{self.plan.batch:,} images"

    def key(self) -> Hashable:
        """Returns a key that is equal for equal requests."""
        return "parallel step", self.plan

    def packed(self) -> bytes:
        return packed(self)


def parallel_step(
    request: ParallelStep, progress: Callable[[float, str], None], part: Part = lambda part: None
) -> Rows:
    """Returns the row of the step on one GPU, then that on several: the weights of these were compared with one GPU's before
    a step was timed. RuleError if GPUs are missing or weights are wrong; DevicesHung if they do not answer."""
    plan = request.plan
    if why := devices.refusal(plan.gpus):
        raise RuleError(why)
    with _teams(plan) as teams:
        progress(0.0, COMPARING)
        error = measured.verified(plan, teams) if plan.gpus > 1 else 0.0
        rows = []
        for n, each in enumerate(dict.fromkeys((one_gpu(plan), plan))):
            progress(0.4 + 0.3 * n, STEPPING)
            rows.append(_row(each, teams(each.gpus), measured.timed(each, teams), error))
            part(rows[-1])
    return rows


@contextmanager
def _teams(plan: Plan) -> Iterator[Callable[[int], Team]]:
    """Yields what opens one GPU, or all of a plan; at the end NCCL ends and memory is given back."""
    opened: dict[int, Team] = {}

    def teams(gpus: int) -> Team:
        if gpus not in opened:
            opened[gpus] = Team(gpus)
        return opened[gpus]

    teams(plan.gpus)
    try:
        yield teams
    except devices.DevicesHung:  # nothing can be closed: this process ends
        opened.clear()
        raise
    finally:
        for team in opened.values():
            team.close()
            team.devices.free()


def _row(plan: Plan, team: Team, found: Json, error: float) -> Json:
    return {
        "network": plan.network,
        "way": plan.way,
        "gpus": plan.gpus,
        "batch": plan.batch,
        "micro": plan.micro,
        "optimizer": plan.optimizer,
        "bucket_bytes": plan.bucket_bytes,
        "overlap": True,
        "error_of_weights": error,
        "device": team.devices.name(0),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        **found,
    }
