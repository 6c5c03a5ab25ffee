"""Tensor and pipeline parallel training on the GPUs of one process: the step of kernels.parallel.tensor and pipeline there.

Tensor parallel: each GPU runs its step as one CUDA graph, in which NCCL adds the split sums. Pipeline: each turn of a stage is
a CUDA graph. Tensors go to the next stage by a copy from one GPU's memory to the other's, on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kernels.i18n import tr
from kernels.ladders import ladder_of
from kernels.model.program import RuleError, View
from kernels.parallel import pipeline, tensor
from kernels.parallel.devices import DifferentError, Ranks, Replicas, Team
from kernels.parallel.pipeline import Turn
from kernels.parallel.plan import DATA, PIPELINES, TENSOR, Plan
from kernels.parallel.rank import part_of, ranges_of, written
from kernels.parallel.timeline import stages_of
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.graph import STATE, UPDATE, Graph, node_program
from kernels.training.memory import packed
from kernels.training.step import GRADIENTS, WEIGHTS

if TYPE_CHECKING:
    import cupy

Call = Callable[[], None]
RUNNABLE = (DATA, TENSOR, *PIPELINES)  # the ways that run on GPUs


def open_step(
    plan: Plan,
    team: Team,
    images: np.ndarray,
    labels: np.ndarray,
    overlap: bool = True,
    seed: int = 0,
    **factors: float,
) -> Ranks:
    """Returns a plan's step on the GPUs of a team. RuleError if its way runs on a processor only."""
    if plan.way == DATA:
        return Replicas(plan, team, images, labels, overlap, seed, **factors)
    if plan.way == TENSOR:
        return TensorRanks(plan, team, images, labels, seed, **factors)
    if plan.way in PIPELINES:
        return PipelineRanks(plan, team, images, labels, seed, **factors)
    rule = tr("{way} runs on a processor only; on GPUs run: {known}", way=plan.way, known=", ".join(RUNNABLE))
    raise RuleError(rule)


def _check_team(plan: Plan, team: Team) -> None:
    if plan.gpus != team.gpus:
        raise RuleError(tr("the plan has {gpus} GPUs, {there} are open", gpus=plan.gpus, there=team.gpus))


def _ends(graph: Graph) -> dict[str, tuple[int, int]]:
    """Returns the launches of each node, the first and the one after the last."""
    found, at = {}, 0
    for node in graph.nodes:
        count = len(node_program(node, ladder_of).steps)
        found[node.name] = at, at + count
        at += count
    return found


def _weights(graph: Graph) -> list[View]:
    return [view for view in graph.views if view.of == WEIGHTS]


