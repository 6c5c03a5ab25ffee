"""Softmax: three passes over a row, two, one; and why the maximum is subtracted first."""

from kernels.i18n import tr
from pages.parts import lesson, run, sources
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from pages.softmax import address, cards, controls
from pages.softmax.address import LADDER
from pages.softmax.chapters import STORY
from visuals.softmax import notes

PAGE = "softmax/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Softmax: a row, its maximum, its sum"), cards.ROW, page=PAGE, chapter=chapter)
visible = whole and not chapter
with lesson.controls(visible):
    query, row, link = controls.read(PAGE, visible=visible)
    settings = run.options(LADDER, query.shape, query.rung_tiles, visible=visible)
if "watch" in parts:
    scene, reason = address.scene(query, row)
    note_in_place(reason)
    Stage("softmax", scene, settings, query.rung, controls.sizes(query), link, chapter=chapter).draw()
if whole:
    idea(
        tr(
            'Softmax turns each row into weights that add up to 1: <span class="kt-math"><span class="kt-output">y<sub>j</sub></span> = '
            'exp(<span class="kt-input">x<sub>j</sub></span> − <span class="kt-filter">m</span>) / '
            '<span class="kt-workspace">l</span></span>. Here <span class="kt-filter">m</span> is the maximum of the row, and '
            '<span class="kt-workspace">l</span> is the sum of the exponentials. Without <span class="kt-filter">m</span>, the result is '
            "the same until exp overflows. A kernel’s time depends on how many times it reads the row: three times, twice or once."
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, notes.SOFTMAX, link, sizes=controls.sizes(query))
if cards.ROW in parts:
    cards.section(query, row)
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name)
lesson.load_deferred(parts)
