"""Choosing an algorithm: all rungs of the convolution ladder compared at one shape, over two axes, in whole networks."""

import streamlit as st

from kernels.i18n import tr
from pages.conv.choose import controls, map, networks, race, stage
from pages.conv.choose.address import LADDER
from pages.conv.choose.chapters import STORY
from pages.parts import lesson, sources
from pages.parts.text import idea
from visuals.conv.choose import race as race_chart

PAGE = "conv/choose/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Choosing an algorithm"), "race", "map", "networks", page=PAGE, chapter=chapter)
st.html(f"<style>{race_chart.css()}</style>")
visible = whole and not chapter
with lesson.controls(visible):
    shape, predict, link = controls.read(PAGE, visible=visible)
if chapter and "watch" in parts:
    stage.draw(chapter, shape)
elif {"watch", "race", "run", "why"} & parts:
    race.section(shape, predict, link, with_cards=bool({"run", "why"} & parts))
if whole:
    idea(
        tr(
            "Every kernel computes the same convolution, but none is the fastest at every shape. Filter size, channels, image size "
            'and batch decide: <span class="kt-math">time = work / speed</span>. Some kernels do less work, some work faster.'
        )
    )
# A map beside the race, or below a chapter, would reveal the answer.
revealed = not chapter and (bool(predict) or not whole)
if "map" in parts and revealed:
    map.section(shape, predict)
if "networks" in parts and revealed:
    networks.section(predict)
if parts == {"kernel"}:
    sources.draw_tabs(LADDER, shape)
lesson.load_deferred(parts)
