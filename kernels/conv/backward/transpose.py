"""Transposed convolution, FP32, NCHW: the kernels of the input's gradient under the names of a forward operation.

A transposed convolution spreads each input pixel over a window of the output. That is the gradient of the input of the
convolution that goes the other way (TransposeShape.conv): x is its output gradient, y the gradient of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.conv.backward import common, dinput, library, reference
from kernels.conv.backward.dinput import Names
from kernels.conv.backward.ladder import GEMM_TILES, MATCHING, SETS
from kernels.conv.backward.transpose_shape import TransposeShape, parse_transpose
from kernels.conv.common import TOLERANCE
from kernels.conv.implicit import IMPLICIT_TILES
from kernels.conv.shape import EXTRA_SINCE
from kernels.i18n import mark
from kernels.model.launch import ampere, rung_factory
from kernels.model.preset import Preset
from kernels.model.program import Program, Tiles
from kernels.model.rung import Cost, Ladder

NAMES = Names("x", "w", "y")


def _program(build: Callable[..., Program]) -> Callable[[TransposeShape, Tiles], Program]:
    return lambda s, tiles: build(s.conv, tiles, NAMES)


def _library_program(algorithm: str, s: TransposeShape, tiles: Tiles) -> Program:
    return library.build_data(algorithm, s.conv, tiles, NAMES)


def _rules(rules: Callable[..., Iterator[str]]) -> Callable[[TransposeShape, Tiles], Iterator[str]]:
    """Returns the rules of the convolution that goes the other way. Their sentences use its names."""
    return lambda s, tiles: rules(s.conv, tiles)


def cost(s: TransposeShape, program: Program) -> Cost:
    return common.cost(s.conv, program)


def library_cost(s: TransposeShape, program: Program) -> Cost:
    return common.library_cost(s.conv, program)


def transpose_reference(s: TransposeShape, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (y, error scale), float64 [N,K,P,Q], of x [N,C,H,W] and w [C,K/groups,R,S].

    y[n, k, p, q] = sum over c, r, t of x[n,c,h,i] * w[c,k,r,t] over all pixels (h, i) with
    h*u - pad_h + r*dilation_h = p and i*v - pad_w + t*dilation_w = q.
    """
    return reference.dinput(s.conv, x, w)


def _scale(s: TransposeShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return library.data_scale(s.conv, tiles, inputs, NAMES)


PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "transpose-toy",
            mark("Toy 3×3"),
            TransposeShape(1, 1, 3, 3, 2, 3, 3, stride=2, pad=1, output_pad=1),
            mark("small enough to follow every number; stride 2 and an output padding of 1 double the size"),
        ),
        Preset(
            "transpose-odd",
            mark("Odd extents"),
            TransposeShape(
                2, 6, 5, 7, 10, 3, 2, stride=(3, 2), pad=(1, 0), output_pad=(2, 1), dilation=(1, 3), groups=2
            ),
            mark("no tile divides it: stride, padding and dilation differ by axis, two groups"),
        ),
        Preset(
            "dcgan-conv2-n128",
            "DCGAN conv2, N=128",
            TransposeShape(128, 512, 8, 8, 256, 4, 4, stride=2, pad=1),
            mark(
                "the generator of DCGAN (arXiv 1511.06434) as PyTorch's example builds it: 4x4, 8x8 to 16x16, batch 128"
            ),
        ),
        Preset(
            "unet-up4",
            mark("U-Net, last up-convolution"),
            TransposeShape(1, 128, 196, 196, 64, 2, 2, stride=2),
            mark("U-Net (arXiv 1505.04597), the last 2x2 up-convolution: 128 maps of 196x196 to 64 of 392x392"),
        ),
        Preset(
            "fcn8s-upscore",
            "FCN-8s upscore",
            TransposeShape(1, 21, 70, 70, 21, 16, 16, stride=8),
            mark("FCN-8s (arXiv 1411.4038), the last upsampling: 21 classes, filters 16x16, stride 8, here from 70x70"),
        ),
    )
}

# Cuts that differ at the two ends of an axis, and a 1-D layer (H = R = 1). Nothing of them is recorded.
PADDING: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset(
            "transpose-signal",
            mark("1-D, 16 samples"),
            TransposeShape(1, 1, 1, 16, 2, 1, 4, stride=(1, 2), pad=(0, 1)),
            mark("16 samples become 32: one row, 4 taps, stride 2, one output cut off at each end"),
        ),
        Preset(
            "transpose-signal-causal",
            mark("1-D, causal"),
            TransposeShape(1, 1, 1, 16, 2, 1, 4, stride=(1, 2), extra=(0, 2)),
            mark("causal: both outputs are cut off at the end, so an input sample reaches no earlier output"),
        ),
    )
}

_rung = rung_factory("conv-transpose", cost, TOLERANCE)

TRANSPOSE = Ladder(
    name="conv-transpose",
    work=mark("direct transposed convolution"),
    inputs=mark("input + filters"),
    matching=tuple(name for name in MATCHING if name != "mode"),
    later_fields=EXTRA_SINCE,
    shape=TransposeShape,
    parse=parse_transpose,
    reference=transpose_reference,
    presets=PRESETS,
    swept=("dcgan-conv2-n128",),
    rungs=(
        _rung(
            "direct",
            mark("direct"),
            mark("One thread per output pixel finds the input pixels that reach it, and adds up pixel times tap."),
            _program(dinput.build_direct),
            _rules(common.image_rules),
            {"BLOCK": common.BLOCKS},
            cpu_title=mark("direct, tap by tap"),
        ),
        _rung(
            "gemm-atomics",
            mark("our GEMM + col2im by atomics"),
            mark(
                "One matrix product gives a window of outputs for each input pixel. The windows overlap, and atomics "
                "add them up."
            ),
            _program(dinput.build_gemm_atomics),
            _rules(dinput.gemm_rules),
            GEMM_TILES,
            cpu_title=mark("blocked product + scatter"),
            cpu_tiles=("TILE",),
        ),
        _rung(
            "gemm-gather",
            mark("our GEMM + col2im by gather"),
            mark("The same product. Each output pixel then reads the elements of the windows that it is in."),
            _program(dinput.build_gemm_gather),
            _rules(dinput.gemm_rules),
            GEMM_TILES,
            cpu_title=mark("blocked product + gather"),
            cpu_tiles=("TILE",),
        ),
        _rung(
            "implicit-gemm",
            mark("implicit GEMM by phases"),
            mark(
                "Output pixels with the same remainders by the stride use the same taps. Each such phase is one matrix "
                "product without holes."
            ),
            _program(dinput.build_implicit),
            _rules(dinput.implicit_rules),
            IMPLICIT_TILES,
            *SETS,
            capability=ampere,
            cpu_title=mark("implicit GEMM by phases"),
            cpu_tiles=("BM", "BN", "BK"),
        ),
        *library.rungs(
            "conv-transpose", library.DATA_IDEAS, _library_program, _rules(common.library_rules), library_cost, _scale
        ),
    ),
)
