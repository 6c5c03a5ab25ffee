"""The card on FP16: the same chains on the tensor cores, with the channels last, beside PyTorch."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from pages.parts.half_card import badge, listing
from pages.parts.text import card_title, conclusion, details, paragraph, table, together
from visuals.fusion import half


def card() -> None:
    """Draws the card: recorded times of ResNet-50's chains, why one kernel is enough, and the kernels."""
    with st.container(key="card_fusion_half", border=True):
        found = half.chains()
        head, rows = half.lines(found)
        product = tr(
            "The convolution is a matrix product on the tensor cores. The blocks after it are applied to its sums, without another launch."
        )
        addend = tr("The copy engine loads the maps that an add block needs while the tensor cores multiply.")
        together(
            card_title(tr("Fused convolutions in FP16")),
            conclusion(half.sentence(found)) or paragraph(tr("No recording exists of these kernels.")),
            badge([row for chain in found for row in (chain.ours, *chain.library.values())]),
            details(table(head, rows, tr("Times of the chains")), label=tr("Times of the chains")) if rows else "",
            paragraph(f"{product} {addend}"),
        )
        listing(files, "fusion_half_file")


def files() -> dict[str, str]:
    """Returns the source of the kernel of each preset by its file's name."""
    (rung,) = (rung for rung in half.LADDER.rungs if not rung.library)
    steps = (step for p in half.LADDER.presets.values() for step in rung.build(p.shape, rung.default_tiles).launches)
    return {step.source.rpartition("/")[2]: step.source for step in steps}
