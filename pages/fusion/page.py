"""Fusion: a chain of blocks, a launch each or as few as can be, and the kernels written for it."""

from kernels.i18n import tr
from pages.fusion import address, cards, controls
from pages.fusion.address import LADDER
from pages.fusion.chapters import STORY
from pages.parts import lesson, run, sources
from pages.parts.query import chosen
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.fusion import notes

PAGE = "fusion/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Fusion: many blocks, one kernel"), page=PAGE, chapter=chapter)
visible = whole and not chapter
with lesson.controls(visible):
    query, link = controls.read(PAGE, visible=visible)
    settings = run.options(LADDER, query.shape, query.rung_tiles, visible=visible)
if "watch" in parts:
    scene, reason = address.scene(query, chosen("order", address.ORDERS))
    note_in_place(reason)
    orders = {name: tr(text) for name, text in address.ORDERS.items()}
    Stage("fusion", scene, settings, query.rung, controls.sizes(query), link, orders, chapter).draw()
if whole:
    idea(
        tr(
            'A chain of blocks can run as many kernels or as one: <span class="kt-math"><span class="kt-output">y</span> = relu(bn(conv('
            '<span class="kt-input">x</span>, <span class="kt-filter">w</span>) + <span class="kt-filter">b</span>))</span>. With one '
            'launch per block, each kernel stores a <span class="kt-workspace">map</span> in HBM (the GPU’s main memory) for the next '
            "kernel. A fused kernel applies all blocks while a value is in a register. Fusion saves time if memory or launches limit "
            "the chain, but little time if arithmetic limits it."
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, notes.FUSION, link, more=cards.section, sizes=controls.sizes(query))
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name, file=address.first_source(query))
lesson.load_deferred(parts)
