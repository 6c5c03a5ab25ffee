"""Tiling: the GEMM ladder, from a thread for each result to the library's speed."""

from kernels.ladders import LADDERS
from pages.gemm import controls, cpu_curve
from pages.gemm.scene import gemm, gemm_orders
from pages.parts import autotune, lesson, run, sources
from pages.parts.query import chosen
from pages.parts.text import note
from visuals import stage
from visuals.gemm import story

PAGE, LADDER = "gemm/page.py", LADDERS["gemm"]

parts, whole = lesson.begin(
    "Tiling: the GEMM ladder",
    'Each number of <span class="kt-input">A</span> and <span class="kt-filter">B</span> is used thousands of times, '
    'and fetching it from memory costs more than using it. <span class="kt-math">C[row, col] = '
    "Σ<sub>k</sub> A[row, k]·B[k, col]</span>. So each rung keeps what it fetched closer to the "
    "threads, in shared memory, then in registers, and uses it more often.",
    autotune.PART,
)
asked, link = controls.asked(PAGE, shown=whole, orders=gemm_orders)
shape, rung = asked.shape, asked.rung
if "watch" in parts:
    order = chosen("order", gemm_orders(rung.name))
    scene, instead = gemm(shape, rung.name, tuple(asked.tiles.items()), order)
    if instead and not asked.broken:  # a broken rule is named beside the tile sizes
        note(instead)
    if scene:
        stage.mount(scene, key="tiling")
if {"run", "why"} & parts:
    run.run_section(LADDER, shape, story.GEMM, link, own=asked.own, more=controls.rate_cards)
if autotune.PART in parts:
    autotune.section(rung, shape, asked.tiles)
if whole:
    cpu_curve.section(shape)
if "kernel" in parts:
    sources.show(LADDER, shape, asked.tiles_of, first=rung.name)
lesson.settle(parts)
