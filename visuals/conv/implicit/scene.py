"""Implicit GEMM as a scene: tiles of a data matrix that is never stored are loaded into shared memory and
overwritten.

It shows one block, tile by tile. Each tile is copied from its pixels in the input into a stage of shared memory.
It is multiplied, and a later tile overwrites it. Index maps are those of plan.py. Tests compare them with the
emulator's trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from kernels.conv.implicit import PART, PIECE
from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from visuals.conv.implicit import captions
from visuals.conv.implicit.plan import Plan, why_not
from visuals.scene.arithmetic import matmul_in_kernel_order
from visuals.scene.parts import Annotation, Captions, Group, MatMul, Reading, Tensor, View, Write, product
from visuals.scene.recorder import Recorder, part_note
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

__all__ = ["implicit_scene", "why_not"]

ORDER = mark("explaining order")
ORDER_NOTE = mark(
    "The steps show block 0. Each step copies or multiplies one whole tile with all threads, or is a barrier. On the GPU, copies and "
    "products overlap. Warps alternate, and many blocks run at the same time."
)


def implicit_scene(s: ConvShape, rung: str, tiles: Mapping[str, int], x: np.ndarray, w: np.ndarray) -> Scene:
    """Returns the scene of block 0 of a rung, with all its tile sizes. float32: x [N,C,H,W], w [K,C,R,S]. Of x,
    the images that the visible columns read are enough. Of w, the block's filters are enough. ValueError if
    `why_not` returns a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    plan = Plan(s, rung, dict(tiles))
    steps = ImplicitSteps(plan, x, w)
    launch = find(rung).build(s, tiles).launch()
    kind = np.array(steps.r.kinds)
    sizes = ",".join(f"{k}={v}" for k, v in tiles.items())
    return Scene(
        key=f"{rung} {s} {sizes}",
        title=tr(find(rung).title),
        tensors=steps.tensors(),
        groups=(*steps.groups(),),
        steps=len(kind),
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=steps.writes(),
        views=(View("D", "x", steps.x_index.ravel()),),
        matmuls=steps.matmuls(),
        annotations=steps.annotations(),
        readings=steps.readings(),
        captions=steps.r.captions(captions.templates(plan)),
        source=source_of(plan.file, plan.marks, np.array(captions.MARK_INDEX)[kind], detail=resources(launch)),
    )


