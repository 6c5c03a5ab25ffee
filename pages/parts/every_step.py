"""The URL parameter `steps`: whether the stage shows a repetition step by step, or folded into one step."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from pages.parts import query
from pages.parts.address import Fields

STEPS, FOLDED, ALL = "steps", "folded", "all"


def every_step() -> bool:
    """Returns whether the URL asks for every step (steps=all)."""
    return query.chosen(STEPS, (FOLDED, ALL)) == ALL


def shown(folds: bool) -> bool | None:
    """Returns `every_step` where the stage folds repeated steps, as only the explaining order does; None elsewhere."""
    explaining = query.url_values().get("order", "explaining") == "explaining"
    return every_step() if folds and explaining else None


def change() -> None:
    """Puts the other choice into the URL."""
    query.write(STEPS, "" if every_step() else ALL)


def label() -> str:
    """Returns the text of a control that changes the choice."""
    return tr("fold steps") if every_step() else tr("every step")


def toggle(page: str, fields: Fields) -> None:
    """Draws a link that shows every step, or folds repeated steps again. Only the explaining order folds steps."""
    if query.url_values().get("order", "explaining") != "explaining":
        return
    kept = {name: value for name, value in query.others(fields).items() if name != STEPS}
    own = {name: value for name, value in query.url_values().items() if name in fields.by_name}
    params = {} if every_step() else {STEPS: ALL}
    about = tr("Terms that are added in the same way are one step of the picture, or one step each.")
    with st.container(key="chips_steps", width="content"):
        st.page_link(page, label=label(), query_params=kept | own | params, help=about)
