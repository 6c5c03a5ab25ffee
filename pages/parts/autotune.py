"""Autotune: the worker times the legal tile sizes of one rung at the page's shape; a chart shows the times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Generic

import streamlit as st

from kernels import engines, records
from kernels.i18n import tr, trn
from kernels.jobs.job import Request
from kernels.machine.timing import MODES
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.model.shape import S, Shape
from kernels.records.jsontext import id_of
from pages.parts import cards, run_series
from pages.parts import tiles as tile_sizes
from pages.parts.query import chosen
from pages.parts.run_series import Series
from pages.parts.text import card_title, conclusion, details, paragraph, stale_mark, together
from pages.parts.theme import tokens
from visuals import units
from visuals.charts import sweeps

PART = "autotune"  # ?view=autotune
KEY = "sweep"
MAX_CANDIDATES = 32
SECONDS = 0.3  # to time each combination
MAX_REASONS = 3  # on the page, of combinations without a time


@dataclass(frozen=True)
class SweepSettings(Generic[S]):
    """The rung and shape of a sweep, and how it is timed."""

    rung: Rung
    shape: S
    engine: str
    timing: str

    def request(self, tiles: Mapping[str, int]) -> Request:
        return Request((self.rung.name,), self.shape, None, self.engine, dict(tiles), self.timing, SECONDS)

    def __str__(self) -> str:
        return f"{self.title}, {self.shape}, {self.timing}, {self.engine}"

    @property
    def title(self) -> str:
        return self.rung.title_on(self.engine)


def section(rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> None:
    """Draws the card. It is polled while a sweep runs."""
    st.fragment(_all, run_every=run_series.poll_interval(KEY))(rung, shape, dict(tiles))


def _all(rung: Rung, shape: Shape, tiles: dict[str, int]) -> None:
    sweep = run_series.current_series(KEY)
    with st.container(key="card_autotune", border=True):
        settings = SweepSettings(rung, shape, chosen("engine", measuring()), chosen("caches", MODES))
        plan = _head(settings, tiles, sweep)
        if sweep and sweep.tried:
            _measured(sweep, settings, tiles)
        _recorded(settings, tiles)
        together(plan)


def measuring() -> list[str]:
    """Returns the engines that can measure times on this machine."""
    return [name for name, s in engines.available().items() if s.ready and engines.load(name).MEASURES]


# -- the sweep -----------------------------------------------------------------------------------
def _head(settings: SweepSettings, tiles: dict[str, int], sweep: Series | None) -> str:
    """Draws the heading, the button and the progress. Returns the HTML of what the button tries."""
    legal, candidates = _combinations(settings, tiles)
    with st.container(key="autotune_head", horizontal=True, vertical_alignment="center"):
        st.html(card_title(tr("Autotune")))
        if sweep and sweep.job:
            if st.button(tr("Stop"), key="stop_autotune"):
                run_series.stop(sweep)
        elif len(candidates) > 1 and st.button(tr("Try {n} tile sizes", n=len(candidates)), key="autotune"):
            run_series.start(KEY, Series(settings, [settings.request(t) for t in candidates], _name))
    run_series.progress(sweep)
    return _plan(settings, len(legal), len(candidates))


def _combinations(settings: SweepSettings, tiles: dict[str, int]) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Returns the legal combinations that the engine computes in different ways, and those to try; none if the engine
    does not run the rung."""
    rung, shape, engine = settings.rung, settings.shape, settings.engine
    if engine not in rung.engines:
        return [], []
    candidates = tile_sizes.sweep_candidates(rung, shape, tiles, MAX_CANDIDATES)
    return rung.distinct(tile_sizes.legal(rung, shape), engine), rung.distinct(candidates, engine)


