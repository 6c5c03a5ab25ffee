"""Every kernel of the ladders at small ragged shapes and at every tile size that is compiled ahead, for
compute-sanitizer. Exit status 1 if a result is wrong.

    python benchmarks/sanitize.py --compile
    compute-sanitizer --tool memcheck --error-exitcode 3 python benchmarks/sanitize.py gemm
    compute-sanitizer --tool racecheck --error-exitcode 3 python benchmarks/sanitize.py gemm

and likewise every group of RUNS; all if none is named. --rungs attention/flash-decode,relu/one-float4 leaves out the other
rungs. The first line compiles everything, several kernels at a time, into CuPy's cache: under the sanitizer nothing is left
to compile. --emulator needs no GPU: the emulator runs the same launches, with its own checks of bounds, barriers and races.

Libraries are left out: we cannot repair faults inside cuBLAS, cuFFT and cuDNN. Rungs of a library are not run. If one of
our launches reads the output of a library call, NumPy computes that output. Each array is a separate allocation (no
pool), so that memcheck knows where it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import hardware_sass, report
from benchmarks.hardware_case import Case, steps
from benchmarks.hardware_counters import emulate, launch_on_gpu
from kernels.attention import decode, variants
from kernels.attention import hopper as attention_hopper
from kernels.attention import ladder as attention_ladder
from kernels.attention.backward import ladder as attention_backward_ladder
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.lse import ladder as attention_lse_ladder
from kernels.attention.lse.shape import LseShape
from kernels.attention.shape import AttentionShape
from kernels.conv import ladder as conv_ladder
from kernels.conv.backward import ladder as conv_backward
from kernels.conv.backward.transpose import TRANSPOSE
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.half import ladder as conv_half_ladder
from kernels.conv.half.shape import HalfShape
from kernels.conv.shape import ConvShape
from kernels.cross_entropy import ladder as cross_entropy_ladder
from kernels.elementwise import ladder as elementwise_ladder
from kernels.embedding import ladder as embedding_ladder
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.half import ladder as fusion_half_ladder
from kernels.fusion.half.presets import HALF_CHAIN_PRESETS
from kernels.fusion.half.shape import HalfChainShape
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import ChainShape
from kernels.gemm import hopper as gemm_hopper
from kernels.gemm import ladder as gemm_ladder
from kernels.gemm.eight_bit import ladder as eight_bit_ladder
from kernels.gemm.shape import GemmShape
from kernels.heads import ladder as heads_ladder
from kernels.linear import ladder as linear_ladder
from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, StrideShape
from kernels.model.rung import Rung
from kernels.model.tensor_map import TensorMap
from kernels.norm import ladder as norm_ladder
from kernels.optimizer import ladder as optimizer_ladder
from kernels.pooling import ladder as pooling_ladder
from kernels.pooling.presets import AVG_PRESETS, MAX_PRESETS
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from kernels.precision import ladder as precision_ladder
from kernels.precision.shape import RateShape
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.shape import SoftmaxShape

# For each ladder: shapes for every set of tile sizes, and shapes for the default sizes only. None is a multiple of a
# tile, but some allow float4 loads.
GEMM = (((61, 45, 37, -2, 3), (36, 72, 40)), ((1, 1, 1, 2, -1), (129, 130, 1)))
GEMM_EIGHT_BIT = ((300, 520, 464), (61, 45, 37), (1, 4, 16), (264, 328, 1040))
GEMM_HOPPER = ((300, 520, 456), (61, 48, 40, -2, 3), (1, 8, 8), (264, 328, 1032, 1, 1))
CONV = (
    (ConvShape(2, 5, 11, 9, 37, 3, 3, pad=(1, 0), extra=(-1, 2), mode="convolution", bias=1, relu=1),),
    (
        ConvShape(1, 1, 8, 8, 2, 3, 3),
        ConvShape(2, 3, 17, 13, 5, 3, 5, stride=(2, 1), pad=(1, 2), extra=(1, -2), dilation=(2, 1), bias=1),
        ConvShape(1, 40, 7, 7, 50, 1, 1, relu=1),
        ConvShape(2, 6, 11, 9, 10, 3, 3, pad=1, groups=2, bias=1, relu=1),
        ConvShape(1, 4, 8, 8, 4, 3, 3, stride=2, groups=4),
    ),
)
CONV_MANY_FILTERS = ConvShape(1, 2, 6, 6, 70, 3, 3)  # for the larger tile of products of spectra
# Several tiles with the channels last: ragged ones, several images in a tile, a stride, dilation, one pixel.
CONV_FP16 = (
    (HalfShape(3, 72, 6, 7, 72, 3, 2, pad=(1, 2), extra=(-1, 0), dilation=(1, 2), mode="convolution"),),
    (
        HalfShape(5, 136, 7, 7, 72, 3, 3, pad=1),
        HalfShape(2, 64, 17, 13, 40, 3, 5, stride=(2, 3), pad=(1, 2)),
        HalfShape(1, 8, 1, 1, 8, 1, 1),
    ),
)
CONV_FP16_ONE_BOX = HalfShape(2, 64, 9, 7, 40, 3, 3, pad=1)  # for tile sets that take 64 channels or fewer
# Several parts of the filters' gradient; phases with different numbers of taps; groups.
BACKWARD = (
    (ConvShape(2, 5, 11, 9, 37, 3, 3, pad=(1, 0), extra=(-1, 2), mode="convolution"),),
    (
        ConvShape(1, 1, 8, 8, 2, 3, 3),
        ConvShape(2, 3, 17, 13, 5, 3, 5, stride=(2, 1), pad=(1, 2), extra=(1, -2), dilation=(2, 1)),
        ConvShape(1, 40, 7, 7, 50, 1, 1, stride=2),
        ConvShape(2, 6, 11, 9, 10, 3, 3, stride=2, pad=1, groups=2),
        ConvShape(1, 4, 8, 8, 4, 3, 3, stride=2, groups=4),
    ),
)
TRANSPOSED = TransposeShape(2, 6, 5, 7, 10, 3, 2, stride=(3, 2), output_pad=(2, 1), dilation=(1, 3), groups=2)
ATTENTION = (AttentionShape(1, 2, 61, 37), AttentionShape(2, 1, 36, 8, scale=-0.5))
CAUSAL = (AttentionShape(1, 2, 131, 96, causal=1), AttentionShape(1, 1, 1, 1, causal=1))
# In fp16 and in bf16: with and without copies of 16 bytes.
HALVES = (AttentionShape(1, 2, 61, 51), AttentionShape(2, 1, 140, 56, causal=1, scale=-0.5))
# Variants, for every set of tile sizes: shared heads, a window, caps and masks; few rows over many keys, with 1 to 8 rows.
VARIANTS = (
    AttentionShape(1, 4, 61, 40, causal=1, M=150, kv_heads=2, window=40),
    AttentionShape(1, 2, 33, 37, M=70, softcap=2, mask="bool"),
    AttentionShape(2, 4, 3, 64, M=300, kv_heads=2, mask="bias"),
    AttentionShape(1, 1, 16, 8, mask="bool"),
    AttentionShape(1, 2, 1, 8, M=70, kv_heads=1),
    AttentionShape(1, 8, 1, 120, causal=1, dtype="fp16", M=300, kv_heads=2),
    AttentionShape(1, 2, 70, 40, dtype="fp16", M=33, mask="bias"),
    AttentionShape(1, 2, 70, 120, causal=1, dtype="bf16", kv_heads=1, softcap=3),
    AttentionShape(1, 2, 150, 64, causal=1, dtype="fp16", M=200, kv_heads=1, window=90),
)
FEW_ROWS = (
    AttentionShape(1, 1, 1, 8, causal=1, M=70, window=40),
    AttentionShape(1, 1, 16, 8, M=24),
    AttentionShape(1, 2, 70, 40, dtype="fp16", M=33),
    AttentionShape(1, 2, 3, 33, dtype="bf16", M=70, kv_heads=1, mask="bias"),
)
# Few rows whose keys begin at multiples of 16 bytes: one band of rows, two bands, two blocks of rows, a mask, a bias.
DECODE = (
    AttentionShape(1, 8, 1, 120, causal=1, dtype="fp16", M=300, kv_heads=2),
    AttentionShape(2, 8, 3, 64, causal=1, dtype="bf16", M=500, kv_heads=2, window=330),
    AttentionShape(1, 4, 5, 40, dtype="fp16", M=150, kv_heads=1, softcap=2, mask="bool"),
    AttentionShape(1, 1, 9, 8, causal=1, dtype="fp16", M=5, mask="bias"),
)
NARROW = AttentionShape(1, 1, 70, 16)  # few sums: a warp may own 32 keys with 64 queries at a time
ATTENTION_HOPPER = (
    AttentionShape(1, 2, 301, 64),
    AttentionShape(2, 1, 440, 56, causal=1, scale=-0.5),
    AttentionShape(1, 3, 333, 128, causal=1),
    AttentionShape(1, 1, 1, 8),
)
# The chains of the presets, on maps whose size is not a multiple of float4, and two chains on maps whose size is.
FUSION = tuple(preset.shape.with_(N=2, C=3, H=11, W=9) for preset in FUSION_PRESETS.values())
FOURS = tuple(ChainShape(1, 3, 8, 8, chain) for chain in ("bias bn relu add", "conv:K=5:R=3 bias bn relu"))
# In FP16: the chains of the presets on several tiles, the last ones partly outside.
FUSION_FP16 = tuple(HalfChainShape(2, 72, 11, 9, preset.shape.chain) for preset in HALF_CHAIN_PRESETS.values())
SOFTMAX = ((SoftmaxShape(5, 77),), (SoftmaxShape(3, 1001), SoftmaxShape(9, 1), SoftmaxShape(2, 64)))
SOFTMAX_ONE_LAUNCH = ((SoftmaxShape(4, 77),), (SoftmaxShape(3, 5001), SoftmaxShape(9, 1), SoftmaxShape(2, 64)))
SOFTMAX_LONG = ((SoftmaxShape(5, 77),), (SoftmaxShape(3, 5001), SoftmaxShape(9, 1), SoftmaxShape(2, 64)))
CROSS_ENTROPY = ((5, 77), (3, 1003)), ((2, 64), (9, 1)), ((2, 50257), (1, 128256))
LINEAR = ((61, 45, 37), (36, 72, 40)), ((1, 1, 1),)
INSTRUCTION_RATE = (RateShape(13, 37),), (RateShape(1, 1),)
EMBEDDING = ((61, 45, 37), (37, 9, 36)), ((1, 1, 1), (40, 6, 12, "equal"), (70, 300, 8, "zipf"))
# Queries, keys and values in rows of whole float4 or not, one tensor, one number.
HEADS = ((2, 5, 3, 8, 3), (3, 7, 2, 5, 3), (2, 5, 3, 12, 1)), ((1, 1, 1, 1, 1),)
# Each: for every set of tile sizes, and for the default sizes only. Maps in each layout, rows of whole float4 or not.
NORM_MAPS = (
    ((2, 2, 2, 4, "nchw"), (2, 2, 2, 4, "nhwc")),
    ((3, 5, 7, 9, "nchw"), (3, 5, 7, 9, "nhwc"), (1, 132, 3, 5, "nhwc")),
)
NORM_ROWS = (((3, 36),), ((5, 77),))
MEMORY = {
    "add": (AddShape(61, 45), AddShape(1, 3)),
    "stride": (StrideShape(301, 3), StrideShape(1, 7)),
    "banks": (BanksShape(301, 5, 2), BanksShape(7, 32)),
    "branch": (BranchShape(301, 3), BranchShape(7, 1)),
    "layout": (LayoutShape(3, 5, 7, 11), LayoutShape(1, 1, 1, 1)),
}
# Maps with planes of an odd size, and rows; each layer's other fields in ELEMENTWISE_FIELDS.
ELEMENTWISE = ((3, 5, 7, 9), (1, 3, 1, 1), (37, 70, 1, 1))
ELEMENTWISE_FIELDS = {"keep": ("y", "bytes", "bits"), "form": ("erf", "tanh"), "layout": ("nchw", "nhwc")}
OPTIMIZER = "1 63 300 4099"

# The windows of the presets, on small planes with rows of whole float4 if theirs have them; and two windows more.
POOLING = {
    "max": (
        *(p.shape.with_(N=1, C=3, H=13, W=11 if p.shape.W % 4 else 12) for p in MAX_PRESETS.values()),
        MaxPoolShape(1, 2, 7, 5, 2, 3, stride=(1, 2), pad=1, dilation=2, ceil=1),
    ),
    "avg": (
        *(p.shape.with_(N=1, C=3, H=13, W=11 if p.shape.W % 4 else 12) for p in AVG_PRESETS.values()),
        AvgPoolShape(1, 2, 7, 5, 2, 3, stride=(3, 1), pad=1, ceil=1, include_pad=0),
    ),
    "global": (GlobalShape(3, 100, 4, 4), GlobalShape(3, 7, 5, 7), GlobalShape(1, 1, 1, 1)),
}


def runs(name: str) -> Iterator[tuple[Rung, Any, dict[str, int]]]:
    """Yields every rung of the project with each shape and tile sizes that it runs with."""
    for rung, swept, default in RUNS[name]():
        if rung.library or "cuda" not in rung.engines:
            continue
        for shape in swept:
            yield from ((rung, shape, tiles) for tiles in rung.tile_sets(shape))
        for shape in default:
            if not any(rung.rules(shape, rung.default_tiles)):
                yield rung, shape, rung.default_tiles


def _gemm():
    for rung in gemm_ladder.LADDER.rungs:
        if rung in gemm_hopper.RUNGS:
            continue
        for dtype in ("fp32", "fp16", "bf16", "int8"):
            yield rung, *([GemmShape(*shape, dtype=dtype) for shape in shapes] for shapes in GEMM)


def _gemm_hopper():
    """Yields shapes whose rows begin at multiples of 16 bytes: several tiles, ragged ones, one row, a long sum."""
    for rung in gemm_hopper.RUNGS:
        for dtype in ("fp16", "bf16"):
            yield rung, [GemmShape(*shape, dtype=dtype) for shape in GEMM_HOPPER], ()


def _gemm_eight_bit():
    for rung in eight_bit_ladder.LADDER.rungs:
        for dtype in eight_bit_ladder.INPUT:
            shapes = [eight_bit_ladder.EightBitShape(*shape, dtype) for shape in GEMM_EIGHT_BIT]
            yield rung, [s for s in shapes if not any(rung.rules(s, rung.default_tiles))], ()


def _conv():
    yield from ((rung, *CONV) for rung in conv_ladder.LADDER.rungs)
    yield conv_ladder.LADDER.rung("conv/fft-tiled"), (), (CONV_MANY_FILTERS,)


def _conv_fp16():
    yield from ((rung, *CONV_FP16) for rung in conv_half_ladder.LADDER.rungs)
    yield conv_half_ladder.LADDER.rung("conv-fp16/halo"), (CONV_FP16_ONE_BOX,), ()


def _conv_backward():
    for ladder in (conv_backward.DINPUT, conv_backward.DWEIGHT):
        yield from ((rung, *BACKWARD) for rung in ladder.rungs)
    yield from ((rung, (), (TRANSPOSED, TRANSPOSED.with_(groups=1))) for rung in TRANSPOSE.rungs)


def _attention():
    """Yields causal shapes only for rungs without S: masked elements of S stay unwritten and cannot be compared."""
    for rung in attention_ladder.LADDER.rungs:
        if rung in attention_hopper.RUNGS:
            continue
        fused = not rung.cost(CAUSAL[0], rung.build(CAUSAL[0], rung.default_tiles)).workspace_bytes
        yield rung, ATTENTION, CAUSAL if fused else ()
        yield rung, VARIANTS if rung in variants.RUNGS else DECODE if rung in decode.RUNGS else (), FEW_ROWS
        yield from ((rung, [s.with_(dtype=dtype) for s in HALVES], ()) for dtype in ("fp16", "bf16"))


def _attention_hopper():
    """Yields heads whose rows begin at multiples of 16 bytes: several tiles of queries and keys, ragged ones, one key."""
    for rung in attention_hopper.RUNGS:
        for dtype in ("fp16", "bf16"):
            yield rung, [s.with_(dtype=dtype) for s in ATTENTION_HOPPER], ()


def _attention_backward():
    """Yields the shapes of the forward pass; causal ones only for rungs without P and dS, as there."""
    for rung in attention_backward_ladder.LADDER.rungs:
        swept, causal = ([AttentionBackwardShape(**s.params()) for s in shapes] for shapes in (ATTENTION, CAUSAL))
        yield rung, swept, () if rung.name.endswith("/naive") else causal
        halves = [AttentionBackwardShape(**s.params()) for s in (*HALVES, NARROW)]
        yield from ((rung, [s.with_(dtype=dtype) for s in halves], ()) for dtype in ("fp16", "bf16"))


def _attention_lse():
    """Yields the shapes of the forward pass; causal ones only for the rung without S, as there."""
    for rung in attention_lse_ladder.RUNGS:
        swept, causal = ([LseShape(**s.params()) for s in shapes] for shapes in (ATTENTION, CAUSAL))
        yield rung, swept, () if rung.name.endswith("/blocked") else causal


def _heads():
    for ladder in heads_ladder.LADDERS:
        swept, default = ([ladder.shape(*extents) for extents in sizes] for sizes in HEADS)
        yield from ((rung, swept, default) for rung in ladder.rungs if not rung.library)


def _memory():
    yield from ((rung, MEMORY[ladder.name], ()) for ladder in memory_ladder.LADDERS for rung in ladder.rungs)


def _fusion():
    """Yields each rung. The kernels of all chains of the rung with tile sizes of its own depend on these."""
    for rung in fusion_ladder.LADDER.rungs:
        yield rung, (*FOURS, *FUSION) if rung.name == "fusion/implicit-gemm" else FOURS, FUSION


def _fusion_fp16():
    yield from ((rung, FUSION_FP16, ()) for rung in fusion_half_ladder.LADDER.rungs)


def _softmax():
    yield from ((rung, *SOFTMAX) for rung in softmax_ladder.RUNGS if rung not in softmax_ladder.LONG)


def _softmax_long():
    """Yields rungs of several blocks a row. The rows begin at all distances from a multiple of 16 bytes."""
    for rung in softmax_ladder.LONG:
        yield rung, *(SOFTMAX_ONE_LAUNCH if rung.name == "softmax/one-launch" else SOFTMAX_LONG)


def _elementwise():
    """Yields the layers without a bias."""
    return _of_maps(ladder for ladder in elementwise_ladder.LADDERS if not ladder.name.startswith("bias"))


def _bias():
    return _of_maps(ladder for ladder in elementwise_ladder.LADDERS if ladder.name.startswith("bias"))


def _of_maps(ladders):
    """Yields all shapes for each rung; one only for those whose kernels are another rung's with one float4 per thread."""
    for ladder in ladders:
        named = [(name, values) for name, values in ELEMENTWISE_FIELDS.items() if hasattr(ladder.shape, name)]
        options = [{name: value} for name, values in named for value in values] or [{}]
        swept, *others = ([ladder.shape(*extents, **fields) for fields in options] for extents in ELEMENTWISE)
        for rung in ladder.rungs:
            if not rung.library:
                yield rung, swept, () if rung.name.endswith("/one-float4") else chain(*others)


