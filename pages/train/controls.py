"""The controls of the lesson on training."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.model.shape import Bound
from kernels.training.networks import NETWORKS
from pages.parts.address import Fields, Number
from pages.parts.controls import numbers, select
from pages.parts.links import drawn
from pages.parts.query import explored, others
from pages.train import address

LINE = ((("batch", "batch", 158), ("parts", "parts", 126)), (("epochs", "epochs", 154),))


def draw(page: str, fields: Fields, values: address.Values) -> None:
    """Draws the networks as links, then the numbers and the optimiser. The seed is in the URL alone."""
    title = tr(NETWORKS[values["network"]].title)
    with (
        st.container(key="chips", horizontal=True),
        st.popover(tr("network: {name}", name=title), key="network_chooser"),
        st.container(key="rungs_networks", gap=None),
    ):
        for name, network in NETWORKS.items():
            label = f"**{tr(network.title)}**" if name == values["network"] else tr(network.title)
            kept = {k: v for k, v in fields.write(values).items() if k != "network"}
            first = name == fields.defaults["network"]
            query = drawn(explored({**others(fields), **kept, **({} if first else {"network": name})}), {"network"})
            st.page_link(page, label=label, query_params=query, help=tr(network.source))
    with st.container(key="params", horizontal=True):
        limits = {name: Bound(f.minimum, f.maximum) for name, f in fields.by_name.items() if isinstance(f, Number)}
        numbers(fields, LINE[:1], limits)
        select(fields, "optimizer", 150, tr("optimiser"))
        _rate(fields)
        select(fields, "keep", 168, tr("keep 1 layer in"))
        numbers(fields, LINE[1:], limits)


def _rate(fields: Fields) -> None:
    rate = fields.by_name["lr"]
    assert isinstance(rate, Number)
    st.number_input(
        tr("learning rate"),
        min_value=float(rate.minimum),
        max_value=float(rate.maximum),
        value=float(rate.default),
        step=0.01,
        format="%g",
        required=True,
        key="lr",
        bind="query-params",
        width=216,
    )
