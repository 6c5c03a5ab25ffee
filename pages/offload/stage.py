"""The stage of the lesson on CPU and GPU: both sides on one axis, the strip, and the run that its button starts."""

from __future__ import annotations

from kernels.engines import load
from kernels.i18n import tr
from kernels.jobs.transfer import SizesRun
from kernels.offload.measure import CPU
from pages.offload import address
from pages.offload.address import PROGRAM
from pages.parts.address import Values
from pages.parts.chapters import OpenChapter
from pages.parts.one_run import OneRun, one_run
from pages.parts.run_stage import RunStage, Shown
from visuals import units
from visuals.offload import strip
from visuals.offload.evidence import MEASURED, OffloadEvidence
from visuals.strip.strip import Run

KEY, RUN = "offload", "offload_run"  # of the stage, and of the run in the session


def draw(values: Values, chapter: OpenChapter | None) -> None:
    """Draws the stage for the URL's values, with the open chapter."""

    def show(run: OneRun) -> Shown:
        found, picture = evidence(values), values["picture"]
        data = strip.strip(found, _state(run, found), picture == PROGRAM)
        return Shown(address.scene(found, picture), data, {"stage": found})

    def start(run: OneRun) -> None:
        if not run.running:
            run.start(SizesRun(values["work"]))

    RunStage(KEY, RUN, show, start, chapter).draw()


def evidence(values: Values) -> OffloadEvidence:
    """Returns what is known of the work at these values: measured here, else recorded."""
    return address.evidence(values, one_run(RUN).row(SizesRun(values["work"])))


def _state(run: OneRun, found: OffloadEvidence) -> Run:
    """Returns the state of the button."""
    share = run.job.share if run.job else 0.0
    return Run(can=True, running=run.running, share=share, text=run.text() or note(found), error=run.error)


def note(found: OffloadEvidence) -> str:
    """Returns what a run here measures and what not; "" if the stage shows all of it."""
    if not found.is_live:
        return tr("Too large to be measured here: the times are recorded.")
    status = load("cuda").status()
    if status.ready:
        return ""
    why = units.capitalized(status.text.rstrip("."))
    if found.side(CPU).kind == MEASURED:
        return tr("{why}: the GPU’s times are recorded.", why=why)
    return tr("{why}: Run times the processor.", why=why)
