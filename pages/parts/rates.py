"""The ladder in FLOP/s: what each rung reaches at the page's shape, and how that grows with the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from kernels import records
from kernels.model.rung import Ladder
from kernels.records.jsontext import id_of
from pages.parts import cards
from pages.parts.run_settings import Asked, bars, shown
from pages.parts.text import quiet
from pages.parts.theme import tokens
from visuals.charts import sweeps, units

Library = Callable[[Mapping[str, dict]], dict | None]


def card(asked: Asked, library: Library) -> None:
    """A bar for each rung of what the cards tell of; `library(rows)` is the row they are a share of."""
    with st.container(key="card_rates", border=True):
        st.html('<h2 class="kt-card">The ladder in FLOP/s</h2>')
        now = shown(asked)
        if not now.rows:
            quiet("Press Run: each rung that can run this shape is timed beside the others.")
            return
        told, of, ladder = bars(asked, now.rows), library(now.rows), asked.ladder
        stale = ' <span class="kt-stale">stale</span>' if now.stale else ""
        st.html(
            f'<p class="kt-figures">{units.badge(now.kind, sweeps.provenance([row for _, row in told]))}{stale}</p>'
        )
        with st.container(key=f"{'stale' if now.stale else 'fresh'}_rates"):
            made_of = tuple(id_of(row) for _, row in told)
            cards.chart(
                lambda: sweeps.ladder(told, of, tokens()),
                sweeps.ladder_px(len(told)),
                "chart_rates",
                made_of,
            )
            if of:
                title = ladder.rung(of["rung"]).title_on(of["engine"])
                quiet(f"The share is of the speed of {title}, timed with the others.")


def sizes(ladder: Ladder, shape: Any, timing: str, size: Callable[[Any], float | None], title: str) -> None:
    """How the rungs grow with the size, as recorded: `size(shape)` is where a recording stands on the axis called
    `title`, None where it does not belong to the curve."""
    with st.container(key="card_sizes", border=True):
        st.html('<h2 class="kt-card">Over sizes</h2>')
        lines = recorded_sizes(ladder, timing, size)
        if not lines:
            quiet("No recorded sweep over sizes for this type.")
            return
        row = lines[0][1][0][1]
        badge = units.badge("recorded", f"{row['device']}, {timing}, {row['date']}")
        st.html(f'<p class="kt-figures">{badge}</p>')
        made_of = tuple(id_of(row) for _, points in lines for _, row in points), size(shape)
        px = sweeps.sizes_px(len(lines))
        cards.chart(lambda: sweeps.sizes(lines, title, size(shape), tokens()), px, "chart_sizes", made_of)


def recorded_sizes(
    ladder: Ladder, timing: str, size: Callable[[Any], float | None]
) -> list[tuple[str, list[tuple[float, dict]]]]:
    """(title, points (size, row) by size) of each rung recorded at two sizes or more, at its usual tile sizes, on the
    device that was recorded first."""
    found: dict[str, dict[float, dict]] = {}
    device = ""
    for row in records.recordings():
        if row["rung"].partition("/")[0] != ladder.name or row["mode"] != timing:
            continue
        at = size(ladder.shape(**row["shape"]))
        if at is not None and row["tiles"] == ladder.rung(row["rung"]).default_tiles:
            device = device or row["device"]
            if row["device"] == device:
                found.setdefault(row["rung"], {})[at] = row
    lines = [
        (rung, sorted(found[rung.name].items())) for rung in ladder.rungs if len(found.get(rung.name, ())) > 1
    ]
    return [(rung.title_on(points[0][1]["engine"]), points) for rung, points in lines]
