"""Attention to flash attention: from an N x N matrix in memory to tiles that are never stored."""

from kernels.i18n import tr
from pages.attention import address, cards, controls, cpu
from pages.attention.address import LADDER
from pages.attention.chapters import STORY
from pages.parts import lesson, run, sources
from pages.parts.query import chosen
from pages.parts.sizes import shown
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.attention import notes

PAGE = "attention/page.py"
PROCESSOR = "processor"  # the page part with the loops on this processor

chapter = STORY.open()
parts, whole = lesson.begin(
    tr("From attention to flash attention"), cards.MEMORY, cards.TRAFFIC, PROCESSOR, page=PAGE, chapter=chapter
)
visible = whole and not chapter
with lesson.controls(visible):
    query, link = controls.read(PAGE, visible=visible)
    settings = run.options(LADDER, query.shape, query.rung_tiles, visible=visible)
if "watch" in parts:
    values = chosen(address.VALUES, address.KINDS)
    orders = address.orders(query.rung.name)
    order, tiles = chosen("order", orders), tuple(query.tiles.items())
    scene, reason = address.scene(query.shape, query.rung.name, tiles, values, order)
    # A broken rule is already named beside the tile sizes.
    note_in_place("" if visible and query.broken else reason)
    offered = orders if len(orders) > 1 else {}
    Stage("attention", scene, settings, query.rung, controls.sizes(query), link, offered, chapter=chapter).draw()
if whole:
    idea(
        tr(
            'Each query is compared with every key. The resulting weights average the values: <span class="kt-math">O = softmax(scale · '
            '<span class="kt-input">Q</span> <span class="kt-filter">K</span><sup>T</sup>) <span class="kt-filter">V</span></span>. '
            'In separate steps, this writes an <span class="kt-workspace">N × N matrix</span> to memory and reads it back. Flash attention '
            'loads the keys tile by tile. It keeps a running maximum <span class="kt-math">m</span> and sum <span class="kt-math">l</span> for each '
            "query and rescales its earlier sums. It stores no N × N matrix."
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, notes.notes_of(query), link, sizes=controls.sizes(query))
cards.section(parts, query, shown(settings))
if PROCESSOR in parts:
    cpu.section(query.shape, link)
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name)
lesson.load_deferred(parts)
