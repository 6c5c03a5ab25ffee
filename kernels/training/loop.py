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
from kernels.i18n import decimal, tr
from kernels.ladders import ladder_of
from kernels.model.program import Program, RefusedError, RuleError
from kernels.norm.shape import EPS
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.accumulate import of_first_part
from kernels.training.digits import Digits, load
from kernels.training.graph import Graph
from kernels.training.inference import MOMENTUM, RUNNING, predicted, running_names
from kernels.training.networks import IMAGE, NETWORKS
from kernels.training.step import PLAIN, Memory

LOSS = "loss"
KEPT = 3  # the layer in so many that keeps its result, where a message says what computing again would save


@dataclass(frozen=True)
class Settings:
    """What is trained: a network, the images of a step, the optimiser with its factors by name, the seed of the first
    weights and of the order of the images, how a step saves memory. RuleError names the rule that one breaks."""

    network: str
    batch: int = 32
    optimizer: str = "sgd"
    factors: Mapping[str, float] = field(default_factory=lambda: {"lr": 0.05})
    seed: int = 0
    memory: Memory = PLAIN

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


def step_of(settings: Settings, steps: int, engine: str) -> tuple[Graph, Program]:
    """Returns the graph and the program of the step after so many. RuleError names a setting that breaks a rule."""
    first = step.cached(
        settings.network,
        settings.batch,
        cpu=engine == "cpu",
        optimizer=settings.optimizer,
        factors=tuple(sorted(settings.factors.items())),
        memory=settings.memory,
    )
    return step.at(*first, steps + 1) if settings.optimizer == "adam" else first


class Training:
    """A network in training on one engine, from the first weights or from a state."""

    def __init__(self, settings: Settings, engine: str = "cpu", state: State | None = None):
        self.settings, self.engine = settings, engine
        self.images, self.test = load(NETWORKS[settings.network].size)
        if not 1 <= settings.batch <= len(self.images):
            rule = tr("batch must be in {low} .. {high}, got {got}", low=1, high=len(self.images), got=settings.batch)
            raise RuleError(rule)
        self.steps = state.steps if state else 0
        graph, program = self._step()
        self._check_memory(program)
        first = step.inputs(graph, *self._batch(0), settings.seed)
        self._running = {name: np.full(shape, fill, np.float32) for name, shape, fill in running_names(graph)}
        if state:
            first |= {name: a for name, a in state.arrays.items() if name in first}
            self._running |= {name: np.array(a) for name, a in state.arrays.items() if name in self._running}
        self._first = first
        self._session: Any = None
        self._before: Mapping[str, np.ndarray] = {}  # weights and state before the last step

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

    def next_step(self) -> tuple[Graph, Program]:
        return self._step()

    def next_inputs(self) -> dict[str, np.ndarray]:
        """Returns every input of the next step, as copies."""
        images, labels = self._batch(self.steps)
        found = self._session.fetch if self._session else self._first.__getitem__
        kept = {name: np.array(found(name)) for name in self._first}
        return kept | {IMAGE: images, step.LABELS: labels}

    # -- one step --------------------------------------------------------------------------------------
    def _next(self) -> Point:
        images, labels = self._batch(self.steps)
        graph, program = self._step()
        self._before = self.state().arrays
        if self._session is None:
            self._session = engines.load(self.engine).open(program, self._first | {IMAGE: images, step.LABELS: labels})
            self._session.verify_run()
        else:
            self._session.put({IMAGE: images, step.LABELS: labels})
            self._session.replay(program)
        loss = float(np.mean(self._session.fetch(LOSS)))
        self.steps += 1
        if not math.isfinite(loss):
            raise Diverged(self._first_not_finite(graph, images, labels))
        self._average(graph)
        return Point(self.steps, (self.steps - 1) // self.steps_per_epoch, loss)

    def _batch(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the images and labels of step n, counted from 0."""
        epoch, at = divmod(n, self.steps_per_epoch)
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.images))
        chosen = order[at * self.settings.batch : (at + 1) * self.settings.batch]
        return np.ascontiguousarray(self.images.images[chosen]), self.images.labels[chosen]

    def _step(self) -> tuple[Graph, Program]:
        return step_of(self.settings, self.steps, self.engine)

    def _check_memory(self, program: Program) -> None:
        """RuleError names the bytes if a step needs more memory than this machine has free, and what would help."""
        free, settings = engines.load(self.engine).free_bytes(), self.settings
        if (needed := program.nbytes()) <= free:
            return
        rule = tr(
            "a step needs {needed} MB of memory, {free} MB are free",
            needed=decimal(f"{needed / 1e6:,.0f}"),
            free=decimal(f"{free / 1e6:,.0f}"),
        )
        if not settings.memory.every:
            less = replace(settings, memory=replace(settings.memory, every=KEPT))
            saved = step_of(less, self.steps, self.engine)[1].nbytes()
            rule += tr(
                "; with activations computed again, {saved} MB less", saved=decimal(f"{(needed - saved) / 1e6:,.0f}")
            )
        raise RefusedError(rule)

    def _average(self, graph: Graph) -> None:
        """Moves the running means and variances of batch norm towards those of the batch."""
        for tensor in step.statistics(graph):
            name = RUNNING + of_first_part(tensor)
            value = self._session.fetch(tensor).astype(np.float64)
            if name.endswith("invstd"):
                value = np.maximum(value**-2 - EPS, 0)  # the variance
            self._running[name] += (MOMENTUM * (value - self._running[name])).astype(np.float32)

    def _first_not_finite(self, graph: Graph, images: np.ndarray, labels: np.ndarray) -> str:
        """Returns a sentence about the first tensor, in the order of the nodes, that is not finite. The step runs again from
        the weights before it, up to the update, with memory of its own for each tensor."""
        whole = replace(graph, nodes=tuple(n for n in graph.nodes if n.phase != graphs.UPDATE))
        given = self._first | {**self._before} | {IMAGE: images, step.LABELS: labels}
        session = engines.load(self.engine).open(graphs.program(whole, ladder_of), given)
        session.verify_run()
        for node in whole.nodes:
            for name in node.tensors.values():
                values = session.fetch(name)
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    return tr(
                        "step {step}: {tensor} of {node} is no finite number; a smaller learning rate may help",
                        step=self.steps,
                        tensor=name,
                        node=node.name,
                    )
        return tr("step {step}: the loss is no finite number", step=self.steps)


def continued(settings: Settings, state: State, **changes: Any) -> Training:
    """Returns a training that goes on from a state, with other settings if they are given: a smaller rate, say."""
    return Training(replace(settings, **changes), state=state)
