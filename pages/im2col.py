"""im2col: a convolution becomes one matrix product."""

import streamlit as st

from pages import _lesson
from visuals.scenes.im2col import im2col_scene, part_of

watch_only = st.query_params.get("view") == "watch"
if not watch_only:
    _lesson.heading(
        "im2col: a convolution becomes one matrix product",
        'Every window of the <span class="kt-input">input</span> is copied into a column. Then '
        '<span class="kt-math">output = filters × columns</span>, a GEMM, the fastest thing a GPU does. '
        'The price: each pixel is stored up to <span class="kt-math">R·S</span> times.',
    )
inputs = _lesson.conv_inputs("im2col.py", shown=not watch_only)
shape, part = inputs.shape, part_of(inputs.shape)
y = _lesson.outputs(inputs, part.K, part.P, part.Q)
scene = im2col_scene(shape, inputs.x(1, part.C), inputs.w(part.K, part.C), y)

try:
    from visuals import stage
except ImportError:
    st.html('<p class="kt-note">The stage is not installed here.</p>')
else:
    stage.mount(scene, key="im2col")
if not watch_only:
    _lesson.show_pictures(inputs, y[0, 0])
