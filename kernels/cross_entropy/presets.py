"""Well-known shapes of cross-entropy."""

from __future__ import annotations

from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape, CrossEntropyStepShape
from kernels.i18n import mark
from kernels.model.preset import Preset

SIZES = (  # key, label, M, N, source
    ("toy", mark("Toy 3×10"), 3, 10, mark("small enough to follow every number")),
    ("ragged", "61×77", 61, 77, mark("rows that are not aligned to 16 bytes")),
    ("digits", mark("digits, batch 256"), 256, 10, mark("LeNet-5 (LeCun et al. 1998): 10 digits, batch 256")),
    (
        "imagenet",
        mark("ImageNet, batch 256"),
        256,
        1000,
        mark("ResNet-50 (arXiv 1512.03385): the 1,000 classes of ImageNet, batch 256"),
    ),
    (
        "few",
        mark("8 rows of GPT-2"),
        8,
        50257,
        mark("GPT-2 (Radford et al. 2019): 50,257 tokens, 8 rows: fewer rows than a GPU has SMs"),
    ),
    (
        "gpt2",
        mark("GPT-2, 1,024 tokens"),
        1024,
        50257,
        mark(
            "GPT-2 small (Radford et al. 2019): one sequence of 1,024 tokens. 206 MB of logits, larger than the L2 cache"
        ),
    ),
    (
        "llama3",
        mark("Llama 3, 512 tokens"),
        512,
        128256,
        mark("Llama 3 (arXiv 2407.21783): 128,256 tokens, 512 rows. A row of 513 KB fits no SM"),
    ),
    (
        "gpt2-batch",
        mark("GPT-2, 8,192 tokens"),
        8192,
        50257,
        mark("GPT-2 small (Radford et al. 2019): 8 sequences of 1,024 tokens, 1.6 GB of logits"),
    ),
)


def _presets(prefix: str, shape: type[CrossEntropyShape]) -> dict[str, Preset]:
    presets = (Preset(f"{prefix}-{key}", label, shape(M, N), source) for key, label, M, N, source in SIZES)
    return {preset.key: preset for preset in presets}


FORWARD_PRESETS = _presets("ce", CrossEntropyShape)
BACKWARD_PRESETS = _presets("ce-backward", CrossEntropyBackwardShape)
STEP_PRESETS = _presets("ce-step", CrossEntropyStepShape)
