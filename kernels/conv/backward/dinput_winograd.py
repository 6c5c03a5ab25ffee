"""The gradient of the input by Winograd's algorithm: with stride 1 it is a convolution of dy with turned filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kernels.conv import winograd, winograd_cpu
from kernels.conv.backward import common
from kernels.conv.backward.dinput import NAMES
from kernels.conv.common import struct
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.launch import ceil, launch
from kernels.model.program import WORKSPACE, Buffer, Program, Tiles
from kernels.model.rung import Cost

FILTER_BLOCK = (32, 8)  # maps x filters, as in 30_dinput_winograd_filter.cu


def convolution(s: ConvShape) -> ConvShape:
    """Returns the shape of the convolution of dy [N,K,P,Q] that is dx [N,C,H,W], for stride 1, 3 x 3 and no groups."""
    padding = {"pad_h": s.R - 1 - s.pad_h, "pad_w": s.S - 1 - s.pad_w, "extra_h": -s.extra_h, "extra_w": -s.extra_w}
    return s.with_(C=s.K, K=s.C, H=s.P, W=s.Q, **padding)


def _has_convolution(s: ConvShape) -> bool:
    """Returns whether `convolution` exists. If not, a rule is broken, and a program only names the files."""
    plain = (s.R, s.S, s.stride, s.dilation) == (winograd.R, winograd.R, (1, 1), (1, 1))
    return plain and max(*s.pad, *s.after) < winograd.R


def build(s: ConvShape, tiles: Tiles) -> Program:
    """Returns a program with U [T*T, K, fours(C)], V [T*T, K, fours(tiles)], Z [T*T, C, fours(tiles)]."""
    m, turned = tiles["M"], convolution(s) if _has_convolution(s) else s
    row = winograd.round_up_to_4(s.C)
    U = Buffer("U", WORKSPACE, (winograd.positions(m), s.K, row))
    across, down = FILTER_BLOCK
    transform = launch(
        "conv/30_dinput_winograd_filter.cu",
        (ceil(row, across), ceil(s.K, down)),
        across * down,
        (NAMES.filters, "U", struct(turned)),
        filters_on_cpu(m),
        {"M": m},
    )
    workspace, steps = winograd.nonfused_steps(turned, tiles, NAMES.gradient, NAMES.result)
    return Program((*NAMES.buffers(s), U, *workspace), (transform, *steps))


def turned_filters(w: np.ndarray) -> np.ndarray:
    """Returns w [K, C, 3, 3] with maps and filters exchanged: [C, K, 3, 3]. What turns the taps is in the transform."""
    return w.swapaxes(0, 1)


def filters_on_cpu(m: int):
    transform = winograd_cpu.filters(m)

    def dinput_winograd_filter(w: np.ndarray, U: np.ndarray, s: np.void) -> None:
        transform(turned_filters(w[:, :, ::-1, ::-1]), U, s)

    return dinput_winograd_filter


def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    """Yields those of the convolution of dy, in whose sentences C and K are exchanged."""
    yield from common.plain_rules(s, tiles)
    for axis, before, after in zip("hw", s.pad, s.after, strict=True):
        if max(before, after) > winograd.R - 1:
            name, got = f"pad_{axis}", max(before, after)
            yield tr("{name} must be 2 or less: dy is padded by 2 - {name}, got {got}", name=name, got=got)
            return
    if (s.R, s.S, s.stride, s.dilation) == (3, 3, (1, 1), (1, 1)):
        yield from winograd.nonfused_rules(convolution(s), tiles)
    else:
        yield from winograd.shape_rules(s, tiles["M"])


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs executed, and bytes as for every rung of the ladder."""
    m = dict(program.launch().defines)["M"]
    tensors = common.cost(s, program)
    return Cost(winograd.flops(convolution(s), m), tensors.bytes, tensors.workspace_bytes)


def scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the error scale of F(M x M, 3 x 3): the algorithm on absolute values."""
    w = turned_filters(inputs[NAMES.filters][:, :, ::-1, ::-1])
    return winograd_cpu.error_scale(convolution(s), tiles["M"], inputs[NAMES.gradient], w)
