"""Attention to flash attention: from an N x N matrix in memory to tiles that are never stored."""

from pages.attention import address, cards, controls, cpu
from pages.attention.address import LADDER
from pages.parts import lesson, run, sources
from pages.parts.query import chosen
from pages.parts.text import note
from visuals import stage
from visuals.attention import story

PAGE = "attention/page.py"
PROCESSOR = "processor"  # the page part with the loops on this processor

parts, whole = lesson.begin(
    "Attention to flash attention",
    'Each query asks every key how much of its value it wants: <span class="kt-math">O = softmax(scale · '
    '<span class="kt-input">Q</span> <span class="kt-filter">K</span><sup>T</sup>) <span class="kt-filter">V</span></span>. '
    'Step by step, that sends an <span class="kt-workspace">N × N matrix</span> to memory and back. Flash attention takes the '
    'keys tile by tile, keeps a running maximum <span class="kt-math">m</span> and sum <span class="kt-math">l</span> for each '
    "query and mends what it summed before: no N × N matrix is ever stored.",
    cards.MEMORY,
    cards.TRAFFIC,
    PROCESSOR,
)
query, link = controls.read(PAGE, visible=whole)
if "watch" in parts:
    values = chosen(address.VALUES, address.KINDS)
    scene, reason = address.scene(query.shape, query.rung.name, tuple(query.tiles.items()), values)
    if reason and not query.broken:  # a broken rule is already named beside the tile sizes
        note(reason)
    if scene:
        stage.mount(scene, key="attention")
if {"run", "why"} & parts:
    run.run_section(LADDER, query.shape, story.ATTENTION, link, rung_tiles=query.rung_tiles)
cards.section(parts, query)
if PROCESSOR in parts:
    cpu.section(query.shape, link)
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name)
lesson.load_deferred(parts)
