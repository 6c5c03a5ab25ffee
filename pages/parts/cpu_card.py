"""A card of loops that the worker measures on this computer's processor, one request after the other.

It has a head, the progress and the results. The results are marked stale when the controls have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import streamlit as st

from kernels.i18n import mark, tr
from kernels.jobs.job import Request
from kernels.model.shape import S
from pages.parts import run_series
from pages.parts.run_series import Series
from pages.parts.text import card_title, details, paragraph, quiet, stale_mark, together
from visuals import units

T = TypeVar("T")  # the settings of a card


@dataclass(frozen=True)
class Card(Generic[S, T]):
    """What one card measures. Its settings are frozen, comparable with ==, and readable as str."""

    key: str  # of the series and of all elements
    title: str
    button: str
    controls: Callable[[S], T]  # draws them for the page's shape and returns the settings
    requests: Callable[[T], list[Request]]  # none if a rule excludes all
    name: Callable[[Request], str]
    # What the button measures in so many requests, or the rule that excludes it. The first paragraph is not folded.
    plan: Callable[[T, int], Sequence[str]]
    is_complete: Callable[[Series], bool]  # whether there is enough to draw
    draw: Callable[[Series], None]
    predicted_note: str = mark("below")  # where the predicted figures are


def section(card: Card[S, T], shape: S) -> None:
    """Draws the card at the page's shape. It is polled while something is measured."""
    st.fragment(_all, run_every=run_series.poll_interval(card.key))(card, shape)


def _all(card: Card[S, T], shape: S) -> None:
    series = run_series.current_series(card.key)
    with st.container(key=f"card_{card.key}", border=True):
        settings = _head(card, shape, series)
        if series and card.is_complete(series):
            _measured(card, series, settings)
        if series:
            quiet(*[tr("No time: {reason}", reason=why) for why in series.failed])


def _head(card: Card[S, T], shape: S, series: Series | None) -> T:
    with st.container(key=f"{card.key}_head", horizontal=True, vertical_alignment="center"):
        st.html(card_title(tr(card.title)))
        settings = card.controls(shape)
        requests = card.requests(settings)
        if series and series.job:
            if st.button(tr("Stop"), key=f"stop_{card.key}"):
                run_series.stop(series)
        elif requests and st.button(tr(card.button), key=f"measure_{card.key}"):
            run_series.start(card.key, Series(settings, requests, card.name))
    run_series.progress(series)
    first, *others = card.plan(settings, len(requests))
    together(paragraph(first), details(*map(paragraph, others)))
    return settings


def _measured(card: Card, series: Series, settings: object) -> None:
    stale = series.settings != settings
    detail = f"{series.rows[0]['device']}, {series.settings}"
    head = f"{units.badge('measured', detail)} {units.badge('predicted', tr(card.predicted_note))}"
    if stale:
        head += f" {stale_mark(str(series.settings))}"
    st.html(f'<p class="kt-figures">{head}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_{card.key}"):
        card.draw(series)
