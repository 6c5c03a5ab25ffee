"""Two cards: operations and bytes that Winograd saves and adds, and its rounding errors, measured here."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

import streamlit as st

from kernels.conv import winograd_matrices
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import positions
from kernels.conv.winograd_cpu import R
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
        st.html(
            '<h2 class="kt-card">Multiplications saved, additions paid</h2>'
            f'<p class="kt-figures">{units.badge("predicted", "from the entries of the matrices")}</p>'
            '<div class="kt-scroll" tabindex="0" role="region" aria-label="Operations of Winograd">'
            f'<table class="kt-table"><tr><th></th>{header_cells}</tr>{rows}</table></div>'
        )
        quiet(
            "The rule: a zero of a matrix costs nothing, a 1 or −1 no multiplication, n terms n − 1 additions; X d Xᵀ is X on "
            "each column, then on each row. A compiler may share more. G g Gᵀ is done once a filter and channel, Bᵀ d B "
            "once a tile and channel, Aᵀ Z A once a tile and filter."
        )
        if reason:
            quiet(f"Not at this shape: {reason}")
        else:
            cards.sentence(charts.work_caption(s))


def _tile_lines() -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {"one tile, one filter, one channel": []}
    pairs = [winograd_matrices.multiplications_2d(m, R) for m in TILES]
    lines["× of direct convolution"] = [str(direct) for direct, _ in pairs]
    lines["× of Winograd"] = [f"<b>{winograd}</b>" for _, winograd in pairs]
    lines["times fewer"] = [units.ratio(direct / winograd) for direct, winograd in pairs]
    for label, name in (("G g Gᵀ", "G"), ("Bᵀ d B", "BT"), ("Aᵀ Z A", "AT")):
        counts = [
            winograd_matrices.operations_2d(getattr(winograd_matrices.derive(m, R), name)) for m in TILES
        ]
        lines[f"{label}, + and ×"] = [f"{c.additions} + {c.multiplications}" for c in counts]
    lines["reads of a pixel"] = [units.ratio(positions(m) / m**2) for m in TILES]
    return lines


def _shape_lines(s: ConvShape) -> dict[str, list[str]]:
    works = [charts.work(s, m) for m in TILES]
    return {
        f"{s}, in steps: direct has {units.count(s.flops)} FLOPs": [],
        "FLOPs of the products": [units.count(w.product) for w in works],
        "FLOPs of the transforms": [units.count(w.transforms) for w in works],
        "both, of direct’s": [units.share(w.flops / s.flops) for w in works],
        **{f"workspace {name}": [units.bytes_(getattr(w, name)) for w in works] for name in "UVZ"},
        "FLOP a byte, transforms": [units.ratio(w.transforms / w.moved) for w in works],
        "FLOP a byte, products": [units.ratio(w.product / (w.U + w.V + w.Z)) for w in works],
    }


# -- measured ----------------------------------------------------------------------------------------
def _errors(s: ConvShape) -> None:
    with st.container(key="card_winograd_errors", border=True):
        st.html('<h2 class="kt-card">Digits lost</h2>')
        if not lesson.deferred_loaded():
            return
        errors, rows = charts.errors(s.C), charts.recorded(s)
        badges = [units.badge("measured", f"{device_name()}, this processor, NumPy")]
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
            f"{K} filters, {n} × {n} outputs, {s.C:,} channel{'s' * (s.C > 1)} of seeded normal numbers against float64. FP16: "
            "inputs, what is transformed, sums and outputs are kept in FP16, computed in FP32. The points of larger tiles lie "
            "further apart, and so do their powers: no kernel here goes beyond 6×6."
        )
        if rows:
            st.html(_recorded(rows))


def _recorded(rows: list) -> str:
    """Returns HTML: each recorded error under its kernel's title. The tile size is added if the title lacks it."""

    def label(m: int, rung: str, row: dict) -> str:
        tile = f" {charts.NAMES[m]}" if "M" in row["tiles"] else ""
        return f"{escape(find(rung).title)}{tile} {row['error']:.1e}"

    texts = "; ".join(label(*recorded) for recorded in sorted(rows, key=lambda recorded: recorded[:2]))
    return f'<p class="kt-quiet">Recorded errors of the CUDA kernels at this shape: {texts}.</p>'
