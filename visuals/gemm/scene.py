"""GEMM as a scene: one block computes its tile of C = alpha * A x B + beta * C0, in explaining order.

plan.py has the cells of each block, warp and thread. The CUDA source reads and writes the same cells at these tile
sizes; the tests compare them with the emulator's trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from visuals.gemm import captions
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import Plan, plan_of, why_not
from visuals.gemm.steps import GemmSteps, part_of
from visuals.scene.fold import AFTER, BEFORE, folded, repeats
from visuals.scene.parts import Group, MatMul, Number, Reading, Tensor, product
from visuals.scene.recorder import matrix
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

__all__ = ["gemm_scene", "why_not"]

ORDER = mark("explaining order")
ORDER_NOTES = {
    "direct": mark(
        "The picture shows one block. Its threads add the terms of their sums. The sum of one thread is shown step by "
        "step. The GPU runs the warps of a block in turns and many blocks at once."
    ),
    "thread": mark(
        "The picture shows one block. Its threads load a tile and then add the terms of their sums. The sums of one "
        "thread are shown step by step. The GPU runs the warps of a block in turns and many blocks at once."
    ),
    "warp": mark(
        "The picture shows one block. Its warps load a tile and then add the terms of their sums. The sums of one "
        "warp are shown step by step. The GPU runs the warps of a block in turns and many blocks at once."
    ),
}


def gemm_scene(
    shape: GemmShape,
    rung: str,
    tiles: Mapping[str, int],
    A: np.ndarray,
    B: np.ndarray,
    C0: np.ndarray | None = None,
    block: tuple[int, int] = (0, 0),
    every_step: bool = False,
) -> Scene:
    """Returns the scene of one block of a rung. A [M, K], B [K, N] and, if beta != 0, C0 [M, N], as passed to the kernel.
    Terms that are added in the same way are one step, unless `every_step`. Raises ValueError if `why_not` gives a
    reason."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    plan = plan_of(shape, rung, tiles)
    part = part_of(shape, plan, block)
    steps = GemmSteps(shape, plan, part, A, B, C0)
    launch = find(rung).build(shape, find(rung).check(shape, tiles)).launch()
    kind = np.array(steps.r.kinds)
    sizes = ",".join(f"{k}={v}" for k, v in plan.tiles.items())
    scene = Scene(
        key=f"{rung} {shape} {sizes} {block}" + every_step * " steps=all",
        title=tr(find(rung).title),
        tensors=_tensors(steps),
        groups=_groups(steps),
        steps=len(kind),
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTES[plan.owner if plan.As else "direct"]),
        writes=tuple(steps.writes),
        matmuls=_matmuls(steps),
        reads=steps.r.reads(),
        captions=steps.r.captions(captions.templates(shape, plan, block)),
        readings=_readings(steps),
        source=source_of(plan.file, plan.lines, np.array(gemm_plan.MARK_OF)[kind], detail=resources(launch)),
        lanes=steps.r.lanes(),
    )
    runs = [] if every_step else repeats(steps.r.kinds, (gemm_plan.MULTIPLY,))
    return folded(scene, runs, captions.folded(plan), lambda run: _folded_args(steps, *run))


