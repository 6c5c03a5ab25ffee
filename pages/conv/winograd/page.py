"""Winograd: fewer multiplications for a tile of outputs, paid for in additions, memory and digits."""

from kernels.i18n import tr
from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv import lesson as conv_lesson
from pages.conv.winograd import address, cards, matrices
from pages.conv.winograd.chapters import STORY
from pages.parts import lesson, run
from pages.parts.query import chosen
from pages.parts.sizes import shown
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.conv.winograd import notes

PAGE, LADDER = "conv/winograd/page.py", conv_address.ladder("winograd")

chapter = STORY.open()
parts, whole = lesson.begin(
    tr("Winograd: the same outputs with fewer multiplications"),
    cards.COUNTS,
    cards.ERRORS,
    matrices.PART,
    page=PAGE,
    chapter=chapter,
)
visible = whole and not chapter
with lesson.controls(visible):
    inputs, link = conv_controls.inputs(
        PAGE, visible, address.FIELDS, address.CHIPS, lambda s: address.derived(address.read_watched(), s)
    )
    if visible:
        address.chooser()
    shape, watched = inputs.shape, address.read_watched()
    settings = run.options(LADDER, shape, watched.rung_tiles, visible=visible)
if "watch" in parts:
    orders = address.orders()
    scene, reason = address.scene(inputs, watched, chosen("order", orders))
    if scene:
        note_in_place(reason)
    else:
        address.draw_refusal(shape, reason, link)
    sizes = conv_controls.sizes(settings, watched.rung, fields=address.FIELDS)
    Stage("winograd", scene, settings, watched.rung, sizes, link, {} if chapter else orders, chapter).draw()
if whole:
    idea(
        tr(
            '<span class="kt-output">Outputs</span> are computed tile by tile: <span class="kt-input">input</span> and '
            '<span class="kt-filter">filter</span> are transformed, multiplied elementwise and transformed back, '
            '<span class="kt-math">Y = A<sup>T</sup> [ (G g G<sup>T</sup>) ∘ (B<sup>T</sup> d B) ] A</span>. '
            "The cost: additions, overlapping tiles, extra memory, lost precision."
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, notes.WINOGRAD, link, sizes=conv_controls.sizes(settings, watched.rung))
cards.section(parts, shape, shown(settings))
if matrices.PART in parts:
    matrices.section()
conv_lesson.end(parts, LADDER, inputs, watched.tiles_of, watched.rung.name, address.main_file(watched, shape))
