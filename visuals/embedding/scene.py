"""An embedding and its gradient as scenes: rows of a table that are copied, and rows that are added back over the same links."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.embedding.shape import EmbeddingShape
from kernels.i18n import decimal, mark, tr
from kernels.model.program import RuleError
from visuals.embedding.captions import kinds
from visuals.embedding.steps import STEPS, EmbeddingSteps
from visuals.scene.launch_scene import Arrays, Executed, executed, launch_scene, recorder
from visuals.scene.parts import Group, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

MAX_CELLS = 2048  # of the table and of y, shown
ROLES = {"tokens": "filter", "table": "input", "dy": "input", "y": "output", "dtable": "output"}
NOTES = {
    "ranks": mark("equal tokens before, in the chunk"),
    "counts": mark("one row per chunk"),
    "earlier": mark("counts of the chunks before"),
    "totals": mark("of each token"),
    "first": mark("position of each token"),
    "order": mark("indices, sorted by token"),
    "parts": mark("sums of runs"),
}


def embedding_scene(rung: str, s: EmbeddingShape, tiles: Mapping[str, int], inputs: Arrays) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name. Raises RuleError if the rung cannot run the shape, or if it
    is too large to show."""
    if max(s.M, s.V) * s.d > MAX_CELLS or max(s.M, s.V) > MAX_CELLS // 4:
        raise RuleError(
            tr("at most {most} elements of a tensor are shown, got {shape}", most=decimal(f"{MAX_CELLS:,}"), shape=s)
        )
    run, found = executed(rung, s, tiles, inputs), kinds(rung)
    r = recorder(found)
    STEPS[rung](EmbeddingSteps(r, run, inputs))
    tensors = _tensors(run, r, inputs)
    return launch_scene(
        rung,
        f"{s} {_digest(inputs)}",
        run,
        r,
        found,
        tuple(tensors.values()),
        _groups(tensors),
        readings=r.readings("", tiles="chunk" in tensors),
    )


def _digest(inputs: Arrays) -> str:
    """Returns the tokens, which decide the steps, for the scene's key."""
    return ",".join(map(str, np.asarray(inputs["tokens"])[:16]))


# -- tensors -----------------------------------------------------------------------------------------------
def _tensors(run: Executed, r: Recorder, inputs: Arrays) -> dict[str, Tensor]:
    """Returns the tensors that the steps read or write, by name."""
    used = {w.target for w in r.writes()} | {w.source for w in r.writes() if w.source} | {x.source for x in r.reads()}
    tensors = {}
    for name, array in run.last.items():
        if name in used:
            rows, cols = array.shape if array.ndim == 2 else (1, array.size)
            values = inputs[name].astype(np.float32).ravel() if name in inputs else None
            note = tr(NOTES[name]) if name in NOTES else ""
            tensors[name] = Tensor(name, name, name, ROLES.get(name, "workspace"), 1, rows, cols, values, note=note)
    for name, size in (("chunk", run.tiles.get("CHUNK", 0)), ("row", run.tiles.get("ROWS", 0))):
        if name in used:
            role = "filter" if name == "chunk" else "workspace"
            tensors[name] = Tensor(name, name, name, role, 1, 1, size, note=tr("of one block"))
    return tensors


def _groups(tensors: Mapping[str, Tensor]) -> tuple[Group, ...]:
    def rows(*names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        existing = (tuple(n for n in row if n in tensors) for row in names)
        return tuple(row for row in existing if row)

    regions = (
        (rows(("tokens",), ("table", "y"), ("dtable", "dy")), "global", tr("global memory")),
        (
            rows(("ranks",), ("counts",), ("earlier",), ("totals",), ("first",), ("order",), ("parts",)),
            "workspace",
            tr("workspace in global memory"),
        ),
        (rows(("chunk",), ("row",)), "shared", tr("shared memory of the block")),
    )
    return tuple(Group(names, space, title) for names, space, title in regions if names)