class ImplicitSteps:
    """The steps, in the recorder `r` (kinds as in captions.py), and what each step writes."""

    def __init__(self, plan: Plan, x: np.ndarray, w: np.ndarray):
        self.plan, self.r = plan, Recorder()
        self.fetched: list[tuple[int, int, int]] = []  # tile, step of its filters, step of its pixels
        self.multiplied: list[int] = []  # step of each tile
        self.flat = np.append(np.ravel(np.asarray(x, np.float32)), np.float32(0))
        self.filters = np.asarray(w, np.float32)[: plan.BM].reshape(-1, plan.s.CRS)
        self._sum()
        self._add_steps()

    # -- values ------------------------------------------------------------------------------------
    @cached_property
    def data(self) -> np.ndarray:
        """Returns float32[C*R*S, columns shown]: the values of the data matrix."""
        return self.flat[self.plan.address]

    def _sum(self) -> None:
        """Compute the product, each sum rounded as in the kernel, and thread 0's sums after each visible tile."""
        plan = self.plan
        rows, cols = plan.owned(0)
        rows, cols = np.minimum(rows, len(self.filters)), np.minimum(cols, self.data.shape[1])
        self.registers = {}

        def record(k: int, sums: np.ndarray) -> None:
            padded = np.pad(sums, ((0, 1), (0, 1)))
            self.registers[k // plan.BK] = padded[np.ix_(rows, cols)]

        self.product = np.zeros((len(self.filters), self.data.shape[1]), np.float32)
        for start in range(0, plan.s.CRS, PART):
            part = slice(start, start + PART)
            callback = record if start == 0 else None
            self.product = (
                self.product + matmul_in_kernel_order(self.filters[:, part], self.data[part], 1, "fp32", callback)
            ).astype(np.float32)
        self.last = np.pad(self.product, ((0, 1), (0, 1)))[np.ix_(rows, cols)]

    # -- steps -------------------------------------------------------------------------------------
    def _add_steps(self) -> None:
        plan, ahead = self.plan, self.plan.STAGES - 1
        rows, cols = plan.inside
        self.r.step(captions.START, rows - 1, cols - 1, int(np.prod(plan.blocks)))
        for tile in range(min(ahead, plan.iterations_shown)):
            self._fetch(tile, -1)
        is_whole = plan.iterations_shown == plan.iterations
        for iteration in range(plan.iterations_shown if is_whole else plan.iterations_shown - ahead):
            self.r.step(captions.WAIT, iteration + 1)
            self.r.step(captions.COMPLETE if iteration else captions.COMPLETE_FIRST, iteration + 1, iteration)
            if iteration + ahead < plan.iterations_shown:
                self._fetch(iteration + ahead, iteration)
            tiles_ahead = min(iteration + ahead, plan.iterations_shown - 1) - iteration
            kind = (captions.MULTIPLY_LAST, captions.MULTIPLY_ONE, captions.MULTIPLY)[min(tiles_ahead, 2)]
            numbers = iteration + 1, iteration % plan.STAGES, iteration + 2, iteration + tiles_ahead + 1
            self.multiplied.append(self.r.step(kind, *numbers))
        if plan.iterations_shown < plan.iterations:
            self.remaining_step = self.r.step(
                captions.REMAINING, plan.iterations - len(self.multiplied), plan.s.CRS - 1
            )
        self.stored = self.r.step(captions.STORE, rows * cols, cols - 1)
        if int(np.prod(plan.blocks)) > 1:
            self.r.step(captions.OTHER_BLOCKS, int(np.prod(plan.blocks)) - 1)

    def _rows(self, tile: int) -> tuple[int, int]:
        """Returns the first and the last row of the data matrix in a tile."""
        k0 = tile * self.plan.BK
        return k0, min(k0 + self.plan.BK, self.plan.s.CRS) - 1

    def _fetch(self, tile: int, iteration: int) -> None:
        plan, (k0, k1) = self.plan, self._rows(tile)
        offsets = plan.address[k0 : k1 + 1][:, plan.lane_columns[plan.lane_columns < plan.columns_shown]]
        count, stage = k1 - k0 + 1, tile % plan.STAGES
        numbers = tile + 1, plan.iterations, stage, k0, k1
        taps = plan.inside[0] * count
        zero_count = plan.BM * plan.BK - taps
        a = self.r.step(captions.FETCH_A_ZEROS if zero_count else captions.FETCH_A, *numbers, taps, zero_count)
        c, r, t = map(int, plan.taps[k0, :3])
        read = int((offsets >= 0).sum())
        zeros = plan.BK * plan.BN - read
        kind = captions.FETCH_B if iteration < 0 else captions.FETCH_B_LATER
        self.fetched.append((tile, a, self.r.step(kind, *numbers, c, r, t, read, zeros, iteration + 1)))

    # -- tensors -----------------------------------------------------------------------------------
    @cached_property
    def box(self) -> tuple[int, ...]:
        """Returns (images, channels, first row, rows, first column, columns) of x: the box that the visible part
        reads."""
        plan, s = self.plan, self.plan.s
        offsets = plan.address[: plan.rows_shown]
        n, c, h, w = np.unravel_index(offsets[offsets >= 0], (s.N, s.C, s.H, s.W))
        if not n.size:
            return 1, 1, 0, 1, 0, 1
        h0, w0 = int(h.min()), int(w.min())
        return int(n.max()) + 1, int(c.max()) + 1, h0, int(h.max()) + 1 - h0, w0, int(w.max()) + 1 - w0

    @cached_property
    def x_index(self) -> np.ndarray:
        """Returns int64[rows shown, columns shown]: the cell of the visible part of x, -1 in the padding."""
        plan, s = self.plan, self.plan.s
        offsets = plan.address[: plan.rows_shown]
        _, channels, h0, H, w0, W = self.box
        n, c, h, w = np.unravel_index(np.maximum(offsets, 0), (s.N, s.C, s.H, s.W))
        return np.where(offsets >= 0, ((n * channels + c) * H + h - h0) * W + w - w0, -1)

    def tensors(self) -> tuple[Tensor, ...]:
        plan, s = self.plan, self.plan.s
        images, channels, h0, H, w0, W = self.box
        x = self.flat[:-1].reshape(-1, s.C, s.H, s.W)[:images, :channels, h0 : h0 + H, w0 : w0 + W]
        rows, cols = plan.rows_shown, plan.columns_shown
        return (
            Tensor("x", "x", tr("input"), "input", images * channels, H, W, x.ravel(), (0, h0, w0), captions.x_note(s, self.box),
                   plane_name=tr("map")),
            Tensor("D", "D", tr("data matrix"), "workspace", 1, rows, cols, note=tr("{size}, not stored", size=part_note((0, rows, s.CRS), (0, cols, plan.columns))),
                   partial=(rows, cols) != (s.CRS, plan.columns)),
            Tensor("w", "w", tr("filters"), "filter", 1, len(self.filters), rows, self.filters[:, :rows].ravel(),
                   note=part_note((0, len(self.filters), s.K), (0, rows, s.CRS)), partial=rows < s.CRS),
            Tensor("y", "y", tr("output"), "output", 1, len(self.filters), cols,
                   note=part_note((0, len(self.filters), s.K), (0, cols, plan.columns))),
            *self._tile_tensors(),
            Tensor("mine", "window", tr("windows"), "workspace", 1, plan.BN // 32, 3, note=tr("row, column, offset in x: computed once") if self.has_time else tr("row, column, offset")),
            Tensor("acc", "sum", tr("sums"), "output", 1, plan.TM, plan.TN, note=f"{plan.TM} × {plan.TN}"),
            *self._time_tensors(),
        )  # fmt: skip

    def _tile_tensors(self) -> tuple[Tensor, Tensor]:
        """Returns the tiles in shared memory, one plane per buffer."""
        plan, (filters, columns) = self.plan, self.plan.tile_shown
        buffer = tr("buffer") if plan.STAGES > 1 else ""
        buffers = trn("{n} buffer", "{n} buffers", plan.STAGES)
        if plan.is_part_of_tile:
            notes = [
                tr("{n} of {width} columns", n=n, width=width) for n, width in ((filters, plan.BM), (columns, plan.BN))
            ]
        else:
            notes = [
                tr(
                    "transposed, {rows} × ({columns} + {pad}), {buffers}",
                    rows=plan.BK,
                    columns=plan.BM,
                    pad=PIECE,
                    buffers=buffers,
                ),
                f"{plan.BK} × {plan.BN}, {buffers}",
            ]
        return (
            Tensor("As", "tile_a", tr("filter tile"), "filter", plan.STAGES, plan.BK, filters, plane_name=buffer, note=notes[0]),
            Tensor("Bs", "tile_b", tr("data tile"), "input", plan.STAGES, plan.BK, columns, plane_name=buffer, note=notes[1]),
        )  # fmt: skip

    @property
    def has_time(self) -> bool:
        """Returns whether the stage also shows which tiles are under way. A small scene leaves the place to its numbers: the
        order "timeline" shows the same."""
        return not self.plan.is_part_of_tile

    def _time_tensors(self) -> tuple[Tensor, ...]:
        if not self.has_time:
            return ()
        stages, columns = self.plan.STAGES, self.plan.iterations_shown + 1
        return (
            Tensor("fly", "tile", tr("tiles being copied"), "input", 1, stages, columns),
            Tensor("use", "tile", tr("tiles multiplied"), "output", 1, stages, columns),
        )

    def groups(self) -> tuple[Group, ...]:
        """Returns the regions of the stage. A small scene is wide, so that the product and the tiles are side by side."""
        x, data = (Group((("x",),), "global"), Group(product("w", "D", "y"), "global", table=True))
        registers = tr("registers of thread 0")
        if not self.has_time:
            return (
                data,
                Group((("As", "Bs"),), "shared", tr("shared memory of the block")),
                Group((("mine",), ("acc",)), "registers", registers),
                x,
            )
        return (
            x,
            data,
            Group((("As",), ("Bs",)), "shared", tr("shared memory of the block")),
            Group((("mine", "acc"),), "registers", registers),
            Group((("fly", "use"),), "global", tr("one column per iteration, one row per buffer")),
        )

    # -- writes ------------------------------------------------------------------------------------
    def writes(self) -> tuple[Write, ...]:
        sums = [(0, 0 * self.last), *((t, self.registers[n]) for n, t in enumerate(self.multiplied))]
        if self.plan.iterations_shown < self.plan.iterations:
            sums.append((self.remaining_step, self.last))
        steps = np.repeat([t for t, _ in sums], self.last.size)
        values = np.concatenate([v.ravel() for _, v in sums])
        window_offsets = self.plan.windows[np.minimum(self.plan.lane_columns[::32], self.plan.columns_shown - 1), 3:]
        y = np.full(self.product.shape, self.r.now)
        y[: self.plan.inside[0], : self.plan.inside[1]] = self.stored
        return (
            *self._tiles("As", "w"),
            *self._tiles("Bs", "D"),
            Write("mine", np.array([0]), window_offsets.ravel().astype(np.float32)),
            Write("acc", steps, values, cells=np.tile(np.arange(self.last.size), len(sums))),
            Write("y", y.ravel() if y.min() < y.max() else y[0, :1], self.product.ravel()),
            *(self._time() if self.has_time else ()),
        )

    def _tiles(self, target: str, source: str) -> tuple[Write, ...]:
        """Returns every tile's copies into its stage. Elements outside the matrices are zero."""
        plan, filters = self.plan, target == "As"
        k, pitch, out = np.arange(plan.BK)[:, None], plan.tile_shown[not filters], []
        m, count = (np.arange(min(pitch, plan.BM) if filters else pitch), len(self.filters) if filters else plan.BN)
        for tile, *when in self.fetched:
            row = tile * plan.BK + k
            index = m * plan.rows_shown + row if filters else row * plan.columns_shown + plan.lane_columns[m]
            index = np.where((row < plan.s.CRS) & (m < count), index, -1)
            cells = tile % plan.STAGES * plan.BK * pitch + k * pitch + m
            step = np.array([when[not filters]])
            out.append(Write(target, step, source=source, index=index.ravel(), cells=cells.ravel()))
        return tuple(out)

    def _time(self) -> tuple[Write, Write]:
        """Returns when each tile is being copied and when it is multiplied. A copy lasts from the iteration that
        starts it to the iteration that needs it. Column 0 is before the loop."""
        plan, columns = self.plan, self.plan.iterations_shown + 1
        last = len(self.multiplied) + 1  # the iteration after the visible ones: later ones have no step
        fly = []
        for tile, _, started in self.fetched:
            first = max(0, tile + 2 - plan.STAGES)
            for iteration in range(first, min(tile, last) + 1):
                step = started if iteration == first else max(started, self._first_step(iteration))
                fly.append((step, tile % plan.STAGES * columns + iteration, tile + 1))
        use = [(t, tile % plan.STAGES * columns + tile + 1, tile + 1) for tile, t in enumerate(self.multiplied)]
        in_flight, in_use = (
            Write(name, np.array(events)[:, 0], np.array(events)[:, 2].astype(np.float32), cells=np.array(events)[:, 1])
            for name, events in (("fly", fly), ("use", use))
        )
        return in_flight, in_use

    def _first_step(self, iteration: int) -> int:
        """Returns the first step of an iteration of the loop, counted from 1."""
        return (
            self.multiplied[iteration - 2] + 1
            if iteration > 1
            else self.fetched[min(self.plan.STAGES - 1, len(self.fetched)) - 1][2]
        )

    # -- captions and readings ---------------------------------------------------------------------
    def matmuls(self) -> tuple[MatMul, ...]:
        """Returns y as a product that the browser sums, if all terms are visible."""
        return (MatMul("w", "D", "y"),) if self.plan.rows_shown == self.plan.s.CRS else ()

    def readings(self) -> tuple[Reading, ...]:
        plan, kinds = self.plan, np.array(self.r.kinds)
        copied = np.cumsum(np.isin(kinds, (captions.FETCH_B, captions.FETCH_B_LATER))) * plan.BK * plan.BN
        multiplied = (
            np.cumsum(np.isin(kinds, (captions.MULTIPLY, captions.MULTIPLY_ONE, captions.MULTIPLY_LAST))) * plan.BK
        )
        if plan.iterations_shown < plan.iterations:
            copied[self.remaining_step :] = plan.iterations * plan.BK * plan.BN
            multiplied[self.remaining_step :] = plan.iterations * plan.BK
        stored = np.minimum(copied, plan.STAGES * plan.BK * plan.BN)
        return (
            Reading(tr("data matrix: values copied"), copied, "predicted"),
            Reading(tr("of them in shared memory now"), stored, "predicted"),
            Reading(tr("multiply-adds, zeros included"), multiplied * plan.BM * plan.BN, "predicted"),
        )

    def annotations(self) -> tuple[Annotation, ...]:
        plan, s = self.plan, self.plan.s
        rows, cols = plan.rows_shown, plan.columns_shown
        down, across = captions.row_numbers(plan)[:rows], captions.column_numbers(plan)
        numbers = (down[:, None] + across).reshape(rows * cols, -1)
        kind = (plan.address[:rows] < 0).astype(int).ravel()
        filters = np.zeros((len(self.filters), across.shape[1]), int)
        filters[:, 0] = np.arange(len(self.filters))
        outputs = (filters[:, None] + np.where(np.arange(across.shape[1]) == 0, 0, across)).reshape(
            len(self.filters) * cols, -1
        )
        return (
            Annotation("D", Captions(captions.cell_templates(plan), kind, numbers)),
            Annotation("y", Captions(captions.output_templates(s), np.zeros(len(outputs), int), outputs)),
        )
