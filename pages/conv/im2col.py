"""im2col: a convolution becomes one matrix product."""

from pages.conv import lesson, scenes
from visuals.conv.im2col.story import IM2COL

lesson.draw_with_orders(
    "im2col",
    "im2col: a convolution becomes one matrix product",
    'Every window of the <span class="kt-input">input</span> is copied into a column. Then '
    '<span class="kt-math">output = filters × columns</span>, a GEMM, the fastest thing a GPU does. '
    'The price: each pixel is stored up to <span class="kt-math">R·S</span> times.',
    scenes.IM2COL_ORDERS,
    scenes.im2col,
    IM2COL,
)
