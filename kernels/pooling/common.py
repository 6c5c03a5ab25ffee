"""Structs, buffers, launches, cost and rules that the pooling ladders share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernels.i18n import tr
from kernels.model.fast_division import magic
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, Buffer, Launch, Program, Tiles
from kernels.model.rules import index_rules
from kernels.model.rung import Cost
from kernels.model.shape import INT_MAX
from kernels.pooling.shape import PoolShape

MAGIC_STRUCT = np.dtype([("multiplier", np.uint32), ("shift", np.int32)])
WHOLE = "H W P Q R S u v pad_h pad_w dilation_h dilation_w include_pad down across".split()
DIVISORS = "by_Q by_PQ by_W by_HW by_across by_down".split()
POOL_STRUCT = np.dtype([(name, np.int32) for name in WHOLE] + [(name, MAGIC_STRUCT) for name in DIVISORS])
BLOCKS = (256, 128, 512, 64)
HIGH, WIDE = (4, 2, 8, 1), (4, 2, 8, 1)  # rows and columns of x of a thread, rounded up to whole strides
MAX_IN_REGISTERS = 128  # floats of a patch, or windows of one


# -- patches -----------------------------------------------------------------------------------------
def strides_of(s: PoolShape, tiles: Tiles) -> tuple[int, int]:
    """Returns how many vertical and horizontal strides a thread of a patch kernel has: its rows and columns of y."""
    return ceil(tiles["HIGH"], s.u), ceil(tiles["WIDE"], s.v)


def patch_of(s: PoolShape, tiles: Tiles) -> tuple[int, int]:
    """Returns the rows and columns of x under the outputs of a thread, as PATCH_H and PATCH_W of cuda/patch.cuh."""
    down, across = strides_of(s, tiles)
    return (down - 1) * s.u + s.dilation_h * (s.R - 1) + 1, (across - 1) * s.v + s.dilation_w * (s.S - 1) + 1


def windows_of(s: PoolShape, tiles: Tiles) -> tuple[int, int]:
    """Returns the rows and columns of windows that reach a thread's pixels, as WINDOWS_H and WINDOWS_W of gather.cuh."""

    def along(strides: int, stride: int, pad: int, span: int) -> int:
        return (pad + strides * stride - 1) // stride - ceil(pad - (span - 1), stride) + 1

    down, across = strides_of(s, tiles)
    return (
        along(down, s.u, s.pad_h, s.dilation_h * (s.R - 1) + 1),
        along(across, s.v, s.pad_w, s.dilation_w * (s.S - 1) + 1),
    )


def patches_of(s: PoolShape, tiles: Tiles, of_pixels: bool) -> tuple[int, int]:
    """Returns the patches of a plane, down and across: of pixels of x, or of outputs."""
    down, across = strides_of(s, tiles)
    if of_pixels:
        return ceil(s.H, down * s.u), ceil(s.W, across * s.v)
    return ceil(s.P, down), ceil(s.Q, across)


def window_defines(s: PoolShape, tiles: Tiles) -> dict[str, int]:
    """Returns the defines of a patch kernel: tile sizes and the window. VECTOR is 4 if rows of x and patches begin at a
    multiple of four floats."""
    _, across = strides_of(s, tiles)
    return {
        **tiles,
        "WINDOW_H": s.R,
        "WINDOW_W": s.S,
        "STRIDE_H": s.u,
        "STRIDE_W": s.v,
        "PAD_H": s.pad_h,
        "PAD_W": s.pad_w,
        "DILATION_H": s.dilation_h,
        "DILATION_W": s.dilation_w,
        "VECTOR": 4 if s.W % 4 == 0 and across * s.v % 4 == 0 else 1,
    }


# -- launches ----------------------------------------------------------------------------------------
def magic_of(divisor: int) -> np.void:
    """Returns a divisor as the kernels' `struct Magic`."""
    found = magic(divisor)
    return np.array([(found.multiplier, found.shift)], MAGIC_STRUCT)[0]


def struct(s: PoolShape, patches: tuple[int, int] = (1, 1)) -> np.void:
    """Convert a shape to the kernels' `struct Pool` (cuda/pool.cuh)."""
    down, across = patches
    known = {"include_pad": getattr(s, "include_pad", 0), "down": down, "across": across}
    whole = (known.get(name, getattr(s, name, 0)) for name in WHOLE)
    divisors = (s.Q, s.P * s.Q, s.W, s.H * s.W, across, down)
    return np.array([(*whole, *(magic_of(d).item() for d in divisors))], POOL_STRUCT)[0]


def one_each(source: str, buffers: tuple[str, ...], cpu: Callable[..., None], of: str, cpu_name: str = ""):
    """Returns a function that launches one thread for each output or pixel (`of`: a property of the shape)."""

    def step(s: PoolShape, tiles: Tiles) -> Launch:
        count, block = getattr(s, of), tiles["BLOCK"]
        args = *buffers, struct(s), np.int32(count)
        return launch(f"pooling/{source}.cu", (ceil(count, block),), block, args, cpu, tiles, cpu_name=cpu_name)

    return step


