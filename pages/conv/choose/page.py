"""Choosing an algorithm: all rungs of the convolution ladder against each other, at one shape, over two axes, in
whole networks."""

import streamlit as st

from pages.conv.choose import controls, map, networks
from pages.conv.choose import race as choose_race
from pages.conv.choose.address import LADDER
from pages.parts import lesson
from pages.parts import sources as parts_sources
from visuals.conv.choose import race as conv_choose_race

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
st.html(f"<style>{conv_choose_race.css()}</style>")
shape, predict, link = controls.asked(PAGE, shown=whole)
if {"watch", "race", "run", "why"} & parts:
    choose_race.section(shape, predict, link, cards=bool({"run", "why"} & parts))
told = bool(predict) or not whole  # a map beside the race would give the answer away
if "map" in parts and told:
    map.section(shape, predict)
if "networks" in parts and told:
    networks.section(predict)
if parts == {"kernel"}:
    parts_sources.show(LADDER, shape)
lesson.settle(parts)
