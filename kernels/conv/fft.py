"""conv/fft: a convolution as products of spectra, whole images or parts of them at a time.

y[i] = sum over t of w[t] x[i + t] is the inverse transform of X conj(W): a circular correlation, in which i + t
that runs over the end of the array begins anew at its start. Only outputs whose window lies inside the array are
asked for, i + t <= (H + 2*pad_h) - 1, so an array of H + 2*pad_h rows never runs over and nothing has to be added
to it for the filter's sake; likewise an array of TILE rows gives TILE - span_h + 1 right outputs, where span_h is
what the dilated filter covers (overlap-save; Oppenheim and Schafer, Discrete-Time Signal Processing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from kernels.conv import common as parts
from kernels.conv import fft_cpu
from kernels.conv.shape import ConvShape
from kernels.libraries import cufft
from kernels.model.launch import ampere, ceil, launch
from kernels.model.program import WORKSPACE, Buffer, LibraryCall, Program, Tiles
from kernels.model.rules import MOST_GRID_YZ
from kernels.model.rung import Cost, Rung
from kernels.model.shape import INT_MAX

CUT_STRUCT = np.dtype(
    [(name, np.int32) for name in ("rows", "columns", "step_h", "step_w", "down", "across")]
)
BLOCK = 256
FREQUENCIES, FILTERS = 8, 32  # of a block of kernels/conv/cuda/10_fft_multiply.cu
WHOLE = 0
PRIMES = (2, 3, 5, 7)  # cuFFT has fast steps for these
MOST_WORKSPACE = 16 * 2**30  # bytes
LARGEST = 2**15  # rows or columns of a transform: beyond it spectra of one map pass MOST_WORKSPACE

TOLERANCE = 5e-7  # of `scale`: ten times what is seen


@lru_cache(maxsize=4096)
def good_size(n: int) -> int:
    """The least product of 2, 3, 5 and 7 that is n or more."""
    size = n
    while True:
        left = size
        for prime in PRIMES:
            while left % prime == 0:
                left //= prime
        if left == 1:
            return size
        size += 1


def cut(s: ConvShape, tiles: Tiles) -> np.void:
    """How the padded input is cut into transforms, as the kernels' `struct Cut` (kernels/conv/cuda/fft.cuh)."""
    tile = tiles["FFT_TILE"]
    rows, columns = (tile or good_size(s.H + 2 * s.pad_h)), (tile or good_size(s.W + 2 * s.pad_w))
    step_h, step_w = rows - s.span_h + 1, columns - s.span_w + 1
    down, across = ceil((s.P - 1) * s.u + 1, step_h), ceil((s.Q - 1) * s.v + 1, step_w)
    return np.array((rows, columns, step_h, step_w, down, across), CUT_STRUCT)[()]


def transforms(s: ConvShape, tiles: Tiles) -> dict[str, int]:
    """How many real transforms of one cut each call of cuFFT makes."""
    return _transforms(s, cut(s, tiles))


def _transforms(s: ConvShape, of: np.void) -> dict[str, int]:
    images = s.N * int(of["down"]) * int(of["across"])
    return {"input": images * s.C, "filter": s.K * s.C, "output": images * s.K}


