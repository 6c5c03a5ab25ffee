"""The controls of every lesson whose URL holds a rung and its tile sizes: the line that selects both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from kernels.i18n import tr, trn
from kernels.model.preset import Preset
from kernels.model.program import Launch
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from pages.parts import query
from pages.parts import tiles as tile_sizes
from pages.parts.address import Fields
from pages.parts.controls import Link, preset_link, select
from pages.parts.links import drawn
from pages.parts.query import explored, others
from pages.parts.rung_address import Address, Selection
from pages.parts.text import note, paragraph, quiet
from visuals import units

TILE_PX = 74  # width of a field for a tile size, without its name
Params = dict[str, str]


@dataclass(frozen=True)
class Line:
    """The selected rung and tile sizes, the alternatives, and the URL parameters for each."""

    page: str  # its file
    fields: Fields  # the URL parameters that hold the rung and its tile sizes
    rungs: Sequence[Rung]  # to choose from
    supported: Sequence[Rung]  # those that can run the shape
    shape: Shape
    rung: Rung
    tiles: Mapping[str, int]
    at_rung: Callable[[Rung], Params]  # the parameters for another rung
    at_tiles: Callable[[Mapping[str, int]], Params]  # and for other tile sizes
    example: Callable[[], tuple[Preset, Params] | None] = lambda: None  # a preset that the rung runs

    @property
    def broken(self) -> list[str]:
        """Returns the rules that the rung breaks at this shape with these tile sizes."""
        return tile_sizes.broken(self.rung, self.shape, self.tiles)


Controls = Callable[[Fields, Selection, Link], None]


def reader(page: str, address: Address, controls: Controls) -> Callable[[bool], tuple[Selection, Link]]:
    """Returns what a `LadderPage` reads with: `selection`, with the controls if they are visible."""
    return lambda visible: selection(page, address, controls if visible else None)


def selection(page: str, address: Address, controls: Controls | None) -> tuple[Selection, Link]:
    """Returns the selection, and a function that draws a link to another preset and keeps all else.

    `controls` draws the controls of the shape, above the line of the rung. With None only the URL is read.
    """
    fields = address.fields[address.selected_name(query.url_values())]
    values, notes = query.current_values(fields, bool(controls), address.follow)
    selection = address.selection(values)
    link = preset_link(page, fields, lambda shape: address.at_shape(selection, shape))

    if controls:
        controls(fields, selection, link)
        line = Line(
            page,
            fields,
            address.ladder.rungs,
            address.supported_rungs(selection.shape),
            selection.shape,
            selection.rung,
            selection.tiles,
            lambda rung: address.at_rung(selection, rung),
            lambda tiles: address.at_tiles(selection, tiles),
            lambda: address.example(selection),
        )
        draw(line)
        if address.has_first_tiles(selection) and not line.broken:
            _suggest(line, address.fit(selection.rung, selection.shape))
    note(*notes)
    return selection, link


def draw(line: Line) -> None:
    """Draws the rungs as a popover of links, a field per tile size, the launch, and any rule that is broken."""
    with st.container(key="params_tiles", horizontal=True):
        with st.container(key="chips_rung", width="content"):
            _chooser(line)
        _tiles(line)
        st.html(f'<p class="kt-derived">{_launch_text(line)}</p>')
    quiet(*filter(None, (tr(line.rung.idea), line.rung.needs)))
    if line.broken:
        _refused(line)


def _chooser(line: Line) -> None:
    """Draws the rungs as links: another rung has other tile sizes, so their URL parameters must change too."""
    label = tr("kernel {n}: {title}", n=_number(line, line.rung), title=tr(line.rung.title))
    with st.popover(label, key="rung_chooser"), st.container(key="rungs", gap=None):
        for rung in line.rungs:
            title = f"{_number(line, rung)} {tr(rung.title)}"
            usual = title if rung in line.supported else tr("{title} (not at this shape)", title=title)
            label = f"**{title}**" if rung is line.rung else usual
            _link(line, line.at_rung(rung), label, " ".join(filter(None, (tr(rung.idea), rung.needs))))


def _number(line: Line, rung: Rung) -> int:
    """Returns the rung's position in the line, from 1."""
    return line.rungs.index(rung) + 1


