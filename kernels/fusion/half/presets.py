"""Chains in FP16, each with its source: a toy, odd extents, and ResNet-50's chains of the FP32 ladder."""

from __future__ import annotations

from dataclasses import replace

from kernels.fusion.half.shape import HalfChainShape
from kernels.fusion.presets import FUSION_PRESETS
from kernels.i18n import mark
from kernels.model.preset import Preset

SWEPT = tuple(
    f"fp16-{key}"
    for key in ("resnet50-res2-3x3-bn-relu-n32", "resnet50-res2-1x1-end-n32", "resnet50-res4-3x3-bias-bn-relu-n32")
)


def _half(key: str) -> Preset:
    """Returns a chain of the FP32 ladder under a key of its own."""
    preset = FUSION_PRESETS[key.removeprefix("fp16-")]
    return replace(preset, key=key, shape=HalfChainShape(**preset.shape.params()))


HALF_CHAIN_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "fp16-chain-toy",
            mark("Toy 8×8, 8 channels"),
            HalfChainShape(1, 8, 8, 8, "conv:K=8:R=3 bias bn relu"),
            mark("small enough to follow: 8 channels are one copy of 16 bytes"),
        ),
        Preset(
            "fp16-chain-odd",
            mark("Odd extents"),
            HalfChainShape(3, 72, 13, 11, "conv:K=40:R=3:stride=2 bn add relu"),
            mark("no tile divides it: rows, columns and channels"),
        ),
        *map(_half, SWEPT),
    )
}
