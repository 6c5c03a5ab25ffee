"""Winograd: fewer multiplications for a tile of outputs, paid for in additions, memory and digits."""

from kernels.i18n import tr
from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv.lesson import Watched
from pages.conv.winograd import address, cards, matrices
from pages.conv.winograd.chapters import STORY
from pages.parts.controls import Link
from pages.parts.ladder_page import Drawn, LadderPage, Played
from pages.parts.query import chosen
from pages.parts.sizes import shown
from visuals.conv.winograd import notes

PAGE = "conv/winograd/page.py"
chapter = STORY.open()


def read(visible: bool) -> tuple[Watched, Link]:
    inputs, link = conv_controls.inputs(
        PAGE, visible, address.FIELDS, address.CHIPS, lambda s: address.derived(address.read_watched(), s)
    )
    if visible:
        address.chooser()
    kernel = address.read_watched()
    return Watched(kernel.rung, kernel.tiles, inputs, link), link


def play(selected: Watched) -> Played:
    scene, reason = address.scene(selected.inputs, address.read_watched(), chosen("order", address.ORDERS))
    if not scene:
        address.draw_refusal(selected.shape, reason, selected.link)
    return Played(scene, reason if scene else "", {} if chapter else address.ORDERS)


def panels(drawn: Drawn[Watched]) -> None:
    cards.section(drawn.parts, drawn.selected.shape, shown(drawn.settings))
    if matrices.PART in drawn.parts:
        matrices.section()


LadderPage(
    page=PAGE,
    stage="winograd",
    title=tr("Winograd: the same outputs with fewer multiplications"),
    about=tr(
        '<span class="kt-output">Outputs</span> are computed tile by tile: <span class="kt-input">input</span> and '
        '<span class="kt-filter">filter</span> are transformed, multiplied elementwise and transformed back, '
        '<span class="kt-math">Y = A<sup>T</sup> [ (G g G<sup>T</sup>) ∘ (B<sup>T</sup> d B) ] A</span>. '
        "The cost: additions, overlapping tiles, extra memory, lost precision."
    ),
    ladder=conv_address.ladder("winograd"),
    notes=lambda _: notes.WINOGRAD,
    read=read,
    play=play,
    sizes=lambda selected: conv_controls.sizes(selected, fields=address.FIELDS),
    more_parts=(cards.COUNTS, cards.ERRORS, matrices.PART),
    panels=panels,
    beside=lambda selected: conv_controls.show_pictures(selected.inputs),
    file=lambda selected: address.main_file(address.read_watched(), selected.shape),
).draw(chapter)
