"""The two gradients of convolution, FP32, NCHW: conv-dinput and conv-dweight, from the definition to the library."""

from __future__ import annotations

from kernels.conv import winograd
from kernels.conv.backward import common, dinput, dinput_winograd, dweight, dweight_winograd, library, reference
from kernels.conv.backward.presets import BACKWARD_PRESETS
from kernels.conv.common import TOLERANCE
from kernels.conv.implicit import IMPLICIT_SETS, IMPLICIT_TILES
from kernels.conv.shape import CONV_SINCE, EXTRA_SINCE, ConvShape, parse_conv
from kernels.i18n import mark
from kernels.model.launch import ampere, rung_factory
from kernels.model.rung import Ladder, Rung

GEMM_TILES = {"BLOCK": common.BLOCKS, "TILE": common.TILES}
WINOGRAD_TILES = winograd.NONFUSED_TILES | {"BN": (64, 128)}  # the fastest of the forward pass at ResNet-50's stages
SETS = IMPLICIT_SETS  # compiled ahead: the fastest sizes of the forward kernel at some layer
MATCHING = ("R", "S", "u", "v", "dilation_h", "dilation_w", "mode", "groups", *EXTRA_SINCE)

_dinput = rung_factory("conv-dinput", common.cost, TOLERANCE)
_dweight = rung_factory("conv-dweight", common.cost, TOLERANCE)

SWEPT = ("backward-resnet50-res3-3x3-n32",)  # with every set of tile sizes

DINPUT = Ladder(
    name="conv-dinput",
    work=mark("direct convolution"),
    inputs=mark("output gradient + filters"),
    matching=MATCHING,
    later_fields=CONV_SINCE,
    shape=ConvShape,
    parse=parse_conv,
    reference=reference.dinput,
    presets=BACKWARD_PRESETS,
    swept=SWEPT,
    rungs=(
        _dinput(
            "direct",
            mark("direct"),
            mark("One thread per input pixel finds the outputs that it fed, and adds up gradient times tap."),
            dinput.build_direct,
            common.image_rules,
            {"BLOCK": common.BLOCKS},
            cpu_title=mark("direct, tap by tap"),
        ),
        _dinput(
            "gemm-atomics",
            mark("our GEMM + col2im by atomics"),
            mark(
                "One matrix product gives the gradient of im2col's data matrix. Each of its columns is added back to "
                "its window by atomics."
            ),
            dinput.build_gemm_atomics,
            dinput.gemm_rules,
            GEMM_TILES,
            cpu_title=mark("blocked product + scatter"),
            cpu_tiles=("TILE",),
        ),
        _dinput(
            "gemm-gather",
            mark("our GEMM + col2im by gather"),
            mark("The same product. Each input pixel then reads the elements that were copied from it."),
            dinput.build_gemm_gather,
            dinput.gemm_rules,
            GEMM_TILES,
            cpu_title=mark("blocked product + gather"),
            cpu_tiles=("TILE",),
        ),
        _dinput(
            "implicit-gemm",
            mark("implicit GEMM by phases"),
            mark(
                "Pixels with the same remainders by the stride are read through the same taps. Each such phase is one "
                "matrix product without holes, built tile by tile in shared memory."
            ),
            dinput.build_implicit,
            dinput.implicit_rules,
            IMPLICIT_TILES,
            *SETS,
            capability=ampere,
            cpu_title=mark("implicit GEMM by phases"),
            cpu_tiles=("BM", "BN", "BK"),
        ),
        Rung(
            name="conv-dinput/winograd",
            title=mark("Winograd in steps"),
            idea=mark(
                "With stride 1 the gradient is a convolution of the output gradient with filters turned by 180°. So the "
                "forward pass's Winograd kernels compute it. Only the transform of the filters is another."
            ),
            build=dinput_winograd.build,
            cost=dinput_winograd.cost,
            rules=dinput_winograd.rules,
            tolerance=winograd.TOLERANCE,
            tiles=WINOGRAD_TILES,
            sets=({"M": 2}, {"M": 6}, {"BLOCK": 256}, {"BN": 128}, {"BM": 128}, {"STAGES": 2}),
            scale=dinput_winograd.scale,
            capability=ampere,
            cpu_title=mark("Winograd in steps"),
            cpu_tiles=("M",),
        ),
        *library.DATA_RUNGS,
    ),
)

DWEIGHT = Ladder(
    name="conv-dweight",
    work=mark("direct convolution"),
    inputs=mark("input + output gradient"),
    matching=MATCHING,
    later_fields=CONV_SINCE,
    shape=ConvShape,
    parse=parse_conv,
    reference=reference.dweight,
    presets=BACKWARD_PRESETS,
    swept=SWEPT,
    rungs=(
        _dweight(
            "direct",
            mark("direct"),
            mark("One thread per filter tap adds up pixel times output gradient over all output pixels."),
            dweight.build_direct,
            dweight.direct_rules,
            {"BLOCK": common.BLOCKS},
            cpu_title=mark("direct, tap by tap"),
        ),
        _dweight(
            "im2col-gemm",
            mark("im2col + our GEMM"),
            mark(
                "The windows are written out as columns. One matrix product of output gradient and columns, summed "
                "over the images, is the gradient."
            ),
            dweight.build_gemm,
            dweight.gemm_rules,
            GEMM_TILES,
            cpu_title=mark("im2col + blocked product"),
            cpu_tiles=("TILE",),
        ),
        _dweight(
            "implicit-gemm-atomics",
            mark("implicit GEMM, parts added by atomics"),
            mark(
                "The sum over all output pixels is cut into parts, so that every SM has work. Each block adds its part "
                "to the gradient by atomics."
            ),
            dweight.build_atomics,
            dweight.implicit_rules,
            IMPLICIT_TILES,
            *SETS,
            capability=ampere,
            not_on_cpu=mark(
                "a processor has no parallel blocks whose parts would collide; without them it is the sum in parts"
            ),
        ),
        _dweight(
            "implicit-gemm",
            mark("implicit GEMM, parts added in order"),
            mark("The same parts, stored separately. A second kernel adds them in a fixed order."),
            dweight.build_implicit,
            dweight.implicit_rules,
            IMPLICIT_TILES,
            *SETS,
            capability=ampere,
            cpu_title=mark("implicit GEMM in parts"),
            cpu_tiles=("BN", "BK"),
        ),
        Rung(
            name="conv-dweight/winograd",
            title=mark("Winograd in steps"),
            idea=mark(
                "The forward pass's transforms, each on its other side. Tiles of the output gradient and of the input are "
                "transformed. One matrix product per position sums over all tiles. Then 3×3 taps are made of the sums."
            ),
            build=dweight_winograd.build,
            cost=dweight_winograd.cost,
            rules=dweight_winograd.rules,
            tolerance=winograd.TOLERANCE,
            tiles=WINOGRAD_TILES,
            sets=({"M": 2}, {"M": 6}, {"BLOCK": 256}, {"BN": 128}, {"BM": 128}, {"STAGES": 2}),
            scale=dweight_winograd.scale,
            capability=ampere,
            cpu_title=mark("Winograd in steps"),
            cpu_tiles=("M",),
        ),
        *library.FILTER_RUNGS,
    ),
)