def _optimizer():
    for ladder in optimizer_ladder.LADDERS:
        shape = ladder.shape(OPTIMIZER, weight_decay=0.125)
        yield from ((rung, (shape,), ()) for rung in ladder.rungs)


def _cross_entropy():
    """Yields all shapes for each rung, and long rows for the one whose kernels depend on their length."""
    for ladder in cross_entropy_ladder.LADDERS:
        swept, default, long = ([ladder.shape(*extents) for extents in sizes] for sizes in CROSS_ENTROPY)
        for rung in ladder.rungs:
            yield rung, [*swept, *long] if rung.name.endswith("/cluster") else swept, default


def _linear():
    for ladder in linear_ladder.LADDERS:
        swept, default = ([ladder.shape(*extents) for extents in sizes] for sizes in LINEAR)
        yield from ((rung, swept, default) for rung in ladder.rungs)


def _norm():
    for ladder in norm_ladder.LADDERS:
        extents = NORM_MAPS if ladder.name.startswith("batch") else NORM_ROWS
        shapes = [[ladder.shape(*e) for e in group] for group in extents]
        yield from ((rung, *shapes) for rung in ladder.rungs)


def _pooling():
    for ladder in pooling_ladder.LADDERS:
        first, *others = POOLING[ladder.name.partition("-")[0]]
        yield from ((rung, (first,), others) for rung in ladder.rungs)


