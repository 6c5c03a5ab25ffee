"""Attention's loops on the reader's own processor: the rungs in time and memory, and flash attention's tile sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import streamlit as st

from kernels.attention import cpu_ladder
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.jobs.job import Request
from kernels.machine import memory_levels, processor
from kernels.machine.timing import MODES
from kernels.records.jsontext import id_of
from pages.parts import cards, cpu_card
from pages.parts.controls import Link
from pages.parts.query import chosen
from pages.parts.run_series import Series
from pages.parts.text import quiet
from pages.parts.theme import tokens
from visuals.attention import cpu as cpu_figures
from visuals.charts import bars, units
from visuals.gemm import cpu_curve

KEY = "attention_cpu"
SECONDS, EACH = 2.0, 0.4  # of timing for all rungs together, and for each tile of flash attention
LADDER = cpu_ladder.LADDER
FLASH = LADDER.rung(cpu_figures.FLASH)
PAPER = ATTENTION_PRESETS["paper-cpu"].shape
OWN = "this shape"
SHAPES = {f"N={n:,}": PAPER.with_(N=n) for n in (1024, 256, 4096)}
SIDES = ("Br", "Bc")


@dataclass(frozen=True)
class Asked:
    """What is measured: one shape on so many threads, with these tiles, in one of the two modes of timing."""

    shape: AttentionShape
    threads: int
    BLOCK: int
    Br: int
    Bc: int
    timing: str

    @property
    def tiles(self) -> dict[str, int]:
        return {"THREADS": self.threads, "BLOCK": self.BLOCK, "Br": self.Br, "Bc": self.Bc}

    def __str__(self) -> str:
        tiles = ", ".join(f"{name} {value}" for name, value in self.tiles.items())
        return f"{self.shape}, {tiles}, {self.timing}"


def requests(asked: Asked) -> list[Request]:
    """All rungs that can together, then flash attention with one side of its tiles turned; what a rule forbids is left
    out."""

    def request(rungs: Sequence[str], tiles: dict[str, int], seconds: float) -> Request:
        return Request(tuple(rungs), asked.shape, None, "cpu", tiles, asked.timing, seconds)

    able = [r for r in LADDER.rungs if not any(r.rules(asked.shape, r.default_tiles | asked.tiles))]
    if not able:
        return []
    known = {name for rung in able for name in rung.tiles}
    first = {name: value for name, value in asked.tiles.items() if name in known}
    here = {name: value for name, value in asked.tiles.items() if name in FLASH.tiles}
    turned = [here | {side: v} for side in SIDES for v in sorted(FLASH.tiles[side]) if v != here[side]]
    each = [request([FLASH.name], tiles, EACH) for tiles in turned if FLASH in able]
    return [request([rung.name for rung in able], first, SECONDS), *each]


def section(shape: AttentionShape, link: Link | None = None) -> None:
    """The card. `shape` is the page's; `link(preset, words)` draws a link to where recordings of a GPU are."""
    cpu_card.section(CARD, shape)
    if (found := _recorded()) and link:
        preset, words, row = found
        badge = units.badge("recorded", units.provenance(row))
        st.html(f'<p class="kt-figures">{badge} {words}</p>')
        link(preset, preset.label)


@lru_cache(maxsize=1)
def _recorded():
    return cpu_figures.recorded()


# -- what is asked ---------------------------------------------------------------------------------
def _controls(shape: AttentionShape) -> Asked:
    with st.container(key="params_attention_cpu", horizontal=True, width="content"):
        size = _select("cpu_shape", "shape", [*SHAPES, OWN], 158)
        threads = _select(
            "threads", "THREADS", [n for n in processor.THREADS if n <= processor.threads_told()[0]], 130
        )
        tiles = {
            name: _select(f"cpu_{name}", name, choices, 74 + 9 * len(name))
            for name, choices in (("BLOCK", cpu_ladder.BLOCKS), ("Br", cpu_ladder.SIDES), ("Bc", cpu_ladder.SIDES))
        }  # fmt: skip
    timing = chosen("caches", MODES)
    return Asked(
        SHAPES.get(size, shape), int(threads), **{k: int(v) for k, v in tiles.items()}, timing=timing
    )


