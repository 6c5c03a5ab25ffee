"""Every kernel of the ladders as cases: at its default tile sizes and at others, with whole and with ragged tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

from benchmarks.hardware_case import Case, steps
from kernels.attention import hopper as attention_hopper
from kernels.attention import ladder as attention_ladder
from kernels.attention.backward import ladder as attention_backward_ladder
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.lse import ladder as attention_lse_ladder
from kernels.attention.lse.shape import LseShape
from kernels.attention.shape import AttentionShape
from kernels.conv import ladder as conv_ladder
from kernels.conv.backward import ladder as conv_backward
from kernels.conv.half import ladder as conv_half_ladder
from kernels.conv.half.shape import HalfShape
from kernels.conv.shape import ConvShape
from kernels.cross_entropy import ladder as cross_entropy_ladder
from kernels.elementwise import ladder as elementwise_ladder
from kernels.embedding import ladder as embedding_ladder
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.half import hopper as fusion_half
from kernels.fusion.half.shape import HalfChainShape
from kernels.fusion.shape import ChainShape
from kernels.gemm import ladder as gemm_ladder
from kernels.gemm.eight_bit import ladder as eight_bit_ladder
from kernels.gemm.shape import GemmShape
from kernels.heads import ladder as heads_ladder
from kernels.linear import ladder as linear_ladder
from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape
from kernels.model.rung import Ladder, Rung
from kernels.norm import ladder as norm_ladder
from kernels.optimizer import ladder as optimizer_ladder
from kernels.pooling import ladder as pooling_ladder
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from kernels.precision import ladder as precision_ladder
from kernels.precision.shape import RateShape
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.shape import SoftmaxShape

DTYPES = ("fp32", "fp16", "bf16", "int8")


def _smallest(rung: Rung, shape) -> dict[str, int]:
    return min(rung.tile_sets(shape), key=lambda tiles: math.prod(tiles.values()))


def _allowed(rung: Rung, shape) -> bool:
    return not any(rung.rules(shape, rung.default_tiles))


# -- matrix products ---------------------------------------------------------------------------------------
def _gemm(rung: Rung, dtype: str) -> Iterator[Case]:
    """Yields a whole tile of the default sizes; ragged edges with the smallest tiles, where no float4 load is possible;
    ragged edges where it is."""
    whole, ragged = GemmShape(128, 128, 64, dtype=dtype), GemmShape(61, 45, 37, -2, 3, dtype)
    if _allowed(rung, whole):
        yield from steps(rung, whole)
        if any(rung.tile_sets(ragged)):  # not if rows must begin at multiples of 16 bytes
            yield from steps(rung, ragged, **_smallest(rung, ragged))
        float4_shape = GemmShape(36, 72, 40, dtype=dtype)
        yield from steps(rung, float4_shape, **_smallest(rung, float4_shape))


GEMM = tuple(
    case for rung in gemm_ladder.LADDER.rungs if not rung.library for dtype in DTYPES for case in _gemm(rung, dtype)
)

# 8-bit numbers: whole tiles; ragged ones whose rows begin at multiples of 16 bytes, or not if a rule allows that.
EIGHT_BIT = tuple(
    case
    for rung in eight_bit_ladder.LADDER.rungs
    if not rung.library
    for dtype in eight_bit_ladder.INPUT
    for extents in ((128, 128, 128), (72, 80, 208), (61, 45, 37))
    for shape in (eight_bit_ladder.EightBitShape(*extents, dtype),)
    if _allowed(rung, shape)
    for case in steps(rung, shape, **({} if extents == (128, 128, 128) else _smallest(rung, shape)))
)

# -- threads and memory ------------------------------------------------------------------------------------
_MEMORY = (
    (memory_ladder.ADD, (AddShape(64, 96), {}), (AddShape(61, 45), {"BLOCK": 128, "TILE": 8})),
    (memory_ladder.BANKS, *((BanksShape(512, n), {}) for n in (1, 2, 3, 32)), (BanksShape(301, 5, 2), {"BLOCK": 64})),
    (memory_ladder.BRANCH, (BranchShape(512, 8), {}), (BranchShape(301, 3), {"BLOCK": 64})),
    (memory_ladder.LAYOUT, (LayoutShape(2, 8, 16, 16), {}), (LayoutShape(3, 5, 7, 11), {"BLOCK": 64})),
)  # stride/copy is teaching/01_strided_copy.cu
MEMORY = tuple(
    case
    for ladder, *settings in _MEMORY
    for rung in ladder.rungs
    for shape, tiles in settings
    for case in steps(rung, shape, **{name: value for name, value in tiles.items() if name in rung.tiles})
)

# -- convolution -------------------------------------------------------------------------------------------
_PLAIN = ConvShape(1, 8, 28, 28, 16, 3, 3, pad=1)
_RAGGED = ConvShape(2, 3, 17, 13, 5, 3, 5, stride=(2, 1), pad=(1, 2), dilation=(2, 1))
_FLIPPED = ConvShape(1, 7, 9, 9, 33, 2, 2, mode="convolution")
_GROUPED = ConvShape(2, 6, 11, 9, 10, 3, 3, pad=1, groups=2, bias=1, relu=1)
_FINISHED = ConvShape(2, 3, 9, 7, 5, 3, 3, bias=1, relu=1)
_ODD = ConvShape(2, 5, 11, 9, 37, 3, 3, pad=(1, 0), mode="convolution")  # no tile divides these maps
_SMALL = ConvShape(1, 3, 12, 12, 8, 3, 3, pad=1)


def _conv(name: str, shape: ConvShape, *entries: str, **tiles: int) -> Iterator[Case]:
    return steps(conv_ladder.LADDER.rung(f"conv/{name}"), shape, *entries, **tiles)


IM2COL = tuple(
    chain(
        *(_conv("direct", shape, BLOCK=256) for shape in (_PLAIN, _RAGGED, _FLIPPED)),
        *(_conv("im2col-gemm", shape, "im2col", BLOCK=256) for shape in (_PLAIN, _RAGGED, _FLIPPED)),
        *(
            _conv("im2col-gemm", shape, "gemm", TILE=tile)
            for tile in conv_ladder.TILES
            for shape in (_PLAIN, _RAGGED, _FLIPPED)
        ),
    )
)

CONV = tuple(
    chain(
        _conv("direct-tiled", _PLAIN),
        _conv("direct-tiled", _RAGGED, TILE=8, TK=4, TP=2, CHUNK=2),
        _conv("direct-tiled", _GROUPED, TILE=8, TK=4, TP=2, CHUNK=1),
        *(
            chain(
                _conv(name, _PLAIN),
                _conv(name, _RAGGED, BM=32, BN=32, BK=8, TM=4, TN=4, STAGES=2),
                _conv(name, _GROUPED, BM=32, BN=32, BK=8, TM=4, TN=4, STAGES=2),
            )
            for name in ("implicit-gemm-plain", "implicit-gemm")
        ),
        _conv("winograd-2x2", _PLAIN),
        _conv("winograd-2x2", _ODD, BK=32, BC=4),
        _conv("winograd-4x4", _SMALL),
        _conv("winograd-4x4", _ODD, BC=4),
        # The filters' transform is the same launch for F(2x2) and F(4x4) above.
        _conv("winograd-nonfused", _PLAIN, "winograd_input", "winograd_product", "winograd_output", M=4),
        _conv("winograd-nonfused", _SMALL, "winograd_input", "winograd_product", "winograd_output", M=2, STAGES=2),
        _conv("winograd-nonfused", _ODD, M=6, BLOCK=256, BM=128, BN=64),
        _conv("fft", _SMALL),
        _conv("fft", _RAGGED, FFT_TILE=16, SPECTRA=8),
        _conv("fft", _FINISHED, "fft_pick"),
        _conv("fft-tiled", _PLAIN, FFT_TILE=16),
        _conv("fft-tiled", _RAGGED, FFT_TILE=8, BN=32),
        _conv("fft-tiled", _SMALL, FFT_TILE=32, STAGES=2),
        _conv("direct", _PLAIN.with_(bias=1), "bias_relu"),
        _conv("direct", _FINISHED, "bias_relu"),
    )
)

# Whole tiles; several parts and phases, partly outside, more than one image.
_STRIDED = ConvShape(2, 5, 18, 13, 37, 3, 3, stride=2, pad=1)


def _backward(ladder, name: str, shape: ConvShape, *entries: str, **tiles: int) -> Iterator[Case]:
    return steps(ladder.rung(f"{ladder.name}/{name}"), shape, *entries, **tiles)


_HALVES = (
    (HalfShape(2, 72, 18, 14, 72, 3, 3, pad=1), {}),
    (HalfShape(3, 136, 9, 9, 40, 3, 2, pad=(1, 0), dilation=(1, 2)), {"BM": 64, "BN": 64, "STAGES": 2}),
)
CONV_FP16 = tuple(
    case
    for rung in conv_half_ladder.LADDER.rungs
    if not rung.library
    for shape, tiles in _HALVES
    for case in steps(rung, shape, **tiles)
)

_DINPUT, _DWEIGHT = conv_backward.DINPUT, conv_backward.DWEIGHT
_SMALLEST = {"BM": 32, "BN": 32, "BK": 16, "TM": 4, "TN": 4, "STAGES": 4}
_DWEIGHT_WINOGRAD = "dweight_winograd_gradient", "dweight_winograd_product", "dweight_winograd_filter"
CONV_BACKWARD = tuple(
    chain(
        *(_backward(_DINPUT, "direct", shape) for shape in (_PLAIN, _STRIDED)),
        *(
            _backward(_DINPUT, "gemm-atomics", shape, "gemm_transposed", "col2im_atomics")
            for shape in (_PLAIN, _STRIDED)
        ),
        *(_backward(_DINPUT, "gemm-gather", shape, "col2im_gather") for shape in (_PLAIN, _STRIDED)),
        _backward(_DINPUT, "implicit-gemm", _PLAIN),
        _backward(_DINPUT, "implicit-gemm", _STRIDED, **_SMALLEST),
        _backward(_DINPUT, "winograd", _PLAIN, "dinput_winograd_filter"),
        _backward(_DINPUT, "winograd", _ODD, "dinput_winograd_filter", M=6),
        _backward(_DWEIGHT, "winograd", _PLAIN, *_DWEIGHT_WINOGRAD),
        _backward(_DWEIGHT, "winograd", _ODD, *_DWEIGHT_WINOGRAD, M=6, BM=128),
        *(_backward(_DWEIGHT, "direct", shape) for shape in (_PLAIN, _STRIDED)),
        *(_backward(_DWEIGHT, "im2col-gemm", shape, "gemm_sum") for shape in (_PLAIN, _STRIDED)),
        *(
            chain(
                _backward(_DWEIGHT, name, _PLAIN, *entries), _backward(_DWEIGHT, name, _STRIDED, *entries, **_SMALLEST)
            )
            for name, entries in (("implicit-gemm-atomics", ("dweight_atomics",)), ("implicit-gemm", ()))
        ),
    )
)

# -- attention ---------------------------------------------------------------------------------------------
_HEAD = AttentionShape(1, 1, 128, 64)
_HEADS = AttentionShape(1, 2, 61, 37)
_FOURS = AttentionShape(2, 1, 36, 20)
_CAUSAL = AttentionShape(1, 2, 131, 64, causal=1)
_EIGHTS = AttentionShape(1, 2, 61, 40)  # in FP16 too, rows are aligned to 16 bytes
_WINDOW = AttentionShape(1, 4, 61, 64, causal=1, M=150, kv_heads=2, window=40)
_MASKED = AttentionShape(1, 2, 61, 37, M=70, softcap=2, mask="bool")
_CACHE = AttentionShape(2, 8, 1, 64, causal=1, M=700, kv_heads=2)


def _attention(name: str, shape: AttentionShape, *entries: str, **tiles: int) -> Iterator[Case]:
    return steps(attention_ladder.LADDER.rung(f"attention/{name}"), shape, *entries, **tiles)


ATTENTION = tuple(
    chain(
        *(_attention("naive", shape, BLOCK=block) for shape, block in ((_HEAD, 16), (_HEADS, 8), (_FOURS, 32))),
        *(
            _attention("blocked", shape, "scores_tiled", "values_tiled", TILE=tile)
            for shape, tile in ((_HEAD, 32), (_HEADS, 8), (_FOURS, 16))
        ),
        *(_attention("fused", shape, BLOCK=block) for shape, block in ((_HEAD, 256), (_HEADS, 128), (_CAUSAL, 256))),
        _attention("flash", _HEAD),
        _attention("flash", _HEADS, Br=4, Bc=8),
        _attention("flash", _CAUSAL, Br=16, Bc=16),
        _attention("flash-registers", _HEAD),
        _attention("flash-registers", _HEADS, Br=32, Bc=8),
        _attention("flash-registers", _FOURS, Br=64, TM=4),
        _attention("flash-registers", _CAUSAL, Bc=32),
        _attention("flash-mma", _HEAD.with_(dtype="fp16")),
        _attention("flash-mma", _EIGHTS.with_(dtype="fp16"), Br=16, Bc=16, WM=16),
        _attention("flash-mma", _HEADS.with_(dtype="bf16"), Br=64),
        _attention("flash-mma", _CAUSAL.with_(dtype="fp16"), Bc=128),
        _attention("flash-mma", _CAUSAL.with_(dtype="bf16"), WM=16, STAGES=3),
        *(
            _attention(rung.name.partition("/")[2], shape, **tiles)
            for rung in attention_hopper.RUNGS
            for shape, tiles in ((_EIGHTS.with_(dtype="fp16"), {}), (_CAUSAL.with_(dtype="bf16"), rung.sets[0]))
        ),
        _attention("flash-variants", _WINDOW),
        _attention("flash-variants", _MASKED, Br=32, Bc=8),
        _attention("flash-mma-variants", _WINDOW.with_(dtype="fp16")),
        _attention("flash-mma-variants", _MASKED.with_(dtype="bf16", mask="bias"), Br=64),
        _attention("flash-wgmma-variants", _WINDOW.with_(dtype="fp16")),
        _attention("flash-wgmma-variants", _MASKED.with_(d=40, dtype="bf16", mask="bias"), Br=128, Bc=64),
        _attention("flash-decode", _CACHE.with_(dtype="fp16")),
        _attention("flash-decode", _MASKED.with_(N=3), PART=128, THREADS=128),
        _attention("flash-decode-ring", _CACHE.with_(dtype="fp16")),
        _attention("flash-decode-ring", _MASKED.with_(N=3, d=40, dtype="bf16"), WARPS=4, BLOCKS=264),
        _attention("cublas", _HEADS.with_(dtype="fp16"), "softmax"),
        _attention("cublas", _CAUSAL.with_(dtype="bf16"), "softmax"),
    )
)


def _attention_backward(name: str, shape: AttentionShape, *entries: str, **tiles: int) -> Iterator[Case]:
    rung = attention_backward_ladder.LADDER.rung(f"attention-backward/{name}")
    return steps(rung, AttentionBackwardShape(**shape.params()), *entries, **tiles)


_NEW = "row_dots", "softmax_gradient", "values_transposed"  # the other launches are the forward pass's
_RECOMPUTE, _FLASH = ("recompute_keys", "recompute_queries"), ("flash_keys", "flash_queries")
_MMA = "flash_mma_keys", "flash_mma_queries"
ATTENTION_BACKWARD = tuple(
    {
        case.name: case  # dV and dK are two launches of one kernel
        for case in chain(
            _attention_backward("naive", _HEAD, *_NEW),
            _attention_backward("naive", _HEADS, *_NEW[1:], TILE=8),
            _attention_backward("recompute", _HEAD, *_RECOMPUTE),
            _attention_backward("recompute", _CAUSAL, "row_dots", *_RECOMPUTE, BLOCK=128),
            *(
                chain(
                    _attention_backward(name, _HEAD, *entries),
                    _attention_backward(name, _CAUSAL, *entries, Br=8, Bc=16),
                )
                for name, entries in (("flash", ("flash_backward",)), ("flash-two-kernels", _FLASH))
            ),
            _attention_backward("flash", _HEADS, "zero"),
            _attention_backward("flash", _CAUSAL, "zero"),
            _attention_backward("flash-mma", _HEAD.with_(dtype="fp16"), "row_dots", *_MMA),
            _attention_backward("flash-mma", _CAUSAL.with_(dtype="bf16"), "row_dots", *_MMA, Br=16, Bc=16, WM=16),
            _attention_backward("flash-mma", _EIGHTS.with_(dtype="fp16"), *_MMA, Bc=64, WM=16),
            _attention_backward("flash-wgmma", _EIGHTS.with_(dtype="fp16")),
            _attention_backward("flash-wgmma", _EIGHTS.with_(dtype="bf16", causal=1), STAGES=2),
        )
    }.values()
)


def _attention_lse(name: str, shape: AttentionShape, *entries: str, **tiles: int) -> Iterator[Case]:
    rung = attention_lse_ladder.LADDER.rung(f"attention-lse/{name}")
    return steps(rung, LseShape(**shape.params()), *entries, **tiles)


ATTENTION_LSE = tuple(
    chain(
        _attention_lse("blocked", _HEAD, "softmax_lse"),  # the other launches are the forward pass's
        _attention_lse("blocked", _HEADS, "softmax_lse"),
        _attention_lse("flash-registers", _HEAD),
        _attention_lse("flash-registers", _HEADS, Br=32, Bc=8),
        _attention_lse("flash-registers", _FOURS, Br=64, TM=4),
        _attention_lse("flash-registers", _CAUSAL, Bc=32),
    )
)

# -- fusion ------------------------------------------------------------------------------------------------
_SMALL_MAPS, _ODD_MAPS = (2, 4, 16, 16), (2, 5, 11, 9)  # whole float4, and none
_CHAINS = (
    "conv:K=6:R=3 bias bn relu add",
    "bias bn relu add",
    "bn relu maxpool:3:stride=2:pad=1",
    "relu avgpool:2 bias",
    "bn add relu gap",
)


def _fusion(name: str, chain: str, extents: tuple[int, ...]) -> Iterator[Case]:
    rung, shape = fusion_ladder.LADDER.rung(f"fusion/{name}"), ChainShape(*extents, chain)
    return steps(rung, shape) if _allowed(rung, shape) else iter(())


FUSION = tuple(
    {
        case.name: case  # two chains may have a launch in common
        for name in fusion_ladder.PLANS
        for chain in _CHAINS
        for extents in (_SMALL_MAPS, _ODD_MAPS)
        for case in _fusion(name.partition("/")[2], chain, extents)
    }.values()
)

FUSION_FP16 = tuple(
    case
    for shape, tiles in (
        (HalfChainShape(2, 72, 18, 14, "conv:K=72:R=3 bn relu"), fusion_half.RUNG.default_tiles),
        (HalfChainShape(3, 136, 9, 9, "conv:K=40:R=1:stride=2 bias add relu"), fusion_half.SMALL),
    )
    for case in steps(fusion_half.RUNG, shape, **tiles)
)

# -- softmax -----------------------------------------------------------------------------------------------
# Rows of whole sectors; rows that begin inside a sector, with loops that end early.
SOFTMAX = tuple(
    case
    for rung in softmax_ladder.RUNGS
    if rung.name != "softmax/one-launch"  # hardware_cases.EXCLUDED
    for shape, tiles in (
        (SoftmaxShape(16, 512), {}),
        (SoftmaxShape(7, 333), {"BLOCK": 128, "WARPS": 4}),
        (SoftmaxShape(3, 77), {"BLOCK": 32, "WARPS": 1, "BLOCKS": 8}),
    )
    for case in steps(rung, shape, **{name: value for name, value in tiles.items() if name in rung.tiles})
)

# -- elementwise layers ------------------------------------------------------------------------------------
# Aligned maps; maps of an odd size with small blocks. Each with what ReLU keeps, in both forms of GELU, and in both layouts.
_ALIGNED, _UNALIGNED = (2, 8, 16, 16), (3, 5, 7, 11)
_FIELDS = {
    "relu": {"keep": ("y", "bytes", "bits")},
    "bias": {"layout": ("nchw", "nhwc")},
    "gelu": {"form": ("erf", "tanh")},
}


def _elementwise(ladder: Ladder, rung: Rung) -> Iterator[Case]:
    ((field, values),) = _FIELDS.get(ladder.name.partition("-")[0], {"": ()}).items()
    for fields in [{field: value} for value in values] or [{}]:
        yield from steps(rung, ladder.shape(*_ALIGNED, **fields))
        unaligned = ladder.shape(*_UNALIGNED, **fields)
        yield from steps(rung, unaligned, **_smallest(rung, unaligned))


ELEMENTWISE = tuple(
    {
        (case.launch.source, case.name.partition("-")[2]): case  # two rungs may have a launch in common
        for ladder in elementwise_ladder.LADDERS
        for rung in ladder.rungs
        if not rung.library
        for case in _elementwise(ladder, rung)
    }.values()
)


# -- optimisers --------------------------------------------------------------------------------------------
# One aligned tensor; tensors at the edges of a chunk. A launch per tensor has one tensor.
def _optimizer(ladder: Ladder, rung: Rung) -> Iterator[Case]:
    yield from steps(rung, ladder.shape("8192"))
    ragged = ladder.shape("1001" if rung.name.endswith("per-tensor") else "1 63 300 4099")
    yield from steps(rung, ragged, **_smallest(rung, ragged))


OPTIMIZER = tuple(
    case
    for ladder in optimizer_ladder.LADDERS
    for rung in ladder.rungs
    if not rung.library
    for case in _optimizer(ladder, rung)
)
# -- cross-entropy -----------------------------------------------------------------------------------------
# Rows of whole sectors; rows that begin inside 16 bytes.
CROSS_ENTROPY = tuple(
    case
    for ladder in cross_entropy_ladder.LADDERS
    for rung in ladder.rungs
    if not rung.library
    for extents, tiles in (((16, 2048), {}), ((7, 333), {"BLOCK": 32, "LOADS": 1, "SPLITS": 2}))
    for case in steps(
        rung, ladder.shape(*extents), **{name: value for name, value in tiles.items() if name in rung.tiles}
    )
)
# -- norms -------------------------------------------------------------------------------------------------
# Maps and rows of whole float4; odd extents with other tile sizes.
_NORM = {
    "maps": (((2, 8, 8, 12), {}), ((3, 5, 7, 9), {"BLOCK": 32, "BLOCKS": 12})),
    "rows": (((16, 512), {}), ((7, 77), {"BLOCK": 32, "WARPS": 1, "PER": 4, "BLOCKS": 3})),
}


def _norm(ladder, rung: Rung) -> Iterator[Case]:
    of_maps = ladder.name.startswith("batch")
    for extents, tiles in _NORM["maps" if of_maps else "rows"]:
        own = {name: value for name, value in tiles.items() if name in rung.tiles}
        for layout in (("nchw",), ("nhwc",)) if of_maps else ((),):
            shape = ladder.shape(*extents, *layout)
            if not any(rung.rules(shape, rung.default_tiles | own)):
                yield from steps(rung, shape, **own)


NORM = tuple(
    {
        case.name: case  # two rungs may have a launch in common
        for ladder in norm_ladder.LADDERS
        for rung in ladder.rungs
        if not rung.library
        for case in _norm(ladder, rung)
    }.values()
)

# -- fully connected layers --------------------------------------------------------------------------------
# Whole tiles of the default sizes; ragged edges with the smallest tiles, with and without copies of 16 bytes.
LINEAR = tuple(
    {
        case.name: case  # two rungs may have a launch in common
        for ladder in linear_ladder.LADDERS
        for rung in ladder.rungs
        if not rung.library
        for extents, small in (((128, 128, 128), False), ((61, 45, 37), True), ((36, 72, 40), True))
        for case in steps(rung, ladder.shape(*extents), **(_smallest(rung, ladder.shape(*extents)) if small else {}))
    }.values()
) + tuple(
    case
    for extents in ((128, 128, 128), (61, 45, 37))
    for case in steps(linear_ladder.LADDERS[0].rung("linear/cublas"), linear_ladder.LADDERS[0].shape(*extents))
)

# -- pooling -----------------------------------------------------------------------------------------------
# Rows of whole float4 and of none; windows that overlap.
_POOLING = {
    "max": (
        MaxPoolShape(2, 4, 16, 16, 3, 3, stride=2, pad=1),
        MaxPoolShape(1, 3, 13, 11, 3, 2, stride=(1, 2), pad=1, ceil=1),
    ),
    "avg": (
        AvgPoolShape(2, 4, 16, 16, 3, 3, stride=2, pad=1),
        AvgPoolShape(1, 3, 13, 11, 3, 2, stride=(1, 2), pad=1, include_pad=0),
    ),
    "global": (GlobalShape(2, 64, 16, 16), GlobalShape(3, 37, 9, 7)),
}
POOLING = tuple(
    case
    for ladder in pooling_ladder.LADDERS
    for rung in ladder.rungs
    if not rung.library
    for shape in _POOLING[ladder.name.partition("-")[0]]
    for case in steps(rung, shape)
)

# -- embeddings --------------------------------------------------------------------------------------------
# Rows of whole sectors, some tokens repeated; ragged rows in several chunks; one token in all rows.
EMBEDDING = tuple(
    {
        case.name: case  # two rungs sort in the same launches
        for ladder in embedding_ladder.LADDERS
        for rung in ladder.rungs
        if not rung.library
        for extents, small in (((96, 64, 128), False), ((61, 45, 37), True), ((40, 6, 12, "equal"), True))
        for case in steps(rung, ladder.shape(*extents), **(_smallest(rung, ladder.shape(*extents)) if small else {}))
    }.values()
)

# -- heads -------------------------------------------------------------------------------------------------
# Whole blocks of float4 in three parts; ragged rows without float4; one tensor.
HEADS = tuple(
    case
    for ladder in heads_ladder.LADDERS
    for rung in ladder.rungs
    if not rung.library
    for extents, small in (((2, 16, 4, 64, 3), False), ((3, 7, 5, 9, 3), True), ((2, 11, 3, 20, 1), True))
    for case in steps(rung, ladder.shape(*extents), **(_smallest(rung, ladder.shape(*extents)) if small else {}))
)

# -- instructions ------------------------------------------------------------------------------------------
# Whole blocks; a last block with warps that return at once.
INSTRUCTION_RATE = tuple(
    case
    for rung in precision_ladder.LADDER.rungs
    for shape, block in ((RateShape(16, 8), 128), (RateShape(13, 37), 256))
    for case in steps(rung, shape, BLOCK=block)
)
