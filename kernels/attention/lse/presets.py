"""Well-known shapes of attention in training, each with its source: some of the forward pass, and the digits network's."""

from __future__ import annotations

from kernels.attention.lse.shape import LseShape
from kernels.i18n import mark
from kernels.model.preset import Preset

LSE_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "lse-toy",
            mark("Toy N=8"),
            LseShape(1, 1, 8, 4),
            mark("one head, 8 queries and keys of 4 floats: small enough to follow every number"),
        ),
        Preset(
            "lse-toy-causal",
            mark("Toy N=16, causal"),
            LseShape(1, 1, 16, 8, causal=1),
            mark("two tiles of 8 keys; each query sees only the keys up to its own position"),
        ),
        Preset(
            "lse-ragged",
            "N=77, d=40",
            LseShape(2, 3, 77, 40, causal=1),
            mark("a multiple of no tile size: the last tiles are partly empty"),
        ),
        Preset(
            "lse-digits",
            mark("Digits transformer, N=32"),
            LseShape(32, 4, 8, 8),
            mark("32 images of 8 rows, each row a token, 4 heads of 8: the network that learns the digits"),
        ),
        Preset(
            "lse-gpt2",
            "GPT-2",
            LseShape(1, 12, 1024, 64, causal=1),
            mark("GPT-2 small (Radford et al. 2019), one layer over its 1,024 tokens: 12 heads of 64"),
        ),
        Preset(
            "lse-2048",
            "N=2048",
            LseShape(4, 16, 2048, 64),
            mark("4 sequences of 2,048 tokens, width 1,024 in 16 heads"),
        ),
        Preset(
            "lse-2048-causal",
            mark("N=2048, causal"),
            LseShape(4, 16, 2048, 64, causal=1),
            mark("4 sequences of 2,048 tokens, width 1,024 in 16 heads, causal"),
        ),
    )
}
