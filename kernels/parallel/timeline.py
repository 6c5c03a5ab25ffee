"""A parallel step on a time axis: tasks on the streams of each GPU, and when each of them runs.

Each GPU has one stream that computes and one that communicates; in a pipeline it has one for messages to each other GPU. A
task starts as soon as its streams are free and the tasks that it needs are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from kernels.parallel import data, links, pipeline, tensor, times
from kernels.parallel.pipeline import Stages, Turn
from kernels.parallel.plan import PAIRS, PIPELINES, TENSOR, Plan
from kernels.training import step
from kernels.training.graph import UPDATE, Graph, Node

COMPUTE, LINK = "compute", "link"
SEND = "send"
COLLECTIVES = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)
Stream = tuple[int, str]  # a GPU, and COMPUTE, LINK or a name that begins with LINK


@dataclass(frozen=True)
class Task:
    """Something that occupies streams. `kind`: a phase, a collective or SEND. `needs`: tasks before it, by their index.
    `nodes`: those of the graph that it runs. `micro`: its micro-batch in a pipeline, from 0."""

    name: str
    kind: str
    streams: tuple[Stream, ...]
    us: float
    needs: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()
    nbytes: int = 0
    micro: int = -1

    @property
    def gpus(self) -> tuple[int, ...]:
        return tuple(gpu for gpu, _ in self.streams)


@dataclass(frozen=True)
class Timeline:
    """Tasks with their first and last microsecond. `gpus`: those whose streams are there."""

    tasks: tuple[Task, ...]
    starts: tuple[float, ...]
    gpus: int

    @cached_property
    def ends(self) -> tuple[float, ...]:
        return tuple(start + task.us for start, task in zip(self.starts, self.tasks, strict=True))

    @property
    def total(self) -> float:
        """Returns the microseconds of the step."""
        return max(self.ends)

    def of_stream(self, gpu: int, stream: str) -> list[int]:
        """Returns the tasks of a GPU's stream; of LINK those of all its streams that communicate."""
        return [
            n
            for n, task in enumerate(self.tasks)
            if any(one == gpu and own.startswith(stream) for one, own in task.streams)
        ]

    def busy(self, gpu: int, stream: str = COMPUTE, kinds: Sequence[str] = ()) -> float:
        """Returns the microseconds in which a stream is not idle, with tasks of these kinds."""
        return sum(self.tasks[n].us for n in self.of_stream(gpu, stream) if not kinds or self.tasks[n].kind in kinds)

    def idle(self, gpu: int) -> float:
        """Returns the share of the step in which a GPU computes nothing."""
        return 1 - self.busy(gpu) / self.total

    @property
    def bubble(self) -> float:
        """Returns the idle share of all GPUs together."""
        return sum(self.idle(gpu) for gpu in range(self.gpus)) / self.gpus

    @property
    def hidden(self) -> float:
        """Returns the share of GPU 0's communication during which it also computes; 0 if it sends nothing."""
        computing = [(self.starts[n], self.ends[n]) for n in self.of_stream(0, COMPUTE)]
        moving = [(self.starts[n], self.ends[n]) for n in self.of_stream(0, LINK)]
        both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in computing for b in moving)
        all_moving = sum(stop - start for start, stop in moving)
        return both / all_moving if all_moving else 0.0


def simulate(tasks: Sequence[Task], gpus: int) -> Timeline:
    """Returns when each task runs. The tasks of a stream run in the order of the list; each task comes after all that it
    needs."""
    free: dict[Stream, float] = {}
    starts: list[float] = []
    for n, task in enumerate(tasks):
        if any(need >= n for need in task.needs):
            raise ValueError(f"{task.name} comes before a task that it needs")
        waits = [free.get(stream, 0.0) for stream in task.streams]
        waits += [starts[need] + tasks[need].us for need in task.needs]
        start = max(waits, default=0.0)
        starts.append(start)
        for stream in task.streams:
            free[stream] = start + task.us
    return Timeline(tuple(tasks), tuple(starts), gpus)


# -- the tasks of a way --------------------------------------------------------------------------------
@lru_cache(maxsize=64)
def timeline(plan: Plan, topology: str = links.NODES, alone: bool = False, overlap: bool = True) -> Timeline:
    """Returns the predicted timeline of a step. KeyError if the network has no recorded times.

    `alone`: of one GPU only, if all GPUs do the same: for thousands. Without `overlap` a data parallel step combines its
    gradients after the way back.
    """
    if plan.way in PIPELINES:
        return simulate(_pipeline_tasks(plan), plan.gpus)
    shown = 1 if alone else plan.gpus
    tasks = _Tasks(plan, shown, topology)
    if plan.way == TENSOR:
        _add_tensor(tasks)
    else:
        _add_data(tasks, overlap)
    return simulate(tasks.found, shown)


