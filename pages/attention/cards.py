"""Two cards: the memory of every rung over N, up to the limit of each device, and traffic past each memory level."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import streamlit as st

from kernels import engines, records
from kernels.attention.shape import AttentionShape
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
        st.html('<h2 class="kt-card">Memory against N</h2>')
        dots = _dots(s)
        if not (chart := _chart(s, capacities(), dots)):
            quiet(f"No rung whose memory is known beforehand takes {s.dtype} at d = {s.d}.")
            return
        peaks = {dot.kind: f"{dot.device}, peak: {charts.MARKS[dot.kind][1]}" for dot in dots}
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
        st.html('<h2 class="kt-card">Traffic past each level of memory</h2>')
        if not titles:
            quiet("No rung runs this shape.")
            return
        st.html(
            why.lines(
                titles,
                [(units.badge("predicted", "by formula, from the kernels’ loads and stores"), columns)],
            )
        )
        for text in charts.traffic_sentences(query.rung, s, query.tiles):
            cards.sentence(text)
        quiet(
            "Asked: every load and store of every thread; a tile that a block fetches counts once. What of it the caches answer "
            "depends on their size: between the two columns lies what HBM really moves. A library tells nothing of its own loads. "
            "FlashAttention’s bound is Θ(N²d²/M) for M bytes close to a block, against Θ(Nd + N²) with S and P in memory: with Br "
            "growing with M, K and V are asked for fewer times."
        )
