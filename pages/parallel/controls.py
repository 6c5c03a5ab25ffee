"""The controls of the lesson on parallel training."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.model.shape import Bound
from kernels.parallel.plan import PIPELINES, TENSOR, WAYS
from kernels.training.networks import NETWORKS
from pages.parallel import address
from pages.parts.address import Fields, Number
from pages.parts.controls import numbers, select
from pages.parts.links import drawn
from pages.parts.query import explored, others


def draw(page: str, fields: Fields, values: address.Values) -> None:
    """Draws networks and ways as links, then the numbers that the way has."""
    with st.container(key="chips", horizontal=True):
        titles = {name: network.title for name, network in NETWORKS.items()}
        _links(page, fields, values, "network", tr(titles[values["network"]]), titles)
        _links(page, fields, values, "way", tr(WAYS[values["way"]]), WAYS)
    with st.container(key="params", horizontal=True):
        limits = {name: Bound(f.minimum, f.maximum) for name, f in fields.by_name.items() if isinstance(f, Number)}
        lines: list[tuple[tuple[str, str, int], ...]] = [(("gpus", tr("GPUs"), 132), ("batch", tr("images"), 184))]
        if values["way"] in PIPELINES:
            lines.append((("micro", tr("micro-batches"), 204),))
        elif values["way"] != TENSOR:
            lines.append((("bucket", tr("bucket in KB"), 192),))
        numbers(fields, tuple(lines), limits)
        select(fields, "optimizer", 152, tr("optimiser"))
        select(fields, "picture", 148, tr("picture"))


def _links(page: str, fields: Fields, values: address.Values, field: str, label: str, titles) -> None:
    """Draws the choices of a field as links in a popover."""
    with st.popover(label, key=f"{field}_chooser"), st.container(key=f"rungs_{field}", gap=None):
        for name, title in titles.items():
            text = f"**{tr(title)}**" if name == values[field] else tr(title)
            kept = {k: v for k, v in fields.write(values).items() if k != field}
            first = name == fields.defaults[field]
            query = drawn(explored({**others(fields), **kept, **({} if first else {field: name})}), {field})
            st.page_link(page, label=text, query_params=query)
