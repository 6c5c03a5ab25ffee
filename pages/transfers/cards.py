"""The cards of the lesson on moving data. Each begins with its conclusion."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.i18n import tr
from kernels.transfers import recorded
from kernels.transfers.operations import Ledger, text_log
from kernels.transfers.rates import WAYS, rates
from kernels.transfers.scenarios import SCENARIOS
from pages.parts import cards, guess
from pages.parts.address import Values
from pages.parts.text import card_title, conclusion, details, paragraph, table, together
from pages.parts.theme import tokens
from pages.transfers import stage
from visuals import units
from visuals.transfers import charts
from visuals.transfers.evidence import TransferEvidence, bandwidth


def section(values: Values) -> None:
    """Draws the cards."""
    found = stage.evidence(values)
    rows = found.settings.rows
    with guess.cards():
        with st.container(key="cards_left"):
            with st.container(key="card_time", border=True):
                pieces(rows)
            with st.container(key="card_memory", border=True):
                leak(rows)
        with st.container(key="cards_right"):
            with st.container(key="card_roofline", border=True):
                copies()
            with st.container(key="card_why", border=True):
                scenarios(found)


def _not_recorded() -> str:
    return "" if recorded.newest() else tr("Not recorded yet: {source}.", source=rates().source)


def _badge() -> str:
    record = recorded.newest()
    kind, source = (
        ("recorded", str(record["device"])) if record else ("predicted", tr("{device}’s rates", device=rates().device))
    )
    return f"<p>{units.badge(kind, source)}</p>"


def pieces(rows: int) -> None:
    title = card_title(tr("How many pieces?"), tr("{rows} rows", rows=units.whole(rows)))
    kind = "recorded" if recorded.pieces_ms(rows) else "predicted"
    badge = f"<p>{units.badge(kind, rates().device)}</p>"
    together(title, conclusion(charts.best_text(rows)), badge)
    cards.chart(lambda: charts.pieces(rows, tokens()), charts.HEIGHT, "chart_pieces", (rows, kind))
    together(
        paragraph(
            tr("Jumps come from the SMs: a piece whose blocks do not fill them takes as long as one whose blocks do.")
        )
    )


def copies() -> None:
    title = card_title(tr("Copies by size"))
    said = tr(
        "Large copies to the GPU reach {pinned} from pinned memory and {pageable} from pageable memory.",
        pinned=bandwidth("h2d_pinned"),
        pageable=bandwidth("h2d_pageable"),
    )
    kind = "recorded" if recorded.newest() else "predicted"
    together(title, conclusion(said), _badge())
    cards.chart(lambda: charts.copies(tokens()), charts.HEIGHT, "chart_copies", kind)
    rows = [
        (
            tr(charts.TITLES[way]),
            units.time_(rates().copies[way].latency_ms),
            units.bandwidth(rates().copies[way].bytes_per_s),
        )
        for way in WAYS
    ]
    of_copies = table((tr("copy"), tr("small copies"), tr("large copies")), rows, tr("Copies"))
    together(details(of_copies, paragraph(rates().source)))


def leak(rows: int) -> None:
    """Draws the memory of the leak over its steps, and the allocator's log."""
    s = SCENARIOS["leak"]
    found = TransferEvidence(stage.address.settings({"scenario": "leak", "rows": rows, "n": s.default_n}))
    ledger = Ledger()
    for op in found.ops:
        ledger.take(op)
    by_line = ledger.by_line()
    text, first = s.source()
    line, nbytes = next(iter(by_line.items()))
    said = tr("Line {line} got {bytes} that are still in use.", line=line, bytes=units.bytes_(nbytes))
    code = text.splitlines()[line - first].strip()
    record = (recorded.newest() or {}).get("logs", {}).get("leak")
    log = text_log({int(k): v for k, v in record["log"]}) if record else text_log(by_line)
    about = (
        tr("Recorded by CuPy’s memory hook.") if record else tr("Not recorded yet: from the program’s own operations.")
    )
    together(
        card_title(tr("The allocator’s log of the leak")),
        conclusion(said),
        f"<p>{units.badge('recorded' if record else 'predicted')}</p>",
        f'<pre class="kt-code">{escape(chr(10).join(log))}\n    {escape(code)}</pre>',
        paragraph(tr("The list of results keeps each tensor. One number of it would be enough."), "why"),
        paragraph(about),
    )


def scenarios(found: TransferEvidence) -> None:
    """Draws the totals of all scenarios at the page's rows."""
    all_of_them = [found.with_(key, row.default_n if row.n else 1) for key, row in SCENARIOS.items()]
    known = [one for one in all_of_them if not one.unknown and not one.settings.short]
    best = min((one for one in known if one.settings.row.kind == "batch"), key=lambda one: one.total_ms)
    said = tr(
        "The fastest way for one batch: {title}, {total}.", title=tr(best.settings.row.title), total=best.total_text
    )
    rows = [
        (
            tr(one.settings.row.title),
            one.size_text,
            one.total_text,
            tr(one.kind) if not one.unknown else tr("not measured"),
        )
        for one in all_of_them
    ]
    failed = (recorded.newest() or {}).get("failed", {})
    notes = [paragraph(f"{name}: {text}") for name, text in failed.items()]
    together(
        card_title(tr("All scenarios")),
        conclusion(said),
        table((tr("scenario"), tr("size"), tr("total"), tr("kind")), rows, tr("Scenarios")),
        paragraph(_not_recorded()),
        paragraph(
            tr("Unified memory has no predicted time: the rate of page moves is not known before it is measured.")
        ),
        *notes,
    )
