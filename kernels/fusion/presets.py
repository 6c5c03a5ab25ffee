"""Well-known chains of blocks, each with its source."""

from __future__ import annotations

from kernels.fusion.shape import ChainShape
from kernels.model.preset import Preset

_RESNET = "ResNet-50 (arXiv 1512.03385)"


def _maps(key: str, label: str, extents: tuple[int, int, int, int], chain: str, source: str) -> Preset:
    return Preset(key, label, ChainShape(*extents, chain), source)


FUSION_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        _maps(
            "fusion-toy", "Toy: conv, bias, BN, ReLU", (1, 2, 4, 4), "conv:K=2:R=3 bias bn relu",
            "two maps of 4 x 4: small enough to follow every number",
        ),
        _maps(
            "fusion-toy-pool", "Toy: BN, ReLU, max pool", (1, 2, 4, 4), "bn relu maxpool:2",
            "two maps of 4 x 4: what is pointwise rides on the pool that reads it",
        ),
        _maps(
            "fusion-ragged", "5 maps of 7×9", (2, 5, 7, 9), "conv:K=3:R=3:stride=2:pad=2 bias relu add maxpool:2",
            "a multiple of nothing: remainders on every side",
        ),
        _maps(
            "fusion-bias-bn-relu", "bias, BN, ReLU on 56×56, N=64", (64, 256, 56, 56), "bias bn relu",
            f"maps as stage conv2_x of {_RESNET} has them, batch 64: 205 MB, beyond every cache",
        ),
        _maps(
            "resnet50-res2-end-n64", "ResNet-50 res2 end: BN, add, ReLU", (64, 256, 56, 56), "bn add relu",
            f"{_RESNET}, the end of a block of stage conv2_x behind its last convolution, batch 64",
        ),
        _maps(
            "fusion-eight", "eight pointwise blocks", (64, 256, 56, 56), "bias bn relu add bias bn add relu",
            "the longest chain there is: eight trips through memory or one",
        ),
        _maps(
            "resnet50-res2-3x3-bn-relu-n32", "ResNet-50 res2 3×3 + BN + ReLU", (32, 64, 56, 56),
            "conv:K=64:R=3 bn relu", f"{_RESNET}, the 3x3 layer of stage conv2_x with what follows it, batch 32",
        ),
        _maps(
            "resnet50-res2-1x1-end-n32", "ResNet-50 res2 1×1 to the block's end", (32, 64, 56, 56),
            "conv:K=256:R=1 bn add relu", f"{_RESNET}, the last layer of a block of stage conv2_x, batch 32",
        ),
        _maps(
            "resnet50-res4-3x3-bias-bn-relu-n32", "ResNet-50 res4 3×3 + bias + BN + ReLU", (32, 256, 14, 14),
            "conv:K=256:R=3 bias bn relu",
            f"{_RESNET}, the 3x3 layer of stage conv4_x, with a bias, which its batch norm makes needless, batch 32",
        ),
        _maps(
            "resnet50-stem-n32", "ResNet-50 stem", (32, 3, 224, 224),
            "conv:K=64:R=7:stride=2 bn relu maxpool:3:stride=2:pad=1", f"{_RESNET}, conv1 with all before conv2_x, batch 32",
        ),
        _maps(
            "resnet50-end-n64", "ResNet-50's last maps to their means", (64, 2048, 7, 7), "bn add relu gap",
            f"{_RESNET}, the end of stage conv5_x and the global average pooling behind it, batch 64",
        ),
        _maps(
            "vgg-conv2_2-pool-n8", "VGG-16 conv2_2 to its pool", (8, 128, 112, 112), "conv:K=128:R=3 bias relu maxpool:2",
            "VGG-16 (arXiv 1409.1556), conv2_2, its bias and ReLU, and the pool behind it, batch 8",
        ),
        _maps(
            "densenet121-transition-n32", "DenseNet-121 transition", (32, 256, 56, 56),
            "bn relu conv:K=128:R=1 avgpool:2", "DenseNet-121 (arXiv 1608.06993), the first transition, batch 32",
        ),
    )
}  # fmt: skip