def _plan(settings: SweepSettings, legal: int, candidates: int) -> str:
    """Returns HTML: how many tile sizes the button tries; folded, which ones and how."""
    title, lower = units.named(settings.title, first=True), units.named(settings.title)
    if why := settings.rung.why_not_on(settings.engine):
        return paragraph(
            tr(
                "{title} is not measured on the {engine} engine: {why}.",
                title=units.named(tr(settings.rung.title), first=True),
                engine=settings.engine,
                why=why,
            )
        )
    if not settings.rung.tiles_on(settings.engine):
        return paragraph(tr("{title} has no tile sizes to choose.", title=title))
    if legal <= 1:
        return paragraph(
            tr("{title} runs this shape with one combination of tile sizes only.", title=title)
            if legal
            else tr("{title} runs this shape with no combination of tile sizes.", title=title)
        )
    how = tr(
        "Each combination is verified and timed as Run does ({engine}, {timing}).",
        engine=settings.engine,
        timing=settings.timing,
    )
    if candidates == legal:
        text = tr("The button tries all {n} legal combinations of {title} at this shape.", n=legal, title=lower)
        return paragraph(text) + details(paragraph(how))
    text = tr(
        "The button tries {n} of {legal} legal combinations of {title} at this shape.",
        title=lower,
        legal=units.whole(legal),
        n=candidates,
    )
    which = tr(
        "First the combination on the page and each value of each size. Then the combination on the page with one size "
        "changed. The others are spread evenly."
    )
    return paragraph(text) + details(paragraph(which), paragraph(how))


def _name(request: Request) -> str:
    return sweeps.tiles_text(request.tiles)


# -- results -------------------------------------------------------------------------------------
def _measured(sweep: Series, settings: SweepSettings, tiles: dict[str, int]) -> None:
    stale = sweep.settings != settings
    failed = _failed(sweep)
    if not sweep.rows:
        together(*failed)
        return
    fields = {
        "tried": sweep.tried,
        "total": units.whole(len(tile_sizes.legal(sweep.settings.rung, sweep.settings.shape))),
    }
    how = (
        tr("stopped after {tried} of {total} legal combinations", **fields)
        if sweep.stopped
        else tr("{tried} of {total} legal combinations", **fields)
    )
    head = f"{units.badge('measured', sweeps.provenance(sweep.rows))} {how}"
    if stale:
        head += f" {stale_mark(str(sweep.settings))}"
    _heading(sweep.rows, sweep.settings.rung, head)
    with st.container(key=f"{'stale' if stale else 'fresh'}_autotune"):
        _curve(sweep.rows, tiles, "measured", failed)


def _failed(sweep: Series) -> list[str]:
    lines = [paragraph(tr("No time: {reason}", reason=why)) for why in sweep.failed[:MAX_REASONS]]
    if (more := len(sweep.failed) - MAX_REASONS) > 0:
        lines.append(paragraph(trn("{n} more has no time", "{n} more have no time", more)))
    return lines


def _recorded(settings: SweepSettings, tiles: dict[str, int]) -> None:
    rows, text = recorded(settings.rung, settings.shape, settings.timing)
    if not rows:
        together(paragraph(tr("No tile sizes of this kernel were recorded.")))
        return
    badge = units.badge("recorded", f"{sweeps.provenance(rows)}, {units.days(rows)}")
    count = tr("{n} combinations", n=len(rows))
    _heading(rows, settings.rung, f"{badge} {escape(text)}, {count}")
    with st.container(key="fresh_autotune_recorded"):
        _curve(rows, tiles, "recorded")


def recorded(rung: Rung, shape: Shape, timing: str) -> tuple[Sequence[Row], str]:
    """Returns the recorded rows of a rung over tile sizes at one shape, and a text that names the shape.

    The shape is that of the page or the nearest one recorded. The list is empty if there are fewer than two rows.
    """
    nearest = records.nearest(rung.name, shape, rung.default_tiles, timing)
    if not nearest:
        return [], ""
    ladder, equal_fields = rung.name.partition("/")[0], ("rung", "shape", "mode", "device", "engine")
    rows = [r for r in records.recordings(ladder) if all(r[name] == nearest.row[name] for name in equal_fields)]
    return (rows, nearest.caption) if len(rows) > 1 else ([], "")


def _heading(rows: Sequence[Row], rung: Rung, head: str) -> None:
    text = conclusion(sweeps.tiles_sentence(rows, rung.default_tiles))
    together(text, f'<p class="kt-figures">{head}</p>')


def _curve(rows: Sequence[Row], tiles: Mapping[str, int], kind: str, more: Sequence[str] = ()) -> None:
    """Draws the chart and, folded, its legend and `more`."""
    data_key = tuple(id_of(row) for row in rows), tuple(tiles.items())
    cards.chart(lambda: sweeps.tiles(rows, tiles, tokens()), sweeps.tiles_px(rows), f"chart_autotune_{kind}", data_key)
    legend = tr(
        "Each dot is a combination, its whisker p20 to p80. The line joins the fastest at each value. "
        "★ is the fastest of all, ○ the combination on the page."
    )
    together(details(paragraph(legend), *more))
