"""Softmax: three passes over a row, two, one; and why the maximum comes off first."""

from pages import _kernels, _lesson, _run, _softmax, _softmax_cards, _softmax_controls
from pages._softmax import LADDER
from visuals import stage, why_softmax

PAGE = "softmax.py"

parts, whole = _lesson.begin(
    "Softmax: a row, its maximum, its sum",
    '<span class="kt-math"><span class="kt-output">y<sub>j</sub></span> = exp(<span class="kt-input">x<sub>j</sub></span> − '
    '<span class="kt-filter">m</span>) / <span class="kt-workspace">l</span></span>, with <span class="kt-filter">m</span> the '
    'maximum of the row and <span class="kt-workspace">l</span> the sum of the exponentials. Without '
    '<span class="kt-filter">m</span> it is the same number, until exp overflows. Hardly anything is computed: what a kernel '
    "takes is how often it walks the row, three times, twice or once.",
    _softmax_cards.ROW,
)
asked, row, link = _softmax_controls.asked(PAGE, shown=whole)
if "watch" in parts:
    scene, instead = _softmax.scene(asked, row)
    if instead:
        _lesson.note(instead)
    if scene:
        stage.mount(scene, key="softmax")
if {"run", "why"} & parts:
    _run.run_section(LADDER, asked.shape, why_softmax.SOFTMAX, link, own=asked.own)
if _softmax_cards.ROW in parts:
    _softmax_cards.section(asked, row)
if "kernel" in parts:
    _kernels.show(LADDER, asked.shape, asked.tiles_of, first=asked.rung.name)
_lesson.settle(parts)
