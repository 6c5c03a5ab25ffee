"""Attention to flash attention: from an N x N matrix in memory to tiles that are never stored."""

from pages import _attention, _attention_cards, _attention_controls, _attention_cpu, _kernels, _lesson, _run
from pages._attention import LADDER
from visuals import stage, why_attention

PAGE = "attention.py"
PROCESSOR = "processor"  # the part of the loops on the reader's own processor

parts, whole = _lesson.begin(
    "Attention to flash attention",
    'Each query asks every key how much of its value it wants: <span class="kt-math">O = softmax(scale · '
    '<span class="kt-input">Q</span> <span class="kt-filter">K</span><sup>T</sup>) <span class="kt-filter">V</span></span>. '
    'Step by step, that sends an <span class="kt-workspace">N × N matrix</span> to memory and back. Flash attention takes the '
    'keys tile by tile, keeps a running maximum <span class="kt-math">m</span> and sum <span class="kt-math">l</span> for each '
    "query and mends what it summed before: no N × N matrix is ever stored.",
    _attention_cards.MEMORY,
    _attention_cards.TRAFFIC,
    PROCESSOR,
)
asked, link = _attention_controls.asked(PAGE, shown=whole)
if "watch" in parts:
    values = _lesson.chosen(_attention.VALUES, _attention.KINDS)
    scene, instead = _attention.scene(asked.shape, asked.rung.name, tuple(asked.tiles.items()), values)
    if instead and not asked.broken:  # a broken rule is named beside the tile sizes
        _lesson.note(instead)
    if scene:
        stage.mount(scene, key="attention")
if {"run", "why"} & parts:
    _run.run_section(LADDER, asked.shape, why_attention.ATTENTION, link, own=asked.own)
_attention_cards.section(parts, asked)
if PROCESSOR in parts:
    _attention_cpu.section(asked.shape, link)
if "kernel" in parts:
    _kernels.show(LADDER, asked.shape, asked.tiles_of, first=asked.rung.name)
_lesson.settle(parts)
