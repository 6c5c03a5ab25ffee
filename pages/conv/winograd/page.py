"""Winograd: fewer multiplications for a tile of outputs, paid for in additions, memory and digits."""

from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv import lesson as conv_lesson
from pages.conv.winograd import address, cards, matrices
from pages.parts import lesson, run
from visuals import stage
from visuals.conv.winograd import story

PAGE, LADDER = "conv/winograd/page.py", conv_address.ladder("winograd")

parts, whole = lesson.begin(
    "Winograd: 16 multiplications instead of 36",
    'A tile of <span class="kt-output">outputs</span> is computed whole: <span class="kt-input">input</span> and '
    '<span class="kt-filter">filter</span> are transformed, multiplied element by element, and transformed back, '
    '<span class="kt-math">Y = A<sup>T</sup> [ (G g G<sup>T</sup>) ∘ (B<sup>T</sup> d B) ] A</span>. '
    "The price: additions, overlapping tiles, room for what is transformed, and digits.",
    cards.COUNTS,
    cards.ERRORS,
    matrices.PART,
)
inputs, link = conv_controls.inputs(
    PAGE, whole, None, address.FIELDS, address.CHIPS, lambda s: address.derived(address.read_watched(), s)
)
if whole:
    address.chooser()
shape, watched = inputs.shape, address.read_watched()
if "watch" in parts:
    scene, reason = address.scene(inputs, watched)
    if scene:
        stage.mount(scene, key="winograd")
    else:
        address.draw_refusal(shape, reason, link)
if {"run", "why"} & parts:
    run.run_section(LADDER, shape, story.WINOGRAD, link, rung_tiles=watched.rung_tiles)
cards.section(parts, shape)
if matrices.PART in parts:
    matrices.section()
conv_lesson.end(parts, LADDER, inputs, watched.tiles_of, watched.rung.name)
