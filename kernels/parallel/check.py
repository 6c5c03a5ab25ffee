"""Runs a parallel step on this processor and compares its weights with those of one GPU's step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kernels.engines import cpu
from kernels.ladders import ladder_of
from kernels.parallel import data, pipeline, tensor
from kernels.parallel.plan import PIPELINES, TENSOR, Plan
from kernels.training import digits, step
from kernels.training import graph as graphs
from kernels.training.graph import Graph
from kernels.training.step import WEIGHTS, Memory

LIMIT = 1e-5  # of the largest weight
IMAGES = 24  # about as many are used
RATE = {"sgd": {"lr": 0.5}, "adam": {"lr": 1e-3, "step": 1}}


@dataclass(frozen=True)
class Check:
    """What a comparison found. `error`: the largest difference of a weight from the float64 step of all images, over the
    largest weight. `parts_error`: from the float32 step in as many parts as there are replicas or micro-batches; 0 is bit by
    bit; None where the images are not split."""

    images: int
    error: float
    parts_error: float | None

    @property
    def right(self) -> bool:
        """Returns whether the weights are those of one GPU."""
        return self.error <= LIMIT


def images_of(plan: Plan) -> int:
    """Returns the images of a check: a multiple of GPUs and micro-batches."""
    unit = math.lcm(plan.gpus, plan.micro)
    return unit * max(1, IMAGES // unit)


def check(plan: Plan, seed: int = 0) -> Check:
    """Returns the comparison of a plan's step at a few images."""
    return _check(replace(plan, batch=images_of(plan)), seed)


@lru_cache(maxsize=64)
def _check(plan: Plan, seed: int) -> Check:
    found, _ = digits.load(plan.layers.size)
    images, labels, factors = found.images[: plan.batch], found.labels[: plan.batch], RATE[plan.optimizer]
    graph = step.build(plan.layers, plan.batch, step.ON_CPU, plan.optimizer, **factors)
    right = graphs.reference(graph, ladder_of, step.inputs(graph, images, labels, seed))[WEIGHTS]
    outcome = _train(plan, images, labels, seed, factors)
    error = max(_difference(graph, weights, right) for weights in outcome.weights)
    parts = plan.micro if plan.way in PIPELINES else 0 if plan.way == TENSOR else plan.gpus
    if parts < 2:
        return Check(plan.batch, error, None)
    in_parts = _in_parts(plan, parts, images, labels, seed, factors)
    return Check(plan.batch, error, max(_difference(graph, weights, in_parts) for weights in outcome.weights))


def _train(plan: Plan, images, labels, seed: int, factors) -> data.Outcome:
    if plan.way == TENSOR:
        return tensor.train(plan, images, labels, seed, **factors)
    if plan.way in PIPELINES:
        equal = {layer.name: 1.0 for layer in plan.layers.layers}
        return pipeline.train(plan, equal, images, labels, seed, **factors)
    return data.train(plan, images, labels, seed, **factors)


def _in_parts(plan: Plan, parts: int, images, labels, seed: int, factors) -> np.ndarray:
    """Returns the weights of one GPU's step whose images come in parts."""
    graph = step.graph_of(plan.layers, plan.batch, step.ON_CPU, plan.optimizer, Memory(parts=parts), **factors)
    session = cpu.open(graphs.program(graph, ladder_of), step.inputs(graph, images, labels, seed))
    session.verify_run()
    return np.array(session.fetch(WEIGHTS))


def _difference(graph: Graph, got: np.ndarray, right: np.ndarray) -> float:
    """Returns the largest difference of a weight, over the largest weight; infinite if one is no number."""
    views = [view for view in graph.views if view.of == WEIGHTS]
    largest = max(float(np.abs(view.cut(right)).max()) for view in views)
    worst = float(np.max([np.abs(view.cut(got) - view.cut(right)).max() for view in views]))  # NaN stays NaN
    return worst / largest if math.isfinite(worst) else math.inf
