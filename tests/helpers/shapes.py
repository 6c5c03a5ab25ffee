"""Hypothesis strategies: small valid shapes with every parameter."""

from __future__ import annotations

from hypothesis import strategies as st

from kernels.attention.shape import AttentionShape
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.half.shape import HalfShape
from kernels.conv.shape import MODES, ConvShape
from kernels.fusion.shape import KINDS, ChainShape
from kernels.gemm.shape import GemmShape


@st.composite
def conv_shapes(draw, max_extent: int = 4) -> ConvShape:
    """Draws any stride, padding, dilation and mode, with extents small enough for a seven-loop reference.

    In half of the shapes the padding may differ at the two ends of an axis.
    """
    small = st.integers(1, max_extent)
    R, S, dilation_h, dilation_w = draw(small), draw(small), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    pad_h, pad_w = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    extra_h, extra_w = draw(st.just((0, 0)) | st.tuples(st.integers(-pad_h, 3), st.integers(-pad_w, 3)))
    min_h = max(1, dilation_h * (R - 1) + 1 - 2 * pad_h - extra_h)
    min_w = max(1, dilation_w * (S - 1) + 1 - 2 * pad_w - extra_w)
    return ConvShape(
        N=draw(st.integers(1, 3)),
        C=draw(small),
        H=draw(st.integers(min_h, min_h + 6)),
        W=draw(st.integers(min_w, min_w + 6)),
        K=draw(st.integers(1, 5)),
        R=R,
        S=S,
        u=draw(st.integers(1, 3)),
        v=draw(st.integers(1, 3)),
        pad_h=pad_h,
        pad_w=pad_w,
        dilation_h=dilation_h,
        dilation_w=dilation_w,
        mode=draw(st.sampled_from(MODES)),
        extra_h=extra_h,
        extra_w=extra_w,
    )


@st.composite
def layer_shapes(draw, max_extent: int = 3, groups: bool = True) -> ConvShape:
    """Draws conv_shapes with bias, ReLU and, if `groups`, groups: one, several, or one per map (depthwise)."""
    s = draw(conv_shapes(max_extent))
    count = draw(st.integers(1, 4)) if groups else 1
    return s.with_(
        C=count * draw(st.integers(1, max_extent)),
        K=count * draw(st.integers(1, max_extent)),
        groups=count,
        bias=draw(st.integers(0, 1)),
        relu=draw(st.integers(0, 1)),
    )


def plain_layer_shapes(max_extent: int = 3) -> st.SearchStrategy[ConvShape]:
    """Draws layer_shapes without bias and ReLU."""
    return layer_shapes(max_extent).map(lambda s: s.with_(bias=0, relu=0))


def half_shapes(max_extent: int = 3) -> st.SearchStrategy[HalfShape]:
    """Draws conv_shapes in FP16: channels and filters are multiples of 8, few or more than a tile has."""
    eights = st.integers(1, 12).map(lambda n: 8 * n)
    return st.builds(
        lambda s, C, K: HalfShape(**s.params() | {"C": C, "K": K}), conv_shapes(max_extent), eights, eights
    )


@st.composite
def transpose_shapes(draw, max_extent: int = 3) -> TransposeShape:
    """Draws transposed convolutions with any stride, padding (in half of them different at the two ends), output padding,
    dilation and groups."""
    count, strides = draw(st.integers(1, 3)), [draw(st.integers(1, 3)) for _ in "uv"]
    taps, dilation = ([draw(st.integers(1, 3)) for _ in "hw"] for _ in range(2))
    sizes, pads, output_pads, extras, equal = [], [], [], [], draw(st.booleans())
    for stride, tap, step in zip(strides, taps, dilation, strict=True):
        size, output_pad = draw(st.integers(1, 5)), draw(st.integers(0, stride - 1))
        whole = (size - 1) * stride + step * (tap - 1) + 1 + output_pad
        sizes.append(size), output_pads.append(output_pad)
        pads.append(draw(st.integers(0, min(3, (whole - 1) // 2))))
        extras.append(0 if equal else draw(st.integers(-pads[-1], min(3, whole - 1 - 2 * pads[-1]))))
    C, K = (count * draw(st.integers(1, max_extent)) for _ in "CK")
    return TransposeShape(
        draw(st.integers(1, 3)),
        C,
        *sizes,
        K,
        *taps,
        stride=strides,
        pad=pads,
        output_pad=output_pads,
        dilation=dilation,
        groups=count,
        extra=extras,
    )


@st.composite
def gemm_shapes(draw, max_extent: int = 140, max_k: int = 40, dtype: str = "fp32") -> GemmShape:
    """Draws odd extents, smaller and larger than a tile, single rows, columns and terms; alpha and beta."""
    extent = st.one_of(st.integers(1, 9), st.integers(1, max_extent))
    depth = st.one_of(st.just(1), st.integers(1, max_k))
    factors = st.sampled_from([(1, 0), (1, 1), (-2, 0), (3, -2), (0, 1)])
    alpha, beta = draw(factors)
    return GemmShape(draw(extent), draw(extent), draw(depth), alpha, beta, dtype)


@st.composite
def attention_shapes(
    draw, max_extent: int = 40, max_d: int = 40, max_heads: int = 3, dtype: str = "fp32"
) -> AttentionShape:
    """Draws sequences shorter and longer than a tile, any head size, causal or not, the default scale and others."""
    extent = st.one_of(st.integers(1, 9), st.integers(1, max_extent))
    width = st.one_of(st.sampled_from([n for n in (1, 4, 8, 32, 64, 128) if n <= max_d]), st.integers(1, max_d))
    return AttentionShape(
        B=draw(st.integers(1, 2)),
        H=draw(st.integers(1, max_heads)),
        N=draw(extent),
        d=draw(width),
        causal=draw(st.integers(0, 1)),
        scale=draw(st.sampled_from([0.0, 0.0, 1.0, -0.5])),
        dtype=dtype,
    )


@st.composite
def chain_shapes(draw, max_extent: int = 9, max_blocks: int = 6) -> ChainShape:
    """Draws chains of any blocks in any order, each legal at its position.

    Windows overlap, extend beyond the map, or cover all of it.
    """
    N, C, H, W = (draw(st.integers(1, 2)), draw(st.integers(1, 5)), *(draw(st.integers(1, max_extent)) for _ in "HW"))
    blocks, extents = [], (N, C, H, W)
    for _ in range(draw(st.integers(1, max_blocks))):
        blocks.append(draw(_blocks(extents)))
        extents = ChainShape(*extents, blocks[-1]).y_shape
    return ChainShape(N, C, H, W, " ".join(blocks))


@st.composite
def _blocks(draw, extents: tuple[int, int, int, int]) -> str:
    kind = draw(st.sampled_from(KINDS))
    if kind == "bn" and draw(st.booleans()):
        return "bn:eps=0.1"
    if kind not in ("conv", "maxpool", "avgpool"):
        return kind
    small = min(extents[2:])
    R = draw(st.integers(1, min(4, small + 2)))
    max_pad = R - 1 if kind == "conv" else R // 2
    min_pad = max(0, -(-(R - small) // 2))
    if min_pad > max_pad:
        R, min_pad, max_pad = 1, 0, 0
    pad, stride = draw(st.integers(min_pad, max_pad)), draw(st.integers(1, 3))
    filters = f":K={draw(st.integers(1, 4))}" if kind == "conv" else ""
    return f"{kind}{filters}:R={R}:stride={stride}:pad={pad}"
