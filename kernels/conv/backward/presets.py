"""Shapes of the two gradients, each with its source: the layers of the forward ladder, and toys with a stride."""

from __future__ import annotations

from dataclasses import replace

from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PADDING, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.model.preset import Preset

_FORWARD = (
    "toy",
    "lenet-conv1",
    "resnet50-conv1-n32",
    *(f"resnet50-res{stage}-3x3-n32" for stage in (2, 3, 4, 5)),
    "vgg-conv1_2",
)


def _backward(preset: Preset) -> Preset:
    """Returns a layer of the forward ladder under a key of its own: a sweep names its presets by key."""
    return replace(preset, key=f"backward-{preset.key}")


BACKWARD_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "backward-stride-toy",
            mark("Toy, stride 2"),
            ConvShape(1, 1, 6, 6, 2, 3, 3, stride=2, pad=1),
            mark("small enough to follow every number; the stride leaves holes in the gradient of the input"),
        ),
        Preset(
            "backward-odd",
            mark("Odd extents"),
            ConvShape(3, 6, 13, 11, 10, 3, 2, stride=(2, 3), pad=(2, 1), dilation=(1, 2), groups=2),
            mark("no tile divides it: stride, padding and dilation differ by axis, two groups"),
        ),
        *(_backward(CONV_PRESETS[key]) for key in _FORWARD),
        Preset(
            "backward-resnet50-res3-stride2-n32",
            mark("ResNet-50 res3 3×3, stride 2, N=32"),
            ConvShape(32, 128, 56, 56, 128, 3, 3, stride=2, pad=1),
            mark("ResNet-50 version 1.5 (NVIDIA, PyTorch): the first 3x3 layer of stage conv3_x, batch 32"),
        ),
        _backward(CONV_LAYER_PRESETS["resnext50-res2-grouped-n32"]),
    )
}

# As CONV_PADDING: recorded if the group is named.
BACKWARD_PADDING: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        _backward(CONV_PADDING[key]) for key in ("signal", "signal-causal", "signal-causal-dilated", "toy-same-stride2")
    )
}
