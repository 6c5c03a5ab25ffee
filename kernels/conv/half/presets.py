"""Shapes of the FP16 convolution, each with its source: toys, and layers of the FP32 ladder whose channels are multiples of 8."""

from __future__ import annotations

from dataclasses import replace

from kernels.conv.half.shape import HalfShape
from kernels.conv.presets import CONV_PRESETS
from kernels.i18n import mark
from kernels.model.preset import Preset

_FORWARD = (*(f"resnet50-res{stage}-3x3-n{batch}" for batch in (32, 1) for stage in (2, 3, 4, 5)), "resnet50-res2-1x1")


def _half(preset: Preset) -> Preset:
    """Returns a layer of the FP32 ladder under a key of its own."""
    return replace(preset, key=f"fp16-{preset.key}", shape=HalfShape(**preset.shape.params()))


HALF_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "fp16-toy",
            mark("Toy 8×8, 8 channels"),
            HalfShape(1, 8, 8, 8, 8, 3, 3),
            mark("small enough to follow: 8 channels are one copy of 16 bytes"),
        ),
        Preset(
            "fp16-odd",
            mark("Odd extents"),
            HalfShape(3, 72, 13, 11, 40, 3, 2, stride=(2, 3), pad=(2, 1), dilation=(1, 2)),
            mark("no tile divides it: stride, padding and dilation differ by axis"),
        ),
        *(_half(CONV_PRESETS[key]) for key in _FORWARD),
        Preset(
            "fp16-resnet50-res3-stride2-n32",
            mark("ResNet-50 res3 3×3, stride 2, N=32"),
            HalfShape(32, 128, 56, 56, 128, 3, 3, stride=2, pad=1),
            mark("ResNet-50 version 1.5 (NVIDIA, PyTorch): the first 3x3 layer of stage conv3_x, batch 32"),
        ),
    )
}
SWEPT = (
    *(f"fp16-resnet50-res{stage}-3x3-n32" for stage in (2, 3, 4, 5)),
    *(f"fp16-resnet50-res{stage}-3x3-n1" for stage in (4, 5)),
)
