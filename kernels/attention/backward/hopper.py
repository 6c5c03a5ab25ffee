"""The rung of attention's backward pass for Hopper: FP16 and BF16 by wgmma and the copy engine (TMA).

P and dS are rounded to 16 bits before they are multiplied, and the gradients at the end, as in
kernels.attention.backward.tensor_cores.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.attention import common as attention
from kernels.attention.backward import common, cpu
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil, hopper, launch
from kernels.model.program import Launch, Program, Tiles
from kernels.model.rules import MAX_SHARED, extent_multiple_rules, max_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import TensorMap

ROWS = 64  # of a tile that passes, and of a warpgroup
OWN = 128  # rows of a block, two warpgroups
MAX_COLS = 64  # of a head: a row of a tile has 128 bytes
WARPGROUP = 128  # threads
BARRIER = 8  # bytes
MAPS = "Q", "K", "V", "dO"  # arguments that are tensor maps


def map_of(s: AttentionBackwardShape, name: str) -> TensorMap:
    """Returns the map of a tensor [B*H, N, d] in boxes of 64 rows of one head, padded with zeros."""
    strides = 2 * s.d, 2 * s.d * s.N
    return TensorMap(name, INPUT_DTYPE[s.dtype], (s.d, s.N, s.heads), strides, (MAX_COLS, ROWS, 1), 128)


def shared(stages: int, of_stage: int) -> int:
    """Returns the bytes of shared memory: two own tiles, `stages` times two that pass by, with `of_stage` more bytes of each
    stage and its barriers."""
    return 4 * MAX_COLS * (OWN + ROWS * stages) + stages * (of_stage + 2 * BARRIER) + BARRIER


def _launch(s: AttentionBackwardShape, tiles: Tiles, source: str, of_stage: int, cpu_function, *names: str) -> Launch:
    maps = (map_of(s, name) for name in MAPS)
    numbers = np.int32(s.N), np.int32(s.d), np.float32(s.factor), np.int32(s.causal)
    stages = tiles["STAGES"]
    return launch(
        f"attention/{source}.cu",
        (ceil(s.N, OWN), s.heads),
        (OWN // ROWS + 1) * WARPGROUP,
        (*maps, *names, *numbers),
        cpu_function,
        {"STAGES": stages, "BF16": int(s.dtype == "bf16")},
        shared(stages, of_stage),
    )


def build(s: AttentionBackwardShape, tiles: Tiles) -> Program:
    dots_and_queries = cpu.dots_and_queries(OWN, ROWS)
    keys = cpu.flash_keys(ROWS, OWN, rounded=True)
    steps = (
        _launch(s, tiles, "24_flash_wgmma_queries", 0, dots_and_queries, "O", "L", "D", "dQ"),
        _launch(s, tiles, "25_flash_wgmma_keys", 8 * ROWS, keys, "L", "D", "dK", "dV"),
    )
    return Program(common.buffers(s), steps)


def rules(s: AttentionBackwardShape, tiles: Tiles) -> Iterator[str]:
    yield from attention.common_rules(s, OWN, attention.HALVES)
    yield from max_rules("d", s.d, MAX_COLS)
    yield from extent_multiple_rules(8, d=s.d)
    needed = shared(tiles["STAGES"], 8 * ROWS)
    yield from shared_rules("256*(128 + 64*STAGES) + 528*STAGES + 8", needed, MAX_SHARED)


RUNGS: tuple[Rung, ...] = (
    common.rung_of_two_passes(
        "flash-wgmma",
        mark("flash backward, wgmma and TMA"),
        mark(
            "The copy engine fills a ring of tiles. Warpgroups multiply them by wgmma while their lanes compute "
            "exponentials. The kernel of dQ computes D too."
        ),
        build,
        rules,
        {"STAGES": (3, 2, 4)},
        {"STAGES": 2},
        capability=hopper,
        last_capability=HOPPER,
        units=TENSOR_CORES,
        no_scene=mark(
            "it computes what flash backward on tensor cores computes; the lesson on tiling shows wgmma and a ring of tiles"
        ),
        not_on_cpu=mark("NumPy has no tensor cores; without them this is flash backward in two passes"),
    ),
)