def _embedding():
    for ladder in embedding_ladder.LADDERS:
        swept, default = ([ladder.shape(*extents) for extents in sizes] for sizes in EMBEDDING)
        yield from ((rung, swept, default) for rung in ladder.rungs)


def _instruction_rate():
    yield from ((rung, *INSTRUCTION_RATE) for rung in precision_ladder.LADDER.rungs)


RUNS = {
    "gemm": _gemm,
    "gemm-8bit": _gemm_eight_bit,
    "gemm-hopper": _gemm_hopper,
    "conv": _conv,
    "conv-fp16": _conv_fp16,
    "conv-backward": _conv_backward,
    "attention": _attention,
    "attention-hopper": _attention_hopper,
    "attention-backward": _attention_backward,
    "attention-lse": _attention_lse,
    "heads": _heads,
    "memory": _memory,
    "fusion": _fusion,
    "fusion-fp16": _fusion_fp16,
    "softmax": _softmax,
    "softmax-long": _softmax_long,
    "elementwise": _elementwise,
    "bias": _bias,
    "optimizer": _optimizer,
    "cross-entropy": _cross_entropy,
    "linear": _linear,
    "norm": _norm,
    "pooling": _pooling,
    "embedding": _embedding,
    "instruction-rate": _instruction_rate,
}


