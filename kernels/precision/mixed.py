"""Training the digits in a format with fewer bits: values rounded after each kernel, sums in FP32, weights kept in FP32 or not.

No kernel here computes in FP16. Each kernel's results are rounded to the format once they are stored, as a kernel with
FP16 tensors and FP32 sums would store them.
Source: Micikevicius et al., arXiv 1710.03740 (master weights, loss scaling).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kernels.engines import cpu
from kernels.ladders import ladder_of
from kernels.model.program import Program
from kernels.precision.formats import FP16, FP32, Format, rounded
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.digits import load
from kernels.training.graph import UPDATE, Graph, node_program
from kernels.training.inference import outputs
from kernels.training.networks import IMAGE, NETWORKS


@dataclass(frozen=True)
class Scaling:
    """The factor of the loss. With `growth` 0 it is static.

    Otherwise it is dynamic: halved after a step whose gradients overflow, whose update is skipped; doubled after `growth`
    steps without an overflow.
    """

    first: float = 1.0
    growth: int = 0

    @property
    def dynamic(self) -> bool:
        return self.growth > 0


@dataclass(frozen=True)
class Run:
    """A training run: the format of activations, gradients and the copy of the weights that is computed with.

    `master`: whether updates are added to weights in FP32. `terms`: the loss is a mean over so many values for each
    image, a power of two, and the rate is as many times larger. In FP32 that changes no bit of the weights.
    `batch`, `rate` and `network` as in kernels.training; the optimiser is SGD with momentum.
    """

    format: Format = FP32
    scaling: Scaling = field(default_factory=Scaling)
    master: bool = True
    network: str = "lenet5"
    batch: int = 50
    rate: float = 0.05
    terms: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Point:
    """One step: its loss (unscaled), the scale it used, whether its update was skipped, and the share of the gradients of
    weights that are 0."""

    loss: float
    scale: float
    skipped: bool
    zeros: float


def to_format(x: np.ndarray, f: Format) -> None:
    """Rounds a float32 array in place to a format."""
    if f is FP32:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        x[...] = x.astype(np.float16) if f is FP16 else rounded(x, f)


class MixedTraining:
    """A run in progress on the processor. `weights` and `gradients` (unscaled) are those of the last step."""

    def __init__(self, run: Run):
        self.run, self.scale, self.good, self.steps = run, run.scaling.first, 0, 0
        self.images, self.test = load(NETWORKS[run.network].size)
        self.graph = step.build(NETWORKS[run.network], run.batch, step.ON_CPU, "sgd", lr=run.rate * run.terms)
        program = graphs.program(self.graph, ladder_of)  # each tensor keeps its memory: all are read after a step
        images, labels = self._batch(0)
        first = step.inputs(self.graph, images, labels, run.seed)
        self.session = cpu.open(program, first)
        self.session.verify_run()  # allocates; its update is undone
        for name in (step.WEIGHTS, *(t.name for t in self.graph.of_kind("state"))):
            self.session.fetch(name)[...] = first[name]
        self._parts = list(_parts(self.graph, program))
        views = [view for view in self.graph.views if view.of == step.GRADIENTS]  # without the gaps between them
        self._of_weights = [self.session.fetch(view.name) for view in views]
        if not run.master:
            to_format(self.weights, run.format)

    @property
    def weights(self) -> np.ndarray:
        return self.session.fetch(step.WEIGHTS)

    @property
    def gradients(self) -> np.ndarray:
        return self.session.fetch(step.GRADIENTS)

    def next(self) -> Point:
        """Trains one step and returns it."""
        images, labels = self._batch(self.steps)
        scale = self.scale
        self.session.put({IMAGE: images, step.LABELS: labels})
        self.session.fetch(step.FACTOR)[...] = scale / (self.run.batch * self.run.terms)
        with np.errstate(all="ignore"):  # what overflows is seen in the gradients
            self._forward_and_backward()
            loss = float(np.mean(self.session.fetch("loss"), dtype=np.float64))
            zeros = self._zeros()
            self.gradients[...] /= np.float32(scale)
            finite = all(np.isfinite(part).all() for part in self._of_weights)
            skipped = self.run.scaling.dynamic and not finite
            if not skipped:
                self.session.execute(self._parts[-1][0])
                if not self.run.master:
                    to_format(self.weights, self.run.format)
        self._rescale(finite)
        self.steps += 1
        return Point(loss, scale, skipped, zeros)

    def accuracy(self) -> float:
        """Returns the share of test images whose largest output is that of their label, with weights as they are stored."""
        weights = np.array(self.weights)
        to_format(weights, self.run.format)
        found = outputs(self.run.network, {step.WEIGHTS: weights}, self.test.images)
        return float(np.mean(found.argmax(axis=1) == self.test.labels))

    def tensor(self, name: str) -> np.ndarray:
        """Returns a tensor of the last step, such as "d conv1.w"; gradients of activations are still scaled."""
        return self.session.fetch(name)

    # -- one step --------------------------------------------------------------------------------------
    def _forward_and_backward(self) -> None:
        master = np.array(self.weights)
        to_format(self.weights, self.run.format)
        for program, results in self._parts[:-1]:
            self.session.execute(program)
            for name in results:
                to_format(self.session.fetch(name), self.run.format)
        self.weights[...] = master

    def _zeros(self) -> float:
        parts = self._of_weights
        return sum(int((part == 0).sum()) for part in parts) / sum(part.size for part in parts)

    def _rescale(self, finite: bool) -> None:
        if not self.run.scaling.dynamic:
            return
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.scale /= 2
        elif self.good == self.run.scaling.growth:
            self.scale, self.good = 2 * self.scale, 0

    def _batch(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the images and labels of step n, in the order of kernels.training.loop."""
        per_epoch = len(self.images) // self.run.batch
        epoch, at = divmod(n, per_epoch)
        order = np.random.default_rng((self.run.seed, epoch)).permutation(len(self.images))
        chosen = order[at * self.run.batch : (at + 1) * self.run.batch]
        return np.ascontiguousarray(self.images.images[chosen]), self.images.labels[chosen]


def _parts(graph: Graph, program: Program) -> Iterator[tuple[Program, tuple[str, ...]]]:
    """Yields the program of each node and the float32 tensors that it stores, the update last."""
    at = 0
    for node in graph.nodes:
        built = node_program(node, ladder_of)
        stored = tuple(
            node.tensors[b.name]
            for b in built.outputs
            if b.name in node.tensors and b.dtype == "float32" and node.tensors[b.name] != "loss"
        )
        steps = program.steps[at : at + len(built.steps)]
        at += len(built.steps)
        yield replace(program, steps=steps), () if node.phase == UPDATE else stored
