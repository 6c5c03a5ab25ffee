"""Rows of the convolution ladder in the form of recordings, with times that a test chooses."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from kernels.ladders import LADDERS
from tests.helpers.rows_of import a_row

LADDER = LADDERS["conv"]


def timed(rung: str, shape: ConvShape, ms: float, spread: float = 0.001, **changes) -> dict:
    """Returns a row with median `ms`; p20 and p80 are the share `spread` below and above it."""
    samples = [ms * (1 - 2 * spread), ms * (1 - spread), ms, ms * (1 + spread), ms * (1 + 2 * spread)]
    identity = {"rung": rung, "shape": shape.params(), "tiles": LADDER.rung(rung).default_tiles, "engine": "cuda"}
    quantiles = {"median_ms": ms, "p20_ms": ms * (1 - spread), "p80_ms": ms * (1 + spread)}
    return a_row(samples=samples, **(identity | {"device": "a GPU", "flops": shape.flops} | quantiles | changes))