# -- tensor parallel -----------------------------------------------------------------------------------
class TensorRanks(Ranks):
    """A network whose large layers are divided over the GPUs of a team. Every GPU sees all images."""

    def __init__(self, plan: Plan, team: Team, images: np.ndarray, labels: np.ndarray, seed: int = 0, **factors: float):
        super().__init__(team)
        _check_team(plan, team)
        self.plan = plan
        self.graph = step.build(plan.layers, plan.batch, step.ON_GPU, plan.optimizer, **factors)
        self._part = tensor.rank_graph(plan, step.ON_GPU, **factors)
        program = packed(graphs.program(self._part, ladder_of), step.statistics(self._part))
        first = step.inputs(self._part, images, labels, seed)
        for rank in range(plan.gpus):
            self._add(program, first | {WEIGHTS: self._cut(rank, seed)})
        self._sums = self._exchanges() if team.nccl else {}
        self._run_once()
        self._graphs = [self._captured(rank, list(self._calls(rank))) for rank in range(plan.gpus)]
        self.reset()

    def _cut(self, rank: int, seed: int) -> np.ndarray:
        """Returns a rank's weights: parts of those of the whole network."""
        whole, found = step.first_weights(self.graph, seed), step.first_weights(self._part, seed)
        for mine, all_ in zip(_weights(self._part), _weights(self.graph), strict=True):
            mine.cut(found)[...] = tensor.cut(self.plan, all_.name, all_.cut(whole), rank)
        return found

    def _exchanges(self) -> dict[str, tuple[Call, Callable[[int], None]]]:
        """Returns what adds the parts of a sum, by the node that computes them."""
        return {
            e.node: self.team.sums([each.arrays[e.tensor] for each in self._memories])
            for e in tensor.exchanges(self.plan, self._part)
        }

    def _run_once(self) -> None:
        """Runs every launch and every all-reduce once: kernels are loaded, NCCL has connected the GPUs."""
        self._load_kernels()
        for all_ranks, _ in self._sums.values():
            all_ranks()
        self.team.wait()

    def _calls(self, rank: int) -> Iterator[Call]:
        """Yields the launches of a rank and its parts of the all-reduces, in order."""
        memory, ends = self._memories[rank], _ends(self._part)
        for node in self._part.nodes:
            if node.phase == UPDATE and rank:
                yield from self._clears(rank)
            yield from memory.calls[slice(*ends[node.name])]
            if node.name in self._sums:
                yield lambda part=self._sums[node.name][1]: part(rank)

    def _clears(self, rank: int) -> Iterator[Call]:
        """Yields what clears the gradients of weights that rank 0 alone holds."""
        for view in self._part.views:
            if view.of == GRADIENTS and tensor.is_only_on_first(self.plan, view.name.removeprefix("d ")):
                array = self._memories[rank].arrays[view.name]
                yield lambda array=array: self.team.devices.fill(rank, array, 0)

    def step(self) -> None:
        for rank, graph in enumerate(self._graphs):
            self._launch(rank, graph)

    def weights(self) -> list[np.ndarray]:
        """Returns the weights joined from all GPUs. DifferentError if a weight that all of them hold differs in any bit."""
        self.team.wait()
        flat = [self.team.get(rank, each.arrays[WEIGHTS]) for rank, each in enumerate(self._memories)]
        joined = np.zeros(self.graph.tensors[WEIGHTS].shape, np.float32)
        for mine, whole in zip(_weights(self._part), _weights(self.graph), strict=True):
            parts = [mine.cut(each) for each in flat]
            self._check_held_by_all(whole.name, parts)
            whole.cut(joined)[...] = tensor.join(self.plan, whole.name, parts)
        return [joined]

    def _check_held_by_all(self, weight: str, parts: list[np.ndarray]) -> None:
        held = tensor.split_of(self.plan, weight) == tensor.WHOLE
        if not held or tensor.is_only_on_first(self.plan, weight):
            return
        for rank, part in enumerate(parts):
            if not np.array_equal(parts[0], part):
                raise DifferentError(tr("{name} on GPU {rank} differs from GPU 0", name=weight, rank=rank))

    def close(self) -> None:
        super().close()
        self._graphs.clear()
        self._sums.clear()


