"""Many GPUs: how the sum over all GPUs is formed, round by round, and what it costs."""

import streamlit as st

from kernels.collectives.shape import ALGORITHMS
from kernels.i18n import tr
from pages.collectives import address, cards, stage
from pages.collectives.chapters import STORY
from pages.parts import lesson, query
from pages.parts.controls import numbers, select
from pages.parts.text import idea, note
from visuals.collectives.captions import ALGORITHM_TITLES, TITLES

PAGE = "collectives/page.py"
LINE = ((("ranks", "GPUs", 142), ("elements", "elements", 186)),)


def links(name: str, label: str, titles: dict[str, str], chosen: str, values: address.Values) -> None:
    """Draws the choices of a field as links in a popover. Another collective begins with its first algorithm."""
    dropped = {"kind", "algorithm"} if name == "kind" else {name}
    kept = {key: value for key, value in address.FIELDS.write(values).items() if key not in dropped}
    with st.popover(f"{label}: {titles[chosen]}", key=f"{name}_chooser"), st.container(key=f"rungs_{name}", gap=None):
        for other, title in titles.items():
            first = other == address.FIELDS.defaults[name]
            params = {**query.others(address.FIELDS), **kept, **({} if first else {name: other})}
            st.page_link(PAGE, label=f"**{title}**" if other == chosen else title, query_params=query.explored(params))


def controls(values: address.Values) -> None:
    """Draws collective and algorithm as links, then the numbers and the length of the strip."""
    kind = values["kind"]
    with st.container(key="chips", horizontal=True):
        links("kind", tr("collective"), {name: tr(title) for name, title in TITLES.items()}, kind, values)
        known = {name: tr(ALGORITHM_TITLES[name]) for name in ALGORITHMS[kind]}
        links("algorithm", tr("algorithm"), known, address.algorithm(values), values)
    with st.container(key="params", horizontal=True):
        numbers(address.FIELDS, LINE, address.BOUNDS)
        select(address.FIELDS, "bytes", 230, tr("length in the strip"))


chapter = STORY.open()
parts, whole = lesson.begin(tr("Many GPUs: sums across memories"), page=PAGE, chapter=chapter)
visible = whole and not chapter
values, notes = query.current_values(address.FIELDS, visible)
query.follow_link("_collective", (values["kind"], values["algorithm"]))
with lesson.controls(visible):
    if visible:
        controls(values)
note(*notes)
if "watch" in parts:
    stage.draw(values, chapter)
if whole:
    idea(
        tr(
            "GPUs that train one network each compute gradients of their own images. Before the update, every GPU needs the "
            "sum of all gradients. Each GPU has its own memory, so the sum must cross the links between them."
        )
    )
if {"run", "why"} & parts:
    cards.section(values)
if "kernel" in parts:
    cards.listings(address.algorithm(values))
lesson.load_deferred(parts)
