"""The strip as data for the player and for exports: every text is ready to show, every bar a share from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.row import Json, Row
from visuals import units
from visuals.strip.evidence import Evidence
from visuals.strip.limits import limits
from visuals.strip.memory import memory
from visuals.strip.times import source, times


@dataclass(frozen=True)
class Run:
    """The state of Run: what its button does, and how far a run is."""

    can: bool = True  # whether a press can measure anything here; False: no button
    running: bool = False
    share: float = 0.0
    text: str = ""  # how far a run is, or why there is none
    error: str = ""
    brief: bool = False  # whether a low window leaves the text to the hint of the button


@dataclass(frozen=True)
class Size:
    """One size that the strip can show, "stage" or "real", and whether it can be put on the stage."""

    key: str
    evidence: Evidence
    can_put: bool = False


def strip(sizes: Sequence[Size], selected: str, run: Run, curve: Row | None = None) -> Json:
    """Returns the strip of these sizes, the selected one first shown. `curve`: curves beside the figures of each size."""
    return {
        "sizes": [
            _size(size, _watched(sizes), run.can)
            | {"choice": _choice(size, sizes)}
            | ({"curve": curve} if curve else {})
            for size in sizes
        ],
        "selected": selected,
        "run": {
            "can": run.can,
            "running": run.running,
            "share": run.share,
            "text": run.text,
            "error": run.error,
            "hint": run.text if run.brief else "",
            "label": tr("Stop") if run.running else tr("Run here"),
        },
        "texts": {
            "put": tr("Show it on the stage"),
            "ask": tr("The figures come after your guess."),
            "reveal": tr("Show them"),
        },
    }


def _choice(size: Size, sizes: Sequence[Size]) -> str:
    """Returns a size with its time, as one of a choice. Times of different sources name theirs."""
    evidence = size.evidence
    fields = {"shape": _name(size), "time": units.time_(evidence.row["median_ms"]) if evidence.row else "–"}
    sources = {source(one.evidence.row, one.evidence.kind) for one in sizes if one.evidence.row}
    if len(sources) < 2 or not evidence.row:
        return tr("{shape}: {time}", **fields)
    return tr("{shape}: {time}, {source}", source=source(evidence.row, evidence.kind), **fields)


def _name(size: Size) -> str:
    """Returns the shape in words, and whether it is the one on the stage."""
    if size.key != "stage":
        return size.evidence.shape_text
    return tr("{shape}, on the stage", shape=size.evidence.shape_text)


def _watched(sizes: Sequence[Size]) -> Evidence | None:
    """Returns what is known at the shape on the stage."""
    return next((size.evidence for size in sizes if size.key == "stage"), None)


def _with_tiles(evidence: Evidence, watched: Mapping[str, int]) -> str:
    """Returns the shape in words, with the tile sizes if they are not those on the stage."""
    if dict(evidence.tiles) == dict(watched):
        return evidence.shape_text
    return ", ".join([evidence.shape_text, *(f"{name} {size}" for name, size in evidence.tiles.items())])


def _size(size: Size, watched: Evidence | None, can_run: bool) -> Json:
    evidence = size.evidence
    time = times(evidence, can_run)
    return {
        "key": size.key,
        "label": _name(size),
        "shape": _with_tiles(evidence, watched.tiles if watched else {}),
        "stale": tr("stale: measured at other settings") if evidence.stale else "",
        "disturbed": units.disturbance(evidence.row) if evidence.row else "",
        "canPut": size.can_put,
        "time": time,
        "memory": memory(evidence),
        "limits": limits(evidence, watched),
    }
