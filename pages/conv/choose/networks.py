"""Whole networks: every convolution of ResNet-50 and VGG-16 with its fastest recorded rung."""

from __future__ import annotations

from functools import cache
from html import escape

import streamlit as st

from kernels import records
from kernels.conv.networks import BATCH, NETWORKS
from pages.conv.choose import address, map
from pages.parts import cards
from pages.parts.controls import option
from pages.parts.text import quiet
from visuals.charts import sweeps, units
from visuals.conv.choose import layers


@cache
def _timed(key: str) -> list[layers.Timed]:
    return layers.timed(NETWORKS[key], records.recorded, address.why_not)


def section(predict: str) -> None:
    """Draws the card. Only recordings with cold caches are used."""
    with st.container(key="card_networks", border=True):
        with st.container(key="networks_head", horizontal=True, vertical_alignment="center"):
            st.html('<h2 class="kt-card">Whole networks</h2>')
            key = option("network", list(NETWORKS))
        network, timed_layers = NETWORKS[key], _timed(key)
        rows = [row for layer in timed_layers for row in layer.rows.values()]
        if not rows:
            quiet(f"No layer of {network.title} was recorded.")
            return
        missing = sum(not layer.rows for layer in timed_layers)
        missing_text = f"; {missing} shapes have no recording" if missing else ""
        badge = units.badge("recorded", f"{sweeps.provenance(rows)}, {rows[0]['date']}")
        st.html(
            f'<p class="kt-figures">{badge} {escape(network.title)}: {network.convolutions} convolutions of '
            f"{len(timed_layers)} shapes, batch {BATCH}{missing_text}</p>"
        )
        with st.container(key="networks", horizontal=True):
            st.html(layers.html(timed_layers, lambda shape: map.href(shape, predict)))
            st.html(
                '<p class="kt-label">The network’s convolutions with one rung throughout</p>'
                f'<p class="kt-quiet">Bars are cut at {layers.CUT} times the shortest. Those without one: of how many of the {len(timed_layers)} shapes there is no time.</p>'
                + layers.totals(timed_layers)
            )
        cards.sentence(layers.summary(timed_layers))
        quiet(
            f"{network.source}. The convolutions alone, each timed with cold caches: without biases, normalisation, ReLU and pooling.",
            *["No rung of cuDNN's was recorded so."] * (not any(layer.library for layer in timed_layers)),
            "Ours: every rung that is not cuDNN's, im2col + cuBLAS among them.",
        )
