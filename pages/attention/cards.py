"""Two cards: the memory of every rung over N, up to the limit of each device, and the bytes moved at each memory level."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import streamlit as st

from kernels import engines, records
from kernels.attention.shape import AttentionShape
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.machine import memory_levels
from kernels.model.rung import Ladder
from kernels.records import levels
from kernels.records.gpus import cached, chosen
from pages.attention.address import LADDER
from pages.parts import cards, why
from pages.parts.rung_address import Selection
from pages.parts.sizes import Shown
from pages.parts.text import card_title, conclusion, details, paragraph, together
from pages.parts.theme import tokens
from visuals import units
from visuals.attention import charts
from visuals.attention.charts import Chart, DeviceMemory, Dot
from visuals.charts.bars import bar_line

MEMORY, TRAFFIC = "memory", "traffic"  # names of page parts


def section(parts: Collection[str], query: Selection, above: Shown) -> None:
    """Draws the cards that are among `parts`, at the size that the strip shows."""
    if not {MEMORY, TRAFFIC} & set(parts):
        return
    at = above.settings
    query = replace(query, shape=at.shape, tiles=at.tiles_of(query.rung))
    with st.container(key="rates", horizontal=True):
        if MEMORY in parts:
            memory_card(LADDER, query.shape, tr("S and P are N × N per head."))
        if TRAFFIC in parts:
            _traffic(query, above.name)


# -- memory over N -----------------------------------------------------------------------------------
@st.cache_resource(show_spinner=False)
def capacities(ladder: str, card: str) -> tuple[DeviceMemory, ...]:
    """Returns the memory of this machine's GPU (or of the GPU that the ladder is shown from, which follows from the reader's
    `card`) and of its processor."""
    machines = (memory_levels.gpu(engines.load("cuda").status()) or levels.shown(ladder), memory_levels.cpu())
    return tuple(DeviceMemory.from_levels(machine) for machine in machines if machine and machine.levels[-1].bytes)


def _dots(ladder: Ladder, s: AttentionShape) -> tuple[Dot, ...]:
    last_run = st.session_state.get("ran")
    measured = charts.dots(list(last_run.rows.values()) if last_run else (), s, "measured", ladder.name)
    return (*charts.dots(records.recordings(ladder.name), s, "recorded", ladder.name), *measured)


@cached(64)
def _chart(ladder: str, s: AttentionShape, capacities: tuple[DeviceMemory, ...], dots: tuple[Dot, ...]) -> Chart | None:
    return charts.chart_of(LADDERS[ladder].rungs, s, capacities, dots)


def memory_card(ladder: Ladder, s: AttentionShape, squares: str) -> None:
    """Draws the card with the memory of every rung over N. `squares` is a sentence on what grows with N²."""
    with st.container(key="card_attention_memory", border=True):
        head, dots = card_title(tr("Memory against N")), _dots(ladder, s)
        if not (chart := _chart(ladder.name, s, capacities(ladder.name, chosen()), dots)):
            none = tr("No kernel of predictable memory runs {dtype} at d = {d}.", dtype=s.dtype, d=s.d)
            together(head, paragraph(none))
            return
        peaks = {
            dot.kind: tr("{device}, peak: {mark}", device=dot.device, mark=charts.MARKS[dot.kind][1]) for dot in dots
        }
        badges = {"predicted": f"B{s.B} H{s.H} d{s.d}"} | peaks
        line = " ".join(units.badge(kind, detail) for kind, detail in badges.items())
        first, *others = charts.memory_sentences(chart, squares)
        together(head, conclusion(first), f'<p class="kt-figures">{line}</p>')
        cards.chart(
            lambda: charts.memory(chart, tokens()),
            charts.HEIGHT,
            "chart_attention_memory",
            (s, capacities(ladder.name, chosen()), dots),
        )
        together(details(*map(paragraph, others)))


# -- traffic -----------------------------------------------------------------------------------------
def _traffic(query: Selection, name: str) -> None:
    s = query.shape
    with st.container(key="card_attention_traffic", border=True):
        head = card_title(tr("Bytes moved at each level of memory"), name)
        kernels = charts.traffic(LADDER.rungs, s, query.tiles_of)
        if not kernels:
            together(head, paragraph(tr("No kernel runs this shape.")))
            return
        badge = units.badge("predicted", tr("by formula, from the kernels’ loads and stores"))
        titles, columns = charts.traffic_table(kernels, s)
        notes = (
            *charts.traffic_sentences(query.rung, s, query.tiles),
            tr(
                "Requested bytes: all loads and stores of all threads. A tile that a block loads counts once. Some requests are cache hits, so the "
                "real HBM traffic is between the two columns of bytes. The loads of a library are unknown."
            ),
            tr(
                "FlashAttention moves Θ(N²d²/M) bytes if a block has M bytes of fast memory. With S and P in memory it is Θ(Nd + N²). A larger M "
                "allows a larger Br, so K and V are loaded fewer times."
            ),
        )
        together(
            head,
            conclusion(charts.traffic_conclusion(kernels)),
            f'<p class="kt-figures">{badge}</p>',
            _bars(kernels),
            details(*map(paragraph, notes), f"<div>{why.lines(titles, [(badge, columns)])}</div>"),
        )


def _bars(kernels: Sequence[charts.Traffic]) -> str:
    """Returns HTML bars: the least HBM bytes of each kernel, where they are known."""
    known = [(k.title, k.hbm) for k in kernels if k.hbm]
    most = max((count for _, count in known), default=0)
    lines = "".join(bar_line(title, count / most, units.bytes_(count)) for title, count in known)
    return f'<dl class="kt-bars">{lines}</dl>'
