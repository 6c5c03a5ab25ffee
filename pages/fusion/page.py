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
asked, link = controls.asked(PAGE, shown=whole)
if "watch" in parts and (scene := address.scene(asked)):
    stage.mount(scene, key="fusion")
if {"run", "why"} & parts:
    run.run_section(LADDER, asked.shape, story.FUSION, link, own=asked.own, more=cards.section)
if "kernel" in parts:
    sources.show(LADDER, asked.shape, asked.tiles_of, first=asked.rung.name, file=address.front(asked))
lesson.settle(parts)
