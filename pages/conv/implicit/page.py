"""Implicit GEMM: one matrix product whose data matrix is never stored."""

from kernels.i18n import mark, tr
from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv.implicit import address, half
from pages.conv.implicit.chapters import STORY
from pages.conv.lesson import Watched
from pages.parts.controls import Link
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.query import chosen
from pages.parts.text import note
from pages.parts.tiles import broken
from visuals.conv.implicit import notes

PAGE = "conv/implicit/page.py"
CHIPS = {"one-tile": mark("one tile")} | conv_controls.CHIPS
FORMULA = (
    '<span class="kt-math">D[(c, r, s), (n, p, q)] = x[n, c, h, w]</span>, '
    '<span class="kt-math">h = p·u − pad + r·dilation</span>'
)


def read(visible: bool) -> tuple[Watched, Link]:
    current, wrong = address.watched(visible)
    inputs, link = conv_controls.inputs(PAGE, visible, address.FIELDS, CHIPS, conv_controls.virtual_matrix)
    if visible:
        address.draw(PAGE, inputs.shape, current)
    note(*wrong)
    rules = broken(current.rung, inputs.shape, current.tiles)
    return Watched(current.rung, current.tiles, inputs, link, rules), link


def play(selected: Watched) -> Played:
    rung, tiles, order = selected.rung.name, tuple(selected.tiles.items()), chosen("order", address.ORDERS)
    return Played(*address.scene(selected.inputs, rung, tiles, order), address.ORDERS)


LadderPage(
    page=PAGE,
    stage="implicit",
    title=tr("Implicit GEMM: the matrix that is never stored"),
    about=tr(
        'Implicit GEMM never stores im2col’s <span class="kt-workspace">data matrix</span> in global memory. Each element of '
        'this matrix D is one <span class="kt-input">pixel</span>: {formula}. Each block copies one tile of the '
        'matrix into shared memory, multiplies it by a tile of the <span class="kt-filter">filters</span>, then copies the next.',
        formula=FORMULA,
    ),
    ladder=conv_address.ladder("implicit"),
    notes=lambda _: notes.NOTES,
    read=read,
    play=play,
    sizes=lambda selected: conv_controls.sizes(selected, fields=address.FIELDS),
    more=half.card,
    beside=lambda selected: conv_controls.show_pictures(selected.inputs),
).draw(STORY.open())
