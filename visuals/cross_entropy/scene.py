"""Cross-entropy as a scene: one row in one block, step by step, then the other rows; the gradient on the same tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.model.program import RuleError
from visuals.cross_entropy.captions import kinds
from visuals.cross_entropy.steps import STEPS, CrossEntropySteps
from visuals.scene.launch_scene import Arrays, Executed, executed, launch_scene, recorder
from visuals.scene.parts import Group, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

MAX_LOGITS = 4096  # shown
ROLES = {"x": "input", "labels": "filter", "lse": "output", "g": "filter", "loss": "output", "dx": "output"}
REGISTERS = {"m": "filter", "l": "workspace"}
TITLES = {
    "m": mark("m, largest so far"),
    "l": mark("l, sum so far"),
    "p": mark("p = softmax(x)"),
    "lse": mark("lse, log-sum-exp"),
    "g": mark("g, weight of a row"),
    "kept": mark("the row, kept"),
}


def cross_entropy_scene(
    rung: str, s: CrossEntropyShape, tiles: Mapping[str, int], inputs: Arrays, note: str = ""
) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name. `note`: which part of a larger matrix they are. Raises
    RuleError if the rung cannot run the shape, or if it has too many logits to show."""
    if s.elements > MAX_LOGITS:
        raise RuleError(
            tr(
                "at most {most} logits are shown, got {count}",
                most=decimal(f"{MAX_LOGITS:,}"),
                count=decimal(f"{s.elements:,}"),
            )
        )
    run, found = executed(rung, s, tiles, inputs), kinds(rung)
    r = recorder(found)
    with np.errstate(all="ignore"):
        STEPS[rung](CrossEntropySteps(r, run, inputs))
    tensors = _tensors(run, r, inputs, note)
    return launch_scene(
        rung,
        f"{s} {note}",
        run,
        r,
        found,
        tuple(tensors.values()),
        _groups(tensors, run.tiles["BLOCK"]),
        readings=r.readings("", tiles="kept" in tensors),
        finite=False,
    )


# -- tensors -----------------------------------------------------------------------------------------------
def _tensors(run: Executed, r: Recorder, inputs: Arrays, note: str) -> dict[str, Tensor]:
    """Returns the tensors that the steps read or write, by name."""
    used = {w.target for w in r.writes()} | {read.source for read in r.reads()}
    matrices = {name: array for name, array in run.last.items() if name in used}
    tensors = {}
    for name, array in matrices.items():
        rows, cols = array.shape if array.ndim == 2 else (1, array.size)
        values = inputs[name].astype(np.float32).ravel() if name in inputs else None
        role = "input" if name in inputs and name == "lse" else ROLES.get(name, "workspace")
        tensors[name] = Tensor(name, name, _title(name), role, 1, rows, cols, values, note=note if name == "x" else "")
    block = run.tiles["BLOCK"]
    for name in (name for name in REGISTERS if name in used):
        tensors[name] = _vector(name, REGISTERS[name], block, tr("one column per thread"))
    for name in (f"warp_{name}" for name in REGISTERS if f"warp_{name}" in used):
        tensors[name] = _vector(name, REGISTERS[name[-1]], block // 32, tr("one value per warp"))
    if "kept" in used:
        tensors["kept"] = _vector("kept", "input", inputs["x"].shape[1], tr("as long as a row"))
    return tensors


def _vector(name: str, role: str, size: int, note: str) -> Tensor:
    return Tensor(name, name, _title(name), role, 1, 1, size, note=note)


def _title(name: str) -> str:
    return tr(TITLES[name]) if name in TITLES else name


def _groups(tensors: Mapping[str, Tensor], threads: int) -> tuple[Group, ...]:
    def rows(*names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        existing = (tuple(n for n in row if n in tensors) for row in names)
        return tuple(row for row in existing if row)

    registers = trn("registers of the block’s {n} thread", "registers of the block’s {n} threads", threads)
    regions = (
        (rows(("x",), ("dx",), ("labels", "g"), ("lse", "loss")), "global", tr("global memory")),
        (rows(("p",), ("log_p",), ("part_m", "part_l")), "workspace", tr("workspace in global memory")),
        (rows(("m",), ("l",)), "registers", registers),
        (rows(("warp_m", "warp_l"), ("kept",)), "shared", tr("shared memory of the block")),
    )
    return tuple(Group(names, space, title) for names, space, title in regions if names)
