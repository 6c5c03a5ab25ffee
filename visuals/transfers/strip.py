"""The strip under a transfer program: its total beside its rivals', its memory, which queue is busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernels.i18n import mark, tr
from kernels.model.row import Json
from kernels.transfers.operations import COMPUTE, HOST, IN, OUT
from kernels.transfers.scenarios import SHORT, WIDTH
from visuals import units
from visuals.transfers.captions import ROW_TITLES
from visuals.transfers.evidence import TransferEvidence, facts, group

FLOAT = 4


@dataclass(frozen=True)
class Run:
    """The state of the button."""

    running: bool = False
    share: float = 0.0
    text: str = ""
    error: str = ""
    label: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


def strip(found: TransferEvidence, run: Run) -> Json:
    """Returns the strip as data for the player."""
    size = {
        "key": "stage",
        "label": found.size_text,
        "shape": found.size_text,
        "stale": "",
        "canPut": False,
        "time": time(found),
        "memory": memory(found),
        "limits": queues(found),
    }
    return {
        "sizes": [size],
        "selected": "stage",
        "run": {
            "can": True,
            "running": run.running,
            "share": run.share,
            "text": run.text,
            "error": run.error,
            "label": run.label,
        },
        "texts": {"put": "", "ask": tr("The figures come after your guess."), "reveal": tr("Show them")},
    }


def badge(found: TransferEvidence) -> dict[str, str]:
    return {"kind": found.kind, "text": " · ".join((tr(found.kind), found.source))}


def time(found: TransferEvidence) -> Json:
    """Returns the total, and those of the scenarios beside it."""
    beside = [one for one in group(found) if not one.unknown]
    longest = max((one.total_ms for one in beside), default=1.0)
    return {
        "value": found.total_text,
        "badge": badge(found),
        "name": tr("Total, {title}", title=tr(found.settings.row.title)),
        "text": time_text(found),
        "bars": [
            {
                "title": tr(one.settings.row.title),
                "share": one.total_ms / longest,
                "text": one.total_text,
                "current": one is found,
            }
            for one in beside
        ],
    }


def time_text(found: TransferEvidence) -> str:
    """Returns how the timeline compares with its busiest queue; for a prediction, that nothing is recorded yet."""
    f = facts(found)
    parts = []
    if not found.found and not found.recorded_ms:
        parts.append(tr("Not recorded yet."))
    if found.unknown:
        parts.append(tr("No rate is known for: {kinds}.", kinds=", ".join(tr(kind) for kind in found.unknown)))
    elif f["over_longest"]:
        parts.append(tr(_over_longest(found), ratio=f["over_longest"], timed=f["timed"]))
    return " ".join(parts)


def _over_longest(found: TransferEvidence) -> str:
    """Returns the sentence that compares the timeline with its busiest queue."""
    if found.found:
        return mark("With the events that measure the boxes: {timed}, {ratio} times the busiest queue.")
    if found.recorded_ms:
        return mark("The boxes are predicted: {timed}, {ratio} times the busiest queue.")
    return mark("{ratio} times the busiest queue.")


def memory(found: TransferEvidence) -> Json:
    """Returns the most bytes on the GPU at a time, and those that stay there."""
    peak = max(found.memory, default=0)
    s = found.settings
    resident = FLOAT * (4 * SHORT[0] * SHORT[1] if s.short else WIDTH * WIDTH)
    total = peak + resident
    rows = [("workspace", tr("arrays of the program"), peak), ("filter", tr("there before"), resident)]
    return {
        "title": tr("GPU memory"),
        "badge": {"kind": "predicted", "text": tr("predicted {bytes}", bytes=units.bytes_(total))},
        "parts": [
            {"role": role, "label": label, "text": units.bytes_(nbytes), "share": nbytes / total, "faint": False}
            for role, label, nbytes in rows
            if nbytes
        ],
        "text": memory_text(found),
    }


def memory_text(found: TransferEvidence) -> str:
    left = found.memory[-1] if found.memory else 0
    if left:
        return tr("At the end {bytes} are still in use.", bytes=units.bytes_(left))
    return tr("At the end all of it is free again.")


def queues(found: TransferEvidence) -> Json:
    """Returns the share of the total in which each queue is busy."""
    t = found.timeline
    whole = max(t.total_ms, 1e-9)
    most = max((IN, COMPUTE, OUT), key=lambda queue: t.busy[queue])
    rows = [
        {
            "label": tr(ROW_TITLES[q]),
            "share": min(1.0, t.busy[q] / whole),
            "text": units.share(min(1.0, t.busy[q] / whole)),
            "main": q == most,
        }
        for q in (IN, COMPUTE, OUT, HOST)
    ]
    text = tr("Together the three queues of the GPU are busy for {sum}.", sum=facts(found)["sum"])
    return {"title": tr("Busy"), "rows": rows, "text": text}
