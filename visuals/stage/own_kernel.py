"""A page on which a reader's own kernel runs step by step, as one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernels.engines.emulator.threads import Dim
from visuals import stage
from visuals.scene.compiler.user import kernel_scene
from visuals.stage.standalone import standalone


def page(
    file: Path, entry: str, grid: Dim, block: Dim, args: Sequence[str], watched: tuple[int, int], **settings
) -> str:
    """Returns the page. Parameters and errors as of kernel_scene."""
    scene = kernel_scene(file, entry, grid, block, args, watched, **settings)
    return standalone(stage.message(scene, param=None), scene.title)
