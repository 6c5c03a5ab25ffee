"""Convolution backward: the gradients of input and filters, and transposed convolution."""

from functools import partial

from kernels.i18n import mark, tr
from pages.conv.backward import address, controls
from pages.conv.backward.chapters import STORY
from pages.parts import every_step, query
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.rung_address import Selection
from pages.parts.rung_picker import reader
from visuals.conv.backward import notes
from visuals.conv.backward.scene import folds

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
values = query.url_values()
gradient = address.gradient(values)
query.note_on(address.GRADIENT, address.note(values))
query.follow_link("_gradient", gradient)


def play(selected: Selection) -> Played:
    opens = every_step.shown(folds(selected.rung.name))
    return Played(*address.scene(selected, every_step.every_step()), every_step=opens)


LadderPage(
    page=controls.PAGE,
    stage="backward",
    title=tr("Convolution backward: the same links, the other way"),
    about=tr(IDEAS[gradient]),
    ladder=address.ladder(gradient),
    notes=lambda _: NOTES[gradient],
    read=reader(controls.PAGE, address.ADDRESSES[gradient], partial(controls.draw, gradient)),
    play=play,
    sizes=partial(controls.sizes, gradient),
    file=lambda selected: address.FILES.get(selected.rung.name, ""),
).draw(chapter)