@dataclass
class _Tasks:
    """The tasks so far of GPUs that all do the same."""

    plan: Plan
    shown: int
    topology: str
    found: list[Task] = field(default_factory=list)

    def compute(self, name: str, nodes: Sequence[Node], us: float, needs: Iterable[int] = ()) -> list[int]:
        """Adds a task on each GPU. Returns their indices."""
        first, more = len(self.found), tuple(needs)
        for gpu in range(self.shown):
            task = Task(name, nodes[0].phase, ((gpu, COMPUTE),), us, more, tuple(nodes))
            self.found.append(task)
        return list(range(first, len(self.found)))

    def collective(self, kind: str, name: str, nbytes: int, needs: Iterable[int]) -> int:
        """Adds one task of all GPUs. Returns its index. One GPU alone has nothing to combine."""
        us = links.collective_us(kind, self.plan.gpus, nbytes, self.topology)
        streams = tuple((gpu, LINK) for gpu in range(self.shown))
        self.found.append(Task(name, kind, streams, us, tuple(needs), nbytes=nbytes))
        return len(self.found) - 1


def groups(nodes: Sequence[Node], ends: Iterable[str] = ()) -> Iterator[list[Node]]:
    """Yields neighbours of one layer and phase together; a node named in `ends` is the last of its group."""
    stops, group = set(ends), []
    for node in nodes:
        if group and (group[-1].name in stops or (node.layer, node.phase) != (group[0].layer, group[0].phase)):
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _add_data(tasks: _Tasks, overlap: bool) -> None:
    plan, several = tasks.plan, tasks.plan.gpus > 1
    graph = data.replica(plan)
    buckets = data.buckets(graph, plan.bucket_bytes)
    last: list[int] = []
    combined: list[int] = []
    gathers = data.Gathers(graph, buckets) if plan.zero >= 3 and several else None
    kind = REDUCE_SCATTER if plan.zero >= 2 else ALL_REDUCE
    waiting: list[int] = []
    ends = [bucket.ready.name for bucket in buckets] + (_before(graph, gathers) if gathers else [])
    for group in groups(graph.nodes, ends):
        if group[0].phase == UPDATE:
            combined += [tasks.collective(kind, _bucket_name(n), buckets[n].nbytes, last) for n in waiting]
            tasks_of = tasks.compute(UPDATE, group, _us(plan, group), combined)
            if 1 <= plan.zero <= 2 and several:
                for n, bucket in enumerate(buckets):
                    tasks.collective(ALL_GATHER, _bucket_name(n), bucket.nbytes, tasks_of)
            continue
        needs = []
        for n in gathers.before.get(group[0].name, ()) if gathers else ():
            needs.append(tasks.collective(ALL_GATHER, _bucket_name(n), buckets[n].nbytes, last))
        last = tasks.compute(group[0].layer, group, _us(plan, group), needs)
        for n, bucket in enumerate(buckets):
            if several and bucket.ready is group[-1]:
                if overlap:
                    combined.append(tasks.collective(kind, _bucket_name(n), bucket.nbytes, last))
                else:
                    waiting.append(n)


def _bucket_name(n: int) -> str:
    return f"bucket {n + 1}"


def _before(graph: Graph, gathers: data.Gathers) -> list[str]:
    """Returns the nodes after which a bucket of weights is gathered."""
    order = [node.name for node in graph.nodes]
    return [order[order.index(name) - 1] for name in gathers.before if order.index(name)]


def _us(plan: Plan, nodes: Sequence[Node]) -> float:
    return sum(times.node_us(plan.network, node, plan.images, plan.optimizer) for node in nodes)


# -- tensor parallel -----------------------------------------------------------------------------------
def _add_tensor(tasks: _Tasks) -> None:
    plan = tasks.plan
    graph = tensor.rank_graph(plan)
    split = _split_layers(plan)
    after = {e.node: e for e in tensor.exchanges(plan, graph)} if plan.gpus > 1 else {}
    needs: list[int] = []
    for group in groups(graph.nodes, after):
        us = sum(
            times.node_us(plan.network, node, plan.images, plan.optimizer, _share(plan, node, split)) for node in group
        )
        done = tasks.compute(group[0].layer if group[0].phase != UPDATE else UPDATE, group, us, needs)
        exchange = after.get(group[-1].name)
        needs = [tasks.collective(ALL_REDUCE, exchange.tensor, exchange.nbytes, done)] if exchange else []


def _share(plan: Plan, node: Node, split: set[str]) -> float:
    """Returns the part of a node's work that one GPU does."""
    whole = node.layer not in split or node.rung.startswith(times.WHOLE)
    return 1.0 if whole else 1 / plan.gpus


