"""The tile-size curve: the blocked loops at every BLOCK, measured by the worker on this processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from kernels.gemm import cpu_ladder
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr, trn
from kernels.jobs.job import Request
from kernels.machine import memory_levels
from kernels.machine.processor import THREADS, cores
from kernels.machine.timing import MODES
from kernels.model.row import Row
from kernels.records.jsontext import id_of
from pages.parts import cards, cpu_card
from pages.parts.controls import option
from pages.parts.query import chosen
from pages.parts.run_series import Series
from pages.parts.text import conclusion, details, paragraph, together
from pages.parts.theme import tokens
from visuals.gemm import cpu_curve

KEY = "cpu_curve"
SECONDS = 0.4  # of timing for each BLOCK
SIZES = {f"{n}³": GemmShape(n, n, n) for n in (512, 256, 1024)}
PAGE_SHAPE = mark("this shape")
BLOCKED = cpu_ladder.LADDER.rung("loops/blocked")
OTHERS = [rung for rung in cpu_ladder.LADDER.rungs if rung is not BLOCKED]


@dataclass(frozen=True)
class CpuSettings:
    """Settings of the measurement: shape, threads and one of the two timing modes."""

    shape: GemmShape
    threads: int
    timing: str

    def __str__(self) -> str:
        return f"{self.shape}, THREADS {self.threads}, {self.timing}"


def blocked(curve: Series) -> list[Row]:
    return [row for row in curve.rows if row["rung"] == BLOCKED.name]


def lines(curve: Series) -> list[tuple[str, Row]]:
    """Returns (title, row) of each rung without tiles."""
    rows = {row["rung"]: row for row in curve.rows}
    return [(tr(rung.title), rows[rung.name]) for rung in OTHERS if rung.name in rows]


def requests(settings: CpuSettings) -> list[Request]:
    """Returns one request for the rungs without tiles, then one for the blocked loops at each legal BLOCK.

    Rungs that a rule forbids are left out."""
    s, threads = settings.shape, {"THREADS": settings.threads}

    def request(rungs: list[str], tiles: dict[str, int]) -> Request:
        return Request(tuple(rungs), s, None, "cpu", tiles, settings.timing, SECONDS)

    supported = [rung.name for rung in OTHERS if not any(rung.rules(s, threads))]
    blocks = [b for b in sorted(cpu_ladder.BLOCKS) if not any(BLOCKED.rules(s, threads | {"BLOCK": b}))]
    each = [request([BLOCKED.name], {"BLOCK": b} | threads) for b in blocks]
    return ([request(supported, threads)] if supported else []) + each


def section(shape: GemmShape) -> None:
    """Draws the card. `shape` is the page's."""
    cpu_card.section(CARD, shape)


# -- settings --------------------------------------------------------------------------------------
def _options(shape: GemmShape) -> CpuSettings:
    with st.container(key="chips_cpu_curve", width="content"), st.popover(tr("options"), key="cpu_curve_options"):
        size = option("curve", [*SIZES, PAGE_SHAPE])
        threads = option("threads", [str(n) for n in THREADS if n <= cores()])
        st.caption(
            tr(
                "“{choice}” is {shape}. The options of Run decide whether caches are cold (overwritten before each run) or hot.",
                choice=PAGE_SHAPE,
                shape=shape,
            )
        )
    return CpuSettings(SIZES.get(size, shape), int(threads), chosen("caches", MODES))


def _plan(settings: CpuSettings, todo: int) -> Sequence[str]:
    if not todo:
        tiles = {"BLOCK": BLOCKED.default_tiles["BLOCK"], "THREADS": settings.threads}
        rule = next(iter(BLOCKED.rules(settings.shape, tiles)))
        return [tr("The loops cannot run {shape}: {rule}", shape=settings.shape, rule=rule)]
    return (
        tr("The button times C = A × B with loops on your processor, at each tile size."),
        _what(settings),
        cpu_curve.caches_sentence(memory_levels.caches(), cpu_curve.block_tile(settings.shape)),
    )


def _what(settings: CpuSettings) -> str:
    """Returns sentences on what the button measures."""
    blocks = [request for request in requests(settings) if "BLOCK" in request.tiles]
    others = [tr(rung.title) for rung in OTHERS if rung.name in {name for r in requests(settings) for name in r.rungs}]
    return " ".join(
        (
            tr("It runs in FP32 at {settings}.", settings=settings),
            tr("It runs these loops without tiles: {titles}.", titles=", ".join(others)) if others else "",
            trn(
                "It runs the blocked loops with {n} tile size.",
                "It runs the blocked loops with {n} tile sizes.",
                len(blocks),
            ),
            tr("Each result is verified against float64."),
        )
    )


def _name(request: Request) -> str:
    block = request.tiles.get("BLOCK")
    return f"BLOCK {block}" if block else tr("loops without tiles")


# -- results ---------------------------------------------------------------------------------------
def _draw(curve: Series) -> None:
    caches, rows, others = memory_levels.caches(), blocked(curve), lines(curve)
    tile = cpu_curve.block_tile(curve.settings.shape)
    together(conclusion(cpu_curve.conclusion(rows, tile)))
    cards.chart(
        lambda: cpu_curve.chart(rows, others, caches, tile, tokens()),
        cpu_curve.HEIGHT,
        "chart_cpu_curve",
        tuple(id_of(row) for row in curve.rows),
    )
    how = tr(
        "Upper chart: median speed with p20 to p80. ★ marks the fastest. Lower chart: predicted bytes past each cache, as a "
        "share of those of the naive loops. The prediction assumes an ideal cache for each thread. A real cache consists "
        "of sets, and rows a power of two apart compete for the same set."
    )
    together(details(paragraph(cpu_curve.summary(rows, others, caches, tile), "why"), paragraph(how)))


CARD = cpu_card.Card(
    KEY,
    mark("Tile sizes on this processor"),
    mark("Measure the curve"),
    _options,
    requests,
    _name,
    _plan,
    lambda curve: bool(blocked(curve)),
    _draw,
)
