"""A chain of blocks (convolution, bias, batch norm, ReLU, add, pooling): a launch for each, with the maps between them in
HBM, compared with as few launches as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from kernels.conv.implicit import IMPLICIT_TILES, tile_rules
from kernels.fusion import codegen, cpu, library
from kernels.fusion import common as parts
from kernels.fusion.common import ComputedBlock, Part, Plan
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.reference import TOLERANCE, chain
from kernels.fusion.shape import Block, ChainShape, Stage, parse_chain
from kernels.i18n import mark, tr
from kernels.model.launch import ampere, ceil, launch, rung_factory
from kernels.model.program import WORKSPACE, Buffer, Program, Tiles
from kernels.model.revealing import variances
from kernels.model.rules import MAX_GRID_YZ, index_rules, max_rules
from kernels.model.rung import Cost, Ladder, Rung

TILES = {"BLOCK": (256, 128, 512), "FOURS": (1, 2, 4)}  # FOURS: float4 per thread of a pointwise kernel

IMPLICIT_SETS = ({"BM": 32, "BN": 32, "TN": 4},)  # small enough to watch


# -- plans: what each rung launches -------------------------------------------------------------------------
def unfused(s: ChainShape, tiles: Tiles) -> Plan:
    """Plan a hand-written kernel for each block, with the maps after each block in HBM."""
    groups = [codegen.Group(n, (block.kind,)) for n, block in enumerate(s.blocks)]
    return parts.plan(s, parts.computed_blocks(s), groups, tiles)


def fused(s: ChainShape, tiles: Tiles) -> Plan:
    """Plan a kernel for each group (kernels.fusion.codegen.groups), generated if blocks share it.

    Only the maps between groups are in HBM.
    """
    return _fused(s, parts.computed_blocks(s), tiles)


def _fused(s: ChainShape, blocks: tuple[ComputedBlock, ...], tiles: Tiles) -> Plan:
    return parts.plan(s, blocks, codegen.groups([p.stage.block.kind for p in blocks]), tiles)


def implicit(s: ChainShape, tiles: Tiles) -> Plan:
    """Plan the launches of `fused`, with each convolution as a matrix product (implicit GEMM)."""
    groups = codegen.groups([block.kind for block in s.blocks], implicit=True)
    return parts.plan(s, parts.computed_blocks(s), groups, tiles)


def folds(s: ChainShape) -> tuple[tuple[int, int], ...]:
    """Returns the pairs that can be folded: (number of a convolution, number of the batch norm after it).

    At most a bias is between them.
    """
    kinds, pairs = [block.kind for block in s.blocks], []
    for at, kind in enumerate(kinds):
        norm_at = at + 1 + (kinds[at + 1 : at + 2] == ["bias"])
        if kind == "conv" and kinds[norm_at : norm_at + 1] == ["bn"]:
            pairs.append((at, norm_at))
    return tuple(pairs)


def folded(s: ChainShape, tiles: Tiles) -> Plan:
    """Plan the launches that fold, then the generated kernels of the chain.

    In the chain a bias replaces each folded batch norm. At inference the folding is done once for all images, so its
    times are listed separately as "fold".
    """
    blocks, folded_buffers, fold_launches = list(parts.computed_blocks(s)), [], []
    for n, (conv, bn) in reversed([*enumerate(folds(s), 1)]):
        folded_pair = (
            Buffer(f"w_folded{n}", WORKSPACE, s.stages[conv].tensors["w"]),
            Buffer(f"b_folded{n}", WORKSPACE, s.stages[bn].tensors["mean"]),
        )
        fold_launches.insert(0, _fold(blocks[conv : bn + 1], *folded_pair, tiles))
        bias = Stage(conv + 1, Block("bias"), s.stages[bn].before, s.stages[bn].after)
        blocks[conv : bn + 1] = (
            replace(blocks[conv], tensors=(folded_pair[0].name,)),
            ComputedBlock(bias, (folded_pair[1].name,), tuple(range(conv + 1, bn + 1))),
        )
        folded_buffers += folded_pair
    plan = _fused(s, tuple(blocks), tiles)
    return Plan((*plan.buffers, *folded_buffers), parts.with_labels((*fold_launches, *plan.parts)))


def _fold(blocks: list[ComputedBlock], w: Buffer, b: Buffer, tiles: Tiles) -> Part:
    """Returns the launch that folds. `blocks` are a convolution, an optional bias, and a batch norm."""
    conv, *bias, bn = blocks
    (weights,) = conv.tensors
    K, count = b.shape[0], w.nbytes // 4
    args = (
        weights,
        bias[0].tensors[0] if bias else weights,
        *bn.tensors,
        b.name,
        w.name,
        np.int32(K),
        np.int32(count // K),
        np.int32(len(bias)),
        np.float32(bn.stage.block.eps),
    )
    step = launch("fusion/09_fold.cu", (ceil(count, tiles["BLOCK"]),), tiles["BLOCK"], args, cpu.fold)
    numbers = tuple(at for block in blocks for at in block.blocks)
    return Part(step, numbers, w.nbytes + (4 + len(bias)) * b.nbytes, w.nbytes + b.nbytes, count + 6 * K)


# Rung name: function that plans its launches at a shape and tile sizes.
PLANS: dict[str, Callable[[ChainShape, Tiles], Plan]] = {
    "fusion/unfused": unfused,
    "fusion/fused": fused,
    "fusion/folded": folded,
    "fusion/implicit-gemm": implicit,
}


# -- rungs ---------------------------------------------------------------------------------------------------
def folded_rules(s: ChainShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.rules(s, tiles)
    if not folds(s):
        yield tr(
            "the chain has no batch norm that can be folded: only a bias may be between it and the convolution before it"
        )


def implicit_rules(s: ChainShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.rules(s, tiles)
    yield from tile_rules(tiles)
    convs = [stage for stage in s.stages if stage.block.kind == "conv"]
    if not convs:
        yield tr("the chain has no convolution")
    for stage in convs:
        yield from max_rules(tr("K/BM blocks (grid.y)"), ceil(stage.block.K, tiles["BM"]), MAX_GRID_YZ)
        yield from index_rules({"C*R*R": math.prod(stage.tensors["w"][1:])}, tiles["STAGES"] * tiles["BK"])


def _rung(name: str, title: str, idea: str, rules, tiles=TILES, *sets: Tiles, **facts) -> Rung:
    plan = PLANS[f"fusion/{name}"]

    def cost(s: ChainShape, program: Program) -> Cost:
        """Returns the FLOPs and, if caches are perfect, the bytes of the launches, and the bytes of the maps between."""
        launches = plan(s, {tile: choices[0] for tile, choices in tiles.items()}).parts  # tiles change none of it
        return Cost(
            sum(part.flops for part in launches), sum(part.bytes for part in launches), program.nbytes(WORKSPACE)
        )

    def build(s: ChainShape, tiles: Tiles) -> Program:
        return plan(s, tiles).program

    return rung_factory("fusion", cost, TOLERANCE)(name, title, idea, build, rules, tiles, *sets, **facts)


RUNGS = (
    _rung(
        "unfused",
        mark("one launch per block"),
        mark(
            "Each block is a kernel of its own. It reads the maps that the kernel before it wrote, and writes "
            "maps again."
        ),
        parts.rules,
        cpu_title=mark("one block at a time, over all maps"),
    ),
    _rung(
        "fused",
        mark("fused"),
        mark(
            "Pointwise blocks are merged into the kernel before them, or the pooling after them; values stay in "
            "registers. The kernels are generated from the chain."
        ),
        parts.rules,
        cpu_title=mark("fused: all blocks on a piece in the cache"),
    ),
    _rung(
        "folded",
        mark("batch norm folded, fused"),
        mark(
            "Batch norm is folded once into the weights and the bias of the convolution before it. The rest of "
            "the chain is fused."
        ),
        folded_rules,
        cpu_title=mark("batch norm folded, fused"),
    ),
    _rung(
        "implicit-gemm",
        mark("fused, implicit GEMM"),
        mark(
            "Each convolution is one matrix product (implicit GEMM). The blocks after it are applied to its sums "
            "in registers. The other kernels are those of the fused chain."
        ),
        implicit_rules,
        IMPLICIT_TILES,
        *IMPLICIT_SETS,
        capability=ampere,
        not_on_cpu=mark("its NumPy steps are those of the fused chain"),
    ),
)

LADDER = Ladder(
    name="fusion",
    shape=ChainShape,
    parse=parse_chain,
    reference=chain,
    revealing=variances,
    presets=FUSION_PRESETS,
    rungs=(*RUNGS, *library.RUNGS),
    swept=("fusion-bias-bn-relu", "resnet50-res2-end-n64"),
)
