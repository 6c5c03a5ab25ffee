"""The cards of the fusion lesson: every launch over time with the bytes it moves, the savings of fusion, and FP16."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.fusion.ladder import RUNGS
from kernels.fusion.shape import ChainShape
from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from kernels.model.row import Row
from kernels.records.jsontext import id_of
from pages.fusion import half
from pages.parts import cards
from pages.parts.run_settings import CardRows, RunSettings, bars, card_rows
from pages.parts.text import card_title, conclusion, details, paragraph, together
from pages.parts.theme import tokens
from visuals import units
from visuals.charts import roofline, sweeps
from visuals.charts.bars import bar_line
from visuals.fusion import charts
from visuals.fusion import notes as fusion_notes

HEADERS = (mark("computes"), mark("read"), mark("written"), mark("FLOP"), mark("FLOP/byte"))


def section(settings: RunSettings) -> None:
    """Draws the cards that follow those of a run."""
    result = card_rows(settings)
    with st.container(key="rates", horizontal=True):
        _launches(settings, result)
        _savings(settings, result)
    half.card()


def _stale(result: CardRows) -> str:
    stale = tr("stale")
    return f' <span class="kt-stale">{stale}</span>' if result.stale else ""


# -- launch by launch ----------------------------------------------------------------------------------------
def _launches(settings: RunSettings, result: CardRows) -> None:
    with st.container(key="card_fusion_launches", border=True):
        head, titled = card_title(tr("Launch by launch")), bars(settings, result.rows)
        table = (_badge_line(units.badge("predicted", tr("each tensor once per launch"))), _table(settings.shape))
        if not titled:
            press = tr("Press Run. Each launch is then also timed alone and shown here as a bar.")
            together(head, paragraph(press), details(*table))
            return
        rows = [row for _, row in titled]
        when = f", {units.days(rows)}" if result.kind == "recorded" else ""
        badge = units.badge(result.kind, sweeps.provenance(rows) + when)
        together(head, conclusion(charts.longest_launch(titled)), _badge_line(f"{badge}{_stale(result)}"))
        with st.container(key=f"{'stale' if result.stale else 'fresh'}_fusion_launches"):
            cards.chart(
                lambda: charts.timeline(titled, tokens()),
                charts.px(titled),
                "chart_fusion_launches",
                tuple(map(id_of, rows)),
            )
        together(details(_legend(titled), *table))


def _badge_line(badge: str) -> str:
    return f'<p class="kt-figures">{badge}</p>'


def _legend(titled: list[tuple[str, Row]]) -> str:
    rows = [row for _, row in titled]
    on_cpu = rows[0]["engine"] == "cpu"
    notes = [
        tr("Each bar is one call, timed alone. │ is the time of the whole chain, timed together.")
        if on_cpu
        else tr("Each bar is one launch, timed alone. │ is the time of the whole chain, timed together.")
    ]
    if any((row.get("ceilings") or {}).get("launch_us") for row in rows):
        notes.append(
            tr('<span class="kt-line">▬</span> is the time of an empty call.')
            if on_cpu
            else tr('<span class="kt-line">▬</span> is the time of an empty launch.')
        )
    if any("fold" in (row.get("parts_ms") or {}) for row in rows):
        notes.append(tr('<span class="kt-filter">■</span> is the fold, which runs once, before all images.'))
    notes += [escape(units.disturbed_note(titled)), escape(units.clock_note(titled))]
    return f'<p class="kt-quiet">{" ".join(notes)}</p>'


def _table(s: ChainShape) -> str:
    """Returns HTML: one line for each launch, grouped by rung."""
    header_cells = "".join(f'<th scope="col">{tr(head)}</th>' for head in HEADERS)
    launch, table = tr("launch"), tr("Launches")
    text = f"<tr><td>{launch}</td>{header_cells}</tr>"
    for rung in RUNGS:
        parts = fusion_notes.parts(rung.name, s)
        if not parts:
            continue
        text += f'<tr><th colspan="{len(HEADERS) + 1}" scope="rowgroup">{escape(tr(rung.title))}</th></tr>'
        for n, part in enumerate(parts, 1):
            blocks = part.blocks
            which = f"{blocks[0] + 1}" if len(blocks) == 1 else f"{blocks[0] + 1}–{blocks[-1] + 1}"
            cells = (
                trn("block {which}", "blocks {which}", len(blocks), which=which),
                units.bytes_(part.reads),
                units.bytes_(part.writes),
                units.count(part.flops),
                units.ratio(part.flops / part.bytes),
            )
            name = f"{n} {escape(part.launch.name.replace('_', ' '))}"
            text += f'<tr><th scope="row">{name}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{table}">'
        f'<table class="kt-table kt-shares">{text}</table></div>'
    )


# -- savings ---------------------------------------------------------------------------------------------------
def _savings(settings: RunSettings, result: CardRows) -> None:
    s, head = settings.shape, card_title(tr("What fusion saves"))
    with st.container(key="card_fusion_saved", border=True):
        columns = fusion_notes.launch_table(s)
        if not columns:
            together(head, paragraph(tr("None of our kernels can run this chain.")))
            return
        roof = _roof(result)
        first, *reasons = fusion_notes.pays(s, roof) or [""]
        picture = _limit_bars(s, roof) if roof else ""
        names = list(columns)
        lines = {line: [columns[rung][line] for rung in names] for line in columns[names[0]]}
        parts = [(units.badge("predicted"), lines)]
        floor_lines = _floor(s, result, names, roof) if roof else {}
        if roof and floor_lines:
            detail = tr("{device}: a copy at {rate}", device=roof.device, rate=units.bandwidth(roof.bytes_per_s))
            parts.append((units.badge(result.kind, detail), floor_lines))
        table = _columns([tr(find(rung).title) for rung in names], parts)
        together(head, conclusion(first), picture, details(*map(paragraph, reasons), table))


def _limit_bars(s: ChainShape, roof: roofline.Roof) -> str:
    """Returns HTML bars: the least times of what can limit the chain with one launch per block."""
    times = fusion_notes.limit_times(fusion_notes.limits(s, roof))
    longest = max(ms for _, ms, _ in times)
    if not longest:
        return ""
    badge = units.badge("predicted", tr("one launch per block, {device}", device=roof.device))
    lines = "".join(bar_line(title, ms / longest, text) for title, ms, text in times)
    return f'{_badge_line(badge)}<dl class="kt-bars">{lines}</dl>'


def _roof(result: CardRows) -> roofline.Roof | None:
    """Returns the roofline of the rows on the page, else a recorded one."""
    return next(iter(roofline.roofs(((row, result.kind) for row in result.rows.values()), "fusion")), None)


def _floor(s: ChainShape, result: CardRows, names: list[str], roof: roofline.Roof) -> dict[str, list[str]]:
    """Returns lines: each rung's time, the time to copy the least bytes as measured, and their ratio."""
    if result.stale or not any((row.get("ceilings") or {}).get("copy_bytes_per_s") for row in result.rows.values()):
        return {}
    floor = fusion_notes.floor_ms(s, roof)
    rows = [result.rows.get(name) for name in names]
    return {
        tr("time"): [units.time_(row["median_ms"]) if row else "–" for row in rows],
        tr("copy of the minimum bytes"): [units.time_(floor)] * len(rows),
        tr("time / copy"): [f"{units.ratio(row['median_ms'] / floor)}×" if row else "–" for row in rows],
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
    table = tr("Bytes moved")
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{table}">'
        f'<table class="kt-table">{text}</table></div>'
    )
