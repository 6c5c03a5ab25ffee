"""Direct convolution: seven loops, and what they ask of memory."""

from pages import _conv, _conv_controls, _direct, _kernels, _lesson, _run
from visuals import stage, why_direct

PAGE, LADDER = "direct.py", _conv.ladder("direct")

parts = _lesson.parts()
whole = parts == _lesson.PARTS
if whole:
    _lesson.heading(
        "Direct: seven loops",
        'A window slides over the <span class="kt-input">input</span>; each '
        '<span class="kt-output">output</span> pixel is the sum of its products with a '
        '<span class="kt-filter">filter</span>. <span class="kt-math">y[n, k, p, q] = Σ<sub>c, r, s</sub></span> '
        '<span class="kt-math">x[n, c, p·u + r, q·v + s]·w[k, c, r, s]</span>. The loops over n, k, p, q become threads; '
        "c, r and s stay in each of them, and read the same pixels again and again.",
    )
inputs, link = _conv_controls.inputs(PAGE, shown=whole, orders=_direct.ORDERS)
shape = inputs.shape
if "watch" in parts:
    scene, instead = _direct.scene(inputs, _lesson.chosen("order", _direct.ORDERS))
    if instead:
        _lesson.note(instead)
    stage.mount(scene, key="direct")
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why_direct.STORY, link)
if whole:
    with _lesson.below():
        _conv_controls.show_pictures(inputs)
        _kernels.show(LADDER, shape, _kernels.chosen_tiles)
elif "kernel" in parts:
    _kernels.show(LADDER, shape, _kernels.chosen_tiles)
if parts != {"watch"} and not _lesson.settled():
    _lesson.settle_soon()
