"""cuDNN's algorithms of both gradients, a rung for each.

cuDNN reports what an algorithm supports when it is bound (kernels.records.availability).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from kernels.conv.backward import common, dweight
from kernels.conv.backward.dinput import NAMES, Names
from kernels.conv.common import TOLERANCE, struct
from kernels.conv.library import SPREADS, TOLERANCE_SPREAD, TOLERANCE_TILES
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.libraries import cudnn
from kernels.model.program import LibraryCall, Program, Tiles
from kernels.model.rung import Rung

_ATOMICS = mark("cuDNN's documentation calls this algorithm non-deterministic: its sums are added by atomics.")
_FIXED = mark("cuDNN's documentation calls this algorithm deterministic: every run gives the same bits.")
_FFT = mark("Products of the spectra of whole images.")
_TILING = mark("Products of the spectra of parts of the images. Large images then need less workspace.")
_NONFUSED = mark("Winograd's transforms and products as separate steps, with a workspace between them.")
DATA_IDEAS = {  # algorithm: what it does by its name and cuDNN's documentation
    "ALGO_0": _ATOMICS,
    "ALGO_1": _FIXED,
    "FFT": _FFT,
    "FFT_TILING": _TILING,
    "WINOGRAD": mark("Winograd's transforms and products in one kernel."),
    "WINOGRAD_NONFUSED": _NONFUSED,
}
FILTER_IDEAS = {
    "ALGO_0": _ATOMICS,
    "ALGO_1": _FIXED,
    "FFT": _FFT,
    "ALGO_3": mark("As ALGO_0, but the positions of the elements are computed first, in a small workspace."),
    "WINOGRAD_NONFUSED": _NONFUSED,
    "FFT_TILING": _TILING,
}


def build_data(algorithm: str, s: ConvShape, tiles: Tiles, names: Names = NAMES) -> Program:
    args = names.gradient, names.filters, names.result, struct(s)
    bind = partial(cudnn.bind_data, algorithm)
    return Program(names.buffers(s), (LibraryCall(f"cudnn_data_{algorithm.lower()}", args, None, bind),))


def build_filter(algorithm: str, s: ConvShape, tiles: Tiles) -> Program:
    bind = partial(cudnn.bind_filter, algorithm)
    call = LibraryCall(f"cudnn_filter_{algorithm.lower()}", ("x", "dy", "dw", struct(s)), None, bind)
    return Program(dweight.buffers(s), (call,))


def data_scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray], names: Names = NAMES) -> np.ndarray:
    """Returns float64 [N,C,1,1]: the sum over K of max |dy| times sum |w|, a bound on every pixel of an image's map.

    The rounding error of a transform depends on its whole array and is spread over all of it.
    """
    dy, w = (np.abs(inputs[name].astype(np.float64)) for name in (names.gradient, names.filters))
    largest = dy.max(axis=(2, 3)).reshape(s.N, s.groups, 1, s.filters)
    sums = w.sum(axis=(2, 3)).reshape(s.groups, s.filters, s.maps)
    return (largest @ sums).reshape(s.N, s.C)[:, :, None, None]


def filter_scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns float64 [K,C/groups,1,1]: the sum over N of the lengths (root of the sum of squares) of dy and x.

    By the inequality of Cauchy and Schwarz it is at least the sum of absolute products of every tap.
    """
    lengths = (np.sqrt((inputs[name].astype(np.float64) ** 2).sum(axis=(2, 3))) for name in ("x", "dy"))
    x, dy = (a.reshape(s.N, s.groups, -1) for a in lengths)
    return np.einsum("ngk,ngc->gkc", dy, x).reshape(s.K, s.maps, 1, 1)


def _tolerance(algorithm: str) -> float:
    if algorithm == "WINOGRAD_NONFUSED":
        return TOLERANCE_TILES
    return TOLERANCE_SPREAD if algorithm in SPREADS else TOLERANCE


def rungs(ladder: str, ideas: Mapping[str, str], build, rules, cost, scale) -> tuple[Rung, ...]:
    """Returns a rung for each algorithm of `ideas`. `build` takes the algorithm first."""
    return tuple(
        Rung(
            name=f"{ladder}/cudnn-{algorithm.lower().replace('_', '-')}",
            title=f"cuDNN {algorithm}",
            idea=idea,
            build=partial(build, algorithm),
            cost=cost,
            rules=rules,
            tolerance=_tolerance(algorithm),
            library="cuDNN",
            find_library=lambda: cudnn.load(),
            scale=scale if algorithm in SPREADS else None,
            engines=("cuda",),
        )
        for algorithm, idea in ideas.items()
    )


DATA_RUNGS = rungs("conv-dinput", DATA_IDEAS, build_data, common.library_rules, common.library_cost, data_scale)
FILTER_RUNGS = rungs(
    "conv-dweight", FILTER_IDEAS, build_filter, common.library_rules, common.library_cost, filter_scale
)
