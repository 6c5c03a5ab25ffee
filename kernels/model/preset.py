"""A named shape."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.model.shape import Shape


@dataclass(frozen=True)
class Preset:
    """A shape with a name for links (`key`), a label for a chip, and its source."""

    key: str
    label: str
    shape: Shape
    source: str
