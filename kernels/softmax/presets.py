"""Well-known shapes of softmax."""

from __future__ import annotations

from kernels.i18n import mark
from kernels.model.preset import Preset
from kernels.softmax.shape import SoftmaxShape

SOFTMAX_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("softmax-toy", mark("Toy 2×8"), SoftmaxShape(2, 8), mark("small enough to follow every number")),
        Preset("softmax-40", "4×40", SoftmaxShape(4, 40), mark("40 elements per row: after 32, only 8 lanes of a warp have work")),
        Preset("softmax-128", "128×128", SoftmaxShape(128, 128), mark("the scores of one small head: 64 KB")),
        Preset("softmax-ragged", "1,001×777", SoftmaxShape(1001, 777), mark("rows that are not aligned to sectors (32 bytes)")),
        Preset(
            "softmax-attention", "8192×1024", SoftmaxShape(8192, 1024),
            mark("as many scores as 8 heads of attention over 1,024 tokens: 34 MB"),
        ),
        Preset(
            "softmax-large", "32768×1024", SoftmaxShape(32768, 1024),
            mark("32 heads of 1,024 tokens: 134 MB, larger than the L2 cache of most GPUs"),
        ),
        Preset(
            "softmax-gpt2", mark("GPT-2 vocabulary"), SoftmaxShape(64, 50257),
            mark("GPT-2 (Radford et al. 2019): the scores of its 50,257 tokens, for 64 positions"),
        ),
        Preset("softmax-long", mark("4 long rows"), SoftmaxShape(4, 2**20), mark("4 rows of 2^20: fewer rows than a GPU has SMs")),
    )
}  # fmt: skip
