"""Attention's loops on this processor: time and memory of the rungs, and flash attention's tile sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from kernels.attention import cpu_ladder
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.i18n import mark, tr, trn
from kernels.jobs.job import Request
from kernels.machine import memory_levels, processor
from kernels.machine.timing import MODES
from kernels.model.row import Row
from kernels.records.gpus import cached
from kernels.records.jsontext import id_of
from pages.parts import cards, cpu_card
from pages.parts.controls import Link
from pages.parts.query import chosen
from pages.parts.run_series import Series
from pages.parts.text import conclusion, details, legend, paragraph, together
from pages.parts.theme import tokens
from visuals import units
from visuals.attention import cpu as cpu_figures
from visuals.charts import bars, conclusions
from visuals.gemm import cpu_curve

KEY = "attention_cpu"
SECONDS, SECONDS_PER_TILE = 2.0, 0.4  # of timing: all rungs together; each tile of flash attention
LADDER = cpu_ladder.LADDER
FLASH = LADDER.rung(cpu_figures.FLASH)
PAPER = ATTENTION_PRESETS["paper-cpu"].shape
PAGE_SHAPE = mark("this shape")  # a value in the URL
SHAPES = {f"N={n:,}": PAPER.with_(N=n) for n in (1024, 256, 4096)}
SIDES = ("Br", "Bc")


@dataclass(frozen=True)
class CpuSettings:
    """Settings of the measurement: shape, threads, tile sizes and one of the two timing modes."""

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


def requests(settings: CpuSettings) -> list[Request]:
    """Returns one request for all supported rungs, then one for each flash attention tile with one side changed.

    Settings that a rule forbids are left out."""

    def request(rungs: Sequence[str], tiles: dict[str, int], seconds: float) -> Request:
        return Request(tuple(rungs), settings.shape, None, "cpu", tiles, settings.timing, seconds)

    supported = [r for r in LADDER.rungs if not any(r.rules(settings.shape, r.default_tiles | settings.tiles))]
    if not supported:
        return []
    known = {name for rung in supported for name in rung.tiles}
    first = {name: value for name, value in settings.tiles.items() if name in known}
    flash_tiles = {name: value for name, value in settings.tiles.items() if name in FLASH.tiles}
    varied_tiles = [
        flash_tiles | {side: v} for side in SIDES for v in sorted(FLASH.tiles[side]) if v != flash_tiles[side]
    ]
    each = [request([FLASH.name], tiles, SECONDS_PER_TILE) for tiles in varied_tiles if FLASH in supported]
    return [request([rung.name for rung in supported], first, SECONDS), *each]


def section(shape: AttentionShape, link: Link | None = None) -> None:
    """Draws the card. `shape` is the page's; `link(preset, label)` draws a link to a shape with GPU recordings."""
    cpu_card.section(_card(), shape)
    if (found := _recorded()) and link:
        preset, text, row = found
        badge = units.badge("recorded", units.provenance(row))
        st.html(f'<p class="kt-figures">{badge} {text}</p>')
        link(preset, preset.label)


@cached(1)
def _recorded():
    return cpu_figures.longest_recording()


# -- settings --------------------------------------------------------------------------------------
def _controls(shape: AttentionShape) -> CpuSettings:
    with st.container(key="params_attention_cpu", horizontal=True, width="content"):
        size = _select("cpu_shape", tr("shape"), [*SHAPES, PAGE_SHAPE], 158)
        threads = _select("threads", "THREADS", [n for n in processor.THREADS if n <= processor.max_threads()[0]], 130)
        tiles = {
            name: _select(f"cpu_{name}", name, choices, 74 + 9 * len(name))
            for name, choices in (("BLOCK", cpu_ladder.BLOCKS), ("Br", cpu_ladder.SIDES), ("Bc", cpu_ladder.SIDES))
        }
    timing = chosen("caches", MODES)
    return CpuSettings(SHAPES.get(size, shape), int(threads), timing=timing, **{k: int(v) for k, v in tiles.items()})


def _select(name: str, label: str, choices: Sequence, width: int) -> str:
    """Draws a field bound to the URL and returns its value. The first choice is the default."""
    options = [str(choice) for choice in choices]
    st.session_state[name] = value = chosen(name, options)
    default = options[0]
    if all(option.isdigit() for option in options):
        options.sort(key=int)
    st.selectbox(label, options, index=options.index(default), key=name, bind="query-params", width=width)
    return value


