"""conv/cudnn-*: cuDNN's forward algorithms, a rung for each.

cuDNN reports what an algorithm supports when it is bound (kernels.records.availability).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kernels.conv import common, fft
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.libraries import cudnn
from kernels.model.program import LibraryCall, Program, Tiles
from kernels.model.rung import Cost, Rung

IDEAS = {  # algorithm: (its title in a narrow cell, what it does by its name and cudnn_ops.h)
    "IMPLICIT_GEMM": (mark("cuDNN implicit"), mark("One matrix product. Its data matrix is never stored.")),
    "IMPLICIT_PRECOMP_GEMM": (
        mark("cuDNN precomp"),
        mark("As IMPLICIT_GEMM, but the positions of the elements are computed first, in a small workspace."),
    ),
    "GEMM": (mark("cuDNN GEMM"), mark("im2col inside the library: the data matrix is stored, then multiplied.")),
    "DIRECT": (mark("cuDNN direct"), mark("The definition, without a matrix product.")),
    "FFT": (mark("cuDNN FFT"), mark("Products of the spectra of whole images.")),
    "FFT_TILING": (
        mark("cuDNN FFT tiles"),
        mark("Products of the spectra of parts of the images. Large images then need less workspace."),
    ),
    "WINOGRAD": (mark("cuDNN Winograd"), mark("Winograd's transforms and products in one kernel.")),
    "WINOGRAD_NONFUSED": (
        mark("cuDNN Winograd steps"),
        mark("Winograd's transforms and products as separate steps, with a workspace between them."),
    ),
}
SPREADS = ("FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED")  # rounding of one output reaches others
# TOLERANCE is a fraction of the definition's scale, as for every rung. The others are fractions of fft.scale, which is
# much larger. cuDNN's Winograd also computes 5x5 filters: their measured error is 8e-4 of that scale (relative L2
# error 5e-4 to 1.5e-3). With 3x3 filters it is 3e-7 of the scale.
TOLERANCE, TOLERANCE_SPREAD, TOLERANCE_TILES = common.TOLERANCE, 5e-6, 2e-3


def rung_name(algorithm: str) -> str:
    """Returns the rung of an algorithm: conv/cudnn-implicit-gemm for IMPLICIT_GEMM."""
    return f"conv/cudnn-{algorithm.lower().replace('_', '-')}"


def build(algorithm: str, s: ConvShape, tiles: Tiles) -> Program:
    call = LibraryCall(
        f"cudnn_{algorithm.lower()}", ("x", "w", "y", common.struct(s)), None, partial(cudnn.bind, algorithm)
    )
    return Program(common.buffers(s), (call, *common.finish(s)))


def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from common.equal_padding_rules(s)
    yield from common.finish_rules(s)


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs of direct convolution and the bytes of the tensors. cuDNN's workspace is not known ahead."""
    return Cost(s.flops, common.cost(s, program).bytes, None)


def _tolerance(algorithm: str) -> float:
    if algorithm == "WINOGRAD_NONFUSED":
        return TOLERANCE_TILES
    return TOLERANCE_SPREAD if algorithm in SPREADS else TOLERANCE


def _rung(algorithm: str, short: str, idea: str) -> Rung:
    spreads = algorithm in SPREADS
    return Rung(
        name=rung_name(algorithm),
        title=f"cuDNN {algorithm}",
        idea=idea,
        build=partial(build, algorithm),
        cost=cost,
        rules=rules,
        tolerance=_tolerance(algorithm),
        library="cuDNN",
        family="cudnn",
        short_title=short,
        find_library=lambda: cudnn.load(),
        scale=fft.scale if spreads else None,
        engines=("cuda",),
    )


RUNGS = tuple(_rung(algorithm, *texts) for algorithm, texts in IDEAS.items())
