"""Threads and memory: which thread computes which element, and the cost of its memory accesses."""

import streamlit as st

from kernels.i18n import mark, tr
from kernels.model.rung import Rung
from pages.memory import address, cards, sizes
from pages.memory.chapters import STORY
from pages.parts import gpu_choice, guess, query, run, sources
from pages.parts.address import Values
from pages.parts.chapters import OpenChapter
from pages.parts.controls import derived, line
from pages.parts.stage import Stage
from pages.parts.values_page import Parts, ValuesPage

PAGE = "memory/page.py"
IDEAS = {
    "threads": (
        mark("Threads: one thread per element"),
        mark(
            "A launch is a grid of blocks. A block runs on one SM (streaming multiprocessor) in warps of 32 threads, "
            'its lanes. Each thread computes its index: <span class="kt-math">i = blockIdx.x · blockDim.x + threadIdx.x</span>. '
            "The cost of a memory access depends on all elements that a warp accesses together."
        ),
    ),
    "divergence": (
        mark("Divergence: when lanes of a warp disagree"),
        mark(
            "A warp executes one instruction at a time, for all its lanes. If its lanes take different branches, the warp runs "
            "both branches, one after the other. In each, only the lanes that took it are active. If all lanes of a warp agree, "
            "it runs one branch."
        ),
    ),
    "coalescing": (
        mark("Coalescing: memory is read in sectors of 32 bytes"),
        mark(
            "The 32 loads of a warp are one request. The hardware fetches whole sectors (32 bytes). 32 neighbouring floats "
            'fill 4 sectors. With <span class="kt-math">x[i · stride]</span> the floats are in up to 32 sectors. The other '
            "bytes of these sectors are fetched but not used."
        ),
    ),
    "banks": (
        mark("Banks: shared memory delivers one word per bank"),
        mark(
            'Shared memory has 32 banks. Word <span class="kt-math">w</span> is in bank '
            '<span class="kt-math">w mod 32</span>. In one pass each bank delivers one word. If lanes read different words of '
            "one bank, the read takes one pass per word: a bank conflict. One unused word after each row (padding) spreads a "
            "column over all banks."
        ),
    ),
    "layout": (
        mark("Layout: from an index to an address"),
        mark(
            "Memory is one-dimensional. A tensor of four axes can be stored in several orders. In NCHW w varies fastest, in "
            'NHWC c varies fastest. The address in NCHW is <span class="kt-math">((n·C + c)·H + h)·W + w</span>. The address '
            'in NHWC is <span class="kt-math">((n·H + h)·W + w)·C + c</span>.'
        ),
    ),
}
LINES = {
    "threads": "M+N,mapping,BLOCK,TILE",
    "divergence": "rounds,branches",
    "coalescing": "stride",
    "banks": "stride,row",
    "layout": "n+c+h+w,along",
}


chapter = STORY.open()
topic = address.topic(query.url_values())
ladder, fields = address.ladder(topic), address.fields(topic)
query.note_on("topic", address.topic_notes(query.url_values()))


def controls(values: Values) -> None:
    """Draws links to the topics, then the parameters of this one."""
    with st.container(key="chips", horizontal=True):
        for other in address.TOPICS:
            st.page_link(
                PAGE,
                label=f"**{other}**" if other == topic else other,
                query_params={"topic": other} | gpu_choice.kept(),
            )
    unused = "TILE" if values.get("mapping") == "vector" else "BLOCK"
    with st.container(key="params", horizontal=True):
        line(fields, LINES[topic].replace(f",{unused}", ""))
        derived(tr(ladder.rung(address.rung(topic, values)).idea))


def tiles(rung: Rung, values: Values) -> dict[str, int]:
    """Returns the tile sizes of a rung: those that the page sets, else its defaults."""
    return rung.default_tiles | {n: v for n, v in address.tiles(topic, values).items() if n in rung.tiles}


def stage(values: Values, chapter: OpenChapter | None) -> None:
    rung = sizes.stage_rung(topic, values)
    chosen = rung.name, tiles(rung, values)
    settings = run.options(ladder, address.shape(topic, values), chosen, visible=False)
    scene, named = address.scene(topic, values), sizes.sizes(topic, values)
    Stage("threads_stage", scene, settings, rung, named, chapter=chapter).draw()


def panels(values: Values, parts: Parts) -> None:
    with guess.cards():
        with st.container(key="cards_left"):
            if "run" in parts:
                cards.time_card(topic, values)
            if "why" in parts:
                cards.levels_card()
        with st.container(key="cards_right"):
            if "why" in parts:
                cards.why_card(topic, values)


def kernels(values: Values, _: Parts) -> None:
    first = address.rung(topic, values)
    sources.draw_tabs(ladder, address.shape(topic, values), lambda rung: tiles(rung, values), first)


title, about = map(tr, IDEAS[topic])
ValuesPage(PAGE, title, about, fields, (), controls, stage, panels, kernels).draw(chapter)
