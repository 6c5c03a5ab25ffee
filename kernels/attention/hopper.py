"""The rungs of the attention ladder for Hopper: FP16 and BF16 by wgmma, the copy engine (TMA) and warpgroups with roles.

As on other tensor cores, P is rounded to the type of V, and all rungs have the same tolerance (tensor_cores).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernels.attention import common, cpu
from kernels.attention.shape import AttentionShape, SelfAttentionShape
from kernels.i18n import mark
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil, hopper, launch
from kernels.model.program import Arg, Program, Tiles
from kernels.model.rules import MAX_SHARED, extent_multiple_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import TensorMap

WM = 64  # queries of a warpgroup
WARPGROUP = 128  # threads
BOX = 64  # columns of a box: its rows have 128 bytes
SWIZZLE = 128  # bytes
BARRIER = 8  # bytes
OTHER_REGISTERS = 32  # per thread, besides those of S, O and P
MAX_REGISTERS = {3: 160, 4: 112}  # per thread, by the number of consumers; two have as many as they need
TWO = {"Br": 2 * WM, "Bc": 128, "STAGES": 2}
TILES_OF_QUERIES = 2  # in shared memory, of the persistent blocks
THREE = {"Br": 3 * WM, "Bc": 80, "STAGES": 2}


# -- programs -------------------------------------------------------------------------------------------
def padded(s: SelfAttentionShape) -> int:
    """Returns d rounded up to whole boxes."""
    return ceil(s.d, BOX) * BOX


def registers(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the registers per thread of a consumer: sums of S and O, P, and the others."""
    return (3 * tiles["Bc"] + 2 * padded(s)) // 4 + OTHER_REGISTERS


