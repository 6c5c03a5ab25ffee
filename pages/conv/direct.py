"""Direct convolution: seven loops and their memory accesses."""

from pages.conv import lesson, scenes
from visuals.conv.direct import story

lesson.draw_with_orders(
    "direct",
    "Direct: seven loops",
    'A window slides over the <span class="kt-input">input</span>; each '
    '<span class="kt-output">output</span> pixel is the sum of its products with a '
    '<span class="kt-filter">filter</span>. <span class="kt-math">y[n, k, p, q] = Σ<sub>c, r, s</sub></span> '
    '<span class="kt-math">x[n, c, p·u + r, q·v + s]·w[k, c, r, s]</span>. The loops over n, k, p, q become threads; '
    "c, r and s stay in each of them, and read the same pixels again and again.",
    scenes.DIRECT_ORDERS,
    scenes.direct,
    story.STORY,
)
