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
        _large(
            "-causal-fp16", mark("N=2048, causal, FP16"),
            mark("4 sequences of 2,048 tokens, width 1,024 in 16 heads, causal, in fp16"), causal=1, dtype="fp16",
        ),
        *(
            Preset(
                f"attention-4096-d128{suffix}-fp16", label, AttentionShape(4, 16, 4096, 128, causal=causal, dtype="fp16"), source,
            )
            for suffix, causal, label, source in (
                ("", 0, mark("N=4096, d=128, FP16"), mark("4 sequences of 4,096 tokens, width 2,048 in 16 heads, in fp16")),
                (
                    "-causal", 1, mark("N=4096, d=128, causal, FP16"),
                    mark("4 sequences of 4,096 tokens, width 2,048 in 16 heads, causal, in fp16"),
                ),
            )
        ),
        Preset(
            "attention-8192", "N=8192", AttentionShape(1, 8, 8192, 64),
            mark("8 heads of 8,192 tokens: S alone takes 2.1 GB"),
        ),
        Preset(
            "attention-d128", "N=2048, d=128", AttentionShape(2, 16, 2048, 128, causal=1),
            mark("heads of 128, as in Llama 2 7B (arXiv 2307.09288), 16 of its 32, causal"),
        ),
        Preset(
            "decode-toy", mark("Toy decoding, 32 keys"), AttentionShape(1, 2, 1, 4, M=32, kv_heads=1),
            mark("one query of each of two heads, which share 32 keys: small enough to follow every part of the keys"),
        ),
        Preset(
            "window-toy", mark("Toy window, 12 of 32 keys"), AttentionShape(1, 1, 1, 4, causal=1, M=32, window=12),
            mark("one query that sees the last 12 of 32 keys"),
        ),
        Preset(
            "cross-toy", mark("Toy cross-attention"), AttentionShape(1, 1, 16, 8, M=24),
            mark("16 queries over the 24 keys of another sequence"),
        ),
        Preset(
            "mask-toy", mark("Toy mask"), AttentionShape(1, 1, 16, 8, mask="bool"),
            mark("16 queries and keys; a mask of random bits hides half of the pairs"),
        ),
        *(
            Preset(
                f"llama-decode{suffix}", label, AttentionShape(B, 32, 1, 128, causal=1, dtype="fp16", M=8192, kv_heads=8),
                mark("a step of decoding with Llama 3 8B (arXiv 2407.21783), one layer: 32 heads of 128, 8 with keys and "
                     "values, a cache of 8,192 tokens, batch {B}"),
                {"B": B},
            )
            for suffix, label, B in (("", mark("Llama 3 decoding"), 1), ("-16", mark("Llama 3 decoding, batch 16"), 16))
        ),
        Preset(
            "llama-2048", mark("Llama 3, N=2048"), AttentionShape(1, 32, 2048, 128, causal=1, dtype="fp16", kv_heads=8),
            mark("Llama 3 8B (arXiv 2407.21783), one layer over a prompt of 2,048 tokens: 32 heads share 8 heads of keys"),
        ),
        Preset(
            "mistral-8192", mark("Mistral, window 4096"),
            AttentionShape(1, 32, 8192, 128, causal=1, dtype="fp16", kv_heads=8, window=4096),
            mark("Mistral 7B (arXiv 2310.06825), one layer over 8,192 tokens: each sees 4,096, 32 heads share 8"),
        ),
        Preset(
            "gemma2-2048", mark("Gemma 2, softcap 50"),
            AttentionShape(1, 32, 2048, 128, causal=1, dtype="bf16", kv_heads=16, softcap=50),
            mark("Gemma 2 27B (arXiv 2408.00118), one layer over 2,048 tokens: scores are capped at 50, 32 heads share 16"),
        ),
        Preset(
            "diffusion-cross", mark("Stable Diffusion, cross-attention"),
            AttentionShape(2, 8, 4096, 40, dtype="fp16", M=77),
            mark("Stable Diffusion 1.5 (arXiv 2112.10752): 64 × 64 positions over 77 tokens of text, 8 heads of 40, with and "
                 "without the text"),
        ),
        Preset(
            "t5-bias", mark("T5, bias"), AttentionShape(8, 12, 512, 64, scale=1, mask="bias"),
            mark("T5 base (arXiv 1910.10683), an encoder layer over 512 tokens: a bias for each pair of positions; T5 has one "
                 "for each head, here all share one"),
        ),
    )
}  # fmt: skip
