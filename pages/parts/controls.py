"""Controls that several lessons share: presets, numbers, choices, orders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.i18n import tr
from kernels.model.preset import Preset
from kernels.model.shape import Bound, Shape
from pages.parts.address import Choice, Field, Fields, Number, Values
from pages.parts.links import drawn
from pages.parts.query import chosen, explored, others
from pages.parts.text import quiet

# Adjacent fields without a gap: (name, marked label, width in px).
Group = tuple[tuple[str, str, int], ...]
NO_TEXTS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Link:
    """Links from a page to itself at another shape. They keep all other URL parameters except the moment of the stage."""

    page: str
    kept: Callable[[], Mapping[str, str]]
    params: Callable[[Any], dict[str, str]]  # of a shape: the lesson's own parameters
    sets: Collection[str] = ()  # the names of all of them, with those that it leaves out

    def __call__(self, preset: Preset, label: str) -> None:
        """Draws a link to a preset."""
        st.page_link(self.page, label=label, query_params=self._query(preset.shape), help=preset.source)

    def put(self, shape: Shape) -> None:
        """Opens the page with this shape on the stage."""
        st.switch_page(self.page, query_params=self._query(shape))

    def _query(self, shape: Shape) -> dict[str, str]:
        params = explored({**self.kept(), **self.params(shape)})
        return drawn(params, self.sets) if self.sets else params


def option(name: str, choices: Sequence[str]) -> str:
    """Draws pills bound to the URL and returns the choice. The first choice is the default."""
    st.session_state[name] = value = chosen(name, choices)
    st.pills(name, choices, default=choices[0], required=True, key=name, bind="query-params")
    return value


# -- controls ------------------------------------------------------------------------------------
def preset_link(page: str, fields: Fields, to: Callable[[Any], dict[str, str]]) -> Link:
    """Returns the links of a page. `to(shape)` gives the lesson's parameters at a shape."""
    return Link(page, lambda: others(fields), to, tuple(fields.by_name))


def labels(
    presets_by_key: Mapping[str, Preset], keys: str = "", renamed: Mapping[str, str] = NO_TEXTS
) -> dict[str, str]:
    """Returns the labels of presets, of all or of those named by `keys`, in that order; `renamed` are shorter ones."""
    return {key: renamed.get(key, presets_by_key[key].label) for key in keys.split() or presets_by_key}


def presets(link: Link, chips: Mapping[str, str], presets_by_key: Mapping[str, Preset], shape: Shape | None) -> None:
    """Draws a popover with a chip for each preset of `chips` (key: marked label). That of the page's shape is bold and names
    it."""
    current = next((tr(label) for key, label in chips.items() if presets_by_key[key].shape == shape), tr("presets"))
    with st.popover(current, key="presets"), st.container(key="chips_presets", horizontal=True):
        for key, label in chips.items():
            preset = presets_by_key[key]
            link(preset, f"**{tr(label)}**" if preset.shape == shape else tr(label))


def numbers(fields: Fields, groups: Iterable[Group], bounds: Mapping[str, Bound]) -> None:
    """Draws number fields with marked labels. The caller's container has a key that begins with "params"; `bounds` are the
    current ones."""
    for group in groups:
        joined = len(group) > 1
        key = f"pair_{group[0][0]}"
        with st.container(key=key, horizontal=True, width="content", gap=None) if joined else nullcontext():
            for name, label, width in group:
                _number(fields, name, tr(label), width, bounds[name])


def _number(fields: Fields, name: str, label: str, width: int, bound: Bound) -> None:
    field = fields.by_name[name]
    assert isinstance(field, Number)
    st.number_input(
        label,
        min_value=float(bound.low),
        max_value=float(bound.high),
        value=float(field.default) if bound.low <= field.default <= bound.high else None,
        step=field.step,
        format="%.0f" if field.whole else "%g",
        required=True,
        key=name,
        bind="query-params",
        width=width,
    )


def _choices(field: Field) -> tuple:
    assert isinstance(field, Choice)
    return field.choices


