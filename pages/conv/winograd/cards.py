"""Two cards: operations and bytes that Winograd saves and adds, and its rounding errors, measured here."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

import streamlit as st

from kernels.conv import winograd_matrices
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import positions
from kernels.conv.winograd_cpu import R
from kernels.i18n import tr, trn
from kernels.ladders import find
from kernels.machine.processor import device_name
from kernels.records.jsontext import id_of
from pages.parts import cards, lesson
from pages.parts.text import quiet
from pages.parts.theme import tokens
from visuals.charts import units
from visuals.conv.winograd import charts
from visuals.conv.winograd.charts import TILES
from visuals.conv.winograd.part import why_not

COUNTS, ERRORS = "counts", "errors"  # names of page parts


def section(parts: Collection[str], shape: ConvShape) -> None:
    """Draws the cards that are among `parts`."""
    if not {COUNTS, ERRORS} & set(parts):
        return
    with st.container(key="rates", horizontal=True):
        if COUNTS in parts:
            _counts(shape)
        if ERRORS in parts:
            _errors(shape)


# -- counted -----------------------------------------------------------------------------------------
def _counts(s: ConvShape) -> None:
    with st.container(key="card_winograd_counts", border=True):
        reason = why_not(s, TILES[0])
        lines = _tile_lines() | ({} if reason else _shape_lines(s))
        header_cells = "".join(f'<th scope="col">{m}×{m}</th>' for m in TILES)
        rows = "".join(
            f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            if cells
            else f'<tr><th colspan="{len(TILES) + 1}" scope="rowgroup">{name}</th></tr>'
            for name, cells in lines.items()
        )
        badge = units.badge("predicted", tr("from the entries of the matrices"))
        st.html(
            f'<h2 class="kt-card">{tr("Fewer multiplications, more additions")}</h2>'
            f'<p class="kt-figures">{badge}</p>'
        )
        if reason:
            quiet(tr("Not at this shape: {reason}", reason=reason))
        else:
            cards.sentence(charts.work_caption(s))
        st.html(
            f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{tr("Operations of Winograd")}">'
            f'<table class="kt-table"><tr><th></th>{header_cells}</tr>{rows}</table></div>'
        )
        quiet(
            tr(
                "How operations are counted: an entry of 0 is free, an entry of 1 or −1 needs no multiplication, and n terms "
                "need n − 1 additions. X d Xᵀ applies X to each column, then to each row. A compiler may share more "
                "operations. G g Gᵀ runs once per filter and channel, Bᵀ d B once per tile and channel, Aᵀ Z A once per tile "
                "and filter."
            )
        )


def _tile_lines() -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {tr("one tile, one filter, one channel"): []}
    pairs = [winograd_matrices.multiplications_2d(m, R) for m in TILES]
    lines[tr("multiplications of direct convolution")] = [str(direct) for direct, _ in pairs]
    lines[tr("multiplications of Winograd")] = [f"<b>{winograd}</b>" for _, winograd in pairs]
    lines[tr("direct / Winograd")] = [f"{units.ratio(direct / winograd)}×" for direct, winograd in pairs]
    for transform, name in (("G g Gᵀ", "G"), ("Bᵀ d B", "BT"), ("Aᵀ Z A", "AT")):
        counts = [
            winograd_matrices.operations_2d(getattr(winograd_matrices.derive(m, R), name)) for m in TILES
        ]
        lines[tr("{transform}: additions + multiplications", transform=transform)] = [
            f"{c.additions} + {c.multiplications}" for c in counts
        ]
    lines[tr("reads per pixel")] = [units.ratio(positions(m) / m**2) for m in TILES]
    return lines


def _shape_lines(s: ConvShape) -> dict[str, list[str]]:
    works = [charts.work(s, m) for m in TILES]
    head = tr("{shape}, in steps; direct convolution: {flops} FLOPs", shape=s, flops=units.count(s.flops))
    return {
        head: [],
        tr("FLOPs of the products"): [units.count(w.product) for w in works],
        tr("FLOPs of the transforms"): [units.count(w.transforms) for w in works],
        tr("all FLOPs / direct convolution"): [units.share(w.flops / s.flops) for w in works],
        **{
            tr("workspace {name}", name=name): [units.bytes_(getattr(w, name)) for w in works]
            for name in "UVZ"
        },
        tr("FLOP per byte, transforms"): [units.ratio(w.transforms / w.moved) for w in works],
        tr("FLOP per byte, products"): [units.ratio(w.product / (w.U + w.V + w.Z)) for w in works],
    }


# -- measured ----------------------------------------------------------------------------------------
def _errors(s: ConvShape) -> None:
    with st.container(key="card_winograd_errors", border=True):
        st.html(f'<h2 class="kt-card">{tr("Rounding errors")}</h2>')
        if not lesson.deferred_loaded():
            return
        errors, rows = charts.errors(s.C), charts.recorded(s)
        badges = [units.badge("measured", tr("{device}, this processor, NumPy", device=device_name()))]
        if rows:
            _, _, first = rows[0]
            badges.append(units.badge("recorded", f"{first['device']}, {first['date']}: ◇"))
        st.html(f'<p class="kt-figures">{" ".join(badges)}</p>')
        cache_key = (s.C, tuple(id_of(row) for _, _, row in rows))
        cards.chart(
            lambda: charts.error_chart(errors, rows, tokens()), charts.HEIGHT, "chart_winograd_errors", cache_key
        )  # fmt: skip
        cards.sentence(charts.error_caption(s.C, errors))
        n, K = charts.SIDE, charts.FILTERS
        quiet(
            trn(
                "{K} filters, {side} × {side} outputs, {n} channel of seeded normal numbers, compared with float64.",
                "{K} filters, {side} × {side} outputs, {n} channels of seeded normal numbers, compared with float64.",
                s.C,
                K=K,
                side=n,
            )
            + " "
            + tr(
                "FP16: inputs, transformed values, sums and outputs are stored in FP16 and computed in FP32. Larger tiles use "
                "points with larger powers, so the errors grow. No kernel here exceeds 6×6."
            )
        )
        if rows:
            st.html(_recorded(rows))


def _recorded(rows: list) -> str:
    """Returns HTML: each recorded error under its kernel's title. The tile size is added if the title lacks it."""

    def label(m: int, rung: str, row: dict) -> str:
        tile = f" {tr(charts.NAMES[m])}" if "M" in row["tiles"] else ""
        return f"{escape(tr(find(rung).title))}{tile} {row['error']:.1e}"

    texts = "; ".join(label(*recorded) for recorded in sorted(rows, key=lambda recorded: recorded[:2]))
    sentence = tr("Recorded errors of the CUDA kernels at this shape: {errors}.", errors=texts)
    return f'<p class="kt-quiet">{sentence}</p>'
