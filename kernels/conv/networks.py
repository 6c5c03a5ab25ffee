"""Networks as lists of their convolutions: every distinct shape and how often it occurs, batch 32.

Biases, batch normalisation, ReLU and pooling between the convolutions are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.model.preset import Preset

BATCH = 32


@dataclass(frozen=True)
class Layer:
    """A shape that `count` convolutions of a network share; `name` is that of the first."""

    name: str
    shape: ConvShape
    count: int


@dataclass(frozen=True)
class Network:
    key: str
    title: str
    source: str
    layers: tuple[Layer, ...]  # in the order in which each shape comes first

    @property
    def convolutions(self) -> int:
        return sum(layer.count for layer in self.layers)


def _layers(named: Iterable[tuple[str, ConvShape]]) -> tuple[Layer, ...]:
    """Returns convolutions grouped by shape, in the order in which each shape is first computed."""
    named = list(named)
    counts, names = Counter(shape for _, shape in named), {}
    for name, shape in named:
        names.setdefault(shape, name)
    return tuple(Layer(name, shape, counts[shape]) for shape, name in names.items())


def _conv(C: int, size: int, K: int, R: int, stride: int = 1) -> ConvShape:
    return ConvShape(BATCH, C, size, size, K, R, R, stride=stride, pad=R // 2)


def _resnet50() -> Iterator[tuple[str, ConvShape]]:
    yield "conv1", _conv(3, 224, 64, 7, stride=2)
    C, size = 64, 56  # after the pooling
    for stage, (maps, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(1, blocks + 1):
            name, stride = f"conv{stage}_{block}", 2 if block == 1 and stage > 2 else 1
            yield f"{name} 1×1", _conv(C, size, maps, 1, stride)
            if block == 1:
                yield f"{name} shortcut", _conv(C, size, 4 * maps, 1, stride)
            size //= stride
            yield f"{name} 3×3", _conv(maps, size, maps, 3)
            C = 4 * maps
            yield f"{name} 1×1 up", _conv(maps, size, C, 1)


def _vgg16() -> Iterator[tuple[str, ConvShape]]:
    C, size = 3, 224
    for stage, (maps, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for n in range(1, convolutions + 1):
            yield f"conv{stage}_{n}", _conv(C, size, maps, 3)
            C = maps
        size //= 2  # the pooling


NETWORKS: dict[str, Network] = {
    network.key: network
    for network in (
        Network(
            "resnet50",
            "ResNet-50",
            mark(
                "arXiv 1512.03385, Table 1, its version 1: the first 1×1 of a stage and its shortcut have stride 2. "
                "Version 1.5, which many frameworks ship, has this stride in the 3×3"
            ),
            _layers(_resnet50()),
        ),
        Network("vgg16", "VGG-16", mark("arXiv 1409.1556, Table 1, configuration D"), _layers(_vgg16())),
    )
}


def _preset(network: Network, layer: Layer) -> Preset:
    key = f"{network.key}-{layer.name.replace(' ', '-').replace('×', 'x')}-n{BATCH}"
    title = f"{network.title} {layer.name}"
    fields = {"title": title, "network": network.source, "batch": BATCH}
    return Preset(key, f"{title}, N={BATCH}", layer.shape, mark("{title} ({network}), batch {batch}"), fields)


# Each of those shapes as a preset that can be recorded by name.
LAYERS: dict[str, Preset] = {
    preset.key: preset
    for network in NETWORKS.values()
    for preset in (_preset(network, layer) for layer in network.layers)
}
