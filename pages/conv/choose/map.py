"""The map of winners: from recordings, or measured here cell by cell by the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from urllib.parse import urlencode

import streamlit as st

from kernels import records
from kernels.conv.shape import ConvShape
from kernels.jobs.job import Request
from kernels.machine.timing import MODES
from pages.conv.choose import address
from pages.conv.choose.address import FIELDS, LADDER
from pages.parts import autotune, cards, run_series
from pages.parts.controls import option
from pages.parts.query import chosen, others
from pages.parts.run_series import Series
from pages.parts.text import quiet
from visuals.charts import sweeps, units
from visuals.conv.choose import winners
from visuals.conv.choose.winners import AXES, Axis

KEY = "map"
SECONDS = 0.6  # of timing for each cell
TOLD = 3
# What a map measured here goes over. A processor is given small extents, also of what is held (_choose.small).
SPANS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "cuda": {
        "CK": (16, 64, 128, 256, 512), "C": (3, 16, 64, 256, 512), "K": (16, 64, 256, 512),
        "H": (7, 14, 28, 56), "R": (1, 3, 5, 7, 11), "N": (1, 4, 16, 64),
    },
    "cpu": {
        "CK": (4, 16, 64), "C": (3, 16, 64), "K": (4, 16, 64), "H": (7, 14, 28, 56), "R": (1, 3, 7, 11), "N": (1, 4, 16),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is mapped: the axes through a shape, and how it is timed."""

    around: ConvShape
    across: Axis
    down: Axis
    engine: str
    timing: str

    def shapes(self) -> list[ConvShape]:
        return winners.planned(self.around, self.across, self.down, SPANS[self.engine])

    def requests(self) -> list[Request]:
        return [
            Request(tuple(r.name for r in able), shape, None, self.engine, {}, self.timing, SECONDS)
            for shape in self.shapes()
            if (able := LADDER.able(self.engine, shape))
        ]

    def __str__(self) -> str:
        return f"{self.across.title} by {self.down.title} around {self.around}, {self.timing}, {self.engine}"


def section(shape: ConvShape, predict: str) -> None:
    """The card. It is polled while a map is measured."""
    st.fragment(_all, run_every=run_series.every(KEY))(shape, predict)


def _all(shape: ConvShape, predict: str) -> None:
    series = run_series.going(KEY)
    with st.container(key="card_map", border=True):
        across, down, timing = _head(series)
        asked = _measurable(shape, across, down, timing, series)
        if series and series.rows:
            _measured(series, asked, shape, predict)
        _recorded(shape, across, down, timing, predict)


def _head(series: Series | None) -> tuple[Axis, Axis, str]:
    with st.container(key="map_head", horizontal=True, vertical_alignment="center"):
        st.html('<h2 class="kt-card">Who wins where</h2>')
        with st.container(key="chips_map", width="content"), st.popover("axes", key="map_axes"):
            across = option("across", list(AXES))
            down = option("down", _downs(across))
            st.caption("CK: as many filters as maps. H: height and width. R: filter height and width.")
    return AXES[across], AXES[down], chosen("caches", MODES)


def _downs(across: str) -> list[str]:
    """H first where it can stand beside."""
    return sorted(winners.others(across), key=lambda key: key != "H")


# -- measured here -------------------------------------------------------------------------------
def _measurable(shape: ConvShape, across: Axis, down: Axis, timing: str, series: Series | None) -> Asked:
    engine = chosen("engine", autotune.measuring())
    around = address.small(shape) if engine == "cpu" else shape
    asked = Asked(around, across, down, engine, timing)
    todo = asked.requests()
    with st.container(key="chips_measure", horizontal=True):
        if series and series.job:
            if st.button("Stop", key="stop_map"):
                run_series.stop(series)
        elif todo and st.button(f"Measure {len(todo)} cells here", key="measure_map"):
            run_series.start(KEY, Series(asked, todo, lambda request: str(request.shape)))
        where = "at small extents, " if engine == "cpu" else ""
        quiet(
            f"On this machine, {where}around {around} ({engine}, {timing}): every rung that can, verified and timed."
        )
    run_series.progress(series)
    return asked


def _measured(series: Series, asked: Asked, shape: ConvShape, predict: str) -> None:
    of: Asked = series.asked
    told = winners.winners(winners.by_shape(series.rows, of.timing), of.around, of.across, of.down)
    if told:
        stale = of != asked
        words = f"around {of.around}"
        if series.stopped:
            words += f", stopped after {series.tried} cells"
        _map(told, "measured", words, stale, shape, predict)
    quiet(*[f"No time: {why}" for why in series.failed[:TOLD]])


# -- recorded ------------------------------------------------------------------------------------
@cache
def _by_shape(timing: str) -> dict[ConvShape, list[dict]]:
    of_conv = (row for row in records.recordings() if row["rung"].startswith(f"{LADDER.name}/"))
    return winners.by_shape(of_conv, timing)


def recorded(shape: ConvShape, across: Axis, down: Axis, timing: str) -> winners.Map | None:
    return winners.winners(_by_shape(timing), shape, across, down)


def _recorded(shape: ConvShape, across: Axis, down: Axis, timing: str, predict: str) -> None:
    told = recorded(shape, across, down, timing)
    if not told:
        quiet(f"No {timing} recording goes over {across.title} and {down.title} at once.")
        return
    here = winners.is_on(told, shape)
    words = f"all else as on the page: {winners.held(told)}" if here else f"at {winners.held(told)}"
    _map(told, "recorded", words, False, shape, predict, elsewhere=not here)


def _map(
    told: winners.Map,
    kind: str,
    words: str,
    stale: bool,
    shape: ConvShape,
    predict: str,
    elsewhere=False,
) -> None:
    rows = told.rows()
    detail = sweeps.provenance(rows) + (f", {rows[0]['date']}" if kind == "recorded" else "")
    said = ' <span class="kt-stale">stale</span>' if stale else ""
    said += ' <span class="kt-elsewhere">not around this shape</span>' if elsewhere else ""
    st.html(f'<p class="kt-figures">{units.badge(kind, detail)}{said} {escape(words)}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_map_{kind}"):
        st.html(winners.html(told, shape, lambda to: href(to, predict)))
        cards.sentence(winners.told_of(told))


def href(shape: ConvShape, predict: str) -> str:
    """The address of the page at another shape, all else kept; "" where the page cannot show it."""
    query = address.at(shape, predict)
    _, notes = FIELDS.read(query)
    return "" if notes else f"?{urlencode(others(FIELDS) | query)}"
