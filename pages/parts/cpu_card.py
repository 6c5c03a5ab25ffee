"""A card of loops that the worker measures on the reader's own processor, one request after the other: its head, how it
goes on, and what came out, marked stale once the controls have moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from kernels.jobs.job import Request
from pages.parts import run_series
from pages.parts.run_series import Series
from pages.parts.text import quiet
from visuals.charts import units


@dataclass(frozen=True)
class Card:
    """What one card measures. What is asked for is frozen, equal where the same is asked, and reads as a reader says it."""

    key: str  # of the series and of all elements
    title: str
    button: str
    controls: Callable[[Any], Any]  # draws them for the page's shape; what they ask for
    requests: Callable[[Any], list[Request]]  # none where a rule forbids all
    name: Callable[[Request], str]
    plan: Callable[[Any, int], str]  # what a press measures in so many requests, or the rule that forbids it
    whole: Callable[[Series], bool]  # whether there is enough to draw
    drawn: Callable[[Series], None]
    kinds: str = "below"  # where the predicted figures stand


def section(card: Card, shape: Any) -> None:
    """The card at the page's shape; it is polled while something is measured."""
    st.fragment(_all, run_every=run_series.every(card.key))(card, shape)


def _all(card: Card, shape: Any) -> None:
    series = run_series.going(card.key)
    with st.container(key=f"card_{card.key}", border=True):
        asked = _head(card, shape, series)
        if series and card.whole(series):
            _measured(card, series, asked)
        if series:
            quiet(*[f"No time: {why}" for why in series.failed])


def _head(card: Card, shape: Any, series: Series | None) -> Any:
    with st.container(key=f"{card.key}_head", horizontal=True, vertical_alignment="center"):
        st.html(f'<h2 class="kt-card">{card.title}</h2>')
        asked = card.controls(shape)
        todo = card.requests(asked)
        if series and series.job:
            if st.button("Stop", key=f"stop_{card.key}"):
                run_series.stop(series)
        elif todo and st.button(card.button, key=f"measure_{card.key}"):
            run_series.start(card.key, Series(asked, todo, card.name))
    run_series.progress(series)
    quiet(card.plan(asked, len(todo)))
    return asked


def _measured(card: Card, series: Series, asked: Any) -> None:
    stale = series.asked != asked
    told = f"{series.rows[0]['device']}, {series.asked}"
    head = f"{units.badge('measured', told)} {units.badge('predicted', card.kinds)}"
    if stale:
        head += f' <span class="kt-stale">stale: measured at {escape(str(series.asked))}</span>'
    st.html(f'<p class="kt-figures">{head}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_{card.key}"):
        card.drawn(series)
