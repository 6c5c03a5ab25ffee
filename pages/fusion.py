"""Fusion: a chain of blocks, a launch each or as few as can be, and the kernels written for it."""

from pages import _fusion, _fusion_cards, _fusion_controls, _kernels, _lesson, _run
from pages._fusion import LADDER
from visuals import stage, why_fusion

PAGE = "fusion.py"

parts, whole = _lesson.begin(
    "Fusion: many blocks, one kernel",
    '<span class="kt-math"><span class="kt-output">y</span> = relu(bn(conv(<span class="kt-input">x</span>, '
    '<span class="kt-filter">w</span>) + <span class="kt-filter">b</span>))</span>. A launch for each block writes a '
    '<span class="kt-workspace">map</span> to memory that the next one reads again. A fused kernel takes a value through all of them '
    "while it is in a register: one launch, nothing in between. It pays where a kernel waits for bytes, and hardly where it waits "
    "for arithmetic.",
)
asked, link = _fusion_controls.asked(PAGE, shown=whole)
if "watch" in parts and (scene := _fusion.scene(asked)):
    stage.mount(scene, key="fusion")
if {"run", "why"} & parts:
    _run.run_section(LADDER, asked.shape, why_fusion.FUSION, link, own=asked.own, more=_fusion_cards.section)
if "kernel" in parts:
    _kernels.show(LADDER, asked.shape, asked.tiles_of, first=asked.rung.name, file=_fusion.front(asked))
_lesson.settle(parts)
