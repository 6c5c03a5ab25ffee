"""Networks as data: rows of layers, each with the layers that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kernels.i18n import mark, tr
from kernels.model.rules import MAX_GRID_YZ

IMAGE = "x"  # what the first layer reads


@dataclass(frozen=True)
class Layer:
    """A layer: its kind (kernels.training.layers.LAYERS), its name, its options, and the layers that it reads: the one
    before unless they are named."""

    kind: str
    name: str
    options: Mapping[str, int] = field(default_factory=dict)
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Network:
    """Layers from an image [1, size, size] to `classes` numbers."""

    name: str
    title: str
    size: int
    classes: int
    layers: tuple[Layer, ...]
    source: str


def attention_rules(network: Network, images: int, gpus: int = 1) -> Iterator[str]:
    """Yields the rule on the images that go through a network at a time: attention has a row of blocks for each image and
    head. `gpus`: over which the heads are divided."""
    for layer in network.layers:
        heads = layer.options.get("heads", 0) // gpus
        if images * heads > MAX_GRID_YZ:
            yield tr(
                "{layer}: images * heads <= {most} (grid.y), got {images} * {heads} at a time. At most {fit} images can run",
                layer=layer.name,
                most=MAX_GRID_YZ,
                images=images,
                heads=heads,
                fit=MAX_GRID_YZ // heads,
            )
            return


def _convolution(name: str, K: int, R: int, **options: int) -> Iterable[Layer]:
    """Yields a convolution and its batch norm."""
    yield Layer("conv", name, {"K": K, "R": R, "bias": 0, **options})
    yield Layer("batchnorm", f"{name} norm")


def _block(name: str, K: int, before: str, stride: int) -> Iterable[Layer]:
    """Yields a residual block of two 3 x 3 convolutions. With a stride the shortcut is a 1 x 1 convolution."""
    shortcut = before
    if stride > 1:
        shortcut = f"{name} shortcut"
        yield Layer("conv", shortcut, {"K": K, "R": 1, "bias": 0, "stride": stride}, (before,))
        yield Layer("batchnorm", f"{shortcut} norm")
        shortcut = f"{shortcut} norm"
    yield Layer("conv", f"{name} a", {"K": K, "R": 3, "pad": 1, "bias": 0, "stride": stride}, (before,))
    yield Layer("batchnorm", f"{name} a norm")
    yield Layer("relu", f"{name} a relu")
    yield from _convolution(f"{name} b", K, 3, pad=1)
    yield Layer("residual", name, {}, (f"{name} b norm", shortcut))


LENET5 = Network(
    "lenet5",
    "LeNet-5",
    32,
    10,
    (
        Layer("conv", "conv1", {"K": 6, "R": 5}),
        Layer("relu", "relu1"),
        Layer("maxpool", "pool1", {"R": 2}),
        Layer("conv", "conv2", {"K": 16, "R": 5}),
        Layer("relu", "relu2"),
        Layer("maxpool", "pool2", {"R": 2}),
        Layer("linear", "fc1", {"N": 120}),
        Layer("relu", "relu3"),
        Layer("linear", "fc2", {"N": 84}),
        Layer("relu", "relu4"),
        Layer("linear", "fc3", {"N": 10}),
    ),
    mark("LeCun et al., Proc. IEEE 86 (1998), with ReLU and max pooling in place of tanh and averages"),
)

RESIDUAL = Network(
    "residual",
    mark("residual net"),
    8,
    10,
    (
        *_convolution("stem", 16, 3, pad=1),
        Layer("relu", "stem relu"),
        *_block("block1", 16, "stem relu", 1),
        *_block("block2", 32, "block1", 2),
        Layer("average", "average"),
        Layer("linear", "fc", {"N": 10}),
    ),
    mark("two blocks as in He et al., arXiv 1512.03385"),
)


def encoder(name: str, before: str, width: int, heads: int, causal: int = 0) -> Iterable[Layer]:
    """Yields a block of a transformer whose tokens have `width` numbers: attention, then two layers for each token, with a
    norm before and a sum after each."""
    yield Layer("layernorm", f"{name} norm1", {}, (before,))
    yield Layer("project", f"{name} qkv", {"N": 3 * width})
    yield Layer("attention", f"{name} attention", {"heads": heads, "causal": causal})
    yield Layer("project", f"{name} out", {"N": width})
    yield Layer("add", f"{name} sum", {}, (f"{name} out", before))
    yield Layer("layernorm", f"{name} norm2")
    yield Layer("project", f"{name} fc1", {"N": 4 * width})
    yield Layer("relu", f"{name} relu")
    yield Layer("project", f"{name} fc2", {"N": width})
    yield Layer("add", name, {}, (f"{name} fc2", f"{name} sum"))


TRANSFORMER = Network(
    "transformer",
    mark("two-layer transformer"),
    8,
    10,
    (
        Layer("project", "embedding", {"N": 32}),
        Layer("position", "position"),
        *encoder("block1", "position", 32, 4),
        *encoder("block2", "block1", 32, 4),
        Layer("layernorm", "norm"),
        Layer("linear", "fc", {"N": 10}),
    ),
    mark(
        "as in Dosovitskiy et al., arXiv 2010.11929, with each row of pixels as a token and ReLU in place of GELU; the last "
        "layer reads all tokens"
    ),
)

NETWORKS = {network.name: network for network in (LENET5, RESIDUAL, TRANSFORMER)}
