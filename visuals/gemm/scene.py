"""GEMM as a scene: one block computes its tile of C = alpha * A x B + beta * C0, in explaining order.

plan.py has the cells of each block, warp and thread. The CUDA source reads and writes the same cells at these tile
sizes; the tests compare them with the emulator's trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from visuals.gemm import captions
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import plan_of, why_not
from visuals.gemm.steps import Steps, part_of
from visuals.scene.parts import Group, MatMul, Reading, Tensor
from visuals.scene.recorder import matrix
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

__all__ = ["gemm_scene", "why_not"]

ORDER = "explaining order"
ORDER_NOTE = (
    "One block, all its threads together: what they load, then the terms of the sums one after the other, as "
    "one {0} has them. The GPU runs the warps of a block in turns, and many blocks at the same moment."
)


def gemm_scene(
    shape: GemmShape, rung: str, tiles: Mapping[str, int], A: np.ndarray, B: np.ndarray,
    C0: np.ndarray | None = None, block: tuple[int, int] = (0, 0),
) -> Scene:  # fmt: skip
    """Returns the scene of one block of a rung. A [M, K], B [K, N] and, if beta != 0, C0 [M, N], as passed to the kernel.
    Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    plan = plan_of(shape, rung, tiles)
    part = part_of(shape, plan, block)
    steps = Steps(shape, plan, part, A, B, C0)
    launch = find(rung).build(shape, find(rung).check(shape, tiles)).steps[0]
    kind = np.array(steps.r.kinds)
    sizes = ",".join(f"{k}={v}" for k, v in plan.tiles.items())
    return Scene(
        key=f"{rung} {shape} {sizes} {block}",
        title=rung,
        tensors=_tensors(steps),
        groups=_groups(steps),
        steps=len(kind),
        step_name="step",
        order_name=ORDER,
        order_note=ORDER_NOTE.format(plan.owner),
        writes=tuple(steps.writes),
        matmuls=_matmuls(steps),
        reads=steps.r.reads(),
        captions=steps.r.captions(captions.templates(shape, plan)),
        readings=_readings(steps),
        source=source_of(plan.file, plan.marks, np.array(gemm_plan.MARK_OF)[kind], detail=resources(launch)),
        lanes=steps.r.lanes(),
    )


def _tensors(steps: Steps) -> tuple[Tensor, ...]:
    s, p, plan, visible = steps.s, steps.part, steps.plan, steps.visible

    owner_note = f"of {plan.owner} 0"
    out = [
        matrix("A", "input", (p.rows, p.K), (p.row, 0), (s.M, s.K), visible["A"]),
        matrix("B", "filter", (p.K, p.cols), (0, p.col), (s.K, s.N), visible["B"]),
        matrix("C", "output", (p.rows, p.cols), (p.row, p.col), (s.M, s.N)),
        Tensor("a", "a", "a", "input", 1, plan.TM, plan.depth, note=owner_note),
        Tensor("b", "b", "b", "filter", 1, plan.depth, plan.TN, note=owner_note),
        Tensor(
            "acc", "sum", "sum", "output", 1, plan.TM, plan.TN, note=f"{owner_note}, {plan.TM} × {plan.TN}"
        ),
    ]
    if "C0" in visible and steps.is_small:
        out.insert(2, matrix("C0", "output", (p.rows, p.cols), (p.row, p.col), (s.M, s.N), visible["C0"]))
    if steps.is_small:
        owners = plan.owners()
        title = f"{len(plan.rows):,} {plan.owner}s"
        out.append(Tensor("who", "who", title, "workspace", 1, *owners.shape, note="where their sums lie"))
    if plan.As:
        for name, role, size in (("A", "input", (plan.BM, plan.BK)), ("B", "filter", (plan.BK, plan.BN))):
            layout, stages = steps.layout(name), min(plan.stages, -(-p.K // plan.BK))
            note = f"tile of {name}, {size[0]} × {size[1]}"
            if layout.at.shape != size:
                note += f", {'rows' if name == 'A' else 'columns'} 0–{max(layout.at.shape[name == 'B'], 1) - 1} of it"
            if plan.stages > 1:
                note += f", {plan.stages} stages"
            tile = f"tile_{name.lower()}"
            out.append(Tensor(tile, tile, tile, role, stages, layout.rows, layout.cols,
                              note=note, plane_name="stage" if stages > 1 else ""))  # fmt: skip
    return tuple(out)


def _groups(steps: Steps) -> tuple[Group, ...]:
    """Returns the groups. Large matrices are placed as a product is drawn, B above C, with the followed thread only."""
    plan = steps.plan
    C = ("C0", "C") if steps.is_small and steps.s.beta else ("C",)
    matrices = (("A", "B", *C),) if steps.is_small else (("B",), ("A", *C))
    tiles = (("tile_a", "tile_b"),) if steps.is_small else (("tile_a",), ("tile_b",))
    registers = (("a", "b", "acc"), ("who",)) if steps.is_small else (("a", "b", "acc"),)
    return (
        Group(matrices, "global", "global memory"),
        *([Group(tiles, "shared", "shared memory of the block")] if plan.As else []),
        Group(registers, "registers", f"registers of its {plan.owner}s"),
    )


def _matmuls(steps: Steps) -> tuple[MatMul, ...]:
    """Returns C as a product that the browser sums, if all terms are shown. `rest` is what beta * C0 adds."""
    if steps.s.alpha != 1 or steps.part.K < steps.s.K or not steps.is_small:
        return ()
    rest = (steps.C - steps.sums).ravel() if steps.s.beta else None
    return (MatMul("A", "B", "C", rest),)


def _readings(steps: Steps) -> tuple[Reading, ...]:
    titles = {
        "read": "values of A and B read from global memory",
        "shared": "from shared memory",
        "added": "multiply-adds",
    }
    if not steps.plan.As:
        del titles["shared"]
    return tuple(Reading(title, steps.r.so_far(name), "predicted") for name, title in titles.items())
