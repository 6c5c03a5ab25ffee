"""Tiling: the GEMM ladder, from a thread for each result to the library's speed."""

from kernels.ladders import LADDERS
from pages import _autotune, _cpu_curve, _gemm_controls, _kernels, _lesson, _run, _scenes
from visuals import stage, why_gemm

PAGE, LADDER = "tiling.py", LADDERS["gemm"]

parts, whole = _lesson.begin(
    "Tiling: the GEMM ladder",
    'Each number of <span class="kt-input">A</span> and <span class="kt-filter">B</span> is used thousands of times, '
    'and fetching it from memory costs more than using it. <span class="kt-math">C[row, col] = '
    "Σ<sub>k</sub> A[row, k]·B[k, col]</span>. So each rung keeps what it fetched closer to the "
    "threads, in shared memory, then in registers, and uses it more often.",
    _autotune.PART,
)
asked, link = _gemm_controls.asked(PAGE, shown=whole, orders=_scenes.gemm_orders)
shape, rung = asked.shape, asked.rung
if "watch" in parts:
    order = _lesson.chosen("order", _scenes.gemm_orders(rung.name))
    scene, instead = _scenes.gemm(shape, rung.name, tuple(asked.tiles.items()), order)
    if instead and not asked.broken:  # a broken rule is named beside the tile sizes
        _lesson.note(instead)
    if scene:
        stage.mount(scene, key="tiling")
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why_gemm.GEMM, link, own=asked.own, more=_gemm_controls.rates)
if _autotune.PART in parts:
    _autotune.section(rung, shape, asked.tiles)
if whole:
    _cpu_curve.section(shape)
if "kernel" in parts:
    _kernels.show(LADDER, shape, asked.tiles_of, first=rung.name)
_lesson.settle(parts)
