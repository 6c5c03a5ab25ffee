"""What is known of a parallel step: its predicted timeline, what each GPU holds, recorded times; and the sentences about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kernels.i18n import tr
from kernels.model.row import Row
from kernels.parallel import data, links, memory, pipeline, tensor, times
from kernels.parallel import timeline as timelines
from kernels.parallel.memory import Holding
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, PIPELINES, TENSOR, WAYS, ZERO_3, Plan
from kernels.parallel.timeline import COMPUTE, LINK, Timeline
from kernels.training.graph import ACTIVATION, BACKWARD, FORWARD, GRADIENT, STATE, UPDATE, WEIGHT
from visuals import units
from visuals.parallel import recorded

FAR = 10_000  # GPUs up to which the model predicts
SHOWN_GPUS = (1, 2, 4, 8)  # of the bars
CURVE_GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, FAR)


@dataclass(frozen=True)
class ParallelEvidence:
    """A parallel step. Its times are predicted from recorded kernels unless `record` has them. measured: rows of this machine
    by their step. device: the kind of GPU of the recorded times, by default any."""

    plan: Plan
    measured: Mapping[Plan, recorded.Row] = field(default_factory=dict, compare=False)
    device: str = ""

    @cached_property
    def costs(self) -> tuple[tuple[str, float], ...]:
        return timelines.layer_costs(self.plan) if self.plan.way in PIPELINES else ()

    @cached_property
    def timeline(self) -> Timeline:
        return timelines.timeline(self.plan)

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        return memory.holdings(self.plan, self.costs)

    @cached_property
    def alone(self) -> Holding:
        """Returns what one GPU holds that runs the whole step."""
        return memory.holdings(timelines.one_gpu(self.plan))[0]

    @property
    def fullest(self) -> int:
        """Returns the first GPU, from 0, that holds the most."""
        totals = [holding.peak.total for holding in self.holdings]
        return totals.index(max(totals))

    @property
    def one_us(self) -> float:
        """Returns the predicted microseconds of the whole step on one GPU."""
        return timelines.timeline(timelines.one_gpu(self.plan)).total

    @property
    def on_one(self) -> ParallelEvidence:
        """Returns the whole step on one GPU."""
        return self._other(timelines.one_gpu(self.plan))

    def _other(self, plan: Plan) -> ParallelEvidence:
        """Returns another step, whose recorded time is of the same kind of GPU as this one's."""
        return ParallelEvidence(plan, self.measured, self.record["device"] if self.record else self.device)

    @cached_property
    def record(self) -> recorded.Row | None:
        """Returns the row that was measured here, else the recorded one, None if there is none."""
        return self.measured.get(self.plan) or recorded.recorded(self.plan, device=self.device)

    @property
    def kind(self) -> str:
        """Returns the kind of the step's time: "measured", "recorded" or "predicted"."""
        if self.plan in self.measured:
            return "measured"
        return "recorded" if self.record else "predicted"

    @property
    def row(self) -> Row | None:
        """Returns the recorded times of the kernels that the prediction is made from."""
        found = times.rows(self.plan.network)
        return found[-1] if found else None

    @property
    def title(self) -> str:
        return tr(self.plan.layers.title)

    @property
    def way(self) -> str:
        return tr(WAYS[self.plan.way])

    def with_gpus(self, gpus: int) -> ParallelEvidence | None:
        """Returns the same step on other GPUs, None if a rule forbids it."""
        try:
            return self._other(replace(self.plan, gpus=gpus))
        except ValueError:
            return None

    def held(self, role: str) -> int:
        """Returns the most bytes of a role on any GPU."""
        return max(holding.largest(role) for holding in self.holdings)

    def weak(self, gpus: int, topology: str = links.NODES) -> float:
        """Returns the predicted efficiency of data parallel on so many GPUs, each with as many images as here."""
        return timelines.weak_efficiency(self.plan, gpus, topology)


def facts(evidence: ParallelEvidence) -> dict[str, str]:
    """Returns the fields of sentences about a step; "" for what it does not have."""
    plan, line = evidence.plan, evidence.timeline
    moving, computing = line.busy(0, LINK), line.busy(0)
    found = {
        "network": evidence.title,
        "way": evidence.way,
        "gpus": units.count(plan.gpus),
        "batch": units.count(plan.batch),
        "images": units.count(plan.images),
        "micro": units.count(plan.micro),
        "time": _us(line.total),
        "one": _us(evidence.one_us),
        "speedup": units.ratio(evidence.one_us / line.total),
        "efficiency": units.share(timelines.efficiency(plan)),
        "computing": _us(computing),
        "moving": _us(moving),
        "hidden": units.share(line.hidden) if moving else "",
        "idle": units.share(line.bubble),
        "forward": _us(line.busy(0, kinds=(FORWARD,))),
        "backward": _us(line.busy(0, kinds=(BACKWARD,))),
        "update": _us(line.busy(0, kinds=(UPDATE,))),
        "device": times.device(plan.network).removeprefix("NVIDIA "),
    }
    return found | _of_memory(evidence) | _of_way(evidence) | _of_model(evidence)


