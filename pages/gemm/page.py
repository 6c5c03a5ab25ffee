"""Tiling: the GEMM ladder, from one thread per element of C to the library's speed."""

from kernels.i18n import tr
from pages.gemm import controls, cpu_curve
from pages.gemm.address import ADDRESS, LADDER
from pages.gemm.chapters import STORY
from pages.gemm.scene import gemm, gemm_orders
from pages.parts import autotune
from pages.parts.every_step import every_step, shown
from pages.parts.ladder_page import Drawn, LadderPage, Played
from pages.parts.query import chosen
from pages.parts.rung_address import Selection
from pages.parts.rung_picker import reader
from visuals.gemm import notes


def play(selected: Selection) -> Played:
    shape, rung, orders = selected.shape, selected.rung.name, gemm_orders(selected.rung.name)
    scene, reason = gemm(shape, rung, tuple(selected.tiles.items()), chosen("order", orders), every_step())
    return Played(scene, reason, orders, shown(controls.folds(shape, rung, selected.tiles)))


def panels(drawn: Drawn[Selection]) -> None:
    selected = drawn.selected
    if autotune.PART in drawn.parts:
        autotune.section(selected.rung, selected.shape, selected.tiles)
    if drawn.whole:
        cpu_curve.section(selected.shape)


LadderPage(
    page=controls.PAGE,
    stage="tiling",
    title=tr("Tiling: a matrix product (GEMM) from naive to fast"),
    about=tr(
        '<span class="kt-math">C[row, col] = Σ<sub>k</sub> A[row, k]·B[k, col]</span>. Each element of '
        '<span class="kt-input">A</span> and <span class="kt-filter">B</span> is used many times. A load from global memory '
        "takes much longer than a multiply-add. Each kernel therefore keeps loaded values closer to the threads: first in "
        "shared memory, then in registers."
    ),
    ladder=LADDER,
    notes=lambda _: notes.GEMM,
    read=reader(controls.PAGE, ADDRESS, controls.draw),
    play=play,
    sizes=controls.sizes,
    more=controls.rate_cards,
    more_parts=(autotune.PART,),
    panels=panels,
).draw(STORY.open())
