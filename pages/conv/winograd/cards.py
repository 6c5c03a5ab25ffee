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
from kernels.model.row import Row
from kernels.records.jsontext import id_of
from pages.conv.tables import scrolled
from pages.parts import cards, lesson
from pages.parts.sizes import Shown
from pages.parts.text import card_title, conclusion, details, legend, paragraph, together
from pages.parts.theme import tokens
from visuals import units
from visuals.conv.winograd import charts
from visuals.conv.winograd.charts import TILES
from visuals.conv.winograd.part import why_not

COUNTS, ERRORS = "counts", "errors"  # names of page parts


def section(parts: Collection[str], shape: ConvShape, above: Shown) -> None:
    """Draws the cards that are among `parts`: operations at the size that the strip shows, errors at `shape`."""
    if not {COUNTS, ERRORS} & set(parts):
        return
    with st.container(key="rates", horizontal=True):
        if COUNTS in parts:
            _counts(above.settings.shape, above.name)
        if ERRORS in parts:
            _errors(shape)


# -- counted -----------------------------------------------------------------------------------------
def _counts(s: ConvShape, name: str) -> None:
    with st.container(key="card_winograd_counts", border=True):
        reason = why_not(s, TILES[0])
        badge = units.badge("predicted", tr("from the entries of the matrices"))
        together(
            card_title(tr("Fewer multiplications, more additions"), name),
            conclusion(charts.tile_sentence() if reason else charts.work_sentence(s)),
            f'<p class="kt-figures">{badge}</p>',
            paragraph(tr("Not at this shape: {reason}", reason=reason)) if reason else "",
        )
        if not reason:
            cards.chart(lambda: charts.work_chart(s, tokens()), charts.WORK_PX, "chart_winograd_counts", s)
        together(
            _work_legend() if not reason else "",
            details(
                "" if reason else paragraph(charts.work_details(s), "why"),
                _table(_tile_lines() | ({} if reason else _shape_lines(s))),
                paragraph(_counting_rules()),
            ),
        )


def _work_legend() -> str:
    return legend({"output": tr("FLOPs of the products"), "workspace": tr("FLOPs of the transforms")})


def _counting_rules() -> str:
    return tr(
        "How operations are counted: an entry of 0 is free. An entry of 1 or −1 needs no multiplication. A sum of n terms "
        "needs n − 1 additions. X d Xᵀ applies X to each column, then to each row. A compiler may share more operations. "
        "G g Gᵀ runs once per filter and channel, Bᵀ d B once per tile and channel, Aᵀ Z A once per tile and filter."
    )


def _table(lines: dict[str, list[str]]) -> str:
    """Returns HTML: a column for each tile size. A line without cells is a heading."""
    header_cells = "".join(f'<th scope="col">{m}×{m}</th>' for m in TILES)
    rows = "".join(
        f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        if cells
        else f'<tr><th colspan="{len(TILES) + 1}" scope="rowgroup">{name}</th></tr>'
        for name, cells in lines.items()
    )
    return scrolled(tr("Operations of Winograd"), f"<tr><th></th>{header_cells}</tr>{rows}")


def _tile_lines() -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {tr("one tile, one filter, one channel"): []}
    pairs = [winograd_matrices.multiplications_2d(m, R) for m in TILES]
    lines[tr("multiplications of direct convolution")] = [str(direct) for direct, _ in pairs]
    lines[tr("multiplications of Winograd")] = [f"<b>{winograd}</b>" for _, winograd in pairs]
    lines[tr("direct / Winograd")] = [f"{units.ratio(direct / winograd)}×" for direct, winograd in pairs]
    for transform, name in (("G g Gᵀ", "G"), ("Bᵀ d B", "BT"), ("Aᵀ Z A", "AT")):
        counts = [winograd_matrices.operations_2d(getattr(winograd_matrices.derive(m, R), name)) for m in TILES]
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
        **{tr("workspace {name}", name=name): [units.bytes_(getattr(w, name)) for w in works] for name in "UVZ"},
        tr("FLOP per byte, transforms"): [units.ratio(w.transforms / w.moved) for w in works],
        tr("FLOP per byte, products"): [units.ratio(w.product / (w.U + w.V + w.Z)) for w in works],
    }


# -- measured ----------------------------------------------------------------------------------------
def _errors(s: ConvShape) -> None:
    with st.container(key="card_winograd_errors", border=True):
        if not lesson.deferred_loaded():
            together(card_title(tr("Rounding errors")))
            return
        errors, rows = charts.errors(s.C), charts.recorded(s)
        badges = [units.badge("measured", tr("{device}, this processor, NumPy", device=device_name()))]
        if rows:
            _, _, first = rows[0]
            badges.append(units.badge("recorded", f"{first['device']}, {first['date']}: ◇"))
        together(
            card_title(tr("Rounding errors")),
            conclusion(charts.error_sentence(errors)),
            f'<p class="kt-figures">{" ".join(badges)}</p>',
        )
        cache_key = (s.C, tuple(id_of(row) for _, _, row in rows))
        cards.chart(
            lambda: charts.error_chart(errors, rows, tokens()), charts.HEIGHT, "chart_winograd_errors", cache_key
        )
        together(details(paragraph(charts.error_caption(s.C, errors), "why"), paragraph(_method(s)), _recorded(rows)))


def _method(s: ConvShape) -> str:
    numbers = trn(
        "{K} filters, {side} × {side} outputs, {n} channel of seeded normal numbers, compared with float64.",
        "{K} filters, {side} × {side} outputs, {n} channels of seeded normal numbers, compared with float64.",
        s.C,
        K=charts.FILTERS,
        side=charts.SIDE,
    )
    stored = tr(
        "FP16: inputs, transformed values, sums and outputs are stored in FP16 and computed in FP32. Larger tiles use "
        "points with larger powers, so the errors grow. No kernel here exceeds 6×6."
    )
    return f"{numbers} {stored}"


def _recorded(rows: list) -> str:
    """Returns HTML: a table of the recorded errors, or "" without rows. The tile size is added to a title that lacks it."""
    if not rows:
        return ""

    def line(m: int, rung: str, row: Row) -> str:
        tile = f" {tr(charts.NAMES[m])}" if "M" in row["tiles"] else ""
        return f'<tr><th scope="row">{escape(tr(find(rung).title))}{tile}</th><td>{row["error"]:.1e}</td></tr>'

    lines = "".join(line(*recorded) for recorded in sorted(rows, key=lambda recorded: recorded[:2]))
    unit = tr("relative L2 error")
    head = f'<tr><td></td><th scope="col">{unit}</th></tr>'
    about = paragraph(tr("Recorded errors of the CUDA kernels at this shape:"))
    return about + scrolled(tr("Recorded errors"), head + lines)
