"""Named shapes readers know, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.shapes import ConvShape, GemmShape
from kernels.shapes_attention import AttentionShape


@dataclass(frozen=True)
class Preset:
    """A shape with a name for links (`key`), a label for a chip, and its source."""

    key: str
    label: str
    shape: ConvShape | GemmShape | AttentionShape
    source: str


def _resnet(stage: int, channels: int, size: int, batch: int) -> Preset:
    return Preset(
        f"resnet50-res{stage}-3x3-n{batch}",
        f"ResNet-50 res{stage} 3×3, N={batch}",
        ConvShape(batch, channels, size, size, channels, 3, 3, pad=1),
        f"ResNet-50 (arXiv 1512.03385), stage conv{stage}_x, the 3x3 layer, batch {batch}",
    )


def _resnet_conv1(batch: int) -> Preset:
    return Preset(
        f"resnet50-conv1-n{batch}",
        f"ResNet-50 conv1, N={batch}",
        ConvShape(batch, 3, 224, 224, 64, 7, 7, stride=2, pad=3),
        f"ResNet-50 (arXiv 1512.03385), conv1, batch {batch}",
    )


CONV_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("toy", "Toy 8×8", ConvShape(1, 1, 8, 8, 2, 3, 3), "small enough to follow every number"),
        Preset(
            "cudnn-paper",
            "cuDNN paper",
            ConvShape(1, 3, 3, 3, 2, 2, 2, mode="convolution"),
            "the figure of the cuDNN paper (arXiv 1410.0759): filter matrix 2 x 12, data matrix 12 x 4; the paper flips the filter",
        ),
        Preset(
            "one-tile",
            "6 maps of 8×8, 64 filters",
            ConvShape(1, 6, 8, 8, 64, 3, 3, pad=1),
            "64 filters and 64 output pixels: just a tile of 64 x 64 in a matrix product",
        ),
        Preset(
            "lenet-conv1",
            "LeNet conv1",
            ConvShape(1, 1, 32, 32, 6, 5, 5),
            "LeNet-5, layer C1 (LeCun et al. 1998)",
        ),
        *(_resnet_conv1(batch) for batch in (1, 32)),
        *(
            _resnet(stage, channels, size, batch)
            for batch in (1, 32)
            for stage, channels, size in ((2, 64, 56), (3, 128, 28), (4, 256, 14), (5, 512, 7))
        ),
        Preset(
            "vgg-conv1_2",
            "VGG conv1_2",
            ConvShape(1, 64, 224, 224, 64, 3, 3, pad=1),
            "VGG-16 (arXiv 1409.1556), conv1_2",
        ),
        Preset(
            "resnet50-res2-1x1",
            "1×1",
            ConvShape(1, 256, 56, 56, 64, 1, 1),
            "ResNet-50 (arXiv 1512.03385), stage conv2_x, the 1x1 layer 256 to 64",
        ),
    )
}


# Layers with groups, bias and ReLU, which not every rung can run.
CONV_LAYER_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "vgg-conv1_1", "VGG conv1_1 + bias + ReLU", ConvShape(1, 3, 224, 224, 64, 3, 3, pad=1, bias=1, relu=1),
            "VGG-16 (arXiv 1409.1556), conv1_1 with its bias and ReLU",
        ),
        Preset(
            "resnext50-res2-grouped-n32", "ResNeXt-50 res2, 32 groups, N=32",
            ConvShape(32, 128, 56, 56, 128, 3, 3, pad=1, groups=32),
            "ResNeXt-50 32x4d (arXiv 1611.05431), stage conv2, the grouped 3x3 layer, batch 32",
        ),
        *(
            Preset(
                f"mobilenet-depthwise-n{batch}", f"MobileNet depthwise, N={batch}",
                ConvShape(batch, 512, 14, 14, 512, 3, 3, pad=1, groups=512, bias=1, relu=1),
                "MobileNet (arXiv 1704.04861), the 3x3 depthwise layer of 512 maps 14 x 14, its batch "
                f"normalisation folded into weights and bias, batch {batch}",
            )
            for batch in (1, 32)
        ),
    )
}  # fmt: skip


def _grid(channels: int, size: int, taps: int) -> Preset:
    return Preset(
        f"grid-{taps}x{taps}-c{channels}-h{size}",
        f"{taps}×{taps}, C = K = {channels}, {size}×{size}, N=32",
        ConvShape(32, channels, size, size, channels, taps, taps, pad=taps // 2),
        "a point of the map of winners: batch 32, as many filters as maps, padding that keeps the size",
    )


# Where each algorithm wins: over maps and their size at 3x3, and over the filter's size and the maps' at C = K = 64.
# Recorded only where it is asked for by name (kernels.records.sweep).
CONV_GRID: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        *(_grid(channels, size, 3) for channels in (16, 32, 64, 128, 256, 512) for size in (7, 14, 28, 56, 112)),
        *(_grid(64, size, taps) for taps in (1, 5, 7, 9, 11) for size in (14, 28, 56)),
    )
}  # fmt: skip


def _square(n: int, label: str, source: str, dtype: str = "fp32") -> Preset:
    tail = "" if dtype == "fp32" else f"-{dtype}"
    return Preset(f"square-{n}{tail}", label, GemmShape(n, n, n, dtype=dtype), source)


def _layer(key: str, label: str, M: int, N: int, K: int, source: str) -> Preset:
    """Y = X W^T + b as one product: beta is 1 and C0 holds b in each of its rows."""
    return Preset(key, label, GemmShape(M, N, K, beta=1.0), source)


_GPT2 = "GPT-2 small (Radford et al. 2019), 1,024 tokens, width 768"

GEMM_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        _square(8, "Toy 8×8", "small enough to follow every number"),
        _square(16, "16×16", "four tiles of 8 x 8"),
        _square(64, "64×64", "what every rung runs in the emulator within a second"),
        Preset("odd", "61×45×37", GemmShape(61, 45, 37), "a multiple of nothing: remainders on every side"),
        _square(1024, "1024³", "square, too small to fill a large GPU with large tiles"),
        _square(4096, "4096³", "square, the size at which GEMM kernels are usually compared"),
        Preset(
            "odd-4095",
            "4095×4097×4093",
            GemmShape(4095, 4097, 4093),
            "4096 missed by one or more: rows do not begin on 16 bytes",
        ),
        Preset("tall", "65536×64×64", GemmShape(65_536, 64, 64), "tall and thin: bound by memory"),
        Preset("deep", "64×64×65536", GemmShape(64, 64, 65_536), "few results, long sums: few blocks have work"),
        _layer(
            "fc-vgg16-fc6", "VGG-16 fc6", 32, 4096, 25_088,
            "VGG-16 (arXiv 1409.1556), the first fully connected layer, batch 32",
        ),
        _layer(
            "fc-resnet50", "ResNet-50 fc", 32, 1000, 2048,
            "ResNet-50 (arXiv 1512.03385), the classifier, batch 32",
        ),
        _layer("gpt2-qkv", "GPT-2 QKV", 1024, 2304, 768, f"{_GPT2}: queries, keys and values at once"),
        _layer("gpt2-mlp-up", "GPT-2 MLP up", 1024, 3072, 768, f"{_GPT2}: into the MLP"),
        _layer("gpt2-mlp-down", "GPT-2 MLP down", 1024, 768, 3072, f"{_GPT2}: out of the MLP"),
        *(
            _square(n, f"{n}³ {name}", f"{'small' if n == 64 else 'the same product'}, A and B in {name}", dtype)
            for dtype, name in (("fp16", "FP16"), ("bf16", "BF16"), ("int8", "INT8"))
            for n in (64, 4096)
        ),
    )
}  # fmt: skip
