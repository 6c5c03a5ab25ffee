"""The strip under a parallel step: its time on one GPU and on several, memory of a GPU, where the time goes, and the efficiency up
to 10,000 GPUs."""

from __future__ import annotations

from math import log

from kernels.i18n import decimal, mark, tr
from kernels.model.row import Json
from kernels.parallel import links
from kernels.parallel import timeline as timelines
from kernels.parallel.check import Check
from kernels.parallel.plan import PIPELINES
from kernels.parallel.timeline import LINK
from kernels.training.graph import BACKWARD, FORWARD, UPDATE
from visuals import units
from visuals.parallel import recorded
from visuals.parallel.evidence import CURVE_GPUS, FAR, SHOWN_GPUS, ParallelEvidence
from visuals.strip.strip import Run
from visuals.training.plan import FAINT, HUES, NAMES, ROLES

TOPOLOGIES = {links.NODES: ("output", mark("nodes of 8")), links.FLAT: ("write", mark("one ring"))}


KINDS = {"measured": mark("measured here"), "recorded": mark("recorded"), "predicted": mark("predicted")}


def strip(evidence: ParallelEvidence, checked: Check | None = None, run: Run | None = None, label: str = "") -> Json:
    """Returns the strip as data for the player. `checked`: what a comparison on this processor found. `run` and `label`: of the
    button, which compares without them."""
    run, label = run or Run(), label or tr("Compare")
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
        "run": {
            "can": run.can,
            "running": run.running,
            "share": run.share,
            "text": _checked_text(checked) or run.text,
            "error": run.error,
            "label": tr("Stop") if run.running else label,
        },
        "texts": {"put": "", "ask": tr("The figures come after your guess."), "reveal": tr("Show them")},
    }


def _checked_text(checked: Check | None) -> str:
    """Returns what a comparison found, in a few words; "" without one."""
    if checked is None:
        return ""
    if checked.parts_error == 0:
        return tr("a step in parts, bit by bit")
    error = checked.error if checked.right or checked.parts_error is None else checked.parts_error
    return tr("equal within {error}", error=decimal(f"{error:.1g}"))


def _shape(evidence: ParallelEvidence) -> str:
    return tr("{batch} images on {gpus} GPUs", batch=units.count(evidence.plan.batch), gpus=evidence.plan.gpus)


def time(evidence: ParallelEvidence) -> Json:
    """Returns the time of the step, recorded or else predicted, and those of the same step on other numbers of GPUs."""
    found = {n: evidence.with_gpus(n) for n in SHOWN_GPUS}
    us = {n: step_us(each) for n, each in found.items() if each}
    found[1] = evidence.on_one  # the plain step
    us[1] = step_us(found[1])
    longest = max(us.values())
    return {
        "value": units.time_(step_us(evidence) / 1e3),
        "badge": _badge(evidence),
        "name": tr("One step of {network}, {way}", network=evidence.title, way=evidence.way),
        "text": _time_text(evidence),
        "bars": [
            {
                "title": tr("{n} GPU", n=n) if n == 1 else tr("{n} GPUs", n=n),
                "share": t / longest,
                "text": _time_of(t, found[n], evidence),
                "current": n == evidence.plan.gpus,
                "hint": _hint(found[n]),
            }
            for n, t in us.items()
        ],
    }


def _badge(evidence: ParallelEvidence) -> dict[str, str]:
    """Returns the kind of the step's time and the GPU that it is of."""
    text, row = tr(KINDS[evidence.kind]), evidence.record
    if row:
        text = tr("{kind} · {device}", kind=text, device=str(row["device"]).removeprefix("NVIDIA "))
    return {"kind": evidence.kind, "text": text}


def step_us(evidence: ParallelEvidence) -> float:
    """Returns the microseconds of a step: measured here or recorded, else predicted."""
    return evidence.record["step_us"] if evidence.record else evidence.timeline.total


def _time_of(us: float, bar: ParallelEvidence | None, shown: ParallelEvidence) -> str:
    """Returns a time, with its kind if it is not that of the step shown."""
    text, kind = units.time_(us / 1e3), bar.kind if bar else "predicted"
    return text if kind == shown.kind else tr("{time}, {kind}", time=text, kind=tr(KINDS[kind]))


