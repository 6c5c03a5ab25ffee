"""Chains that begin with a convolution, in FP16 with the channels last (NHWC): one kernel on the tensor cores, and PyTorch."""

from __future__ import annotations

from kernels.fusion.half import hopper, library, reference
from kernels.fusion.half.presets import HALF_CHAIN_PRESETS, SWEPT
from kernels.fusion.half.shape import HalfChainShape, parse_half_chain
from kernels.model.revealing import variances
from kernels.model.rung import Ladder

LADDER = Ladder(
    name="fusion-fp16",
    shape=HalfChainShape,
    parse=parse_half_chain,
    reference=reference.chain,
    revealing=variances,
    presets=HALF_CHAIN_PRESETS,
    rungs=(hopper.RUNG, *library.RUNGS),
    swept=SWEPT,
)
