"""Well-known shapes of attention, each with its source."""

from __future__ import annotations

from kernels.attention.shape import AttentionShape
from kernels.i18n import mark
from kernels.model.preset import Preset


def _large(suffix: str, label: str, source: str, **options) -> Preset:
    """Returns a preset of B4 H16 N2048 d64: large enough to fill any GPU, small enough for every rung."""
    shape = AttentionShape(4, 16, 2048, 64, **options)
    return Preset(f"attention-2048{suffix}", label, shape, source, {"dtype": shape.dtype})


ATTENTION_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "attention-toy", mark("Toy N=8"), AttentionShape(1, 1, 8, 4),
            mark("one head, 8 queries and keys of 4 floats: small enough to follow every number"),
        ),
        Preset(
            "attention-16", "N=16", AttentionShape(1, 1, 16, 4),
            mark("the same with 16 queries and keys: with tiles of 8 keys, flash attention rescales its earlier sums"),
        ),
        Preset(
            "attention-toy-causal", mark("Toy N=16, causal"), AttentionShape(1, 1, 16, 8, causal=1),
            mark("two tiles of 8 keys; each query sees only the keys up to its own position"),
        ),
        Preset(
            "attention-toy-fp16", "N=32, FP16", AttentionShape(1, 1, 32, 16, dtype="fp16"),
            mark("two tiles of 16 keys in FP16: the smallest shape for tensor cores"),
        ),
        Preset(
            "attention-ragged", "N=77, d=40", AttentionShape(2, 3, 77, 40, causal=1),
            mark("a multiple of no tile size: the last tiles are partly empty"),
        ),
        Preset(
            "paper-cpu", mark("N=1024 for a processor"), AttentionShape(1, 4, 1024, 32),
            mark("four heads of 1,024 tokens: S is larger than the caches of many processors"),
        ),
        Preset(
            "gpt2", "GPT-2", AttentionShape(1, 12, 1024, 64, causal=1),
            mark("GPT-2 small (Radford et al. 2019), one layer over its 1,024 tokens: 12 heads of 64"),
        ),
        Preset(
            "bert", "BERT", AttentionShape(1, 12, 512, 64),
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
            "attention-8192", "N=8192", AttentionShape(1, 8, 8192, 64),
            mark("8 heads of 8,192 tokens: S alone takes 2.1 GB"),
        ),
        Preset(
            "attention-d128", "N=2048, d=128", AttentionShape(2, 16, 2048, 128, causal=1),
            mark("heads of 128, as in Llama 2 7B (arXiv 2307.09288), 16 of its 32, causal"),
        ),
    )
}  # fmt: skip
