"""The stage of the lesson on moving data: the timeline, its strip, and the run that its button starts."""

from __future__ import annotations

from kernels.engines import load
from kernels.i18n import tr
from kernels.jobs.transfer import TransferRun
from pages.parts.address import Values
from pages.parts.chapters import OpenChapter
from pages.parts.one_run import OneRun, one_run
from pages.parts.run_stage import RunStage, Shown
from pages.transfers import address
from visuals.transfers import strip
from visuals.transfers.evidence import TransferEvidence

KEY, RUN = "transfers", "transfer_run"  # of the stage, and of the run in the session


def draw(values: Values, chapter: OpenChapter | None) -> None:
    """Draws the stage for the URL's values, with the open chapter."""

    def show(run: OneRun) -> Shown:
        found = evidence(values)
        return Shown(address.scene(found), strip.strip(found, _state(run)), {"stage": found})

    def start(run: OneRun) -> None:
        if run.running:
            return
        if why := refusal():
            run.error = why
        else:
            run.start(TransferRun(address.settings(values)))

    RunStage(KEY, RUN, show, start, chapter).draw()


def evidence(values: Values) -> TransferEvidence:
    """Returns what is known of the scenario at these values, with what was measured here."""
    s = address.settings(values)
    return TransferEvidence(s, one_run(RUN).row(TransferRun(s)))


def _state(run: OneRun) -> strip.Run:
    """Returns the state of the button."""
    share = run.job.share if run.job else 0.0
    return strip.Run(run.running, share, run.text(), run.error, tr("Stop") if run.running else tr("Run"))


def refusal() -> str:
    """Returns why nothing can be measured here; "" if a GPU is ready."""
    status = load("cuda").status()
    return "" if status.ready else tr("Copies to a GPU need one: {why}.", why=status.why)
