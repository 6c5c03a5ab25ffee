"""The cards of the lesson on CPU and GPU. Each begins with its conclusion."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE, PINNED, WORKS
from pages.offload import stage
from pages.parts import cards, guess
from pages.parts.address import Values
from pages.parts.text import card_title, conclusion, details, paragraph, table, together
from pages.parts.theme import tokens
from visuals import units
from visuals.offload import charts
from visuals.offload.captions import BAR_TITLES
from visuals.offload.evidence import OffloadEvidence, facts, rounded, size_text


def section(values: Values) -> None:
    """Draws the cards."""
    found = stage.evidence(values)
    with guess.cards():
        with st.container(key="cards_left"):
            with st.container(key="card_time", border=True):
                times(found)
            with st.container(key="card_memory", border=True):
                repeats(found)
        with st.container(key="cards_right"):
            with st.container(key="card_roofline", border=True):
                amdahl(found)
            with st.container(key="card_why", border=True):
                works(found)


def badges(found: OffloadEvidence) -> str:
    """Returns the badges of both sides."""
    sides = (found.side(CPU), found.side(GPU))
    return f"<p>{' '.join(units.badge(side.kind, side.device) for side in sides)}</p>"


def _predicted(source: str) -> str:
    return f"<p>{units.badge('predicted', source)}</p>"


def _data_key(found: OffloadEvidence) -> tuple:
    """Returns what a chart of it depends on."""
    return found.key, found.point.size, found.copies, found.left, str(found.measured)


def times(found: OffloadEvidence) -> None:
    """Draws the times of both sides over the size."""
    together(
        card_title(tr("Time over size"), tr(found.work.title)), conclusion(charts.times_text(found)), badges(found)
    )
    cards.chart(lambda: charts.times(found, tokens()), charts.HEIGHT, "chart_sizes", _data_key(found))
    head = (tr("size"), tr("processor"), *(tr(BAR_TITLES[copies]) for copies in COPIES))
    of_gpu = {copies: found.gpu_by_size(copies) for copies in COPIES}
    sizes = sorted({*found.cpu_by_size, *of_gpu[NONE]})
    rows = [
        (size_text(found.key, size), *(_time(by.get(size)) for by in (found.cpu_by_size, *of_gpu.values())))
        for size in sizes
    ]
    layers = tr("The sizes are layers of different shapes, so the lines jump.") if found.key == "conv" else ""
    together(
        paragraph(" ".join(filter(None, (charts.times_source(found), layers)))), details(table(head, rows, tr("Times")))
    )


def _time(one) -> str:
    return units.time_(one.ms) if one else "–"


def amdahl(found: OffloadEvidence) -> None:
    """Draws the speedup of a program of which a share is left on the processor."""
    values = facts(found)
    said = (
        tr(
            "With {left} of its time left on the processor, the program is {speedup} times as fast, and never more than {limit}.",
            **values,
        )
        if values["speedup"]
        else tr("The processor was not measured at this size.")
    )
    title = card_title(tr("What is left sets the limit"), found.size_text)
    together(title, conclusion(said), _predicted(tr("Amdahl’s law")))
    cards.chart(lambda: charts.amdahl(found, tokens()), charts.HEIGHT, "chart_amdahl", _data_key(found))
    together(paragraph(tr("The speedup of the program is 1 / (left + (1 − left) / the speedup of the work).")))


def repeats(found: OffloadEvidence) -> None:
    """Draws how many runs on arrays that are copied once make the GPU faster, size by size."""
    copied = found.copies if found.copies != NONE else PINNED
    one = found.with_(copies=copied)
    rows = [
        (size_text(found.key, size), _time(each.cpu), _time(each.of_gpu(NONE)), _copies(each), _runs(each))
        for size in sorted(one.cpu_by_size.keys() & one.gpu_by_size(copied).keys())
        for each in [one.with_(size=size)]
    ]
    head = (tr("size"), tr("processor"), tr("GPU, each run"), tr("copies, once"), tr("runs"))
    together(
        card_title(tr("How many runs pay for the copies?"), tr(BAR_TITLES[copied])),
        conclusion(_runs_text(one)),
        _predicted(tr("from measured times")),
        table(head, rows, tr("Runs")),
    )


def _copies(found: OffloadEvidence) -> str:
    return units.time_(found.gpu.copies_ms) if found.gpu else "–"


def _runs(found: OffloadEvidence) -> str:
    return str(found.repeats) if found.repeats else tr("never")


def _runs_text(found: OffloadEvidence) -> str:
    if not found.cpu or not found.gpu:
        return tr("This size was not measured on both sides.")
    if not found.repeats:
        return tr("At {size} a run on the GPU takes longer than one on the processor.", size=found.size_text)
    if found.repeats == 1:
        return tr("At {size} one run on the GPU is faster, with its copies.", size=found.size_text)
    return tr(
        "At {size} the GPU is faster from {n} runs on, if the arrays are copied once.",
        size=found.size_text,
        n=found.repeats,
    )


def works(found: OffloadEvidence) -> None:
    """Draws where the times of each work cross."""
    all_of_them = [found if key == found.key else OffloadEvidence(key, 1) for key in WORKS]
    rows = [(_work_title(one), *(_crossing(one, copies) for copies in COPIES)) for one in all_of_them]
    head = (tr("work"), *(tr(BAR_TITLES[copies]) for copies in COPIES))
    together(
        card_title(tr("Where the times cross")),
        conclusion(tr("With copies, the GPU is faster only from a larger size on.")),
        badges(found.with_(measured=None)),
        table(head, rows, tr("Crossings")),
        paragraph(
            tr(
                "≤: at every size that was measured, from this one on. Pageable copies shorter than 0.35 ms are left out: they are "
                "measured last, when their code is in the caches."
            )
        ),
    )


def _work_title(found: OffloadEvidence) -> str:
    title, axis = tr(found.work.title), tr(found.work.axis)
    if found.measured:
        return tr("{work} ({axis}), measured here", work=title, axis=axis)
    return tr("{work} ({axis})", work=title, axis=axis)


def _crossing(found: OffloadEvidence, copies: str) -> str:
    where = found.crossing(copies)
    if not where:
        return tr("not reached")
    low, high = (units.count(rounded(size)) for size in (where.low, where.high))
    if where.first:
        return f"≤ {units.count(where.low)}"
    return low if low == high else tr("{low} to {high}", low=low, high=high)
