"""Choosing an algorithm: all rungs of the convolution ladder compared at one shape, over two axes, in whole networks."""

import streamlit as st

from pages.conv.choose import controls, map, networks, race
from pages.conv.choose.address import LADDER
from pages.parts import lesson, sources
from visuals.conv.choose import race as race_chart

PAGE = "conv/choose/page.py"

parts, whole = lesson.begin(
    "Choosing an algorithm",
    "Every rung computes the same convolution, and no rung is the fastest at every shape: the filter's size, the "
    "number of maps, their size and the batch decide. "
    '<span class="kt-math">time = work / speed</span>: some do less work, some work faster.',
    "race",
    "map",
    "networks",
)
st.html(f"<style>{race_chart.css()}</style>")
shape, predict, link = controls.read(PAGE, visible=whole)
if {"watch", "race", "run", "why"} & parts:
    race.section(shape, predict, link, with_cards=bool({"run", "why"} & parts))
revealed = bool(predict) or not whole  # a map beside the race would reveal the answer
if "map" in parts and revealed:
    map.section(shape, predict)
if "networks" in parts and revealed:
    networks.section(predict)
if parts == {"kernel"}:
    sources.draw_tabs(LADDER, shape)
lesson.load_deferred(parts)
