"""GEMM as a scene: one block computes its tile of C = alpha * A x B + beta * C0, compiled from what the kernel did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.gemm.shape import GemmShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from visuals.gemm.plan import why_not
from visuals.gemm.views import KERNELS, view
from visuals.gemm.warps import CUT_NOTE
from visuals.scene.compiler.program import first_blocks, scene_of_rung
from visuals.scene.compiler.view import Buffer, View
from visuals.scene.fold import AFTER, BEFORE
from visuals.scene.parts import MatMul
from visuals.scene.recorder import part_note
from visuals.scene.requests import SECTOR
from visuals.scene.scene import Scene

__all__ = ["gemm_scene", "why_not"]

MAX_WHOLE = 48  # rows, columns and terms of matrices that are shown whole
MAX_SIDE, MIN_TERMS = 64, 16  # shown of the tile and of the sums of a block of larger matrices
MAX_TILE = 128 * 128  # elements of C that a block computes, of whose sums all terms up to MAX_SIDE are shown
ALIGNMENT = 8  # elements: rows of B may begin on 16 bytes or not, which decides how they are copied
ORDER = mark("explaining order")
CUT = mark("The loop was cut short: these sums have {K} of {whole} terms.")
NOTES = {
    1: mark(
        "The picture shows one block. One of its threads takes its steps one by one; the others follow between the same two barriers, in one "
        "step. The GPU runs the warps of a block in turns and many blocks at once. All values are those of the kernel in the emulator."
    ),
    32: mark(
        "The picture shows one block. One of its warps takes its steps one by one; the others follow between the same two barriers, in one "
        "step. The GPU runs the warps of a block in turns and many blocks at once. All values are those of the kernel in the emulator."
    ),
}


def gemm_scene(
    shape: GemmShape,
    rung: str,
    tiles: Mapping[str, int],
    A: np.ndarray,
    B: np.ndarray,
    C0: np.ndarray | None = None,
    every_step: bool = False,
) -> Scene:
    """Returns the scene of block 0 of a rung. A [M, K], B [K, N] and, if beta != 0, C0 [M, N], as passed to the kernel. Terms that are added
    in the same way are one step, unless `every_step`. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    sizes = find(rung).check(shape, tiles)
    s = shortened(shape, sizes)
    rows, cols = (min(MAX_SIDE, extent) for extent in _tile(sizes))
    made = view(rung, s, sizes, rows, cols)
    inputs = {"A": A[: s.M, : s.K], "B": B[: s.K, : s.N]} | (
        {"C0": C0[: s.M, : s.N]} if s.beta and C0 is not None else {}
    )
    parts: dict[str, Any] = {"order_name": tr(ORDER), "order_note": tr(NOTES[made.group])}
    if s is not shape:
        rows, cols = min(rows, s.M), min(cols, s.N)
        made = _of_part(made, rows, cols, s.K)
    if s.K < shape.K:
        made = _cut(made, shape.K)
        parts["order_note"] += " " + tr(CUT_NOTE, cut=decimal(f"{s.K:,}"), all=decimal(f"{shape.K:,}"))
    if every_step:
        (steps,) = made.launches
        made = replace(made, launches=({kind: replace(step, fold="") for kind, step in steps.items()},))
    shown = (s.M, s.N) if s is shape else (rows, cols)
    parts["tensors"] = _notes(shape, *shown, s.K)
    parts["matmuls"] = _matmuls(s, s.K == shape.K, *shown, C0)
    key = f"{shape}{every_step * ' steps=all'}"
    return scene_of_rung(rung, s, sizes, inputs, made, key, _tile_notes(sizes), first_blocks(1), **parts)


def _tile(tiles: Mapping[str, int]) -> tuple[int, int]:
    """Returns rows and columns of a block's tile of C."""
    return tiles.get("BM", tiles.get("BLOCK", 0)), tiles.get("BN", tiles.get("BLOCK", 0))


