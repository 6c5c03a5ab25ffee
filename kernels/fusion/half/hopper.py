"""The fused FP16 kernel for Hopper: implicit GEMM by wgmma, with the blocks after the convolution in its epilogue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernels.conv.common import struct
from kernels.conv.half import hopper as conv
from kernels.conv.half import maps
from kernels.conv.half.reference import TOLERANCE
from kernels.conv.half.shape import BYTES, HalfShape
from kernels.fusion.half import codegen, common, cpu
from kernels.fusion.half.shape import FLOAT, HalfChainShape, conv_shape
from kernels.i18n import mark
from kernels.model.launch import ceil, hopper, launch
from kernels.model.program import Program, Tiles
from kernels.model.rules import MAX_SHARED, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import TensorMap

TILES = {"BM": (128, 64, 192, 256), "BN": (64, 128, 256), "STAGES": (4, 2, 3, 5, 6, 8)}
SMALL = {"BM": 64, "STAGES": 2}
# Few stages: more blocks share an SM, for sums of few steps. Many: for long sums.
SHORT, LONG = {"STAGES": 2}, {"BM": 192, "STAGES": 6}
SHORT_SUM, LONG_SUM = 64, 2048  # terms
OTHERS = (SHORT, {"BN": 128, "STAGES": 2}, {"BN": 128}, LONG, {"BM": 64, "BN": 128})


def kinds(s: HalfChainShape) -> tuple[str, ...]:
    return tuple(block.kind for block in s.blocks)


def shared_bytes(s: HalfChainShape, tiles: Tiles) -> int:
    """Returns the bytes of shared memory: the ring, the tiles that are added, their barrier, the parameters."""
    adds = kinds(s).count("add")
    return (
        conv.ring_bytes(tiles)
        + adds * BYTES * tiles["BM"] * tiles["BN"]
        + conv.BARRIER
        + FLOAT * tiles["BN"] * codegen.params(kinds(s))
    )


def build(s: HalfChainShape, tiles: Tiles) -> Program:
    c, blocks = conv_shape(s.stages[0]), kinds(s)
    rows = maps.output_rows(c, tiles)
    args = (
        maps.pixels_by_windows(c, tiles),
        maps.filters(c, tiles["BN"]),
        *_tensors(s, rows),
        rows,
        struct(c),
        *(np.float32(block.eps) for block in s.blocks if block.kind == "bn"),
    )
    grid = ceil(c.K, tiles["BN"]), ceil(c.pixels, tiles["BM"])
    step = launch(
        codegen.source(blocks), grid, conv.threads(tiles), args, cpu.chain(blocks), tiles, shared_bytes(s, tiles)
    )
    return Program(common.buffers(s), (step,))


def _tensors(s: HalfChainShape, rows: TensorMap) -> Iterator[str | TensorMap]:
    """Yields what the blocks after the convolution read: parameters by name, addends by a map like that of y."""
    for names in s.tensors[1:]:
        for tensor, name in names.items():
            yield replace(rows, buffer=name) if tensor == "z" else name


def rules(s: HalfChainShape, tiles: Tiles) -> Iterator[str]:
    broken = [*common.chain_rules(s)]
    yield from broken
    if broken:
        return
    c: HalfShape = conv_shape(s.stages[0])
    yield from conv.im2col_rules(c, tiles)
    yield from shared_rules(
        "STAGES*(128*(BM+BN) + 16) + 2*BM*BN*adds + 4*BN*params + 8", shared_bytes(s, tiles), MAX_SHARED
    )


def faster(s: HalfChainShape) -> Tiles:
    """Returns tile sizes for the number of terms of a sum."""
    if any(common.chain_rules(s)):
        return {}
    terms = conv_shape(s.stages[0]).CRS
    return SHORT if terms <= SHORT_SUM else LONG if terms >= LONG_SUM else {}


RUNG = Rung(
    name="fusion-fp16/implicit-gemm",
    title=mark("fused, on the tensor cores"),
    idea=mark(
        "The convolution is a matrix product by wgmma. The blocks after it are applied to its sums in registers. The copy "
        "engine loads what is added during the products."
    ),
    build=build,
    cost=common.cost,
    rules=rules,
    tolerance=TOLERANCE,
    tiles=TILES,
    sets=(SMALL, *OTHERS),
    faster=faster,
    units=TENSOR_CORES,
    capability=hopper,
    last_capability=HOPPER,
    not_on_cpu=conv.NO_WGMMA,
    no_scene=mark("the stage shows fusion in FP32; the lesson on Hopper shows a ring of stages"),
)
