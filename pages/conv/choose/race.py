"""The race: the reader guesses, then every rung runs beside the others, as recorded and as measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from itertools import groupby

import streamlit as st

from kernels.conv.shape import ConvShape
from pages.conv.choose import address
from pages.conv.choose.address import FIELDS, LADDER, OPEN, Race
from pages.parts import race as run
from pages.parts import reason as why
from pages.parts import with_cards as cards
from pages.parts.query import others
from pages.parts.run_settings import Asked, Shown, shown
from pages.parts.text import quiet
from visuals.charts import sweeps, units
from visuals.conv.choose import race as race_chart
from visuals.conv.choose import story as choose_story
from visuals.conv.choose.families import family

PAGE = "conv/choose/page.py"
OWN = "conv/direct", LADDER.rung("conv/direct").default_tiles  # every rung at its usual tile sizes
MANY = 50_000_000  # multiply-adds: more keep a processor busy for long, all rungs together
UNITS = (
    "Effective: the FLOPs of direct convolution by the time. Actual: the FLOPs that the algorithm itself executes "
    "(Winograd's transforms and products, FFT's 2.5 n log₂ n for a transform); – where a library does not say."
)


def section(shape: ConvShape, predict: str, link: Callable, with_cards: bool) -> None:
    """The race and, with `cards`, memory and why of the same rows, once the reader has guessed."""
    every = run.POLL_S if st.session_state.get("job") else None
    st.fragment(_all, run_every=every)(shape, predict, link, with_cards)


def _all(shape: ConvShape, predict: str, link: Callable, with_cards: bool) -> None:
    run.collect()
    run.bring(LADDER)
    with st.container(key="card_race", border=True):
        asked = run.head(LADDER, shape, OWN, "The race")
        if with_cards:
            _smaller(asked, predict)
        runs = address.races(asked)
        if not predict:
            _guess(shape, runs)
            return
        _again(shape, predict)
        for race in runs:
            _race(race, predict)
        if not runs:
            quiet("No recording speaks of this shape; press Run here to hold the race on this machine.")
        else:
            quiet(UNITS)
    if with_cards:
        _cards_of(asked, link)


def _smaller(asked: Asked, predict: str) -> None:
    """Where a processor would be long at it, a way to a shape that it does in seconds."""
    if asked.engine != "cpu" or asked.shape.macs <= MANY:
        return
    to = address.small(asked.shape)
    with st.container(key="chips_smaller", horizontal=True):
        query = others(FIELDS) | address.at(to, predict)
        st.page_link(PAGE, label=f"a shape for this processor: {to}", query_params=query)
        quiet(
            f"Run here takes long at this one: {units.count(asked.shape.macs)} multiply-adds for every rung."
        )


# -- the guess -----------------------------------------------------------------------------------
def _guess(shape: ConvShape, runs: list[Race]) -> None:
    """Chips of all who can start, a line a family."""
    able = address.starters(shape)
    where = runs[0].rows[next(iter(runs[0].rows))]["device"] if runs else "this machine"
    st.html(
        f'<p class="kt-ask">Nothing is known to keep {len(able)} of {len(LADDER.rungs)} rungs from this shape. '
        f"Which is the fastest on {escape(where)}? Guess before you look.</p>"
    )
    if ran := next((race for race in runs if race.kind == "measured" and not race.stale), None):
        st.html(
            f'<p class="kt-figures">{units.badge("measured", _from(ran))} {len(ran.rows)} kernels were timed. '
            "Your guess, or “show without guessing”, shows their times.</p>"
        )
    with st.container(key="guesses"):
        for of, rungs in groupby(able, key=lambda rung: family(rung.name)):
            with st.container(key=f"chips_guess_{of.key}", horizontal=True):
                st.html(f'<p class="kt-family" style="--kt-hue:var(--kt-{of.token})">{of.title}</p>')
                for rung in rungs:
                    name = rung.name.partition("/")[2]
                    _chip(shape, name, rung.title)
        with st.container(key="chips_guess_open", horizontal=True):
            _chip(shape, OPEN, "show without guessing")


def _chip(shape: ConvShape, predict: str, label: str) -> None:
    query = others(FIELDS) | address.guessed(shape, predict)
    st.page_link(PAGE, label=label, query_params=query)


def _again(shape: ConvShape, predict: str) -> None:
    with st.container(key="chips_again", horizontal=True):
        if st.button("Run the picture again", key="again"):
            st.session_state["race_turn"] = st.session_state.get("race_turn", 0) + 1
        words = "guess" if predict == OPEN else "guess again"
        _chip(shape, "", words)


# -- the lanes -----------------------------------------------------------------------------------
def _race(race: Race, predict: str) -> None:
    rung = address.RUNGS.get(predict)
    lanes, first = race.lanes(), next(iter(race.rows.values()))
    badge = units.badge(race.kind, _from(race))
    if race.kind == "measured":
        said = f'<span class="kt-stale">stale: measured at {escape(race.words)}</span>' if race.stale else ""
    else:
        said = (
            f'<span class="kt-elsewhere">not this shape</span>, the nearest: {escape(race.words)}'
            if race.words
            else ""
        )
    st.html(f'<p class="kt-figures">{badge} {said}</p>')
    with st.container(key=f"{'stale' if race.stale or race.words else 'fresh'}_race_{race.kind}"):
        name, said = "", ""
        if rung:
            title, reason = address.title(rung, first["engine"]), address.reason(rung, race, first["engine"])
            name, said = rung.name, race_chart.verdict(lanes, rung.name, title, reason)
        turn = st.session_state.get("race_turn", 0)
        st.html(race_chart.html(lanes, address.out(race), name, said, turn))


def _from(race: Race) -> str:
    rows = list(race.rows.values())
    return sweeps.provenance(rows) + (f", {rows[0]['date']}" if race.kind == "recorded" else "")


# -- the cards under it --------------------------------------------------------------------------
def _cards_of(asked: Asked, link: Callable) -> None:
    now, story = shown(asked), choose_story.CHOOSE
    # So many rungs' memory over time would be lines too thin to read: what each held at most is told.
    brief = {name: {k: v for k, v in row.items() if k != "timeline"} for name, row in now.rows.items()}
    with st.container(key="cards", horizontal=True):
        with st.container(key="cards_left"), st.container(key="card_memory", border=True):
            cards.memory(asked, replace(now, rows=brief), story.cost(asked.shape))
        with st.container(key="cards_right"), st.container(key="card_why", border=True):
            _why_card(asked, now, link)


def _why_card(asked: Asked, now: Shown, link: Callable) -> None:
    st.html('<h2 class="kt-card">Why</h2>')
    cards.sentence(choose_story.CHOOSE.gain(now.rows))
    engine = next(iter(now.rows.values()))["engine"] if now.rows else asked.engine
    titles, told = choose_story.predicted(asked.shape, engine)
    st.html(why.lines([escape(title) for title in titles], [(units.badge("predicted"), told)]))
    with st.container(key="chips_why", horizontal=True):
        if found := choose_story.CHOOSE.examples():
            st.html(f'<p class="kt-quiet">{escape(choose_story.CHOOSE.examples_are)}</p>')
        for preset, words in found:
            link(preset, words)
    why.downloads(asked)