def fitting(s: AttentionShape, tiles: Tiles, otherwise: Tiles = TWO) -> dict[str, int]:
    """Returns the tiles, or TWO consumers' if the registers of more consumers do not contain S, P and O."""
    fits = registers(s, tiles) <= MAX_REGISTERS.get(tiles["Br"] // WM, 240)
    return dict(tiles) | ({} if fits else dict(otherwise))


def fitting_persistent(s: AttentionShape, tiles: Tiles) -> dict[str, int]:
    """Returns the tiles, or if they do not fit the fastest that do: THREE consumers', if causal TWO consumers'."""
    return fitting(s, tiles, TWO if s.causal else THREE)


def map_of(name: str, s: AttentionShape, rows: int, length: int = 0, heads: int = 0) -> TensorMap:
    """Returns the map of Q, K or V [heads, length, d], by default [B*H, N, d], in boxes of `rows` x BOX of one head."""
    length, heads = length or s.N, heads or s.heads
    extents, strides = (s.d, length, heads), (2 * s.d, 2 * length * s.d)
    return TensorMap(name, INPUT_DTYPE[s.dtype], extents, strides, (BOX, rows, 1), SWIZZLE)


def arguments(s: AttentionShape, tiles: Tiles) -> tuple[Arg, ...]:
    maps = (map_of(name, s, tiles["Br" if name == "Q" else "Bc"]) for name in "QKV")
    return (*maps, *common.arguments(s)[3:])


def shared(s: AttentionShape, tiles: Tiles, queries: int = 1) -> int:
    """Returns the bytes of `queries` tiles of Q, STAGES tiles of K and of V, and at most two barriers for each tile."""
    elements = padded(s) * (queries * tiles["Br"] + 2 * tiles["STAGES"] * tiles["Bc"])
    return 2 * elements + BARRIER * (2 * queries + 4 * tiles["STAGES"])


def _launch(
    s: AttentionShape, source: str, grid: tuple[int, ...], tiles: Tiles, producers: int, *others: Arg, queries: int = 1
) -> Program:
    """Returns a launch with a warpgroup for each WM queries and one for each producer, and `queries` tiles of Q.

    `others`: its last arguments.
    """
    threads = WARPGROUP * (tiles["Br"] // WM + producers)
    defines = {name: value for name, value in tiles.items() if name != "BLOCKS"}
    defines |= {"DP": padded(s), "BF16": int(s.dtype == "bf16")}
    cpu_function = (cpu.flash_balanced if others else cpu.flash_mma)(tiles["Br"], tiles["Bc"])
    args = (*arguments(s, tiles), *others)
    step = launch(f"attention/{source}", grid, threads, args, cpu_function, defines, shared(s, tiles, queries))
    return Program(common.buffers(s), (step,))


def builder(source: str, producers: int = 1) -> Callable[[AttentionShape, Tiles], Program]:
    """Returns a function that builds a launch with a block for each Br queries of a head."""

    def build(s: AttentionShape, tiles: Tiles) -> Program:
        tiles = fitting(s, tiles)
        return _launch(s, source, (ceil(s.N, tiles["Br"]), s.heads), tiles, producers)

    return build


def build_balanced(s: AttentionShape, tiles: Tiles) -> Program:
    """Returns a launch of at most BLOCKS blocks, each of which computes several tiles of queries."""
    tiles = fitting(s, tiles)
    return _launch(s, "19_flash_balanced.cu", _blocks(s, tiles), tiles, 1, np.int32(s.heads))


def build_persistent(s: AttentionShape, tiles: Tiles) -> Program:
    """Returns the same launch with a second tile of queries."""
    tiles = fitting_persistent(s, tiles)
    return _launch(
        s, "20_flash_persistent.cu", _blocks(s, tiles), tiles, 1, np.int32(s.heads), queries=TILES_OF_QUERIES
    )


def _blocks(s: AttentionShape, tiles: Tiles) -> tuple[int]:
    """Returns the grid: a block for each tile of queries, if causal for each two, and at most BLOCKS."""
    rows = ceil(s.N, tiles["Br"])
    return (min((ceil(rows, 2) if s.causal else rows) * s.heads, tiles["BLOCKS"]),)


# -- rules ----------------------------------------------------------------------------------------------
def _common_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from common.common_rules(s, max(tiles["Br"], tiles["STAGES"] * tiles["Bc"]), common.HALVES)
    yield from common.head_rules(s)
    yield from extent_multiple_rules(8, d=s.d)  # rows begin at multiples of 16 bytes, as the copy engine needs


def rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from _common_rules(s, tiles)
    if s.d <= common.MAX_D:  # else no tiles fit
        formula = "2*DP*(Br + 2*STAGES*Bc) + 8*(2 + 4*STAGES)"
        yield from shared_rules(formula, shared(s, fitting(s, tiles)), MAX_SHARED)


def persistent_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from _common_rules(s, tiles)
    if s.d <= common.MAX_D:  # else no tiles fit
        formula = "2*DP*(2*Br + 2*STAGES*Bc) + 8*(4 + 4*STAGES)"
        bytes_ = shared(s, fitting_persistent(s, tiles), TILES_OF_QUERIES)
        yield from shared_rules(formula, bytes_, MAX_SHARED)


NO_WGMMA = mark("NumPy has no tensor cores; without them this is flash attention in FP32")
ONE = {"Br": (64,), "Bc": (64, 128), "STAGES": (2, 3)}
CONSUMERS = {"Br": (256, 192, 128), "Bc": (64, 128, 96, 176), "STAGES": (4, 2, 3)}
PERSISTENT = {"Br": (256, 192, 128), "Bc": (64, 80, 128), "STAGES": (4, 2, 3), "BLOCKS": (132, 128)}


def _rung(name: str, title: str, idea: str, build, tiles, *sets: Tiles, rules=rules) -> Rung:
    return Rung(
        f"attention/{name}",
        title,
        idea,
        build,
        common.cost,
        rules,
        common.TOLERANCE,
        tiles,
        sets=sets,
        units=TENSOR_CORES,
        capability=hopper,
        last_capability=HOPPER,
        not_on_cpu=NO_WGMMA,
    )


RUNGS: tuple[Rung, ...] = (
    _rung(
        "wgmma",
        mark("flash attention, wgmma and TMA"),
        mark(
            "The copy engine (TMA) fills swizzled tiles. A warpgroup of 128 threads multiplies them by wgmma. P stays in "
            "registers."
        ),
        builder("15_flash_wgmma.cu", 0),
        ONE,
        {"Bc": 128},
    ),
    _rung(
        "wgmma-consumers",
        mark("producer and consumers"),
        mark("One warpgroup only loads K and V. Others own 64 queries each, and get most of its registers."),
        builder("16_flash_consumers.cu"),
        CONSUMERS,
        {"Br": 192, "Bc": 128, "STAGES": 2},
    ),
    _rung(
        "wgmma-ping-pong",
        mark("consumers in ping-pong"),
        mark("Named barriers give the consumers turns: one multiplies while the other computes exponentials."),
        builder("17_flash_ping_pong.cu"),
        CONSUMERS,
        {"Br": 192, "Bc": 128, "STAGES": 2},
    ),
    _rung(
        "wgmma-overlap",
        mark("softmax during products"),
        mark("A consumer computes the softmax of a tile while its product of the tile before with V still runs."),
        builder("18_flash_overlap.cu"),
        CONSUMERS,
        {"Br": 192, "Bc": 128, "STAGES": 2},
    ),
    _rung(
        "wgmma-balanced",
        mark("persistent blocks, equal work"),
        mark(
            "Each multiprocessor has one block that computes many tiles of queries. If causal, it computes tiles in pairs of equal work."
        ),
        build_balanced,
        CONSUMERS | {"BLOCKS": (132, 128)},
        {"Br": 192, "Bc": 128, "STAGES": 2},
    ),
    _rung(
        "wgmma-persistent",
        mark("persistent blocks, rare rescaling"),
        mark(
            "Scores exceed the old maximum by a lot in few tiles. Only then O is rescaled. The next tile of queries is "
            "loaded early."
        ),
        build_persistent,
        PERSISTENT,
        {"Br": 192, "Bc": 80, "STAGES": 2},
        {"Br": 128, "Bc": 128, "STAGES": 2},
        rules=persistent_rules,
    ),
)
