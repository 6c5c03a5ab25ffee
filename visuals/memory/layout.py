"""A tensor of four axes in linear memory: the address of an index in NCHW and in NHWC.

A step is one thread of a layout/ rung. The addresses that it reads and writes come from the emulator's trace.
"""

from __future__ import annotations

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.memory.shape import LayoutShape
from kernels.model.program import RuleError
from visuals.memory.threads import source_at, touched, traced
from visuals.scene.parts import Captions, Group, Lanes, Reading, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.scene import Scene

MAX_ELEMENTS = 512  # elements
ORDER_NOTE = mark("The picture shows one thread per step. The GPU runs the 32 threads of a warp together.")
_FORMULAS = mark(
    "In NCHW [x](input)[{0}, {1}, {2}, {3}] has the address (({0} × {5} + {1}) × {6} + {2}) × {7} + {3} = {8}, byte {10}. "
    "In NHWC it has the address (({0} × {6} + {2}) × {7} + {3}) × {5} + {1} = {9}, byte {11}."
)


def layout_scene(rung: str, shape: LayoutShape, seed: int = 0) -> Scene:
    """Returns the scene of the whole tensor, thread by thread. Raises RuleError above MAX_ELEMENTS elements."""
    if shape.elements > MAX_ELEMENTS:
        raise RuleError(
            tr(
                "at most {most} elements are shown, {shape} has {count}",
                most=MAX_ELEMENTS,
                shape=shape,
                count=decimal(f"{shape.elements:,}"),
            )
        )
    run = traced(rung, shape, (("BLOCK", 64),), seed)
    block = run.launch.block[0]
    moves = []  # (source, target, lane, warp), thread by thread
    for trace in run.traces:
        for warp in range(block // 32):
            read, lanes = touched(trace, "x", write=False, warp=warp)
            written, stored = touched(trace, "y", write=True, warp=warp)
            assert (lanes == stored).all()
            moves += [(*pair, warp) for pair in zip(read, written, lanes, strict=True)]
    source, target, lane, warp = np.array(moves).T
    N, C, H, W = (int(extent) for extent in shape.params().values())
    steps, x = shape.elements, run.inputs["x"].ravel()
    index = np.stack(np.unravel_index(source, (N, C, H, W)), axis=1)
    extents = np.tile([N, C, H, W], (steps, 1))
    args = np.column_stack([index, extents, source, target, 4 * source, 4 * target])
    cells = [np.array([cell]) for cell in source]
    return Scene(
        key=f"{rung} " + ",".join(map(str, (N, C, H, W))),
        title=tr(find(rung).title),
        tensors=(
            Tensor(
                "x",
                "x",
                tr("tensor"),
                "input",
                N * C,
                H,
                W,
                x,
                plane_name=tr("map"),
                note=f"N = {N}, C = {C}, H = {H}, W = {W}",
            ),
            Tensor("a", "a", tr("NCHW: w varies fastest"), "input", 1, N, C * H * W, x, note=tr("one image per row")),
            Tensor("b", "b", tr("NHWC: c varies fastest"), "output", 1, N, H * W * C, note=tr("one image per row")),
        ),
        groups=(
            Group((("x",),), "global", tr("by its four axes")),
            Group((("a",), ("b",)), "global", tr("in memory, by address")),
        ),
        steps=steps,
        step_name=tr("thread"),
        order_name=tr("thread by thread"),
        order_note=tr(ORDER_NOTE),
        writes=(Write("b", np.arange(steps), source="a", index=source, cells=target),),
        reads=(read_per_step("x", cells),),
        readings=(
            Reading(tr("address in NCHW"), source),
            Reading(tr("address in NHWC"), target),
            Reading(tr("distance from the previous address, NCHW"), np.diff(source, prepend=source[0])),
            Reading(tr("distance from the previous address, NHWC"), np.diff(target, prepend=target[0])),
        ),
        captions=Captions((tr(_FORMULAS),), np.zeros(steps, int), args),
        source=source_at(run, ("y[nhwc_index] = x[nchw_index]",), [0] * steps),
        lanes=Lanes(warp, np.array([1 << int(n) for n in lane], np.uint32)),
    )
