"""The layers of a network: the nodes that each adds to a training step, forward and backward.

A function takes the builder, the names of its input tensors and the layer's options, and returns the name of its result.
Maps are [N, C, H, W], rows [M, K], tokens [N, T, D], float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.lse.shape import LseShape
from kernels.attention.shape import AttentionShape
from kernels.conv.shape import ConvShape
from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape
from kernels.elementwise.shape import BiasBackwardShape, BiasShape, ReluBackwardShape, ReluShape, ResidualShape
from kernels.heads.shape import HeadsShape
from kernels.i18n import tr
from kernels.ladders import find
from kernels.linear.shape import InputGradientShape, LinearShape, WeightGradientShape
from kernels.memory.shape import AddShape
from kernels.model.launch import ceil
from kernels.model.program import RuleError
from kernels.norm.shape import BatchNormBackwardShape, BatchNormShape, LayerNormBackwardShape, LayerNormShape
from kernels.pooling.shape import GlobalShape, MaxPoolShape
from kernels.training.builder import Builder


def sum_shape(count: int) -> AddShape:
    """Returns the shape of a sum of two tensors with so many elements."""
    return AddShape(1, count)


def as_maps(extents: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Returns the extents of any tensor as those of maps: rows [M, K] are M images of K channels of one pixel."""
    N, C, P, Q = extents if len(extents) == 4 else (extents[0], math.prod(extents[1:]), 1, 1)
    return N, C, P, Q


def conv(b: Builder, x: str, K: int, R: int, stride: int = 1, pad: int = 0, bias: int = 1) -> str:
    """Adds a convolution with K filters R x R."""
    N, C, H, W = b.shape_of(x)
    plain = ConvShape(N, C, H, W, K, R, R, stride=stride, pad=pad)
    w, y = b.weight("w", *plain.w_shape), b.activation("y", *plain.y_shape)
    biases = {"b": b.weight("b", K)} if bias else {}
    b.node("", "conv", plain.with_(bias=bias), None, x=x, w=w, y=y, **biases)

    def backward(dy: str) -> None:
        dw = b.weight_gradient(w)
        b.node("dw", "conv-dweight", plain, x=x, dy=dy, dw=dw)
        if bias:
            db = b.weight_gradient(biases["b"])
            b.node("db", "bias-backward", BiasBackwardShape(*plain.y_shape), dy=dy, db=db)
        if b.learns(x):
            dx = b.gradient(x)
            b.node("dx", "conv-dinput", plain, dy=dy, w=w, dx=dx)
            b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def relu(b: Builder, x: str) -> str:
    """Adds max(x, 0). Its result is kept for the way back."""
    extents = b.shape_of(x)
    y = b.activation("y", *extents)
    b.node("", "relu", ReluShape(*as_maps(extents)), x=x, y=y)

    def backward(dy: str) -> None:
        dx = b.gradient(x)
        b.node("dx", "relu-backward", ReluBackwardShape(*as_maps(extents)), dy=dy, y=y, dx=dx)
        b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def maxpool(b: Builder, x: str, R: int) -> str:
    """Adds max pooling by windows R x R that do not overlap. The index of each maximum is kept."""
    N, C, H, W = b.shape_of(x)
    s = MaxPoolShape(N, C, H, W, R, R)
    y, index = b.activation("y", *s.y_shape), b.activation("index", *s.y_shape, dtype="int32")
    b.node("", "max-pool", s, x=x, y=y, index=index)

    def backward(dy: str) -> None:
        dx = b.gradient(x)
        b.node("dx", "max-pool-backward", s, dy=dy, index=index, dx=dx)
        b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def average(b: Builder, x: str) -> str:
    """Adds the average of each map (global average pooling): [N, C, H, W] becomes [N, C]."""
    s = GlobalShape(*b.shape_of(x))
    y = b.activation("y", s.N, s.C)
    b.node("", "global-avg-pool", s, x=x, y=y)

    def backward(dy: str) -> None:
        dx = b.gradient(x)
        b.node("dx", "global-avg-pool-backward", s, dy=dy, dx=dx)
        b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def batchnorm(b: Builder, x: str) -> str:
    """Adds batch norm in training. Mean and 1/std of each channel are kept."""
    N, C, H, W = extents = b.shape_of(x)
    gamma, beta = b.weight("gamma", C), b.weight("beta", C)
    y, mean, invstd = b.activation("y", *extents), b.activation("mean", C), b.activation("invstd", C)
    b.node("", "batch-norm", BatchNormShape(N, C, H, W), x=x, gamma=gamma, beta=beta, y=y, mean=mean, invstd=invstd)

    def backward(dy: str) -> None:
        dx, dgamma, dbeta = b.gradient(x), b.weight_gradient(gamma), b.weight_gradient(beta)
        b.node(
            "dx",
            "batch-norm-backward",
            BatchNormBackwardShape(N, C, H, W),
            dy=dy,
            x=x,
            gamma=gamma,
            mean=mean,
            invstd=invstd,
            dx=dx,
            dgamma=dgamma,
            dbeta=dbeta,
        )
        b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def residual(b: Builder, x: str, shortcut: str) -> str:
    """Adds max(x + shortcut, 0), the end of a residual block. Both get the same gradient."""
    extents = b.shape_of(x)
    y = b.activation("y", *extents)
    b.node("", "residual", ResidualShape(*as_maps(extents)), a=x, b=shortcut, y=y)

    def backward(dy: str) -> None:
        dx = b.gradient(x)
        b.node("dx", "relu-backward", ReluBackwardShape(*as_maps(extents)), dy=dy, y=y, dx=dx)
        b.receive(x, dx)
        b.receive(shortcut, dx)

    return b.on_the_way_back(y, backward)


