"""A chain of blocks (convolution, bias, batch norm, ReLU, add, pooling): a launch for each, with the maps between them in
HBM, against as few launches as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from kernels.fusion import codegen, cpu, library
from kernels.fusion import common as parts
from kernels.fusion.common import Part, Placed, Plan
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.reference import TOLERANCE, chain
from kernels.fusion.shape import Block, ChainShape, Stage, parse_chain
from kernels.model.launch import ceil, launch, rungs_of
from kernels.model.program import WORKSPACE, Buffer, Program, Tiles
from kernels.model.rung import Cost, Ladder, Rung

TILES = {"BLOCK": (256, 128, 512), "FOURS": (1, 2, 4)}  # FOURS: float4 of a thread of a pointwise kernel


# -- plans: what each rung launches -------------------------------------------------------------------------
def unfused(s: ChainShape, tiles: Tiles) -> Plan:
    """A hand-written kernel a block; the maps after each block in HBM."""
    groups = [codegen.Group(n, (block.kind,)) for n, block in enumerate(s.blocks)]
    return parts.plan(s, parts.placed(s), groups, tiles)


def fused(s: ChainShape, tiles: Tiles) -> Plan:
    """A kernel a group (kernels.fusion.codegen.groups), written where blocks share one; maps in HBM between groups alone."""
    return _fused(s, parts.placed(s), tiles)


def _fused(s: ChainShape, of: tuple[Placed, ...], tiles: Tiles) -> Plan:
    return parts.plan(s, of, codegen.groups([p.stage.block.kind for p in of]), tiles)


def folds(s: ChainShape) -> tuple[tuple[int, int], ...]:
    """(number of a convolution, number of a batch norm behind it with at most a bias between): what can be folded."""
    kinds, found = [block.kind for block in s.blocks], []
    for at, kind in enumerate(kinds):
        behind = at + 1 + (kinds[at + 1 : at + 2] == ["bias"])
        if kind == "conv" and kinds[behind : behind + 1] == ["bn"]:
            found.append((at, behind))
    return tuple(found)


def folded(s: ChainShape, tiles: Tiles) -> Plan:
    """First the launches that fold, then the written kernels of the chain in which a bias stands for each batch norm
    that was folded. At inference the first are done once for all images: their times stand apart, under "fold"."""
    of, kept, first = list(parts.placed(s)), [], []
    for n, (conv, bn) in reversed([*enumerate(folds(s), 1)]):
        made = (
            Buffer(f"w_folded{n}", WORKSPACE, s.stages[conv].tensors["w"]),
            Buffer(f"b_folded{n}", WORKSPACE, s.stages[bn].tensors["mean"]),
        )
        first.insert(0, _fold(of[conv : bn + 1], *made, tiles))
        bias = Stage(conv + 1, Block("bias"), s.stages[bn].before, s.stages[bn].after)
        of[conv : bn + 1] = (
            replace(of[conv], tensors=(made[0].name,)),
            Placed(bias, (made[1].name,), tuple(range(conv + 1, bn + 1))),
        )
        kept += made
    plan = _fused(s, tuple(of), tiles)
    return Plan((*plan.buffers, *kept), parts.told_apart((*first, *plan.parts)))


def _fold(of: list[Placed], w: Buffer, b: Buffer, tiles: Tiles) -> Part:
    """The launch that folds: `of` are a convolution, perhaps a bias, and a batch norm."""
    conv, *bias, bn = of
    (weights,) = conv.tensors
    K, count = b.shape[0], w.nbytes // 4
    args = (
        weights, bias[0].tensors[0] if bias else weights, *bn.tensors, b.name, w.name,
        np.int32(K), np.int32(count // K), np.int32(len(bias)), np.float32(bn.stage.block.eps),
    )  # fmt: skip
    step = launch("fusion/09_fold.cu", (ceil(count, tiles["BLOCK"]),), tiles["BLOCK"], args, cpu.fold)
    blocks = tuple(at for block in of for at in block.blocks)
    return Part(step, blocks, w.nbytes + (4 + len(bias)) * b.nbytes, w.nbytes + b.nbytes, count + 6 * K)


# By a rung's name: what it launches at a shape and tile sizes, launch by launch.
PLANS: dict[str, Callable[[ChainShape, Tiles], Plan]] = {
    "fusion/unfused": unfused,
    "fusion/fused": fused,
    "fusion/folded": folded,
}


# -- rungs ---------------------------------------------------------------------------------------------------
def folded_rules(s: ChainShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.rules(s, tiles)
    if not folds(s):
        yield "a batch norm is folded into the convolution before it, with at most a bias between; there is no such pair"


def _rung(name: str, title: str, idea: str, rules) -> Rung:
    plan = PLANS[f"fusion/{name}"]

    def cost(s: ChainShape, program: Program) -> Cost:
        """What the launches execute and move if caches are perfect, and the maps between them."""
        told = plan(s, {tile: choices[0] for tile, choices in TILES.items()}).parts  # tiles change none of it
        return Cost(
            sum(part.flops for part in told), sum(part.bytes for part in told), program.nbytes(WORKSPACE)
        )

    def build(s: ChainShape, tiles: Tiles) -> Program:
        return plan(s, tiles).program

    return rungs_of("fusion", cost, TOLERANCE)(name, title, idea, build, rules, TILES)


RUNGS = (
    _rung(
        "unfused",
        "a launch a block",
        "Every block is a kernel of its own: it reads the maps the one before it wrote, and writes them again.",
        parts.rules,
    ),
    _rung(
        "fused",
        "fused",
        "Pointwise blocks ride in registers on the kernel before or the pool behind them; the kernels are written "
        "from the chain.",
        parts.rules,
    ),
    _rung(
        "folded",
        "batch norm folded, fused",
        "Batch norm goes into the weights and the bias of the convolution before it, once; what is left is fused.",
        folded_rules,
    ),
)

LADDER = Ladder(
    name="fusion",
    shape=ChainShape,
    parse=parse_chain,
    reference=chain,
    presets=FUSION_PRESETS,
    rungs=(*RUNGS, *library.RUNGS),
    swept=("fusion-bias-bn-relu", "resnet50-res2-end-n64"),
)
