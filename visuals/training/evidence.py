"""What is known of a training step: its plan, its times measured here or recorded, and the sentences about them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from kernels.i18n import decimal, mark, tr, trn
from kernels.model.row import Json
from kernels.training.graph import ACTIVATION, BACKWARD, FORWARD, GRADIENT, PHASES, STATE, WEIGHT
from kernels.training.held import Held
from kernels.training.loop import KEPT
from kernels.training.networks import NETWORKS
from kernels.training.step import PLAIN, Memory
from visuals import units
from visuals.training import recorded
from visuals.training.plan import NAMES, ROLES, WORKSPACE, Plan, held, plan

FAMILIES = {  # the kernels of a step in families, by ladder
    "conv": mark("convolution, forward"),
    "conv-dinput": mark("convolution, gradient of the input"),
    "conv-dweight": mark("convolution, gradient of the filters"),
    "linear": mark("fully connected, forward"),
    "linear-dinput": mark("fully connected, gradient of the input"),
    "linear-dweight": mark("fully connected, gradient of the weights"),
    "batch-norm": mark("batch norm, forward"),
    "batch-norm-backward": mark("batch norm, backward"),
    "max-pool": mark("pooling"),
    "max-pool-backward": mark("pooling"),
    "global-avg-pool": mark("pooling"),
    "global-avg-pool-backward": mark("pooling"),
    "relu": mark("ReLU"),
    "relu-backward": mark("ReLU"),
    "residual": mark("residual sum"),
    "bias-backward": mark("gradient of the biases"),
    "cross-entropy": mark("loss"),
    "cross-entropy-backward": mark("loss"),
    "add": mark("sums"),
    "bias": mark("sums"),
    "layer-norm": mark("layer norm"),
    "layer-norm-backward": mark("layer norm"),
    "split-heads": mark("rows split into heads"),
    "merge-heads": mark("rows split into heads"),
    "attention-lse": mark("attention, forward"),
    "attention-backward": mark("attention, backward"),
    "sgd": mark("update of the weights"),
    "adam": mark("update of the weights"),
}


RECORDED = ("one_by_one", "graph", "eager", "gain")  # the fields of `facts` that need a record


@dataclass(frozen=True)
class Measured:
    """What was measured of a step on this machine: ms of each node and of the step, the device, the bytes of each node by
    role (None: not measured)."""

    node_ms: Mapping[str, float]
    step_ms: float
    device: str
    held: Held | None = None


@dataclass(frozen=True)
class StepEvidence:
    """A step of a network at a batch size, and its times if there are any."""

    network: str
    batch: int
    optimizer: str
    measured: Measured | None = None
    memory: Memory = PLAIN

    @cached_property
    def plan(self) -> Plan:
        return plan(self.network, self.batch, self.optimizer, self.memory)

    @cached_property
    def record(self) -> recorded.Row | None:
        return recorded.recorded(self.network, self.batch, self.optimizer, self.memory)

    @property
    def title(self) -> str:
        return tr(NETWORKS[self.network].title)

    @property
    def shape_text(self) -> str:
        return trn("{n} image per step", "{n} images per step", self.batch)

    @property
    def kind(self) -> str:
        """Returns the kind of the times: "measured" here, else "recorded"; "" if there are none."""
        return "measured" if self.measured else "recorded" if recorded.node_ms(self.record) else ""

    @cached_property
    def node_ms(self) -> Mapping[str, float]:
        """Returns the ms of each node that was timed, measured here or else recorded."""
        return self.measured.node_ms if self.measured else recorded.node_ms(self.record)

    @cached_property
    def held(self) -> Held:
        """Returns the measured bytes of each node by role, from the source of `node_ms`; {} if there are none."""
        if self.measured:
            return self.measured.held or {}
        return {name: tuple(sizes) for name, sizes in ((self.record or {}).get("held") or {}).items()}

    @cached_property
    def step_ms(self) -> float | None:
        if self.measured:
            return self.measured.step_ms
        us = (self.record or {}).get("graph_us") or (self.record or {}).get("one_by_one_us")
        return us / 1e3 if us else None

    @property
    def badge(self) -> dict[str, str] | None:
        if self.measured:
            return {"kind": "measured", "text": " · ".join((tr("measured here"), self.measured.device))}
        if self.step_ms is None or self.record is None:
            return None
        parts = (tr("recorded"), str(self.record["device"]).removeprefix("NVIDIA "))
        return {"kind": "recorded", "text": " · ".join(parts)}

    # -- shares --------------------------------------------------------------------------------------
    def by_phase(self) -> dict[str, float]:
        """Returns the share of each phase in the time of all kernels; {} without times."""
        return self._shares(lambda node: node.phase, PHASES)

    def by_family(self) -> dict[str, float]:
        """Returns the share of each family of kernels, largest first; {} without times."""
        found = self._shares(lambda node: tr(FAMILIES.get(node.rung.partition("/")[0]) or node.rung), ())
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _shares(self, key, order) -> dict[str, float]:
        if not self.node_ms:
            return {}
        sums: dict[str, float] = dict.fromkeys(order, 0.0)
        for node in self.plan.graph.nodes:
            sums[key(node)] = sums.get(key(node), 0.0) + self.node_ms.get(node.name, 0.0)
        total = sum(sums.values())
        return {name: ms / total for name, ms in sums.items()} if total else {}

    def slowest(self, count: int) -> list[tuple[str, float]]:
        """Returns the nodes that take longest, with their ms."""
        return sorted(self.node_ms.items(), key=lambda item: -item[1])[:count]

    def whole_steps(self) -> Iterator[tuple[str, float]]:
        """Yields each recorded way to run a whole step, with its ms."""
        for name, title in recorded.WHOLE.items():
            if us := (self.record or {}).get(name):
                yield tr(title), us / 1e3

    # -- memory ----------------------------------------------------------------------------------------
    def at_peak(self) -> dict[str, int]:
        return self.plan.at(self.plan.peak)

    def saved(self) -> int:
        """Returns the bytes at the peak that are saved if one layer in KEPT keeps its result and the others are computed
        again."""
        less = replace(self, memory=replace(self.memory, every=KEPT), measured=None)
        return int(self.plan.total.max() - less.plan.total.max())

    def parameters(self) -> int:
        """Returns the numbers that the network learns."""
        return sum(math.prod(v.shape) for v in self.plan.graph.views if v.of == "weights")


def facts(evidence: StepEvidence) -> dict[str, str]:
    """Returns the fields of sentences about a step; "" for what is not recorded."""
    p, memory = evidence.plan, evidence.at_peak()
    phases, total = evidence.by_phase(), int(p.total.max())
    times = dict(evidence.whole_steps())
    saved = 0 if evidence.memory.every else evidence.saved()
    found = {
        "network": evidence.title,
        "batch": units.count(evidence.batch),
        "launches": str(len(p.parts)),
        "nodes": str(len(p.graph.nodes)),
        "forward": str(p.launches(FORWARD)),
        "backward": str(p.launches(BACKWARD)),
        "peak": units.bytes_(total),
        "peak_node": p.node(p.peak).name,
        "peak_launch": str(p.peak + 1),
        "peak_role": tr(NAMES[largest_role(evidence)]),
        "peak_share": units.share(memory[largest_role(evidence)] / total),
        "peak_activations": units.bytes_(memory[ACTIVATION]),
        "peak_gradients": units.bytes_(memory[GRADIENT]),
        "peak_weights": units.bytes_(memory[WEIGHT]),
        "last": units.bytes_(int(p.total[-1])),
        "held": units.bytes_(sum(held(p.graph).values())),
        "saved": units.bytes_(saved) if saved > 0 else "",
        "activations": units.bytes_(p.largest(ACTIVATION)),
        "weights": units.bytes_(p.largest(WEIGHT)),
        "state": units.bytes_(p.largest(STATE)),
        "state_times": decimal(f"{p.largest(STATE) / p.largest(WEIGHT):g}"),
        "gradients": units.bytes_(p.largest(GRADIENT)),
        "parameters": units.count(evidence.parameters()),
        "backward_share": units.share(phases[BACKWARD]) if phases else "",
        "one_by_one": "",
        "graph": "",
        "eager": "",
        "gain": "",
    }
    for name, key in (("one_by_one", "one_by_one_us"), ("graph", "graph_us"), ("eager", "eager_us")):
        title = tr(recorded.WHOLE[key])
        found[name] = units.time_(times[title]) if title in times else ""
    if found["one_by_one"] and found["graph"] and evidence.record:
        found["gain"] = units.ratio(evidence.record["one_by_one_us"] / evidence.record["graph_us"])
    return found


def largest_role(evidence: StepEvidence) -> str:
    """Returns the role with the most bytes at the peak."""
    memory = evidence.at_peak()
    return max(ROLES, key=memory.__getitem__)


def as_rows(evidence: StepEvidence) -> list[Json]:
    """Returns a row for each node: name, rung, phase, launches, ms if it was timed."""
    counts = dict.fromkeys((n for n, _ in enumerate(evidence.plan.graph.nodes)), 0)
    for part in evidence.plan.parts:
        counts[part.node] += 1
    return [
        {
            "node": node.name,
            "rung": node.rung,
            "phase": node.phase,
            "launches": counts[n],
            "ms": evidence.node_ms.get(node.name),
        }
        for n, node in enumerate(evidence.plan.graph.nodes)
    ]


__all__ = ["WORKSPACE", "Measured", "StepEvidence", "as_rows", "facts", "largest_role"]
