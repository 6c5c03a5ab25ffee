"""Autotune: the worker times the legal tile sizes of one rung at the page's shape; a chart shows the times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from kernels import engines, records
from kernels.jobs.job import Request
from kernels.machine.timing import MODES
from kernels.model.rung import Rung
from kernels.records.jsontext import id_of
from pages.parts import cards, run_series
from pages.parts import tiles as tile_sizes
from pages.parts.query import chosen
from pages.parts.run_series import Series
from pages.parts.text import quiet
from pages.parts.theme import tokens
from visuals.charts import sweeps, units

PART = "autotune"  # ?view=autotune
KEY = "sweep"
MAX_CANDIDATES = 32
SECONDS = 0.3  # to time each combination
MAX_REASONS = 3  # on the page, of combinations without a time


@dataclass(frozen=True)
class SweepSettings:
    """The rung and shape of a sweep, and how it is timed."""

    rung: Rung
    shape: Any
    engine: str
    timing: str

    def request(self, tiles: Mapping[str, int]) -> Request:
        return Request((self.rung.name,), self.shape, None, self.engine, dict(tiles), self.timing, SECONDS)

    def __str__(self) -> str:
        return f"{self.rung.title}, {self.shape}, {self.timing}, {self.engine}"


def section(rung: Rung, shape: Any, tiles: Mapping[str, int]) -> None:
    """Draws the card. It is polled while a sweep runs."""
    st.fragment(_all, run_every=run_series.poll_interval(KEY))(rung, shape, dict(tiles))


def _all(rung: Rung, shape: Any, tiles: dict[str, int]) -> None:
    sweep = run_series.current_series(KEY)
    with st.container(key="card_autotune", border=True):
        settings = SweepSettings(rung, shape, chosen("engine", measuring()), chosen("caches", MODES))
        _head(settings, tiles, sweep)
        if sweep and sweep.tried:
            _measured(sweep, settings, tiles)
        _recorded(settings, tiles)


def measuring() -> list[str]:
    """Returns the engines that can measure times on this machine."""
    return [name for name, s in engines.available().items() if s.ready and engines.load(name).MEASURES]


# -- the sweep -----------------------------------------------------------------------------------
def _head(settings: SweepSettings, tiles: dict[str, int], sweep: Series | None) -> None:
    legal = tile_sizes.legal(settings.rung, settings.shape)
    candidates = tile_sizes.sweep_candidates(settings.rung, settings.shape, tiles, MAX_CANDIDATES)
    with st.container(key="autotune_head", horizontal=True, vertical_alignment="center"):
        st.html('<h2 class="kt-card">Autotune</h2>')
        if sweep and sweep.job:
            if st.button("Stop", key="stop_autotune"):
                run_series.stop(sweep)
        elif len(candidates) > 1 and st.button(f"Try {len(candidates)} tile sizes", key="autotune"):
            run_series.start(KEY, Series(settings, [settings.request(t) for t in candidates], _name))
    run_series.progress(sweep)
    quiet(_plan(settings, len(legal), len(candidates)))


def _plan(settings: SweepSettings, legal: int, candidates: int) -> str:
    title = settings.rung.title
    if not settings.rung.tiles:
        return f"{title} has no tile sizes to choose."
    if legal <= 1:
        return f"{title} runs this shape with {'one combination' if legal else 'no combination'} of tile sizes alone."
    if candidates == legal:
        return f"All {legal} legal combinations of {title} at this shape, each verified and timed as Run does ({settings.engine}, {settings.timing})."
    return (
        f"{candidates} of {legal:,} legal combinations of {title} at this shape: the one on the page, each value of each size, "
        f"the page's with one size turned, then others spread evenly. Each is verified and timed as Run does ({settings.engine}, {settings.timing})."
    )


def _name(request: Request) -> str:
    return sweeps.tiles_text(request.tiles)


# -- results -------------------------------------------------------------------------------------
def _measured(sweep: Series, settings: SweepSettings, tiles: dict[str, int]) -> None:
    stale = sweep.settings != settings
    if sweep.rows:
        how = f"{'stopped after ' if sweep.stopped else ''}{sweep.tried} of {len(tile_sizes.legal(sweep.settings.rung, sweep.settings.shape)):,} legal combinations"
        head = f"{units.badge('measured', sweeps.provenance(sweep.rows))} {how}"
        if stale:
            head += f' <span class="kt-stale">stale: measured at {escape(str(sweep.settings))}</span>'
        st.html(f'<p class="kt-figures">{head}</p>')
        with st.container(key=f"{'stale' if stale else 'fresh'}_autotune"):
            _curve(sweep.rows, tiles, sweep.settings.rung, "measured")
    quiet(*[f"No time: {why}" for why in sweep.failed[:MAX_REASONS]])
    if len(sweep.failed) > MAX_REASONS:
        quiet(f"and {len(sweep.failed) - MAX_REASONS} more without a time")


def _recorded(settings: SweepSettings, tiles: dict[str, int]) -> None:
    rows, text = recorded(settings.rung, settings.shape, settings.timing)
    if not rows:
        quiet("No recorded sweep of this rung.")
        return
    badge = units.badge("recorded", f"{sweeps.provenance(rows)}, {rows[0]['date']}")
    st.html(f'<p class="kt-figures">{badge} {escape(text)}, {len(rows)} combinations</p>')
    with st.container(key="fresh_autotune_recorded"):
        _curve(rows, tiles, settings.rung, "recorded")


def recorded(rung: Rung, shape: Any, timing: str) -> tuple[list[dict], str]:
    """Returns the recorded rows of a rung over tile sizes at one shape, and a text that names the shape.

    The shape is that of the page or the nearest one recorded. The list is empty if there are fewer than two rows.
    """
    nearest = records.nearest(rung.name, shape, rung.default_tiles, timing)
    if not nearest:
        return [], ""
    equal_fields = ("rung", "shape", "mode", "device", "engine")
    rows = [r for r in records.recordings() if all(r[name] == nearest.row[name] for name in equal_fields)]
    return (rows, nearest.caption) if len(rows) > 1 else ([], "")


def _curve(rows: Sequence[dict], tiles: Mapping[str, int], rung: Rung, kind: str) -> None:
    data_key = tuple(id_of(row) for row in rows), tuple(tiles.items())
    cards.chart(
        lambda: sweeps.tiles(rows, tiles, tokens()), sweeps.tiles_px(rows), f"chart_autotune_{kind}", data_key
    )
    quiet(
        "Each dot is a combination with p20 to p80; the line joins the best at each value. ★ the best of all, ○ the one on the page."
    )
    cards.sentence(sweeps.tiles_sentence(rows, rung.default_tiles))
