"""Winograd: fewer multiplications for a tile of outputs, paid for in additions, memory and digits."""

from pages import (
    _conv,
    _conv_controls,
    _conv_lesson,
    _lesson,
    _run,
    _winograd,
    _winograd_cards,
    _winograd_matrices,
)
from visuals import stage, why_winograd

PAGE, LADDER = "winograd.py", _conv.ladder("winograd")

parts, whole = _lesson.begin(
    "Winograd: 16 multiplications instead of 36",
    'A tile of <span class="kt-output">outputs</span> is computed whole: <span class="kt-input">input</span> and '
    '<span class="kt-filter">filter</span> are transformed, multiplied element by element, and transformed back, '
    '<span class="kt-math">Y = A<sup>T</sup> [ (G g G<sup>T</sup>) ∘ (B<sup>T</sup> d B) ] A</span>. '
    "The price: additions, overlapping tiles, room for what is transformed, and digits.",
    _winograd_cards.COUNTS,
    _winograd_cards.ERRORS,
    _winograd_matrices.PART,
)
inputs, link = _conv_controls.inputs(
    PAGE, whole, None, _winograd.FIELDS, _winograd.CHIPS, lambda s: _winograd.derived(_winograd.asked(), s)
)
if whole:
    _winograd.chooser()
shape, watched = inputs.shape, _winograd.asked()
if "watch" in parts:
    scene, reason = _winograd.scene(inputs, watched)
    if scene:
        stage.mount(scene, key="winograd")
    else:
        _winograd.refused(shape, reason, link)
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why_winograd.WINOGRAD, link, own=watched.own)
_winograd_cards.section(parts, shape)
if _winograd_matrices.PART in parts:
    _winograd_matrices.section()
_conv_lesson.end(parts, LADDER, inputs, watched.tiles_of, watched.rung.name)
