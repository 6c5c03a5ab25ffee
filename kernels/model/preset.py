"""A named shape."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.attention.shape import AttentionShape
from kernels.conv.shape import ConvShape
from kernels.gemm.shape import GemmShape


@dataclass(frozen=True)
class Preset:
    """A shape with a name for links (`key`), a label for a chip, and its source."""

    key: str
    label: str
    shape: ConvShape | GemmShape | AttentionShape
    source: str
