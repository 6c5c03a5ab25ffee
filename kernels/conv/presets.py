"""Well-known convolution shapes, each with its source."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.model.preset import Preset


def _resnet(stage: int, channels: int, size: int, batch: int) -> Preset:
    return Preset(
        f"resnet50-res{stage}-3x3-n{batch}",
        f"ResNet-50 res{stage} 3×3, N={batch}",
        ConvShape(batch, channels, size, size, channels, 3, 3, pad=1),
        mark("ResNet-50 (arXiv 1512.03385), stage {stage}, the 3x3 layer, batch {batch}"),
        {"stage": f"conv{stage}_x", "batch": batch},
    )


def _resnet_conv1(batch: int) -> Preset:
    return Preset(
        f"resnet50-conv1-n{batch}",
        f"ResNet-50 conv1, N={batch}",
        ConvShape(batch, 3, 224, 224, 64, 7, 7, stride=2, pad=3),
        mark("ResNet-50 (arXiv 1512.03385), conv1, batch {batch}"),
        {"batch": batch},
    )


CONV_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("toy", mark("Toy 8×8"), ConvShape(1, 1, 8, 8, 2, 3, 3), mark("small enough to follow every number")),
        Preset(
            "cudnn-paper",
            mark("cuDNN paper"),
            ConvShape(1, 3, 3, 3, 2, 2, 2, mode="convolution"),
            mark(
                "the figure of the cuDNN paper (arXiv 1410.0759): filter matrix 2 x 12, data matrix 12 x 4; the paper flips the "
                "filter"
            ),
        ),
        Preset(
            "one-tile",
            mark("6 maps of 8×8, 64 filters"),
            ConvShape(1, 6, 8, 8, 64, 3, 3, pad=1),
            mark("64 filters and 64 output pixels: one tile of 64 x 64 in a matrix product"),
        ),
        Preset(
            "lenet-conv1",
            "LeNet conv1",
            ConvShape(1, 1, 32, 32, 6, 5, 5),
            mark("LeNet-5, layer C1 (LeCun et al. 1998)"),
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
            mark("ResNet-50 (arXiv 1512.03385), stage conv2_x, the 1x1 layer 256 to 64"),
        ),
    )
}


# Layers with groups, bias and ReLU, which not every rung can run.
CONV_LAYER_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "vgg-conv1_1",
            mark("VGG conv1_1 + bias + ReLU"),
            ConvShape(1, 3, 224, 224, 64, 3, 3, pad=1, bias=1, relu=1),
            mark("VGG-16 (arXiv 1409.1556), conv1_1 with its bias and ReLU"),
        ),
        Preset(
            "resnext50-res2-grouped-n32",
            mark("ResNeXt-50 res2, 32 groups, N=32"),
            ConvShape(32, 128, 56, 56, 128, 3, 3, pad=1, groups=32),
            mark("ResNeXt-50 32x4d (arXiv 1611.05431), stage conv2, the grouped 3x3 layer, batch 32"),
        ),
        *(
            Preset(
                f"mobilenet-depthwise-n{batch}",
                mark("MobileNet depthwise, N={batch}"),
                ConvShape(batch, 512, 14, 14, 512, 3, 3, pad=1, groups=512, bias=1, relu=1),
                mark(
                    "MobileNet (arXiv 1704.04861), the 3x3 depthwise layer of 512 maps 14 x 14, with batch normalisation "
                    "folded into weights and bias, batch {batch}"
                ),
                {"batch": batch},
            )
            for batch in (1, 32)
        ),
    )
}


# Padding that differs at the two ends of an axis, and 1-D layers (H = R = 1). A sweep records them if it names their group
# (kernels.sweep). cuDNN pads both ends equally, so it runs none whose ends differ.
CONV_PADDING: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "signal",
            mark("1-D, 64 samples"),
            ConvShape(1, 1, 1, 64, 2, 1, 5),
            mark("a 1-D convolution has one row: 64 samples, filters of 5 taps"),
        ),
        Preset(
            "signal-causal",
            mark("1-D, causal"),
            ConvShape(1, 1, 1, 64, 2, 1, 5, pad=(0, 4), extra=(0, -4)),
            mark("causal: all zeros are before the samples, so output q reads no sample after q"),
        ),
        Preset(
            "signal-causal-dilated",
            mark("1-D, causal, dilation 4"),
            ConvShape(1, 1, 1, 64, 2, 1, 3, pad=(0, 8), extra=(0, -8), dilation=(1, 4)),
            mark("causal with dilation 4: output q reads the samples q, q - 4 and q - 8"),
        ),
        Preset(
            "toy-same-stride2",
            mark("Toy 8×8, zeros after"),
            ConvShape(1, 1, 8, 8, 2, 3, 3, stride=2, extra=1),
            mark("TensorFlow's padding SAME at stride 2: no zeros before the input, one row and one column after it"),
        ),
        Preset(
            "toy-causal-rows",
            mark("Toy 8×8, zeros above"),
            ConvShape(1, 1, 8, 8, 2, 3, 3, pad=(2, 1), extra=(-2, 0)),
            mark("causal in its rows: all zeros of a column are above, so output row p reads no row below p"),
        ),
        Preset(
            "mobilenet-conv1-same-n32",
            mark("MobileNet conv1, zeros after"),
            ConvShape(32, 3, 224, 224, 32, 3, 3, stride=2, extra=1),
            mark(
                "MobileNet (arXiv 1704.04861), the first layer with TensorFlow's padding SAME: zeros only after, batch 32"
            ),
        ),
        Preset(
            "causal-c64-n32",
            mark("1-D, causal, 64 maps"),
            ConvShape(32, 64, 1, 512, 64, 1, 7, pad=(0, 6), extra=(0, -6)),
            mark("a causal layer over 512 samples: 64 maps, 7 taps, batch 32"),
        ),
    )
}


def _grid(channels: int, size: int, taps: int) -> Preset:
    return Preset(
        f"grid-{taps}x{taps}-c{channels}-h{size}",
        f"{taps}×{taps}, C = K = {channels}, {size}×{size}, N=32",
        ConvShape(32, channels, size, size, channels, taps, taps, pad=taps // 2),
        mark("a point of the map of winners: batch 32, as many filters as maps, padding that keeps the size"),
    )


# Shapes for the map of the fastest algorithm: over maps and their size at 3x3, and over the filter's size and the
# maps' size at C = K = 64. Recorded only if requested by name (kernels.sweep).
CONV_GRID: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        *(_grid(channels, size, 3) for channels in (16, 32, 64, 128, 256, 512) for size in (7, 14, 28, 56, 112)),
        *(_grid(64, size, taps) for taps in (1, 5, 7, 9, 11) for size in (14, 28, 56)),
    )
}
