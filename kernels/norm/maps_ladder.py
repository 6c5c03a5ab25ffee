"""Batch norm: in training, in inference, and its gradients. From one block per channel to several, and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kernels.i18n import mark
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, LibraryCall, Program, Tiles
from kernels.model.revealing import variances
from kernels.model.rung import Ladder, Rung
from kernels.norm import cpu, library, reference, revealing
from kernels.norm.common import (
    BLOCKS,
    EPSILON,
    GRIDS,
    MAX_PARTS,
    WHOLE_WARPS,
    all_rules,
    channel_rules,
    cost_of,
    count_rules,
    divider,
    flat_rules,
    in_nchw,
    in_nhwc,
    ints,
    library_rung,
    parts_of,
    width,
)
from kernels.norm.presets import maps_presets
from kernels.norm.reference import TOLERANCE
from kernels.norm.shape import (
    NHWC,
    BatchNormBackwardShape,
    BatchNormInferenceShape,
    BatchNormShape,
    MapsShape,
    maps_parser,
)

LOADS = {"bn_partial_nhwc": 8, "bn_backward_partial_nhwc": 4}  # of a thread at once, as in the kernels
SWEPT = ("res2", "res2-nhwc")


def _maps(s: MapsShape, *names: str, role: str = INPUT) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, role, s.dims) for name in names)


def _vectors(s: MapsShape, *names: str, role: str = INPUT) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, role, (s.C,)) for name in names)


def _layout(s: MapsShape) -> dict[str, int]:
    return {"NHWC": int(s.layout == NHWC)}


# -- parts of a channel ----------------------------------------------------------------------------------
def nchw_parts(s: MapsShape, tiles: Tiles) -> tuple[int, int, int, int]:
    """Returns (WIDTH, vectors of a channel, parts of a channel, vectors of a part): so many parts that all channels
    together have about BLOCKS of them."""
    by = width(s.HW)
    vectors = s.count // by
    wanted = min(ceil(tiles["BLOCKS"], s.C), MAX_PARTS)
    return by, vectors, *parts_of(vectors, wanted, tiles["BLOCK"])


def nhwc_parts(s: MapsShape, tiles: Tiles, kernel: str) -> tuple[dict[str, int], int, int, int]:
    """Returns (defines, tiles of channels, parts, pixels of a part). A row of TX threads covers at most 32 * WIDTH
    channels, the smallest power of two that covers all of them otherwise."""
    by = width(s.C)
    across = min(32, 1 << (ceil(s.C, by) - 1).bit_length())
    down = max(tiles["BLOCK"] // across, 1)
    columns = ceil(s.C, across * by)
    wanted = ceil(tiles["BLOCKS"], columns)
    return {"TX": across, "TY": down, "WIDTH": by}, columns, *parts_of(s.count, wanted, down * LOADS[kernel])


# -- training --------------------------------------------------------------------------------------------
def training_buffers(s: MapsShape) -> tuple[Buffer, ...]:
    inputs = (*_maps(s, "x"), *_vectors(s, "gamma", "beta"))
    return (*inputs, *_maps(s, "y", role=OUTPUT), *_vectors(s, "mean", "invstd", role=OUTPUT))


def _block_a_channel(source: str, cpu_function: Callable):
    def build(s: MapsShape, tiles: Tiles) -> Program:
        args = ("x", "gamma", "beta", "y", "mean", "invstd", *ints(s.count, s.C, s.HW), EPSILON)
        step = launch(
            f"norm/{source}.cu",
            (s.C,),
            tiles["BLOCK"],
            args,
            cpu.in_layout(cpu_function, s.layout),
            dict(tiles) | _layout(s),
        )
        return Program(training_buffers(s), (step,))

    return build


def build_split(s: MapsShape, tiles: Tiles) -> Program:
    by, vectors, parts, per_part = nchw_parts(s, tiles)
    sizes = (*ints(vectors, per_part, parts, s.C, s.HW), divider(s.HW // by))
    defines, grid = {"BLOCK": tiles["BLOCK"], "WIDTH": by}, (s.C * parts,)
    args = "x", "gamma", "beta", "partial", "y", "mean", "invstd", *sizes, EPSILON
    steps = (
        launch("norm/04_bn_partial.cu", grid, tiles["BLOCK"], ("x", "partial", *sizes), cpu.partial_nchw(by), defines),
        launch("norm/05_bn_apply.cu", grid, tiles["BLOCK"], args, cpu.apply_nchw(by), defines),
    )
    return Program((*training_buffers(s), Buffer("partial", WORKSPACE, (s.C, parts, 2))), steps)


def build_split_nhwc(s: MapsShape, tiles: Tiles) -> Program:
    defines, columns, parts, per_part = nhwc_parts(s, tiles, "bn_partial_nhwc")
    grid, block = (columns, parts), (defines["TX"], defines["TY"])
    sizes = ints(s.count, per_part, s.C)
    merge = ("partial", "mean", "invstd", *ints(s.count, per_part, parts), EPSILON)
    apply = ("x", "gamma", "beta", "mean", "invstd", "y", *sizes)
    steps = (
        launch("norm/06_bn_partial_nhwc.cu", grid, block, ("x", "partial", *sizes), cpu.partial_nhwc, defines),
        launch("norm/07_bn_merge.cu", (s.C,), 32, merge, cpu.merge_parts),
        launch("norm/08_bn_apply_nhwc.cu", grid, block, apply, cpu.apply_nhwc, defines),
    )
    return Program((*training_buffers(s), Buffer("partial", WORKSPACE, (s.C, parts, 2))), steps)


def _build_training_library(routine: str, bind: type):
    def build(s: MapsShape, tiles: Tiles) -> Program:
        args = "x", "gamma", "beta", "y", "mean", "invstd", EPSILON
        return Program(training_buffers(s), (LibraryCall(routine, args, None, partial(bind, s.layout)),))

    return build


def _training(name: str, title: str, idea: str, build, rules, tiles, work, *sets: Tiles, **facts) -> Rung:
    return Rung(f"batch-norm/{name}", title, idea, build, cost_of(*work), rules, TOLERANCE, tiles, sets=sets, **facts)


# Costs are (reads of x, writes of y, operations an element). No element of y is known before all of its channel was read.
# So training reads x twice and writes y once, unless caches or registers hold the channel until then.
NO_BLOCKS = mark("a processor has no blocks; without them this is Welford’s rule, part after part")
BATCH_NORM = Ladder(
    name="batch-norm",
    shape=BatchNormShape,
    parse=maps_parser(BatchNormShape),
    reference=reference.batch_norm,
    revealing=revealing.maps,
    presets=maps_presets("batch-norm", BatchNormShape),
    swept=tuple(f"batch-norm-{key}" for key in SWEPT),
    rungs=(
        _training(
            "two-pass",
            mark("two passes: mean, then variance"),
            mark("A block owns a channel. x is read three times: for the mean, for the variance, for the result."),
            _block_a_channel("01_bn_two_pass", cpu.two_pass),
            channel_rules,
            {"BLOCK": BLOCKS},
            (3, 1, 7),
            {"BLOCK": 8},
            cpu_title=mark("two passes: mean, then variance"),
        ),
        _training(
            "welford",
            mark("one pass with Welford’s rule"),
            mark("One pass computes mean and variance together. Chan’s rule merges the threads. x is read twice."),
            _block_a_channel("02_bn_welford", cpu.welford),
            all_rules(channel_rules, count_rules),
            {"BLOCK": BLOCKS},
            (2, 1, 11),
            {"BLOCK": 8},
            cpu_title=mark("one pass with Welford’s rule"),
        ),
        _training(
            "sums",
            mark("one pass with sums of x and x²"),
            mark("The variance is the mean of x² minus the square of the mean. If the mean is large, digits are lost."),
            _block_a_channel("03_bn_sums", cpu.sums_of_squares),
            channel_rules,
            {"BLOCK": BLOCKS},
            (2, 1, 6),
            {"BLOCK": 8},
            scale=reference.sums_scale,
            cpu_title=mark("one pass with sums of x and x²"),
        ),
        _training(
            "split",
            mark("several blocks per channel"),
            mark(
                "A first launch computes mean and M2 of the parts of each channel. A second launch merges them and "
                "writes y. Both read x once. Two reads and one write are the minimum for a channel that no cache holds."
            ),
            build_split,
            all_rules(in_nchw, count_rules),
            {"BLOCK": WHOLE_WARPS, "BLOCKS": GRIDS},
            (2, 1, 7),
            {"BLOCK": 32, "BLOCKS": 12},
            {"BLOCK": 512},
            not_on_cpu=NO_BLOCKS,
        ),
        _training(
            "split-nhwc",
            mark("several blocks per channel, NHWC"),
            mark(
                "Channels are neighbours in memory. A thread owns four of them and goes down the pixels. A launch "
                "between the two merges the parts."
            ),
            build_split_nhwc,
            all_rules(in_nhwc, count_rules),
            {"BLOCK": WHOLE_WARPS, "BLOCKS": GRIDS},
            (2, 1, 7),
            {"BLOCK": 32, "BLOCKS": 12},
            {"BLOCK": 512},
            not_on_cpu=NO_BLOCKS,
        ),
        library_rung(
            "batch-norm/library",
            mark("PyTorch batch norm"),
            mark("PyTorch’s own kernels (native_batch_norm), in FP32."),
            _build_training_library("torch_batch_norm", library.BatchNorm),
        ),
        library_rung(
            "batch-norm/cudnn",
            mark("cuDNN batch norm"),
            mark("cuDNN’s batch norm in training, called through PyTorch, in FP32."),
            _build_training_library("cudnn_batch_norm", library.CudnnBatchNorm),
            "cuDNN",
        ),
    ),
)


# -- inference -------------------------------------------------------------------------------------------
def inference_buffers(s: MapsShape) -> tuple[Buffer, ...]:
    variance = replace(_vectors(s, "var")[0], positive=True)
    return (*_maps(s, "x"), *_vectors(s, "gamma", "beta", "mean"), variance, *_maps(s, "y", role=OUTPUT))


def build_formula(s: MapsShape, tiles: Tiles) -> Program:
    args = ("x", "gamma", "beta", "mean", "var", "y", *ints(s.elements, s.C, s.HW), EPSILON)
    step = launch(
        "norm/09_bn_formula.cu",
        (ceil(s.elements, tiles["BLOCK"]),),
        tiles["BLOCK"],
        args,
        cpu.in_layout(cpu.formula, s.layout),
        dict(tiles) | _layout(s),
    )
    return Program(inference_buffers(s), (step,))


def build_folded(s: MapsShape, tiles: Tiles) -> Program:
    block, nhwc = tiles["BLOCK"], s.layout == NHWC
    by = width(s.C if nhwc else s.HW)
    vectors = s.elements // by
    magics = divider(1 if nhwc else s.HW // by), divider(s.C // by if nhwc else s.C)
    fold = ("gamma", "beta", "mean", "var", "folded", *ints(s.C), EPSILON)
    steps = (
        launch("norm/10_bn_fold.cu", (ceil(s.C, block),), block, fold, cpu.fold, {"BLOCK": block}),
        launch(
            "norm/11_bn_scale_shift.cu",
            (ceil(vectors, 16 // by * block),),
            block,
            ("x", "folded", "y", *ints(vectors, s.C), *magics),
            cpu.in_layout(cpu.scale_shift, s.layout),
            {"BLOCK": block, "WIDTH": by} | _layout(s),
        ),
    )
    return Program((*inference_buffers(s), Buffer("folded", WORKSPACE, (2, s.C))), steps)


def build_inference_library(s: MapsShape, tiles: Tiles) -> Program:
    args = "x", "gamma", "beta", "mean", "var", "y", EPSILON
    call = LibraryCall("torch_batch_norm_inference", args, None, partial(library.BatchNormInference, s.layout))
    return Program(inference_buffers(s), (call,))


BATCH_NORM_INFERENCE = Ladder(
    name="batch-norm-inference",
    shape=BatchNormInferenceShape,
    parse=maps_parser(BatchNormInferenceShape),
    reference=reference.batch_norm_inference,
    revealing=variances,
    presets=maps_presets("batch-norm-inference", BatchNormInferenceShape),
    swept=tuple(f"batch-norm-inference-{key}" for key in SWEPT),
    rungs=(
        Rung(
            "batch-norm-inference/formula",
            mark("the formula, one thread per number"),
            mark("Each thread loads one number of x and the four numbers of its channel."),
            build_formula,
            cost_of(1, 1, 4),
            flat_rules,
            TOLERANCE,
            {"BLOCK": BLOCKS},
            sets=({"BLOCK": 8},),
            cpu_title=mark("the formula, operation after operation"),
        ),
        Rung(
            "batch-norm-inference/folded",
            mark("folded into one scale and one shift"),
            mark(
                "A first launch folds the four numbers of a channel into two. Then each number costs one multiply-add."
            ),
            build_folded,
            cost_of(1, 1, 2),
            flat_rules,
            TOLERANCE,
            {"BLOCK": WHOLE_WARPS},
            sets=({"BLOCK": 32},),
            cpu_title=mark("one scale and one shift, image after image"),
        ),
        library_rung(
            "batch-norm-inference/library",
            mark("PyTorch batch norm, inference"),
            mark("PyTorch’s own kernel (native_batch_norm without training), in FP32."),
            build_inference_library,
        ),
    ),
)


# -- backward --------------------------------------------------------------------------------------------
def backward_buffers(s: MapsShape) -> tuple[Buffer, ...]:
    mean, invstd = _vectors(s, "mean", "invstd")
    inputs = (*_maps(s, "dy", "x"), *_vectors(s, "gamma"), mean, replace(invstd, positive=True))
    return (*inputs, *_maps(s, "dx", role=OUTPUT), *_vectors(s, "dgamma", "dbeta", role=OUTPUT))


def build_backward(s: MapsShape, tiles: Tiles) -> Program:
    args = ("dy", "x", "gamma", "mean", "invstd", "dx", "dgamma", "dbeta", *ints(s.count, s.C, s.HW))
    step = launch(
        "norm/12_bn_backward.cu",
        (s.C,),
        tiles["BLOCK"],
        args,
        cpu.in_layout(cpu.backward, s.layout),
        dict(tiles) | _layout(s),
    )
    return Program(backward_buffers(s), (step,))


def build_backward_split(s: MapsShape, tiles: Tiles) -> Program:
    by, vectors, parts, per_part = nchw_parts(s, tiles)
    sizes = (*ints(vectors, per_part, parts, s.C, s.HW), divider(s.HW // by))
    defines, grid, block = {"BLOCK": tiles["BLOCK"], "WIDTH": by}, (s.C * parts,), tiles["BLOCK"]
    sums = "dy", "x", "mean", "invstd", "partial", *sizes
    apply = ("dy", "x", "gamma", "mean", "invstd", "partial", "dx", "dgamma", "dbeta", *ints(s.count), *sizes)
    steps = (
        launch("norm/13_bn_backward_partial.cu", grid, block, sums, cpu.backward_partial_nchw(by), defines),
        launch("norm/14_bn_backward_apply.cu", grid, block, apply, cpu.backward_apply_nchw, defines),
    )
    return Program((*backward_buffers(s), Buffer("partial", WORKSPACE, (s.C, parts, 2))), steps)


def build_backward_split_nhwc(s: MapsShape, tiles: Tiles) -> Program:
    parts = nhwc_parts(s, tiles, "bn_backward_partial_nhwc")[2]
    return _backward_nhwc(s, tiles, *(sum_partials(name, parts, s.C) for name in ("gamma", "beta")))


def build_backward_nhwc_pair(s: MapsShape, tiles: Tiles) -> Program:
    parts = nhwc_parts(s, tiles, "bn_backward_partial_nhwc")[2]
    args = "partial_gamma", "partial_beta", "dgamma", "dbeta", *ints(parts, s.C)
    grid, warps = (ceil(s.C, 32), 2), tiles["WARPS"]
    source = "norm/31_sum_partials_pair.cu"
    return _backward_nhwc(s, tiles, launch(source, grid, (32, warps), args, cpu.sum_partials_pair, {"WARPS": warps}))


def _backward_nhwc(s: MapsShape, tiles: Tiles, *totals: Launch) -> Program:
    """Returns the program with these launches between the partial sums and dx."""
    defines, columns, parts, per_part = nhwc_parts(s, tiles, "bn_backward_partial_nhwc")
    grid, block, sizes = (columns, parts), (defines["TX"], defines["TY"]), ints(s.count, per_part, s.C)
    sums = "dy", "x", "mean", "invstd", "partial_gamma", "partial_beta", *sizes
    apply = "dy", "x", "gamma", "mean", "invstd", "dgamma", "dbeta", "dx", *sizes
    steps = (
        launch("norm/15_bn_backward_partial_nhwc.cu", grid, block, sums, cpu.backward_partial_nhwc, defines),
        *totals,
        launch("norm/16_bn_backward_apply_nhwc.cu", grid, block, apply, cpu.backward_apply_nhwc, defines),
    )
    partials = (Buffer(f"partial_{name}", WORKSPACE, (parts, s.C)) for name in ("gamma", "beta"))
    return Program((*backward_buffers(s), *partials), steps)


def sum_partials(name: str, parts: int, N: int):
    """Returns the launch that adds up the rows of partial_gamma or partial_beta [parts, N] to dgamma or dbeta [N]."""
    args = (f"partial_{name}", f"d{name}", *ints(parts, N))
    step = launch("norm/17_sum_partials.cu", (ceil(N, 32),), (32, 8), args, cpu.sum_partials)
    return replace(step, label=f"sum_partials of d{name}")


def build_backward_library(s: MapsShape, tiles: Tiles) -> Program:
    args = "dy", "x", "gamma", "mean", "invstd", "dx", "dgamma", "dbeta", EPSILON
    call = LibraryCall("torch_batch_norm_backward", args, None, partial(library.BatchNormBackward, s.layout))
    return Program(backward_buffers(s), (call,))


def _backward(name: str, title: str, idea: str, build, rules, tiles, *sets: Tiles, **facts) -> Rung:
    return Rung(
        f"batch-norm-backward/{name}",
        title,
        idea,
        build,
        cost_of(4, 1, 11),
        rules,
        TOLERANCE,
        tiles,
        sets=sets,
        **facts,
    )


NO_BLOCKS_BACKWARD = mark("a processor has no blocks; without them these are the same two passes")
BATCH_NORM_BACKWARD = Ladder(
    name="batch-norm-backward",
    shape=BatchNormBackwardShape,
    parse=maps_parser(BatchNormBackwardShape),
    reference=reference.batch_norm_backward,
    revealing=revealing.maps,
    derive=reference.saved_by_channel,
    presets=maps_presets("batch-norm-backward", BatchNormBackwardShape),
    swept=tuple(f"batch-norm-backward-{key}" for key in SWEPT),
    rungs=(
        _backward(
            "two-pass",
            mark("two passes, one block per channel"),
            mark("The first pass over dy and x computes dbeta and dgamma. The second pass computes dx from them."),
            build_backward,
            channel_rules,
            {"BLOCK": BLOCKS},
            {"BLOCK": 8},
            cpu_title=mark("two passes: sums, then dx"),
        ),
        _backward(
            "split",
            mark("several blocks per channel"),
            mark(
                "A first launch computes the two sums of each part. A second launch adds up the parts and writes dx. "
                "Four reads and one write are the minimum for a channel that no cache holds."
            ),
            build_backward_split,
            in_nchw,
            {"BLOCK": WHOLE_WARPS, "BLOCKS": GRIDS},
            {"BLOCK": 32, "BLOCKS": 12},
            {"BLOCK": 512},
            not_on_cpu=NO_BLOCKS_BACKWARD,
        ),
        _backward(
            "split-nhwc",
            mark("several blocks per channel, NHWC"),
            mark("Channels are neighbours in memory. A thread owns four of them and goes down the pixels."),
            build_backward_split_nhwc,
            in_nhwc,
            {"BLOCK": WHOLE_WARPS, "BLOCKS": GRIDS},
            {"BLOCK": 32, "BLOCKS": 12},
            {"BLOCK": 512},
            not_on_cpu=NO_BLOCKS_BACKWARD,
        ),
        _backward(
            "split-nhwc-one-sum",
            mark("both sums in one launch, NHWC"),
            mark("The parts of dgamma and dbeta are added up in one launch, by 32 warps in each block."),
            build_backward_nhwc_pair,
            in_nhwc,
            {
                "BLOCK": (512, 256, 1024, 128, 64, 32),
                "BLOCKS": (528, 1056, 264, 2112, 12, 3),
                "WARPS": (32, 16, 8, 4, 1),
            },
            {"BLOCK": 32, "BLOCKS": 12, "WARPS": 8},
            {"BLOCK": 1024, "BLOCKS": 264},
            not_on_cpu=NO_BLOCKS_BACKWARD,
        ),
        library_rung(
            "batch-norm-backward/library",
            mark("PyTorch batch norm, backward"),
            mark("PyTorch’s own kernels (native_batch_norm_backward), in FP32."),
            build_backward_library,
        ),
    ),
)