def _link(line: Line, params: Params, label: str, help: str = "") -> None:
    tiles = {name for one in line.rungs for name in one.tiles}
    query_params = drawn(explored(others(line.fields) | params), {"rung", *tiles})
    st.page_link(line.page, label=label, query_params=query_params, help=help or None)


MAX_FIELDS = 3  # tile sizes in the line; more are in a popover


def _tiles(line: Line) -> None:
    """Draws the tile sizes, in a popover if they are many."""
    if len(line.rung.tiles) <= MAX_FIELDS:
        _tile_fields(line)
        return
    label = tr("tiles {sizes}", sizes=" · ".join(str(line.tiles[name]) for name in line.rung.tiles))
    with (
        st.container(key="chips_tiles", width="content"),
        st.popover(label, key="tiles"),
        st.container(key="params_sizes"),
    ):
        _tile_fields(line)


def _tile_fields(line: Line) -> None:
    """Draws a field for each tile size. Its choices are the legal ones while the other sizes stay."""
    for name, choices in tile_sizes.choices(line.rung, line.shape, line.tiles).items():
        select(line.fields, name, TILE_PX + 9 * len(name), choices=choices)


def _launch_text(line: Line) -> str:
    """Returns HTML with the rung's launches at these tile sizes; "" if a rule is broken or it calls a library."""
    if line.broken:
        return ""
    steps = line.rung.build(line.shape, line.tiles).steps
    counts_by_size = Counter((math.prod(s.grid), math.prod(s.block)) for s in steps if isinstance(s, Launch))
    return " · ".join(_launches(count, grid, block) for (grid, block), count in counts_by_size.items())


def _launches(count: int, grid: int, block: int) -> str:
    blocks = trn(
        "<b>{n}</b> block of <b>{threads}</b> threads",
        "<b>{n}</b> blocks of <b>{threads}</b> threads",
        grid,
        threads=units.whole(block),
    )
    return tr("<b>{n}</b> launches of {blocks}", n=count, blocks=blocks) if count > 1 else blocks


def _suggest(line: Line, fitting: Mapping[str, int]) -> None:
    """Links to the tile sizes that fit the shape: the present ones are those of the small example."""
    text = tr("Tile sizes of the small example: {tiles}. Larger shapes use:", tiles=_sizes(line.tiles))
    with st.container(key="chips_fitting", horizontal=True):
        quiet(text)
        _link(line, line.at_tiles(fitting), _sizes(fitting))


def _sizes(tiles: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in tiles.items())


def _refused(line: Line) -> None:
    """Writes the broken rules and links to the nearest tile sizes, or to the rungs that support the shape."""
    nearest = tile_sizes.nearest(line.rung, line.shape, line.tiles)
    with st.container(key="chips_legal", horizontal=True):
        quiet(
            tr(
                "{title} cannot run with these settings: {rules}.",
                title=units.named(tr(line.rung.title), first=True),
                rules="; ".join(line.broken),
            )
        )
        if nearest:
            text = ", ".join(f"{n} {v}" for n, v in nearest.items() if v != line.tiles[n])
            _link(line, line.at_tiles(nearest), tr("nearest sizes that run: {sizes}", sizes=text))
        else:
            st.html(paragraph(tr("Kernels that can:")))
            _offer(line, line.supported[:MAX_OFFERED])
            if more := line.supported[MAX_OFFERED:]:
                with st.popover(trn("{n} more", "{n} more", len(more)), key="more_kernels", width="content"):
                    _offer(line, more)
            if example := line.example():
                preset, params = example
                st.html(paragraph(tr("A shape for {title}:", title=units.named(tr(line.rung.title)))))
                _link(line, params, preset.label, preset.source)


MAX_OFFERED = 2  # kernels in the line of a refusal; more are in a popover


def _offer(line: Line, rungs: Sequence[Rung]) -> None:
    for rung in rungs:
        _link(line, line.at_rung(rung), tr(rung.title), tr(rung.idea))
