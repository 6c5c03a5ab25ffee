"""The elements in each lane's registers: the fragments of mma.sync m16n8k16, lane by lane.

A scene of the instruction, made by hand: no kernel runs. The registers of a warp's 32 lanes contain A [16, 16], B [16, 8] and the product [16, 8]. The map is that of
kernels/gemm/fragments.py.
"""

from __future__ import annotations

import numpy as np

from kernels.gemm.fragments import M16N8K16
from kernels.i18n import mark, tr
from visuals.scene.parts import Annotation, Captions, Group, Lanes, MatMul, Reading, Tensor, Write, product
from visuals.scene.requests import LANES
from visuals.scene.scene import Scene
from visuals.scene.source import source_of

M, N, K = 16, 8, 16
FILE = "cuda/mma.cuh"
ORDER = mark("lane by lane")
ORDER_NOTE = mark(
    "The picture shows one lane per step. On the GPU all 32 lanes of a warp hold their elements at once. One "
    "instruction multiplies them all."
)
_CAPTION = mark(
    "Lane {0} is lane {2} of group {1}: the 4 lanes of a group hold the same rows. Lane {0} holds 8 elements of [A](input): "
    "rows {3} and {4}, columns {5}, {7}, {6} and {8}. It holds 4 elements of [B](filter): column {3}, rows {5}, {7}, {6} "
    "and {8}. One instruction of the warp gives it 4 [sums](output): rows {3} and {4}, columns {5} and {7}."
)


def lane_elements() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns (row, column), int64[32 lanes, values], of each lane's elements of A (8 values), B (4) and C (4)."""
    lane = np.arange(LANES)[:, None]
    found = {}
    for name, f in M16N8K16.items():
        row, column = f.position(lane, np.arange(f.values))
        found[name] = np.broadcast_to(row, (LANES, f.values)), np.broadcast_to(column, (LANES, f.values))
    return found


def fragment_scene(A: np.ndarray, B: np.ndarray, C0: np.ndarray | None = None) -> Scene:
    """Returns the scene of one mma.sync: A [16, 16] and B [16, 8] of any 16-bit type. C0 [16, 8]: initial sums (0 if None).
    Raises ValueError for other extents."""
    for name, array, shape in (("A", A, (M, K)), ("B", B, (K, N)), ("C0", C0, (M, N))):
        if array is not None and np.shape(array) != shape:
            raise ValueError(f"{name} of an m16n8k16 must be {shape}, got {np.shape(array)}")
    A, B = (np.asarray(array, np.float32) for array in (A, B))
    start = None if C0 is None else np.asarray(C0, np.float32).ravel()
    C = (A.astype(float) @ B.astype(float)).astype(np.float32).ravel() + (0 if start is None else start)
    flat = {name: row * (N if name != "A" else K) + col for name, (row, col) in lane_elements().items()}
    # One row per value, one column per lane.
    lanes = np.arange(LANES)
    steps, cells = lanes, {name: index.T.ravel() for name, index in flat.items()}
    return Scene(
        key="m16n8k16",
        title="mma.sync m16n8k16",
        tensors=(
            Tensor("A", "A", "A", "input", 1, M, K, A.ravel(), note="16 × 16"),
            Tensor("B", "B", "B", "filter", 1, K, N, B.ravel(), note="16 × 8"),
            Tensor("C", "C", "C", "output", 1, M, N, note="16 × 8"),
            Tensor("a", "a", "a", "input", 1, 8, LANES, note=tr("8 values per lane, in 4 registers")),
            Tensor("b", "b", "b", "filter", 1, 4, LANES, note=tr("4 values per lane, in 2 registers")),
            Tensor("c", "c", "c", "output", 1, 4, LANES, note=tr("4 sums per lane, in 4 registers")),
        ),
        groups=(
            Group(product("A", "B", "C"), table=True),
            Group((("a",), ("b",), ("c",)), "registers", tr("registers of the warp, one column per lane"), table=True),
        ),
        steps=LANES,
        step_name=tr("lane"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=(
            Write("a", steps, source="A", index=cells["A"]),
            Write("b", steps, source="B", index=cells["B"]),
            Write("c", steps, C[cells["C"]]),
            Write("C", np.tile(lanes, 4), source="c", index=np.arange(4 * LANES), cells=cells["C"]),
        ),
        annotations=tuple(_holders(name, flat[name]) for name in flat),
        matmuls=(MatMul("A", "B", "C", start),),
        readings=(
            Reading(tr("elements of A and B in registers"), 12 * (lanes + 1), "predicted"),
            Reading(tr("multiply-adds of the instruction"), np.full(LANES, M * N * K), "predicted"),
        ),
        captions=_captions(lanes),
        source=source_of(FILE, ("mma.sync.aligned",), np.zeros(1, int)),
        lanes=Lanes(np.zeros(LANES, int), np.uint32(1) << lanes.astype(np.uint32)),
    )


def _holders(name: str, flat: np.ndarray) -> Annotation:
    """Returns which lane holds each element, and as which of its values. `flat`: int64[32 lanes, values], the elements."""
    values = flat.shape[1]
    args = np.zeros((flat.size, 2), int)
    args[flat.ravel()] = np.stack([np.repeat(np.arange(LANES), values), np.tile(np.arange(values), LANES)], axis=1)
    texts = (tr("Lane {0} holds it, as its value {1}."),)
    return Annotation(name, Captions(texts, np.zeros(flat.size, int), args))


def _captions(lanes: np.ndarray) -> Captions:
    (rows, cols), (_, sum_cols) = lane_elements()["A"], lane_elements()["C"]
    args = np.stack(
        [lanes, lanes // 4, lanes % 4, rows[:, 0], rows[:, 2], cols[:, 0], cols[:, 4], sum_cols[:, 1], cols[:, 5]],
        axis=1,
    )
    return Captions((tr(_CAPTION),), np.zeros(LANES, int), args)
