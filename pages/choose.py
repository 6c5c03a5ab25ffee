"""Choosing an algorithm: all rungs of the convolution ladder against each other, at one shape, over two axes, in
whole networks."""

import streamlit as st

from pages import _choose_controls, _choose_map, _choose_networks, _choose_race, _kernels, _lesson
from pages._choose import LADDER
from visuals import race

PAGE = "choose.py"

parts, whole = _lesson.begin(
    "Choosing an algorithm",
    "Every rung computes the same convolution, and no rung is the fastest at every shape: the filter's size, the "
    "number of maps, their size and the batch decide. "
    '<span class="kt-math">time = work / speed</span>: some do less work, some work faster.',
    "race",
    "map",
    "networks",
)
st.html(f"<style>{race.css()}</style>")
shape, predict, link = _choose_controls.asked(PAGE, shown=whole)
if {"watch", "race", "run", "why"} & parts:
    _choose_race.section(shape, predict, link, cards=bool({"run", "why"} & parts))
told = bool(predict) or not whole  # a map beside the race would give the answer away
if "map" in parts and told:
    _choose_map.section(shape, predict)
if "networks" in parts and told:
    _choose_networks.section(predict)
if parts == {"kernel"}:
    _kernels.show(LADDER, shape)
_lesson.settle(parts)
