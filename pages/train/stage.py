"""The stage of the lesson on training: the step as a diagram, its strip, and the training that its button starts."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from kernels.i18n import tr
from kernels.model.row import Json, Row
from pages.parts import guess
from pages.parts.address import Values
from pages.parts.chapters import PLAY, OpenChapter
from pages.parts.query import rerun, url_is_stale
from pages.train import address, live
from pages.train.chapters import LEARNS
from pages.train.live import Live
from visuals import stage
from visuals.training import strip
from visuals.training.evidence import StepEvidence

POLL_S = 0.25
KEY = "train"  # of the stage


@dataclass(frozen=True)
class TrainStage:
    """What the stage shows: the URL's values and the open chapter."""

    values: Values
    chapter: OpenChapter | None = None

    def draw(self) -> None:
        """Draws the stage and its strip. They are polled while the network trains."""
        training = live.current()
        polled = bool(training and training.running)
        st.fragment(_draw, run_every=POLL_S if polled else None)(self, polled)


def evidence(values: Values) -> StepEvidence:
    """Returns what is known of the step at these values, with the times that were measured here."""
    training = live.current()
    step = values["network"], int(values["batch"]), values["optimizer"]
    memory = address.memory(values)
    s = training.settings if training else None
    same = s and (s.network, s.batch, s.optimizer, s.memory) == (*step, memory)
    return StepEvidence(*step, training.measured() if training and same else None, memory)


def _draw(on_stage: TrainStage, polled: bool) -> None:
    values = on_stage.values
    if isinstance(pressed := stage.pressed(KEY), dict):  # before anything is drawn: most presses rerun the page
        _act(on_stage, pressed)
    training = live.current()
    if training:
        training.poll()
    found = evidence(values)
    held = {node: sum(sizes) for node, sizes in found.held.items()}
    scene, _ = address.scene(values, found.node_ms, found.measured is not None, held)
    options: Json = {}
    if chapter := on_stage.chapter:
        playing = st.query_params.get(PLAY) == "1"
        panel = chapter.panel({"stage": found})
        guess.keep(bool(panel["question"]))
        options = {"chapter": panel, "step": chapter.current.step, "play": playing}
    to_come = on_stage.chapter is not None and on_stage.chapter.at < LEARNS and training is None
    curve = None if to_come else _curve(values, training)
    data = strip.strip(found, curve, _run(values, training)) if scene else None
    stage.mount(scene, KEY, strip=data, fit=True, **options)
    if polled and not (training and training.running) and not url_is_stale():
        rerun()  # the polling ends, and the cards show the result


def _is_same(values: Values, training: Live | None) -> bool:
    """Returns whether a training has the settings of the page."""
    if training is None:
        return False
    return training.settings == address.settings(values) and training.epochs == int(values["epochs"])


def _curve(values: Values, training: Live | None) -> strip.Curve:
    if training is None:
        return strip.Curve(
            epochs=int(values["epochs"]),
            text=tr(
                "Press Train: {epochs} epochs of handwritten digits, on this processor.", epochs=int(values["epochs"])
            ),
        )
    same = _is_same(values, training)
    text = training.text()
    if training.stopping and not training.running:
        text = (
            tr("Stopped. {text} Resume continues bit for bit.", text=text)
            if same
            else tr("Stopped. {text} It can be resumed at its own settings.", text=text)
        )
    if not same:
        text = tr("At other settings: {settings}. {text}", settings=named(training), text=text)
    return strip.Curve(
        training.shown(),
        training.accuracy,
        training.steps_per_epoch,
        training.epochs,
        text,
        {"kind": "measured", "text": tr("measured here")},
        not same,
        _problem(training),
    )


def named(training: Live) -> str:
    """Returns the settings of a training in a few words."""
    s = training.settings
    memory = [f"keep {s.memory.every}"] * bool(s.memory.every) + [f"parts {s.memory.parts}"] * (s.memory.parts > 1)
    return ", ".join([s.network, f"batch {s.batch}", s.optimizer, f"lr {s.factors['lr']:g}", *memory])


def _problem(training: Live) -> str:
    if training.diverged:
        return tr("Diverged: {text}.", text=training.diverged)
    return training.error


def _run(values: Values, training: Live | None) -> strip.Run:
    if training and training.running:
        total = training.epochs * training.steps_per_epoch
        points = training.shown()
        text = tr("stopping") if training.stopping else ""
        return strip.Run(running=True, share=points[-1][0] / total if points else 0.0, text=text, label=tr("Stop"))
    if refusal := address.refusal(values):
        return strip.Run(can=False, error=refusal)
    resumes = training and _is_same(values, training) and training.resumable
    return strip.Run(label=tr("Resume") if resumes else tr("Train"))


def _act(on_stage: TrainStage, pressed: Row) -> None:
    """Does what the reader pressed on the stage: `do` names it."""
    training, values = live.current(), on_stage.values
    match pressed:
        case {"do": "stop"} if training:
            live.stop(training)
            rerun()
        case {"do": "run"}:
            press(values)


def press(values: Values) -> None:
    """Trains at these values, or continues the training that was stopped, and runs the page again."""
    training = live.current()
    if training and training.running:
        return
    if not address.refusal(values):
        if training and _is_same(values, training) and training.resumable:
            live.resume(training)
        else:
            live.start(address.settings(values), int(values["epochs"]))
    rerun()
