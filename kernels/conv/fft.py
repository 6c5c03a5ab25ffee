"""conv/fft: a convolution as products of spectra, whole images or parts of them at a time.

y[i] = sum over t of w[t] x[i + t] is the inverse transform of X conj(W): a circular correlation. In it, an index
i + t beyond the end of the array wraps around to its start. Only outputs whose window is inside the array are used,
i + t <= (H + 2*pad_h + extra_h) - 1. So an array of as many rows never wraps around and needs no further padding for the
filter. Likewise an array of TILE rows gives TILE - span_h + 1 right outputs, where span_h is the number of rows that
the dilated filter covers (overlap-save; Oppenheim and Schafer, Discrete-Time Signal Processing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from kernels.conv import common, fft_cpu
from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, mark, tr
from kernels.libraries import cufft
from kernels.model.launch import ampere, ceil, launch
from kernels.model.program import WORKSPACE, Buffer, LibraryCall, Program, Step, Tiles
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules
from kernels.model.rung import Cost, Rung

CUT_STRUCT = np.dtype([(name, np.int32) for name in ("rows", "columns", "step_h", "step_w", "down", "across")])
BLOCK = 256
FREQUENCIES, FILTERS = 8, 32  # per block of kernels/conv/cuda/10_fft_multiply.cu
WHOLE = 0
PRIMES = (2, 3, 5, 7)  # cuFFT has fast steps for these
MAX_WORKSPACE = 16 * 2**30  # bytes
MAX_SIDE = 2**15  # rows or columns of a transform: with more, the spectra of one map exceed MAX_WORKSPACE

TOLERANCE = 5e-7  # of `scale`: ten times the errors measured


@lru_cache(maxsize=4096)
def good_size(n: int) -> int:
    """Returns the smallest product of 2, 3, 5 and 7 that is at least n."""
    size = n
    while True:
        rest = size
        for prime in PRIMES:
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 1


def cut(s: ConvShape, tiles: Tiles) -> np.void:
    """Returns how the padded input is cut into transforms: the kernels' `struct Cut` (kernels/conv/cuda/fft.cuh)."""
    tile = tiles["FFT_TILE"]
    rows, columns = (tile or good_size(s.padded_h)), (tile or good_size(s.padded_w))
    step_h, step_w = rows - s.span_h + 1, columns - s.span_w + 1
    down, across = ceil((s.P - 1) * s.u + 1, step_h), ceil((s.Q - 1) * s.v + 1, step_w)
    return np.array([(rows, columns, step_h, step_w, down, across)], CUT_STRUCT)[0]


def transforms(s: ConvShape, tiles: Tiles) -> dict[str, int]:
    """Returns the number of real transforms in each call of cuFFT."""
    return _transforms(s, cut(s, tiles))


def _transforms(s: ConvShape, cut_struct: np.void) -> dict[str, int]:
    images = s.N * int(cut_struct["down"]) * int(cut_struct["across"])
    return {"input": images * s.C, "filter": s.K * s.C, "output": images * s.K}


