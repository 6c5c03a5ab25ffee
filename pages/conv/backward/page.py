"""Convolution backward: the gradients of input and filters, and transposed convolution."""

from kernels.i18n import mark, tr
from pages.conv.backward import address, controls
from pages.conv.backward.chapters import STORY
from pages.parts import every_step, lesson, query, run, sources
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.conv.backward import notes
from visuals.conv.backward.scene import folds

PAGE = "conv/backward/page.py"
IDEAS = {
    address.INPUT_GRADIENT: mark(
        'Training needs the <span class="kt-output">gradient</span> of each pixel: how much the loss changes if the pixel '
        "changes. A pixel fed several outputs, each through one tap. Its gradient is the sum of "
        '<span class="kt-input">their gradients</span> times <span class="kt-filter">these taps</span>. The links are those of '
        "the forward pass, in the other direction. A stride leaves holes: not every tap leads from a pixel to an output."
    ),
    address.FILTERS: mark(
        "A filter tap multiplied one pixel for each output position of each image. Its "
        '<span class="kt-output">gradient</span> is the sum over all these positions: '
        '<span class="kt-input">pixel</span> times <span class="kt-workspace">gradient of the output</span>. There are few taps '
        "and many positions. So the sum is cut into parts, and each block adds one part."
    ),
    address.TRANSPOSED: mark(
        'A transposed convolution spreads each <span class="kt-input">input pixel</span> over a window of the '
        '<span class="kt-output">output</span>, weighted by the <span class="kt-filter">filter</span>. Windows that overlap are '
        "added up. It is the gradient of a convolution’s input, used as a forward operation: the output is larger than the input."
    ),
}
NOTES = {address.INPUT_GRADIENT: notes.DINPUT, address.FILTERS: notes.DWEIGHT, address.TRANSPOSED: notes.TRANSPOSE}

chapter = STORY.open()
parts, whole = lesson.begin(tr("Convolution backward: the same links, the other way"), page=PAGE, chapter=chapter)
visible = whole and not chapter
gradient = address.gradient(query.url_values())
note_in_place(*address.note(query.url_values()))
ladder = address.ladder(gradient)
query.follow_link("_gradient", gradient)
with lesson.controls(visible):
    selection, link = controls.read(PAGE, gradient, visible)
    settings = run.options(ladder, selection.shape, selection.rung_tiles, visible=visible)
sizes = controls.sizes(gradient, selection)
if "watch" in parts:
    scene, reason = address.scene(selection, every_step.every_step())
    # A broken rule is already named beside the tile sizes.
    note_in_place("" if visible and selection.broken else reason)
    opens = every_step.shown(folds(selection.rung.name))
    Stage("backward", scene, settings, selection.rung, sizes, link, chapter=chapter, every_step=opens).draw()
if whole:
    idea(tr(IDEAS[gradient]))
if {"run", "why"} & parts:
    run.run_section(settings, NOTES[gradient], link, sizes=sizes)
if "kernel" in parts:
    rung = selection.rung.name
    sources.draw_tabs(ladder, selection.shape, selection.tiles_of, rung, address.FILES.get(rung, ""))
lesson.load_deferred(parts)
