"""The parts all lessons share: heading, what the address asks for, presets, fields, parts.

The address is the document: every control is bound to a parameter of it, defaults are left out, and
each run reads it anew. Streamlit 1.67 makes six things worth knowing:

* A bound field of integers crashes on ?H=inf; one of floats drops it. So the fields hold floats.
* A bound value equal to its default leaves the address. The default therefore never depends on the
  other controls; where it is out of bounds the field has none.
* A control in a closed popover is told nothing, and later sends the value it had before Back or a
  link changed it. So the address is believed, not the control.
* A link to the page one is on reruns it but leaves the browser's address as it was: `asked` mends it.
* A fragment that polls sends the address that the browser has, which is the one before while news of a
  new one is on its way. Were the page run again from there, the news would be undone. And where it is run
  again by one of two fragments, what was pressed in the other is lost. `behind` tells of both.
* The server learns of ?step=, which the stage writes, only when a bound control is turned. Writing to
  st.query_params sends back the step it knows, an old one: nothing does so while controls are turned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from html import escape
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kernels.presets import Preset
from kernels.shapes import Bound
from pages import _address
from pages._address import Fields, Values

# Fields in the order of a line, those that share a group joined: (name, label, width in px).
Group = tuple[tuple[str, str, int], ...]
Link = Callable[[Preset, str], None]
NOW = "_asked_now"  # what the page's last run read of the address: pairs of Fields and their values


def heading(title: str, idea: str) -> None:
    """Title and three sentences; `idea` is HTML of ours, `.kt-math` and `.kt-<role>` set its words."""
    st.html(f'<h1 class="kt-title">{title}</h1><p class="kt-idea">{idea}</p>')


def note(*texts: str) -> None:
    """Messages about what could not be taken as asked, a line each; they may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, texts))}</p>')


def quiet(*texts: str) -> None:
    """One line of small print; the texts may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-quiet">{" · ".join(map(escape, texts))}</p>')


def together(*pieces: str) -> None:
    """Pieces of HTML of ours under each other, as one element: each of Streamlit's costs a message."""
    if pieces := "".join(pieces):
        st.html(f'<div class="kt-told">{pieces}</div>')


# -- what is asked for ---------------------------------------------------------------------------
def asked(fields: Fields, shown: bool) -> tuple[Values, list[str]]:
    """What the parameters ask for now, and a note for each that could not be taken. In a browser the
    address says it; where there is none (tests), what the controls hold. `shown`: the controls are drawn."""
    state, kept = st.session_state, f"_asked_{fields.lesson}"
    address = {name: value for name, value in st.query_params.items() if name in fields.of}
    held = {name: state.get(name) for name in fields.of}
    before = state.get(kept)  # of the last run
    turned = bool(shown and before) and any(
        (held[n] if n in held else state.get(n)) != v for n, v in before["values"].items()
    )
    values, notes = fields.read(held if turned and st.context.url is None else address)
    if before is None:
        if notes:  # one entry of the browser's history, where the controls would each make their own
            others = {k: v for k, v in st.query_params.items() if k not in fields.of}
            st.query_params.from_dict(others | fields.write(values))
    elif values == before["values"]:
        notes = notes or before["notes"]
    elif not turned:
        # A link led to this same page: let the browser's address show it, as an entry Back returns to.
        # This sends the parameters of this run; after Back they stand there already.
        st.query_params.update({})
    if shown:
        for name, value in values.items():
            if held[name] != value:
                state[name] = value
    state[kept] = {"values": values, "notes": notes}
    state.setdefault(NOW, []).append((fields, values))
    return values, notes


def behind() -> bool:
    """Whether a fragment that polls must leave the page as it is for now, the next poll will know better: where the
    address of its run is not that of the page, and where another fragment is still to run in which something may have
    been pressed."""
    context = get_script_run_ctx()
    if context is None or st.context.url is None:
        return False
    address = st.query_params.to_dict()
    moved = any(fields.read(address)[0] != values for fields, values in st.session_state.get(NOW, ()))
    return moved or len(context.fragment_ids_this_run or ()) > 1


def chosen(name: str, choices: Iterable[str]) -> str:
    """What the address asks for among `choices`, the first where it names none of them. The address is
    believed, not the control, which in a closed popover misses what a link or Back has changed."""
    told = st.query_params.get(name) if st.context.url else st.session_state.get(name)
    return told if told in choices else next(iter(choices))


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


def others(fields: Fields) -> dict[str, str]:
    """The parameters of the address that are not the lesson's own nor the moment of the stage: links keep them."""
    return {k: v for k, v in st.query_params.items() if k not in (*fields.of, *_address.STAGE)}


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


# -- the parts of a page ---------------------------------------------------------------------------
PARTS = frozenset({"watch", "kernel", "run", "why"})


def parts(*more: str) -> frozenset[str]:
    """The parts asked for: ?view=watch gives one alone, for embedding, ?present=1 the stage for a lecture
    hall; anything else the whole page. `more` are those that this lesson has besides PARTS."""
    every = PARTS | set(more)
    view = "watch" if _address.presents(st.query_params) else st.query_params.get("view")
    return frozenset({view}) if view in every else every


def begin(title: str, idea: str, *more: str) -> tuple[frozenset[str], bool]:
    """The parts asked for (`more` as in `parts`), and whether they are the whole page: that begins with its heading."""
    asked = parts(*more)
    whole = len(asked) > 1
    if whole:
        heading(title, idea)
    return asked, whole


def settled() -> bool:
    """False in a browser's first run of a page: charts and code listings bring megabytes of script, which
    would hold up the stage's first paint. They wait for the run that `settle` asks for."""
    return st.context.url is None or "_settled" in st.session_state


def settle(parts: frozenset[str]) -> None:
    """The end of a page: what waits for a second run gets one. The stage alone has nothing that waits."""
    if parts != {"watch"} and not settled():
        _settle_soon()


@st.fragment(run_every=0.5)
def _settle_soon() -> None:
    """Run the page again shortly, now with everything on it."""
    if "_waited" in st.session_state and not behind():  # the second time: the first is the page's own run
        st.session_state["_settled"] = True
        st.rerun()
    st.session_state["_waited"] = True


def below():
    """The container of what stands under the cards: pictures left, kernels right, where there is room."""
    return st.container(key="below", horizontal=True)
