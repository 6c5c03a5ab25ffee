"""Run: the cards under a stage, and the job that measures the rungs of a ladder at the page's shape."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from html import escape

import streamlit as st

from kernels import activity, engines
from kernels.i18n import mark, tr
from kernels.jobs.job import Job, JobError
from kernels.machine.status import Status
from kernels.machine.timing import MODES
from kernels.model.row import Row
from kernels.model.rung import Ladder
from kernels.model.shape import Shape
from kernels.records import unsupported
from pages.parts import cards, guess, lesson, machine_choice, run_plan, why
from pages.parts.controls import Link, option
from pages.parts.query import chosen, rerun, url_is_stale
from pages.parts.run_settings import RunResult, RunSettings, card_rows
from pages.parts.sizes import Shown, Sizes, shown
from pages.parts.text import card_title, note, quiet
from pages.parts.watch import Watch
from pages.parts.worker import worker
from visuals.charts.ladder_notes import LadderNotes

POLL_S = 0.25
CACHES = mark("cold: the caches are overwritten before each run; hot: they keep what the last run left.")
SEEDED = mark("Inputs are seeded random numbers.")


def run_section(
    settings: RunSettings,
    ladder_notes: LadderNotes,
    link: Link,
    more: Callable[[RunSettings], None] = lambda settings: None,
    sizes: Sizes | None = None,
) -> None:
    """Draws the four cards. `link(preset, label)` draws a link that sets the page to a preset. `more` draws what follows
    the cards. They are about the size that the strip shows; the counts of Why about the shape on the stage, which is
    small enough to count. `sizes` names the shapes."""
    watched = "watch" in lesson.parts()
    # Beside a stage the stage tells of the end of a run.
    every = POLL_S if st.session_state.get("job") and not watched else None
    above = shown(settings) if watched else Shown(settings, "")
    on_stage = above if above.settings == settings else _on_stage(settings, sizes)
    st.fragment(_all, run_every=every)(above, on_stage, ladder_notes, link, more)


def _on_stage(settings: RunSettings, sizes: Sizes | None) -> Shown:
    if not sizes:
        return Shown(settings, "")
    return Shown(settings, tr("{shape}, on the stage", shape=sizes.name(settings.shape)))


def _all(
    above: Shown, on_stage: Shown, ladder_notes: LadderNotes, link: Link, more: Callable[[RunSettings], None]
) -> None:
    settings, name = above
    collect()
    restore_run(settings.ladder)
    drawn_beside_stage = "watch" in lesson.parts()  # its strip has the button
    with guess.cards():
        with st.container(key="cards_left"):
            with st.container(key="card_time", border=True):
                with st.container(key="time_head", horizontal=True, vertical_alignment="center"):
                    st.html(card_title(tr("Time"), name))
                    if not drawn_beside_stage:
                        _button(settings)
                if not drawn_beside_stage:
                    _progress()
                    _plan(settings, name or str(settings.shape))
                notes(settings)
                cards.times(settings, ladder_notes)
            current = card_rows(settings)
            with st.container(key="card_memory", border=True):
                cards.memory(settings, current, ladder_notes.cost(settings.shape), name)
        with st.container(key="cards_right"):
            with st.container(key="card_why", border=True):
                why.card(on_stage, card_rows(on_stage.settings), ladder_notes, link)
            with st.container(key="card_roofline", border=True):
                cards.rooflines(settings, name)
    more(settings)


def restore_run(ladder: Ladder) -> None:
    """Makes the last run of these rungs "ran" in the session. Stores another ladder's run until its page opens again."""
    state, here = st.session_state, _names(ladder)
    waiting = state.setdefault("ran_elsewhere", {})
    if "ran" in state and _names(state["ran"].settings.ladder) != here:
        ran = state.pop("ran")
        waiting[_names(ran.settings.ladder)] = ran
    if "ran" not in state and here in waiting:
        state["ran"] = waiting.pop(here)


def _names(ladder: Ladder) -> tuple[str, ...]:
    return tuple(rung.name for rung in ladder.rungs)


def collect() -> None:
    """Stores the result of a finished job and reruns the page, so that polling stops."""
    if not (pending := st.session_state.get("job")) or not pending[0].done or url_is_stale():
        return
    job, settings = st.session_state.pop("job")
    try:
        results = job.result()
        rows = {row["rung"]: row for row in results if "unsupported" not in row}
        refused = {row["rung"]: row["unsupported"] for row in results if "unsupported" in row}
        restore_run(settings.ladder)
        if rows:  # if every rung was refused, the previous measurement stays
            st.session_state["ran"] = RunResult(settings, rows, job.measured_at, refused)
        else:
            rung_of = settings.ladder.rung
            st.session_state["run_error"] = "; ".join(
                f"{tr(rung_of(r).title)}: {unsupported.plain(reason)}" for r, reason in refused.items()
            )
    except JobError as e:
        st.session_state["run_error"] = str(e)
    rerun()


def head(ladder: Ladder, shape: Shape, rung_tiles, title: str) -> RunSettings:
    """Draws the line above the times: options and Run; under it the progress of a run or its error."""
    with st.container(key="time_head", horizontal=True, vertical_alignment="center"):
        st.html(card_title(title))
        with st.container(key="chips_run", width="content"), st.popover(tr("options"), key="run_options"):
            settings = _options(ladder, shape, rung_tiles)
        _button(settings)
    _progress()
    _plan(settings, str(shape))
    notes(settings)
    return settings


