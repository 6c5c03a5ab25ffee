"""Runs of the embedding's kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.embedding.shape import EmbeddingBackwardShape, EmbeddingShape
from tests.helpers.view_runs import ViewRun
from visuals.embedding.views import VIEWS

SMALL_SORT = {"BLOCK": 32, "CHUNK": 4}
TOKENS = np.array([2, 0, 2, 2, 1, 2, 4, 4], np.int32)  # token 3 does not occur


def _gradient(tiles: dict[str, int], *columns: int):
    """Returns runs of an embedding's gradient at so many columns."""
    return [
        (EmbeddingBackwardShape(8, 5, d), tiles, {"tokens": TOKENS, "dy": np.ones((8, d), np.float32)}) for d in columns
    ]


def _rows(tiles: dict[str, int]):
    return [(EmbeddingShape(8, 5, 4), tiles, {"tokens": TOKENS, "table": np.ones((5, 4), np.float32)})]


EMBEDDING = {
    "embedding/elements": _rows({"BLOCK": 32}),
    "embedding/rows": _rows({"WARPS": 2, "LOADS": 1}),
    "embedding-backward/atomics": _gradient({"BLOCK": 32}, 4),
    "embedding-backward/sorted": _gradient(SMALL_SORT, 4),
    "embedding-backward/runs": _gradient(
        SMALL_SORT | {"ROWS": 4}, 3, 4
    ),  # rows that are aligned to 16 bytes, and others
}


def runs() -> Iterator[ViewRun]:
    for rung, of_rung in EMBEDDING.items():
        yield from (ViewRun(rung, VIEWS[rung], *run) for run in of_rung)