def _product(b: Builder, x: str, N: int, K: int, *extents: int) -> str:
    """Adds y = x W^T + b for rows of K numbers. y has these extents; the last one is N."""
    M = math.prod(extents[:-1])
    W, bias, y = b.weight("W", N, K), b.weight("b", N), b.activation("y", *extents)
    b.node("", "linear", LinearShape(M, N, K), x=x, W=W, b=bias, y=y)

    def backward(dy: str) -> None:
        dW, db = b.weight_gradient(W), b.weight_gradient(bias)
        b.node("dW", "linear-dweight", WeightGradientShape(M, N, K), dy=dy, x=x, dW=dW, db=db)
        if b.learns(x):
            dx = b.gradient(x)
            b.node("dx", "linear-dinput", InputGradientShape(M, N, K), dy=dy, W=W, dx=dx)
            b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def linear(b: Builder, x: str, N: int) -> str:
    """Adds a fully connected layer with N outputs. Maps and tokens are seen as rows of their numbers."""
    M, *rest = b.shape_of(x)
    return _product(b, x, N, math.prod(rest), M, N)


# -- tokens ----------------------------------------------------------------------------------------
def project(b: Builder, x: str, N: int) -> str:
    """Adds a fully connected layer for each token: [images, T, K] becomes [images, T, N]. Of images [images, 1, T, K]
    each row of pixels is a token."""
    images, *rest, K = b.shape_of(x)
    return _product(b, x, N, K, images, math.prod(rest), N)


def position(b: Builder, x: str) -> str:
    """Adds a learned vector to each position of the tokens. Its gradient is a sum over the images."""
    N, T, D = b.shape_of(x)
    w, y = b.weight("w", T, D), b.activation("y", N, T, D)
    b.node("", "bias", BiasShape(N, T * D, 1, 1), x=x, b=w, y=y)

    def backward(dy: str) -> None:
        b.node("dw", "bias-backward", BiasBackwardShape(N, T * D, 1, 1), dy=dy, db=b.weight_gradient(w))
        b.receive(x, dy)

    return b.on_the_way_back(y, backward)


def layernorm(b: Builder, x: str) -> str:
    """Adds layer norm of each token. Its mean and 1/std are kept."""
    *rest, D = extents = b.shape_of(x)
    M = math.prod(rest)
    gamma, beta = b.weight("gamma", D), b.weight("beta", D)
    y, mean, invstd = b.activation("y", *extents), b.activation("mean", M), b.activation("invstd", M)
    b.node("", "layer-norm", LayerNormShape(M, D), x=x, gamma=gamma, beta=beta, y=y, mean=mean, invstd=invstd)

    def backward(dy: str) -> None:
        dx, dgamma, dbeta = b.gradient(x), b.weight_gradient(gamma), b.weight_gradient(beta)
        b.node(
            "dx",
            "layer-norm-backward",
            LayerNormBackwardShape(M, D),
            dy=dy,
            x=x,
            gamma=gamma,
            mean=mean,
            invstd=invstd,
            dx=dx,
            dgamma=dgamma,
            dbeta=dbeta,
        )
        b.receive(x, dx)

    return b.on_the_way_back(y, backward)


