"""FFT: a convolution becomes a product of spectra."""

from kernels.i18n import tr
from pages.conv import controls as conv_controls
from pages.conv.fft import address, cards
from pages.conv.fft.chapters import STORY
from pages.parts import lesson, run, sources
from pages.parts.query import chosen
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.conv.fft import notes

chapter = STORY.open()
parts, whole = lesson.begin(tr("FFT: a convolution becomes a product of spectra"), page=address.PAGE, chapter=chapter)
visible = whole and not chapter
with lesson.controls(visible):
    inputs, link = conv_controls.inputs(
        address.PAGE, visible=visible, chips=address.CHIPS, derived=address.direct_flops
    )
    shape = inputs.shape
    if visible:
        address.controls(inputs)
    watched = address.watched()
    settings = run.options(address.LADDER, shape, watched.rung_tiles, visible=visible)
if "watch" in parts:
    orders = address.orders()
    order = chosen("order", orders)
    scene, reason = address.scene(inputs, address.tile_of(shape, watched), address.padding(), order, watched.rung.name)
    note_in_place(reason)
    sizes = conv_controls.sizes(settings, watched.rung, address.REAL)
    Stage("fft", scene, settings, watched.rung, sizes, link, {} if chapter else orders, chapter).draw()
if whole:
    idea(
        tr(
            'A convolution of <span class="kt-input">image</span> and <span class="kt-filter">filter</span> is one multiplication '
            'per frequency: <span class="kt-math">Y = Σ<sub>c</sub> X · conj(W)</span>. On large images, a larger filter hardly '
            "adds work, so the FFT can win. The cost: transforms, padded filters, spectra in memory."
        )
    )
if whole:
    cards.spectra(inputs)
    cards.side_cards(inputs)
if {"run", "why"} & parts:
    run.run_section(
        settings, notes.FFT, link, more=cards.more, sizes=conv_controls.sizes(settings, watched.rung, address.REAL)
    )
if "kernel" in parts:
    sources.draw_tabs(address.LADDER, shape, watched.tiles_of, first=watched.rung.name)
lesson.load_deferred(parts)