def weight_gradients_us(evidence: ParallelEvidence) -> float:
    """Returns the predicted microseconds in which the first GPU computes gradients of the weights of fully connected layers."""
    plan, line = evidence.plan, evidence.timeline
    nodes = [node for n in line.of_stream(0, COMPUTE) for node in line.tasks[n].nodes]
    found = [node for node in nodes if node.rung.startswith(times.WHOLE)]
    return sum(times.node_us(plan.network, node, plan.images, plan.optimizer) for node in found)


def _us(us: float) -> str:
    return units.time_(us / 1e3)


def _of_memory(evidence: ParallelEvidence) -> dict[str, str]:
    found = {}
    names = {WEIGHT: "weights", GRADIENT: "gradients", STATE: "state", ACTIVATION: "activations"}
    for role, name in names.items():
        found[name] = units.bytes_(evidence.held(role))
        found[f"one_{name}"] = units.bytes_(evidence.alone.largest(role))
    found["peak"] = units.bytes_(evidence.holdings[evidence.fullest].peak.total)
    found["one_peak"] = units.bytes_(evidence.alone.peak.total)
    return found


def _of_way(evidence: ParallelEvidence) -> dict[str, str]:
    """Returns the fields that only some ways have."""
    plan = evidence.plan
    names = (
        "buckets",
        "bucket",
        "combined",
        "after",
        "exchanges",
        "dw",
        "one_dw",
        "stages",
        "formula",
        "in_flight",
        "gpipe_held",
        "activations_gpipe",
        "activations_1f1b",
        "bubble_1",
        "zero3_peak",
        "data_peak",
        "passes",
    )
    found = dict.fromkeys(names, "")
    if plan.way in PIPELINES:
        return found | _of_pipeline(evidence)
    if plan.way == TENSOR:
        exchanges = list(tensor.exchanges(plan, tensor.rank_graph(plan)))
        return found | {
            "exchanges": units.count(len(exchanges)),
            "dw": _us(weight_gradients_us(evidence)),
            "one_dw": _us(weight_gradients_us(evidence.on_one)),
        }
    buckets = data.buckets(data.replica(plan), plan.bucket_bytes)
    after = timelines.timeline(replace(plan, way=DATA), overlap=False)
    return found | {
        "buckets": units.count(len(buckets)),
        "bucket": units.bytes_(buckets[0].nbytes),
        "combined": units.bytes_(sum(bucket.nbytes for bucket in buckets)),
        "after": _us(after.total),
        "data_peak": units.bytes_(memory.needed(replace(plan, way=DATA))),
        "zero3_peak": units.bytes_(memory.needed(replace(plan, way=ZERO_3))),
    }


def _of_pipeline(evidence: ParallelEvidence) -> dict[str, str]:
    plan = evidence.plan
    flights = [pipeline.in_flight(plan.way, plan.gpus, n, plan.micro) for n in range(plan.gpus)]
    by_way = {way: ParallelEvidence(replace(plan, way=way)) for way in (GPIPE, ONE_F_ONE_B)}
    last = plan.gpus - 1
    return {
        "stages": units.count(plan.gpus),
        "formula": units.share(pipeline.bubble(plan.gpus, plan.micro)),
        "bubble_1": units.share(pipeline.bubble(plan.gpus, 1)),
        "in_flight": units.count(max(flights)),
        "gpipe_held": units.count(plan.micro),
        "activations_gpipe": units.bytes_(by_way[GPIPE].holdings[last].largest(ACTIVATION)),
        "activations_1f1b": units.bytes_(by_way[ONE_F_ONE_B].holdings[last].largest(ACTIVATION)),
        "passes": units.count(2 * plan.micro),
    }


def _of_model(evidence: ParallelEvidence) -> dict[str, str]:
    return {
        "far": units.whole(FAR),
        "far_flat": units.share(evidence.weak(FAR, links.FLAT)),
        "far_nodes": units.share(evidence.weak(FAR)),
        "node_efficiency": units.share(evidence.weak(links.NODE)),
        "node": units.count(links.NODE),
    }
