"""im2col: a convolution becomes one matrix product."""

import streamlit as st

from kernels.engines import emulator
from kernels.ladders import LADDERS
from pages import _lesson, _run
from visuals import stage, why
from visuals.inputs import outputs
from visuals.scenes.im2col import im2col_scene, part_of
from visuals.scenes.im2col_warps import blocks, in_warp_order, why_not

PAGE, LADDER = "im2col.py", LADDERS["conv"]
ORDERS = {
    "explaining": "one column after the other, copied and multiplied at once",
    "warps": "store by store as the emulator executed block 0 of the CUDA kernel",
}


@st.cache_data(max_entries=16, show_spinner=False)
def traced(shape, x, w):
    """Block 0 of the im2col launch, executed: (trace, counters)."""
    rung = LADDER.rung("conv/im2col-gemm")
    return emulator.trace_launch(rung.build(shape, rung.default_tiles), 0, {"x": x, "w": w})


def scene(inputs):
    """What the stage plays for these inputs, in the order the address asks for."""
    shape, part = inputs.shape, part_of(inputs.shape, inputs.planes()[0])
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    explaining = im2col_scene(shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
    if _lesson.chosen("order", ORDERS) == "explaining":
        return explaining
    if reason := why_not(shape, part):
        _lesson.note(reason)
        return explaining
    return in_warp_order(explaining, shape, *traced(shape, inputs.x(), inputs.w()), blocks(shape))


parts = _lesson.parts()
whole = parts == _lesson.PARTS
if whole:
    _lesson.heading(
        "im2col: a convolution becomes one matrix product",
        'Every window of the <span class="kt-input">input</span> is copied into a column. Then '
        '<span class="kt-math">output = filters × columns</span>, a GEMM, the fastest thing a GPU does. '
        'The price: each pixel is stored up to <span class="kt-math">R·S</span> times.',
    )
inputs = _lesson.conv_inputs(PAGE, shown=whole, orders=ORDERS)
shape = inputs.shape
if "watch" in parts:
    stage.mount(scene(inputs), key="im2col")
if {"run", "why"} & parts:
    _run.run_section(LADDER, shape, why.IM2COL, _lesson.preset_link(PAGE))
if whole:
    with _lesson.below():
        _lesson.show_pictures(inputs)
        _lesson.show_kernels(LADDER, shape)
elif "kernel" in parts:
    _lesson.show_kernels(LADDER, shape)
if not _lesson.settled():
    _lesson.settle_soon()
