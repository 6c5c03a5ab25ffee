"""The controls of the lesson on parallel training."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.parallel.plan import PIPELINES, TENSOR, WAYS
from kernels.training.networks import NETWORKS
from pages.parallel.address import FIELDS
from pages.parts.address import Values
from pages.parts.controls import choice_links, line

PAGE = "parallel/page.py"


def draw(values: Values) -> None:
    """Draws networks and ways as links, then the numbers that the way has."""
    titles, way = {name: network.title for name, network in NETWORKS.items()}, values["way"]
    with st.container(key="chips", horizontal=True):
        choice_links(PAGE, FIELDS, values, "network", tr(titles[values["network"]]), titles)
        choice_links(PAGE, FIELDS, values, "way", tr(WAYS[way]), WAYS)
    with st.container(key="params", horizontal=True):
        own = "micro," if way in PIPELINES else "bucket," if way != TENSOR else ""
        line(FIELDS, f"gpus+batch,{own}optimizer,picture")