def _select(name: str, label: str, choices: Sequence, width: int) -> str:
    """A field bound to the address, the first choice being the default."""
    words = [str(choice) for choice in choices]
    st.session_state[name] = value = chosen(name, words)
    usual = words[0]
    if all(word.isdigit() for word in words):
        words.sort(key=int)
    st.selectbox(label, words, index=words.index(usual), key=name, bind="query-params", width=width)
    return value


def _plan(asked: Asked, todo: int) -> str:
    if not todo:
        return f"The loops cannot run {asked.shape}: {next(iter(FLASH.rules(asked.shape, FLASH.default_tiles | asked.tiles)))}"
    tile = cpu_figures.tile("Bc", asked.shape, asked.tiles)
    return (
        f"Attention as loops in Numba, FP32, {asked}: all rungs, then flash attention at {todo - 1} other tiles, each verified against float64 and timed "
        f"here, on your processor. {cpu_curve.caches_words(memory_levels.caches(), tile)}"
    )


def _name(request: Request) -> str:
    if len(request.rungs) > 1:
        return "all rungs"
    return f"Br {request.tiles['Br']}, Bc {request.tiles['Bc']}"


# -- what came out ---------------------------------------------------------------------------------
def compared(series: Series) -> list[dict]:
    """The rows of the first request: rungs whose samples were interleaved."""
    first = {rung.name: None for rung in LADDER.rungs}
    for row in series.rows:
        first[row["rung"]] = first[row["rung"]] or row
    return [row for row in first.values() if row]


def turned(series: Series, side: str) -> list[dict]:
    """Flash attention's rows with this side turned, the other as it was asked."""
    (other,) = set(SIDES) - {side}
    asked = series.asked.tiles[other]
    return [r for r in series.rows if r["rung"] == FLASH.name and r["tiles"][other] == asked]


def _drawn(series: Series) -> None:
    rows = compared(series)
    told = [(cpu_figures.brief(title), row) for title, row in cpu_figures.titled(rows)]
    ids = tuple(id_of(row) for _, row in told)
    with st.container(key="attention_cpu_bars", horizontal=True):
        with st.container(key="attention_cpu_time"):
            cards.chart(lambda: bars.times(told, tokens()), bars.height(len(told)), "chart_cpu_times", ids)
            cards.sentence(cpu_figures.gain(rows))
        with st.container(key="attention_cpu_memory"):
            height = bars.height(len(told), bars.MEMORY_PX)
            cards.chart(lambda: bars.memory(told, tokens()), height, "chart_cpu_memory", ids)
            names = " ".join(f'<span class="kt-{role}">■</span> {name}' for role, name in bars.roles(rows[0]))
            st.html(f'<p class="kt-quiet">{names}</p>')
            st.html(cpu_figures.account(rows))
    cards.sentence(cpu_figures.why(rows, memory_levels.caches()))
    cards.sentence(cpu_figures.on_gpu(rows[0], cpu_figures.gpu_row()))
    _curves(series, rows)


def _curves(series: Series, rows: list[dict]) -> None:
    others = [
        (cpu_figures.brief(title), row)
        for title, row in cpu_figures.titled(rows)
        if row["rung"] != FLASH.name
    ]
    caches, asked = memory_levels.caches(), series.asked
    with st.container(key="attention_cpu_curves", horizontal=True):
        for side in SIDES:
            at, tile = turned(series, side), cpu_figures.tile(side, asked.shape, asked.tiles)
            if len(at) < 2:
                continue
            with st.container(key=f"attention_cpu_{side}"):
                cards.chart(
                    lambda at=at, tile=tile: cpu_curve.chart(at, others, caches, tile, tokens()),
                    cpu_curve.HEIGHT,
                    f"chart_cpu_{side}",
                    tuple(id_of(row) for row in (*at, *rows)),
                )
                cards.sentence(cpu_curve.words(at, others, caches, tile))
    if series.tried > 1:
        quiet(
            "Above: flash attention’s rate as one side of its tiles is turned, the median with p20 to p80; ★ the best. Below: bytes predicted to pass each "
            "cache, as a share of the naive loops’; the formula’s cache is ideal and one thread’s own."
        )


CARD = cpu_card.Card(
    KEY, "Attention on this processor", "Measure the loops", _controls, requests, _name, _plan,
    lambda series: bool(series.rows), _drawn, "what is allocated and what passes the caches",
)  # fmt: skip
