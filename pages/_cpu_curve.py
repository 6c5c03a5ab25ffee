"""The tile-size curve: the blocked loops at every BLOCK, measured on the reader's own processor by the worker."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from kernels.engines.timing import MODES
from kernels.jobs import Request
from kernels.ladders import loops
from kernels.records.rows import id_of
from kernels.shapes import GemmShape
from pages import _cards, _cpu_card, _lesson
from pages._look import tokens
from pages._series import Series
from visuals import tile_curve

KEY = "cpu_curve"
SECONDS = 0.4  # of timing for each BLOCK
SIZES = {f"{n}³": GemmShape(n, n, n) for n in (512, 256, 1024)}
OWN = "this shape"
BLOCKED = loops.LADDER.rung("loops/blocked")
OTHERS = [rung for rung in loops.LADDER.rungs if rung is not BLOCKED]


@dataclass(frozen=True)
class Asked:
    """What is measured: one shape on so many threads, in one of the two modes of timing."""

    shape: GemmShape
    threads: int
    timing: str

    def __str__(self) -> str:
        return f"{self.shape}, THREADS {self.threads}, {self.timing}"


def blocked(curve: Series) -> list[dict]:
    return [row for row in curve.rows if row["rung"] == BLOCKED.name]


def lines(curve: Series) -> list[tuple[str, dict]]:
    """(title, row) of the loops without tiles."""
    rows = {row["rung"]: row for row in curve.rows}
    return [(rung.title, rows[rung.name]) for rung in OTHERS if rung.name in rows]


def requests(asked: Asked) -> list[Request]:
    """The rungs without tiles together, then the blocked loops at each BLOCK that the rules allow; what a rule
    forbids is left out."""
    s, threads = asked.shape, {"THREADS": asked.threads}

    def request(rungs: list[str], tiles: dict[str, int]) -> Request:
        return Request(tuple(rungs), s, None, "cpu", tiles, asked.timing, SECONDS)

    able = [rung.name for rung in OTHERS if not any(rung.rules(s, threads))]
    blocks = [b for b in sorted(loops.BLOCKS) if not any(BLOCKED.rules(s, threads | {"BLOCK": b}))]
    each = [request([BLOCKED.name], {"BLOCK": b} | threads) for b in blocks]
    return ([request(able, threads)] if able else []) + each


def section(shape: GemmShape) -> None:
    """The card. `shape` is the page's."""
    _cpu_card.section(CARD, shape)


# -- what is asked ---------------------------------------------------------------------------------
def _options(shape: GemmShape) -> Asked:
    with (
        st.container(key="chips_cpu_curve", width="content"),
        st.popover("options", key="cpu_curve_options"),
    ):
        size = _lesson.option("curve", [*SIZES, OWN])
        threads = _lesson.option("threads", [str(n) for n in loops.THREADS if n <= loops.cores()])
        st.caption(f"“{OWN}” is {shape}. Cold or hot caches as the options of Run say.")
    return Asked(SIZES.get(size, shape), int(threads), _lesson.chosen("caches", MODES))


def _plan(asked: Asked, todo: int) -> str:
    if not todo:
        tiles = {"BLOCK": BLOCKED.default_tiles["BLOCK"], "THREADS": asked.threads}
        return f"The loops cannot run {asked.shape}: {next(iter(BLOCKED.rules(asked.shape, tiles)))}"
    return (
        f"C = A × B as loops in Numba, FP32, {asked}: naive, reordered, NumPy’s BLAS, and in blocks of {todo - 1} sizes, "
        f"each verified against float64 and timed here, on your processor. {tile_curve.caches_words(loops.caches(), tile_curve.block(asked.shape))}"
    )


def _name(request: Request) -> str:
    block = request.tiles.get("BLOCK")
    return f"BLOCK {block}" if block else "the loops without tiles"


# -- what came out ---------------------------------------------------------------------------------
def _drawn(curve: Series) -> None:
    caches, rows, others = loops.caches(), blocked(curve), lines(curve)
    tile = tile_curve.block(curve.asked.shape)
    _cards.chart(
        lambda: tile_curve.chart(rows, others, caches, tile, tokens()),
        tile_curve.HEIGHT,
        "chart_cpu_curve",
        tuple(id_of(row) for row in curve.rows),
    )
    _cards.sentence(tile_curve.words(rows, others, caches, tile))
    _lesson.quiet(
        "Above: the median with p20 to p80; ★ the best. Below: bytes predicted to pass each cache, as a share of the naive "
        "loops’. The formula’s cache is ideal and one thread’s own: a real one is parted into sets, and rows a power of two apart crowd each other out."
    )


CARD = _cpu_card.Card(
    KEY, "Tile sizes on this processor", "Measure the curve", _options, requests, _name, _plan,
    lambda curve: bool(blocked(curve)), _drawn,
)  # fmt: skip
