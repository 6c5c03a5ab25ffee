"""What each GPU holds in a parallel step: bytes by role, from the same graph and the same lifetimes as one GPU's step."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from kernels.i18n import decimal, tr
from kernels.ladders import ladder_of
from kernels.model.program import RefusedError
from kernels.parallel import data, pipeline, tensor
from kernels.parallel.plan import DATA, PIPELINES, TENSOR, ZERO_3, Plan
from kernels.parallel.rank import part_of, ranges_of
from kernels.training import graph as graphs
from kernels.training import memory as training
from kernels.training.graph import ACTIVATION, GRADIENT, STATE, WEIGHT, Graph, Node
from kernels.training.memory import Moment
from kernels.training.step import GRADIENTS, WEIGHTS

ITEM = 4
H200_BYTES = 141 * 10**9  # of HBM3e, NVIDIA's data sheet
HELD = (WEIGHT, GRADIENT, STATE, ACTIVATION)  # the roles that ways of training differ in


@dataclass(frozen=True)
class Holding:
    """What one GPU holds: its bytes during each launch of a step, and the most bytes of the gradients of weights."""

    moments: tuple[Moment, ...]
    weight_gradients: int

    @cached_property
    def peak(self) -> Moment:
        return training.peak(self.moments)

    def largest(self, role: str) -> int:
        """Returns the most bytes of a role during any launch; of GRADIENT those of the weights' gradients alone."""
        if role == GRADIENT:
            return self.weight_gradients
        return max(moment.nbytes[role] for moment in self.moments)


def holding(graph: Graph, nodes: Sequence[Node], sizes: Mapping[str, int]) -> Holding:
    """Returns what a rank holds that runs these nodes. `sizes`: the bytes of tensors of which the rank holds a part."""
    part = part_of(graph, nodes)
    found = training.timeline(part)
    kinds = {t.name: t.kind for t in part.tensors.values()}
    live = training.live_bytes(graphs.program(part, ladder_of))
    parts = {name: size for name, size in sizes.items() if name in kinds}
    less = {name: part.tensors[name].nbytes - size for name, size in parts.items()}
    result, most = [], 0
    for moment, alive in zip(found, live, strict=True):
        nbytes = dict(moment.nbytes)
        for name, n in less.items():
            if name in alive or kinds[name] in (WEIGHT, STATE):
                nbytes[kinds[name]] -= n
        most = max(most, sum(parts.get(name, n) for name, n in alive.items() if name.startswith(GRADIENTS)))
        result.append(replace(moment, nbytes=nbytes))
    return Holding(tuple(result), most)


@lru_cache(maxsize=64)
def holdings(plan: Plan, costs: tuple[tuple[str, float], ...] = ()) -> tuple[Holding, ...]:
    """Returns what each GPU holds, in order. `costs`: the time of each layer, which decides on the stages of a pipeline."""
    if plan.way in PIPELINES:
        return tuple(_stages(plan, dict(costs)))
    graph = tensor.rank_graph(plan) if plan.way == TENSOR else data.replica(plan)
    if plan.way == TENSOR:
        return (holding(graph, graph.nodes, {}),) * plan.gpus
    found = data.buckets(graph, plan.bucket_bytes)
    sizes = [_sharded(plan, graph, found, rank) for rank in range(plan.gpus)]
    different = {tuple(each.items()): each for each in sizes}
    by_sizes = {key: holding(graph, graph.nodes, each) for key, each in different.items()}
    return tuple(by_sizes[tuple(each.items())] for each in sizes)


def _sharded(plan: Plan, graph: Graph, found: Sequence[data.Bucket], rank: int) -> dict[str, int]:
    """Returns the bytes of what is sharded: the shards, and the whole of each bucket that is gathered or not yet reduced."""

    def held(whole: Collection[int] = ()) -> int:
        return ITEM * data.shard_elements(found, rank, plan.gpus, whole)

    sizes: dict[str, int] = {}
    if plan.zero >= 1:
        sizes |= {t.name: held() for t in graph.of_kind(STATE)}
    if plan.zero >= 2:
        sizes[GRADIENTS] = max(held({n}) for n in range(len(found)))
    if plan.zero >= 3:
        sizes[WEIGHTS] = max(map(held, data.Gathers(graph, found).together()))
    return sizes


def _stages(plan: Plan, costs: Mapping[str, float]):
    stages = pipeline.split(plan, costs)
    large = [t.name for t in stages.graph.tensors.values() if t.kind in (WEIGHT, STATE) or t.name.startswith(GRADIENTS)]
    for n in range(plan.gpus):
        mine = ranges_of(stages.graph, stages.weights(n))
        own = ITEM * sum(stop - first for first, stop in mine)
        nodes = stages.order(plan.way, n, plan.micro)
        yield holding(stages.graph, nodes, dict.fromkeys(large, own))


# -- is there room -------------------------------------------------------------------------------------
def needed(plan: Plan, costs: tuple[tuple[str, float], ...] = ()) -> int:
    """Returns the bytes that the fullest GPU needs."""
    return max(each.peak.total for each in holdings(plan, costs))


def check(plan: Plan, costs: tuple[tuple[str, float], ...] = (), free: int = H200_BYTES) -> None:
    """RefusedError names the bytes that a GPU needs if they are more than it has, and what would save some."""
    wanted = needed(plan, costs)
    if wanted <= free:
        return
    text = tr("a GPU needs {needed} GB, an H200 has {free} GB", needed=_gigabytes(wanted), free=_gigabytes(free))
    saving = tr(
        "sharding the weights, gradients and state saves {saved} GB a GPU", saved=_gigabytes(_saved(plan, wanted))
    )
    more = tr(
        "the activations need {bytes} GB: more GPUs or fewer images make them smaller",
        bytes=_gigabytes(_activations(plan, costs)),
    )
    parts = [text, *([saving] if _can_shard(plan) else []), more]
    raise RefusedError("; ".join(parts))


def _can_shard(plan: Plan) -> bool:
    return plan.way == DATA and plan.gpus > 1


def _saved(plan: Plan, wanted: int) -> int:
    return wanted - needed(replace(plan, way=ZERO_3)) if _can_shard(plan) else 0


def _activations(plan: Plan, costs: tuple[tuple[str, float], ...]) -> int:
    return max(each.peak.nbytes[ACTIVATION] for each in holdings(plan, costs))


def _gigabytes(count: float) -> str:
    number = count / 1e9
    digits = max(0, 2 - math.floor(math.log10(number))) if number > 0 else 0
    return decimal(f"{number:,.{min(digits, 6)}f}")
