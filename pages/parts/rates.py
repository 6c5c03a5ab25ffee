"""FLOP/s: the rate of each rung at the page's shape, and over sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

import streamlit as st

from kernels import records
from kernels.i18n import tr
from kernels.model.row import Row
from kernels.model.rung import Ladder
from kernels.model.shape import S
from kernels.records.jsontext import id_of
from pages.parts import cards
from pages.parts.run_settings import RunSettings, bars, card_rows
from pages.parts.text import card_title, conclusion, paragraph, stale_mark, together
from pages.parts.theme import tokens
from visuals import units
from visuals.charts import conclusions, sweeps

Library = Callable[[Mapping[str, Row]], Row | None]


def card(settings: RunSettings, library: Library) -> None:
    """Draws a bar for each rung of the cards' rows. `library(rows)` is the row that the shares refer to."""
    with st.container(key="card_rates", border=True):
        heading = card_title(tr("FLOP/s by kernel"))
        current = card_rows(settings)
        if not current.rows:
            together(heading, paragraph(tr("No run has timed these kernels at this shape.")))
            return
        titled_rows, of = bars(settings, current.rows), library(current.rows)
        badge = units.badge(current.kind, sweeps.provenance([row for _, row in titled_rows]))
        stale = f" {stale_mark()}" if current.stale else ""
        together(
            heading, conclusion(conclusions.of_rates(titled_rows, of)), f'<p class="kt-figures">{badge}{stale}</p>'
        )
        with st.container(key=f"{'stale' if current.stale else 'fresh'}_rates"):
            data_key = tuple(id_of(row) for _, row in titled_rows)
            cards.chart(
                lambda: sweeps.ladder(titled_rows, of, tokens()),
                sweeps.ladder_px(len(titled_rows)),
                "chart_rates",
                data_key,
            )
        if of:
            title = settings.ladder.rung(of["rung"]).title_on(of["engine"])
            together(paragraph(tr("Percentages: speed relative to {title}.", title=title)))


def sizes(ladder: Ladder[S], shape: S, timing: str, size: Callable[[S], float | None], title: str) -> None:
    """Draws the recorded rates of the rungs over sizes.

    `size(shape)` is the position of a recording on the axis called `title`; None if it is not part of the curve.
    """
    with st.container(key="card_sizes", border=True):
        heading = card_title(tr("FLOP/s by size"))
        lines = recorded_sizes(ladder, timing, size)
        if not lines:
            together(heading, paragraph(tr("No sizes of this type were recorded.")))
            return
        row = lines[0][1][0][1]
        badge = units.badge("recorded", f"{row['device']}, {timing}, {row['date']}")
        together(
            heading,
            conclusion(conclusions.of_sizes(lines)),
            f'<p class="kt-figures">{badge}</p>',
            f'<p class="kt-quiet">{_legend(lines)}</p>',
        )
        data_key = tuple(id_of(row) for _, points in lines for _, row in points), size(shape)
        cards.chart(lambda: sweeps.sizes(lines, title, size(shape), tokens()), sweeps.SIZES_PX, "chart_sizes", data_key)


def _legend(lines: list[sweeps.Line]) -> str:
    """Returns the names of the coloured lines as HTML. Text wraps at any width; Plotly's legend covers the axis."""
    named = sweeps.named_lines(lines)
    parts = [
        f'<span style="white-space:nowrap"><span class="kt-{role}">━</span> {escape(title)}</span>'
        for title, role in named.items()
    ]
    if len(named) < len(lines):
        parts.append("<span>─</span> " + tr("the others"))
    return " &ensp;".join(parts)


def recorded_sizes(ladder: Ladder[S], timing: str, size: Callable[[S], float | None]) -> list[sweeps.Line]:
    """Returns (title, points) of each rung recorded at two or more sizes with its default tile sizes.

    Points are (size, row), sorted by size. All rows are of the card that the ladder is shown from.
    """
    found: dict[str, dict[float, Row]] = {}
    for row in records.recordings(ladder.name):
        if row["mode"] != timing:
            continue
        position = size(ladder.shape(**row["shape"]))
        if position is not None and row["tiles"] == ladder.rung(row["rung"]).default_tiles:
            found.setdefault(row["rung"], {})[position] = row
    lines = [(rung, sorted(found[rung.name].items())) for rung in ladder.rungs if len(found.get(rung.name, ())) > 1]
    return [(rung.title_on(points[0][1]["engine"]), points) for rung, points in lines]
