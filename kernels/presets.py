"""Named shapes readers know, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.shapes import ConvShape


@dataclass(frozen=True)
class Preset:
    """A shape with a name for links (`key`), a label for a chip, and its source."""

    key: str
    label: str
    shape: ConvShape
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
