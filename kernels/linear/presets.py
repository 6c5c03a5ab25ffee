"""Well-known shapes of fully connected layers."""

from __future__ import annotations

from kernels.i18n import mark
from kernels.linear.shape import InputGradientShape, LinearShape, WeightGradientShape
from kernels.model.preset import Preset

SIZES = (  # key, label, M, N, K, source
    ("toy", mark("Toy 6×8×10"), 6, 8, 10, mark("small enough to follow every number")),
    ("ragged", "61×45×37", 61, 45, 37, mark("a multiple of no tile size: the last tiles are partly empty")),
    ("lenet", "LeNet-5 F6", 256, 84, 120, mark("LeNet-5 (LeCun et al. 1998): 120 inputs, 84 outputs, batch 256")),
    ("resnet50", "ResNet-50 fc", 32, 1000, 2048, mark("ResNet-50 (arXiv 1512.03385): the classifier, batch 32")),
    (
        "resnet50-n256",
        mark("ResNet-50 fc, batch 256"),
        256,
        1000,
        2048,
        mark("ResNet-50 (arXiv 1512.03385): the classifier, batch 256"),
    ),
    (
        "gpt2-qkv",
        "GPT-2 QKV",
        1024,
        2304,
        768,
        mark("GPT-2 small (Radford et al. 2019), 1,024 tokens: queries, keys and values in one product"),
    ),
    (
        "gpt2-up",
        mark("GPT-2 MLP up"),
        1024,
        3072,
        768,
        mark("GPT-2 small (Radford et al. 2019), 1,024 tokens: the first product of the MLP"),
    ),
    (
        "gpt2-down",
        mark("GPT-2 MLP down"),
        1024,
        768,
        3072,
        mark("GPT-2 small (Radford et al. 2019), 1,024 tokens: the second product of the MLP"),
    ),
    (
        "gpt2-head",
        mark("GPT-2 logits"),
        1024,
        50257,
        768,
        mark("GPT-2 small (Radford et al. 2019), 1,024 tokens: 50,257 logits each, 206 MB, larger than the L2 cache"),
    ),
)


def _presets(prefix: str, shape: type[LinearShape]) -> dict[str, Preset]:
    presets = (Preset(f"{prefix}-{key}", label, shape(M, N, K), source) for key, label, M, N, K, source in SIZES)
    return {preset.key: preset for preset in presets}


LINEAR_PRESETS = _presets("linear", LinearShape)
DINPUT_PRESETS = _presets("linear-dinput", InputGradientShape)
DWEIGHT_PRESETS = _presets("linear-dweight", WeightGradientShape)
