"""Training: steps of a network over the images of an epoch in random order, on the processor or on a GPU.

A run is a generator, so a caller can stop it after any step. Its state can be kept and continued.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels import engines
from kernels.i18n import tr
from kernels.model.program import RuleError
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.digits import Digits, load
from kernels.training.networks import IMAGE, NETWORKS

ENGINES = ("cpu", "cuda")


@dataclass(frozen=True)
class Settings:
    """What is trained: a network, the images of a step, the optimiser and its factors by name, the seed of the first
    weights and of the order of the images."""

    network: str
    batch: int = 32
    optimizer: str = "sgd"
    factors: Mapping[str, float] = field(default_factory=lambda: {"lr": 0.05})
    seed: int = 0

    def __post_init__(self):
        if self.network not in NETWORKS:
            raise RuleError(tr("network must be one of {names}, got {got}", names=", ".join(NETWORKS), got=self.network))
        if self.optimizer not in step.OPTIMIZERS:
            names = ", ".join(step.OPTIMIZERS)
            raise RuleError(tr("optimizer must be one of {names}, got {got}", names=names, got=self.optimizer))


@dataclass
class State:
    """What a training step changes: the number of steps taken, the weights, the optimiser's arrays."""

    steps: int
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class Point:
    """A step's number (from 1), its epoch (from 0) and the mean loss of its images before the update."""

    step: int
    epoch: int
    loss: float


class Diverged(RuleError):
    """A loss, or a tensor of a step, that is no finite number."""


class Training:
    """A network in training on one engine."""

    def __init__(self, settings: Settings, engine: str = "cpu", state: State | None = None):
        self.settings, self.engine = settings, engine
        self.training, self.test = load(NETWORKS[settings.network].size)
        if not 1 <= settings.batch <= len(self.training):
            raise RuleError(
                tr("batch must be in {low} .. {high}, got {got}", low=1, high=len(self.training), got=settings.batch)
            )
        self.steps = state.steps if state else 0
        graph, _ = self._step()
        first = step.inputs(graph, *self._images(np.arange(settings.batch)), settings.seed)
        self._arrays = first | (state.arrays if state else {})
        self._session: Any = None
        self._program: Any = None

    @property
    def steps_per_epoch(self) -> int:
        """Returns the steps of an epoch. Images that fill no batch are left out; the next epoch has another order."""
        return len(self.training) // self.settings.batch

    def run(self, epochs: int) -> Iterator[Point]:
        """Yields each step until `epochs` are complete. Diverged names the first tensor that is not finite."""
        while self.steps < epochs * self.steps_per_epoch:
            yield self._next()

    def state(self) -> State:
        """Returns what is needed to continue later, as copies."""
        if self._session:
            self._keep()
        changed = [t.name for t in self._step()[0].tensors.values() if t.kind in (graphs.WEIGHT, graphs.STATE)]
        return State(self.steps, {name: np.array(self._arrays[name]) for name in changed})

    def accuracy(self, digits: Digits | None = None) -> float:
        """Returns the share of images (the test images) whose largest result is at their label, computed by the forward
        pass of a step; batch norm uses the statistics of the batch."""
        from kernels.training.inference import predicted

        digits = digits or self.test
        weights = self.state().arrays["weights"]
        return float(np.mean(predicted(self.settings.network, weights, digits.images) == digits.labels))

    def close(self) -> None:
        if self._session:
            self._session.close()
            self._session = None

    # -- one step --------------------------------------------------------------------------------------
    def _next(self) -> Point:
        epoch, at = divmod(self.steps, self.steps_per_epoch)
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.training))
        chosen = order[at * self.settings.batch : (at + 1) * self.settings.batch]
        images, labels = self._images(chosen)
        loss = self._stepped({IMAGE: images, step.LABELS: labels})
        self.steps += 1
        if not math.isfinite(loss):
            raise Diverged(self._first_not_finite())
        return Point(self.steps, epoch, loss)

    def _images(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(self.training.images[chosen]), self.training.labels[chosen]

    def _step(self):
        factors = dict(self.settings.factors)
        if self.settings.optimizer == "adam":
            factors["step"] = self.steps + 1  # its corrections depend on it
        return step.cached(
            self.settings.network, self.settings.batch, self.engine == "cpu", self.settings.optimizer,
            tuple(sorted(factors.items())),
        )  # fmt: skip

    def _stepped(self, changed: Mapping[str, np.ndarray]) -> float:
        """Runs one step and returns its mean loss."""
        self._arrays |= changed
        _, program = self._step()
        if self._session is None or program is not self._program:
            if self._session:
                self._keep()
                self._session.close()
            self._session = engines.load(self.engine).open(program, self._arrays)
            self._program = program
            self._session.verify_run()
        else:
            self._session.put(changed)
            self._session.run_once()
        return float(np.mean(self._session.fetch("loss")))

    def _keep(self) -> None:
        """Reads weights and state back from the session."""
        for b in self._program.in_place:
            self._arrays[b.name] = np.array(self._session.fetch(b.name))

    def _first_not_finite(self) -> str:
        """Returns a sentence about the first tensor of the step, in the order of its nodes, that is not finite."""
        for node in self._step()[0].nodes:
            for name in node.tensors.values():
                values = self._session.fetch(name)
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    return tr(
                        "step {step}: {tensor} of {layer} is no finite number; a smaller learning rate may help",
                        step=self.steps, tensor=name, layer=node.layer,
                    )  # fmt: skip
        return tr("step {step}: the loss is no finite number", step=self.steps)
