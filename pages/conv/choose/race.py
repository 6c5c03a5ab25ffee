"""The race: the reader guesses, then every rung runs in a lane, as recorded and as measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from itertools import groupby

import streamlit as st

from kernels.conv.shape import ConvShape
from pages.conv.choose import address
from pages.conv.choose.address import FIELDS, LADDER, SHOW, Race
from pages.parts import cards, run, why
from pages.parts.query import others
from pages.parts.run_settings import CardRows, RunSettings, card_rows
from pages.parts.text import quiet
from visuals.charts import sweeps, units
from visuals.conv.choose import race as race_chart
from visuals.conv.choose import story as choose_story
from visuals.conv.choose.families import family

PAGE = "conv/choose/page.py"
# Every rung runs at its default tile sizes.
DEFAULT_TILES = "conv/direct", LADDER.rung("conv/direct").default_tiles
MAX_QUICK_MACS = 50_000_000  # multiply-adds: with more, all rungs together take long on a processor
UNITS = (
    "Effective: the FLOPs of direct convolution by the time. Actual: the FLOPs that the algorithm itself executes "
    "(Winograd's transforms and products, FFT's 2.5 n log₂ n for a transform); – where a library does not say."
)


def section(shape: ConvShape, predict: str, link: Callable, with_cards: bool) -> None:
    """Draws the race. After the guess, `with_cards` adds the memory and why cards of the same rows."""
    interval = run.POLL_S if st.session_state.get("job") else None
    st.fragment(_content, run_every=interval)(shape, predict, link, with_cards)


def _content(shape: ConvShape, predict: str, link: Callable, with_cards: bool) -> None:
    run.collect()
    run.restore_run(LADDER)
    with st.container(key="card_race", border=True):
        settings = run.head(LADDER, shape, DEFAULT_TILES, "The race")
        if with_cards:
            _smaller_shape_link(settings, predict)
        runs = address.races(settings)
        if not predict:
            _guess(shape, runs)
            return
        _replay_controls(shape, predict)
        for race in runs:
            _race(race, predict)
        if not runs:
            quiet("No recording speaks of this shape; press Run here to hold the race on this machine.")
        else:
            quiet(UNITS)
    if with_cards:
        _cards_of(settings, link)


def _smaller_shape_link(settings: RunSettings, predict: str) -> None:
    """Draws a link to a smaller shape if this one takes long on a processor."""
    if settings.engine != "cpu" or settings.shape.macs <= MAX_QUICK_MACS:
        return
    small_shape = address.small(settings.shape)
    with st.container(key="chips_smaller", horizontal=True):
        params = others(FIELDS) | address.at_shape(small_shape, predict)
        st.page_link(PAGE, label=f"a shape for this processor: {small_shape}", query_params=params)
        quiet(
            f"Run here takes long at this one: {units.count(settings.shape.macs)} multiply-adds for every rung."
        )


# -- the guess -----------------------------------------------------------------------------------
def _guess(shape: ConvShape, runs: list[Race]) -> None:
    """Draws a chip for each rung that can run, one line per family."""
    candidates = address.candidates(shape)
    device = runs[0].rows[next(iter(runs[0].rows))]["device"] if runs else "this machine"
    st.html(
        f'<p class="kt-ask">Nothing is known to keep {len(candidates)} of {len(LADDER.rungs)} rungs from this shape. '
        f"Which is the fastest on {escape(device)}? Guess before you look.</p>"
    )
    if measured := next((race for race in runs if race.kind == "measured" and not race.stale), None):
        st.html(
            f'<p class="kt-figures">{units.badge("measured", _provenance(measured))} {len(measured.rows)} kernels were timed. '
            "Your guess, or “show without guessing”, shows their times.</p>"
        )
    with st.container(key="guesses"):
        for group, rungs in groupby(candidates, key=lambda rung: family(rung.name)):
            with st.container(key=f"chips_guess_{group.key}", horizontal=True):
                st.html(f'<p class="kt-family" style="--kt-hue:var(--kt-{group.token})">{group.title}</p>')
                for rung in rungs:
                    name = rung.name.partition("/")[2]
                    _chip(shape, name, rung.title)
        with st.container(key="chips_guess_open", horizontal=True):
            _chip(shape, SHOW, "show without guessing")


def _chip(shape: ConvShape, predict: str, label: str) -> None:
    params = others(FIELDS) | address.with_guess(shape, predict)
    st.page_link(PAGE, label=label, query_params=params)


def _replay_controls(shape: ConvShape, predict: str) -> None:
    with st.container(key="chips_again", horizontal=True):
        if st.button("Run the picture again", key="again"):
            st.session_state["race_turn"] = st.session_state.get("race_turn", 0) + 1
        label = "guess" if predict == SHOW else "guess again"
        _chip(shape, "", label)


# -- the lanes -----------------------------------------------------------------------------------
def _race(race: Race, predict: str) -> None:
    rung = address.RUNGS.get(predict)
    lanes, first = race.lanes(), next(iter(race.rows.values()))
    badge = units.badge(race.kind, _provenance(race))
    if race.kind == "measured":
        status = (
            f'<span class="kt-stale">stale: measured at {escape(race.caption)}</span>' if race.stale else ""
        )
    else:
        status = (
            f'<span class="kt-elsewhere">not this shape</span>, the nearest: {escape(race.caption)}'
            if race.caption
            else ""
        )
    st.html(f'<p class="kt-figures">{badge} {status}</p>')
    with st.container(key=f"{'stale' if race.stale or race.caption else 'fresh'}_race_{race.kind}"):
        name, status = "", ""
        if rung:
            title, reason = address.title(rung, first["engine"]), address.reason(rung, race, first["engine"])
            name, status = rung.name, race_chart.verdict(lanes, rung.name, title, reason)
        replay = st.session_state.get("race_turn", 0)
        st.html(race_chart.html(lanes, address.without_lane(race), name, status, replay))


def _provenance(race: Race) -> str:
    rows = list(race.rows.values())
    return sweeps.provenance(rows) + (f", {rows[0]['date']}" if race.kind == "recorded" else "")


# -- the cards under it --------------------------------------------------------------------------
def _cards_of(settings: RunSettings, link: Callable) -> None:
    displayed, story = card_rows(settings), choose_story.CHOOSE
    # With so many rungs, memory over time would be unreadable: only the peaks are drawn.
    brief = {name: {k: v for k, v in row.items() if k != "timeline"} for name, row in displayed.rows.items()}
    with st.container(key="cards", horizontal=True):
        with st.container(key="cards_left"), st.container(key="card_memory", border=True):
            cards.memory(settings, replace(displayed, rows=brief), story.cost(settings.shape))
        with st.container(key="cards_right"), st.container(key="card_why", border=True):
            _why_card(settings, displayed, link)


def _why_card(settings: RunSettings, displayed: CardRows, link: Callable) -> None:
    st.html('<h2 class="kt-card">Why</h2>')
    cards.sentence(choose_story.CHOOSE.gain(displayed.rows))
    engine = next(iter(displayed.rows.values()))["engine"] if displayed.rows else settings.engine
    titles, lines = choose_story.predicted(settings.shape, engine)
    st.html(why.lines([escape(title) for title in titles], [(units.badge("predicted"), lines)]))
    with st.container(key="chips_why", horizontal=True):
        if examples := choose_story.CHOOSE.examples():
            st.html(f'<p class="kt-quiet">{escape(choose_story.CHOOSE.examples_label)}</p>')
        for preset, label in examples:
            link(preset, label)
    why.downloads(settings)
