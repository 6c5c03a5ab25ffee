"""The stage of the GEMM lesson: its orders and its scenes, which are cached between reruns."""

from __future__ import annotations

import numpy as np

from kernels.gemm.common import buffers
from kernels.gemm.shape import GemmShape
from kernels.i18n import cached, mark, tr
from kernels.model.program import RuleError
from visuals.gemm import fragment
from visuals.gemm.fragment import fragment_scene
from visuals.gemm.gpu_map import gemm_map
from visuals.gemm.plan import why_not
from visuals.gemm.scene import gemm_scene
from visuals.gemm.timeline import has_timeline, timeline_scene
from visuals.gemm.warps import warps_scene
from visuals.gpu_map.scene import map_scene
from visuals.gpu_map.texts import DESCRIPTION, MAP, NO_MAP
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

GEMM_ORDERS = {
    "explaining": mark("the loads of one block, then the terms of its sums"),
    "warps": mark("the memory requests of one warp of block 0, as the emulator executed them"),
    MAP: DESCRIPTION,
}

TIMELINE = {"timeline": mark("the copies, waits, products and barriers of one block: what follows what")}
FRAGMENTS = {"fragments": mark("the elements in each lane’s registers in the first mma.sync m16n8k16 of block 0")}


FILLED = 512  # rows of A and columns of B with random values; block 0 reads the first of them


def gemm_orders(rung: str) -> dict[str, str]:
    """Returns the orders in which a rung of the GEMM ladder can be played, with a marked description of each."""
    timeline = TIMELINE if has_timeline(rung) else {}
    return GEMM_ORDERS | timeline | (FRAGMENTS if rung == "gemm/mma-sync" else {})


@cached(MAX_CACHED_SCENES)
def gemm(
    shape: GemmShape, rung: str, tiles: tuple[tuple[str, int], ...], order: str, every_step: bool = False
) -> tuple[Scene | None, str]:
    """Returns the scene of a rung in one of its gemm_orders(), or None, and why it differs from the request. The
    explaining order folds repeated steps, unless `every_step`."""
    if reason := why_not(shape, rung, dict(tiles)):
        return None, reason
    note = ""
    if order == MAP:
        if found := gemm_map(shape, rung, dict(tiles)):
            return map_scene(found), ""
        note = tr(NO_MAP)
    matrices = _matrices(shape)
    if order == "fragments":
        A, B, _ = matrices
        return fragment_scene(_corner(A, fragment.M, fragment.K), _corner(B, fragment.K, fragment.N)), ""
    try:
        if order == "timeline" and has_timeline(rung):
            return timeline_scene(shape, rung, dict(tiles)), ""
        if order == "warps":
            return warps_scene(shape, rung, dict(tiles), *matrices), ""
        return gemm_scene(shape, rung, dict(tiles), *matrices, every_step=every_step), note
    except RuleError as error:  # no compiler here for these tile sizes
        return None, str(error)


def _corner(matrix: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Returns the first rows and columns, padded with zeros as in the kernel."""
    corner = matrix[:rows, :cols]
    return np.pad(corner, ((0, rows - corner.shape[0]), (0, cols - corner.shape[1])))


def _matrices(shape: GemmShape) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns A, B and C0, None if beta is 0: small whole numbers in all elements that block 0 reads.

    The other elements are zeros, for which no memory is used."""
    random, found = np.random.default_rng(0), {}
    read = {"A": np.s_[:FILLED], "B": np.s_[:, :FILLED], "C0": np.s_[:FILLED, :FILLED]}
    for buffer in buffers(shape):
        if buffer.name in read:
            matrix = np.zeros(buffer.shape, buffer.dtype)
            filled = matrix[read[buffer.name]]
            filled[:] = random.integers(-4, 5, filled.shape, np.int8)
            found[buffer.name] = matrix
    return found["A"], found["B"], found.get("C0")
