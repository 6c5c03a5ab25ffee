"""Fusion: a chain of blocks, a launch each or as few as can be, and the kernels written for it."""

from pages.fusion import address, cards, controls
from pages.fusion.address import LADDER
from pages.parts import lesson, run, sources
from visuals import stage
from visuals.fusion import story

PAGE = "fusion/page.py"

parts, whole = lesson.begin(
    "Fusion: many blocks, one kernel",
    '<span class="kt-math"><span class="kt-output">y</span> = relu(bn(conv(<span class="kt-input">x</span>, '
    '<span class="kt-filter">w</span>) + <span class="kt-filter">b</span>))</span>. A launch for each block writes a '
    '<span class="kt-workspace">map</span> to memory that the next one reads again. A fused kernel takes a value through all of them '
    "while it is in a register: one launch, nothing in between. It pays where a kernel waits for bytes, and hardly where it waits "
    "for arithmetic.",
)
query, link = controls.read(PAGE, visible=whole)
if "watch" in parts and (scene := address.scene(query)):
    stage.mount(scene, key="fusion")
if {"run", "why"} & parts:
    run.run_section(LADDER, query.shape, story.FUSION, link, rung_tiles=query.rung_tiles, more=cards.section)
if "kernel" in parts:
    sources.draw_tabs(
        LADDER, query.shape, query.tiles_of, first=query.rung.name, file=address.first_source(query)
    )
lesson.load_deferred(parts)