def launches(name: str, rungs: Collection[str] = ()) -> list[Case]:
    """Returns every launch of a ladder once: two rungs may have a launch in common. With `rungs`, only theirs."""
    cases = {}
    ours = (
        case
        for rung, shape, tiles in runs(name)
        if not rungs or rung.name in rungs
        for case in steps(rung, shape, **tiles)
    )
    for case in chain(ours, () if rungs else _between_libraries(name)):
        step = case.launch
        args = tuple(a if isinstance(a, str | TensorMap) else a.tobytes() for a in step.args)
        cases.setdefault((step.source, step.defines, step.grid, step.block, args), case)
    return list(cases.values())


def _between_libraries(name: str) -> Iterator[Case]:
    """Yields our launches that only a library's rung has: the softmax with P in FP16 or BF16, the bias of a layer."""
    if name == "attention":
        for dtype in ("fp16", "bf16"):
            yield from steps(attention_ladder.CUBLAS, HALVES[0].with_(dtype=dtype), "softmax")
    if name == "linear":
        yield from steps(linear_ladder.LADDERS[0].rung("linear/cublas"), linear_ladder.LADDERS[0].shape(*LINEAR[0][0]))


def on_gpu(case: Case) -> str:
    return case.wrong(launch_on_gpu(case))


def in_emulator(case: Case) -> str:
    run = emulate(case, races=True)
    return "; ".join(filter(None, (case.wrong(run.outputs), *run.races)))


