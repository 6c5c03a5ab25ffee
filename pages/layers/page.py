"""Layers: what a layer computes, what it keeps, and how its gradient goes back over the same links."""

from functools import partial

from kernels.i18n import tr
from pages.layers import address, controls
from pages.layers.chapters import STORY
from pages.parts import query
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.rung_address import Selection
from pages.parts.rung_picker import reader

chapter = STORY.open()
layer, side, wrong = address.read(query.url_values())
row, one = address.of(layer, side)
query.note_on(address.LAYER, wrong)
query.follow_link("_layer", (layer, side))


def play(selected: Selection) -> Played:
    found = Played(*address.scene(layer, side, selected))
    controls.part_note(layer, selected.shape)
    return found


LadderPage(
    page=controls.PAGE,
    stage="layers",
    title=tr(row.title),
    about=tr(row.about),
    ladder=one.ladder,
    notes=lambda _: one.notes,
    read=reader(controls.PAGE, address.address(layer, side), partial(controls.draw, layer, side)),
    play=play,
    sizes=partial(controls.sizes, layer, side),
).draw(chapter)
