"""Attention's backward pass: from N × N gradients in memory to weights that are computed again, tile by tile."""

from kernels.i18n import tr
from pages.attention import cards
from pages.attention.backward import address, controls
from pages.attention.backward.address import LADDER
from pages.attention.backward.chapters import STORY
from pages.parts.ladder_page import Drawn, LadderPage, Played
from pages.parts.query import chosen
from pages.parts.rung_address import Selection
from pages.parts.rung_picker import reader
from pages.parts.sizes import shown
from visuals.attention.backward.inputs import KINDS
from visuals.attention.backward.notes import BACKWARD

PAGE = "attention/backward/page.py"


def play(selected: Selection) -> Played:
    values, order = chosen(address.VALUES, KINDS), chosen("order", address.ORDERS)
    found = address.scene(selected.shape, selected.rung.name, tuple(selected.tiles.items()), values, order)
    return Played(*found, address.ORDERS)


def panels(drawn: Drawn[Selection]) -> None:
    if cards.MEMORY in drawn.parts:
        cards.memory_card(LADDER, shown(drawn.settings).settings.shape, tr("P and dS are N × N per head."))


LadderPage(
    page=PAGE,
    stage="attention_backward",
    title=tr("Attention backward: weights computed twice"),
    about=tr(
        'The gradient <span class="kt-input">dO</span> of each output goes back to all that made it: '
        '<span class="kt-output">dV</span>, <span class="kt-output">dK</span> and <span class="kt-output">dQ</span>. This needs '
        'the weights <span class="kt-workspace">P</span> of the forward pass, an N × N matrix for each head. Flash attention does not keep '
        'them. It keeps one number for each query, <span class="kt-math">L</span>, the logarithm of its row’s sum of exponentials. '
        'A tile of weights, <span class="kt-math">P = exp(S − L)</span>, is computed again when it is needed.'
    ),
    ladder=LADDER,
    notes=lambda _: BACKWARD,
    read=reader(PAGE, address.ADDRESS, controls.draw),
    play=play,
    sizes=controls.sizes,
    more_parts=(cards.MEMORY,),
    panels=panels,
).draw(STORY.open())