def workspace(s: ConvShape, of: np.void) -> tuple[Buffer, ...]:
    """Padded input, filters and dense output, and the spectrum of each; what cuFFT takes beside these it says
    when it plans."""
    rows, columns, down, across = (int(of[name]) for name in ("rows", "columns", "down", "across"))
    arrays = {
        "x": (s.N, down, across, s.C),
        "w": (s.K, s.C),
        "y": (s.N, down, across, s.K),
    }
    real = [Buffer(f"{n}_padded", WORKSPACE, (*of_, rows, columns)) for n, of_ in arrays.items()]
    spectra = [
        Buffer(f"{n}_spectra", WORKSPACE, (*of_, rows, columns // 2 + 1, 2)) for n, of_ in arrays.items()
    ]
    return (*real, *spectra)


def build(s: ConvShape, tiles: Tiles) -> Program:
    of, conv = cut(s, tiles), parts.struct(s)
    rows, columns = int(of["rows"]), int(of["columns"])
    area, frequencies = rows * columns, rows * (columns // 2 + 1)
    images, spectra = s.N * int(of["down"]) * int(of["across"]), tiles["SPECTRA"]
    grid = ceil(frequencies, FREQUENCIES), ceil(s.K, FILTERS), ceil(images, spectra)
    extents = tuple(np.int32(n) for n in (images, s.K, s.C, frequencies))

    steps = (
        launch("conv/10_fft_pad_input.cu", (ceil(s.C * area, BLOCK), images), BLOCK,
               ("x", "x_padded", conv, of), fft_cpu.pad_input),
        launch("conv/10_fft_pad_filter.cu", (ceil(s.C * area, BLOCK), s.K), BLOCK,
               ("w", "w_padded", conv, of), fft_cpu.pad_filter),
        LibraryCall("cufft_input", ("x_padded", "x_spectra"), fft_cpu.forward, cufft.forward),
        LibraryCall("cufft_filter", ("w_padded", "w_spectra"), fft_cpu.forward, cufft.forward),
        launch("conv/10_fft_multiply.cu", grid, FREQUENCIES * (FILTERS // 4) * (spectra // 4),
               ("x_spectra", "w_spectra", "y_spectra", *extents), fft_cpu.multiply, {"SPECTRA": spectra}),
        LibraryCall("cufft_output", ("y_spectra", "y_padded"), fft_cpu.inverse, cufft.inverse),
        launch("conv/10_fft_pick.cu", (ceil(s.K * s.PQ, BLOCK), s.N), BLOCK,
               ("y_padded", parts.bias_name(s), "y", conv, of, parts.layer(s)), fft_cpu.pick),
    )  # fmt: skip
    return Program((*parts.buffers(s), *workspace(s, of)), steps)


def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.ungrouped_rules(s)
    tile = tiles["FFT_TILE"]
    if tile:
        sides = (("dilation_h*(R-1)+1", s.span_h), ("dilation_w*(S-1)+1", s.span_w))
        too_large = [f"{name} <= FFT_TILE ({tile}), got {span}" for name, span in sides if span > tile]
    else:
        sides = (("H+2*pad_h", s.H + 2 * s.pad_h), ("W+2*pad_w", s.W + 2 * s.pad_w))
        too_large = [f"{name} <= {LARGEST}, got {size}" for name, size in sides if size > LARGEST]
    yield from too_large
    if too_large:  # there is no cut to speak of
        return
    of = cut(s, tiles)
    area, images = int(of["rows"]) * int(of["columns"]), s.N * int(of["down"]) * int(of["across"])
    parts_of = "N" if tile == WHOLE else "N*down*across"
    for name, count in ((parts_of, images), ("K", s.K)):
        if count > MOST_GRID_YZ:
            yield f"{name} <= {MOST_GRID_YZ} (grid.y), got {count}"
    counts = {
        "C*rows*columns": s.C * area, "K*P*Q": s.K * s.PQ, f"{parts_of}*C": images * s.C,
        f"{parts_of}*K": images * s.K, "K*C": s.K * s.C, "R*S": s.R * s.S,
    }  # fmt: skip
    for name, count in counts.items():
        if count > INT_MAX - BLOCK:
            yield f"{name} must stay below 2^31 - {BLOCK}, got {count}"
    need = sum(b.nbytes for b in workspace(s, of))
    if need > MOST_WORKSPACE:
        filters = 4 * s.K * s.C * (area + 2 * int(of["rows"]) * (int(of["columns"]) // 2 + 1))
        yield (
            f"its workspace must not exceed {MOST_WORKSPACE:,} bytes, got {need:,}, of which the padded filters "
            f"and their spectra take {filters:,}"
        )


def scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """float64 [N,K,1,1]: what no output of an image's map can exceed, the sum over C of max |x| times sum |w|. A
    transform rounds as much as its whole array asks for, and spreads that over all of it: an output in the padding
    is not exactly 0."""
    x, w = (np.abs(inputs[name].astype(np.float64)) for name in "xw")
    largest = x.max(axis=(2, 3)).reshape(s.N, s.groups, 1, s.maps)
    sums = w.sum(axis=(2, 3)).reshape(s.groups, s.filters, s.maps)
    most = (largest @ sums.swapaxes(1, 2)).reshape(s.N, s.K)
    if s.bias:
        most += np.abs(inputs["b"].astype(np.float64))
    return most[:, :, None, None]


def executed_flops(s: ConvShape, tiles: Tiles) -> int:
    """What the algorithm itself does, strides that are thrown away included: 2.5 n log2 n for a real transform of
    n numbers (half of the usual count of a complex one), 8 for a complex multiply-add."""
    return _executed(s, cut(s, tiles))


def _executed(s: ConvShape, of: np.void) -> int:
    rows, columns = int(of["rows"]), int(of["columns"])
    each = 2.5 * rows * columns * math.log2(rows * columns)
    images = s.N * int(of["down"]) * int(of["across"])
    products = 8 * images * s.K * s.C * rows * (columns // 2 + 1)
    return round(each * sum(_transforms(s, of).values())) + products


def cost(s: ConvShape, program: Program) -> Cost:
    """FLOPs executed, by the cut that the first step is given; bytes and workspace as of all."""
    of_all = parts.cost(s, program)
    return Cost(_executed(s, program.steps[0].args[-1]), of_all.bytes, of_all.workspace_bytes)


RUNGS = (
    Rung(
        name="conv/fft",
        title="FFT",
        idea="Slide the filter by multiplying spectra: the filter's size no longer matters, its padding does.",
        build=build,
        cost=cost,
        rules=rules,
        tolerance=TOLERANCE,
        family="fft",
        short_title="FFT",
        tiles={"FFT_TILE": (WHOLE, 32, 16), "SPECTRA": (32, 8)},
        scale=scale,
        capability=ampere,
    ),
)
