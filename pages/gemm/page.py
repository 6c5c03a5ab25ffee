"""Tiling: the GEMM ladder, from one thread per element of C to the library's speed."""

from kernels.i18n import tr
from kernels.ladders import LADDERS
from pages.gemm import controls, cpu_curve
from pages.gemm.chapters import STORY
from pages.gemm.scene import gemm, gemm_orders
from pages.parts import autotune, lesson, run, sources
from pages.parts.every_step import every_step, shown
from pages.parts.query import chosen
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.gemm import notes

PAGE, LADDER = "gemm/page.py", LADDERS["gemm"]

chapter = STORY.open()
parts, whole = lesson.begin(
    tr("Tiling: a matrix product (GEMM) from naive to fast"), autotune.PART, page=PAGE, chapter=chapter
)
visible = whole and not chapter
with lesson.controls(visible):
    query, link = controls.read(PAGE, visible=visible)
    settings = run.options(LADDER, query.shape, query.rung_tiles, visible=visible)
shape, rung = query.shape, query.rung
if "watch" in parts:
    orders = gemm_orders(rung.name)
    tiles = tuple(query.tiles.items())
    scene, reason = gemm(shape, rung.name, tiles, chosen("order", orders), every_step())
    # A broken rule is already named beside the tile sizes.
    note_in_place("" if visible and query.broken else reason)
    opens = shown(controls.folds(shape, rung.name, query.tiles))
    Stage("tiling", scene, settings, rung, controls.sizes(query), link, orders, chapter, every_step=opens).draw()
if whole:
    idea(
        tr(
            '<span class="kt-math">C[row, col] = Σ<sub>k</sub> A[row, k]·B[k, col]</span>. Each element of '
            '<span class="kt-input">A</span> and <span class="kt-filter">B</span> is used many times. A load from global memory '
            "takes much longer than a multiply-add. Each kernel therefore keeps loaded values closer to the threads: first in "
            "shared memory, then in registers."
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, notes.GEMM, link, more=controls.rate_cards, sizes=controls.sizes(query))
if autotune.PART in parts:
    autotune.section(rung, shape, query.tiles)
if whole:
    cpu_curve.section(shape)
if "kernel" in parts:
    sources.draw_tabs(LADDER, shape, query.tiles_of, first=rung.name)
lesson.load_deferred(parts)