def folds(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> bool:
    """Returns whether a rung's scene has steps to fold: five or more of one tile, or of the whole sum without tiles."""
    if why_not(shape, rung, tiles):
        return False
    plan = plan_of(shape, rung, tiles)
    return min(plan.BK if plan.As else shape.K, shape.K) > (BEFORE + AFTER + 1) * plan.depth


def _folded_args(steps: GemmSteps, first: int, last: int) -> tuple[Number, ...]:
    """Returns the numbers of captions.folded for steps `first` to `last`."""
    plan, args = steps.plan, steps.r.args
    terms = args[last][1] - args[first][0] + 1
    total = args[last][4] if plan.TM * plan.TN == 1 else 0
    return args[first][0], args[last][1], total, terms * plan.TM * plan.TN, terms * (plan.TM + plan.TN)


def _tensors(steps: GemmSteps) -> tuple[Tensor, ...]:
    s, p, plan, visible = steps.s, steps.part, steps.plan, steps.visible

    out = [
        matrix("A", "input", (p.rows, p.K), (p.row, 0), (s.M, s.K), visible["A"]),
        matrix("B", "filter", (p.K, p.cols), (0, p.col), (s.K, s.N), visible["B"]),
        matrix("C", "output", (p.rows, p.cols), (p.row, p.col), (s.M, s.N)),
        Tensor("a", "a", "a", "input", 1, plan.TM, plan.depth),
        Tensor("b", "b", "b", "filter", 1, plan.depth, plan.TN),
        Tensor("acc", "sum", "sum", "output", 1, plan.TM, plan.TN, note=f"{plan.TM} × {plan.TN}"),
    ]
    if "C0" in visible and steps.is_small:
        out.insert(2, matrix("C0", "output", (p.rows, p.cols), (p.row, p.col), (s.M, s.N), visible["C0"]))
    if steps.is_small:
        owners = plan.owners()
        note = tr("in the tile of C")
        out.append(Tensor("who", "who", _owners(plan), "workspace", 1, *owners.shape, note=note))
    if plan.As:
        out += [_tile(steps, "A"), _tile(steps, "B")]
    return tuple(out)


def _owners(plan: Plan) -> str:
    if plan.owner == "warp":
        return trn("{n} warp", "{n} warps", len(plan.rows))
    return trn("{n} thread", "{n} threads", len(plan.rows))


def _tile(steps: GemmSteps, name: str) -> Tensor:
    """Returns the tile of a matrix in shared memory. Its cells are named by their index in the kernel's array."""
    plan, layout = steps.plan, steps.layout(name)
    role, size = ("input", (plan.BM, plan.BK)) if name == "A" else ("filter", (plan.BK, plan.BN))
    notes = [_tile_note(name, size, layout.at.shape)]
    if plan.stages > 1:
        notes.append(trn("{n} buffer", "{n} buffers", plan.stages))
    tile, buffers = f"tile_{name.lower()}", min(plan.stages, -(-steps.part.K // plan.BK))
    # The kernel's array of 8-bit values has words of four.
    symbol = tr("{tile} (bytes)", tile=tile) if layout.item == 1 else tile
    return Tensor(
        tile,
        symbol,
        tile,
        role,
        buffers,
        layout.rows,
        layout.cols,
        note=" · ".join(notes),
        plane_name=tr("buffer") if plan.stages > 1 else "",
    )


def _tile_note(name: str, size: tuple[int, int], shown: tuple[int, int]) -> str:
    """Returns the size of a block's tile, and which part of it is shown."""
    fields = {"matrix": name, "rows": size[0], "cols": size[1]}
    if shown == size:
        return tr("tile of {matrix}, {rows} × {cols}", **fields)
    if name == "A":
        return tr("rows 0–{last} of a tile of {matrix}, {rows} × {cols}", last=shown[0] - 1, **fields)
    return tr("columns 0–{last} of a tile of {matrix}, {rows} × {cols}", last=shown[1] - 1, **fields)


def _groups(steps: GemmSteps) -> tuple[Group, ...]:
    """Returns the groups. A product is drawn with B above C and A left of C, in each memory alike."""
    plan = steps.plan
    C = ("C", "C0") if steps.is_small and steps.s.beta else ("C",)
    registers = tr("registers of warp 0") if plan.owner == "warp" else tr("registers of thread 0")
    return (
        Group(product("A", "B", *C), "global", tr("global memory"), table=True),
        *([Group((("tile_b",), ("tile_a",)), "shared", tr("shared memory"))] if plan.As else []),
        Group(product("a", "b", "acc"), "registers", registers, table=True),
        *([Group((("who",),))] if steps.is_small else []),
    )


def _matmuls(steps: GemmSteps) -> tuple[MatMul, ...]:
    """Returns C as a product that the browser sums, if all terms are shown. `rest` is what beta * C0 adds."""
    if steps.s.alpha != 1 or steps.part.K < steps.s.K or not steps.is_small:
        return ()
    rest = (steps.C - steps.sums).ravel() if steps.s.beta else None
    return (MatMul("A", "B", "C", rest),)


def _readings(steps: GemmSteps) -> tuple[Reading, ...]:
    s, plan = steps.s, steps.plan
    titles = {"read": tr("values of A and B read from global memory")}
    if plan.As:
        titles["shared"] = tr("values read from shared memory")
    with_zeros = plan.inside(s, steps.part.block) != (plan.BM, plan.BN) or s.K % plan.depth
    titles["added"] = (
        tr("multiply-adds, with zeros outside the matrices") if plan.As and with_zeros else tr("multiply-adds")
    )
    return tuple(Reading(title, steps.r.so_far(name), "predicted") for name, title in titles.items())
