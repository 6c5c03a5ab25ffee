"""Well-known shapes of attention's backward pass, each with its source: those of the forward pass, at other toys."""

from __future__ import annotations

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark
from kernels.model.preset import Preset


def _large(suffix: str, label: str, source: str, **options) -> Preset:
    """Returns a preset of B4 H16 N2048 d64, as in the forward pass: its tensors are larger than an H200's L2 cache."""
    shape = AttentionBackwardShape(4, 16, 2048, 64, **options)
    return Preset(f"backward-2048{suffix}", label, shape, source, {"dtype": shape.dtype})


BACKWARD_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "backward-toy", mark("Toy N=16"), AttentionBackwardShape(1, 1, 16, 4),
            mark("one head, 16 queries and keys of 4 floats: one tile of 16 keys, two tiles of 8 queries"),
        ),
        Preset(
            "backward-toy-causal", mark("Toy N=32, causal"), AttentionBackwardShape(1, 1, 32, 8, causal=1),
            mark("two tiles of 16 keys; the second tile skips the queries that see none of its keys"),
        ),
        Preset(
            "backward-toy-fp16", "N=32, FP16", AttentionBackwardShape(1, 1, 32, 16, dtype="fp16"),
            mark("two tiles of 16 keys in FP16: the smallest shape for tensor cores"),
        ),
        Preset(
            "backward-ragged", "N=77, d=40", AttentionBackwardShape(2, 3, 77, 40, causal=1),
            mark("a multiple of no tile size: the last tiles are partly empty"),
        ),
        Preset(
            "backward-gpt2", "GPT-2", AttentionBackwardShape(1, 12, 1024, 64, causal=1),
            mark("GPT-2 small (Radford et al. 2019), one layer over its 1,024 tokens: 12 heads of 64"),
        ),
        Preset(
            "backward-bert", "BERT", AttentionBackwardShape(1, 12, 512, 64),
            mark("BERT base (arXiv 1810.04805), one layer over its 512 tokens: 12 heads of 64"),
        ),
        _large("", "N=2048", mark("4 sequences of 2,048 tokens, width 1,024 in 16 heads")),
        _large(
            "-causal", mark("N=2048, causal"),
            mark("4 sequences of 2,048 tokens, width 1,024 in 16 heads, causal"), causal=1,
        ),
        *(
            _large(
                f"-{dtype}", f"N=2048, {dtype.upper()}",
                mark("4 sequences of 2,048 tokens, width 1,024 in 16 heads, in {dtype}"), dtype=dtype,
            )
            for dtype in ("fp16", "bf16")
        ),
        Preset(
            "backward-8192", "N=8192", AttentionBackwardShape(1, 8, 8192, 64),
            mark("8 heads of 8,192 tokens: P alone takes 2.1 GB"),
        ),
        Preset(
            "backward-d128", "N=2048, d=128", AttentionBackwardShape(2, 16, 2048, 128, causal=1),
            mark("heads of 128, as in Llama 2 7B (arXiv 2307.09288), 16 of its 32, causal"),
        ),
    )
}  # fmt: skip
