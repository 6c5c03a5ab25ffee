"""The tile-size curve: the blocked loops at every BLOCK, measured on the reader's own processor by the worker."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import streamlit as st

from kernels.engines.timing import MODES
from kernels.jobs import Request
from kernels.ladders import loops
from kernels.records.rows import id_of
from kernels.shapes import GemmShape
from pages import _cards, _lesson, _series
from pages._look import tokens
from pages._series import Series
from visuals import figures, tile_curve

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
    """The card. `shape` is the page's; it is polled while a curve is measured."""
    st.fragment(_all, run_every=_series.every(KEY))(shape)


def _all(shape: GemmShape) -> None:
    curve = _series.going(KEY)
    with st.container(key="card_cpu_curve", border=True):
        asked = _head(shape, curve)
        _lesson.quiet(tile_curve.caches_words(loops.caches()))
        if curve and blocked(curve):
            _measured(curve, asked)
        if curve:
            _lesson.quiet(*[f"No time: {why}" for why in curve.failed])


# -- what is asked ---------------------------------------------------------------------------------
def _head(shape: GemmShape, curve: Series | None) -> Asked:
    with st.container(key="cpu_curve_head", horizontal=True, vertical_alignment="center"):
        st.html('<h2 class="kt-card">Tile sizes on this processor</h2>')
        with (
            st.container(key="chips_cpu_curve", width="content"),
            st.popover("options", key="cpu_curve_options"),
        ):
            asked = _options(shape)
        todo = requests(asked)
        if curve and curve.job:
            if st.button("Stop", key="stop_cpu_curve"):
                _series.stop(curve)
        elif todo and st.button("Measure the curve", key="measure_cpu_curve"):
            _series.start(KEY, Series(asked, todo, _name))
    _series.progress(curve)
    if not todo:
        broken = BLOCKED.rules(
            asked.shape, {"BLOCK": BLOCKED.default_tiles["BLOCK"], "THREADS": asked.threads}
        )
        _lesson.quiet(f"The loops cannot run {asked.shape}: {next(iter(broken))}")
    else:
        _lesson.quiet(
            f"C = A × B as loops in Numba, FP32, {asked}: naive, reordered, NumPy’s BLAS, and in blocks of {len(todo) - 1} sizes, "
            "each verified against float64 and timed here, on your processor."
        )
    return asked


def _options(shape: GemmShape) -> Asked:
    size = _lesson.option("curve", [*SIZES, OWN])
    threads = _lesson.option("threads", [str(n) for n in loops.THREADS if n <= loops.cores()])
    st.caption(f"“{OWN}” is {shape}. Cold or hot caches as the options of Run say.")
    return Asked(SIZES.get(size, shape), int(threads), _lesson.chosen("caches", MODES))


def _name(request: Request) -> str:
    block = request.tiles.get("BLOCK")
    return f"BLOCK {block}" if block else "the loops without tiles"


# -- what came out ---------------------------------------------------------------------------------
def _measured(curve: Series, asked: Asked) -> None:
    stale = curve.asked != asked
    told = f"{blocked(curve)[0]['device']}, {curve.asked}"
    head = f"{figures.badge('measured', told)} {figures.badge('predicted', 'below')}"
    if stale:
        head += f' <span class="kt-stale">stale: measured at {escape(str(curve.asked))}</span>'
    st.html(f'<p class="kt-figures">{head}</p>')
    caches, rows, others = loops.caches(), blocked(curve), lines(curve)
    with st.container(key=f"{'stale' if stale else 'fresh'}_cpu_curve"):
        _cards.chart(
            lambda: tile_curve.chart(rows, others, caches, curve.asked.shape, tokens()),
            tile_curve.HEIGHT,
            "chart_cpu_curve",
            tuple(id_of(row) for row in curve.rows),
        )
        _cards.sentence(tile_curve.words(rows, others, caches))
        _lesson.quiet(
            "Above: the median with p20 to p80; ★ the best. Below: bytes predicted to pass each cache, as a share of the naive "
            "loops’. The formula’s cache is ideal and one thread’s own: a real one is parted into sets, and rows a power of two apart crowd each other out."
        )
