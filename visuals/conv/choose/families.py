"""The families of the convolution ladder: which algorithm a rung is, its colour and a short name for a small cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    key: str
    title: str
    token: str  # of the palette


FAMILIES: dict[str, Family] = {
    family.key: family
    for family in (
        Family("direct", "direct", "dim"),
        Family("im2col", "im2col", "workspace"),
        Family("implicit", "implicit GEMM", "input"),
        Family("winograd", "Winograd", "filter"),
        Family("fft", "FFT", "output"),
        Family("cudnn", "cuDNN", "accent"),
    )
}
SHORT = {
    "direct": "direct", "direct-tiled": "direct tiled", "im2col-gemm": "im2col", "im2col-cublas": "im2col cuBLAS",
    "implicit-gemm-plain": "implicit plain", "implicit-gemm": "implicit GEMM", "winograd-2x2": "Winograd 2×2",
    "winograd-4x4": "Winograd 4×4", "winograd-nonfused": "Winograd steps", "fft": "FFT",
    "cudnn-implicit-gemm": "cuDNN implicit", "cudnn-implicit-precomp-gemm": "cuDNN precomp",
    "cudnn-gemm": "cuDNN GEMM", "cudnn-direct": "cuDNN direct", "cudnn-fft": "cuDNN FFT",
    "cudnn-fft-tiling": "cuDNN FFT tiles", "cudnn-winograd": "cuDNN Winograd",
    "cudnn-winograd-nonfused": "cuDNN Winograd steps",
}  # fmt: skip


def family(rung: str) -> Family:
    """Of "conv/im2col-gemm": the first word of its name."""
    return FAMILIES[rung.partition("/")[2].partition("-")[0]]


def short(row: Mapping) -> str:
    """The rung of a row; the cpu engine calls NumPy's BLAS where a GPU has cuBLAS."""
    name = SHORT[row["rung"].partition("/")[2]]
    return name.replace("cuBLAS", "BLAS") if row["engine"] == "cpu" else name
