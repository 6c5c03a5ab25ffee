"""Well-known shapes of softmax."""

from __future__ import annotations

from kernels.model.preset import Preset
from kernels.softmax.shape import SoftmaxShape

SOFTMAX_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("softmax-toy", "Toy 2×8", SoftmaxShape(2, 8), "small enough to follow every number"),
        Preset("softmax-40", "4×40", SoftmaxShape(4, 40), "a warp's width and a quarter: the second turn has 8 lanes"),
        Preset("softmax-128", "128×128", SoftmaxShape(128, 128), "one small head's scores: 64 KB"),
        Preset("softmax-ragged", "1,001×777", SoftmaxShape(1001, 777), "rows that begin anywhere within a sector"),
        Preset(
            "softmax-attention", "8192×1024", SoftmaxShape(8192, 1024),
            "as many scores as 8 heads of attention over 1,024 tokens have: 34 MB",
        ),
        Preset(
            "softmax-large", "32768×1024", SoftmaxShape(32768, 1024),
            "32 heads of 1,024 tokens: 134 MB, beyond the L2 of any GPU",
        ),
        Preset(
            "softmax-gpt2", "GPT-2 vocabulary", SoftmaxShape(64, 50257),
            "GPT-2 (Radford et al. 2019): the scores of its 50,257 tokens, for 64 positions",
        ),
        Preset("softmax-long", "4 long rows", SoftmaxShape(4, 2**20), "4 rows of 2^20: fewer rows than a GPU has SMs"),
    )
}  # fmt: skip
