"""FFT: a convolution becomes a product of spectra."""

from pages import _conv_controls, _fft, _fft_cards, _kernels, _lesson, _run
from visuals import stage, why_fft

parts, whole = _lesson.begin(
    "FFT: a convolution becomes a product of spectra",
    'Sliding a <span class="kt-filter">filter</span> over an <span class="kt-input">image</span> is, wave by wave, one '
    'multiplication: <span class="kt-math">Y = Σ<sub>c</sub> X · conj(W)</span>, transformed back. The filter’s size no '
    "longer matters. The price: filters padded to the size of the image, and spectra that have to be moved.",
)
inputs, link = _conv_controls.inputs(_fft.PAGE, shown=whole)
shape = inputs.shape
if whole:
    _fft.controls(inputs)
watched = _fft.watched()
if "watch" in parts:
    scene, said = _fft.scene(inputs, watched.tiles["FFT_TILE"], _fft.room())
    if said:
        _lesson.note(said)
    if scene:
        stage.mount(scene, key="fft")
if whole:
    _fft_cards.spectra(inputs)
    _fft_cards.asides(inputs)
if {"run", "why"} & parts:
    _run.run_section(_fft.LADDER, shape, why_fft.FFT, link, own=watched.own, more=_fft_cards.more)
if "kernel" in parts:
    _kernels.show(_fft.LADDER, shape, watched.tiles_of, first=_fft.RUNG.name)
_lesson.settle(parts)
