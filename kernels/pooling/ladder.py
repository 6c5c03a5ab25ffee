"""Pooling: six ladders, forward and backward of max, average and global average pooling.

A forward rung has one thread per window, or one per patch of windows. A backward rung scatters with atomics, or gathers
without: one thread per pixel, or one per patch of pixels. The links between x and y are the same in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.launch import ceil, hopper, launch
from kernels.model.program import INPUT, OUTPUT, Buffer, LibraryCall, Program, Tiles
from kernels.model.revealing import concentrate_sums
from kernels.model.rules import MAX_SHARED, index_rules, shared_rules
from kernels.model.rung import HOPPER, Cost, Ladder, Rung
from kernels.model.shape import Shape
from kernels.model.zero import zero
from kernels.pooling import cpu, library, reference
from kernels.pooling.common import (
    BLOCKS,
    HIGH,
    WIDE,
    backward_buffers,
    builder,
    cost_of,
    forward_buffers,
    library_cost,
    magic_of,
    one_a_patch,
    one_each,
    output_rules,
    patch_rules,
    pixel_rules,
    scatter_rules,
    struct,
)
from kernels.pooling.presets import AVG_PRESETS, GLOBAL_PRESETS, MAX_PRESETS
from kernels.pooling.reference import TOLERANCE
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, PoolShape, parse_avg, parse_global, parse_max

BLOCK_TILES = {"BLOCK": BLOCKS}
PATCH_TILES = {"BLOCK": BLOCKS, "HIGH": HIGH, "WIDE": WIDE}
PATCH_SETS = ({}, {"BLOCK": 128, "HIGH": 2}, {"HIGH": 1, "WIDE": 1}, {"WIDE": 8})
FLOAT = 4  # bytes
BARRIER = 8  # bytes: of the rung that has one
SERIAL = 512  # terms of one sum whose roundings the tolerance allows
MAX, MAX_BACKWARD = ("x", "y", "index"), ("dy", "index", "dx")
AVG, AVG_BACKWARD = ("x", "y"), ("dy", "dx")


def comparisons(s: PoolShape) -> int:
    return s.flops


def additions(s: PoolShape) -> int:
    """Returns one addition for each output: its gradient goes to one pixel."""
    return s.outputs


def shares(s: PoolShape) -> int:
    """Returns one division for each output, and one addition for each of its taps."""
    return s.flops + s.outputs


def _zero(s: PoolShape, tiles: Tiles):
    return zero("dx", s.pixels)


def no_rules(s: Shape, tiles: Tiles) -> tuple[str, ...]:
    """Returns no rule: PyTorch says itself what it supports."""
    return ()


def _library(ladder: str, title: str, idea: str, buffers: Callable, args: Sequence[str], bind, cost, tolerance: float):
    """Returns the rung of a PyTorch call: it takes these buffers, the struct, and ceil mode."""

    def build(s: Shape, tiles: Tiles) -> Program:
        extra = (struct(s), np.int32(s.ceil)) if isinstance(s, PoolShape) else ()
        return Program(buffers(s), (LibraryCall(f"torch_{ladder.replace('-', '_')}", (*args, *extra), None, bind),))

    return Rung(
        name=f"{ladder}/library",
        title=title,
        idea=idea,
        build=build,
        cost=cost,
        rules=no_rules,
        tolerance=tolerance,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


# -- max pooling -----------------------------------------------------------------------------------------
MAX_POOL = Ladder(
    name="max-pool",
    shape=MaxPoolShape,
    parse=parse_max,
    reference=reference.max_pool,
    presets=MAX_PRESETS,
    swept=("maxpool-large",),
    matching=("R", "S", "u", "v", "dilation_h", "dilation_w"),
    rungs=(
        Rung(
            name="max-pool/window",
            title=mark("one thread per window"),
            idea=mark(
                "Each thread compares the pixels of its window. It stores the largest and its place in the plane."
            ),
            build=builder(forward_buffers, one_each("01_max_window", MAX, cpu.max_window, "outputs"), keeps_index=True),
            cost=cost_of(comparisons),
            rules=output_rules,
            tolerance=0.0,  # a maximum is a copy
            tiles=BLOCK_TILES,
            cpu_title=mark("max pooling, pixel after pixel of all windows"),
        ),
        Rung(
            name="max-pool/patch",
            title=mark("one thread per patch"),
            idea=mark(
                "A thread loads the pixels under several windows into registers. Each pixel is loaded about once, "
                "four in one load."
            ),
            build=builder(
                forward_buffers, one_a_patch("02_max_patch", MAX, cpu.max_patch, of_pixels=False), keeps_index=True
            ),
            cost=cost_of(comparisons),
            rules=patch_rules(of_pixels=False),
            tolerance=0.0,
            tiles=PATCH_TILES,
            sets=PATCH_SETS[1:],
            cpu_title=mark("max pooling, rows of windows first"),
        ),
        _library(
            "max-pool",
            mark("PyTorch max pooling"),
            mark("torch.nn.functional.max_pool2d with its indices, which are 64-bit."),
            lambda s: forward_buffers(s, keeps_index=True),
            MAX,
            library.MaxPool,
            library_cost(comparisons),
            0.0,
        ),
    ),
)

MAX_POOL_BACKWARD = Ladder(
    name="max-pool-backward",
    shape=MaxPoolShape,
    parse=parse_max,
    reference=reference.max_pool_backward,
    derive=reference.random_indices,
    presets=MAX_PRESETS,
    swept=("maxpool-large",),
    matching=MAX_POOL.matching,
    rungs=(
        Rung(
            name="max-pool-backward/scatter",
            title=mark("scatter with atomics"),
            idea=mark(
                "dx is set to zero. Then each output adds its gradient to the pixel that was the largest. "
                "Outputs that took the same pixel collide."
            ),
            build=builder(
                backward_buffers,
                _zero,
                one_each("03_max_scatter", MAX_BACKWARD, cpu.max_scatter, "outputs"),
                keeps_index=True,
            ),
            cost=cost_of(additions, dx_again=2),
            rules=scatter_rules,
            tolerance=TOLERANCE,
            tiles=BLOCK_TILES,
            cpu_title=mark("scatter, output after output"),
        ),
        Rung(
            name="max-pool-backward/gather",
            title=mark("gather, one thread per pixel"),
            idea=mark("Each pixel adds the gradients of the windows that took it. Nothing collides."),
            build=builder(
                backward_buffers, one_each("04_max_gather", MAX_BACKWARD, cpu.max_gather, "pixels"), keeps_index=True
            ),
            cost=cost_of(additions),
            rules=pixel_rules,
            tolerance=TOLERANCE,
            tiles=BLOCK_TILES,
            cpu_title=mark("gather, window after window of all pixels"),
        ),
        Rung(
            name="max-pool-backward/gather-patch",
            title=mark("gather, one thread per patch"),
            idea=mark(
                "A thread owns a patch of pixels. It loads the gradient and index of each window that reaches the "
                "patch once."
            ),
            build=builder(
                backward_buffers,
                one_a_patch("05_max_gather_patch", MAX_BACKWARD, cpu.max_gather, of_pixels=True),
                keeps_index=True,
            ),
            cost=cost_of(additions),
            rules=patch_rules(of_pixels=True),
            tolerance=TOLERANCE,
            tiles=PATCH_TILES,
            sets=PATCH_SETS[1:],
            not_on_cpu=mark("patches are a matter of registers; without them this is the gather"),
        ),
        _library(
            "max-pool-backward",
            mark("PyTorch max pooling backward"),
            mark("PyTorch’s gradient of max_pool2d, from 64-bit indices."),
            lambda s: backward_buffers(s, keeps_index=True),
            MAX_BACKWARD,
            library.MaxPoolBackward,
            library_cost(additions),
            TOLERANCE,
        ),
    ),
)

# -- average pooling ---------------------------------------------------------------------------------------
AVG_POOL = Ladder(
    name="avg-pool",
    shape=AvgPoolShape,
    parse=parse_avg,
    reference=reference.avg_pool,
    presets=AVG_PRESETS,
    swept=("avgpool-large",),
    matching=("R", "S", "u", "v"),
    rungs=(
        Rung(
            name="avg-pool/window",
            title=mark("one thread per window"),
            idea=mark("Each thread adds the pixels of its window and divides by their number."),
            build=builder(
                forward_buffers, one_each("06_avg_window", AVG, cpu.avg_window, "outputs"), keeps_index=False
            ),
            cost=cost_of(shares),
            rules=output_rules,
            tolerance=TOLERANCE,
            tiles=BLOCK_TILES,
            cpu_title=mark("average pooling, pixel after pixel of all windows"),
        ),
        Rung(
            name="avg-pool/patch",
            title=mark("one thread per patch"),
            idea=mark(
                "A thread loads the pixels under several windows into registers. Each pixel is loaded about once, "
                "four in one load."
            ),
            build=builder(
                forward_buffers, one_a_patch("07_avg_patch", AVG, cpu.avg_patch, of_pixels=False), keeps_index=False
            ),
            cost=cost_of(shares),
            rules=patch_rules(of_pixels=False),
            tolerance=TOLERANCE,
            tiles=PATCH_TILES,
            sets=PATCH_SETS[1:],
            cpu_title=mark("average pooling, rows of windows first"),
        ),
        _library(
            "avg-pool",
            mark("PyTorch average pooling"),
            mark("torch.nn.functional.avg_pool2d, in FP32."),
            lambda s: forward_buffers(s, keeps_index=False),
            AVG,
            library.AvgPool,
            library_cost(shares),
            TOLERANCE,
        ),
    ),
)

AVG_POOL_BACKWARD = Ladder(
    name="avg-pool-backward",
    shape=AvgPoolShape,
    parse=parse_avg,
    reference=reference.avg_pool_backward,
    presets=AVG_PRESETS,
    swept=("avgpool-large",),
    matching=AVG_POOL.matching,
    rungs=(
        Rung(
            name="avg-pool-backward/scatter",
            title=mark("scatter with atomics"),
            idea=mark(
                "dx is set to zero. Then each output adds its share to every pixel of its window. Overlapping windows "
                "collide."
            ),
            build=builder(
                backward_buffers,
                _zero,
                one_each("08_avg_scatter", AVG_BACKWARD, cpu.avg_scatter, "outputs"),
                keeps_index=False,
            ),
            cost=cost_of(shares, dx_again=2),
            rules=scatter_rules,
            tolerance=TOLERANCE,
            tiles=BLOCK_TILES,
            cpu_title=mark("scatter, one pixel of all windows after the other"),
        ),
        Rung(
            name="avg-pool-backward/gather",
            title=mark("gather, one thread per pixel"),
            idea=mark("Each pixel adds the shares of the windows that contain it. Nothing collides."),
            build=builder(
                backward_buffers, one_each("09_avg_gather", AVG_BACKWARD, cpu.avg_gather, "pixels"), keeps_index=False
            ),
            cost=cost_of(shares),
            rules=pixel_rules,
            tolerance=TOLERANCE,
            tiles=BLOCK_TILES,
            cpu_title=mark("gather, window after window of all pixels"),
        ),
        Rung(
            name="avg-pool-backward/gather-patch",
            title=mark("gather, one thread per patch"),
            idea=mark(
                "A thread owns a patch of pixels. It loads and divides the gradient of each window that reaches the "
                "patch once."
            ),
            build=builder(
                backward_buffers,
                one_a_patch("10_avg_gather_patch", AVG_BACKWARD, cpu.avg_gather, of_pixels=True),
                keeps_index=False,
            ),
            cost=cost_of(shares),
            rules=patch_rules(of_pixels=True),
            tolerance=TOLERANCE,
            tiles=PATCH_TILES,
            sets=PATCH_SETS[1:],
            not_on_cpu=mark("patches are a matter of registers; without them this is the gather"),
        ),
        _library(
            "avg-pool-backward",
            mark("PyTorch average pooling backward"),
            mark("PyTorch’s gradient of avg_pool2d, in FP32."),
            lambda s: backward_buffers(s, keeps_index=False),
            AVG_BACKWARD,
            library.AvgPoolBackward,
            library_cost(shares),
            TOLERANCE,
        ),
    ),
)


# -- whole planes ------------------------------------------------------------------------------------------
def global_buffers(s: GlobalShape) -> tuple[Buffer, ...]:
    return Buffer("x", INPUT, (s.N, s.C, s.H, s.W)), Buffer("y", OUTPUT, (s.N, s.C))


def global_backward_buffers(s: GlobalShape) -> tuple[Buffer, ...]:
    return Buffer("dy", INPUT, (s.N, s.C)), Buffer("dx", OUTPUT, (s.N, s.C, s.H, s.W))


def build_global_plane(s: GlobalShape, tiles: Tiles) -> Program:
    args = "x", "y", np.int32(s.planes), np.int32(s.area)
    grid = (ceil(s.planes, tiles["BLOCK"]),)
    return Program(
        global_buffers(s), (launch("pooling/11_global_plane.cu", grid, tiles["BLOCK"], args, cpu.global_plane, tiles),)
    )


def _build_global_warp(source: str):
    def build(s: GlobalShape, tiles: Tiles) -> Program:
        args = "x", "y", np.int32(s.planes), np.int32(s.area)
        grid = (ceil(s.planes, tiles["WARPS"] * tiles["PLANES"]),)
        defines = {**tiles, "VECTOR": 1 if s.area % 4 else 4}
        step = launch(
            f"pooling/{source}.cu", grid, 32 * tiles["WARPS"], args, cpu.global_warp, defines, cpu_name="few_planes"
        )
        return Program(global_buffers(s), (step,))

    return build


def _build_global_tile(source: str):
    def build(s: GlobalShape, tiles: Tiles) -> Program:
        args = "x", "y", np.int32(s.planes), np.int32(s.area)
        planes, threads = tiles["PLANES"], tiles["PLANES"] * tiles["SHARE"]
        step = launch(
            f"pooling/{source}.cu",
            (ceil(s.planes, planes),),
            threads,
            args,
            cpu.global_warp,
            tiles,
            FLOAT * planes * s.area,
            cpu_name="few_planes",
        )
        return Program(global_buffers(s), (step,))

    return build


def _build_spread(source: str, cpu_function):
    def build(s: GlobalShape, tiles: Tiles) -> Program:
        args = "dy", "dx", magic_of(s.area), np.int32(s.area), np.int32(s.pixels)
        per_block = tiles["BLOCK"] * 4 * tiles["PER"] if "PER" in tiles else tiles["BLOCK"]
        grid = (ceil(s.pixels, per_block),)
        step = launch(f"pooling/{source}.cu", grid, tiles["BLOCK"], args, cpu_function, tiles)
        return Program(global_backward_buffers(s), (step,))

    return build


def global_rules(s: GlobalShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules on planes and pixels of a plane: a last index may be a block beyond the end."""
    threads = tiles.get("BLOCK", 0) or tiles["WARPS"] * tiles["PLANES"]
    yield from index_rules({"N*C": s.planes}, threads)
    yield from index_rules({"H*W": s.area}, 128)


