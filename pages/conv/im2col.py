"""im2col: a convolution becomes one matrix product."""

from kernels.i18n import tr
from pages.conv import controls, im2col_chapters, lesson, scenes
from visuals.conv.im2col.notes import IM2COL
from visuals.conv.im2col.scene import RUNGS

lesson.draw_with_orders(
    "im2col",
    tr("im2col: a convolution becomes one matrix product"),
    tr(
        'Each window of the <span class="kt-input">input</span> is copied into one column of a '
        '<span class="kt-workspace">data matrix</span>. The convolution is then one fast matrix product (GEMM): {formula}. '
        "The cost is memory: each pixel is stored up to {copies} times.",
        formula='<span class="kt-math">output = filters × columns</span>',
        copies='<span class="kt-math">R·S</span>',
    ),
    scenes.IM2COL_ORDERS,
    scenes.im2col,
    IM2COL,
    controls.data_matrix,
    "conv/im2col-gemm",
    im2col_chapters.STORY,
    rungs=RUNGS,
)
