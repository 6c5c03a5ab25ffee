"""Controls that several lessons share: presets, numbers, choices, orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import streamlit as st

from kernels.model.preset import Preset
from kernels.model.shape import Bound
from pages.parts.address import Fields
from pages.parts.query import chosen, others
from pages.parts.text import quiet

# Fields in the order of a line, those that share a group joined: (name, label, width in px).
Group = tuple[tuple[str, str, int], ...]


Link = Callable[[Preset, str], None]


def option(name: str, choices: Sequence[str]) -> str:
    """A choice bound to the address, the first being the default."""
    st.session_state[name] = value = chosen(name, choices)
    st.pills(name, choices, default=choices[0], required=True, key=name, bind="query-params")
    return value


# -- controls ------------------------------------------------------------------------------------
def preset_link(page: str, fields: Fields, to: Callable[[Any], dict[str, str]]) -> Link:
    """A function that draws a link to a preset: `to(shape)` are the lesson's parameters there. Every other
    one is kept but the moment of the stage."""
    kept = others(fields)

    def link(preset: Preset, label: str) -> None:
        st.page_link(page, label=label, query_params=kept | to(preset.shape), help=preset.source)

    return link


def presets(link: Link, chips: Mapping[str, str], known: Mapping[str, Preset], shape: Any) -> None:
    """A chip for each preset of `chips` (key: label); that of the shape on the page stands out."""
    for key, label in chips.items():
        link(known[key], f"**{label}**" if known[key].shape == shape else label)


def numbers(fields: Fields, groups: Iterable[Group], bounds: Mapping[str, Bound]) -> None:
    """A line's fields, in a container whose key begins with "params"; `bounds` are those of the moment."""
    for group in groups:
        joined = len(group) > 1
        key = f"pair_{group[0][0]}"
        with st.container(key=key, horizontal=True, width="content", gap=None) if joined else nullcontext():
            for name, label, width in group:
                _number(fields, name, label, width, bounds[name])


def _number(fields: Fields, name: str, label: str, width: int, bound: Bound) -> None:
    usual, whole = fields.of[name].usual, fields.of[name].whole
    st.number_input(
        label,
        min_value=float(bound.low),
        max_value=float(bound.high),
        value=float(usual) if bound.low <= usual <= bound.high else None,
        step=1.0,
        format="%.0f" if whole else "%g",
        required=True,
        key=name,
        bind="query-params",
        width=width,
    )


def choose(fields: Fields, name: str, label: str = "", choices: Sequence = ()) -> None:
    """A Choice of the lesson as pills, or those `choices` of a Number; the usual must be among them."""
    field = fields.of[name]
    st.pills(
        label or name,
        choices or field.choices,
        default=field.usual,
        required=True,
        key=name,
        bind="query-params",
        label_visibility="visible" if label else "collapsed",
    )


def select(fields: Fields, name: str, width: int, label: str = "", choices: Sequence = ()) -> None:
    """A Choice of the lesson as a field, or some of its `choices`; the usual need not be among them."""
    field = fields.of[name]
    choices = choices or field.choices
    st.selectbox(
        label or name,
        choices,
        index=choices.index(field.usual) if field.usual in choices else None,
        key=name,
        bind="query-params",
        width=width,
    )


def chooser(name: str, choices: Mapping[str, str]) -> None:
    """A choice bound to the address, in a popover; `choices` tells each in words."""
    with st.popover(f"{name}: {chosen(name, choices)}", key=f"{name}_chooser"):
        option(name, list(choices))
        st.caption(" ".join(f"{choice}: {words}." for choice, words in choices.items()))


def order_chooser(orders: Mapping[str, str]) -> None:
    """In whose order the stage plays; `orders` tells each in words."""
    chooser("order", orders)


def limits(values: Mapping[str, Any], bounds: Mapping[str, Bound]) -> None:
    """The rules that keep fields from going on, of those that stand at one."""
    quiet(*filter(None, (_limit(name, values[name], bound) for name, bound in bounds.items())))


def _limit(name: str, value: int, bound: Bound) -> str:
    if value == bound.high and bound.why_high and bound.high > bound.low:
        return f"{name} ≤ {bound.high} here: {bound.why_high}"
    if value == bound.low and bound.why_low:
        return f"{name} ≥ {bound.low} here: {bound.why_low}"
    return ""