def _hint(evidence: ParallelEvidence | None) -> str:
    """Returns whether a time was measured here, is recorded or predicted, and the GPU that it is of."""
    return _badge(evidence)["text"] if evidence else tr(KINDS["predicted"])


def _time_text(evidence: ParallelEvidence) -> str:
    fields = {"efficiency": units.share(timelines.efficiency(evidence.plan)), "one": units.time_(evidence.one_us / 1e3)}
    one = evidence.on_one
    if evidence.record and one.record and evidence.record["device"] == one.record["device"]:
        us = one.record["step_us"]
        fields["one"] = units.time_(us / 1e3)
        measured = units.share(us / (evidence.plan.gpus * evidence.record["step_us"]))
        if evidence.kind == "measured":
            return tr(
                "Measured efficiency {measured}, predicted {efficiency} (strong scaling): one GPU takes {one}.",
                measured=measured,
                **fields,
            )
        return tr(
            "Recorded efficiency {measured}, predicted {efficiency} (strong scaling): one GPU takes {one}.",
            measured=measured,
            **fields,
        )
    if not recorded.rows():
        return tr(
            "Predicted efficiency {efficiency} (strong scaling): one GPU is predicted to take {one}. On several GPUs it is not recorded yet.",
            **fields,
        )
    return tr("Predicted efficiency {efficiency} (strong scaling): one GPU is predicted to take {one}.", **fields)


def memory(evidence: ParallelEvidence) -> Json:
    """Returns the bytes at the peak of the fullest GPU by role, and one sentence."""
    holding = evidence.holdings[evidence.fullest]
    sizes, total = holding.peak.nbytes, holding.peak.total
    return {
        "title": tr("Memory of GPU {n}", n=evidence.fullest + 1),
        "secret": True,
        "badge": {"kind": "predicted", "text": tr("predicted {bytes}", bytes=units.bytes_(total))},
        "parts": [
            {
                "role": HUES[r],
                "label": tr(NAMES[r]),
                "text": units.bytes_(sizes[r]),
                "share": sizes[r] / total,
                "faint": r in FAINT,
            }
            for r in ROLES
            if sizes[r]
        ],
        "text": tr("At its peak. One GPU alone would need {bytes}.", bytes=units.bytes_(evidence.alone.peak.total)),
    }


def shares(evidence: ParallelEvidence) -> Json:
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
        "rows": [
            {"label": name, "share": share, "text": units.share(share), "main": share == most} for name, share in rows
        ],
        "text": _shares_text(evidence),
    }


def _shares_text(evidence: ParallelEvidence) -> str:
    line = evidence.timeline
    if evidence.plan.way in PIPELINES:
        return tr("All GPUs together are idle for {idle} of the step.", idle=units.share(line.bubble))
    if not line.busy(0, LINK):
        return tr("One GPU sends nothing.")
    return tr("{hidden} of its communication runs while it computes.", hidden=units.share(line.hidden))


def curve(evidence: ParallelEvidence) -> Json:
    """Returns the predicted efficiency of data parallel over the number of GPUs, each with as many images as here."""
    plan = evidence.plan
    images = max(1, plan.batch // plan.gpus)
    lines = [
        {
            "role": role,
            "name": tr(name),
            "points": [[round(log(n) / log(FAR), 4), round(evidence.weak(n, topology), 4)] for n in CURVE_GPUS],
        }
        for topology, (role, name) in TOPOLOGIES.items()
    ]
    return {
        "title": tr("Efficiency"),
        "badge": {"kind": "predicted", "text": tr("predicted")},
        "lines": lines,
        "top": "",
        "right": decimal("100 %"),
        "first": "1",
        "epochs": tr("{n} GPUs", n=units.whole(FAR)),
        "text": tr("Data parallel, {images} images on each GPU (weak scaling).", images=units.count(images)),
        "kind": "secret",  # a chapter asks for it
        "error": "",
        "aria": tr(
            "At {far} GPUs: {nodes} by nodes of 8, {flat} in one ring.",
            far=units.whole(FAR),
            nodes=units.share(evidence.weak(FAR)),
            flat=units.share(evidence.weak(FAR, links.FLAT)),
        ),
    }
