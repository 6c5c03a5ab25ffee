"""Run: the cards under a stage, and the job that measures the rungs of a ladder at the page's shape."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import streamlit as st

from kernels import engines
from kernels.jobs.job import JobError
from kernels.machine.status import Status
from kernels.machine.timing import MODES
from kernels.model.preset import Preset
from kernels.model.rung import Ladder
from pages.parts import cards, why
from pages.parts.controls import option
from pages.parts.query import url_is_stale
from pages.parts.run_settings import RunResult, RunSettings, card_rows
from pages.parts.text import note
from pages.parts.worker import worker
from visuals.charts.story import Story

POLL_S = 0.25
CACHES = "cold: the caches are overwritten before each sample; hot: left as the run before left them."
SEEDED = "Every run is on seeded random numbers."
Link = Callable[[Preset, str], None]


def run_section(
    ladder: Ladder,
    shape: Any,
    story: Story,
    link: Link,
    rung_tiles: tuple[str, Mapping[str, int]] | None = None,
    more: Callable[[RunSettings], None] = lambda settings: None,
) -> None:
    """Draws the four cards. `link(preset, label)` draws a link that sets the page to a preset.

    `rung_tiles` is a rung's name and its tile sizes if the page has controls for them; else the options have such controls.
    `more` draws what follows the cards.
    """
    every = POLL_S if st.session_state.get("job") else None
    st.fragment(_all, run_every=every)(ladder, shape, story, link, rung_tiles, more)


def _all(
    ladder: Ladder, shape: Any, story: Story, link: Link, rung_tiles, more: Callable[[RunSettings], None]
) -> None:
    collect()
    restore_run(ladder)
    with st.container(key="cards", horizontal=True):
        with st.container(key="cards_left"):
            with st.container(key="card_time", border=True):
                settings = head(ladder, shape, rung_tiles)
                cards.times(settings, story)
            current = card_rows(settings)
            with st.container(key="card_memory", border=True):
                cards.memory(settings, current, story.cost(shape))
        with st.container(key="cards_right"):
            with st.container(key="card_why", border=True):
                why.card(settings, current, story, link)
            with st.container(key="card_roofline", border=True):
                cards.rooflines(settings)
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
                f"{rung_of(r).title}: {reason}" for r, reason in refused.items()
            )
    except JobError as e:
        st.session_state["run_error"] = str(e)
    st.rerun()


def head(ladder: Ladder, shape: Any, rung_tiles, title: str = "Time") -> RunSettings:
    """Draws the line above the times: options and Run; under it the progress of a run or its error."""
    with st.container(key="time_head", horizontal=True, vertical_alignment="center"):
        st.html(f'<h2 class="kt-card">{title}</h2>')
        with st.container(key="chips_run", width="content"), st.popover("options", key="run_options"):
            settings = _options(ladder, shape, rung_tiles)
        _button(settings)
    _progress()
    gpu_note()
    if error := st.session_state.get("run_error"):
        st.html(f'<p class="kt-note" role="alert">{escape(error)}</p>')
    ran = st.session_state.get("ran")
    if ran and ran.settings == settings:
        note(
            *(
                f"{ladder.rung(name).title} was not measured: {reason}."
                for name, reason in ran.refused.items()
            )
        )
    return settings


def gpu_note() -> None:
    """Writes why this computer's GPU is not used, and what to do. If it has no GPU, the options say so."""
    gpu = engines.load("cuda").status()
    if gpu.advice:
        note(_unused(gpu))


def _unused(gpu: Status) -> str:
    return f"This computer's GPU is not used: {gpu.why}. Then start the app again."


def _engine() -> str:
    """Draws the choice of engines that measure here and a line about the GPU. Returns the engine."""
    gpu = engines.load("cuda").status()
    ready = [name for name, s in engines.available().items() if s.ready and engines.load(name).MEASURES]
    engine = option("engine", ready)
    if not gpu.ready:
        st.caption(_unused(gpu) if gpu.advice else f"No cuda: {gpu.text}.")
    elif gpu.which:
        st.caption(f"cuda runs on {gpu.which}, {gpu.text}. CUDA_VISIBLE_DEVICES chooses another.")
    return engine


def _options(ladder: Ladder, shape: Any, rung_tiles) -> RunSettings:
    engine = _engine()
    timing = option("caches", MODES)
    if rung_tiles:
        st.caption(f"{CACHES} {SEEDED}")
        return RunSettings(ladder, shape, engine, timing, tuple(rung_tiles[1].items()), rung_tiles[0])
    tiles = {name: choices for rung in ladder.rungs for name, choices in rung.tiles.items()}
    chosen = tuple((name, int(option(name, [str(c) for c in choices]))) for name, choices in tiles.items())
    st.caption(
        f"{CACHES} Tile sizes reach the CUDA kernels that have them; on the cpu engine only TILE means something. {SEEDED}"
    )
    return RunSettings(ladder, shape, engine, timing, chosen)


def _button(settings: RunSettings) -> None:
    if job := st.session_state.get("job"):
        if st.button("Stop", key="stop"):
            worker().cancel(job[0])
        return
    if not st.button("Run here", key="run", type="primary"):
        return
    if not settings.runs():
        st.session_state["run_error"] = f"No rung can run here on the {settings.engine} engine at this shape."
        st.rerun()
    failed = bool(st.session_state.get("run_error"))
    st.session_state["run_error"] = ""
    owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
    ran = st.session_state.get("ran")
    # Results that are already on the page are measured again. So are refused rungs: memory may be free by now.
    again = failed or (ran is not None and ran.settings == settings)
    try:
        st.session_state["job"] = worker().submit(settings.request(), owner=owner, fresh=again), settings
    except JobError as e:
        st.session_state["run_error"] = str(e)
    st.rerun()


def _progress() -> None:
    job = st.session_state.get("job")
    if job:
        ahead = worker().position(job[0])
        text = f"{ahead} ahead of you" if ahead else job[0].text
        st.progress(job[0].share, text=text)