def workspace(s: ConvShape, cut_struct: np.void) -> tuple[Buffer, ...]:
    """Returns the padded input, filters and dense output, and the spectrum of each.

    cuFFT reports its own workspace when it makes a plan.
    """
    rows, columns, down, across = (int(cut_struct[name]) for name in ("rows", "columns", "down", "across"))
    arrays = {"x": (s.N, down, across, s.C), "w": (s.K, s.C), "y": (s.N, down, across, s.K)}
    real = [Buffer(f"{n}_padded", WORKSPACE, (*leading, rows, columns)) for n, leading in arrays.items()]
    spectra = [
        Buffer(f"{n}_spectra", WORKSPACE, (*leading, rows, columns // 2 + 1, 2)) for n, leading in arrays.items()
    ]
    return (*real, *spectra)


def build(s: ConvShape, tiles: Tiles) -> Program:
    return program(s, tiles, cut(s, tiles))


def program(s: ConvShape, tiles: Tiles, cut_struct: np.void) -> Program:
    """Returns the program whose input is cut into these transforms."""
    conv = common.struct(s)
    rows, columns = int(cut_struct["rows"]), int(cut_struct["columns"])
    area, frequencies = rows * columns, rows * (columns // 2 + 1)
    images, spectra = s.N * int(cut_struct["down"]) * int(cut_struct["across"]), tiles["SPECTRA"]
    grid = ceil(frequencies, FREQUENCIES), ceil(s.K, FILTERS), ceil(images, spectra)
    extents = tuple(np.int32(n) for n in (images, s.K, s.C, frequencies))

    steps = (
        launch("conv/10_fft_pad_input.cu", (ceil(s.C * area, BLOCK), images), BLOCK,
               ("x", "x_padded", conv, cut_struct), fft_cpu.pad_input),
        launch("conv/10_fft_pad_filter.cu", (ceil(s.C * area, BLOCK), s.K), BLOCK,
               ("w", "w_padded", conv, cut_struct), fft_cpu.pad_filter),
        LibraryCall("cufft_input", ("x_padded", "x_spectra"), fft_cpu.forward, cufft.forward, "fft_input"),
        LibraryCall("cufft_filter", ("w_padded", "w_spectra"), fft_cpu.forward, cufft.forward, "fft_filter"),
        launch("conv/10_fft_multiply.cu", grid, FREQUENCIES * (FILTERS // 4) * (spectra // 4),
               ("x_spectra", "w_spectra", "y_spectra", *extents), fft_cpu.multiply, {"SPECTRA": spectra}),
        LibraryCall("cufft_output", ("y_spectra", "y_padded"), fft_cpu.inverse, cufft.inverse, "fft_output"),
        launch("conv/10_fft_pick.cu", (ceil(s.K * s.PQ, BLOCK), s.N), BLOCK,
               ("y_padded", common.bias_name(s), "y", conv, cut_struct, common.layer(s)), fft_cpu.pick),
    )  # fmt: skip
    return Program((*common.buffers(s), *workspace(s, cut_struct)), steps)


def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from common.ungrouped_rules(s)
    tile = tiles["FFT_TILE"]
    if tile:
        sides = (("dilation_h*(R-1)+1", s.span_h), ("dilation_w*(S-1)+1", s.span_w))
        too_large = [broken(f"{name} <= FFT_TILE ({tile})", span) for name, span in sides if span > tile]
    else:
        sides = common.padded_sides(s)
        too_large = [broken(f"{name} <= {MAX_SIDE}", size) for name, size in sides if size > MAX_SIDE]
    yield from too_large
    if too_large:  # no cut is possible
        return
    cut_struct = cut(s, tiles)
    area, images = (
        int(cut_struct["rows"]) * int(cut_struct["columns"]),
        s.N * int(cut_struct["down"]) * int(cut_struct["across"]),
    )
    transforms_name = "N" if tile == WHOLE else "N*down*across"
    for name, count in ((transforms_name, images), ("K", s.K)):
        if count > MAX_GRID_YZ:
            yield broken(f"{name} <= {MAX_GRID_YZ} (grid.y)", count)
    counts = {
        "C*rows*columns": s.C * area,
        "K*P*Q": s.K * s.PQ,
        f"{transforms_name}*C": images * s.C,
        f"{transforms_name}*K": images * s.K,
        "K*C": s.K * s.C,
        "R*S": s.R * s.S,
    }
    yield from index_rules(counts, BLOCK)
    needed = sum(b.nbytes for b in workspace(s, cut_struct))
    if needed > MAX_WORKSPACE:
        filters = 4 * s.K * s.C * (area + 2 * int(cut_struct["rows"]) * (int(cut_struct["columns"]) // 2 + 1))
        yield tr(
            "the workspace must not exceed {limit} bytes, got {needed}, of which the padded filters and their spectra take "
            "{filters}",
            limit=decimal(f"{MAX_WORKSPACE:,}"),
            needed=decimal(f"{needed:,}"),
            filters=decimal(f"{filters:,}"),
        )


def scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns float64 [N,K,1,1]: the sum over C of max |x| times sum |w|, a bound on every output of an image's map.

    The rounding error of a transform depends on its whole array and is spread over all of it. An output in the
    padding is not exactly 0.
    """
    x, w = (np.abs(inputs[name].astype(np.float64)) for name in "xw")
    largest = x.max(axis=(2, 3)).reshape(s.N, s.groups, 1, s.maps)
    sums = w.sum(axis=(2, 3)).reshape(s.groups, s.filters, s.maps)
    bound = (largest @ sums.swapaxes(1, 2)).reshape(s.N, s.K)
    if s.bias:
        bound += np.abs(inputs["b"].astype(np.float64))
    return bound[:, :, None, None]


def executed_flops(s: ConvShape, tiles: Tiles) -> int:
    """Returns the FLOPs of the algorithm itself, including outputs that a stride discards.

    2.5 n log2 n for a real transform of n numbers (half of the usual count of a complex one), 8 for a complex
    multiply-add.
    """
    return _executed(s, cut(s, tiles))


def cut_of(step: Step) -> np.void:
    """Returns the cut of the input, the last argument of a step."""
    found = step.args[-1]
    assert isinstance(found, np.void)
    return found


def _executed(s: ConvShape, cut_struct: np.void) -> int:
    rows, columns = int(cut_struct["rows"]), int(cut_struct["columns"])
    flops_per_transform = 2.5 * rows * columns * math.log2(rows * columns)
    images = s.N * int(cut_struct["down"]) * int(cut_struct["across"])
    products = 8 * images * s.K * s.C * rows * (columns // 2 + 1)
    return round(flops_per_transform * sum(_transforms(s, cut_struct).values())) + products


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs executed, from the cut in the first step's arguments. Bytes are those of common.cost."""
    tensors_cost = common.cost(s, program)
    return Cost(_executed(s, cut_of(program.steps[0])), tensors_cost.bytes, tensors_cost.workspace_bytes)


RUNGS = (
    Rung(
        name="conv/fft",
        title=mark("FFT"),
        idea=mark(
            "The filter is applied by multiplying spectra. The work depends on the padded size, not directly on "
            "the filter's size."
        ),
        build=build,
        cost=cost,
        rules=rules,
        tolerance=TOLERANCE,
        family="fft",
        short_title=mark("FFT"),
        tiles={"FFT_TILE": (WHOLE, 32, 16), "SPECTRA": (32, 8)},
        scale=scale,
        capability=ampere,
        cpu_title=mark("FFT (NumPy)"),
        cpu_tiles=("FFT_TILE",),
    ),
)
