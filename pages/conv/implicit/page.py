"""Implicit GEMM: one matrix product whose data matrix is never stored."""

from kernels.i18n import mark, tr
from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv import lesson as conv_lesson
from pages.conv.implicit import address, half
from pages.conv.implicit.chapters import STORY
from pages.parts import lesson, run
from pages.parts.query import chosen
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.conv.implicit import notes as implicit_notes

PAGE, LADDER = "conv/implicit/page.py", conv_address.ladder("implicit")
CHIPS = {"one-tile": mark("one tile")} | conv_controls.CHIPS

FORMULA = (
    '<span class="kt-math">D[(c, r, s), (n, p, q)] = x[n, c, h, w]</span>, '
    '<span class="kt-math">h = p·u − pad + r·dilation</span>'
)
chapter = STORY.open()
parts, whole = lesson.begin(tr("Implicit GEMM: the matrix that is never stored"), page=PAGE, chapter=chapter)
visible = whole and not chapter
current, notes = address.watched(visible=visible)
with lesson.controls(visible):
    inputs, link = conv_controls.inputs(
        PAGE, visible=visible, fields=address.FIELDS, chips=CHIPS, derived=conv_controls.virtual_matrix
    )
    shape = inputs.shape
    if visible:
        address.draw(PAGE, shape, current)
    settings = run.options(LADDER, shape, current.rung_tiles, visible=visible)
note_in_place(*notes)
if "watch" in parts:
    order = chosen("order", address.ORDERS)
    scene, reason = address.scene(inputs, current.rung.name, tuple(current.tiles.items()), order)
    # The whole page names the rule beside the tile sizes.
    note_in_place(reason if scene or not whole else "")
    sizes = conv_controls.sizes(settings, current.rung, fields=address.FIELDS)
    orders = {name: tr(text) for name, text in address.ORDERS.items()}
    Stage("implicit", scene, settings, current.rung, sizes, link, orders, chapter).draw()
if whole:
    idea(
        tr(
            'Implicit GEMM never stores im2col’s <span class="kt-workspace">data matrix</span> in global memory. Each element of '
            'this matrix D is one <span class="kt-input">pixel</span>: {formula}. Each block copies one tile of the '
            'matrix into shared memory, multiplies it by a tile of the <span class="kt-filter">filters</span>, then copies the next.',
            formula=FORMULA,
        )
    )
if {"run", "why"} & parts:
    run.run_section(
        settings, implicit_notes.NOTES, link, more=half.card, sizes=conv_controls.sizes(settings, current.rung)
    )
conv_lesson.end(parts, LADDER, inputs, current.tiles_of, current.rung.name)
