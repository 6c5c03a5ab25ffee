"""The map of the fastest rungs: from recordings, or measured here cell by cell by the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

import streamlit as st

from kernels import records
from kernels.conv.shape import ConvShape
from kernels.i18n import tr, trn
from kernels.jobs.job import Request
from kernels.machine.timing import MODES
from kernels.model.row import Row
from kernels.records import availability
from kernels.records.gpus import cached
from pages.conv.choose import address
from pages.conv.choose.address import FIELDS, LADDER
from pages.parts import autotune, cards, run_series
from pages.parts.controls import option
from pages.parts.query import chosen, explored, others
from pages.parts.run_series import Series
from pages.parts.text import card_title, quiet, stale_mark
from visuals import units
from visuals.charts import sweeps
from visuals.conv.choose import winners
from visuals.conv.choose.winners import AXES, Axis

KEY = "map"
SECONDS = 0.6  # of timing for each cell
MAX_FAILURES = 3
# The values along each axis of a map measured here. A processor gets small extents (see address.small).
SPANS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "cuda": {
        "CK": (16, 64, 128, 256, 512),
        "C": (3, 16, 64, 256, 512),
        "K": (16, 64, 256, 512),
        "H": (7, 14, 28, 56),
        "R": (1, 3, 5, 7, 11),
        "N": (1, 4, 16, 64),
    },
    "cpu": {
        "CK": (4, 16, 64),
        "C": (3, 16, 64),
        "K": (4, 16, 64),
        "H": (7, 14, 28, 56),
        "R": (1, 3, 7, 11),
        "N": (1, 4, 16),
    },
}


@dataclass(frozen=True)
class MapSettings:
    """Settings of a map: its two axes through a shape, the engine and the timing mode."""

    around: ConvShape
    across: Axis
    down: Axis
    engine: str
    timing: str

    def shapes(self) -> list[ConvShape]:
        return winners.planned(self.around, self.across, self.down, SPANS[self.engine])

    def requests(self) -> list[Request]:
        return [
            Request(tuple(r.name for r in supported), shape, None, self.engine, {}, self.timing, SECONDS)
            for shape in self.shapes()
            if (supported := availability.supported_rungs(LADDER, self.engine, shape))
        ]

    def __str__(self) -> str:
        return tr(
            "{across} by {down} around {shape}, {caches}, {engine}",
            across=self.across.title,
            down=self.down.title,
            shape=self.around,
            caches=self.timing,
            engine=self.engine,
        )


def section(shape: ConvShape, predict: str) -> None:
    """Draws the card. It is polled while a map is measured."""
    st.fragment(_content, run_every=run_series.poll_interval(KEY))(shape, predict)


def _content(shape: ConvShape, predict: str) -> None:
    series = run_series.current_series(KEY)
    with st.container(key="card_map", border=True):
        across, down, timing = _head(series)
        settings = _measurable(shape, across, down, timing, series)
        if series and series.rows:
            _measured(series, settings, shape, predict)
        _recorded(shape, across, down, timing, predict)


def _head(series: Series | None) -> tuple[Axis, Axis, str]:
    with st.container(key="map_head", horizontal=True, vertical_alignment="center"):
        st.html(card_title(tr("Fastest kernel by shape")))
        with st.container(key="chips_map", width="content"), st.popover(tr("axes"), key="map_axes"):
            across = option("across", list(AXES))
            down = option("down", _down_choices(across))
            st.caption(tr("CK: as many filters as channels. H: height and width. R: filter height and width."))
    return AXES[across], AXES[down], chosen("caches", MODES)


def _down_choices(across: str) -> list[str]:
    """Returns the axes that can be combined with `across`, H first."""
    return sorted(winners.compatible_axes(across), key=lambda key: key != "H")


# -- measured here -------------------------------------------------------------------------------
def _measurable(shape: ConvShape, across: Axis, down: Axis, timing: str, series: Series | None) -> MapSettings:
    engine = chosen("engine", autotune.measuring())
    around = address.small(shape) if engine == "cpu" else shape
    settings = MapSettings(around, across, down, engine, timing)
    todo = settings.requests()
    with st.container(key="chips_measure", horizontal=True):
        if series and series.job:
            if st.button(tr("Stop"), key="stop_map"):
                run_series.stop(series)
        elif todo and st.button(trn("Measure {n} cell here", "Measure {n} cells here", len(todo)), key="measure_map"):
            run_series.start(KEY, Series(settings, todo, lambda request: str(request.shape)))
        settings_text = {"shape": around, "engine": engine, "caches": timing}
        quiet(
            tr("On this machine, at small extents around {shape} ({engine}, {caches}).", **settings_text)
            if engine == "cpu"
            else tr("On this machine, around {shape} ({engine}, {caches}).", **settings_text),
            tr("Every kernel that can run is checked and timed."),
        )
    run_series.progress(series)
    return settings


def _measured(series: Series, settings: MapSettings, shape: ConvShape, predict: str) -> None:
    measured: MapSettings = series.settings
    result = winners.winners(
        winners.by_shape(series.rows, measured.timing), measured.around, measured.across, measured.down
    )
    if result:
        stale = measured != settings
        caption = (
            trn(
                "around {shape}, stopped after {n} cell",
                "around {shape}, stopped after {n} cells",
                series.tried,
                shape=measured.around,
            )
            if series.stopped
            else tr("around {shape}", shape=measured.around)
        )
        _map(result, "measured", caption, stale, shape, predict)
    quiet(*[tr("No time: {reason}", reason=why) for why in series.failed[:MAX_FAILURES]])


# -- recorded ------------------------------------------------------------------------------------
@cached(None)
def _by_shape(timing: str) -> dict[ConvShape, list[Row]]:
    return winners.by_shape(records.recordings(LADDER.name), timing)


def recorded(shape: ConvShape, across: Axis, down: Axis, timing: str) -> winners.Map | None:
    return winners.winners(_by_shape(timing), shape, across, down)


def _recorded(shape: ConvShape, across: Axis, down: Axis, timing: str, predict: str) -> None:
    result = recorded(shape, across, down, timing)
    if not result:
        quiet(
            tr(
                "No recording ({caches}) covers {across} and {down} together.",
                caches=timing,
                across=across.title,
                down=down.title,
            )
        )
        return
    on_page_shape, fixed = winners.is_on_map(result, shape), winners.fixed_values_text(result)
    caption = (
        tr("everything else as on this page: {values}", values=fixed)
        if on_page_shape
        else tr("at {values}", values=fixed)
    )
    _map(result, "recorded", caption, stale=False, shape=shape, predict=predict, elsewhere=not on_page_shape)


def _map(
    result: winners.Map, kind: str, caption: str, stale: bool, shape: ConvShape, predict: str, elsewhere=False
) -> None:
    rows = result.rows()
    detail = sweeps.provenance(rows) + (f", {rows[0]['date']}" if kind == "recorded" else "")
    marks, other = f" {stale_mark()}" if stale else "", tr("not around this shape")
    marks += f' <span class="kt-elsewhere">{other}</span>' if elsewhere else ""
    st.html(f'<p class="kt-figures">{units.badge(kind, detail)}{marks} {escape(caption)}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_map_{kind}"):
        st.html(winners.html(result, shape, lambda to: href(to, predict)))
        cards.sentence(winners.summary(result))


def href(shape: ConvShape, predict: str) -> str:
    """Returns the page's URL query at another shape, all else kept; "" if the page cannot show the shape."""
    params = address.at_shape(shape, predict)
    _, notes = FIELDS.read(params)
    return "" if notes else f"?{urlencode(explored(others(FIELDS) | params))}"