def _plan(settings: CpuSettings, todo: int) -> Sequence[str]:
    if not todo:
        rule = next(iter(FLASH.rules(settings.shape, FLASH.default_tiles | settings.tiles)))
        return [tr("The loops cannot run {shape}: {rule}", shape=settings.shape, rule=rule)]
    tile = cpu_figures.tile("Bc", settings.shape, settings.tiles)
    sentences = [tr("It runs in FP32 at {settings}.", settings=settings)]
    if todo > 1:
        sentences.append(
            trn(
                "First all kernels run, then flash attention with {n} other tile size.",
                "First all kernels run, then flash attention with {n} other tile sizes.",
                todo - 1,
            )
        )
    sentences.append(tr("Each result is verified against float64."))
    return (
        tr("The button times attention as Numba loops on your processor."),
        " ".join(sentences),
        cpu_curve.caches_sentence(memory_levels.caches(), tile),
    )


def _name(request: Request) -> str:
    if len(request.rungs) > 1:
        return tr("all kernels")
    return f"Br {request.tiles['Br']}, Bc {request.tiles['Bc']}"


# -- results ---------------------------------------------------------------------------------------
def compared(series: Series) -> list[Row]:
    """Returns the rows of the first request, whose rungs were sampled in turn."""
    first: dict[str, Row | None] = {rung.name: None for rung in LADDER.rungs}
    for row in series.rows:
        first[row["rung"]] = first[row["rung"]] or row
    return [row for row in first.values() if row]


def varied(series: Series, side: str) -> list[Row]:
    """Returns flash attention's rows over this tile side, the other side as set by the user."""
    (other,) = set(SIDES) - {side}
    value = series.settings.tiles[other]
    return [r for r in series.rows if r["rung"] == FLASH.name and r["tiles"][other] == value]


def _draw(series: Series) -> None:
    rows = compared(series)
    titled_rows = [(cpu_figures.short_title(title), row) for title, row in cpu_figures.rows_with_titles(rows)]
    ids = tuple(id_of(row) for _, row in titled_rows)
    together(conclusion(conclusions.of_times(titled_rows)))
    with st.container(key="attention_cpu_bars", horizontal=True):
        with st.container(key="attention_cpu_time"):
            cards.chart(
                lambda: bars.times(titled_rows, tokens()), bars.height(len(titled_rows)), "chart_cpu_times", ids
            )
        with st.container(key="attention_cpu_memory"):
            height = bars.height(len(titled_rows), bars.MEMORY_PX)
            cards.chart(lambda: bars.memory(titled_rows, tokens()), height, "chart_cpu_memory", ids)
            together(legend(dict(bars.roles(rows[0]))))
    on_gpu = cpu_figures.on_gpu(rows[0], cpu_figures.gpu_row())
    notes = (cpu_figures.gain(rows), cpu_figures.explain_gain(rows, memory_levels.caches()), on_gpu)
    together(details(*map(paragraph, notes), cpu_figures.memory_table(rows)))
    _curves(series, rows)


def _curves(series: Series, rows: list[Row]) -> None:
    others = [
        (cpu_figures.short_title(title), row)
        for title, row in cpu_figures.rows_with_titles(rows)
        if row["rung"] != FLASH.name
    ]
    caches, settings = memory_levels.caches(), series.settings
    with st.container(key="attention_cpu_curves", horizontal=True):
        for side in SIDES:
            points, tile = varied(series, side), cpu_figures.tile(side, settings.shape, settings.tiles)
            if len(points) < 2:
                continue
            with st.container(key=f"attention_cpu_{side}"):
                cards.chart(
                    lambda points=points, tile=tile: cpu_curve.chart(points, others, caches, tile, tokens()),
                    cpu_curve.HEIGHT,
                    f"chart_cpu_{side}",
                    tuple(id_of(row) for row in (*points, *rows)),
                )
                summary = cpu_curve.summary(points, others, caches, tile)
                together(conclusion(cpu_curve.conclusion(points, tile)), details(paragraph(summary, "why")))
    if series.tried > 1:
        how = (
            tr(
                "Top: the speed of flash attention over one side of its tiles, median with p20 to p80. ★ marks the best."
            ),
            tr(
                "Bottom: bytes predicted to pass each cache, as a share of the naive loops’. The formula assumes an ideal cache for each thread."
            ),
        )
        together(details(*map(paragraph, how)))


def _card() -> cpu_card.Card:
    return cpu_card.Card(
        KEY,
        tr("Attention on this processor"),
        tr("Measure the loops"),
        _controls,
        requests,
        _name,
        _plan,
        lambda series: bool(series.rows),
        _draw,
        tr("allocated bytes and bytes past the caches"),
    )
