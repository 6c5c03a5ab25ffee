"""Direct convolution: seven loops and their memory accesses."""

from kernels.i18n import tr
from pages.conv import controls, direct_chapters, lesson, scenes
from pages.parts.every_step import every_step
from visuals.conv.direct import notes
from visuals.conv.direct.scene import MANY_TERMS, shown

FORMULA = (
    '<span class="kt-math">y[n, k, p, q] = Σ<sub>c, r, s</sub></span> '
    '<span class="kt-math">x[n, c, p·u + r, q·v + s]·w[k, c, r, s]</span>'
)
lesson.draw_with_orders(
    "direct",
    tr("Direct: seven loops"),
    tr(
        'A window slides over the <span class="kt-input">input</span>. Each <span class="kt-output">output</span> pixel is the '
        'sum of the pixels in its window times the taps of a <span class="kt-filter">filter</span>. As a formula: {formula}. '
        "Threads run the loops over n, k, p and q in parallel. Each thread runs the loops over c, r and s. Many threads load "
        "the same pixels.",
        formula=FORMULA,
    ),
    scenes.DIRECT_ORDERS,
    lambda inputs, order, tiles: scenes.direct(inputs, order, every_step(), tiles),
    notes.NOTES,
    controls.direct_work,
    "conv/direct",
    direct_chapters.STORY,
    folds=lambda shape: shown(shape).CRS > MANY_TERMS,
    rungs=scenes.DIRECT_RUNGS,
)