def tile_rules(s: GlobalShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of a tile of planes in shared memory."""
    yield from index_rules({"N*C": s.planes}, tiles["PLANES"])
    yield from index_rules({"H*W": s.area}, 0)
    yield from shared_rules("4*PLANES*H*W + 8", FLOAT * tiles["PLANES"] * s.area + BARRIER, MAX_SHARED)


def spread_rules(s: GlobalShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"N*C*H*W": s.pixels}, tiles["BLOCK"] * 4 * tiles.get("PER", 1))


def one_after_another(s: GlobalShape, tiles: Tiles, inputs) -> np.ndarray:
    """Returns the error scale, float64 [N, C], of a sum of all pixels one after another: its roundings add up."""
    _, scale = reference.global_avg_pool(s, **inputs)
    return scale * (1 + s.area / SERIAL)


def global_cost(s: GlobalShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, 0)


def global_library_cost(s: GlobalShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, None)


def revealing_planes(s: GlobalShape, random: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Returns x with each plane's weight on a part of its pixels: one that is left out shows."""
    for x in random.values():
        concentrate_sums(x.reshape(1, s.planes, s.area))
    return random


GLOBAL_AVG_POOL = Ladder(
    name="global-avg-pool",
    shape=GlobalShape,
    parse=parse_global,
    reference=reference.global_avg_pool,
    revealing=revealing_planes,
    presets=GLOBAL_PRESETS,
    swept=("gap-large", "gap-small-planes"),
    rungs=(
        Rung(
            name="global-avg-pool/plane",
            title=mark("one thread per plane"),
            idea=mark("Each thread adds up one plane. The floats that a warp loads are far apart."),
            build=build_global_plane,
            cost=global_cost,
            rules=global_rules,
            tolerance=TOLERANCE,
            scale=one_after_another,
            tiles=BLOCK_TILES,
            cpu_title=mark("pixel after pixel of all planes"),
        ),
        Rung(
            name="global-avg-pool/warp",
            title=mark("one warp per plane"),
            idea=mark("The lanes of a warp read contiguous floats of a plane. Then they exchange their sums."),
            build=_build_global_warp("12_global_warp"),
            cost=global_cost,
            rules=global_rules,
            tolerance=TOLERANCE,
            tiles={"WARPS": (8, 4, 1), "PLANES": (4, 2, 1, 8)},
            cpu_title=mark("a few planes at a time in the cache"),
        ),
        Rung(
            name="global-avg-pool/streaming",
            title=mark("one warp per plane, streaming loads"),
            idea=mark(
                "Loads marked as streaming leave the L2 first. Lines that an earlier kernel wrote stay there and need "
                "not be written to memory meanwhile."
            ),
            build=_build_global_warp("16_global_streaming"),
            cost=global_cost,
            rules=global_rules,
            tolerance=TOLERANCE,
            tiles={"WARPS": (8, 4, 1), "PLANES": (2, 4, 1, 8)},
            sets=({"PLANES": 1},),
            not_on_cpu=mark(
                "a processor’s caches take no such hint from NumPy; without it these are a few planes at a time"
            ),
        ),
        Rung(
            name="global-avg-pool/tile",
            title=mark("a tile of planes in shared memory"),
            idea=mark(
                "A block copies contiguous planes to shared memory, four floats in one load. Then a few lanes add up each plane."
            ),
            build=_build_global_tile("15_global_tile"),
            cost=global_cost,
            rules=tile_rules,
            tolerance=TOLERANCE,
            tiles={"PLANES": (64, 32, 128), "SHARE": (2, 1, 4, 8)},
            sets=({"PLANES": 32},),
            not_on_cpu=mark("a processor has no shared memory; without it these are a few planes at a time"),
        ),
        Rung(
            name="global-avg-pool/bulk",
            title=mark("a tile of planes, loaded by the copy engine"),
            idea=mark(
                "One instruction of one thread copies all planes of a block to shared memory, past the registers. Then a few "
                "lanes add up each plane."
            ),
            build=_build_global_tile("17_global_bulk"),
            cost=global_cost,
            rules=tile_rules,
            tolerance=TOLERANCE,
            tiles={"PLANES": (32, 64, 128), "SHARE": (4, 2, 1, 8)},
            sets=({"PLANES": 64, "SHARE": 2},),
            capability=hopper,
            last_capability=HOPPER,
            not_on_cpu=mark("a processor has no shared memory; without it these are a few planes at a time"),
        ),
        _library(
            "global-avg-pool",
            mark("PyTorch mean"),
            mark("torch.mean over the pixels of each plane, in FP32."),
            global_buffers,
            ("x", "y"),
            library.GlobalAvgPool,
            global_library_cost,
            TOLERANCE,
        ),
    ),
)

GLOBAL_AVG_POOL_BACKWARD = Ladder(
    name="global-avg-pool-backward",
    shape=GlobalShape,
    parse=parse_global,
    reference=reference.global_avg_pool_backward,
    presets=GLOBAL_PRESETS,
    swept=GLOBAL_AVG_POOL.swept,
    rungs=(
        Rung(
            name="global-avg-pool-backward/pixel",
            title=mark("one thread per pixel"),
            idea=mark(
                "Each thread divides the gradient of its plane by the pixels of the plane, and stores the share."
            ),
            build=_build_spread("13_global_spread", cpu.global_spread),
            cost=global_cost,
            rules=spread_rules,
            tolerance=TOLERANCE,
            tiles=BLOCK_TILES,
            cpu_title=mark("one division per pixel"),
        ),
        Rung(
            name="global-avg-pool-backward/four-pixels",
            title=mark("four pixels per store"),
            idea=mark("Each thread stores several groups of four floats, each with one instruction."),
            build=_build_spread("14_global_spread_four", cpu.global_spread_four),
            cost=global_cost,
            rules=spread_rules,
            tolerance=TOLERANCE,
            tiles={"BLOCK": BLOCKS, "PER": (2, 4, 1)},
            cpu_title=mark("one division per plane"),
        ),
        _library(
            "global-avg-pool-backward",
            mark("PyTorch mean backward"),
            mark("torch.div of the gradients, expanded to the planes: the gradient of torch.mean."),
            global_backward_buffers,
            ("dy", "dx"),
            library.GlobalAvgPoolBackward,
            global_library_cost,
            TOLERANCE,
        ),
    ),
)

LADDERS = (MAX_POOL, MAX_POOL_BACKWARD, AVG_POOL, AVG_POOL_BACKWARD, GLOBAL_AVG_POOL, GLOBAL_AVG_POOL_BACKWARD)
