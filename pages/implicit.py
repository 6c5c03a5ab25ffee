"""Implicit GEMM: one matrix product whose data matrix is never stored."""

from pages import _conv, _conv_controls, _conv_lesson, _implicit, _lesson, _run
from visuals import stage, why_implicit

PAGE, LADDER = "implicit.py", _conv.ladder("implicit")
CHIPS = {"one-tile": "one tile"} | _conv_controls.CHIPS

parts, whole = _lesson.begin(
    "Implicit GEMM: the matrix that is never stored",
    'im2col’s <span class="kt-workspace">data matrix</span> is a rule, not data: row (c, r, s) and column (n, p, q) name one '
    '<span class="kt-input">pixel</span>. <span class="kt-math">D[(c, r, s), (n, p, q)] = x[n, c, h, w]</span>, '
    '<span class="kt-math">h = p·u − pad + r·dilation</span>. So a block makes each tile of it in shared memory when it is wanted, '
    'multiplies it by the tile of the <span class="kt-filter">filters</span>, and lets it go.',
)
now, notes = _implicit.watched(shown=whole)
inputs, link = _conv_controls.inputs(PAGE, shown=whole, fields=_implicit.FIELDS, chips=CHIPS)
shape = inputs.shape
if whole:
    _implicit.draw(PAGE, shape, now)
_lesson.note(*notes)
if "watch" in parts:
    scene, instead = _implicit.scene(inputs, now.rung.name, tuple(now.tiles.items()))
    if scene:
        stage.mount(scene, key="implicit")
    elif not whole:  # elsewhere the rule is named beside the tile sizes
        _lesson.note(instead)
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why_implicit.STORY, link, own=now.own)
_conv_lesson.end(parts, LADDER, inputs, now.tiles_of, now.rung.name)
