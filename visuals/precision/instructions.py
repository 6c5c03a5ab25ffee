"""One matrix product of a warp, instruction by instruction: which operands one instruction uses, which sums it changes.

The sums after each instruction follow the kernel's order. The last ones are compared with what the kernel stores
(tests/visuals/precision).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.precision.ladder import INSTRUCTIONS
from kernels.precision.shape import K, M, N, RateShape
from kernels.runner import seeded_inputs
from visuals.scene.launch_scene import StepKind, executed, launch_scene, recorder
from visuals.scene.parts import Group, Reading, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

LANES = 32
SHAPE = RateShape(1, 1)
# Per rung: along k, of the sums in the four places of a lane, how many one instruction covers.
GROUPS = {"ffma": (1, 1), "hfma2": (1, 2), "dp4a": (4, 1), "mma-fp16": (16, 4), "mma-int8": (32, 4)}
SCENES = tuple(f"instruction-rate/{name}" for name in GROUPS)
LINES = {
    "ffma": ("sum[2][2] = {}", "__fmaf_rn(", "c[(row + 8 * i) * 8"),
    "hfma2": ("pairs[2][2] = {}", "hfma2_add(pairs[k % 2]", "c[(row + 8 * i) * 8"),
    "dp4a": ("sum[2][2] = {}", "__dp4a(", "c[(row + 8 * i) * 8"),
    "mma-fp16": ("sum[2][2] = {}", "mma.sync.aligned", "c[(row + 8 * i) * 8"),
    "mma-int8": ("sum[2][2] = {}", "mma.sync.aligned", "c[(row + 8 * i) * 8"),
}
BEGIN = mark("The lanes of the warp hold [A](input) and [B](filter) in registers, and four sums each. All sums are 0.")
DO = {
    "ffma": mark(
        "Instruction {0} of {1}. Each lane adds one product to one sum: row and column of the lane, k = {2}. The warp does {3} multiply-adds."
    ),
    "hfma2": mark(
        "Instruction {0} of {1}. Each lane adds two products to two sums, k = {2}. The warp does {3} multiply-adds."
    ),
    "dp4a": mark(
        "Instruction {0} of {1}. Each lane adds four products to one sum, k = {2} to {4}. The warp does {3} multiply-adds."
    ),
    "mma-fp16": mark(
        "Instruction {0} of {1}. The warp multiplies 16 × 16 by 16 × 8, k = {2} to {4}: {3} multiply-adds."
    ),
    "mma-int8": mark(
        "Instruction {0} of {1}. The warp multiplies 16 × 32 by 32 × 8, k = {2} to {4}: {3} multiply-adds."
    ),
}
STORE = mark("After {0} instructions every sum is complete. Each lane stores its four to [C](output).")


@dataclass(frozen=True)
class Issue:
    """One instruction: its k, first and behind the last, and the rows and columns of the sums that it changes."""

    first: int
    stop: int
    rows: np.ndarray
    cols: np.ndarray


def issues(name: str) -> Iterator[Issue]:
    """Yields the instructions of one turn of a rung, in the kernel's order."""
    depth, places = GROUPS[name]
    for first in range(0, K, depth):
        for place in range(0, 4, places):
            taken = range(place, place + places)  # place 2 i + j: row + 8 i, column + j
            rows = np.unique([np.arange(8) + 8 * (p // 2) for p in taken])
            cols = np.unique([2 * np.arange(4) + p % 2 for p in taken])
            yield Issue(first, first + depth, rows, cols)


def instruction_scene(rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of one warp and one turn of a rung of the ladder."""
    name = rung.partition("/")[2]
    found = find(rung)
    inputs = seeded_inputs(found.build(SHAPE, found.check(SHAPE, tiles)).of_role(INPUT))
    run = executed(rung, SHAPE, tiles, inputs)
    begin, issue, store = LINES[name]
    kinds = {
        "begin": StepKind(0, begin, BEGIN),
        "issue": StepKind(0, issue, DO[name]),
        "store": StepKind(0, store, STORE),
    }
    r = recorder(kinds)
    _record(r, name, inputs)
    A, B = inputs["A"].astype(np.float32), inputs["B"].astype(np.float32)
    tensors = (
        Tensor("A", "A", "A", "input", 1, M, K, A.ravel(), note=f"{M} × {K}"),
        Tensor("B", "B", "B", "filter", 1, N, K, B.T.ravel(), note=tr("one row for each column of B")),
        Tensor("sum", "sum", tr("sums"), "workspace", 1, M, N, note=tr("four of each lane")),
        Tensor("C", "C", "C", "output", 1, M, N, note=f"{M} × {N}"),
    )
    groups = (
        Group((("A", "sum"), ("B", "")), "registers", tr("registers of one warp"), table=True),
        Group((("C",),), "global", tr("global memory")),
    )
    return launch_scene(rung, str(SHAPE), run, r, kinds, tensors, groups, readings=_readings(r, name))


def _record(r: Recorder, name: str, inputs: Mapping[str, np.ndarray]) -> None:
    A, B = (inputs[n].astype(np.float64) for n in "AB")
    sums, count = np.zeros((M, N)), INSTRUCTIONS[name]
    r.step("begin", warp=0, mask=2**LANES - 1)
    r.put("sum", sums)
    for n, one in enumerate(issues(name), 1):
        k = np.arange(one.first, one.stop)
        place = np.ix_(one.rows, one.cols)
        sums[place] += A[np.ix_(one.rows, k)] @ B[np.ix_(k, one.cols)]
        macs = len(one.rows) * len(one.cols) * len(k)
        r.step("issue", n, count, one.first, macs, one.stop - 1, warp=0, mask=2**LANES - 1, macs=macs, issued=1)
        r.look("A", (one.rows[:, None] * K + k).ravel())
        r.look("B", (one.cols[:, None] * K + k).ravel())
        r.put("sum", sums[place], (one.rows[:, None] * N + one.cols).ravel())
    r.step("store", count, warp=0, mask=2**LANES - 1)
    r.copy("C", "sum", np.arange(M * N))


def _readings(r: Recorder, name: str) -> tuple[Reading, ...]:
    return (
        Reading(tr("instructions of the warp"), r.so_far("issued"), "counted"),
        Reading(tr("multiply-adds"), r.so_far("macs"), "counted"),
        Reading(tr("multiply-adds of one instruction"), np.full(r.steps, M * N * K // INSTRUCTIONS[name]), "counted"),
    )
