"""The cards of the lesson on many GPUs: the cost model with its points, bytes of each link, all collectives, our kernels."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from kernels import sources
from kernels.collectives import recorded
from kernels.collectives.emulated import Emulated, Ranks
from kernels.collectives.kernels import KERNELS
from kernels.collectives.schedules import of_shape
from kernels.collectives.shape import ALL_REDUCE, ITEM, CollectiveShape
from kernels.i18n import tr
from kernels.model.program import RuleError
from pages.collectives import address, stage
from pages.parts import guess
from pages.parts.cards import chart
from pages.parts.lesson import deferred_loaded
from pages.parts.text import card_title, conclusion, details, paragraph, together
from pages.parts.theme import tokens
from visuals import units
from visuals.collectives import charts
from visuals.collectives.evidence import SIZES, CollectiveEvidence, crossover
from visuals.collectives.scene import numbers

THREADS = 64  # of the emulated block


def section(values: address.Values) -> None:
    """Draws the cards."""
    found = stage.evidences(values)
    with guess.cards():
        with st.container(key="cards_left"), st.container(key="card_time", border=True):
            model(found[stage.REAL])
        with st.container(key="cards_right"):
            with st.container(key="card_memory", border=True):
                links(found[stage.STAGE].shape)
            with st.container(key="card_why", border=True):
                kinds(found[stage.REAL])


# -- the cost model ----------------------------------------------------------------------------------
def model(found: CollectiveEvidence) -> None:
    """Draws the predicted times over the length, with the recorded ones as points."""
    s = found.shape
    together(card_title(tr("Time over length"), tr("{n} GPUs", n=s.ranks)), conclusion(_crossover(s)), _badges(s))
    key = s.kind, s.algorithm, s.ranks, len(recorded.rows(s.kind, s.algorithm, s.ranks))
    chart(lambda: charts.model(s.kind, s.ranks, s.algorithm, tokens()), charts.HEIGHT, "chart_collectives", key)
    known = charts.accuracy(s.kind, s.ranks)
    text = tr(
        "A round takes a latency, and the time in which the busiest port moves its bytes. Both are fitted to measured times. "
        "The fit weighs 1 % of a short time as much as 1 % of a long one."
    )
    together(paragraph(charts.accuracy_text(known), "why"), details(paragraph(text), _fits(s, known)))


def _crossover(s: CollectiveShape) -> str:
    """Returns from which length on the ring is predicted to be faster than one-shot reads."""
    if s.kind != ALL_REDUCE:
        return tr("For a short array the number of rounds counts, for a long one the bytes.")
    length = crossover("one-shot", "ring", s.ranks, s.kind)
    if not length:
        return tr("One-shot is predicted to be the fastest up to {length}.", length=list(SIZES)[-1])
    return tr("One-shot is predicted to be faster than the ring below {length}, the ring from there on.", length=length)


def _badges(s: CollectiveShape) -> str:
    """Returns the badges of the lines and of the points."""
    device = recorded.link(s.kind, s.algorithm, s.ranks)[1]
    badges = [units.badge("predicted", tr("from {device}", device=device))]
    if rows := recorded.rows(s.kind, s.algorithm, s.ranks):
        badges.append(units.badge("recorded", f"{rows[0]['ranks']} × {rows[0]['device']}, {rows[0]['date']}"))
    return f'<p class="kt-figures">{" ".join(badges)}</p>'


def _fits(s: CollectiveShape, known: list) -> str:
    """Returns a table of the fitted latency and bandwidth of each algorithm."""
    rows = []
    for name, n, worst in known:
        fit = recorded.fitted(s.kind, name, s.ranks)
        assert fit is not None  # of a known algorithm
        link = fit.link
        held_out = recorded.between(s.kind, name, s.ranks)
        rows.append(
            (
                tr(charts.ALGORITHM_TITLES[name]),
                units.time_(1e3 * link.latency),
                units.bandwidth(link.bandwidth),
                str(n),
                units.share(worst),
                "–" if held_out is None else units.share(held_out),
            )
        )
    head = (
        tr("algorithm"),
        tr("latency of a round"),
        tr("bandwidth"),
        tr("points"),
        tr("largest error"),
        tr("of lengths left out"),
    )
    return charts.table(head, rows, tr("Fits")) if rows else ""


# -- links -------------------------------------------------------------------------------------------
def links(shape: CollectiveShape) -> None:
    """Draws the bytes of each link: counted from the schedule, and by the emulator if a kernel of ours runs it."""
    plan = of_shape(shape).link_elements()
    most = max(plan.values(), default=0)
    said = tr("{n} links are used. The busiest moves {bytes}.", n=len(plan), bytes=units.exact_bytes(ITEM * most))
    counted = (
        _emulated(shape) if deferred_loaded() and shape.kind == ALL_REDUCE and shape.algorithm in KERNELS else None
    )
    together(
        card_title(tr("Bytes of each link"), tr("on the stage")),
        conclusion(said),
        f'<p class="kt-figures">{units.badge("counted")}</p>',
        paragraph(_agreement(shape, counted), "why"),
        details(_links_table(shape, counted), label=tr("All links")),
    )


@lru_cache(maxsize=64)
def _emulated(shape: CollectiveShape) -> Emulated | str:
    """Returns what our kernel does on emulated GPUs, or why it cannot run there."""
    try:
        return Ranks(shape.algorithm, numbers(shape)).run(blocks=1, threads=THREADS)
    except RuleError as error:
        return str(error)


def _agreement(shape: CollectiveShape, counted: Emulated | str | None) -> str:
    """Returns whether our kernel moves the bytes of the schedule."""
    if counted is None:
        return tr("Counted from the schedule on the stage.")
    if isinstance(counted, str):
        return tr("The emulator cannot run the kernel here: {why}.", why=counted)
    planned = {link: ITEM * n for link, n in of_shape(shape).link_elements().items()}
    if dict(counted.link_bytes) == planned:
        return tr(
            "The emulator ran our kernel on {n} GPUs with memories of their own. Each link moved the same bytes, and "
            "{flags} of flags.",
            n=shape.ranks,
            flags=units.exact_bytes(sum(counted.flag_bytes.values())),
        )
    return tr("Our kernel moves other bytes than the schedule.")


def _links_table(shape: CollectiveShape, counted: Emulated | str | None) -> str:
    found = counted.link_bytes if isinstance(counted, Emulated) else {}
    rows = [
        (
            tr("GPU {a} to GPU {b}", a=a, b=b),
            units.exact_bytes(ITEM * n),
            units.exact_bytes(found[a, b]) if (a, b) in found else "–",
        )
        for (a, b), n in sorted(of_shape(shape).link_elements().items())
    ]
    return charts.table((tr("link"), tr("schedule"), tr("emulator")), rows, tr("Bytes of each link"))


# -- all collectives ---------------------------------------------------------------------------------
def kinds(found: CollectiveEvidence) -> None:
    """Draws the table of all collectives at the length of the strip."""
    s = found.shape
    together(
        card_title(tr("All collectives"), found.shape_text),
        conclusion(tr("An all-reduce is a reduce-scatter, then an all-gather: it moves as much as both.")),
        f'<p class="kt-figures">{units.badge("predicted")}</p>',
        details(charts.kinds(s.ranks, s.nbytes), label=tr("Rounds, bytes and times")),
    )


# -- the kernels -------------------------------------------------------------------------------------
def listings(algorithm: str) -> None:
    """Draws a tab for each of our kernels, that of the algorithm in front."""
    with st.container(key="kernels"):
        st.html(card_title(tr("Kernel")) + paragraph(tr("One of these runs on every GPU at the same time.")))
        if deferred_loaded():
            st.fragment(_tabs)(algorithm if algorithm in KERNELS else next(iter(KERNELS)))


def _tabs(front: str) -> None:
    files = [kernel.source for kernel in KERNELS.values()]
    files += sorted({header for file in files for header in sources.headers(file)})
    names = [file.rpartition("/")[2] for file in files]
    first = KERNELS[front].source.rpartition("/")[2]
    for file, tab in zip(files, st.tabs(names, default=first, key=f"tabs_{front}", on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                st.code(sources.text(file), language="cpp", line_numbers=True)
