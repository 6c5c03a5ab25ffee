"""The controls of the lesson on CPU and GPU."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.model.shape import Bound
from kernels.offload.works import WORKS
from pages.offload import address
from pages.offload.address import FIRST_SIZE, MACHINE, MAX_LEFT, PROGRAM, SIDES
from pages.parts.address import Fields, Values
from pages.parts.controls import numbers, select
from pages.parts.links import drawn
from pages.parts.query import explored, others
from visuals.offload.captions import COPY_TITLES


def draw(page: str, fields: Fields, values: Values) -> None:
    """Draws work, copies and picture as links, then the size and what is left on the processor."""
    works = {key: tr(work.title) for key, work in WORKS.items()}
    with st.container(key="chips", horizontal=True):
        _links(page, fields, values, "work", tr("work: {name}", name=works[values["work"]]), works)
        copies = {key: tr(title) for key, title in COPY_TITLES.items()}
        _links(page, fields, values, "copies", copies[values["copies"]], copies)
        pictures = {SIDES: tr("both sides"), PROGRAM: tr("a program around it"), MACHINE: tr("the machine")}
        _links(page, fields, values, "picture", tr("picture: {name}", name=pictures[values["picture"]]), pictures)
    with st.container(key="params", horizontal=True):
        known = address.sizes(values["work"], values["copies"])
        select(fields, "n", 250, tr(WORKS[values["work"]].axis), known)
        numbers(fields, ((("left", tr("left in %"), 170),),), {"left": Bound(0, MAX_LEFT)})


def _links(page: str, fields: Fields, values: Values, name: str, label: str, titles: dict[str, str]) -> None:
    """Draws the choices of a field as links in a popover. They keep the other values; another work begins at its own size."""
    with st.popover(label, key=f"{name}_chooser"), st.container(key=f"rungs_{name}", gap=None):
        for key, title in titles.items():
            wanted = {**values, name: key}
            if name == "work" and key != values["work"]:
                wanted["n"] = FIRST_SIZE[key]
            wanted = fields.read(wanted)[0]
            params = drawn(explored({**others(fields), **fields.write(wanted)}), {name, "n"})
            st.page_link(page, label=f"**{title}**" if key == values[name] else title, query_params=params)
