"""Parallel steps on the GPUs of this machine: weights compared with those of one GPU, then timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kernels.model.row import Json
from kernels.parallel.devices import Ranks, Replicas, Team, check_equal, check_exact, check_near
from kernels.parallel.plan import DATA, PIPELINES, Plan
from kernels.parallel.split_devices import open_step
from kernels.training import digits
from kernels.training.graph import Graph

CHECKED, CHECKED_BATCH = 3, 96  # steps and images of a comparison
FACTORS = {"sgd": {"lr": 0.05}, "adam": {"lr": 1e-3, "step": 1}}
WARM_UP, SAMPLES, SAMPLE_S, MOST_STEPS = 5, 9, 0.03, 100
Teams = Callable[[int], Team]


def data(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Returns images and labels of a step: all training images, again and again."""
    found, _ = digits.load(plan.layers.size)
    chosen = np.arange(plan.batch) % len(found)
    return np.ascontiguousarray(found.images[chosen]), found.labels[chosen]


def opened(plan: Plan, team: Team, overlap: bool) -> Ranks:
    """Returns the step on a team's GPUs."""
    return open_step(plan, team, *data(plan), overlap, **FACTORS[plan.optimizer])


def after(plan: Plan, team: Team, overlap: bool) -> tuple[Graph, list[np.ndarray]]:
    """Returns the graph and the weights after a few steps: those of each GPU, or those joined from all."""
    ranks = opened(plan, team, overlap)
    for _ in range(CHECKED):
        ranks.step()
    weights = ranks.weights()
    ranks.close()
    return ranks.graph, weights


def verified(plan: Plan, teams: Teams, overlap: bool = True) -> float:
    """Returns how far the weights of several GPUs are from those of one after a few steps. DifferentError if they are too
    far, if data parallel GPUs differ in any bit, or if a pipeline differs in any bit from one GPU with the same parts."""
    unit = plan.gpus * plan.micro
    small = replace(plan, batch=max(unit, CHECKED_BATCH // unit * unit))
    _, (right,) = after(replace(small, way=DATA, gpus=1, micro=1), teams(1), overlap)
    graph, weights = after(small, teams(plan.gpus), overlap)
    check_equal(graph, weights)
    if plan.way in PIPELINES:
        _, (in_parts,) = after(replace(small, gpus=1), teams(1), overlap)
        check_exact(graph, weights[0], in_parts)
    return check_near(graph, weights[0], right)


def timed(plan: Plan, teams: Teams, overlap: bool = True) -> Json:
    """Returns the microseconds of a step: the median, and all samples."""
    ranks = opened(plan, teams(plan.gpus), overlap)
    ranks.seconds(WARM_UP)
    times = int(min(MOST_STEPS, max(3, SAMPLE_S / ranks.seconds(3))))
    samples = [1e6 * ranks.seconds(times) for _ in range(SAMPLES)]
    check_equal(ranks.graph, ranks.weights())  # after hundreds of steps
    found = {"step_us": round(float(np.median(samples)), 2), "samples": [round(s, 2) for s in samples]}
    if isinstance(ranks, Replicas):
        found["buckets"] = [bucket.nbytes for bucket in ranks.buckets]
    ranks.close()
    return found
