"""Well-known shapes of the norms."""

from __future__ import annotations

from typing import Any

from kernels.i18n import mark
from kernels.model.preset import Preset
from kernels.norm.shape import NHWC, MapsShape, RowsShape

TOY = mark("small enough to follow every number")
RAGGED_MAPS = mark("extents that neither a block nor 16 bytes divides")
RAGGED_ROWS = mark("rows that are not aligned to sectors (32 bytes)")
RES2 = mark(
    "ResNet-50 (arXiv 1512.03385): the last norm of a conv2_x block, batch 64. 205 MB, larger than the L2 cache"
)
_MAPS: tuple[tuple[str, str, tuple[Any, ...], str], ...] = (  # key, label, fields of the shape, source
    ("toy", mark("Toy 2×2×2×4"), (2, 2, 2, 4), TOY),
    ("toy-nhwc", mark("Toy 2×2×2×4, NHWC"), (2, 2, 2, 4, NHWC), TOY),
    ("ragged", "3×5×7×9", (3, 5, 7, 9), RAGGED_MAPS),
    ("ragged-nhwc", mark("3×5×7×9, NHWC"), (3, 5, 7, 9, NHWC), RAGGED_MAPS),
    (
        "res5",
        mark("ResNet-50 res5, N=32"),
        (32, 2048, 7, 7),
        mark("ResNet-50 (arXiv 1512.03385): the last norm of a conv5_x block, batch 32"),
    ),
    ("res2", mark("ResNet-50 res2, N=64"), (64, 256, 56, 56), RES2),
    ("res2-nhwc", mark("ResNet-50 res2, N=64, NHWC"), (64, 256, 56, 56, NHWC), RES2),
)
_ROWS = (
    ("toy", mark("Toy 3×8"), (3, 8), TOY),
    ("ragged", "1,001×777", (1001, 777), RAGGED_ROWS),
    (
        "gpt2",
        mark("GPT-2 small"),
        (8192, 768),
        mark("GPT-2 small (Radford et al. 2019): 8 sequences of 1,024 tokens, 768 numbers each"),
    ),
    (
        "large",
        "16,384×4,096",
        (16384, 4096),
        mark("as many tokens of Llama 2 7B (arXiv 2307.09288), 4,096 numbers each. 268 MB, larger than the L2 cache"),
    ),
)


def maps_presets(ladder: str, shape: type[MapsShape]) -> dict[str, Preset]:
    """Returns the presets of a batch norm ladder by key."""
    presets = (Preset(f"{ladder}-{key}", label, shape(*extents), text) for key, label, extents, text in _MAPS)
    return {preset.key: preset for preset in presets}


def rows_presets(ladder: str, shape: type[RowsShape]) -> dict[str, Preset]:
    """Returns the presets of a ladder of rows by key."""
    presets = (Preset(f"{ladder}-{key}", label, shape(*extents), text) for key, label, extents, text in _ROWS)
    return {preset.key: preset for preset in presets}
