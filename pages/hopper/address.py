"""The URL of the lesson on Hopper: shape, rung on the stage, tile sizes, and which picture of the rung the stage shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels import records
from kernels.gemm import hopper
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.ladders import LADDERS
from kernels.model.rung import Rung
from kernels.records.gpus import Gpu, cached
from pages.gemm.address import ADDRESS as TILING
from pages.gemm.address import FACTORS, SIZES
from pages.parts import rung_address
from pages.parts.address import Choice
from visuals.gemm import accumulator, ring, swizzle
from visuals.gemm.hopper_map import hopper_map
from visuals.gpu_map.scene import map_scene
from visuals.gpu_map.texts import DESCRIPTION, MAP
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

OWN = tuple(rung.name for rung in hopper.RUNGS)
BEFORE, LIBRARY = "gemm/mma-sync", "gemm/cublas-fp16"
LADDER = LADDERS["gemm"].only(BEFORE, *OWN, LIBRARY)  # what the strip and the cards compare
STAGE_RUNGS = LADDERS["gemm"].only(*OWN)
DEFAULT = GEMM_PRESETS["square-64-fp16"].shape
DEFAULT_RUNG = "wgmma"
ORDERS = {
    "swizzle": mark("the copy engine fills a tile of A, and the first product reads it"),
    "ring": mark("who fills the stages of the ring and who reads them, in the emulator’s order"),
    "accumulator": mark("which thread of a warpgroup holds which sum, and how the sums are stored"),
    MAP: DESCRIPTION,
}
# Choices of one picture, by their values in the URL.
MODES = {
    "128": mark("rows are swizzled, as in the kernels"),
    "none": mark("rows are stored as they are, for comparison"),
}
WARPS = {str(warp): mark("a warp of the first warpgroup") for warp in range(4)}
FIELDS = {name: TILING.shape[name] for name in (*SIZES, *FACTORS)} | {"dtype": Choice(DEFAULT.dtype, hopper.HALVES)}


ADDRESS = rung_address.Address(STAGE_RUNGS, FIELDS, DEFAULT_RUNG, TILING.fix, fit=Rung.tiles_at)


# -- the stage -------------------------------------------------------------------------------------
Made = tuple[Scene | None, str]  # a scene, or why there is none
Tiles = Mapping[str, int]


def _swizzle(shape: GemmShape, rung: str, tiles: Tiles, mode: str, warp: int) -> Made:
    if reason := swizzle.why_not(shape, rung, tiles):
        return None, reason
    return swizzle.swizzle_scene(shape, rung, tiles, hopper.SWIZZLE if mode == "128" else 0), ""


def _ring(shape: GemmShape, rung: str, tiles: Tiles, mode: str, warp: int) -> Made:
    if reason := ring.why_not(shape, rung, tiles):
        return _swizzle(shape, rung, tiles, mode, warp)[0], reason
    return ring.ring_scene(shape, rung, tiles), ""


def _accumulator(shape: GemmShape, rung: str, tiles: Tiles, mode: str, warp: int) -> Made:
    if reason := accumulator.why_not(shape, rung, tiles, warp):
        return None, reason
    A, B, C0 = _matrices(shape)
    return accumulator.accumulator_scene(shape, rung, tiles, A, B, warp, C0), ""


def _map(shape: GemmShape, rung: str, tiles: Tiles, mode: str, warp: int) -> Made:
    if reason := swizzle.why_not(shape, rung, tiles):
        return None, reason
    if found := hopper_map(shape, rung, tiles):
        return map_scene(found), _other_gpu(found.gpu.name)
    note = tr("How many blocks fit on an SM is not known for these tile sizes: the kernel is not compiled ahead.")
    return swizzle.swizzle_scene(shape, rung, tiles), note


def _other_gpu(name: str) -> str:
    """Returns a note if the GPU of the map is not that of the times; "" if it is."""
    timed = records.shown(LADDER.name)
    if timed is None or timed.device == name:
        return ""
    mapped = Gpu(name)
    return tr("The map shows an {mapped}. The times are of an {timed}.", mapped=mapped.name, timed=timed.name)


SCENES: Mapping[str, Callable[[GemmShape, str, Tiles, str, int], Made]] = {
    "swizzle": _swizzle,
    "ring": _ring,
    "accumulator": _accumulator,
    MAP: _map,
}


@cached(MAX_CACHED_SCENES)
def scene(
    shape: GemmShape,
    rung: str,
    tiles: tuple[tuple[str, int], ...],
    order: str = "swizzle",
    mode: str = "128",
    warp: int = 0,
) -> Made:
    """Returns the scene of a rung in one of ORDERS, and why it differs from the request; (None, reason) if there is none."""
    return SCENES[order](shape, rung, dict(tiles), mode, warp)


def _matrices(s: GemmShape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rows of A, the columns of B and the part of C0 that the scene of sums reads: small whole numbers."""
    random = np.random.default_rng(0)
    rows, cols = min(64, s.M), min(hopper.BOX_COLS, s.N)
    A, B = random.integers(-4, 5, (rows, s.K)), random.integers(-4, 5, (s.K, cols))
    return A, B, random.integers(-4, 5, (rows, cols))


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    query, _ = ADDRESS.read(params)
    order = params.get("order", next(iter(ORDERS)))
    return required(scene(query.shape, query.rung.name, tuple(query.tiles.items()), order))
