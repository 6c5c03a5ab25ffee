"""The card on FP16: the same layers on the tensor cores, with the channels last, beside cuDNN."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.i18n import tr
from kernels.model.program import Launch
from pages.parts.half_card import badge, listing
from pages.parts.run_settings import RunSettings
from pages.parts.text import card_title, conclusion, details, paragraph, table, together
from visuals.conv.implicit import half


def card(settings: RunSettings) -> None:
    """Draws the card: recorded times at ResNet-50's layers, the idea of each kernel, and its source."""
    with st.container(key="card_half", border=True):
        found = half.layers()
        head, rows = half.lines(found)
        about = tr("Each kernel adds one idea. The input is [N, H, W, C] and the filters are [K, R, S, C].")
        together(
            card_title(tr("Implicit GEMM in FP16")),
            conclusion(half.sentence(found)) or paragraph(tr("No recording exists of these kernels.")),
            badge([row for layer in found for row in (layer.ours, layer.library)]),
            details(table(head, rows, tr("Times of the layers")), label=tr("Times of the layers")) if rows else "",
            paragraph(about),
            details(_ideas(), label=tr("Ideas of the kernels")),
        )
        listing(files, "half_file")


def _ideas() -> str:
    """Returns the HTML of a paragraph for each of our kernels: its title and its idea."""
    lines = (f'<p class="kt-quiet"><b>{escape(title)}</b>: {escape(idea)}</p>' for title, idea in half.ideas())
    return "".join(lines)


def files() -> dict[str, str]:
    """Returns the source of each of our kernels by its file's name."""
    found = {}
    for rung in half.LADDER.rungs:
        shape = next(p.shape for p in half.LADDER.presets.values() if not any(rung.rules(p.shape, rung.default_tiles)))
        for step in rung.build(shape, rung.default_tiles).steps:
            if isinstance(step, Launch):
                found[step.source.rpartition("/")[2]] = step.source
    return found
