"""Training: steps of a network over the images of an epoch in random order, on the processor or on a GPU.

A run yields each step, so a caller can stop it after any. Its state can be kept and continued.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels import engines
from kernels.i18n import tr
from kernels.model.program import Program, RuleError
from kernels.norm.shape import EPS
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.digits import Digits, load
from kernels.training.graph import Graph
from kernels.training.inference import MOMENTUM, RUNNING, predicted, running_names
from kernels.training.networks import IMAGE, NETWORKS

LOSS = "loss"


@dataclass(frozen=True)
class Settings:
    """What is trained: a network, the images of a step, the optimiser with its factors by name, the seed of the first
    weights and of the order of the images. RuleError names the rule that one breaks."""

    network: str
    batch: int = 32
    optimizer: str = "sgd"
    factors: Mapping[str, float] = field(default_factory=lambda: {"lr": 0.05})
    seed: int = 0

    def __post_init__(self):
        for name, known in (("network", NETWORKS), ("optimizer", step.OPTIMIZERS)):
            got = getattr(self, name)
            if got not in known:
                raise RuleError(
                    tr("{name} must be one of {known}, got {got}", name=name, known=", ".join(known), got=got)
                )


@dataclass(frozen=True)
class State:
    """What a training step changes: the number of steps taken, and the arrays: weights, the optimiser's, running means and
    variances of batch norm."""

    steps: int
    arrays: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Point:
    """A step's number (from 1), its epoch (from 0) and the mean loss of its images before the update."""

    step: int
    epoch: int
    loss: float


class Diverged(RuleError):
    """A tensor of a step that is no finite number; the message names the first."""


class Training:
    """A network in training on one engine, from the first weights or from a state."""

    def __init__(self, settings: Settings, engine: str = "cpu", state: State | None = None):
        self.settings, self.engine = settings, engine
        self.images, self.test = load(NETWORKS[settings.network].size)
        if not 1 <= settings.batch <= len(self.images):
            rule = tr(
                "batch must be in {low} .. {high}, got {got}",
                low=1,
                high=len(self.images),
                got=settings.batch,
            )
            raise RuleError(rule)
        self.steps = state.steps if state else 0
        graph, _ = self._step()
        first = step.inputs(graph, *self._batch(0), settings.seed)
        self._running = {name: np.full(shape, fill, np.float32) for name, shape, fill in running_names(graph)}
        if state:
            first |= {name: a for name, a in state.arrays.items() if name in first}
            self._running |= {name: np.array(a) for name, a in state.arrays.items() if name in self._running}
        self._first = first
        self._session: Any = None

    @property
    def steps_per_epoch(self) -> int:
        """Returns the steps of an epoch. Images that fill no batch are left out; the next epoch has another order."""
        return len(self.images) // self.settings.batch

    def run(self, epochs: int) -> Iterator[Point]:
        """Yields each step until `epochs` are complete. Diverged names the first tensor that is not finite."""
        while self.steps < epochs * self.steps_per_epoch:
            yield self._next()

    def state(self) -> State:
        """Returns what is needed to continue later, as copies."""
        names = [t.name for t in self._step()[0].tensors.values() if t.kind in (graphs.WEIGHT, graphs.STATE)]
        found = self._session.fetch if self._session else self._first.__getitem__
        running = {name: np.array(a) for name, a in self._running.items()}
        return State(self.steps, {name: np.array(found(name)) for name in names} | running)

    def accuracy(self, digits: Digits | None = None) -> float:
        """Returns the share of images, by default the test images, whose largest output is that of their label."""
        digits = digits or self.test
        labels = predicted(self.settings.network, self.state().arrays, digits.images)
        return float(np.mean(labels == digits.labels))

    def close(self) -> None:
        if self._session:
            self._session.close()

    # -- one step --------------------------------------------------------------------------------------
    def _next(self) -> Point:
        images, labels = self._batch(self.steps)
        graph, program = self._step()
        if self._session is None:
            self._session = engines.load(self.engine).open(
                program, self._first | {IMAGE: images, step.LABELS: labels}
            )
            self._session.verify_run()
        else:
            self._session.put({IMAGE: images, step.LABELS: labels})
            self._session.execute(program)
        loss = float(np.mean(self._session.fetch(LOSS)))
        self.steps += 1
        if not math.isfinite(loss):
            raise Diverged(self._first_not_finite(graph))
        self._average(graph)
        return Point(self.steps, (self.steps - 1) // self.steps_per_epoch, loss)

    def _batch(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the images and labels of step n, counted from 0."""
        epoch, at = divmod(n, self.steps_per_epoch)
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.images))
        chosen = order[at * self.settings.batch : (at + 1) * self.settings.batch]
        return np.ascontiguousarray(self.images.images[chosen]), self.images.labels[chosen]

    def _step(self) -> tuple[Graph, Program]:
        factors = dict(self.settings.factors)
        if self.settings.optimizer == "adam":
            factors["step"] = self.steps + 1  # its corrections depend on it
        name = self.settings.network, self.settings.batch, self.engine == "cpu", self.settings.optimizer
        return step.cached(*name, tuple(sorted(factors.items())))

    def _average(self, graph: Graph) -> None:
        """Moves the running means and variances of batch norm towards those of the batch."""
        for name, *_ in running_names(graph):
            value = self._session.fetch(name.removeprefix(RUNNING)).astype(np.float64)
            if name.endswith("invstd"):
                value = np.maximum(value**-2 - EPS, 0)  # the variance
            self._running[name] += (MOMENTUM * (value - self._running[name])).astype(np.float32)

    def _first_not_finite(self, graph: Graph) -> str:
        """Returns a sentence about the first tensor of the step, in the order of its nodes, that is not finite."""
        for node in graph.nodes:
            for name in node.tensors.values():
                values = self._session.fetch(name)
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    return tr(
                        "step {step}: {tensor} of {node} is no finite number; a smaller learning rate may help",
                        step=self.steps, tensor=name, node=node.name,
                    )  # fmt: skip
        return tr("step {step}: the loss is no finite number", step=self.steps)


def continued(settings: Settings, state: State, **changes: Any) -> Training:
    """Returns a training that goes on from a state, with other settings if they are given: a smaller rate, say."""
    return Training(replace(settings, **changes), state=state)
