"""Well-known lists of tensors."""

from __future__ import annotations

from kernels.i18n import mark
from kernels.model.preset import Preset
from kernels.optimizer.shape import OptimizerShape

LENET = "150 6 2400 16 48000 120 10080 84 840 10"


def _resnet18() -> str:
    """Returns the sizes of ResNet-18's 62 tensors (arXiv 1512.03385), 11,689,512 elements: of each convolution its
    filters and the two factors of its batch norm; at the end a matrix and its bias."""
    convolutions = [(3, 64, 7)]
    for depth in (64, 128, 256, 512):
        before = max(64, depth // 2)
        convolutions += [(before, depth, 3), (depth, depth, 3)]
        convolutions += [(before, depth, 1)] if depth > 64 else []  # of the shortcut
        convolutions += [(depth, depth, 3)] * 2
    tensors = [size for C, K, R in convolutions for size in (C * K * R * R, K, K)]
    return " ".join(map(str, (*tensors, 512 * 1000, 1000)))


def _transformer_layer(d: int) -> str:
    """Returns the sizes of the 12 tensors of one layer of GPT-2 of width d: attention's two matrices, the MLP's two, each
    with its bias, and two layer norms."""
    matrices = (d * 3 * d, 3 * d, d * d, d), (d * 4 * d, 4 * d, 4 * d * d, d)
    return " ".join(str(size) for pair in matrices for size in (d, d, *pair))


# Key: label, sizes, source.
_LISTS = {
    "toy": (mark("Toy: 5, 3 and 12"), "5 3 12", mark("three small tensors: every number can be shown")),
    "odd": (mark("odd sizes"), "1 7 64 65 4097 8191", mark("sizes at, below and above the edges of a chunk")),
    "lenet": (mark("LeNet-5"), LENET, mark("LeNet-5 (LeCun et al. 1998): 10 tensors of 61,706 weights")),
    "resnet18": (
        mark("ResNet-18"),
        _resnet18(),
        mark("ResNet-18 (arXiv 1512.03385): 62 tensors of 11,689,512 weights"),
    ),
    "gpt2-layer": (
        mark("GPT-2 small, one layer"),
        _transformer_layer(768),
        mark("GPT-2 small (Radford et al. 2019), one of its 12 layers: 12 tensors of 7,087,872 weights"),
    ),
    "64m": (mark("64 M weights"), f"{2**24}*4", mark("4 tensors of 2^24: far beyond the L2 cache of most GPUs")),
}


def presets(ladder: str, shape: type[OptimizerShape]) -> dict[str, Preset]:
    """Returns the presets of a ladder by key."""
    return {
        f"{ladder}-{key}": Preset(f"{ladder}-{key}", label, shape(sizes), source)
        for key, (label, sizes, source) in _LISTS.items()
    }
