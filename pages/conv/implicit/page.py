"""Implicit GEMM: one matrix product whose data matrix is never stored."""

from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv import lesson as conv_lesson
from pages.conv.implicit import address
from pages.parts import lesson, run
from pages.parts.text import note
from visuals import stage
from visuals.conv.implicit import story

PAGE, LADDER = "conv/implicit/page.py", conv_address.ladder("implicit")
CHIPS = {"one-tile": "one tile"} | conv_controls.CHIPS

parts, whole = lesson.begin(
    "Implicit GEMM: the matrix that is never stored",
    'im2col’s <span class="kt-workspace">data matrix</span> is a rule, not data: row (c, r, s) and column (n, p, q) name one '
    '<span class="kt-input">pixel</span>. <span class="kt-math">D[(c, r, s), (n, p, q)] = x[n, c, h, w]</span>, '
    '<span class="kt-math">h = p·u − pad + r·dilation</span>. So a block makes each tile of it in shared memory when it is wanted, '
    'multiplies it by the tile of the <span class="kt-filter">filters</span>, and lets it go.',
)
current, notes = address.watched(visible=whole)
inputs, link = conv_controls.inputs(PAGE, visible=whole, fields=address.FIELDS, chips=CHIPS)
shape = inputs.shape
if whole:
    address.draw(PAGE, shape, current)
note(*notes)
if "watch" in parts:
    scene, reason = address.scene(inputs, current.rung.name, tuple(current.tiles.items()))
    if scene:
        stage.mount(scene, key="implicit")
    elif not whole:  # the whole page names the rule beside the tile sizes
        note(reason)
if {"run", "why"} & parts:
    run.run_section(LADDER, shape, story.STORY, link, rung_tiles=current.rung_tiles)
conv_lesson.end(parts, LADDER, inputs, current.tiles_of, current.rung.name)
