"""Attention to flash attention: from an N x N matrix in memory to tiles that are never stored."""

from kernels.i18n import tr
from pages.attention import address, cards, controls, cpu
from pages.attention.chapters import STORY
from pages.parts.ladder_page import Drawn, LadderPage, Played
from pages.parts.query import chosen
from pages.parts.rung_address import Selection
from pages.parts.rung_picker import reader
from pages.parts.sizes import shown
from visuals.attention import notes

PAGE = "attention/page.py"
PROCESSOR = "processor"  # the page part with the loops on this processor


def play(selected: Selection) -> Played:
    values, orders = chosen(address.VALUES, address.KINDS), address.orders(selected.rung.name)
    order, tiles = chosen("order", orders), tuple(selected.tiles.items())
    found = address.scene(selected.shape, selected.rung.name, tiles, values, order)
    return Played(*found, orders if len(orders) > 1 else {})


def panels(drawn: Drawn[Selection]) -> None:
    cards.section(drawn.parts, drawn.selected, shown(drawn.settings))
    if PROCESSOR in drawn.parts:
        cpu.section(drawn.selected.shape, drawn.link)


LadderPage(
    page=PAGE,
    stage="attention",
    title=tr("From attention to flash attention"),
    about=tr(
        'Each query is compared with every key. The resulting weights average the values: <span class="kt-math">O = softmax(scale · '
        '<span class="kt-input">Q</span> <span class="kt-filter">K</span><sup>T</sup>) <span class="kt-filter">V</span></span>. '
        'In separate steps, this writes an <span class="kt-workspace">N × N matrix</span> to memory and reads it back. Flash attention '
        'loads the keys tile by tile. It keeps a running maximum <span class="kt-math">m</span> and sum <span class="kt-math">l</span> for each '
        "query and rescales its earlier sums. It stores no N × N matrix."
    ),
    ladder=address.LADDER,
    notes=notes.notes_of,
    read=reader(PAGE, address.ADDRESS, controls.draw),
    play=play,
    sizes=controls.sizes,
    more_parts=(cards.MEMORY, cards.TRAFFIC, PROCESSOR),
    panels=panels,
).draw(STORY.open())
