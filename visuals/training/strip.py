"""The strip under a training step: its time, its memory by role, where the time goes, and how the network learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernels.i18n import decimal, tr, trn
from kernels.model.row import Json, Row
from visuals import units
from visuals.strip.curve import loss_text, shares, smooth, thinned
from visuals.training import recorded
from visuals.training.evidence import StepEvidence, largest_role
from visuals.training.graph_words import PHASES
from visuals.training.plan import FAINT, HUES, NAMES, ROLES

BARS = 4


@dataclass(frozen=True)
class Curve:
    """How a training went: (step, loss) and (step, share recognised), the steps of an epoch and the epochs of the axis."""

    points: Sequence[tuple[int, float]] = ()
    accuracy: Sequence[tuple[int, float]] = ()
    steps_per_epoch: int = 1
    epochs: int = 1
    text: str = ""
    badge: dict[str, str] | None = None
    stale: bool = False
    error: str = ""


@dataclass(frozen=True)
class Run:
    """The state of the button."""

    running: bool = False
    can: bool = True
    share: float = 0.0
    text: str = ""
    error: str = ""
    label: str = ""
    others: Mapping[str, str] = field(default_factory=dict)


def strip(evidence: StepEvidence, curve: Curve | None, run: Run) -> Json:
    """Returns the strip as data for the player. `curve` None leaves the curve out."""
    size = {
        "key": "stage",
        "label": evidence.shape_text,
        "shape": evidence.shape_text,
        "stale": "",
        "canPut": False,
        "time": time(evidence),
        "memory": memory(evidence),
        "limits": phases(evidence),
    }
    if curve:
        size["curve"] = curve_part(evidence, curve)
    return {
        "sizes": [size],
        "selected": "stage",
        "run": {
            "can": run.can,
            "running": run.running,
            "share": run.share,
            "text": run.text,
            "error": run.error,
            "label": run.label,
        },
        "texts": {"put": "", "ask": tr("The figures come after your guess."), "reveal": tr("Show them")},
    }


def time(evidence: StepEvidence) -> Json:
    """Returns the time of the step and of its slowest kernels, or why there is none."""
    bars = list(evidence.whole_steps()) if not evidence.measured else []
    shown = tr(recorded.WHOLE["graph_us"]) if bars else ""
    bars = (bars or evidence.slowest(BARS))[:BARS]
    longest = max((ms for _, ms in bars), default=1.0)
    return {
        "value": units.time_(evidence.step_ms) if evidence.step_ms else "–",
        "badge": evidence.badge,
        "name": tr("One step of {network}", network=evidence.title),
        "text": _time_text(evidence),
        "bars": [
            {
                "title": name,
                "share": ms / longest,
                "text": units.time_(ms),
                "current": name == shown if shown else n == 0,
            }
            for n, (name, ms) in enumerate(bars)
        ],
    }


def _time_text(evidence: StepEvidence) -> str:
    if evidence.step_ms is None:
        return tr("Not recorded yet. Training measures it on this processor.")
    if evidence.measured:
        name, ms = evidence.slowest(1)[0]
        share = units.share(ms / sum(evidence.node_ms.values()))
        return tr("{node} takes {share} of it, the most.", node=name, share=share)
    return (
        tr("As one CUDA graph.")
        if evidence.record and evidence.record.get("graph_us")
        else tr("Its launches one by one.")
    )


def memory(evidence: StepEvidence) -> Json:
    """Returns the bytes at the peak by role, and one sentence."""
    sizes, p = evidence.at_peak(), evidence.plan
    total = sum(sizes.values())
    role = largest_role(evidence)
    return {
        "title": tr("Peak memory"),
        "secret": True,  # until a chapter's question is answered: most of them ask for it
        "badge": _peak_badge(evidence, total),
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
        "text": tr(
            "Launch {n} of {all}, {node}: the {role} are {share} of the peak.",
            n=p.peak + 1,
            all=len(p.parts),
            node=p.node(p.peak).name,
            role=tr(NAMES[role]),
            share=units.share(sizes[role] / total),
        ),
    }


def _peak_badge(evidence: StepEvidence, predicted: int) -> dict[str, str]:
    """Returns the peak that was recorded on a GPU, else the predicted one."""
    peak = (evidence.record or {}).get("peak_bytes")
    if peak:
        return {"kind": "recorded", "text": tr("recorded peak {bytes}", bytes=units.bytes_(peak))}
    return {"kind": "predicted", "text": tr("predicted {bytes}", bytes=units.bytes_(predicted))}


def phases(evidence: StepEvidence) -> Json:
    """Returns the share of each phase in the time of all kernels, and what launches one by one add to it on a GPU."""
    found = evidence.by_phase()
    rows = [
        {
            "label": tr(title),
            "share": found.get(phase),
            "text": units.share(found[phase]) if found else "–",
            "main": bool(found) and found[phase] == max(found.values()),
        }
        for phase, title in PHASES.items()
    ]
    text = " ".join(filter(None, (_phase_text(found), _launching_text(evidence))))
    return {"title": tr("Where the time goes"), "rows": rows, "text": text}


def _launching_text(evidence: StepEvidence) -> str:
    """Returns what one graph saves of the time of launches one by one; "" without both times, or if they are of another
    machine than the phases."""
    row = evidence.record or {}
    if evidence.measured or not (row.get("one_by_one_us") and row.get("graph_us")):
        return ""
    share = max(0.0, 1 - row["graph_us"] / row["one_by_one_us"])
    return tr("One graph saves {share} of the time of launches one by one.", share=units.share(share))


def _phase_text(found: Mapping[str, float]) -> str:
    if not found:
        return tr("Unknown until it is measured.")
    forward, backward, _ = found.values()
    return tr("The way back takes {ratio} times as long as the way forward.", ratio=units.ratio(backward / forward))


# -- the curve -----------------------------------------------------------------------------------------
def curve_part(evidence: StepEvidence, curve: Curve) -> Json:
    """Returns loss and accuracy as points between 0 and 1, beside the recorded ones if there are any."""
    steps = max(1, curve.epochs * curve.steps_per_epoch)
    other = recorded.curve(evidence.network)
    losses = [loss for _, loss in curve.points] + [loss for _, loss in _recorded(other, "loss")]
    top = max([2.5, *(loss for loss in losses[:400] if loss < 10)])
    lines = [
        {"role": "write", "name": tr("loss"), "points": shares(thinned(smooth(curve.points)), steps, top)},
        {"role": "output", "name": tr("accuracy"), "points": shares(curve.accuracy, steps, 1.0)},
    ]
    if other:
        whole = max(1, curve.epochs * other["curve"]["steps_per_epoch"])
        for name, role, highest in (("loss", "write", top), ("accuracy", "output", 1.0)):
            lines.append(
                {
                    "role": role,
                    "faint": True,
                    "name": "",
                    "points": shares(thinned(_recorded(other, name)), whole, highest),
                }
            )
    return {
        "title": tr("It learns"),
        "badge": curve.badge,
        "lines": lines,
        "top": decimal(f"{top:.2g}"),
        "right": decimal("100 %"),
        "epochs": trn("{n} epoch", "{n} epochs", curve.epochs),
        "text": " ".join(filter(None, (curve.text, _dashed(other)))),
        # classes of the page. Recorded lines alone wait for a guess: a chapter asks where they begin.
        "kind": "stale-curve" if curve.stale else "" if curve.points or curve.error else "secret",
        "error": curve.error,
        "aria": aria(curve),
    }


def _dashed(row: Row | None) -> str:
    """Returns what the dashed lines are; "" if there are none."""
    return tr("Dashed: {device}.", device=str(row["device"]).removeprefix("NVIDIA ")) if row else ""


def aria(curve: Curve) -> str:
    """Returns the curve in words."""
    if not curve.points:
        return tr("No training yet.")
    text = tr(
        "Loss {first} at step 1, {last} at step {step}.",
        first=loss_text(curve.points[0][1]),
        last=loss_text(curve.points[-1][1]),
        step=curve.points[-1][0],
    )
    if curve.accuracy:
        text += " " + tr("Accuracy {share}.", share=units.share(curve.accuracy[-1][1]))
    return text


def _recorded(row: Row | None, name: str) -> list[tuple[int, float]]:
    return [tuple(pair) for pair in row["curve"].get(name, ())] if row else []