# -- pipelines -----------------------------------------------------------------------------------------
class PipelineRanks(Ranks):
    """A network whose layers are divided over the GPUs of a team. The images come in micro-batches."""

    def __init__(self, plan: Plan, team: Team, images: np.ndarray, labels: np.ndarray, seed: int = 0, **factors: float):
        super().__init__(team)
        _check_team(plan, team)
        self.plan = plan
        self.stages = stages_of(plan, **factors)
        self.graph = self.stages.graph
        inputs = step.inputs(self.graph, images, labels, seed)
        for stage in range(plan.gpus):
            part = part_of(self.graph, self.stages.order(plan.way, stage, plan.micro))
            self._add(graphs.program(part, ladder_of), self._held(stage, inputs))
        self._order = list(self._turns())
        self._done = {(n, turn): team.event(n) for n, turn in self._order}  # by the stage and turn that compute
        self._sent = {(n, turn): {} for n, turn in self._order}  # events by the GPU that sends
        for n, turn in self._order:
            for source, _ in self._messages(n, turn):
                self._sent[n, turn].setdefault(source, team.event(source))
        self._plans = [(n, turn, list(self._messages(n, turn))) for n, turn in self._order]
        self._load_kernels()
        self._capture()
        self.reset()

    def _held(self, stage: int, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the inputs of a stage: NaN in place of weights and state of other stages."""
        given = dict(inputs)
        for name in (WEIGHTS, *(t.name for t in self.graph.of_kind(STATE))):
            given[name] = np.full_like(inputs[name], np.nan)
            for first, stop in ranges_of(self.graph, self.stages.weights(stage)):
                given[name][first:stop] = inputs[name][first:stop]
        return given

    def _turns(self) -> Iterator[tuple[int, Turn]]:
        """Yields all turns of all stages, each after those that compute what it receives."""
        plan, done = self.plan, set()
        todo = [list(pipeline.turns(plan.way, plan.gpus, n, plan.micro)) for n in range(plan.gpus)]
        while any(todo):
            ready = [n for n, own in enumerate(todo) if own and done.issuperset(self.stages.received(n, own[0]))]
            for n in ready:
                turn = todo[n].pop(0)
                done.update(t for node in self.stages.nodes(n, turn) for t in written(node))
                yield n, turn

    def _messages(self, stage: int, turn: Turn) -> Iterator[tuple[int, tuple[str, Turn]]]:
        """Yields the stage that computes each tensor that a turn receives, the tensor and the turn that computes it."""
        for name in self.stages.received(stage, turn):
            yield self.stages.writers[name], (name, Turn(self.stages.phase_of(name), turn.micro))

    def _calls(self, stage: int, nodes: list) -> list[Call]:
        part = part_of(self.graph, self.stages.order(self.plan.way, stage, self.plan.micro))
        ends = _ends(part)
        return [call for node in nodes for call in self._memories[stage].calls[slice(*ends[node.name])]]

    def _capture(self) -> None:
        self._graphs = {
            (n, turn): self._captured(n, self._calls(n, self.stages.nodes(n, turn))) for n, turn in self._order
        }
        self._updates = [self._captured(n, self._calls(n, [self.stages.update])) for n in range(self.plan.gpus)]

    def step(self) -> None:
        """Queues one step on all GPUs, turn by turn."""
        for n, turn, messages in self._plans:
            for source, (name, made) in messages:
                self._send(source, n, name, self._done[source, made])
            self._receive(n, turn)
            self._launch(n, self._graphs[n, turn])
            with self.team.devices.on(n) as stream:
                self._done[n, turn].record(stream)
        for n, graph in enumerate(self._updates):
            self._launch(n, graph)

    def _send(self, source: int, target: int, name: str, done: cupy.cuda.Event) -> None:
        """Queues the copy of a tensor behind the turn that computes it."""
        with self.team.links.on(source) as stream:
            stream.wait_event(done)
        arrays = (self._memories[n].arrays[name] for n in (target, source))
        to, what = (array.reshape(-1) for array in arrays)
        self.team.links.copy(to, target, what, source)

    def _receive(self, stage: int, turn: Turn) -> None:
        """Lets a stage wait for the copies that were queued for its turn."""
        for source, event in self._sent[stage, turn].items():
            with self.team.links.on(source) as stream:
                event.record(stream)
            with self.team.devices.on(stage) as stream:
                stream.wait_event(event)

    def weights(self) -> list[np.ndarray]:
        """Returns the weights joined from all stages."""
        self.team.wait()
        joined = np.zeros(self.graph.tensors[WEIGHTS].shape, np.float32)
        for n, each in enumerate(self._memories):
            mine = self.team.get(n, each.arrays[WEIGHTS])
            for first, stop in ranges_of(self.graph, self.stages.weights(n)):
                joined[first:stop] = mine[first:stop]
        return [joined]

    def close(self) -> None:
        super().close()
        self._graphs.clear()
        self._updates.clear()
