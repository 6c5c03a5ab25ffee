"""What the lesson on direct convolution plays."""

from __future__ import annotations

import streamlit as st

from kernels.engines import emulator
from kernels.ladders import find
from pages._scenes import MOST_KEPT
from visuals.inputs import Inputs, outputs
from visuals.scene import Scene
from visuals.scenes.direct import direct_scene, part_shown
from visuals.scenes.direct_warps import in_warp_order, why_not

ORDERS = {
    "explaining": "one thread after the other, the first of them product by product",
    "warps": "request by request as the emulator executed block 0 of the CUDA kernel",
}


@st.cache_resource(max_entries=MOST_KEPT, show_spinner=False)
def scene(inputs: Inputs, order: str) -> tuple[Scene, str]:
    """The scene in one of ORDERS, and why it is not in the order asked for: "" where it is."""
    shape, part = inputs.shape, part_shown(inputs.shape, inputs.planes()[0])
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    explained = direct_scene(shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
    if order == "explaining" or (reason := why_not(shape, part)):
        return explained, "" if order == "explaining" else reason
    rung = find("conv/direct")
    program = rung.build(shape, rung.default_tiles)
    trace, counters = emulator.trace_launch(program, 0, {"x": inputs.x(), "w": inputs.w()})
    return in_warp_order(explained, shape, trace, counters, program.steps[0].grid[0]), ""
