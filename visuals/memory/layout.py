"""A tensor of four axes as a line of memory: an index becomes an address, in NCHW and in NHWC.

A step is one thread of a layout/ rung: the element it reads and the one it writes are the addresses that the
emulator saw.
"""

from __future__ import annotations

import numpy as np

from kernels.ladders import find
from kernels.memory.shape import LayoutShape
from kernels.model.program import RuleError
from visuals.memory.threads import source_at, touched, traced
from visuals.scene.parts import Captions, Group, Lanes, Reading, Tensor, Write
from visuals.scene.recorder import reads_of
from visuals.scene.scene import Scene

MOST_SHOWN = 512  # elements
ORDER_NOTE = "One thread at a time, so that the eye can follow each address. The GPU runs the 32 threads of a warp together."
_FORMULAS = (
    "[x](input)[{0}, {1}, {2}, {3}]: NCHW puts it at (({0} × {5} + {1}) × {6} + {2}) × {7} + {3} = {8}, byte {10}; "
    "NHWC at (({0} × {6} + {2}) × {7} + {3}) × {5} + {1} = {9}, byte {11}."
)


def layout_scene(rung: str, shape: LayoutShape, seed: int = 0) -> Scene:
    """The whole tensor, thread after thread."""
    if shape.elements > MOST_SHOWN:
        raise RuleError(f"at most {MOST_SHOWN} elements are shown, {shape} has {shape.elements:,}")
    t = traced(rung, shape, (("BLOCK", 64),), seed)
    block = t.launch.block[0]
    moves = []  # (from, to, lane, warp), thread after thread
    for trace in t.traces:
        for warp in range(block // 32):
            read, lanes = touched(trace, "x", False, warp)
            written, stored = touched(trace, "y", True, warp)
            assert (lanes == stored).all()
            moves += [(*pair, warp) for pair in zip(read, written, lanes, strict=True)]
    came, went, lane, warp = np.array(moves).T
    N, C, H, W = shape.params().values()
    steps, x = shape.elements, t.inputs["x"].ravel()
    index = np.stack(np.unravel_index(came, (N, C, H, W)), axis=1)
    extents = np.tile([N, C, H, W], (steps, 1))
    args = np.column_stack([index, extents, came, went, 4 * came, 4 * went])
    each = [np.array([cell]) for cell in came]
    return Scene(
        key=f"{rung} " + ",".join(map(str, (N, C, H, W))),
        title=find(rung).title,
        tensors=(
            Tensor("x", "x", "the tensor", "input", N * C, H, W, x, plane_name="map",
                   note=f"{N} images of {C} channels, {H} × {W}"),
            Tensor("a", "a", "NCHW: w counts fastest", "input", 1, N, C * H * W, x, note="an image a row"),
            Tensor("b", "b", "NHWC: c counts fastest", "output", 1, N, H * W * C, note="an image a row"),
        ),
        groups=(
            Group((("x",),), "global", "as its axes have it"),
            Group((("a",), ("b",)), "global", "as it lies in memory, address after address"),
        ),
        steps=steps,
        step_name="thread",
        order_name="thread by thread",
        order_note=ORDER_NOTE,
        writes=(Write("b", np.arange(steps), source="a", index=came, cells=went),),
        reads=(reads_of("x", each),),
        readings=(
            Reading("address in NCHW", came), Reading("address in NHWC", went),
            Reading("apart from the one before, NCHW", np.diff(came, prepend=came[0])),
            Reading("apart from the one before, NHWC", np.diff(went, prepend=went[0])),
        ),
        captions=Captions((_FORMULAS,), np.zeros(steps, int), args),
        source=source_at(t, ("y[nhwc_index] = x[nchw_index]",), [0] * steps),
        lanes=Lanes(warp, np.array([1 << int(n) for n in lane], np.uint32)),
    )  # fmt: skip
