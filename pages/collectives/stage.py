"""The stage of the lesson on many GPUs: the schedule round by round, its strip, and the run that its button starts."""

from __future__ import annotations

from dataclasses import replace

from kernels.collectives.shape import ALL_REDUCE, CollectiveShape
from kernels.i18n import tr
from kernels.jobs.exchange import Exchange
from pages.collectives import address, live
from pages.parts.address import Values
from pages.parts.chapters import OpenChapter
from pages.parts.one_run import OneRun
from pages.parts.run_stage import RunStage, Shown
from visuals.collectives import strip
from visuals.collectives.evidence import CollectiveEvidence
from visuals.strip.strip import Run

KEY = "collectives"
STAGE, REAL = "stage", "real"


def draw(values: Values, chapter: OpenChapter | None) -> None:
    """Draws the stage for the URL's values, with the open chapter."""

    def show(run: OneRun) -> Shown:
        found = evidences(values)
        selected = chapter.current.size if chapter else REAL
        return Shown(address.scene(values), strip.strip(found, selected, _run(values, run), _label(values)), found)

    def start(run: OneRun) -> None:
        if wanted := pressed_request(values):
            run.start(wanted)

    RunStage(KEY, live.KEY, show, start, chapter).draw()


def evidences(values: Values) -> dict[str, CollectiveEvidence]:
    """Returns what is known of the collective on the stage, and at the length of the strip."""
    shapes = {STAGE: address.shape(values), REAL: address.real(values)}
    return {key: CollectiveEvidence(shape, live.measured(request(shape))) for key, shape in shapes.items()}


def request(shape: CollectiveShape) -> Exchange:
    """Returns the run that measures a collective."""
    return Exchange(shape.kind, shape.ranks, shape.elements)


def pressed_request(values: Values) -> Exchange | None:
    """Returns what the button runs: the collective at the length of the strip. Where the GPUs are missing, our kernels on
    emulated GPUs with the arrays of the stage; None if there is no kernel for it."""
    if not live.refusal(int(values["ranks"])):
        return request(address.real(values))
    shape = address.shape(values)
    return replace(request(shape), emulated=True) if shape.kind == ALL_REDUCE else None


def _label(values: Values) -> str:
    """Returns the text of the button: without enough GPUs nothing is timed."""
    return tr("Emulate") if live.refusal(int(values["ranks"])) else tr("Run here")


def _run(values: Values, run: OneRun) -> Run:
    """Returns the state of the button."""
    if run.running:
        return Run(can=True, running=True, share=run.share, text=run.text())
    wanted, why = pressed_request(values), live.refusal(int(values["ranks"]))
    text = (wanted and live.emulated(wanted)) or (why and tr("Not measured here: {why}.", why=why))
    return Run(can=wanted is not None, text=text or "", error=live.error(wanted) if wanted else "")
