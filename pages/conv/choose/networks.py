"""Whole networks: every convolution of ResNet-50 and VGG-16 with its fastest recorded rung."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels import records
from kernels.conv.networks import BATCH, NETWORKS
from kernels.i18n import tr, trn
from kernels.records.gpus import cached
from pages.conv.choose import address, map
from pages.parts import cards
from pages.parts.controls import option
from pages.parts.text import card_title, quiet
from visuals import units
from visuals.charts import sweeps
from visuals.conv.choose import layers


@cached(None)
def _timed(key: str) -> list[layers.Timed]:
    return layers.timed(NETWORKS[key], records.recorded, address.why_not)


def section(predict: str) -> None:
    """Draws the card. Only recordings with cold caches are used."""
    with st.container(key="card_networks", border=True):
        with st.container(key="networks_head", horizontal=True, vertical_alignment="center"):
            st.html(card_title(tr("Whole networks")))
            key = option("network", list(NETWORKS))
        network, timed_layers = NETWORKS[key], _timed(key)
        rows = [row for layer in timed_layers for row in layer.rows.values()]
        if not rows:
            quiet(tr("No layer of {network} was recorded.", network=network.title))
            return
        facts = [
            tr(
                "{network}: {convolutions} convolutions of {shapes} shapes, batch {batch}",
                network=network.title,
                convolutions=network.convolutions,
                shapes=len(timed_layers),
                batch=BATCH,
            )
        ]
        if missing := sum(not layer.rows for layer in timed_layers):
            facts.append(trn("{n} shape has no recording", "{n} shapes have no recording", missing))
        badge = units.badge("recorded", f"{sweeps.provenance(rows)}, {rows[0]['date']}")
        st.html(f'<p class="kt-figures">{badge} {escape("; ".join(facts))}</p>')
        with st.container(key="networks", horizontal=True):
            st.html(layers.html(timed_layers, lambda shape: map.href(shape, predict)))
            label = tr("One kernel for the whole network")
            st.html(
                f'<p class="kt-label">{label}</p>'
                f'<p class="kt-quiet">{_cut_note(len(timed_layers))}</p>' + layers.totals(timed_layers)
            )
        cards.sentence(layers.summary(timed_layers))
        quiet(
            f"{network.source}.",
            tr("Only the convolutions, each timed with cold caches: no biases, normalisation, ReLU or pooling."),
            *[tr("No kernel of cuDNN was recorded this way.")] * (not any(layer.library for layer in timed_layers)),
            tr("Ours: every kernel that is not from cuDNN, including im2col + cuBLAS."),
        )


def _cut_note(shapes: int) -> str:
    return " ".join(
        (
            tr("Bars longer than {n}× the shortest are cut.", n=layers.CUT),
            tr("A kernel without a bar has no time for some of the {n} shapes.", n=shapes),
        )
    )
