"""The sums of one wgmma in the registers of a warpgroup: which thread holds which element, and how they are stored.

A scene of the instruction, made by hand: the map is that of the emulator's wgmma, and the stores repeat those of store_sums and store_boxes.
The picture shows the first columns of one warp's 16 rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.engines.emulator.instructions.fragments import positions
from kernels.engines.emulator.instructions.warpgroup import ROWS, WARPS
from kernels.engines.emulator.swizzle import swizzled
from kernels.gemm import hopper
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.launch import WARP
from kernels.model.program import Launch
from visuals.gemm.swizzle import RUNGS
from visuals.scene import why_not as scene_why_not
from visuals.scene.parts import Annotation, Captions, Group, Lanes, Reading, Tensor, Write
from visuals.scene.requests import requested_sectors
from visuals.scene.scene import Scene, number
from visuals.scene.source import Source, resources, source_of

TURNS = "gemm/wgmma-turns"  # one consumer alone multiplies a tile
BOXES = ("gemm/wgmma-store", "gemm/wgmma-cluster", TURNS)  # they store through boxes in shared memory
SHOWN = 16  # columns; in boxes those of a whole one
PART = 8  # columns that one register of a row's four lanes covers, with its neighbour
QUARTERS = 4  # of the columns, in the picture of the four warps
ALL = (1 << WARP) - 1  # lanes
HOLDS, REGISTER, STORE, FILL, SEND = range(5)  # kinds of steps
MULTIPLY = re.compile(r"multiply\(sum")
STORES = ("*(float2*)&C[c_index] = c;", "*(float2*)&box[", "store_box(C")  # lines of STORE, FILL and SEND
ORDER = mark("warp by warp, register by register, then the stores")
NOTE = mark(
    "The picture shows one register of all 32 lanes per step. On the GPU one instruction fills all registers of all 128 "
    "threads. The map follows the PTX ISA."
)


def why_not(shape: GemmShape, rung: str, tiles: Mapping[str, int], warp: int = 0) -> str:
    """Returns why a rung has no scene of this warp at a shape; "" if it has one."""
    if reason := scene_why_not.why_not(rung, shape, tiles, RUNGS):
        return reason
    if ROWS * warp >= shape.M:
        return tr(
            "Warp {warp} holds rows {first} to {last}, and C has {rows}.",
            warp=warp,
            first=ROWS * warp,
            last=ROWS * (warp + 1) - 1,
            rows=shape.M,
        )
    return ""


def elements(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (row, column), int64[32 lanes, columns / 2], of the sums of one warp in its 16 rows of a product."""
    return positions("c", (ROWS, columns, 16), "f32")


def sharing(launch: Launch, rung: str) -> int:
    """Returns the threads that multiply one tile of C: all but the producer's, or one consumer's if they take turns."""
    if rung == TURNS:
        return hopper.WARPGROUP
    return launch.block[0] - (0 if rung == "gemm/wgmma" else hopper.WARPGROUP)


