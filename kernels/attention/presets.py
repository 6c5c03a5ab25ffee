"""Well-known shapes of attention, each with its source."""

from __future__ import annotations

from kernels.attention.shape import AttentionShape
from kernels.model.preset import Preset


def _large(suffix: str, label: str, source: str, **fields) -> Preset:
    """Returns a preset of B4 H16 N2048 d64: large enough to fill any GPU, small enough for every rung."""
    shape = AttentionShape(4, 16, 2048, 64, **fields)
    return Preset(f"attention-2048{suffix}", label, shape, source)


_2048 = "4 sequences of 2,048 tokens, width 1,024 in 16 heads"

ATTENTION_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "attention-toy", "Toy N=8", AttentionShape(1, 1, 8, 4),
            "one head, 8 queries and keys of 4 floats: small enough to follow every number",
        ),
        Preset(
            "attention-16", "N=16", AttentionShape(1, 1, 16, 4),
            "the same with 16: with tiles of 8 keys flash attention has something to mend",
        ),
        Preset(
            "attention-toy-causal", "Toy N=16, causal", AttentionShape(1, 1, 16, 8, causal=1),
            "two tiles of 8 keys, and a query sees only those up to its own",
        ),
        Preset(
            "attention-toy-fp16", "N=32, FP16", AttentionShape(1, 1, 32, 16, dtype="fp16"),
            "two tiles of 16 keys, each number a half: the least that tensor cores take",
        ),
        Preset(
            "attention-ragged", "N=77, d=40", AttentionShape(2, 3, 77, 40, causal=1),
            "a multiple of no tile: remainders on every side",
        ),
        Preset(
            "paper-cpu", "N=1024 for a processor", AttentionShape(1, 4, 1024, 32),
            "four heads of 1,024 tokens: long enough for S to leave a processor's cache",
        ),
        Preset(
            "gpt2", "GPT-2", AttentionShape(1, 12, 1024, 64, causal=1),
            "GPT-2 small (Radford et al. 2019), one layer over its 1,024 tokens: 12 heads of 64",
        ),
        Preset(
            "bert", "BERT", AttentionShape(1, 12, 512, 64),
            "BERT base (arXiv 1810.04805), one layer over its 512 tokens: 12 heads of 64",
        ),
        _large("", "N=2048", _2048),
        _large("-causal", "N=2048, causal", f"{_2048}, causal", causal=1),
        *(
            _large(f"-{dtype}", f"N=2048, {dtype.upper()}", f"{_2048}, in {dtype}", dtype=dtype)
            for dtype in ("fp16", "bf16")
        ),
        Preset(
            "attention-8192", "N=8192", AttentionShape(1, 8, 8192, 64),
            "8 heads of 8,192 tokens: S alone takes 2.1 GB",
        ),
        Preset(
            "attention-d128", "N=2048, d=128", AttentionShape(2, 16, 2048, 128, causal=1),
            "heads of 128, as in Llama 2 7B (arXiv 2307.09288), 16 of its 32, causal",
        ),
    )
}  # fmt: skip
