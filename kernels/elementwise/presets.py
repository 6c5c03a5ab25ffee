"""Well-known shapes of elementwise layers."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.elementwise.shape import BiasShape, MapsShape
from kernels.i18n import mark
from kernels.model.preset import Preset

# Key: label, extents, source.
_MAPS: Mapping[str, tuple[str, tuple[int, int, int, int], str]] = {
    "toy": (mark("Toy 3×4×5"), (1, 3, 4, 5), mark("small enough to show every number")),
    "odd": ("3×5×7×11", (3, 5, 7, 11), mark("extents that no block size divides")),
    "lenet": (
        mark("LeNet-5 conv1, N=32"),
        (32, 6, 28, 28),
        mark("LeNet-5 (LeCun et al. 1998), the maps of its first layer, batch 32"),
    ),
    "res5-n32": (
        mark("ResNet-50 res5, N=32"),
        (32, 2048, 7, 7),
        mark("ResNet-50 (arXiv 1512.03385), the maps after a conv5_x block, batch 32: planes of 49 numbers"),
    ),
    "res2-n64": (
        mark("ResNet-50 res2, N=64"),
        (64, 256, 56, 56),
        mark("ResNet-50 (arXiv 1512.03385), the maps after a conv2_x block, batch 64: 206 MB per tensor"),
    ),
}
_ROWS: Mapping[str, tuple[str, tuple[int, int, int, int], str]] = {
    "rows-toy": (mark("Toy 12×5, rows"), (12, 5, 1, 1), mark("rows of 5 numbers: the channel varies fastest")),
    "gpt2": (
        mark("GPT-2 small MLP"),
        (8192, 3072, 1, 1),
        mark("GPT-2 small (Radford et al. 2019): the wide layer of its MLP, 8,192 tokens of 3,072 numbers"),
    ),
}


def presets(ladder: str, shape: type[MapsShape], **by_key: Mapping[str, str]) -> dict[str, Preset]:
    """Returns the presets of a ladder by key: the maps, and for each name of `by_key` the toy and the largest maps with
    these other fields."""
    found = [
        Preset(f"{ladder}-{key}", label, shape(*extents), source) for key, (label, extents, source) in _MAPS.items()
    ]
    for name, fields in by_key.items():
        for key in ("toy", "res2-n64"):
            label, extents, source = _MAPS[key]
            found.append(Preset(f"{ladder}-{name}-{key}", f"{label}, {name}", shape(*extents, **fields), source))
    return {preset.key: preset for preset in found}


def mlp_presets(ladder: str, shape: type[MapsShape], **by_key: Mapping[str, str]) -> dict[str, Preset]:
    """Returns the wide layer of GPT-2's MLP as presets: as it is, and for each name of `by_key` with these other fields."""
    label, extents, source = _ROWS["gpt2"]
    found = [Preset(f"{ladder}-gpt2", label, shape(*extents), source)]
    for name, fields in by_key.items():
        found.append(Preset(f"{ladder}-{name}-gpt2", f"{label}, {name}", shape(*extents, **fields), source))
    return {preset.key: preset for preset in found}


def row_presets(ladder: str, shape: type[BiasShape]) -> dict[str, Preset]:
    """Returns the presets of a bias whose channels are neighbours in memory."""
    return {
        f"{ladder}-{key}": Preset(f"{ladder}-{key}", label, shape(*extents, layout="nhwc"), source)
        for key, (label, extents, source) in _ROWS.items()
    }
