"""im2col: a convolution becomes one matrix product."""

from pages import _conv, _conv_controls, _kernels, _lesson, _run, _scenes
from visuals import stage, why

PAGE, LADDER = "im2col.py", _conv.ladder("im2col")

parts = _lesson.parts()
whole = parts == _lesson.PARTS
if whole:
    _lesson.heading(
        "im2col: a convolution becomes one matrix product",
        'Every window of the <span class="kt-input">input</span> is copied into a column. Then '
        '<span class="kt-math">output = filters × columns</span>, a GEMM, the fastest thing a GPU does. '
        'The price: each pixel is stored up to <span class="kt-math">R·S</span> times.',
    )
inputs, link = _conv_controls.inputs(PAGE, shown=whole, orders=_scenes.ORDERS)
shape = inputs.shape
if "watch" in parts:
    scene, instead = _scenes.im2col(inputs, _lesson.chosen("order", _scenes.ORDERS))
    if instead:
        _lesson.note(instead)
    stage.mount(scene, key="im2col")
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why.IM2COL, link)
if whole:
    with _lesson.below():
        _conv_controls.show_pictures(inputs)
        _kernels.show(LADDER, shape, _kernels.chosen_tiles)
elif "kernel" in parts:
    _kernels.show(LADDER, shape, _kernels.chosen_tiles)
if parts != {"watch"} and not _lesson.settled():
    _lesson.settle_soon()