def add(b: Builder, x: str, shortcut: str) -> str:
    """Adds x + shortcut. The gradient of the sum is that of both."""
    extents = b.shape_of(x)
    y = b.activation("y", *extents)
    b.node("", "sum", sum_shape(math.prod(extents)), A=x, B=shortcut, C=y)

    def backward(dy: str) -> None:
        b.receive(x, dy)
        b.receive(shortcut, dy)

    return b.on_the_way_back(y, backward)


def attention(b: Builder, x: str, heads: int, causal: int = 0) -> str:
    """Adds attention of tokens that hold queries, keys and values: [N, T, 3 D] becomes [N, T, D]. Q, K, V, the result of
    each head and L are kept."""
    N, T, width = b.shape_of(x)
    d = width // (3 * heads)
    split, merged = HeadsShape(N, T, heads, d, 3), HeadsShape(N, T, heads, d)
    forward, back = LseShape(N, heads, T, d, causal), AttentionBackwardShape(N, heads, T, d, causal)
    q, k, v, o = (b.activation(name, *merged.heads_shape) for name in "QKVO")
    L, y = b.activation("L", N, heads, T), b.activation("y", N, T, heads * d)
    b.node("split", "split-heads", split, x=x, Q=q, K=k, V=v)
    b.node("", "attention", forward, small_tiles(b.rungs["attention"], forward), Q=q, K=k, V=v, O=o, L=L)
    b.node("merge", "merge-heads", merged, O=o, y=y)

    def backward(dy: str) -> None:
        dx, do, dq, dk, dv = (b.gradient(tensor) for tensor in (x, o, q, k, v))
        b.node("dO", "split-heads", merged, x=dy, O=do)
        tiles = small_tiles(b.rungs["attention-backward"], back)
        b.node("dQ, dK, dV", "attention-backward", back, tiles, Q=q, K=k, V=v, dO=do, O=o, L=L, dQ=dq, dK=dk, dV=dv)
        b.node("dx", "merge-heads", split, Q=dq, K=dk, V=dv, y=dx)
        b.receive(x, dx)

    return b.on_the_way_back(y, backward)


@lru_cache(maxsize=64)
def small_tiles(name: str, s: AttentionShape) -> Mapping[str, int]:
    """Returns, of a rung's tile sizes that are compiled ahead, those that compute the fewest pairs: few tokens fill no
    default tile. {} if it has no tiles of queries and keys. RuleError names the rule if the shape breaks one at any tiles."""
    rung = find(name)
    if not {"Br", "Bc"} <= rung.tiles.keys():
        return {}

    def pairs(tiles: Mapping[str, int]) -> int:
        return math.prod(ceil(s.N, tiles[side]) * tiles[side] for side in ("Br", "Bc"))

    found = min(rung.tile_sets(s), key=pairs, default=None)
    if found is None:
        raise RuleError(
            tr(
                "attention of {images} images with {heads} heads cannot run: {rule}",
                images=s.B,
                heads=s.H,
                rule="; ".join(rung.rules(s, rung.default_tiles)),
            )
        )
    return found


# -- the end ---------------------------------------------------------------------------------------
def cross_entropy(b: Builder, x: str, labels: str, factor: str) -> None:
    """Adds the loss of each row, and the way back from it. `factor` [M] is the gradient of each loss: 1/M for a mean."""
    M, N = b.shape_of(x)
    loss, lse = b.result("loss", M), b.activation("lse", M)
    b.node("", "cross-entropy", CrossEntropyShape(M, N), x=x, labels=labels, loss=loss, lse=lse)

    def backward(g: str) -> None:
        dx = b.gradient(x)
        b.node("dx", "cross-entropy-backward", CrossEntropyBackwardShape(M, N), x=x, labels=labels, lse=lse, g=g, dx=dx)
        b.receive(x, dx)

    b.on_the_way_back(loss, backward)
    b.go_back(loss, factor)


LAYERS: Mapping[str, Callable[..., str]] = {
    "conv": conv,
    "relu": relu,
    "maxpool": maxpool,
    "average": average,
    "batchnorm": batchnorm,
    "residual": residual,
    "linear": linear,
    "project": project,
    "position": position,
    "layernorm": layernorm,
    "add": add,
    "attention": attention,
}
