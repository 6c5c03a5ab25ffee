"""Two cards: the memory of every rung over N, up to the limit of each device, and the bytes moved at each memory level."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import streamlit as st

from kernels import engines, records
from kernels.attention.shape import AttentionShape
from kernels.i18n import tr
from kernels.machine import memory_levels
from pages.attention.address import LADDER
from pages.parts import cards, why
from pages.parts.rung_address import Selection
from pages.parts.text import quiet
from pages.parts.theme import tokens
from visuals.attention import charts
from visuals.attention.charts import Chart, DeviceMemory, Dot
from visuals.charts import units

MEMORY, TRAFFIC = "memory", "traffic"  # names of page parts


def section(parts: Collection[str], query: Selection) -> None:
    """Draws the cards that are among `parts`."""
    if not {MEMORY, TRAFFIC} & set(parts):
        return
    with st.container(key="rates", horizontal=True):
        if MEMORY in parts:
            _memory(query.shape)
        if TRAFFIC in parts:
            _traffic(query)


def _title(text: str) -> None:
    st.html(f'<h2 class="kt-card">{text}</h2>')


# -- memory over N -----------------------------------------------------------------------------------
@st.cache_resource(show_spinner=False)
def capacities() -> tuple[DeviceMemory, ...]:
    """Returns the memory of this machine's GPU (or of the recorded GPU) and of its processor."""
    machines = (
        memory_levels.gpu(engines.load("cuda").status()) or memory_levels.recorded(),
        memory_levels.cpu(),
    )
    return tuple(
        DeviceMemory.from_levels(machine) for machine in machines if machine and machine.levels[-1].bytes
    )


def _dots(s: AttentionShape) -> tuple[Dot, ...]:
    last_run = st.session_state.get("ran")
    measured = charts.dots(list(last_run.rows.values()) if last_run else (), s, "measured")
    return (*charts.dots(records.recordings(), s, "recorded"), *measured)


@lru_cache(maxsize=64)
def _chart(s: AttentionShape, capacities: tuple[DeviceMemory, ...], dots: tuple[Dot, ...]) -> Chart | None:
    return charts.chart_of(LADDER.rungs, s, capacities, dots)


def _memory(s: AttentionShape) -> None:
    with st.container(key="card_attention_memory", border=True):
        _title(tr("Memory against N"))
        dots = _dots(s)
        if not (chart := _chart(s, capacities(), dots)):
            quiet(tr("No kernel of predictable memory runs {dtype} at d = {d}.", dtype=s.dtype, d=s.d))
            return
        peaks = {
            dot.kind: tr("{device}, peak: {mark}", device=dot.device, mark=charts.MARKS[dot.kind][1])
            for dot in dots
        }
        details = {"predicted": f"B{s.B} H{s.H} d{s.d}"} | peaks
        badges = [units.badge(kind, detail) for kind, detail in details.items()]
        st.html(f'<p class="kt-figures">{" ".join(badges)}</p>')
        cards.chart(
            lambda: charts.memory(chart, tokens()),
            charts.HEIGHT,
            "chart_attention_memory",
            (s, capacities(), dots),
        )
        for text in charts.memory_sentences(chart):
            cards.sentence(text)


# -- traffic -----------------------------------------------------------------------------------------
def _traffic(query: Selection) -> None:
    s = query.shape
    with st.container(key="card_attention_traffic", border=True):
        titles, columns = charts.traffic(LADDER.rungs, s, query.tiles_of)
        _title(tr("Bytes moved at each level of memory"))
        if not titles:
            quiet(tr("No kernel runs this shape."))
            return
        st.html(
            why.lines(
                titles,
                [(units.badge("predicted", tr("by formula, from the kernels’ loads and stores")), columns)],
            )
        )
        for text in charts.traffic_sentences(query.rung, s, query.tiles):
            cards.sentence(text)
        quiet(
            tr(
                "Requested bytes: all loads and stores of all threads. A tile that a block loads counts once. Some requests are cache hits, so the "
                "real HBM traffic is between the two columns of bytes. The loads of a library are unknown."
            ),
            tr(
                "FlashAttention moves Θ(N²d²/M) bytes if a block has M bytes of fast memory. With S and P in memory it is Θ(Nd + N²). A larger M "
                "allows a larger Br, so K and V are loaded fewer times."
            ),
        )