@dataclass(frozen=True)
class _Part:
    """What the scene shows: one warp's rows of the first product of block 0."""

    shape: GemmShape
    rung: str
    launch: Launch
    warp: int

    @cached_property
    def tiles(self) -> dict[str, int]:
        return dict(self.launch.defines)

    @property
    def boxed(self) -> bool:
        return self.rung in BOXES

    @property
    def columns(self) -> int:
        return min(hopper.BOX_COLS if self.boxed else SHOWN, self.shape.N)

    @property
    def rows(self) -> int:
        """Returns how many of the warp's rows are inside C."""
        return min(ROWS, self.shape.M - ROWS * self.warp)

    @property
    def registers(self) -> int:
        return self.columns // 2

    @property
    def first_register(self) -> int:
        """Returns the step of register 0: before it the warps are shown, without boxes."""
        return 0 if self.boxed else WARPS

    @property
    def first_store(self) -> int:
        return self.first_register + self.registers

    def of_sum(self, at: np.ndarray) -> np.ndarray:
        """Returns the cells of the registers in the picture, a row for each lane. `at` counts them register by register."""
        register, lane = np.divmod(at, WARP)
        return lane * self.registers + register

    @property
    def stores(self) -> list[np.ndarray]:
        """Returns the registers of each store, two neighbours of a row, in the kernel's order."""
        return [4 * j + 2 * pair + np.arange(2) for pair in range(2) for j in range(self.columns // PART)]

    @cached_property
    def kind(self) -> np.ndarray:
        store = [FILL if self.boxed else STORE] * len(self.stores)
        return np.array([HOLDS] * self.first_register + [REGISTER] * self.registers + store + [SEND] * self.boxed)

    @property
    def scaled(self) -> bool:
        """Returns whether what is stored differs from the sums."""
        return self.shape.alpha != 1 or self.shape.beta != 0

    @property
    def sums(self) -> int:
        """Returns the sums in the registers of a thread that multiplies."""
        return self.tiles["BM"] * self.tiles["BN"] // sharing(self.launch, self.rung)


def accumulator_scene(
    shape: GemmShape,
    rung: str,
    tiles: Mapping[str, int],
    A: np.ndarray,
    B: np.ndarray,
    warp: int = 0,
    C0: np.ndarray | None = None,
) -> Scene:
    """Returns the scene of a warp of the first warpgroup of block 0. A [M, K], B [K, N] and, if beta is not 0, C0 [M, N], of
    any type; the rows and columns that the scene does not show are not read. RuleError if the rung cannot run the shape."""
    found = find(rung)
    (launch,) = found.build(shape, found.check(shape, tiles)).launches
    p = _Part(shape, rung, launch, warp)
    row, column = (at.T.ravel() for at in elements(p.columns))  # register by register
    product = np.zeros((ROWS, p.columns), np.float32)
    first = ROWS * warp
    product[: p.rows] = A[first : first + p.rows].astype(float) @ B[:, : p.columns].astype(float)
    register = np.repeat(np.arange(p.registers), WARP)
    stored = product * np.float32(shape.alpha)
    if shape.beta and C0 is not None:
        stored[: p.rows] += np.float32(shape.beta) * C0[first : first + p.rows, : p.columns].astype(np.float32)
    return Scene(
        key=f"accumulator {rung} {shape} {launch.block} {warp}",
        title=tr("the sums of one wgmma, 64 × {columns}", columns=p.tiles["BN"]),
        tensors=_tensors(p),
        groups=_groups(p),
        steps=len(p.kind),
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(NOTE),
        writes=(
            *_holders_written(p, row, column),
            Write("sum", p.first_register + register, product[row, column], cells=p.of_sum(np.arange(row.size))),
            *_stores(p, row, column, stored),
        ),
        readings=_readings(p, row, column),
        annotations=(_holders(p, row, column),),
        captions=_captions(p, row, column),
        source=source_of(launch.source, (MULTIPLY,), np.zeros(p.first_store, int), detail=resources(launch)),
        next_sources=(_source_of_stores(p),),
        lanes=_lanes(p),
    )


def _tensors(p: _Part) -> tuple[Tensor, ...]:
    at = {"origin": (0, ROWS * p.warp, 0), "partial": True}
    quarter = tr("a cell: {rows} × {cols} sums", rows=ROWS, cols=p.tiles["BN"] // QUARTERS)
    C = Tensor("C", "C", "C", "output", 1, p.rows, p.columns, note=tr("block 0"), **at)
    registers = Tensor("sum", "sum", "sum", "output", 1, WARP, p.registers, note=tr("a row per lane"), partial=True)
    if p.boxed:
        note = tr("rows of 128 bytes, swizzled")
        box = Tensor("box", "box", "box", "output", 1, ROWS, hopper.BOX_COLS, note=note, partial=True)
        return registers, box, C
    return (
        Tensor("who", "who", tr("warp"), "workspace", 1, WARPS, QUARTERS, note=quarter),
        registers,
        Tensor("lane", "lane", tr("lane"), "workspace", 1, ROWS, p.columns, note=tr("that holds each sum"), **at),
        C,
    )


def _groups(p: _Part) -> tuple[Group, ...]:
    shown = {"first": ROWS * p.warp, "last": ROWS * p.warp + ROWS - 1}
    registers = Group(
        (("sum",),), "registers", tr("warp {warp}: first {count} registers", warp=p.warp, count=p.registers)
    )
    C = Group((("C",),), "global", tr("global memory"))
    if p.boxed:
        return registers, Group((("box",),), "shared", tr("shared memory")), C
    title = tr("64 × {columns} sums of four warps, and rows {first} to {last}", columns=p.tiles["BN"], **shown)
    return Group((("who", "lane"),), "registers", title), registers, C


def _holders_written(p: _Part, row: np.ndarray, column: np.ndarray) -> tuple[Write, ...]:
    """Returns the warp of each quarter of 16 rows, and the lane of each element when its register is shown."""
    if p.boxed:
        return ()
    warp = np.repeat(np.arange(WARPS), QUARTERS)
    register, lane = np.divmod(np.arange(p.registers * WARP), WARP)
    steps, cells = p.first_register + register, row * p.columns + column
    return Write("who", warp, warp.astype(np.float32)), Write("lane", steps, lane.astype(np.float32), cells=cells)


# -- stores ----------------------------------------------------------------------------------------
def box_cells(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Returns the cells of a box [rows, 32] of FP32 in which elements are stored: the swizzle of the map of C."""
    return swizzled(4 * (hopper.BOX_COLS * row + column), hopper.SWIZZLE) // 4


def _stores(p: _Part, row: np.ndarray, column: np.ndarray, stored: np.ndarray) -> tuple[Write, ...]:
    """Returns the writes of `stored` [16, columns]: copies of the sums, unless alpha or beta changes them."""
    first = p.first_store
    register = np.concatenate(p.stores)
    index = (register[:, None] * WARP + np.arange(WARP)).ravel()
    steps = np.repeat(first + np.arange(len(p.stores)), 2 * WARP)
    r, c = row[index], column[index]
    inside = r < p.rows
    if not p.boxed:
        cells = (r * p.columns + c)[inside]
        if p.scaled:
            return (Write("C", steps[inside], stored[r, c][inside], cells=cells),)
        return (Write("C", steps[inside], source="sum", index=p.of_sum(index)[inside], cells=cells),)
    at = box_cells(r, c)
    sent = np.full(int(inside.sum()), len(p.kind) - 1)
    copied = Write("box", steps, source="sum", index=p.of_sum(index), cells=at)
    return (
        Write("box", steps, stored[r, c], cells=at) if p.scaled else copied,
        Write("C", sent, source="box", index=at[inside], cells=(r * p.columns + c)[inside]),
    )


def stored_sectors(p: _Part, row: np.ndarray, column: np.ndarray) -> list[int]:
    """Returns how many sectors of C each store of the warp touches."""
    found = []
    for registers in p.stores:
        at = registers[0] * WARP + np.arange(WARP)
        byte = 4 * ((ROWS * p.warp + row[at]) * p.shape.N + column[at])
        mask = sum(1 << lane for lane in range(WARP) if row[at][lane] < p.rows)
        found.append(requested_sectors(byte, mask, 8)[0] if mask else 0)
    return found


def _source_of_stores(p: _Part) -> Source:
    since, first = p.first_store, FILL if p.boxed else STORE
    header = "gemm/wgmma_ahead.cuh" if p.rung == TURNS else "gemm/wgmma.cuh"
    return source_of(header, STORES[first - STORE :], p.kind[since:] - first, since=since)


def _readings(p: _Part, row: np.ndarray, column: np.ndarray) -> tuple[Reading, ...]:
    before = np.zeros(p.first_store, int)
    warps = np.minimum(np.arange(len(p.kind)) + 1, WARPS) if p.first_register else np.full(len(p.kind), WARPS)
    inside = [int((row[registers[:, None] * WARP + np.arange(WARP)] < p.rows).sum()) for registers in p.stores]
    titles = tr("bytes in C"), tr("sectors of C written")
    stored = [0] * len(inside) + [4 * sum(inside)] if p.boxed else 4 * np.cumsum(inside)
    sectors = stored_sectors(p, row, column)
    whole = [0] * len(sectors) + [p.rows * math.ceil(4 * p.columns / 32)] if p.boxed else np.cumsum(sectors)
    return (
        Reading(tr("sums in registers of each thread"), np.full(len(p.kind), p.sums), "predicted"),
        Reading(tr("threads that hold sums"), WARP * warps, "predicted"),
        Reading(titles[0], np.append(before, stored), "predicted"),
        Reading(titles[1], np.append(before, whole), "predicted"),
    )


def _lanes(p: _Part) -> Lanes:
    warp = np.full(len(p.kind), p.warp)
    warp[: p.first_register] = np.arange(p.first_register)
    mask = np.full(len(p.kind), ALL, np.uint32)
    if p.boxed:  # the first thread of the warpgroup starts the copy
        warp[-1], mask[-1] = 0, 1
    return Lanes(warp, mask)


# -- texts -----------------------------------------------------------------------------------------
def _holders(p: _Part, row: np.ndarray, column: np.ndarray) -> Annotation:
    """Returns the element in each register of each lane."""
    register, lane = np.divmod(np.arange(p.registers * WARP), WARP)
    args = np.column_stack([lane, p.warp * WARP + lane, register // 4, register % 4, ROWS * p.warp + row, column])
    text = tr("Lane {0}, thread {1} of the warpgroup, holds it in sum[{2}][{3}]: row {4}, column {5}.")
    cells = {} if p.boxed else {"lane": (row * p.columns + column)[:, None]}
    by_lane = np.argsort(p.of_sum(np.arange(len(args))))
    links = {name: cell[by_lane] for name, cell in cells.items()}
    return Annotation("sum", Captions((text,), np.zeros(len(args), int), args[by_lane]), links)


def _captions(p: _Part, row: np.ndarray, column: np.ndarray) -> Captions:
    args = np.zeros((len(p.kind), 5), int)
    for warp in range(p.first_register):
        args[warp, :3] = warp, ROWS * warp, ROWS * warp + ROWS - 1
    for register in range(p.registers):
        at = register * WARP
        args[p.first_register + register] = (register, register // 4, register % 4, ROWS * p.warp + row[at], column[at])
    sectors, since = stored_sectors(p, row, column), p.first_store
    for n, registers in enumerate(p.stores):
        at, last = registers[0] * WARP, registers[1] * WARP + WARP - 1
        args[since + n] = (ROWS * p.warp + row[at], ROWS * p.warp + row[last], column[at], column[last], sectors[n])
    if p.boxed:
        args[-1, 1] = 4 * p.columns
    return Captions(_templates(p), p.kind, args)


def _templates(p: _Part) -> tuple[str, ...]:
    holds, register, store, fill, send = _texts(p)
    change = _of_alpha_and_beta(p.shape)
    return holds, register, f"{store} {change}".strip(), f"{fill} {change}".strip(), send


def _texts(p: _Part) -> tuple[str, ...]:
    return (
        tr(
            "Warp {0} of the warpgroup holds rows {1} to {2} of the product, {sums} [sums](output) in each of its 32 threads.",
            sums=p.tiles["BN"] // 2,
        ),
        tr(
            "Register {0}, sum[{1}][{2}]: lane l holds row {3} + l / 4 and column {4} + 2 (l mod 4). The register covers 8 rows."
        ),
        tr(
            "Each lane stores two neighbours of a row, 8 bytes: rows {0} to {1}, columns {2} to {3} of [C](output). Sectors "
            "that the warp writes: {4}."
        ),
        tr(
            "Each lane writes two [sums](output) to a box in shared memory: rows {0} to {1}, columns {2} to {3}. The box is "
            "swizzled, as the map of [C](output) says."
        ),
        tr(
            "One thread starts the copy of the box. The copy engine writes its rows, {1} bytes each, to [C](output). The warps "
            "go on."
        ),
    )


def _of_alpha_and_beta(s: GemmShape) -> str:
    """Returns a sentence about alpha and beta; "" if alpha is 1 and beta is 0."""
    factors = {"alpha": number(s.alpha), "beta": number(s.beta)}
    if s.alpha != 1 and s.beta:
        return tr("Each stored value is {alpha} times the sum plus {beta} times C0.", **factors)
    if s.beta:
        return tr("Each stored value is the sum plus {beta} times C0.", **factors)
    return tr("Each stored value is {alpha} times the sum.", **factors) if s.alpha != 1 else ""
