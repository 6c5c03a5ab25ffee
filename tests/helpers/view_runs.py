"""What a test of views needs of a topic: runs of its kernels in which every step of their views occurs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.ladders import find, ladder_of
from kernels.model.program import Launch
from kernels.runner import inputs_of
from visuals.scene.compiler.program import every_block
from visuals.scene.compiler.view import View


@dataclass(frozen=True)
class ViewRun:
    """A rung with a view at a shape. `name`: of the view, the rung's and maybe more. Runs of one name together execute all its steps.
    `order`: of the warps, as of the emulator's Options."""

    name: str
    view: View
    shape: Any
    tiles: Mapping[str, int]
    inputs: Mapping[str, np.ndarray]
    blocks: Callable[[Launch], tuple[int, ...]] = every_block
    order: str = "forward"

    @property
    def rung(self) -> str:
        return self.name.partition(" ")[0]


def seeded(name: str, view: View, shape: Any, tiles: Mapping[str, int], **more: Any) -> ViewRun:
    """Returns a run with seeded inputs and the rung's default tile sizes, but for those given."""
    rung = name.partition(" ")[0]
    sizes = find(rung).default_tiles | {size: value for size, value in tiles.items() if size in find(rung).tiles}
    return ViewRun(name, view, shape, sizes, inputs_of(ladder_of(rung), shape, find(rung).build(shape, sizes)), **more)