def options(
    ladder: Ladder, shape: Shape, rung_tiles: tuple[str, Mapping[str, int]] | None = None, visible: bool = True
) -> RunSettings:
    """Draws the options of Run as a popover in a line of controls and returns the settings. If not `visible`, only the URL
    is read.

    `rung_tiles` is a rung's name and its tile sizes if the page has controls for them; else the options have such controls.
    """
    if not visible:
        return _settings(ladder, shape, rung_tiles, chosen)
    with st.container(key="chips_run", width="content"), st.popover(tr("options"), key="run_options"):
        return _options(ladder, shape, rung_tiles)


def notes(settings: RunSettings) -> None:
    """Writes why this computer's GPU is not used, the error of a run, and what was not measured."""
    gpu_note()
    if error := st.session_state.get("run_error"):
        st.html(f'<p class="kt-note" role="alert">{escape(error)}</p>')
    ran = st.session_state.get("ran")
    if ran and ran.settings == settings:
        note(
            *(
                tr(
                    "{title} was not measured: {reason}.",
                    title=tr(settings.ladder.rung(name).title),
                    reason=unsupported.plain(reason),
                )
                for name, reason in ran.refused.items()
            )
        )


def gpu_note() -> None:
    """Writes why this computer's GPU is not used, and what to do. If it has no GPU, the options say so."""
    gpu = engines.load("cuda").status()
    if gpu.advice:
        note(_unused(gpu))


def _unused(gpu: Status) -> str:
    return tr("This computer's GPU is not used: {why}. Then start the app again.", why=gpu.why)


Option = Callable[[str, Sequence[str]], str]  # (name, choices) -> the choice


def _ready_engines() -> list[str]:
    return [name for name, s in engines.available().items() if s.ready and engines.load(name).MEASURES]


def _settings(ladder: Ladder, shape: Shape, rung_tiles, choose: Option) -> RunSettings:
    """Returns the settings of the options that `choose` returns."""
    engine, timing = choose("engine", _ready_engines()), choose("caches", MODES)
    machine = machine_choice.wanted()
    if rung_tiles:
        return RunSettings(ladder, shape, engine, timing, tuple(rung_tiles[1].items()), rung_tiles[0], machine)
    tiles = {name: choices for rung in ladder.rungs for name, choices in rung.tiles.items()}
    sizes = tuple((name, int(choose(name, [str(c) for c in choices]))) for name, choices in tiles.items())
    return RunSettings(ladder, shape, engine, timing, sizes, machine=machine)


def _options(ladder: Ladder, shape: Shape, rung_tiles) -> RunSettings:
    """Draws the options and what they mean."""
    settings = _settings(ladder, shape, rung_tiles, option)
    machine_choice.control()
    gpu = engines.load("cuda").status()
    if not gpu.ready:
        st.caption(_unused(gpu) if gpu.advice else tr("No cuda: {reason}.", reason=gpu.text))
    elif gpu.which:
        st.caption(
            tr("cuda runs on {gpu}, {text}. CUDA_VISIBLE_DEVICES chooses another.", gpu=gpu.which, text=gpu.text)
        )
    st.caption(f"{tr(CACHES)} {tr(SEEDED)}")
    if not rung_tiles:
        st.caption(tr("Tile sizes apply to the CUDA kernels that have them. The cpu engine uses only TILE."))
    return settings


def _button(settings: RunSettings) -> None:
    if st.session_state.get("job"):
        if st.button(tr("Stop"), key="stop"):
            stop()
    elif not run_plan.refusal(settings) and st.button(tr("Run here"), key="run", type="primary"):
        start(settings)


def _plan(settings: RunSettings, shape: str) -> None:
    """Writes what the button does, or why there is none."""
    text = run_plan.refusal(settings) or run_plan.plan(settings, shape)
    if text and not st.session_state.get("job"):
        quiet(text)


def stop() -> None:
    """Cancels the reader's job."""
    if job := st.session_state.get("job"):
        worker().cancel(job[0])


def start(settings: RunSettings) -> None:
    """Submits the job that measures every rung that can run at these settings, and reruns the page."""
    if st.session_state.get("job"):
        return
    if not settings.runs():
        st.session_state["run_error"] = tr(
            "No kernel can run here on the {engine} engine at this shape.", engine=settings.engine
        )
        rerun()
    failed = bool(st.session_state.get("run_error"))
    st.session_state["run_error"] = ""
    owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
    ran = st.session_state.get("ran")
    # Results that are already on the page are measured again. So are refused rungs: memory may be free by now.
    again = failed or (ran is not None and ran.settings == settings)
    try:
        job = machine_choice.submit(settings.request(), owner, fresh=again)
        st.session_state["job"] = job, settings
    except JobError as e:
        st.session_state["run_error"] = str(e)
    rerun()


def watch_job(job: Job) -> Watch:
    """Returns what the browser asks until a job is done: how far it is."""

    def state() -> Row:
        return {"done": job.done, "share": job.share, "text": progress_text(job)}

    return Watch(state, job.listen)


def _progress() -> None:
    if pending := st.session_state.get("job"):
        job, _ = pending
        st.progress(job.share, text=progress_text(job))


def progress_text(job: Job) -> str:
    """Returns how far a job is, or how many jobs are before it."""
    return activity.place(job.text, worker().position(job))
