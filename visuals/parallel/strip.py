"""The strip under a parallel step: its time on one GPU and on several, memory of a GPU, where the time goes, and the efficiency up
to 10,000 GPUs."""

from __future__ import annotations

from math import log
from typing import Any

from kernels.i18n import decimal, mark, tr
from kernels.parallel import links
from kernels.parallel import timeline as timelines
from kernels.parallel.check import Check
from kernels.parallel.plan import DATA, PIPELINES
from kernels.parallel.timeline import LINK
from kernels.training.graph import BACKWARD, FORWARD, UPDATE
from visuals import units
from visuals.parallel import recorded
from visuals.parallel.evidence import CURVE_GPUS, FAR, SHOWN_GPUS, ParallelEvidence
from visuals.training.plan import FAINT, HUES, NAMES, ROLES

TOPOLOGIES = {links.NODES: ("output", mark("nodes of 8")), links.FLAT: ("write", mark("one ring"))}


def strip(evidence: ParallelEvidence, checked: Check | None = None) -> dict[str, Any]:
    """Returns the strip as data for the player. `checked`: what a comparison on this processor found."""
    size = {
        "key": "stage",
        "label": _shape(evidence),
        "shape": _shape(evidence),
        "stale": "",
        "canPut": False,
        "time": time(evidence),
        "memory": memory(evidence),
        "limits": shares(evidence),
        "curve": curve(evidence),
    }
    return {
        "sizes": [size],
        "selected": "stage",
        "run": {"can": True, "running": False, "share": 0.0, "text": _checked_text(checked), "error": "", "label": tr("Compare")},
        "texts": {"put": "", "ask": tr("The figures come after your guess."), "reveal": tr("Show them")},
    }  # fmt: skip


def _checked_text(checked: Check | None) -> str:
    """Returns what a comparison found, in a few words; "" without one."""
    if checked is None:
        return ""
    if checked.parts_error == 0:
        return tr("a step in parts, bit by bit")
    error = checked.error if checked.right or checked.parts_error is None else checked.parts_error
    return tr("equal within {error}", error=decimal(f"{error:.1g}"))


def _shape(evidence: ParallelEvidence) -> str:
    return tr("{batch} images on {gpus} GPUs", batch=units.count(evidence.plan.batch), gpus=evidence.plan.gpus)  # fmt: skip


def time(evidence: ParallelEvidence) -> dict[str, Any]:
    """Returns the time of the step, recorded or else predicted, and those of the same step on other numbers of GPUs."""
    found = {n: evidence.with_gpus(n) for n in SHOWN_GPUS}
    us = {n: step_us(each) for n, each in found.items() if each}
    if evidence.plan.way != DATA:
        us[1] = evidence.one_us  # of the plain step
    longest = max(us.values())
    row = evidence.record
    kind = (
        {
            "kind": "recorded",
            "text": tr("recorded · {device}", device=str(row["device"]).removeprefix("NVIDIA ")),
        }
        if row
        else {"kind": "predicted", "text": tr("predicted")}
    )
    return {
        "value": units.time_(step_us(evidence) / 1e3),
        "badge": kind,
        "name": tr("One step of {network}, {way}", network=evidence.title, way=evidence.way),
        "text": _time_text(evidence),
        "bars": [
            {"title": tr("{n} GPU", n=n) if n == 1 else tr("{n} GPUs", n=n), "share": t / longest, "text": units.time_(t / 1e3), "current": n == evidence.plan.gpus, "hint": _hint(found[n])}
            for n, t in us.items()
        ],
    }  # fmt: skip


def step_us(evidence: ParallelEvidence) -> float:
    """Returns the microseconds of a step: recorded, else predicted."""
    return evidence.record["step_us"] if evidence.record else evidence.timeline.total


def _hint(evidence: ParallelEvidence | None) -> str:
    """Returns whether a time is recorded or predicted."""
    return tr("recorded") if evidence and evidence.record else tr("predicted")


