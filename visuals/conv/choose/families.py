"""The families of the convolution ladder, each with its colour, and short titles of rungs for narrow cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.i18n import mark, tr
from kernels.ladders import find


@dataclass(frozen=True)
class Family:
    key: str
    title: str
    token: str  # of the palette


FAMILIES: dict[str, Family] = {
    family.key: family
    for family in (
        Family("direct", mark("direct"), "dim"),
        Family("im2col", "im2col", "workspace"),
        Family("implicit", mark("implicit GEMM"), "input"),
        Family("winograd", "Winograd", "filter"),
        Family("fft", "FFT", "output"),
        Family("cudnn", "cuDNN", "accent"),
    )
}


def family(rung: str) -> Family:
    """Returns the family of a rung of the ladder by its name."""
    return FAMILIES[find(rung).family]


def short(row: Mapping) -> str:
    """Returns the short title of the rung of a row; the cpu engine calls NumPy's BLAS where a GPU has cuBLAS."""
    name = tr(find(row["rung"]).short_title)
    return name.replace("cuBLAS", "BLAS") if row["engine"] == "cpu" else name
