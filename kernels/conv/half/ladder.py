"""Convolution, forward, FP16 with the channels last (NHWC): implicit GEMM on the tensor cores, and cuDNN's."""

from __future__ import annotations

from kernels.conv.half import hopper, library, mma, reference
from kernels.conv.half.presets import HALF_PRESETS, SWEPT
from kernels.conv.half.shape import HalfShape, parse_half
from kernels.conv.shape import CONV_SINCE, EXTRA_SINCE
from kernels.i18n import mark
from kernels.model.rung import Ladder

LADDER = Ladder(
    name="conv-fp16",
    work=mark("direct convolution"),
    inputs=mark("input + filters"),
    matching=("R", "S", "u", "v", "dilation_h", "dilation_w", "mode", "groups", *EXTRA_SINCE),
    later_fields=CONV_SINCE,
    shape=HalfShape,
    parse=parse_half,
    reference=reference.conv,
    presets=HALF_PRESETS,
    rungs=(mma.RUNG, *hopper.RUNGS, library.RUNG),
    swept=SWEPT,
)
