"""Softmax: three passes over a row, two, one; and why the maximum is subtracted first."""

from pages.parts import lesson, run, sources
from pages.parts.text import note
from pages.softmax import address, cards, controls
from pages.softmax.address import LADDER
from visuals import stage
from visuals.softmax import story

PAGE = "softmax/page.py"

parts, whole = lesson.begin(
    "Softmax: a row, its maximum, its sum",
    '<span class="kt-math"><span class="kt-output">y<sub>j</sub></span> = exp(<span class="kt-input">x<sub>j</sub></span> − '
    '<span class="kt-filter">m</span>) / <span class="kt-workspace">l</span></span>, with <span class="kt-filter">m</span> the '
    'maximum of the row and <span class="kt-workspace">l</span> the sum of the exponentials. Without '
    '<span class="kt-filter">m</span> it is the same number, until exp overflows. Hardly anything is computed: what a kernel '
    "takes is how often it walks the row, three times, twice or once.",
    cards.ROW,
)
query, row, link = controls.read(PAGE, visible=whole)
if "watch" in parts:
    scene, reason = address.scene(query, row)
    if reason:
        note(reason)
    if scene:
        stage.mount(scene, key="softmax")
if {"run", "why"} & parts:
    run.run_section(LADDER, query.shape, story.SOFTMAX, link, rung_tiles=query.rung_tiles)
if cards.ROW in parts:
    cards.section(query, row)
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name)
lesson.load_deferred(parts)