def one_a_patch(source: str, buffers: tuple[str, ...], cpu: Callable[..., None], of_pixels: bool, cpu_name: str = ""):
    """Returns a function that launches one thread for each patch, of pixels or of outputs."""

    def step(s: PoolShape, tiles: Tiles) -> Launch:
        patches = patches_of(s, tiles, of_pixels)
        count, block = s.planes * patches[0] * patches[1], tiles["BLOCK"]
        args = *buffers, struct(s, patches), np.int32(count)
        defines = window_defines(s, tiles)
        return launch(f"pooling/{source}.cu", (ceil(count, block),), block, args, cpu, defines, cpu_name=cpu_name)

    return step


# -- buffers -----------------------------------------------------------------------------------------
def forward_buffers(s: PoolShape, keeps_index: bool) -> tuple[Buffer, ...]:
    """Returns x, y, and the indices of the maxima if `keeps_index`."""
    index = (Buffer("index", OUTPUT, s.y_shape, "int32"),) if keeps_index else ()
    return Buffer("x", INPUT, s.x_shape), Buffer("y", OUTPUT, s.y_shape), *index


def backward_buffers(s: PoolShape, keeps_index: bool) -> tuple[Buffer, ...]:
    index = (Buffer("index", INPUT, s.y_shape, "int32", below=s.H * s.W),) if keeps_index else ()
    return Buffer("dy", INPUT, s.y_shape), *index, Buffer("dx", OUTPUT, s.x_shape)


def builder(buffers: Callable, *steps: Callable[[PoolShape, Tiles], Launch], keeps_index: bool):
    """Returns the build function of a rung with these launches."""
    return lambda s, tiles: Program(buffers(s, keeps_index), tuple(step(s, tiles) for step in steps))


# -- cost --------------------------------------------------------------------------------------------
def cost_of(operations: Callable[[PoolShape], int], dx_again: int = 0):
    """Returns a cost function. `dx_again`: how often dx is moved besides its one store: the zeros and the atomics of a
    scatter move it twice more, if every pixel is in a window that takes it."""

    def cost(s: PoolShape, program: Program) -> Cost:
        return Cost(operations(s), s.bytes + dx_again * 4 * s.pixels, 0)

    return cost


def library_cost(operations: Callable[[PoolShape], int]):
    """Returns the FLOPs of the definition and the minimum traffic. PyTorch's own are not known."""
    return lambda s, program: Cost(operations(s), s.bytes, None)


# -- rules -------------------------------------------------------------------------------------------
def plane_rules(s: PoolShape) -> Iterator[str]:
    """Yields the rule on the places of a plane: an index h*W + w is an int32."""
    yield from index_rules({"H*W": s.H * s.W}, 0)


def output_rules(s: PoolShape, tiles: Tiles) -> Iterator[str]:
    yield from plane_rules(s)
    yield from index_rules({"N*C*P*Q": s.outputs}, tiles["BLOCK"], "BLOCK")


def pixel_rules(s: PoolShape, tiles: Tiles) -> Iterator[str]:
    yield from plane_rules(s)
    yield from index_rules({"N*C*H*W": s.pixels}, tiles["BLOCK"], "BLOCK")


def patch_rules(of_pixels: bool):
    """Returns the rules of a patch kernel: its patch is in registers, and its threads are counted in an int."""

    def rules(s: PoolShape, tiles: Tiles) -> Iterator[str]:
        yield from plane_rules(s)
        yield from index_rules({"P*Q": s.P * s.Q}, 0)
        down, across = patches_of(s, tiles, of_pixels)
        yield from index_rules({tr("N*C*(patches of a plane)"): s.planes * down * across}, tiles["BLOCK"], "BLOCK")
        rows, cols = strides_of(s, tiles)
        yield from _in_registers(tr("pixels of a patch, with its windows"), *patch_of(s, tiles))
        if of_pixels:
            yield from _in_registers(tr("windows of a patch"), *windows_of(s, tiles))
            yield from _in_registers(tr("pixels of a patch"), rows * s.u, cols * s.v)

    return rules


def _in_registers(what: str, rows: int, cols: int) -> Iterator[str]:
    if rows * cols > MAX_IN_REGISTERS:
        yield tr(
            "{what} <= {limit} (registers), got {rows}*{cols}", what=what, limit=MAX_IN_REGISTERS, rows=rows, cols=cols
        )


def scatter_rules(s: PoolShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of a scatter: those of its outputs, and of the grid that sets dx to zero."""
    yield from output_rules(s, tiles)
    if ceil(s.pixels, 256) > INT_MAX:
        yield tr(
            "{formula} must stay below {limit}, got {count}", formula="N*C*H*W / 256", limit="2^31", count=s.pixels
        )