def _split_layers(plan: Plan) -> set[str]:
    """Returns the layers of which each GPU computes a part: both of each pair and what is between them."""
    names = [layer.name for layer in plan.layers.layers]
    return {name for column, row in PAIRS[plan.network] for name in names[names.index(column) : names.index(row) + 1]}


# -- pipelines -----------------------------------------------------------------------------------------
@lru_cache(maxsize=64)
def layer_costs(plan: Plan) -> tuple[tuple[str, float], ...]:
    """Returns the predicted microseconds of each layer, forward and back, for the images of a micro-batch."""
    images = plan.batch // plan.micro
    one = replace(plan, way="data", gpus=1, batch=images, micro=1)
    found = {layer.name: 0.0 for layer in plan.layers.layers}
    for node in data.replica(one).nodes:
        layer = node.layer if node.layer in found else list(found)[-1]  # the loss is the last stage's
        if node.phase != UPDATE:
            found[layer] += times.node_us(plan.network, node, images, plan.optimizer)
    return tuple(found.items())


def stages_of(plan: Plan, **factors: float) -> Stages:
    """Returns the stages of a pipeline, balanced by the predicted times. `factors` are those of the optimiser."""
    return pipeline.split(plan, dict(layer_costs(plan)), step.ON_GPU, **factors)


def _pipeline_tasks(plan: Plan) -> list[Task]:
    stages = stages_of(plan)
    todo = [list(pipeline.turns(plan.way, plan.gpus, n, plan.micro)) for n in range(plan.gpus)]
    found: list[Task] = []
    done: dict[tuple[int, Turn], int] = {}
    sends: dict[tuple[int, int, Turn], int] = {}  # from, to, the turn that receives
    while any(todo):
        progress = False
        for n, own in enumerate(todo):
            while own and _add_turn(plan, stages, n, own[0], found, done, sends):
                own.pop(0)
                progress = True
        if not progress:
            raise RuntimeError("each stage of the pipeline waits for another")
    for n in range(plan.gpus):
        us = _us(plan, [stages.update])
        found.append(Task(UPDATE, UPDATE, ((n, COMPUTE),), us, nodes=(stages.update,)))
    return found


def _add_turn(plan, stages: Stages, n: int, turn: Turn, found: list[Task], done: dict, sends: dict) -> bool:
    """Adds a turn of a stage and the messages that it waits for. Returns False if one is not computed yet."""
    senders: dict[int, list[str]] = {}
    for name in stages.received(n, turn):
        senders.setdefault(stages.writers[name], []).append(name)
    needs = []
    for source, names in senders.items():
        turns = [Turn(phase, turn.micro) for phase in _phases(stages, source, names)]
        if any((source, each) not in done for each in turns):
            return False
        if (source, n, turn) not in sends:
            nbytes = sum(_message_bytes(stages, name) for name in names)
            after = tuple(done[source, each] for each in turns)
            sends[source, n, turn] = len(found)
            found.append(
                Task(
                    f"{source} → {n}",
                    SEND,
                    ((source, f"{LINK} to {n}"),),
                    links.send_us(nbytes),
                    after,
                    nbytes=nbytes,
                    micro=turn.micro,
                )
            )
        needs.append(sends[source, n, turn])
    nodes = stages.nodes(n, turn)
    done[n, turn] = len(found)
    found.append(
        Task(
            str(turn.micro + 1),
            turn.phase,
            ((n, COMPUTE),),
            _us(plan, nodes),
            tuple(needs),
            tuple(nodes),
            micro=turn.micro,
        )
    )
    return True


def _phases(stages: Stages, stage: int, names: Sequence[str]) -> list[str]:
    """Returns the passes of a stage that compute these tensors."""
    return sorted({stages.phase_of(name) for name in names})


def _message_bytes(stages: Stages, name: str) -> int:
    return stages.graph.tensors[name].nbytes


# -- what follows ----------------------------------------------------------------------------------------
def one_gpu(plan: Plan) -> Plan:
    """Returns the same step on one GPU."""
    return replace(plan, way="data", gpus=1, micro=1)


def efficiency(plan: Plan) -> float:
    """Returns the time of one GPU for the whole step, over the GPUs and their time."""
    return timeline(one_gpu(plan)).total / (plan.gpus * timeline(plan).total)


@lru_cache(maxsize=512)
def weak_efficiency(plan: Plan, gpus: int, topology: str = links.NODES) -> float:
    """Returns how long one GPU takes for its images, over the data parallel step on so many GPUs with as many images each."""
    images = max(1, plan.batch // plan.gpus)
    one = Plan(plan.network, "data", 1, images, 1, plan.bucket_bytes, plan.optimizer)
    many = replace(one, gpus=gpus, batch=images * gpus)
    return timeline(one, alone=True).total / timeline(many, topology, alone=True).total
