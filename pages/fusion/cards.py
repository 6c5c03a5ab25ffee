"""Two cards of the fusion lesson: every launch over time with the bytes it moves, and the savings of fusion."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.fusion.ladder import RUNGS
from kernels.fusion.shape import ChainShape
from kernels.ladders import find
from kernels.records.jsontext import id_of
from pages.parts import cards
from pages.parts.run_settings import CardRows, RunSettings, bars, card_rows
from pages.parts.theme import tokens
from visuals.charts import roofline, sweeps, units
from visuals.fusion import charts, story

HEADERS = ("computes", "read", "written", "FLOP", "FLOP/byte")


def section(settings: RunSettings) -> None:
    """Draws the cards that follow those of a run."""
    result = card_rows(settings)
    with st.container(key="rates", horizontal=True):
        _launches(settings, result)
        _savings(settings, result)


def _stale(result: CardRows) -> str:
    return ' <span class="kt-stale">stale</span>' if result.stale else ""


# -- launch by launch ----------------------------------------------------------------------------------------
def _launches(settings: RunSettings, result: CardRows) -> None:
    with st.container(key="card_fusion_launches", border=True):
        st.html('<h2 class="kt-card">Launch by launch</h2>')
        titled = bars(settings, result.rows)
        if titled:
            rows = [row for _, row in titled]
            when = f", {rows[0]['date']}" if result.kind == "recorded" else ""
            badge = units.badge(result.kind, sweeps.provenance(rows) + when)
            st.html(f'<p class="kt-figures">{badge}{_stale(result)}</p>')
            with st.container(key=f"{'stale' if result.stale else 'fresh'}_fusion_launches"):
                cards.chart(
                    lambda: charts.timeline(titled, tokens()),
                    charts.px(titled),
                    "chart_fusion_launches",
                    tuple(map(id_of, rows)),
                )
            st.html(_legend(titled))
        else:
            st.html(
                '<p class="kt-quiet">Press Run: each launch is timed by itself too, and stands here as a bar.</p>'
            )
        st.html(
            f'<p class="kt-figures">{units.badge("predicted", "each tensor once a launch")}</p>{_table(settings.shape)}'
        )


def _legend(titled: list[tuple[str, dict]]) -> str:
    rows = [row for _, row in titled]
    notes = [
        "A bar a launch, timed by itself, one behind the other; │ where the whole chain, timed in one go, ends."
    ]
    if any((row.get("ceilings") or {}).get("launch_us") for row in rows):
        word = "call" if rows[0]["engine"] == "cpu" else "launch"
        notes.append(f'<span class="kt-line">▬</span> a {word} of nothing.')
    if any("fold" in (row.get("parts_ms") or {}) for row in rows):
        notes.append('<span class="kt-filter">■</span> fold: once for all images that will come.')
    notes.append(escape(units.clock_note(titled)))
    return f'<p class="kt-quiet">{" ".join(notes)}</p>'


def _table(s: ChainShape) -> str:
    """Returns HTML: one line for each launch, grouped by rung."""
    header_cells = "".join(f'<th scope="col">{head}</th>' for head in HEADERS)
    text = f"<tr><td>launch</td>{header_cells}</tr>"
    for rung in RUNGS:
        parts = story.parts(rung.name, s)
        if not parts:
            continue
        text += f'<tr><th colspan="{len(HEADERS) + 1}" scope="rowgroup">{escape(rung.title)}</th></tr>'
        for n, part in enumerate(parts, 1):
            blocks = part.blocks
            which = f"{blocks[0] + 1}" if len(blocks) == 1 else f"{blocks[0] + 1}–{blocks[-1] + 1}"
            cells = (
                f"block{'s' * (len(blocks) > 1)} {which}",
                units.bytes_(part.reads),
                units.bytes_(part.writes),
                units.count(part.flops),
                units.ratio(part.flops / part.bytes),
            )
            name = f"{n} {escape(part.launch.name.replace('_', ' '))}"
            text += f'<tr><th scope="row">{name}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="Launches">'
        f'<table class="kt-table kt-shares">{text}</table></div>'
    )


# -- savings ---------------------------------------------------------------------------------------------------
def _savings(settings: RunSettings, result: CardRows) -> None:
    s = settings.shape
    with st.container(key="card_fusion_saved", border=True):
        st.html('<h2 class="kt-card">What fusing saves, and when it does not pay</h2>')
        columns = story.launch_table(s)
        if not columns:
            st.html('<p class="kt-quiet">No rung of ours runs this chain.</p>')
            return
        roof = _roof(result)
        names = list(columns)
        lines = {line: [columns[name][line] for name in names] for line in columns[names[0]]}
        parts = [(units.badge("predicted"), lines)]
        if floor_lines := _floor(s, result, names):
            detail = f"{roof.device}: {units.bandwidth(roof.bytes_per_s)} a copy"
            parts.append((units.badge(result.kind, detail), floor_lines))
        st.html(_columns([find(name).title for name in names], parts))
        for text in story.pays(s, roof):
            cards.sentence(text)


def _roof(result: CardRows) -> roofline.Roof | None:
    """Returns the roofline of the rows on the page, else a recorded one."""
    return next(iter(roofline.roofs((row, result.kind) for row in result.rows.values())), None)


def _floor(s: ChainShape, result: CardRows, names: list[str]) -> dict[str, list[str]]:
    """Returns lines: each rung's time, the time to copy the least bytes as measured, and their ratio."""
    if result.stale or not any(
        (row.get("ceilings") or {}).get("copy_bytes_per_s") for row in result.rows.values()
    ):
        return {}
    floor = story.floor_ms(s, _roof(result))
    rows = [result.rows.get(name) for name in names]
    return {
        "time": [units.time_(row["median_ms"]) if row else "–" for row in rows],
        "a copy of the least bytes": [units.time_(floor)] * len(rows),
        "times as long": [units.ratio(row["median_ms"] / floor) if row else "–" for row in rows],
    }


def _columns(titles: list[str], parts: list[tuple[str, dict[str, list[str]]]]) -> str:
    """Returns an HTML table with a column for each rung."""
    header_cells = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    text = ""
    for n, (badge, lines) in enumerate(parts):
        text += (
            f"<tr><th>{badge}</th>{header_cells}</tr>"
            if n == 0
            else f'<tr><th colspan="{len(titles) + 1}">{badge}</th></tr>'
        )
        for name, cells in lines.items():
            text += f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="What each rung moves">'
        f'<table class="kt-table">{text}</table></div>'
    )
