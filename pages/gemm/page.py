"""Tiling: the GEMM ladder, from one thread per element of C to the library's speed."""

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
query, link = controls.read(PAGE, visible=whole, orders=gemm_orders)
shape, rung = query.shape, query.rung
if "watch" in parts:
    order = chosen("order", gemm_orders(rung.name))
    scene, reason = gemm(shape, rung.name, tuple(query.tiles.items()), order)
    if reason and not query.broken:  # a broken rule is already named beside the tile sizes
        note(reason)
    if scene:
        stage.mount(scene, key="tiling")
if {"run", "why"} & parts:
    run.run_section(LADDER, shape, story.GEMM, link, rung_tiles=query.rung_tiles, more=controls.rate_cards)
if autotune.PART in parts:
    autotune.section(rung, shape, query.tiles)
if whole:
    cpu_curve.section(shape)
if "kernel" in parts:
    sources.draw_tabs(LADDER, shape, query.tiles_of, first=rung.name)
lesson.load_deferred(parts)
