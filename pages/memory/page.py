"""Threads and memory: which thread computes which element, and the cost of its memory accesses."""

import streamlit as st

from pages.memory import address, cards
from pages.parts import lesson, query, sources
from pages.parts.address import Fields
from pages.parts.controls import numbers, select
from pages.parts.text import note
from visuals import stage

PAGE = "memory/page.py"
IDEAS = {
    "threads": (
        "A grid of threads, each with its own element",
        "A launch is a grid of blocks; a block runs on one SM, 32 threads at a time: a warp, whose lanes do the same at "
        'the same moment. <span class="kt-math">i = blockIdx.x · blockDim.x + threadIdx.x</span> is all that tells one '
        "thread from another. Which elements a warp’s lanes get decides what reaching them costs.",
    ),
    "coalescing": (
        "Coalescing: a warp is served by the sector",
        "The 32 loads of a warp are one request, served in sectors of 32 bytes. Floats side by side fill 4 of them; "
        '<span class="kt-math">x[i · stride]</span> spreads them over up to 32, and what is fetched beside them is '
        "thrown away.",
    ),
    "banks": (
        "Banks: shared memory gives one word a bank",
        'Shared memory has 32 banks; word <span class="kt-math">w</span> lies in bank <span class="kt-math">w mod 32</span>. '
        "Lanes that want different words of one bank wait for each other, a pass each. One unused word behind each row, "
        "padding, moves a column across all banks.",
    ),
    "layout": (
        "Layout: an index becomes an address",
        "Memory is a line. A tensor of four axes is laid along it in some order: NCHW counts w fastest, NHWC counts c. "
        '<span class="kt-math">((n·C + c)·H + h)·W + w</span> is the address in the one, '
        '<span class="kt-math">((n·H + h)·W + w)·C + c</span> in the other.',
    ),
}
LINES = {
    "threads": ((("M", "M", 62), ("N", "N", 62)),),
    "coalescing": ((("stride", "stride", 110),),),
    "banks": ((("stride", "stride", 110),),),
    "layout": ((("n", "N", 56), ("c", "C", 56), ("h", "H", 56), ("w", "W", 58)),),
}
LABELS = {
    "mapping": "threads",
    "BLOCK": "BLOCK",
    "TILE": "TILE",
    "row": "words in a row",
    "along": "threads along",
}
WIDTHS = {"mapping": 230, "BLOCK": 122, "TILE": 108, "row": 170, "along": 150}


def controls(topic: str, fields: Fields, values: address.Values) -> None:
    """Draws links to the topics, then the parameters of this one."""
    with st.container(key="chips", horizontal=True):
        for other in address.TOPICS:
            st.page_link(
                PAGE, label=f"**{other}**" if other == topic else other, query_params={"topic": other}
            )
    unused = {"vector": "TILE"}.get(values.get("mapping"), "BLOCK")
    with st.container(key="params", horizontal=True):
        numbers(fields, LINES[topic], address.bounds(topic))
        for name in fields.by_name:
            if name in LABELS and name != unused:
                select(fields, name, WIDTHS[name], LABELS[name])
        rung = address.ladder(topic).rung(address.rung(topic, values))
        st.html(f'<p class="kt-derived">{rung.idea}</p>')


topic = address.topic(st.query_params)
parts, whole = lesson.begin(*IDEAS[topic])
fields = address.fields(topic)
values, notes = query.current_values(fields, whole)
if st.session_state.get("_topic", topic) != topic:  # a link led here: show the topic in the browser's URL
    st.query_params.update({})
st.session_state["_topic"] = topic
if whole:
    controls(topic, fields, values)
note(*notes)
if "watch" in parts:
    stage.mount(address.scene(topic, values), key="threads")
if {"run", "why"} & parts:
    with st.container(key="cards", horizontal=True):
        with st.container(key="cards_left"):
            if "run" in parts:
                cards.time_card(topic, values)
            if "why" in parts:
                cards.levels_card()
        with st.container(key="cards_right"):
            if "why" in parts:
                cards.why_card(topic, values)
if "kernel" in parts:
    ladder, tile_values = address.ladder(topic), address.tiles(topic, values)
    sources.draw_tabs(
        ladder, address.shape(topic, values),
        lambda rung: rung.default_tiles | {n: v for n, v in tile_values.items() if n in rung.tiles},
        first=address.rung(topic, values),
    )  # fmt: skip
lesson.load_deferred(parts)
