"""Layers: what a layer computes, what it keeps, and how its gradient goes back over the same links."""

from kernels.i18n import tr
from pages.layers import address, controls
from pages.layers.chapters import STORY
from pages.parts import lesson, query, run, sources
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place

PAGE = "layers/page.py"

chapter = STORY.open()
row, _ = address.of(*address.read(query.url_values())[:2])
parts, whole = lesson.begin(tr(row.title), page=PAGE, chapter=chapter)
visible = whole and not chapter
with lesson.controls(visible):
    shown = controls.read(PAGE, visible)
    selected, ladder = shown.selection, shown.one_pass.ladder
    settings = run.options(ladder, selected.shape, selected.rung_tiles, visible=visible)
sizes = controls.sizes(shown)
if "watch" in parts:
    scene, reason = address.scene(shown.layer, shown.side, selected)
    note_in_place(reason)
    controls.part_note(shown)
    Stage("layers", scene, settings, selected.rung, sizes, shown.link, chapter=chapter).draw()
if whole:
    idea(tr(row.about))
if {"run", "why"} & parts:
    run.run_section(settings, shown.one_pass.notes, shown.link, sizes=sizes)
if "kernel" in parts:
    sources.draw_tabs(ladder, selected.shape, selected.tiles_of, first=selected.rung.name)
lesson.load_deferred(parts)
