"""An episode of training: the steps of a second or two, as one request to the process that runs kernels.

A training is many episodes. Each begins with the state in which the last one ended, so other runs have their turn in
between, a stop loses nothing, and the steps are bit for bit those of one long run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import ThreadpoolController

from kernels.activity import NODES, TRAINING
from kernels.engines import cpu
from kernels.jobs.job import Part, Rows, packed
from kernels.ladders import ladder_of
from kernels.model.program import Program
from kernels.model.row import Json, Row
from kernels.training.graph import Graph, node_program
from kernels.training.held import held
from kernels.training.loop import Diverged, Settings, State, Training

EPISODE_S = 1.5
PART_S = 0.15  # between two parts
ROUNDS = 5  # of the times of the nodes


@dataclass(frozen=True)
class Episode:
    """Steps from a state (None: the first weights) until `epochs` are complete or `seconds` have passed.

    timed: also measure the time and the memory of each node of the step, before the first step.
    """

    CACHED = False  # a result holds the state: half a megabyte

    settings: Settings
    epochs: int
    state: State | None = None
    timed: bool = False
    seconds: float = EPISODE_S

    @property
    def label(self) -> str:
        return f"training {self.settings.network}"

    @property
    def shape(self) -> str:
        return f"{self.settings.network} with {self.settings.batch} images per step"

    def key(self) -> Hashable:
        """Returns a key that is equal for equal requests; states are compared by content."""
        return "train", repr(self.settings), self.epochs, self.timed, self.seconds, _digest(self.state)

    def packed(self) -> bytes:
        return packed(self)


def _digest(state: State | None) -> str:
    if state is None:
        return ""
    found = hashlib.sha256(str(state.steps).encode())
    for name, array in sorted(state.arrays.items()):
        found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def train(request: Episode, progress: Callable[[float, str], None], part: Part = lambda part: None) -> Rows:
    """Returns one row: the points of this episode, the state in which the next one begins, and what it took.

    points: (step, loss) of each step. accuracy: (step, share of the test images that are recognised), of the first weights
    and at the end of each epoch. diverged: why it cannot go on; then the state is that before this episode. node_ms: the
    median time of each node on one thread, if it was measured. held: the bytes of each node by role, likewise. Parts hold the points since the last part.
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"):  # the matrices are small: more threads only wait
        return [_train(request, progress, part)]


def _train(request: Episode, progress: Callable[[float, str], None], part: Part) -> Json:
    """Returns the row of an episode."""
    training = Training(request.settings, "cpu", request.state)
    row: Row = {"points": [], "accuracy": [], "diverged": "", "node_ms": None, "step_ms": None, "held": None}
    if request.timed:
        progress(0.0, NODES)
        row |= times(training)
    started, busy = time.perf_counter(), time.process_time()
    if not training.steps:
        row["accuracy"].append((0, training.accuracy()))
    try:
        _steps(request, training, row, progress, part)
    except Diverged as error:
        row["diverged"] = str(error)
    row |= {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - busy}
    row["state"] = request.state if row["diverged"] else training.state()
    row["done"] = training.steps >= request.epochs * training.steps_per_epoch
    training.close()
    return row


def _steps(request: Episode, training: Training, row: Row, progress, part) -> None:
    """Adds each step to the row until the episode is over, and sends parts."""
    total = request.epochs * training.steps_per_epoch
    end = time.perf_counter() + request.seconds
    sent, at = time.perf_counter(), 0
    for point in training.run(request.epochs):
        row["points"].append((point.step, point.loss))
        if point.step % training.steps_per_epoch == 0:
            row["accuracy"].append((point.step, training.accuracy()))
        now = time.perf_counter()
        if now - sent >= PART_S:
            progress(point.step / total, TRAINING.replace("{step}", str(point.step)))
            part({"points": row["points"][at:]})
            sent, at = now, len(row["points"])
        if now >= end:
            return


def times(training: Training) -> Json:
    """Returns the median time in ms of each node of the step, by name, their sum, and the memory of each node by role, on
    copies of the arrays."""
    graph, program = training.next_step()
    inputs = training.next_inputs()
    memory = held(graph, inputs, training.engine)  # before a session overwrites the weights
    assert training.engine == "cpu"
    session = cpu.open(program, inputs)
    session.verify_run()
    samples = np.empty((ROUNDS, len(program.steps)))
    for n in range(ROUNDS):
        for k, step in enumerate(program.steps):
            start = time.perf_counter()
            session.run_step(step)
            samples[n, k] = (time.perf_counter() - start) * 1e3
    session.close()
    nodes = by_node(graph, program, np.median(samples, axis=0))
    return {"node_ms": nodes, "step_ms": sum(nodes.values()), "held": memory}


def by_node(graph: Graph, program: Program, steps: np.ndarray) -> dict[str, float]:
    """Returns the sum over each node's steps of one number per step of the program."""
    counts = [len(node_program(node, ladder_of).steps) for node in graph.nodes]
    if sum(counts) != len(program.steps):
        raise ValueError(f"{len(program.steps)} steps for nodes of {sum(counts)}")
    ends = np.cumsum(counts)
    return {
        node.name: float(steps[end - count : end].sum())
        for node, count, end in zip(graph.nodes, counts, ends, strict=True)
    }
