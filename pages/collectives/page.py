"""Many GPUs: how the sum over all GPUs is formed, round by round, and what it costs."""

import streamlit as st

from kernels.collectives.shape import ALGORITHMS, RING
from kernels.i18n import tr
from pages.collectives import address, cards, stage
from pages.collectives.address import FIELDS
from pages.collectives.chapters import STORY
from pages.parts.address import Values
from pages.parts.controls import choice_links, line
from pages.parts.values_page import ValuesPage
from visuals.collectives.captions import ALGORITHM_TITLES, TITLES

PAGE = "collectives/page.py"


def controls(values: Values) -> None:
    """Draws collective and algorithm as links, then the numbers and the length of the strip."""
    kind, shown = values["kind"], address.algorithm(values)
    algorithms = {name: ALGORITHM_TITLES[name] for name in ALGORITHMS[kind]}
    with st.container(key="chips", horizontal=True):
        label = tr("collective: {name}", name=tr(TITLES[kind]))
        choice_links(PAGE, FIELDS, values, "kind", label, TITLES, lambda to: to | {"algorithm": RING})
        label = tr("algorithm: {name}", name=tr(algorithms[shown]))
        choice_links(PAGE, FIELDS, values | {"algorithm": shown}, "algorithm", label, algorithms)
    with st.container(key="params", horizontal=True):
        line(FIELDS, "ranks+elements,bytes")


ValuesPage(
    page=PAGE,
    title=tr("Many GPUs: sums across memories"),
    about=tr(
        "GPUs that train one network each compute gradients of their own images. Before the update, every GPU needs the "
        "sum of all gradients. Each GPU has its own memory, so the sum must cross the links between them."
    ),
    fields=FIELDS,
    linked=("kind", "algorithm"),
    controls=controls,
    stage=stage.draw,
    cards=lambda values, _: cards.section(values),
    kernels=lambda values, _: cards.listings(address.algorithm(values)),
).draw(STORY.open())
