"""Attention's backward pass: from N × N gradients in memory to weights that are computed again, tile by tile."""

from kernels.i18n import tr
from pages.attention import cards
from pages.attention.backward import address, controls
from pages.attention.backward.address import LADDER
from pages.attention.backward.chapters import STORY
from pages.parts import lesson, run, sources
from pages.parts.query import chosen
from pages.parts.sizes import shown
from pages.parts.stage import Stage
from pages.parts.text import idea, note_in_place
from visuals.attention.backward.inputs import KINDS
from visuals.attention.backward.notes import BACKWARD

PAGE = "attention/backward/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Attention backward: weights computed twice"), cards.MEMORY, page=PAGE, chapter=chapter)
visible = whole and not chapter
with lesson.controls(visible):
    query, link = controls.read(PAGE, visible)
    settings = run.options(LADDER, query.shape, query.rung_tiles, visible=visible)
sizes = controls.sizes(query)
if "watch" in parts:
    values, orders = chosen(address.VALUES, KINDS), address.orders()
    order, tiles = chosen("order", orders), tuple(query.tiles.items())
    scene, reason = address.scene(query.shape, query.rung.name, tiles, values, order)
    # A broken rule is already named beside the tile sizes.
    note_in_place("" if visible and query.broken else reason)
    Stage("attention_backward", scene, settings, query.rung, sizes, link, orders, chapter=chapter).draw()
if whole:
    idea(
        tr(
            'The gradient <span class="kt-input">dO</span> of each output goes back to all that made it: '
            '<span class="kt-output">dV</span>, <span class="kt-output">dK</span> and <span class="kt-output">dQ</span>. This needs '
            'the weights <span class="kt-workspace">P</span> of the forward pass, an N × N matrix for each head. Flash attention does not keep '
            'them. It keeps one number for each query, <span class="kt-math">L</span>, the logarithm of its row’s sum of exponentials. '
            'A tile of weights, <span class="kt-math">P = exp(S − L)</span>, is computed again when it is needed.'
        )
    )
if {"run", "why"} & parts:
    run.run_section(settings, BACKWARD, link, sizes=sizes)
if cards.MEMORY in parts:
    cards.memory_card(LADDER, shown(settings).settings.shape, tr("P and dS are N × N per head."))
if "kernel" in parts:
    sources.draw_tabs(LADDER, query.shape, query.tiles_of, first=query.rung.name)
lesson.load_deferred(parts)
