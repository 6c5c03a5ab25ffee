"""im2col: a convolution becomes one matrix product."""

from kernels.ladders import LADDERS
from pages import _lesson, _run
from visuals import stage, why
from visuals.inputs import outputs
from visuals.scenes.im2col import im2col_scene, part_of

PAGE, LADDER = "im2col.py", LADDERS["conv"]


parts = _lesson.parts()
whole = parts == _lesson.PARTS
if whole:
    _lesson.heading(
        "im2col: a convolution becomes one matrix product",
        'Every window of the <span class="kt-input">input</span> is copied into a column. Then '
        '<span class="kt-math">output = filters × columns</span>, a GEMM, the fastest thing a GPU does. '
        'The price: each pixel is stored up to <span class="kt-math">R·S</span> times.',
    )
inputs = _lesson.conv_inputs(PAGE, shown=whole)
shape = inputs.shape
if "watch" in parts:
    part = part_of(shape, inputs.planes()[0])
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    stage.mount(im2col_scene(shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y), key="im2col")
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why.IM2COL, _lesson.preset_link(PAGE))
if whole:
    with _lesson.below():
        _lesson.show_pictures(inputs)
        _lesson.show_kernels(LADDER, shape)
elif "kernel" in parts:
    _lesson.show_kernels(LADDER, shape)
