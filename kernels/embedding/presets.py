"""Well-known shapes of embeddings."""

from __future__ import annotations

from kernels.embedding.shape import EQUAL, UNIFORM, ZIPF, EmbeddingBackwardShape, EmbeddingShape
from kernels.i18n import mark
from kernels.model.preset import Preset

SIZES = (  # key, label, M, V, d, tokens, source
    ("toy", mark("Toy: 8 tokens of 6"), 8, 6, 4, UNIFORM, mark("small enough to follow every number")),
    ("ragged", "61×37", 61, 45, 37, UNIFORM, mark("rows that are not aligned to 16 bytes")),
    (
        "gpt2", mark("GPT-2, 1,024 tokens"), 1024, 50257, 768, ZIPF,
        mark("GPT-2 small (Radford et al. 2019): one sequence of 1,024 tokens, as frequent as words of a text"),
    ),
    (
        "gpt2-batch", mark("GPT-2, 65,536 tokens"), 65_536, 50257, 768, ZIPF,
        mark("GPT-2 small (Radford et al. 2019): 64 sequences of 1,024 tokens. 201 MB of rows, larger than the L2 cache"),
    ),
    (
        "uniform", mark("65,536 random tokens"), 65_536, 50257, 768, UNIFORM,
        mark("as many tokens of the same vocabulary, all equally frequent"),
    ),
    (
        "equal", mark("one token 8,192 times"), 8192, 50257, 768, EQUAL,
        mark("the hardest case of the gradient: all rows are added to one row"),
    ),
)  # fmt: skip


def _presets(prefix: str, shape: type[EmbeddingShape]) -> dict[str, Preset]:
    presets = (
        Preset(f"{prefix}-{key}", label, shape(M, V, d, tokens), source)
        for key, label, M, V, d, tokens, source in SIZES
    )
    return {preset.key: preset for preset in presets}


FORWARD_PRESETS = _presets("embedding", EmbeddingShape)
BACKWARD_PRESETS = _presets("embedding-backward", EmbeddingBackwardShape)