def run(name: str, check: Callable[[Case], str], rungs: Collection[str] = ()) -> int:
    """Returns how many launches of a ladder fail."""
    chosen, failures = launches(name, rungs), 0
    for case in chosen:
        try:
            problem = check(case)
        except Exception as e:  # printed; the others still run
            problem = f"{type(e).__name__}: {e}"
        if problem:
            failures += 1
            print(f"WRONG {case.name}: {problem}", flush=True)
    print(f"{name}: {len(chosen)} launches, {failures} wrong", flush=True)
    return failures


def main() -> int:
    parser = report.parser(__doc__)
    names = tuple(RUNS)
    parser.add_argument("ladder", nargs="*", metavar="|".join(names), help="all when left out")
    parser.add_argument("--rungs", default="", help="names of rungs, with commas between; all when left out")
    parser.add_argument("--compile", action="store_true", help="compile, and run nothing")
    parser.add_argument("--emulator", action="store_true", help="run in the emulator, without a GPU")
    args = parser.parse_args()
    if unknown := set(args.ladder) - set(names):
        parser.error(f"no ladder {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    rungs = set(filter(None, args.rungs.split(",")))
    known = {name: {rung.name for rung, *_ in RUNS[name]()} for name in names}
    if unknown := rungs.difference(*known.values()):
        parser.error(f"no rung {', '.join(sorted(unknown))}")
    having = [name for name in names if not rungs or rungs & known[name]]
    if empty := set(args.ladder).difference(having):  # else a sanitizer would find no error in no launch
        parser.error(f"{', '.join(sorted(empty))} has none of these rungs; {', '.join(having)} has")
    chosen = args.ladder or having
    if args.compile:
        cases = [case for name in chosen for case in launches(name, rungs)]
        print(hardware_sass.compile_all(cases, hardware_sass.compile_one))
        return 0
    if not args.emulator:
        import cupy

        cupy.cuda.set_allocator(None)
    check = in_emulator if args.emulator else on_gpu
    return int(sum(run(name, check, rungs) for name in chosen) > 0)


if __name__ == "__main__":
    sys.exit(main())
