"""The controls of the lesson on CPU and GPU."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import mark, tr
from kernels.offload.works import WORKS
from pages.offload import address
from pages.offload.address import FIELDS, FIRST_SIZE, MACHINE, PROGRAM, SIDES
from pages.parts.address import Values
from pages.parts.controls import choice_links, line, select
from visuals.offload.captions import COPY_TITLES

PAGE = "offload/page.py"
PICTURES = {SIDES: mark("both sides"), PROGRAM: mark("a program around it"), MACHINE: mark("the machine")}


def draw(values: Values) -> None:
    """Draws work, copies and picture as links, then the size and what is left on the processor."""

    def links(name: str, label: str, titles: dict[str, str]) -> None:
        choice_links(PAGE, FIELDS, values, name, label.format(name=tr(titles[values[name]])), titles, follow)

    def follow(to: Values) -> Values:
        first = {} if to["work"] == values["work"] else {"n": FIRST_SIZE[to["work"]]}
        return FIELDS.read(to | first)[0]

    with st.container(key="chips", horizontal=True):
        links("work", tr("work: {name}"), {key: work.title for key, work in WORKS.items()})
        links("copies", "{name}", COPY_TITLES)
        links("picture", tr("picture: {name}"), PICTURES)
    with st.container(key="params", horizontal=True):
        known = address.sizes(values["work"], values["copies"])
        select(FIELDS, "n", 250, tr(WORKS[values["work"]].axis), known)
        line(FIELDS, "left")
