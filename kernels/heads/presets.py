"""Well-known shapes of a split into heads and of its inverse, each with its source."""

from __future__ import annotations

from kernels.heads.shape import HeadsShape
from kernels.i18n import mark
from kernels.model.preset import Preset

SHAPES = (  # key, label, shape, source
    (
        "toy",
        mark("Toy 4×2×4"),
        HeadsShape(1, 4, 2, 4),
        mark("4 tokens, 2 heads of 4 numbers: small enough to follow each"),
    ),
    (
        "toy-qkv",
        mark("Toy, queries, keys, values"),
        HeadsShape(1, 3, 2, 4, 3),
        mark("3 tokens whose rows hold queries, keys and values"),
    ),
    ("odd", "5×3×7", HeadsShape(2, 5, 3, 7, 3), mark("extents that no float4 divides")),
    (
        "digits",
        mark("Digits transformer, N=32"),
        HeadsShape(32, 8, 4, 8, 3),
        mark("32 images of 8 rows, each row a token, 4 heads of 8: the network that learns the digits"),
    ),
    (
        "gpt2",
        "GPT-2",
        HeadsShape(1, 1024, 12, 64, 3),
        mark("GPT-2 small (Radford et al. 2019), one layer over its 1,024 tokens: 12 heads of 64"),
    ),
    (
        "large",
        mark("GPT-2, N=32"),
        HeadsShape(32, 1024, 12, 64, 3),
        mark("GPT-2 small (Radford et al. 2019), 32 sequences: 604 MB are moved, more than an L2 cache holds"),
    ),
)


def presets(ladder: str) -> dict[str, Preset]:
    """Returns the presets of a ladder; their keys begin with its name."""
    return {f"{ladder}-{key}": Preset(f"{ladder}-{key}", label, shape, source) for key, label, shape, source in SHAPES}
