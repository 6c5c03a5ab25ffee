"""The race: the reader guesses, then every rung runs in a lane, as recorded and as measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from itertools import groupby
from typing import Literal

import streamlit as st

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr, trn
from pages.conv.choose import address
from pages.conv.choose.address import FIELDS, LADDER, SHOW, Race
from pages.parts import cards, gpu_choice, guess, run, why
from pages.parts.address import is_presented
from pages.parts.links import drawn
from pages.parts.query import explored, others
from pages.parts.run_settings import CardRows, RunSettings, card_rows
from pages.parts.text import card_title, quiet
from visuals import units
from visuals.charts import sweeps
from visuals.conv.choose import notes as choose_notes
from visuals.conv.choose import race as race_chart
from visuals.conv.choose.families import family

PAGE = "conv/choose/page.py"
# Every rung runs at its default tile sizes.
DEFAULT_TILES = "conv/direct", LADDER.rung("conv/direct").default_tiles
MAX_QUICK_MACS = 50_000_000  # multiply-adds: with more, all rungs together take long on a processor
UNITS = mark(
    "Effective rate: FLOPs of direct convolution / time. Actual rate: FLOPs that the algorithm itself executes / time "
    "(Winograd: transforms and products; FFT: 2.5 n log₂ n per transform). A “–” means that the library does not report "
    "them. p20 to p80: the middle 60 % of the samples."
)


def section(shape: ConvShape, predict: str, link: Callable, with_cards: bool) -> None:
    """Draws the race. After the guess, `with_cards` adds the memory and why cards of the same rows."""
    interval = run.POLL_S if st.session_state.get("job") else None
    st.fragment(_content, run_every=interval)(shape, predict, link, with_cards)


def _content(shape: ConvShape, predict: str, link: Callable, with_cards: bool) -> None:
    run.collect()
    run.restore_run(LADDER)
    presented = is_presented(st.query_params)
    with st.container(key="race_presented" if presented else "race"), st.container(key="card_race", border=True):
        picture = st.container(key="race_picture")  # it is above the controls, but depends on them
        with st.container(key="race_controls"):
            settings = run.head(LADDER, shape, DEFAULT_TILES, tr("Run on this machine"))
            gpu_choice.control(LADDER.name)
            if with_cards:
                _smaller_shape_link(settings, predict)
        runs = address.races(settings)
        with picture:
            if predict:
                _races(shape, [race for race in runs if not race.stale][:1] if presented else runs, predict)
            else:
                _guess(shape, runs)
    if predict and with_cards:
        _cards_of(settings, link)


def _smaller_shape_link(settings: RunSettings, predict: str) -> None:
    """Draws a link to a smaller shape if this one takes long on a processor."""
    if settings.engine != "cpu" or settings.shape.macs <= MAX_QUICK_MACS:
        return
    small_shape = address.small(settings.shape)
    with st.container(key="chips_smaller", horizontal=True):
        params = drawn(explored(others(FIELDS) | address.at_shape(small_shape, predict)), FIELDS.by_name)
        st.page_link(PAGE, label=tr("a shape for this processor: {shape}", shape=small_shape), query_params=params)
        quiet(
            tr(
                "A run takes long at this shape: {count} multiply-adds for every kernel.",
                count=units.count(settings.shape.macs),
            )
        )


# -- the guess -----------------------------------------------------------------------------------
def _guess(shape: ConvShape, runs: list[Race]) -> None:
    """Draws the lanes before the start: each is a link that guesses its rung."""
    candidates = address.candidates(shape)
    device = runs[0].rows[next(iter(runs[0].rows))]["device"] if runs else tr("this machine")
    with st.container(key="chips_race", horizontal=True):
        st.html(card_title(tr("The race")))
        _chip(shape, SHOW, tr("show without guessing"))
    can_run = tr("{n} of {total} kernels can run this shape.", n=len(candidates), total=len(LADDER.rungs))
    question = tr("Which is the fastest on {device}? Press its lane. Guess before you look.", device=device)
    st.html(f'<p class="kt-ask">{escape(can_run)} <b>{escape(question)}</b></p>')
    if measured := next((race for race in runs if race.kind == "measured" and not race.stale), None):
        badge = units.badge("measured", _provenance(measured))
        timed = trn(
            "{n} kernel was timed. Its time appears after your guess.",
            "{n} kernels were timed. Their times appear after your guess.",
            len(measured.rows),
        )
        st.html(f'<p class="kt-figures">{badge} {timed}</p>')
    with st.container(key="guesses"):
        for group, rungs in groupby(candidates, key=lambda rung: family(rung.name)):
            with st.container(key=f"lanes_{group.key}"):
                for rung in rungs:
                    _chip(shape, rung.name.partition("/")[2], tr(rung.title), width="stretch")
    if is_presented(st.query_params):
        st.html(f"<style>.st-key-guesses {{ --kt-rows: {len(candidates)}; }}</style>")


def _chip(shape: ConvShape, predict: str, label: str, width: Literal["content", "stretch"] = "content") -> None:
    params = drawn(explored(others(FIELDS) | address.with_guess(shape, predict)), FIELDS.by_name)
    st.page_link(PAGE, label=label, query_params=params, width=width)


# -- the race ------------------------------------------------------------------------------------
def _races(shape: ConvShape, races: list[Race], predict: str) -> None:
    with st.container(key="chips_race", horizontal=True):
        st.html(card_title(tr("The race")))
        if st.button(tr("race again"), key="again"):
            st.session_state["race_replay"] = st.session_state.get("race_replay", 0) + 1
        _chip(shape, "", tr("guess") if predict == SHOW else tr("guess again"))
    for race in races:
        _race(race, predict)
    if races:
        quiet(tr(UNITS))
    else:
        quiet(tr("No recording exists for this shape. Press “Run here” to race on this machine."))


def _race(race: Race, predict: str) -> None:
    rung = address.RUNGS.get(predict)
    lanes, first = race.lanes(), next(iter(race.rows.values()))
    badge = units.badge(race.kind, _provenance(race))
    status = ""
    if race.stale:
        stale = tr("stale: measured at {settings}", settings=race.caption)
        status = f'<span class="kt-stale">{escape(stale)}</span>'
    elif race.caption:
        nearest = tr("Nearest: {recording}", recording=race.caption)
        elsewhere = tr("not this shape")
        status = f'<span class="kt-elsewhere">{elsewhere}</span> {escape(nearest)}'
    st.html(f'<p class="kt-figures">{badge} {status}</p>')
    with st.container(key=f"{'stale' if race.stale or race.caption else 'fresh'}_race_{race.kind}"):
        name, status = "", ""
        if rung:
            title, reason = address.title(rung, first["engine"]), address.reason(rung, race, first["engine"])
            name, status = rung.name, race_chart.verdict(lanes, rung.name, title, reason)
        replay = st.session_state.get("race_replay", 0)
        st.html(race_chart.html(lanes, address.without_lane(race), name, status, replay))


def _provenance(race: Race) -> str:
    rows = list(race.rows.values())
    return sweeps.provenance(rows) + (f", {rows[0]['date']}" if race.kind == "recorded" else "")


# -- the cards under it --------------------------------------------------------------------------
def _cards_of(settings: RunSettings, link: Callable) -> None:
    displayed, notes = card_rows(settings), choose_notes.CHOOSE
    # With so many rungs, memory over time would be unreadable: only the peaks are drawn.
    brief = {name: {k: v for k, v in row.items() if k != "timeline"} for name, row in displayed.rows.items()}
    with guess.cards():
        with st.container(key="cards_left"), st.container(key="card_memory", border=True):
            cards.memory(settings, replace(displayed, rows=brief), notes.cost(settings.shape))
        with st.container(key="cards_right"), st.container(key="card_why", border=True):
            _why_card(settings, displayed, link)


def _why_card(settings: RunSettings, displayed: CardRows, link: Callable) -> None:
    st.html(card_title(tr("Why")))
    cards.sentence(choose_notes.CHOOSE.gain(displayed.rows))
    engine = next(iter(displayed.rows.values()))["engine"] if displayed.rows else settings.engine
    titles, lines = choose_notes.predicted(settings.shape, engine)
    st.html(why.lines([escape(title) for title in titles], [(units.badge("predicted"), lines)]))
    with st.container(key="chips_why", horizontal=True):
        if examples := choose_notes.CHOOSE.examples():
            st.html(f'<p class="kt-quiet">{escape(tr(choose_notes.CHOOSE.examples_label))}</p>')
        for preset, label in examples:
            link(preset, label)
    why.downloads(settings)
