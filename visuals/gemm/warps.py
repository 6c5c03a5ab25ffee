"""GEMM by warps: the memory requests of one warp of block 0, one by one, as the emulator executed them.

A request to global memory touches sectors of 32 bytes. A request to shared memory takes wavefronts over 32 banks. The
block runs at the rung's tile sizes and addresses. Only the K loop is cut; the scene says to how many terms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.trace import BlockTrace
from kernels.gemm.shape import GemmShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.program import Program
from visuals.gemm.plan import Plan, plan_of, why_not
from visuals.gemm.warp_requests import WarpSteps, templates
from visuals.scene.parts import Group, Reading, Tensor, product
from visuals.scene.recorder import matrix
from visuals.scene.requests import LANES, ORDER, ORDER_NOTE, SECTOR, WORD
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of

NOTE = mark(
    "The picture shows one warp of block 0, as the emulator executed it. Each step is one memory request of this warp."
)
CUT_NOTE = mark("The K loop is cut to {cut} of {all} terms. Tiles and sectors stay as they are.")
MIN_TERMS = 16  # of the K loop


def warps_scene(
    shape: GemmShape,
    rung: str,
    tiles: Mapping[str, int],
    A: np.ndarray,
    B: np.ndarray,
    C0: np.ndarray | None = None,
    warp: int = 0,
) -> Scene:
    """Returns the scene of one warp of block 0. A [M, K], B [K, N] and, if beta != 0, C0 [M, N], of the kernel's types;
    only what block 0 reads is used. Raises ValueError if `why_not` gives a reason. Raises CompilerMissing if the kernel
    must be compiled at these tile sizes and there is no compiler."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    plan = plan_of(shape, rung, tiles)
    cut, inputs = shortened(shape, plan), {}
    inputs["A"], inputs["B"] = A[: cut.M, : cut.K], B[: cut.K]
    if cut.beta and C0 is not None:
        inputs["C0"] = C0[: cut.M]
    trace, counters = traced(cut, rung, tiles, inputs)
    steps = WarpSteps(cut, plan, inputs, trace, warp, shape.K)
    return _scene(shape, rung, steps, counters)


def shortened(s: GemmShape, plan: Plan) -> GemmShape:
    """Returns the shape that block 0 computes, with fewer terms: one tile along K (two with asynchronous copies), at least
    16 terms. The terms left out are whole sectors, so rows of A begin at the same byte of a sector."""
    async_copies = plan.stages > 1 and plan.depth == 1
    min_terms = 2 * plan.BK if async_copies else max(plan.BK, MIN_TERMS)
    sector_elements = SECTOR // ELEMENT_BYTES[s.dtype]
    return s.with_(M=min(s.M, plan.BM), K=s.K - max(0, s.K - min_terms) // sector_elements * sector_elements)


def traced(
    cut: GemmShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray], values: bool = True
) -> tuple[BlockTrace, Counters]:
    """Returns trace and counters of block 0 of the rung's launch. `values` as for emulator.trace_launch."""
    program = find(rung).build(cut, find(rung).check(cut, tiles))
    alone = dataclasses.replace(program.launch(), grid=(1, 1, 1))
    return emulator.trace_launch(Program(program.buffers, (alone,)), 0, dict(inputs), values=values)


def _scene(shape: GemmShape, rung: str, steps: WarpSteps, counters: Counters) -> Scene:
    cut, plan = steps.s, steps.plan
    launch = find(rung).build(cut, plan.tiles).launch()
    notes = [tr(NOTE), tr(ORDER_NOTE)]
    if cut.K < shape.K:
        notes.append(tr(CUT_NOTE, cut=decimal(f"{cut.K:,}"), all=decimal(f"{shape.K:,}")))
    sizes = ",".join(f"{k}={v}" for k, v in plan.tiles.items())
    source = source_of(plan.file, plan.marks, np.zeros(1, int), detail=resources(launch))
    lines = np.maximum(steps.lines, source.first)
    return Scene(
        key=f"{rung} {shape} {sizes} warps",
        title=tr(find(rung).title),
        tensors=_tensors(steps, shape),
        groups=_groups(steps),
        steps=steps.r.steps,
        step_name=tr("request"),
        order_name=tr(ORDER),
        order_note=" ".join(notes),
        writes=steps.writes(),
        reads=steps.r.reads(),
        captions=steps.r.captions(templates(), int),
        readings=_readings(steps),
        source=dataclasses.replace(source, lines=lines, notes=margin(counters, plan.file)),
        lanes=steps.r.lanes(),
    )


def _tensors(steps: WarpSteps, shape: GemmShape) -> tuple[Tensor, ...]:
    s, size = steps.s, (steps.C_rows, steps.C_cols)
    values = {name: np.asarray(array).astype(np.float32) for name, array in steps.inputs.items()}
    out = [
        matrix("A", "input", (s.M, s.K), (0, 0), (shape.M, shape.K), values["A"]),
        matrix("B", "filter", (s.K, steps.cols), (0, 0), (shape.K, shape.N), values["B"][:, : steps.cols]),
        matrix("C", "output", size, (0, 0), (shape.M, shape.N)),
    ]
    if s.beta:
        C0 = values["C0"][: size[0], : size[1]]
        out.append(matrix("C0", "output", size, (0, 0), (shape.M, shape.N), C0))
    for tile in steps.tiles:
        role = "input" if tile.name == "tile_a" else "filter"
        each = WORD // tile.layout.item
        note = tr("one column per bank") if each == 1 else tr("{n} columns per bank", n=each)
        # A cell's index is its place in the banks, not that in the kernel's array.
        symbol = tr("{tile} by bank", tile=tile.name)
        out.append(
            Tensor(
                tile.name,
                symbol,
                tile.name,
                role,
                tile.visible_stages,
                tile.rows,
                tile.cols,
                note=note,
                plane_name=tr("buffer") if tile.stages > 1 else "",
            )
        )
    for name, role in (("a", "input"), ("b", "filter"), ("c", "output")):
        if name in steps.values_per_lane:
            note = _loaded_note(name, bool(steps.tiles))
            out.append(Tensor(name, name, name, role, 1, steps.values_per_lane[name], LANES, note=note))
    return tuple(out)


def _loaded_note(name: str, tiled: bool) -> str:
    """Returns from where the values that lanes have were loaded."""
    if name != "c" and tiled:
        return tr("loaded from {matrix} or {tile}", matrix=name.upper(), tile=f"tile_{name}")
    return tr("loaded from {matrix}", matrix="C0" if name == "c" else name.upper())


def _groups(steps: WarpSteps) -> tuple[Group, ...]:
    matrices = product("A", "B", "C", "C0") if steps.s.beta else product("A", "B", "C")
    tiles = (
        (Group((("tile_a", "tile_b"),), "shared", tr("shared memory of the block, 32 banks")),) if steps.tiles else ()
    )
    loaded = tuple((name,) for name in steps.values_per_lane)
    register_group = Group(loaded, "registers", tr("registers of warp {warp}, one column per lane", warp=steps.warp))
    return (Group(matrices, "global", tr("global memory"), table=True), *tiles, register_group)


def _readings(steps: WarpSteps) -> tuple[Reading, ...]:
    titles = {"loaded": tr("sectors loaded"), "stored": tr("sectors stored")}
    if steps.plan.As:
        titles |= {"wavefronts": tr("passes over the banks"), "conflicts": tr("passes from bank conflicts")}
    return tuple(Reading(title, steps.r.so_far(name), "counted") for name, title in titles.items())
