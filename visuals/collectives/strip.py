"""The strip under a collective: its time beside the other algorithms', the bytes of each port, what takes the time."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import tr, trn
from kernels.model.row import Json
from visuals import units
from visuals.collectives.captions import ALGORITHM_TITLES
from visuals.collectives.evidence import CollectiveEvidence
from visuals.strip.strip import Run

MAX_BARS = 6


def strip(sizes: Mapping[str, CollectiveEvidence], selected: str, run: Run, label: str = "") -> Json:
    """Returns the strip as data for the player. `sizes`: by key, "stage" and "real"; `label`: of the button."""
    return {
        "sizes": [_size(key, evidence) for key, evidence in sizes.items()],
        "selected": selected,
        "run": {
            "can": run.can,
            "running": run.running,
            "share": run.share,
            "text": run.text,
            "error": run.error,
            "label": tr("Stop") if run.running else label,
        },
        "texts": {"put": "", "ask": tr("The figures come after your guess."), "reveal": tr("Show them")},
    }


def _size(key: str, evidence: CollectiveEvidence) -> Json:
    return {
        "key": key,
        "label": tr("{shape}, on the stage", shape=evidence.shape_text) if key == "stage" else evidence.shape_text,
        "shape": evidence.shape_text,
        "stale": "",
        "canPut": False,
        "time": time(evidence),
        "memory": ports(evidence),
        "limits": limits(evidence),
    }


def time(evidence: CollectiveEvidence) -> Json:
    """Returns the time of the algorithm on the stage, and those of the others as bars."""
    mine = evidence.shape.algorithm
    longest = max((evidence.ms(name) for name in evidence.algorithms), default=1.0) or 1.0
    bars = []
    for name in evidence.algorithms[:MAX_BARS]:
        text, row = units.time_(evidence.ms(name)), evidence.row(name)
        bar = {
            "title": tr(ALGORITHM_TITLES[name]),
            "share": evidence.ms(name) / longest,
            "current": name == mine,
            "text": text if row else tr("{time}, predicted", time=text),
        }
        if row:
            bar |= {"low": row["p20_ms"] / longest, "high": min(1.0, row["p80_ms"] / longest)}
        bars.append(bar)
    return {
        "value": units.time_(evidence.ms(mine)),
        "badge": evidence.badge,
        "name": evidence.title,
        "text": _time_text(evidence),
        "bars": bars,
    }


def _time_text(evidence: CollectiveEvidence) -> str:
    """Returns whether the time was recorded, and how it compares with NCCL's or the prediction."""
    mine = evidence.shape.algorithm
    row, nccl = evidence.row(mine), evidence.row("nccl")
    if row is None:
        return tr("Not recorded yet for this collective at this length.")
    if nccl and nccl["ranks"] == row["ranks"]:
        return tr("{ratio}× the speed of NCCL.", ratio=units.ratio(nccl["median_ms"] / row["median_ms"]))
    return tr("The model predicts {time}.", time=units.time_(evidence.predicted_ms(mine)))


def ports(evidence: CollectiveEvidence) -> Json:
    """Returns the bytes of the busiest port, and the least that any algorithm needs."""
    moved, least = evidence.port_bytes, evidence.least_bytes
    parts = []
    if moved:
        parts.append(
            {"role": "output", "label": tr("needed"), "text": units.bytes_(least), "share": min(1.0, least / moved)}
        )
        if moved > least * 1.001:
            parts.append(
                {
                    "role": "workspace",
                    "label": tr("more"),
                    "text": units.bytes_(moved - least),
                    "share": 1 - least / moved,
                }
            )
    return {
        "title": tr("Bytes of the busiest port"),
        "secret": True,
        "badge": {"kind": "counted", "text": tr("counted {bytes}", bytes=units.bytes_(moved))},
        "parts": parts,
        "text": _port_text(evidence),
    }


def _port_text(evidence: CollectiveEvidence) -> str:
    moved, least = evidence.port_bytes, evidence.least_bytes
    if not moved:
        return tr("Nothing crosses a link.")
    times, n = units.ratio(moved / evidence.shape.nbytes), evidence.rounds
    text = trn("{times} times the array, in {n} round.", "{times} times the array, in {n} rounds.", n, times=times)
    return text + " " + tr("No algorithm needs less.") if moved <= least * 1.001 else text


def limits(evidence: CollectiveEvidence) -> Json:
    """Returns the shares of latency and of transfer in the predicted time."""
    waits, moves = evidence.shares
    rows = [
        {"label": tr("latency of the rounds"), "share": waits, "text": units.share(waits), "main": waits > moves},
        {"label": tr("transfer of the bytes"), "share": moves, "text": units.share(moves), "main": moves > waits},
    ]
    text = tr("Fewer rounds would help.") if waits > moves else tr("Fewer bytes would help.")
    return {"title": tr("What takes the time"), "rows": rows, "text": text if waits or moves else ""}
