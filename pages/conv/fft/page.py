"""FFT: a convolution becomes a product of spectra."""

from pages.conv import controls as conv_controls
from pages.conv.fft import address, cards
from pages.parts import lesson, run, sources
from pages.parts.text import note
from visuals import stage
from visuals.conv.fft import story

parts, whole = lesson.begin(
    "FFT: a convolution becomes a product of spectra",
    'Sliding a <span class="kt-filter">filter</span> over an <span class="kt-input">image</span> is, wave by wave, one '
    'multiplication: <span class="kt-math">Y = Σ<sub>c</sub> X · conj(W)</span>, transformed back. The filter’s size no '
    "longer matters. The price: filters padded to the size of the image, and spectra that have to be moved.",
)
inputs, link = conv_controls.inputs(address.PAGE, visible=whole)
shape = inputs.shape
if whole:
    address.controls(inputs)
watched = address.watched()
if "watch" in parts:
    scene, reason = address.scene(inputs, watched.tiles["FFT_TILE"], address.padding())
    if reason:
        note(reason)
    if scene:
        stage.mount(scene, key="fft")
if whole:
    cards.spectra(inputs)
    cards.side_cards(inputs)
if {"run", "why"} & parts:
    run.run_section(address.LADDER, shape, story.FFT, link, rung_tiles=watched.rung_tiles, more=cards.more)
if "kernel" in parts:
    sources.draw_tabs(address.LADDER, shape, watched.tiles_of, first=address.RUNG.name)
lesson.load_deferred(parts)
