"""The controls of the lesson on training."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.training.networks import NETWORKS
from pages.parts.address import Values
from pages.parts.controls import choice_links, line
from pages.train.address import FIELDS

PAGE = "train/page.py"


def draw(values: Values) -> None:
    """Draws the networks as links, then the numbers and the optimiser. The seed is in the URL alone."""
    titles = {name: network.title for name, network in NETWORKS.items()}
    about = {name: network.source for name, network in NETWORKS.items()}
    with st.container(key="chips", horizontal=True):
        label = tr("network: {name}", name=tr(titles[values["network"]]))
        choice_links(PAGE, FIELDS, values, "network", label, titles, about=about)
    with st.container(key="params", horizontal=True):
        line(FIELDS, "batch+parts,optimizer,lr,keep,epochs")
