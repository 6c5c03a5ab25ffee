"""The controls of every lesson whose address holds a rung and its tile sizes: above all the line that says which rung
is watched, and its tile sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.model.program import Launch
from kernels.model.rung import Rung
from pages.parts import query as parts_query
from pages.parts import tiles as parts_tiles
from pages.parts.address import Fields
from pages.parts.controls import Link, preset_link, select
from pages.parts.query import others
from pages.parts.rung_address import Address, Asked
from pages.parts.text import note, quiet

TILE_PX = 74  # of a field for a tile size, without its name
Params = dict[str, str]


@dataclass(frozen=True)
class Line:
    """What is watched, among what, and how the address says so."""

    page: str  # its file
    fields: Fields  # those of the address that hold the rung and its tile sizes
    rungs: Sequence[Rung]  # to choose from
    able: Sequence[Rung]  # those that can run the shape
    shape: Any
    rung: Rung
    tiles: Mapping[str, int]
    at_rung: Callable[[Rung], Params]  # the parameters for another rung
    at_tiles: Callable[[Mapping[str, int]], Params]  # and for other tile sizes

    @property
    def broken(self) -> list[str]:
        """The rules that keep the rung from running so."""
        return parts_tiles.broken(self.rung, self.shape, self.tiles)


def asked(
    page: str, address: Address, controls: Callable[[Fields, Asked, Link], None] | None
) -> tuple[Asked, Link]:
    """What the controls ask for, and what draws a link to another preset with all else kept. `controls` draws those of
    the shape, above the line of the rung; None: the address alone is read."""
    fields = address.fields[address.watched(st.query_params)]
    values, notes = parts_query.asked(fields, bool(controls))
    found = address.of(values)
    link = preset_link(page, fields, lambda shape: address.at_shape(found, shape))
    if controls:
        controls(fields, found, link)
        draw(
            Line(
                page,
                fields,
                address.ladder.rungs,
                address.able(found.shape),
                found.shape,
                found.rung,
                found.tiles,
                lambda rung: address.at_rung(found, rung),
                lambda tiles: address.at_tiles(found, tiles),
            )
        )
    note(*notes)
    return found, link


def draw(now: Line) -> None:
    """The rung as a popover of links, a field for each tile size, what that launches; and the rule that is broken."""
    with st.container(key="params_tiles", horizontal=True):
        with st.container(key="chips_rung", width="content"):
            _chooser(now)
        _tile_fields(now)
        st.html(f'<p class="kt-derived">{_launch_words(now)}</p>')
    quiet(now.rung.idea)
    if now.broken:
        _refused(now)


def _chooser(now: Line) -> None:
    """Links, for another rung has other tile sizes: what the address says of them is to change with it."""
    label = f"rung {_number(now, now.rung)}: {now.rung.title}"
    with st.popover(label, key="rung_chooser"), st.container(key="rungs", gap=None):
        for rung in now.rungs:
            title = f"{_number(now, rung)} {rung.title}"
            cannot = "" if rung in now.able else " (not at this shape)"
            label = f"**{title}**" if rung is now.rung else f"{title}{cannot}"
            _link(now, now.at_rung(rung), label, rung.idea)


def _number(now: Line, rung: Rung) -> int:
    """Its place among the rungs, from 1."""
    return now.rungs.index(rung) + 1


def _link(now: Line, params: Params, label: str, help: str = "") -> None:
    query = others(now.fields) | params
    st.page_link(now.page, label=label, query_params=query, help=help or None)


def _tile_fields(now: Line) -> None:
    """A field for each tile size; its choices are those that are legal while the others stay."""
    for name, choices in parts_tiles.choices(now.rung, now.shape, now.tiles).items():
        select(now.fields, name, TILE_PX + 9 * len(name), choices=choices)


def _launch_words(now: Line) -> str:
    """What the rung launches at these tile sizes: HTML; "" where it cannot or calls a library."""
    if now.broken:
        return ""
    steps = now.rung.build(now.shape, now.tiles).steps
    alike = Counter((math.prod(s.grid), math.prod(s.block)) for s in steps if isinstance(s, Launch))
    return " · ".join(
        f"{f'<b>{count}</b> launches of ' * (count > 1)}<b>{grid:,}</b> block{'s' if grid > 1 else ''} of <b>{block:,}</b> threads"
        for (grid, block), count in alike.items()
    )


def _refused(now: Line) -> None:
    """The rule that is broken, and where to go on: the nearest tile sizes, or the rungs that can."""
    quiet(f"{now.rung.title} cannot run so: {'; '.join(now.broken)}")
    near = parts_tiles.nearest(now.rung, now.shape, now.tiles)
    with st.container(key="chips_legal", horizontal=True):
        if near:
            words = ", ".join(f"{n} {v}" for n, v in near.items() if v != now.tiles[n])
            _link(now, now.at_tiles(near), f"nearest that can: {words}")
        else:
            st.html('<p class="kt-quiet">These can:</p>')
            for rung in now.able:
                _link(now, now.at_rung(rung), rung.title, rung.idea)
