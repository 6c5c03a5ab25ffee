"""The stage of the GEMM lesson, kept between reruns: its scene, its orders, one corner for the fragment."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kernels.gemm.common import buffers
from kernels.gemm.shape import GemmShape
from kernels.model.program import RuleError
from pages.parts.kept import MOST_KEPT
from visuals.gemm import fragment
from visuals.gemm.fragment import fragment_scene
from visuals.gemm.plan import why_not
from visuals.gemm.scene import gemm_scene
from visuals.gemm.warps import warps_scene
from visuals.scene.scene import Scene

GEMM_ORDERS = {
    "explaining": "one block, what it loads and then the terms of its sums one after the other",
    "warps": "what one warp of block 0 asks of memory, request by request, as the emulator executed it",
}


FRAGMENTS = {"fragments": "which lane of a warp holds what in the first mma.sync m16n8k16 of block 0"}


NEAR = 512  # rows of A and columns of B, of which block 0 has the first


def gemm_orders(rung: str) -> dict[str, str]:
    """The orders in which a rung of the GEMM ladder can be played, and what each is."""
    return GEMM_ORDERS | FRAGMENTS if rung == "gemm/mma-sync" else GEMM_ORDERS


@lru_cache(maxsize=MOST_KEPT)
def gemm(
    shape: GemmShape, rung: str, tiles: tuple[tuple[str, int], ...], order: str
) -> tuple[Scene | None, str]:
    """The scene of a rung in one of its gemm_orders(), None where it has none; and why it is not what was asked for."""
    if reason := why_not(shape, rung, dict(tiles)):
        return None, reason
    given = _matrices(shape)
    if order == "fragments":
        A, B, *_ = given
        return fragment_scene(_corner(A, fragment.M, fragment.K), _corner(B, fragment.K, fragment.N)), ""
    if order == "warps":
        try:
            return warps_scene(shape, rung, dict(tiles), *given), ""
        except RuleError as error:  # no compiler here for these tile sizes
            return gemm_scene(shape, rung, dict(tiles), *given), f"{error}. Until then: the explaining order."
    return gemm_scene(shape, rung, dict(tiles), *given), ""


def _corner(matrix: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Its first rows and columns; zeros where it has none, as the kernel puts them."""
    there = matrix[:rows, :cols]
    return np.pad(there, ((0, rows - there.shape[0]), (0, cols - there.shape[1])))


def _matrices(shape: GemmShape) -> list[np.ndarray]:
    """A, B and, where beta is not 0, C0: small whole numbers in all that block 0 reads, and beyond that zeros, for
    which no memory is taken."""
    random, found = np.random.default_rng(0), []
    read = {"A": np.s_[:NEAR], "B": np.s_[:, :NEAR], "C0": np.s_[:NEAR, :NEAR]}
    for buffer in buffers(shape):
        if buffer.name in read:
            matrix = np.zeros(buffer.shape, buffer.dtype)
            near = matrix[read[buffer.name]]
            near[:] = random.integers(-4, 5, near.shape, np.int8)
            found.append(matrix)
    return found
