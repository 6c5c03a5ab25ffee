"""The stage of a lesson with its measured strip, and the job that measures what the strip shows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import streamlit as st

from kernels.model.row import Json, Row
from kernels.model.rung import Rung
from pages.parts import counts, every_step, guess, run, run_plan
from pages.parts.chapters import PLAY, OpenChapter
from pages.parts.controls import Link
from pages.parts.query import in_browser, rerun, write
from pages.parts.run_settings import RunSettings, card_rows
from pages.parts.sizes import REAL, STAGE, Sizes, choose, measured, selected, settings_by_size, show, strip_sizes
from pages.parts.watch import Watch
from visuals import stage
from visuals.scene.scene import Scene
from visuals.strip import strip
from visuals.strip.evidence import Evidence
from visuals.strip.facts import short
from visuals.strip.strip import Size

ORDER = "order"  # the URL parameter
_WATCHED = "_watched_job"  # in the session: the job and its Watch
_RUN_IN = "_run_in"  # in the session: the stage and the chapter in which Run was pressed last
PAUSE_S, LOOK_S = 0.08, 0.04  # between the stage and the cards; between two looks for a newer change


@dataclass(frozen=True)
class Stage:
    """What a lesson's stage plays and measures. Without a scene the strip stands alone.

    `link` puts the real size on the stage, if the page can show it. `orders` maps each order in which the stage can play to
    its explanation. `chapter` is the open chapter of a story. `curve`: recorded curves beside the strip's figures.
    """

    key: str
    scene: Scene | None
    settings: RunSettings
    rung: Rung
    sizes: Sizes
    link: Link | None = None
    orders: Mapping[str, str] = field(default_factory=dict)
    chapter: OpenChapter | None = None
    curve: Row | None = None
    every_step: bool | None = None  # whether it shows repeated steps one by one; None: it folds none
    has_strip: bool = True  # without one the figures of `settings` are not about what it shows

    def draw(self) -> None:
        """Draws the stage and its strip. The player waits for what is measured or counted."""
        run.restore_run(self.settings.ladder)
        by_size = self.by_size()
        show(by_size, self.first_size(by_size), self.sizes)
        st.fragment(_draw)(self)
        _let_the_browser_paint()

    def by_size(self) -> dict[str, RunSettings]:
        """Returns the settings of Run for each size of the strip."""
        # The tile sizes of a chapter are for watching.
        sizes = replace(self.sizes, tiles={}) if self.chapter else self.sizes
        return settings_by_size(self.settings, self.rung, sizes)

    @property
    def place(self) -> tuple[str, int]:
        """Returns the stage and the number of its chapter."""
        return self.key, self.chapter.at if self.chapter else -1

    def first_size(self, by_size: Mapping[str, RunSettings]) -> str:
        """Returns the size that the strip shows first: the one that was measured in this chapter, else the chapter's, unless
        only the real one has a time."""
        size = self.chapter.current.size if self.chapter else ""
        if size not in by_size:
            return selected(by_size, self.sizes.opens)
        if st.session_state.get(_RUN_IN) == self.place and (here := measured(by_size)):
            return here
        timed = [key for key, settings in by_size.items() if self.rung.name in card_rows(settings).rows]
        return REAL if size == STAGE and timed == [REAL] else size


def _let_the_browser_paint() -> None:
    """Waits until the browser has painted the stage, before the cards are sent. A newer change ends the wait.

    The browser draws all that comes within 10 ms at once, and charts before the stage: together they took 110 ms longer.
    """
    if not in_browser():
        return
    for _ in range(round(PAUSE_S / LOOK_S)):
        time.sleep(LOOK_S)
        st.session_state.get("job")  # at each look at the state Streamlit can end an outdated run


def _draw(on_stage: Stage) -> None:
    settings, rung = on_stage.settings, on_stage.rung
    by_size = on_stage.by_size()
    pressed = stage.pressed(on_stage.key)
    if isinstance(pressed, dict):  # before anything is drawn: most presses rerun the page
        _act(on_stage, pressed, by_size)
    run.collect()
    run.restore_run(settings.ladder)
    known = strip_sizes(by_size, rung, on_stage.sizes, can_put=on_stage.link is not None)
    size, options = on_stage.first_size(by_size), {}
    watch = _watch(on_stage, known, size)
    if chapter := on_stage.chapter:
        counting = bool(watch) and "job" not in st.session_state
        panel = chapter.panel({one.key: _of_gpu(one.evidence, by_size[one.key]) for one in known}, counting)
        guess.keep(bool(panel["question"]))
        if on_stage.every_step:
            panel["loop"] = None  # it counts folded steps
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": panel, "step": chapter.current.step, "play": playing}
        known = [_without(one, chapter.to_come - {short(rung.name)}) for one in known]
    shown = strip.strip(known, size, _run_state(on_stage, by_size), on_stage.curve)
    if chapter and chapter.current.question and "memory" in chapter.current.question.hides:
        for one in shown["sizes"]:
            one["memory"]["secret"] = True  # until the guess
    stage.mount(
        on_stage.scene,
        on_stage.key,
        strip=shown | ({"watch": watch.path} if watch else {}) if on_stage.has_strip else None,
        fit=True,
        orders=tuple(on_stage.orders.items()),
        every_step=_every_step(on_stage),
        **options,
    )


def _watch(on_stage: Stage, known: Sequence[Size], size: str) -> Watch | None:
    """Returns what the player waits for: the end of a run, else counts; None if there is nothing."""
    settings, state = on_stage.settings, st.session_state
    if pending := state.get("job"):
        if state.get(_WATCHED, (None, None))[0] is not pending[0]:
            state[_WATCHED] = pending[0], run.watch_job(pending[0])
        return state[_WATCHED][1]
    state.pop(_WATCHED, None)
    rungs = counts.countable(settings)
    request = counts.request_counts(settings, rungs)
    watch = counts.watched(request, settings, rungs)
    if watch and request and on_stage.chapter:
        request.views["rerun"] = lambda: True  # a chapter's sentences may depend on the counts
    elif watch and request:
        run_state = _run_state(on_stage, on_stage.by_size())
        request.views["strip"] = lambda: strip.strip(
            [_with_counts(one, on_stage.rung) for one in known], size, run_state, on_stage.curve
        )
    return watch


def _with_counts(size: Size, rung: Rung) -> Size:
    """Returns a size with what has been counted of the kernel on the stage since the page was drawn."""
    found = size.evidence
    if found.totals or found.counting or "emulator" not in rung.engines:
        return size
    count = counts.counts().get(rung, found.shape, found.tiles)
    return replace(size, evidence=replace(found, totals=None if count is None or count.uncounted else count.total))


def _every_step(on_stage: Stage) -> tuple[bool, str] | None:
    """Returns what visuals.stage.mount needs for the button that opens or folds repeated steps."""
    shown, scene = on_stage.every_step, on_stage.scene
    if shown is None or not scene or not (shown or scene.folds):
        return None
    return shown, every_step.label()


def _of_gpu(evidence: Evidence, settings: RunSettings) -> Evidence:
    """Returns what a chapter takes its figures from: its sentences are about a GPU, so no run on a processor is in it."""
    if all(row["engine"] == "cuda" for row in evidence.rows.values()):
        return evidence
    return replace(evidence, rows=settings.recorded(), kind="recorded", stale=False)


def _without(size: Size, hidden: Set[str]) -> Size:
    """Returns a size without the times of these rungs, by short name. Those of libraries stay."""

    def of_ours(names: Iterable[str]) -> list[float]:
        return [found.rows[name]["median_ms"] for name in names if not found.ladder.rung(name).library]

    found = size.evidence
    rows = {n: row for n, row in found.rows.items() if short(n) not in hidden or found.ladder.rung(n).library}
    hides = min(of_ours(found.rows), default=0) < min(of_ours(rows), default=0)
    return replace(size, evidence=replace(found, rows=rows, hides_fastest=hides))


def _act(on_stage: Stage, pressed: Json, by_size: Mapping[str, RunSettings]) -> None:
    """Does what the reader pressed on the stage: `do` names it."""
    match pressed:
        case {"do": "order", "order": order} if order in on_stage.orders:
            _play_in(order, on_stage.orders)
        case {"do": "steps"} if on_stage.every_step is not None:
            every_step.change()
            st.rerun()
        case {"do": "put", "size": size} if size in by_size and on_stage.link:
            on_stage.link.put(by_size[size].shape)
        case {"do": "size", "size": size} if choose(size, on_stage.first_size(by_size)):
            rerun()  # the cards follow
        case {"do": "stop"}:
            run.stop()
        case {"do": "run", "size": size} if size in by_size:
            st.session_state[_RUN_IN] = on_stage.place
            run.start(by_size[_runs_at(on_stage.settings, size)])


def _runs_at(settings: RunSettings, size: str) -> str:
    """Returns the size that a press on Run measures: a processor would take minutes for the real one."""
    return size if settings.engine == "cuda" else STAGE


def _play_in(order: str, orders: Mapping[str, str]) -> None:
    """Puts an order into the URL, where the first is left out, and runs the page again."""
    st.session_state[ORDER] = order
    write(ORDER, "" if order == next(iter(orders)) else order)
    st.rerun()


def _run_state(on_stage: Stage, by_size: Mapping[str, RunSettings]) -> strip.Run:
    """Returns how far a run is, and its error; before a press what it does, or why there is nothing to press."""
    error = st.session_state.get("run_error", "")
    if not (pending := st.session_state.get("job")):
        measures = [by_size[key] for key in dict.fromkeys(_runs_at(on_stage.settings, key) for key in by_size)]
        if all(run_plan.refusal(settings) for settings in measures):
            return strip.Run(can=False, text=run_plan.refusal(measures[0]))
        shape = on_stage.sizes.name(measures[0].shape)
        text, brief = run_plan.plan(measures[0], shape), not run_plan.is_long(measures[0])
        return strip.Run(text=text, error=error, brief=brief and not error)
    job, _ = pending
    return strip.Run(running=True, share=job.share, text=run.progress_text(job), error=error)
