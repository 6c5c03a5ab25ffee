"""The scene of a rung: its program is run, recorded and compiled, with a view or without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from kernels.engines.emulator.watch.recording import record
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import Launch, RuleError
from visuals.scene.compiler.automatic import automatic_view
from visuals.scene.compiler.compile import compile_scene, watched_names
from visuals.scene.compiler.view import View
from visuals.scene.scene import Scene


def every_block(launch: Launch) -> tuple[int, ...]:
    return tuple(range(prod(launch.grid)))


def first_blocks(count: int) -> Callable[[Launch], tuple[int, ...]]:
    """Returns a function that chooses so many blocks of a launch."""
    return lambda launch: every_block(launch)[:count]


def scene_of_rung(
    rung: str,
    shape: Any,
    tiles: Mapping[str, int],
    inputs: Mapping[str, np.ndarray],
    view: View | None,
    key: str,
    notes: Mapping[str, str] = {},
    blocks: Callable[[Launch], tuple[int, ...]] = every_block,
    order: str = "forward",
    **parts: Any,
) -> Scene:
    """Returns the scene of a rung, without a view the automatic one. Tile sizes need not be among the rung's choices. `key`: what else the
    scene depends on. `notes` and `parts`: as of compile_scene. `blocks`: of a launch, those that are watched. `order`: of the warps, as of Options. RuleError names a rule of
    the rung that the shape breaks."""
    found = find(rung)
    for rule in found.rules(shape, dict(tiles)):
        raise RuleError(rule)
    program, names = found.build(shape, dict(tiles)), watched_names(view) if view else None
    with np.errstate(all="ignore"):
        recorded = record(program, inputs, blocks, lambda _: names, order)
    sizes = ",".join(f"{name}={value}" for name, value in tiles.items())
    key, title = f"{rung} {sizes} {key}", tr(found.title)
    if view is None:
        view = automatic_view(recorded.launches)
    return compile_scene(recorded, view, key, title, notes, **parts)
