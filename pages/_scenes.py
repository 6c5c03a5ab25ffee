"""The scenes of the lessons as pages ask for them: built once for equal inputs, for all readers."""

from __future__ import annotations

import streamlit as st

from kernels.engines import emulator
from kernels.ladders import find
from visuals.inputs import Inputs, outputs
from visuals.scene import Scene
from visuals.scenes.im2col import im2col_scene, part_of
from visuals.scenes.im2col_warps import blocks, in_warp_order, why_not

MOST_KEPT = 64  # scenes of a megabyte at most, most of them a hundredth of that
ORDERS = {
    "explaining": "one column after the other, copied and multiplied at once",
    "warps": "store by store as the emulator executed block 0 of the CUDA kernel",
}


@st.cache_resource(max_entries=MOST_KEPT, show_spinner=False)
def im2col(inputs: Inputs, order: str) -> tuple[Scene, str]:
    """The scene in one of ORDERS, and why it is not in the order asked for: "" where it is."""
    shape, part = inputs.shape, part_of(inputs.shape, inputs.planes()[0])
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    scene = im2col_scene(shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
    if order == "explaining" or (reason := why_not(shape, part)):
        return scene, "" if order == "explaining" else reason
    rung = find("conv/im2col-gemm")
    program = rung.build(shape, rung.default_tiles)
    trace, counters = emulator.trace_launch(program, 0, {"x": inputs.x(), "w": inputs.w()})
    return in_warp_order(scene, shape, trace, counters, blocks(shape)), ""