def _time_text(evidence: ParallelEvidence) -> str:
    fields = {
        "efficiency": units.share(timelines.efficiency(evidence.plan)),
        "one": units.time_(evidence.one_us / 1e3),
    }
    one = evidence.with_gpus(1)
    if evidence.record and one and one.record:
        us = one.record["step_us"]
        measured = units.share(us / (evidence.plan.gpus * evidence.record["step_us"]))
        return tr("Recorded efficiency {measured}, predicted {efficiency}: one GPU takes {one}.", measured=measured, **fields | {"one": units.time_(us / 1e3)})  # fmt: skip
    if not recorded.rows():
        return tr("Efficiency {efficiency}: one GPU takes {one}. On several GPUs it is not recorded yet.", **fields)  # fmt: skip
    return tr("Predicted efficiency {efficiency}: one GPU takes {one}.", **fields)


def memory(evidence: ParallelEvidence) -> dict[str, Any]:
    """Returns the bytes at the peak of the fullest GPU by role, and one sentence."""
    holding = evidence.holdings[evidence.fullest]
    sizes, total = holding.peak.nbytes, holding.peak.total
    return {
        "title": tr("Memory of GPU {n}", n=evidence.fullest + 1),
        "secret": True,
        "badge": {"kind": "predicted", "text": tr("predicted {bytes}", bytes=units.bytes_(total))},
        "parts": [
            {"role": HUES[r], "label": tr(NAMES[r]), "text": units.bytes_(sizes[r]), "share": sizes[r] / total, "faint": r in FAINT}
            for r in ROLES if sizes[r]
        ],
        "text": tr("At its peak. One GPU alone would need {bytes}.", bytes=units.bytes_(evidence.alone.peak.total)),
    }  # fmt: skip


def shares(evidence: ParallelEvidence) -> dict[str, Any]:
    """Returns the shares of the step on the first GPU: computing by phase, and idle."""
    line = evidence.timeline
    rows = [
        (tr("forward"), line.busy(0, kinds=(FORWARD,)) / line.total),
        (tr("backward"), line.busy(0, kinds=(BACKWARD,)) / line.total),
        (tr("update"), line.busy(0, kinds=(UPDATE,)) / line.total),
        (tr("idle"), max(0.0, line.idle(0))),
    ]
    most = max(share for _, share in rows)
    return {
        "title": tr("Where the time of GPU 1 goes"),
        "rows": [{"label": name, "share": share, "text": units.share(share), "main": share == most} for name, share in rows],
        "text": _shares_text(evidence),
    }  # fmt: skip


def _shares_text(evidence: ParallelEvidence) -> str:
    line = evidence.timeline
    if evidence.plan.way in PIPELINES:
        return tr("All GPUs together are idle for {idle} of the step.", idle=units.share(line.bubble))
    if not line.busy(0, LINK):
        return tr("One GPU sends nothing.")
    return tr("{hidden} of its communication runs while it computes.", hidden=units.share(line.hidden))


def curve(evidence: ParallelEvidence) -> dict[str, Any]:
    """Returns the predicted efficiency of data parallel over the number of GPUs, each with as many images as here."""
    plan = evidence.plan
    images = max(1, plan.batch // plan.gpus)
    lines = [
        {"role": role, "name": tr(name), "points": [[round(log(n) / log(FAR), 4), round(evidence.weak(n, topology), 4)] for n in CURVE_GPUS]}
        for topology, (role, name) in TOPOLOGIES.items()
    ]  # fmt: skip
    return {
        "title": tr("Efficiency"),
        "badge": {"kind": "predicted", "text": tr("predicted")},
        "lines": lines,
        "top": "",
        "right": decimal("100 %"),
        "first": "1",
        "epochs": tr("{n} GPUs", n=units.whole(FAR)),
        "text": tr("Data parallel, {images} images on each GPU.", images=units.count(images)),
        "kind": "secret",  # a chapter asks for it
        "error": "",
        "aria": tr(
            "At {far} GPUs: {nodes} by nodes of 8, {flat} in one ring.",
            far=units.whole(FAR), nodes=units.share(evidence.weak(FAR)), flat=units.share(evidence.weak(FAR, links.FLAT)),
        ),
    }  # fmt: skip
