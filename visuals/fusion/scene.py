"""A chain of blocks as a scene. Either each block is a launch and the maps between them are in HBM, or one launch
computes several blocks. Then a value goes from block to block in a register, and the maps between are never
stored. It is compiled from what the kernels do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import ChainShape, Extents
from kernels.i18n import decimal, tr, trn
from kernels.ladders import find
from visuals.fusion.plan import inputs, stage_shape
from visuals.fusion.views import Blocks, launches_of, view_of
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.parts import Group, Reading, Tensor
from visuals.scene.scene import Scene

IN_A_ROW = 8  # tensors in a row; the stage wraps longer rows


def fusion_scene(s: ChainShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of one of our rungs at `stage_shape(s)`, with small whole numbers. RuleError if the rung
    cannot run it."""
    small = stage_shape(s)
    tiles = find(rung).check(small, tiles)
    launches = launches_of(PLANS[rung](small, tiles))
    blocks = [launch for launch in launches if isinstance(launch, Blocks)]
    notes = dict(_notes(small, s)) | {
        of.target: tr("after {block}", block=of.kinds[-1]) for of in blocks if of.target != "y"
    }
    scene = scene_of_rung(rung, small, tiles, inputs(small), view_of(launches), f"{small} of {s}", notes)
    stored = any(tensor.role == "workspace" and tensor.name not in _registers(scene) for tensor in scene.tensors)
    tensors = (*scene.tensors, *(tensor for of in blocks for tensor in _never_stored(of, stored)))
    first = [0, *(source.since for source in scene.next_sources)]
    counted = Reading(tr("launches"), np.searchsorted(first, np.arange(scene.steps), "right"), "predicted")
    groups = _groups({tensor.name: tensor for tensor in tensors}, _registers(scene), small != s)
    return replace(scene, tensors=tensors, groups=groups, readings=(counted, *scene.readings))


def _registers(scene: Scene) -> list[str]:
    return [tensor.name for tensor in scene.tensors if tensor.name[0] in "suv" and tensor.name[1:].isdigit()]


def _notes(small: ChainShape, s: ChainShape) -> Iterator[tuple[str, str]]:
    """Yields the size of x and y, if they are scaled down their full size too, and what other inputs are."""
    yield "x", _part(small.x_shape, s.x_shape)
    yield "y", _part(small.y_shape, s.y_shape)
    for stage, whole, names in zip(small.stages, s.stages, small.tensors, strict=True):
        if "z" in names:
            yield names["z"], tr("second input of add")
        if "w" in names:
            K, total = stage.block.K, decimal(f"{whole.block.K:,}")
            note = trn("{n} filter", "{n} filters", K)
            scaled = stage.tensors["w"] != whole.tensors["w"]
            yield (
                names["w"],
                trn("{n} of {total} filters", "{n} of {total} filters", K, total=total) if scaled else note,
            )
    for n, _ in enumerate(small.blocks, 1):
        yield f"w_folded{n}", "w · gain"
        yield f"b_folded{n}", tr("one value per filter")


def _part(small: Extents, whole: Extents) -> str:
    size = f"{small[1]} × {small[2]} × {small[3]}"
    if small == whole:
        return size
    of = " × ".join(decimal(f"{extent:,}") for extent in whole)
    return tr("{size}, scaled down from {whole}", size=size, whole=of)


def _never_stored(of: Blocks, stored: bool) -> Iterator[Tensor]:
    """Yields the maps that a launch does not write. `stored`: some maps or weights are written."""
    for n, kind in enumerate(of.kinds[:-1], 1):
        _, C, H, W = of.shapes[of.source if n <= len(of.group.prologue) else of.target]
        name, note = f"never{of.n}_{n}", tr("never stored") if stored else ""
        yield Tensor(name, name, tr("after {block}", block=kind), "workspace", C, H, W, note=note, plane_name=tr("map"))


def _groups(tensors: Mapping[str, Tensor], registers: list[str], small: bool) -> tuple[Group, ...]:
    stored = [name for name, t in tensors.items() if t.role == "workspace" and name not in registers]
    params = [n for n in tensors if n not in (*registers, *stored, "x", "y")]
    vectors = [n for n in params if tensors[n].rows == tensors[n].planes == 1]
    rows = (("x", "y"), *_rows([n for n in params if n not in vectors]), *_rows(vectors))
    title = tr("global memory")
    if small:
        title = tr("global memory, scaled down: one image, few maps, few rows")
    groups = [Group(rows, "global", title)]
    if stored:
        never = all(name.startswith("never") for name in stored)
        title = tr("workspace in global memory: between launches")
        if never:
            title = tr("maps that are never stored")
        groups.append(Group(_rows(stored), "workspace", title))
    if registers:
        groups.append(Group(_rows(registers), "registers", tr("registers, one row after each block")))
    return tuple(groups)


def _rows(names: list[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(names[n : n + IN_A_ROW]) for n in range(0, len(names), IN_A_ROW))
