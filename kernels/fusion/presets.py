"""Well-known chains of blocks, each with its source."""

from __future__ import annotations

from kernels.fusion.shape import ChainShape
from kernels.i18n import mark
from kernels.model.preset import Preset


def _maps(key: str, label: str, extents: tuple[int, int, int, int], chain: str, source: str) -> Preset:
    return Preset(key, label, ChainShape(*extents, chain), source)


FUSION_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        _maps(
            "fusion-toy", mark("Toy: conv, bias, BN, ReLU"), (1, 2, 4, 4), "conv:K=2:R=3 bias bn relu",
            mark("two maps of 4 x 4: small enough to follow every number"),
        ),
        _maps(
            "fusion-toy-pool", mark("Toy: BN, ReLU, max pool"), (1, 2, 4, 4), "bn relu maxpool:2",
            mark("two maps of 4 x 4: the pointwise blocks are merged into the pooling after them"),
        ),
        _maps(
            "fusion-ragged", mark("5 maps of 7×9"), (2, 5, 7, 9), "conv:K=3:R=3:stride=2:pad=2 bias relu add maxpool:2",
            mark("odd extents: no tile or block size divides them"),
        ),
        _maps(
            "fusion-bias-bn-relu", mark("bias, BN, ReLU on 56×56, N=64"), (64, 256, 56, 56), "bias bn relu",
            mark("maps as in stage conv2_x of ResNet-50 (arXiv 1512.03385), batch 64: 205 MB, larger than every cache"),
        ),
        _maps(
            "resnet50-res2-end-n64", mark("ResNet-50 res2 end: BN, add, ReLU"), (64, 256, 56, 56), "bn add relu",
            mark("ResNet-50 (arXiv 1512.03385), the end of a block of stage conv2_x after its last convolution, batch 64"),
        ),
        _maps(
            "fusion-eight", mark("eight pointwise blocks"), (64, 256, 56, 56), "bias bn relu add bias bn add relu",
            mark("the longest possible chain: the maps are read and written eight times, or once"),
        ),
        _maps(
            "resnet50-res2-3x3-bn-relu-n32", mark("ResNet-50 res2 3×3 + BN + ReLU"), (32, 64, 56, 56),
            "conv:K=64:R=3 bn relu", mark("ResNet-50 (arXiv 1512.03385), the 3x3 layer of stage conv2_x with batch norm and ReLU, batch 32"),
        ),
        _maps(
            "resnet50-res2-1x1-end-n32", mark("ResNet-50 res2 1×1 to the block's end"), (32, 64, 56, 56),
            "conv:K=256:R=1 bn add relu", mark("ResNet-50 (arXiv 1512.03385), the last layer of a block of stage conv2_x, batch 32"),
        ),
        _maps(
            "resnet50-res4-3x3-bias-bn-relu-n32", mark("ResNet-50 res4 3×3 + bias + BN + ReLU"), (32, 256, 14, 14),
            "conv:K=256:R=3 bias bn relu",
            mark("ResNet-50 (arXiv 1512.03385), the 3x3 layer of stage conv4_x with a bias added, batch 32"),
        ),
        _maps(
            "resnet50-stem-n32", mark("ResNet-50 stem"), (32, 3, 224, 224),
            "conv:K=64:R=7:stride=2 bn relu maxpool:3:stride=2:pad=1", mark("ResNet-50 (arXiv 1512.03385), conv1 with all blocks before conv2_x, batch 32"),
        ),
        _maps(
            "resnet50-end-n64", mark("ResNet-50's last maps to their means"), (64, 2048, 7, 7), "bn add relu gap",
            mark("ResNet-50 (arXiv 1512.03385), the end of stage conv5_x and the global average pooling after it, batch 64"),
        ),
        _maps(
            "vgg-conv2_2-pool-n8", mark("VGG-16 conv2_2 to its pool"), (8, 128, 112, 112), "conv:K=128:R=3 bias relu maxpool:2",
            mark("VGG-16 (arXiv 1409.1556), conv2_2, its bias and ReLU, and the pooling after it, batch 8"),
        ),
        _maps(
            "densenet121-transition-n32", mark("DenseNet-121 transition"), (32, 256, 56, 56),
            "bn relu conv:K=128:R=1 avgpool:2", mark("DenseNet-121 (arXiv 1608.06993), the first transition, batch 32"),
        ),
    )
}  # fmt: skip