def choose(fields: Fields, name: str, label: str = "", choices: Sequence = ()) -> None:
    """Draws a Choice of the lesson as pills, or `choices` of a Number. They must include the default."""
    field = fields.by_name[name]
    st.pills(
        label or name,
        choices or _choices(field),
        default=field.default,
        required=True,
        key=name,
        bind="query-params",
        label_visibility="visible" if label else "collapsed",
    )


def select(fields: Fields, name: str, width: int, label: str = "", choices: Sequence = ()) -> None:
    """Draws a Choice of the lesson as a select box, or some of its `choices`. They need not include the default."""
    field = fields.by_name[name]
    choices = choices or _choices(field)
    st.selectbox(
        label or name,
        choices,
        index=choices.index(field.default) if field.default in choices else None,
        key=name,
        bind="query-params",
        width=width,
    )


def line(fields: Fields, names: str, bounds: Mapping[str, Bound] | None = None) -> None:
    """Draws numbers and select boxes that say their own labels and widths. In "a+b,c" the numbers a and b have no gap."""
    for group in names.split(","):
        for name in group.split("+"):
            if isinstance(field := fields.by_name[name], Choice):
                select(fields, name, field.width, tr(field.label or name))
        found = {name: fields.by_name[name] for name in group.split("+")}
        own = tuple((name, f.label or name, f.width) for name, f in found.items() if isinstance(f, Number))
        numbers(fields, (own,) if own else (), fields.bounds if bounds is None else bounds)


def chooser(name: str, choices: Mapping[str, str]) -> None:
    """Draws a choice bound to the URL, in a popover. `choices` maps each choice to its marked explanation."""
    with st.popover(f"{name}: {chosen(name, choices)}", key=f"{name}_chooser"):
        option(name, list(choices))
        st.caption(" ".join(f"{choice}: {tr(text)}." for choice, text in choices.items()))


@contextmanager
def more(label: str, fields: Fields, groups: Iterable[Group], bounds: Mapping[str, Bound]) -> Iterator[None]:
    """Draws rare number fields in a popover, and under them what the block draws. `label` names what is set; "" if nothing is."""
    with st.container(key="chips_more", width="content"), st.popover(label or tr("more"), key="more"):
        with st.container(key="params_rare", horizontal=True):
            numbers(fields, groups, bounds)
        yield


def derived(text: str) -> None:
    """Writes what follows from the fields, HTML, at the end of their line."""
    st.html(f'<p class="kt-derived">{text}</p>')


def choice_links(
    page: str,
    fields: Fields,
    values: Values,
    name: str,
    label: str,
    titles: Mapping[str, str],
    follow: Callable[[Values], Values] = dict,
    about: Mapping[str, str] = NO_TEXTS,
) -> None:
    """Draws the choices of a field as links in a popover. They keep the other values.

    `titles` and `about` map each choice to a marked title and to what is said on hover; `follow(values)` returns the values
    after a choice.
    """
    with st.popover(label, key=f"{name}_chooser"), st.container(key=f"rungs_{name}", gap=None):
        for choice, title in titles.items():
            to = follow({**values, name: choice})
            params = drawn(
                explored({**others(fields), **fields.write(to)}), {name, *(n for n in to if to[n] != values[n])}
            )
            text = f"**{tr(title)}**" if choice == values[name] else tr(title)
            st.page_link(page, label=text, query_params=params, help=tr(about[choice]) if choice in about else None)


def limits(values: Values, bounds: Mapping[str, Bound]) -> None:
    """Writes the rules that limit the fields whose value equals a bound."""
    quiet(*filter(None, (_limit(name, values[name], bound) for name, bound in bounds.items())))


def _limit(name: str, value: int, bound: Bound) -> str:
    if value == bound.high and bound.why_high and bound.high > bound.low:
        return tr("{name} ≤ {limit} here: {rule}", name=name, limit=bound.high, rule=bound.why_high)
    if value == bound.low and bound.why_low:
        return tr("{name} ≥ {limit} here: {rule}", name=name, limit=bound.low, rule=bound.why_low)
    return ""
