"""Hopper: tensor cores that read shared memory, the copy engine, and warpgroups with roles."""

from kernels import records
from kernels.i18n import tr
from pages.hopper import address, controls
from pages.hopper.chapters import STORY
from pages.parts import gpu_choice, lesson, run, sources
from pages.parts.query import chosen
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.gemm import notes

PAGE, LADDER = "hopper/page.py", address.LADDER

gpu_choice.prefer(records.covering(*address.OWN))
chapter = STORY.open()
parts, whole = lesson.begin(tr("Hopper: the copy engine, wgmma and warps with roles"), page=PAGE, chapter=chapter)
visible = whole and not chapter
order = chosen("order", address.ORDERS)
with lesson.controls(visible):
    query, link = controls.read(PAGE, order, visible)
    settings = run.options(LADDER, query.shape, query.rung_tiles, visible=visible)
if "watch" in parts:
    mode = chosen(controls.SWIZZLE, address.MODES)
    warp = int(chosen(controls.WARP, address.WARPS))
    scene, reason = address.scene(query.shape, query.rung.name, tuple(query.tiles.items()), order, mode, warp)
    # A broken rule is already named beside the tile sizes.
    note_in_place("" if visible and query.broken else reason)
    orders = {name: tr(text) for name, text in address.ORDERS.items()}
    Stage("hopper", scene, settings, query.rung, controls.sizes(query), link, orders, chapter).draw()
if whole:
    idea(
        tr(
            "On Hopper one thread starts the copy of a whole tile of "
            '<span class="kt-input">A</span> or <span class="kt-filter">B</span>, and the copy engine does it. One instruction '
            "of 128 threads then multiplies both tiles where they are, in shared memory. So warps get roles: some load, "
            "others multiply, and barriers in shared memory tell each which tile is ready."
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, notes.HOPPER, link, more=controls.rate_card, sizes=controls.sizes(query))
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name)
lesson.load_deferred(parts)
