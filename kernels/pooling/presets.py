"""Well-known shapes of pooling."""

from __future__ import annotations

from kernels.i18n import mark
from kernels.model.preset import Preset
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape

MAX_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("maxpool-toy", mark("Toy 5×5, windows overlap"), MaxPoolShape(1, 1, 5, 5, 3, 3, stride=2, pad=1), mark("small enough to follow every number")),
        Preset("maxpool-odd", "2×3×13×11", MaxPoolShape(2, 3, 13, 11, 3, 2, stride=(2, 1), pad=1, dilation=(2, 1), ceil=1), mark("odd extents, dilation and ceil mode: no vector load is aligned")),
        Preset("maxpool-lenet", mark("LeNet-5, N=64"), MaxPoolShape(64, 6, 28, 28, 2, 2), mark("LeNet-5 (LeCun et al. 1998), after the first convolution: windows do not overlap")),
        Preset("maxpool-resnet50", mark("ResNet-50 stem, N=32"), MaxPoolShape(32, 64, 112, 112, 3, 3, stride=2, pad=1), mark("ResNet-50 (arXiv 1512.03385), after conv1: 3 × 3 windows, stride 2")),
        Preset("maxpool-large", "64×256×56×56", MaxPoolShape(64, 256, 56, 56, 3, 3, stride=2, pad=1), mark("308 MB of x, y and indices: larger than the L2 cache")),
    )
}  # fmt: skip
AVG_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("avgpool-toy", mark("Toy 5×5, windows overlap"), AvgPoolShape(1, 1, 5, 5, 3, 3, stride=2, pad=1), mark("small enough to follow every number")),
        Preset("avgpool-odd", "2×3×13×11", AvgPoolShape(2, 3, 13, 11, 4, 3, stride=(3, 2), pad=(2, 1), ceil=1, include_pad=0), mark("odd extents, ceil mode, padding not counted: no vector load is aligned")),
        Preset("avgpool-densenet", mark("DenseNet-121 transition, N=32"), AvgPoolShape(32, 128, 56, 56, 2, 2), mark("DenseNet-121 (arXiv 1608.06993), first transition: 2 × 2 windows, stride 2")),
        Preset("avgpool-inception", mark("Inception-v3, N=32"), AvgPoolShape(32, 192, 35, 35, 3, 3, stride=1, pad=1), mark("Inception-v3 (arXiv 1512.00567), pooling branch at 35 × 35: each pixel is in up to 9 windows")),
        Preset("avgpool-large", "64×256×56×56", AvgPoolShape(64, 256, 56, 56, 3, 3, stride=2, pad=1), mark("257 MB of x and y: larger than the L2 cache")),
    )
}  # fmt: skip
GLOBAL_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("gap-toy", mark("Toy 2×2×4×5"), GlobalShape(2, 2, 4, 5), mark("small enough to follow every number")),
        Preset("gap-odd", "3×37×9×7", GlobalShape(3, 37, 9, 7), mark("planes of 63 floats: they begin inside a sector (32 bytes)")),
        Preset("gap-resnet50", mark("ResNet-50 head, N=32"), GlobalShape(32, 2048, 7, 7), mark("ResNet-50 (arXiv 1512.03385), before the classifier: 65,536 planes of 49 pixels")),
        Preset("gap-small-planes", "512×2048×7×7", GlobalShape(512, 2048, 7, 7), mark("210 MB in planes of 49 pixels: larger than the L2 cache")),
        Preset("gap-large", "64×256×56×56", GlobalShape(64, 256, 56, 56), mark("206 MB in planes of 3,136 pixels: larger than the L2 cache")),
    )
}  # fmt: skip