def shortened(s: GemmShape, tiles: Mapping[str, int]) -> GemmShape:
    """Returns small shapes as they are, of larger ones block 0 alone, with few terms if they have many. Rows are aligned as before."""
    if max(s.M, s.N, s.K) <= MAX_WHOLE:
        return s
    BM, BN = _tile(tiles)
    BK = tiles.get("BK", MAX_SIDE)
    most = MAX_SIDE if BM * BN <= MAX_SIDE**2 else MAX_SIDE // 2
    whole = s.K <= MAX_SIDE and BM * BN <= MAX_TILE
    terms = s.K if whole else max(min(2 * BK, most), BK, MIN_TERMS)
    aligned = SECTOR // ELEMENT_BYTES[s.dtype]
    N = s.N if s.N < BN + ALIGNMENT else BN + s.N % ALIGNMENT
    return s.with_(M=min(s.M, BM), N=N, K=s.K - max(0, s.K - terms) // aligned * aligned)


def _of_part(made: View, rows: int, cols: int, K: int) -> View:
    """Returns a view of the first rows and columns of C, without other blocks."""
    extents = {"A": (rows, K), "B": (K, cols), "C": (rows, cols), "C0": (rows, cols)}
    tensors = tuple(
        replace(shown, part=tuple(map(range, extents[shown.name]))) if isinstance(shown, Buffer) else shown
        for shown in made.tensors
    )
    return replace(made, tensors=tensors, others=())


def _cut(made: View, whole: int) -> View:
    """Returns a view that says before the store that the sums lack terms."""
    (steps,) = made.launches
    store = replace(steps["store"], lead=CUT)
    return replace(made, launches=({**steps, "store": store},), names={**made.names, "whole": str(whole)})


def _notes(shape: GemmShape, rows: int, cols: int, K: int) -> dict[str, dict[str, Any]]:
    """Returns which part of each matrix is shown."""
    notes = {}
    for name, part, whole in (
        ("A", (rows, K), (shape.M, shape.K)),
        ("B", (K, cols), (shape.K, shape.N)),
        *((name, (rows, cols), (shape.M, shape.N)) for name in ("C", "C0")),
    ):
        note = part_note(*zip((0, 0), part, whole, strict=True))
        notes[name] = {"note": note, "partial": part != whole}
    return notes


def _tile_notes(tiles: Mapping[str, int]) -> dict[str, str]:
    """Returns the sizes of the tiles in shared memory."""
    if "BK" not in tiles:
        return {}
    stages = tiles.get("STAGES", 1)
    count = trn("{n} buffer", "{n} buffers", stages)
    buffers = f" · {count}" if stages > 1 else ""
    sizes = {"A": (tiles["BM"], tiles["BK"]), "B": (tiles["BK"], tiles["BN"])}
    return {
        f"tile_{matrix.lower()}": tr("tile of {matrix}, {rows} × {cols}", matrix=matrix, rows=rows, cols=cols) + buffers
        for matrix, (rows, cols) in sizes.items()
    }


def _matmuls(s: GemmShape, whole: bool, rows: int, cols: int, C0: np.ndarray | None) -> tuple[MatMul, ...]:
    """Returns C as a product that the browser sums, if all terms are shown. `rest` is what beta * C0 adds."""
    if s.alpha != 1 or not whole:
        return ()
    rest = (np.float32(s.beta) * C0[:rows, :cols].astype(np.float32)).ravel() if s.beta and C0 is not None else None
    return (MatMul("A", "B", "C", rest),)


def folds(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> bool:
    """Returns whether a rung's scene has steps to fold: five or more of one tile, whose last terms may be zeros, or of the
    whole sum without tiles."""
    if why_not(shape, rung, tiles):
        return False
    sizes = find(rung).check(shape, tiles)
    return sizes.get("BK", shape.K) > (BEFORE + AFTER + 1) * KERNELS[rung].depth
