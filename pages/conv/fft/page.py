"""FFT: a convolution becomes a product of spectra."""

from kernels.i18n import tr
from pages.conv import controls as conv_controls
from pages.conv.fft import address, cards
from pages.conv.fft.chapters import STORY
from pages.conv.lesson import Watched
from pages.parts.controls import Link
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.query import chosen
from visuals.conv.fft import notes

chapter = STORY.open()


def read(visible: bool) -> tuple[Watched, Link]:
    inputs, link = conv_controls.inputs(address.PAGE, visible, chips=address.CHIPS, derived=address.direct_flops)
    if visible:
        address.controls(inputs)
    kernel = address.watched()
    return Watched(kernel.rung, kernel.tiles, inputs, link), link


def play(selected: Watched) -> Played:
    found = address.scene(selected.inputs, selected, address.padding(), chosen("order", address.ORDERS))
    return Played(*found, {} if chapter else address.ORDERS)


def above(selected: Watched) -> None:
    cards.spectra(selected.inputs)
    cards.side_cards(selected.inputs)


LadderPage(
    page=address.PAGE,
    stage="fft",
    title=tr("FFT: a convolution becomes a product of spectra"),
    about=tr(
        'A convolution of <span class="kt-input">image</span> and <span class="kt-filter">filter</span> is one multiplication '
        'per frequency: <span class="kt-math">Y = Σ<sub>c</sub> X · conj(W)</span>. On large images, a larger filter hardly '
        "adds work, so the FFT can win. The cost: transforms, padded filters, spectra in memory."
    ),
    ladder=address.LADDER,
    notes=lambda _: notes.FFT,
    read=read,
    play=play,
    sizes=lambda selected: conv_controls.sizes(selected, address.REAL),
    above=above,
    more=cards.more,
).draw(chapter)
