"""GEMM as its warps run it: what one warp of block 0 asks of memory, request by request, as the emulator saw it.

A request to global memory falls into sectors of 32 bytes, one to shared memory into passes over 32 banks: the
lanes fly to the words they ask for. The block runs at the rung's own tile sizes and addresses; only the K loop
is cut short, which the scene says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.trace import BlockTrace
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.program import Program
from visuals.gemm.plan import Plan, plan_of, why_not
from visuals.gemm.warp_requests import TEMPLATES, Asked
from visuals.scene.parts import Captions, Group, Lanes, Reading, Tensor
from visuals.scene.recorder import matrix, read_of
from visuals.scene.requests import LANES, ORDER, ORDER_NOTE, SECTOR, WORD
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of

NOTE = "One warp of block 0 as the emulator executed it, one request of it a step. " + ORDER_NOTE
LEAST_TERMS = 16  # of the K loop


def warps_scene(
    shape: GemmShape, rung: str, tiles: Mapping[str, int], A: np.ndarray, B: np.ndarray,
    C0: np.ndarray | None = None, warp: int = 0,
) -> Scene:  # fmt: skip
    """The scene of one warp of block 0. A [M, K], B [K, N] and, where beta != 0, C0 [M, N], of the kernel's own
    types; only what block 0 reads is looked at. ValueError where `why_not` has a reason; CompilerMissing where
    the kernel at these tile sizes would have to be compiled and there is no compiler."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    plan = plan_of(shape, rung, tiles)
    cut, inputs = shorter(shape, plan), {}
    inputs["A"], inputs["B"] = A[: cut.M, : cut.K], B[: cut.K]
    if cut.beta:
        inputs["C0"] = C0[: cut.M]
    trace, counters = traced(cut, rung, tiles, inputs)
    asked = Asked(cut, plan, inputs, trace, warp, shape.K)
    return _scene(shape, rung, asked, counters)


def shorter(s: GemmShape, plan: Plan) -> GemmShape:
    """What block 0 has to do with a shape, and of its K loop one tile (two where copies run ahead) of 16 terms or
    a little more: so many terms fewer that rows of A begin as before within a sector."""
    ahead = plan.stages > 1 and plan.depth == 1
    least = 2 * plan.BK if ahead else max(plan.BK, LEAST_TERMS)
    whole = SECTOR // ELEMENT_BYTES[s.dtype]
    return s.with_(M=min(s.M, plan.BM), K=s.K - max(0, s.K - least) // whole * whole)


def traced(
    cut: GemmShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]
) -> tuple[BlockTrace, Counters]:
    """Block 0 alone of the rung's launch, traced and counted."""
    program = find(rung).build(cut, find(rung).check(cut, tiles))
    alone = dataclasses.replace(program.steps[0], grid=(1, 1, 1))
    return emulator.trace_launch(Program(program.buffers, (alone,)), 0, dict(inputs))


def _scene(shape: GemmShape, rung: str, asked: Asked, counters: Counters) -> Scene:
    cut, plan = asked.s, asked.plan
    launch = find(rung).build(cut, plan.tiles).steps[0]
    steps = len(asked.kinds)
    short = (
        f" The K loop is cut to {cut.K} of {shape.K:,} terms, which keeps every tile and sector as it is."
        if cut.K < shape.K
        else ""
    )
    sizes = ",".join(f"{k}={v}" for k, v in plan.tiles.items())
    source = source_of(plan.file, plan.marks, np.zeros(1, int), detail=resources(launch))
    lines = np.maximum(asked.lines, source.first)
    return Scene(
        key=f"{rung} {shape} {sizes} warps",
        title=rung,
        tensors=_tensors(asked, shape),
        groups=_groups(asked),
        steps=steps,
        step_name="request",
        order_name=ORDER,
        order_note=NOTE + short,
        writes=asked.writes(),
        reads=tuple(read_of(name, steps, told) for name, told in asked.reads.items()),
        captions=Captions(tuple(TEMPLATES.values()), np.array(asked.kinds), np.array(asked.args)),
        readings=_readings(asked),
        source=dataclasses.replace(source, lines=lines, notes=margin(counters, plan.file)),
        lanes=Lanes(np.array(asked.warps), np.array(asked.masks, np.uint32)),
    )  # fmt: skip


def _tensors(asked: Asked, shape: GemmShape) -> tuple[Tensor, ...]:
    s, size = asked.s, (asked.C_rows, asked.C_cols)
    values = {name: np.asarray(array).astype(np.float32) for name, array in asked.inputs.items()}
    out = [
        matrix("A", "input", (s.M, s.K), (0, 0), (shape.M, shape.K), values["A"]),
        matrix("B", "filter", (s.K, asked.cols), (0, 0), (shape.K, shape.N), values["B"][:, : asked.cols]),
        matrix("C", "output", size, (0, 0), (shape.M, shape.N)),
    ]
    if s.beta:
        C0 = values["C0"][: size[0], : size[1]]
        out.append(matrix("C0", "output", size, (0, 0), (shape.M, shape.N), C0))
    for tile in asked.tiles:
        role = "input" if tile.name == "tile_a" else "filter"
        each = WORD // tile.layout.item
        note = "a column is a bank" if each == 1 else f"{each} columns are a bank"
        out.append(Tensor(tile.name, tile.name, tile.name, role, tile.shown, tile.rows, tile.cols, note=note,
                          plane_name="stage" if tile.shown > 1 else ""))  # fmt: skip
    for name, role in (("a", "input"), ("b", "filter"), ("c", "output")):
        if name in asked.deep:
            of = "C0" if name == "c" else f"{name.upper()} and tile_{name}" if asked.tiles else name.upper()
            out.append(
                Tensor(name, name, name, role, 1, asked.deep[name], LANES, note=f"came last from {of}")
            )
    return tuple(out)


def _groups(asked: Asked) -> tuple[Group, ...]:
    matrices = ("A", "B", "C0", "C") if asked.s.beta else ("A", "B", "C")
    tiles = (
        (Group((("tile_a", "tile_b"),), "shared", "shared memory of the block, by its 32 banks"),)
        if asked.tiles
        else ()
    )
    got = tuple((name,) for name in asked.deep)
    registers = Group(got, "registers", f"registers of warp {asked.warp}, a column a lane")
    return (Group((matrices,), "global", "global memory"), *tiles, registers)


def _readings(asked: Asked) -> tuple[Reading, ...]:
    loaded, stored, passes, conflicts = np.cumsum(asked.counts, axis=0).T
    out = [Reading("sectors loaded", loaded, "counted"), Reading("sectors stored", stored, "counted")]
    if asked.plan.As:
        out += [
            Reading("passes over the banks", passes, "counted"),
            Reading("of them conflicts", conflicts, "counted"),
        ]
    return tuple(out)
