"""The memory requests of a warp of a GEMM block, from the emulator's trace: the steps of warps.py."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels import sources
from kernels.engines.emulator.trace import BlockTrace
from kernels.gemm import fragments
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.model.dtypes import ELEMENT_BYTES
from visuals.gemm.plan import Layout, Plan
from visuals.scene.parts import Write
from visuals.scene.recorder import Recorder
from visuals.scene.requests import BANKS, LANES, WORD, bank_wavefronts, lanes_of, min_wavefronts, requested_sectors

GLOBAL = {"A": "[A](input)", "B": "[B](filter)", "C0": "C0", "C": "[C](output)"}
SHARED = {"tile_a": "[tile_a](input)", "tile_b": "[tile_b](filter)"}
LOAD = mark(
    "Warp {0} loads from {array} in global memory, {2} bytes per lane. Active lanes: {1}. Sectors (32 bytes): {3}. "
    "Fewest possible: {4}."
)
STORE = mark(
    "Warp {0} stores to {array} in global memory, {2} bytes per lane. Active lanes: {1}. Sectors (32 bytes): {3}. "
    "Fewest possible: {4}."
)
COPY = mark(
    "Warp {0} starts an asynchronous copy from {array} in global memory to shared memory, {2} bytes per lane. Active "
    "lanes: {1}. Sectors (32 bytes): {3}. Fewest possible: {4}."
)
SHARED_LOAD = mark(
    "Warp {0} loads from {array} in shared memory, {2} bytes per lane. Active lanes: {1}. Passes over the 32 banks: {3}. "
    "Passes without bank conflicts: {4}."
)
SHARED_STORE = mark(
    "Warp {0} stores to {array} in shared memory, {2} bytes per lane. Active lanes: {1}. Passes over the 32 banks: {3}. "
    "Passes without bank conflicts: {4}."
)
MORE = mark(
    "Warp {0} makes more requests of the same kind. Requests: {1}. Sectors: {2}. Passes over the 32 banks: {3}. Passes "
    "without bank conflicts: {4}."
)
# By how many other warps the block has.
BARRIER = {
    "one": mark("Warp {0} waits at the barrier. After it, shared memory has the values of the other warp too."),
    "many": mark("Warp {0} waits at the barrier. After it, shared memory has the values of the other {1} warps too."),
}
END = {
    "none": mark("Warp {0} is the only warp of the block. The block's tile of [C](output) is complete."),
    "one": mark("The other warp of the block did the same. The block's tile of [C](output) is complete."),
    "many": mark("The other {1} warps of the block did the same. The block's tile of [C](output) is complete."),
}
CUT = {
    "none": mark("Warp {0} is the only warp of the block. The loop was cut short: these sums have {2} of {3} terms."),
    "one": mark("The other warp of the block did the same. The loop was cut short: these sums have {2} of {3} terms."),
    "many": mark(
        "The other {1} warps of the block did the same. The loop was cut short: these sums have {2} of {3} terms."
    ),
}
# By kind of step: the message of its caption, and the array in it.
TEMPLATES = {
    **{("ld", name): (LOAD, link) for name, link in GLOBAL.items()},
    **{("st", name): (STORE, link) for name, link in GLOBAL.items()},
    **{("ld", name): (SHARED_LOAD, link) for name, link in SHARED.items()},
    **{("st", name): (SHARED_STORE, link) for name, link in SHARED.items()},
    **{("copy", name): (COPY, link) for name, link in GLOBAL.items()},
    ("more", ""): (MORE, ""),
    **{("barrier", others): (message, "") for others, message in BARRIER.items()},
    **{("end", others): (message, "") for others, message in END.items()},
    **{("cut", others): (message, "") for others, message in CUT.items()},
}
MAX_SINGLE = 16  # equal requests in a row that each get a step
MAX_ROWS, MAX_COLS = 64, 128  # of C shown
_KIND = {kind: n for n, kind in enumerate(TEMPLATES)}


def templates() -> tuple[str, ...]:
    """Returns the captions of all kinds of steps, in the order of TEMPLATES."""
    return tuple(tr(message, array=array) for message, array in TEMPLATES.values())


class Banks:
    """A tile in shared memory by banks: a column is a bank, or a part of one if elements are smaller than its words. Maps
    bytes of the buffer and elements of the tile to cells."""

    def __init__(self, name: str, layout: Layout, stages: int, tiles: int):
        self.name, self.layout, self.stages, self.visible_stages = name, layout, stages, min(stages, tiles)
        self.cols = BANKS * WORD // layout.item
        size = layout.rows * layout.cols
        first = [(layout.start + stage * layout.stride) // layout.item % self.cols for stage in range(stages)]
        self.first, self.rows = np.array(first), -(-(max(first) + size) // self.cols)
        self.element = np.full(size, -1)
        self.element[layout.at.ravel()] = np.arange(layout.at.size)
        self.filled = np.zeros((stages, layout.at.size), int)  # how often each element was stored

    def find(self, byte: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (stage, element) of each byte; element -1 for bytes of no element of the tile."""
        offset = byte - self.layout.start
        stage, within = np.divmod(offset, self.layout.stride) if self.layout.stride else (0 * offset, offset)
        cell = within // self.layout.item
        inside = (offset >= 0) & (stage < self.stages) & (cell < len(self.element))
        return np.where(inside, stage, 0), np.where(inside, self.element[np.where(inside, cell, 0)], -1)

    def cells(self, stage: np.ndarray, element: np.ndarray) -> np.ndarray:
        """Returns the tensor's cells of some elements."""
        return stage * self.rows * self.cols + self.first[stage] + self.layout.at.ravel()[element]


class WarpSteps:
    """The steps in order, one for each request of `warp`, in the recorder `r`. They count sectors `loaded` and `stored`,
    passes over the banks (`wavefronts`) and those that are `conflicts`. `terms`: how many the whole sums have; the shape
    `s` may have only the first."""

    def __init__(
        self, s: GemmShape, plan: Plan, inputs: Mapping[str, np.ndarray], trace: BlockTrace, warp: int, terms: int
    ):
        self.s, self.plan, self.inputs, self.trace, self.warp, self.terms = (s, plan, inputs, trace, warp, terms)
        self.cols, self.C_rows = min(s.N, plan.BN), min(s.M, MAX_ROWS)
        self.C_cols = min(self.cols, MAX_COLS)
        k_tiles = -(-s.K // plan.BK)  # tiles along K
        self.tiles = [Banks(n, at, plan.stages, k_tiles) for n, at in (("tile_a", plan.As), ("tile_b", plan.Bs)) if at]
        self.r = Recorder()
        self.lines: list[int] = []  # of the source, of each step
        self.moments: list[int] = []  # the trace's step of each step
        self.moment = 0
        # The most values a lane gets at once: from A and tile_a, from B and tile_b.
        self.values_per_lane = {"a": 1, "b": 1}
        self.run: tuple[tuple[bool, bool], int] = ((False, False), 0)  # (is write, is global), how often in a row
        self.C = self._stored()
        self.stored = np.full(self.C.size, -1)  # step
        self.pending: list[tuple[Banks, np.ndarray, np.ndarray]] = []  # stored by other warps, not shown yet
        self._run()

    def writes(self) -> tuple[Write, ...]:
        return (Write("C", self.stored, self.C.ravel()), *self.r.writes())

    def _run(self) -> None:
        requests, before = self.trace.requests, 0
        text, file = sources.text(self.plan.file).splitlines(), self.plan.file.rpartition("/")[2]
        line = [
            source_line.number if source_line and source_line.file.endswith(file) else 0
            for source_line in self.trace.lines
        ]
        lines = np.array(line)[self.trace.line]
        barrier = np.array(["__syncthreads()" in text[n - 1] if n else False for n in line])[self.trace.line]
        last = int(lines[-1])
        for n in range(len(requests)):
            step = int(requests.step[n])
            name, byte, width = (self.trace.buffers[requests.buffer[n]], requests.byte[n], int(requests.width[n]))
            if "tile_c[" in text[lines[step] - 1] and name not in GLOBAL:
                continue  # the sums pass through shared memory after the loop
            if requests.warp[n] != self.warp:
                if requests.write[n] and name not in GLOBAL:
                    self._fill(name, byte[lanes_of(requests.mask[n])], width)
                continue
            barriers = np.flatnonzero(barrier[before : step + 1])
            if barriers.size and self.pending:
                self._barrier(int(lines[before + barriers[-1]]))
                self.run = (False, False), 0
            before, last, self.moment = step, int(lines[step]), step
            self._request(name, bool(requests.write[n]), byte, int(requests.mask[n]), width, last)
        self._end(last)

    def _stored(self) -> np.ndarray:
        """Returns what the block stores of C, as far as it is shown."""
        trace = self.trace
        mine = trace.write & (np.array(trace.buffers)[trace.buffer] == "C")
        row, col = np.divmod(trace.element[mine].astype(int), self.s.N)
        C, inside = np.zeros((self.C_rows, self.C_cols), np.float32), (row < self.C_rows) & (col < self.C_cols)
        C[row[inside], col[inside]] = trace.value[mine][inside]
        return C

    # -- steps --------------------------------------------------------------------------------------
    def _step(self, kind: tuple[str, str], args: tuple, line: int, mask: int = 0, **counts: int) -> int:
        self.moments.append(self.moment)
        self.lines.append(line)
        return self.r.step(_KIND[kind], *args, warp=self.warp if mask else -1, mask=mask, **counts)

    def _request(self, name: str, write: bool, byte: np.ndarray, mask: int, width: int, line: int) -> None:
        access, lanes = (write, name in GLOBAL), lanes_of(mask)
        self.run = access, self.run[1] + 1 if access == self.run[0] else 1
        target = name if name in GLOBAL else self._tile(name, byte[lanes]).name
        if name in GLOBAL:
            count, minimum = requested_sectors(byte, mask, width)
            counts = {"stored" if write else "loaded": count}
        else:
            count, minimum = (int(bank_wavefronts(byte, mask, width)[0].max()) + 1, min_wavefronts(byte, mask, width))
            counts = {"wavefronts": count, "conflicts": count - minimum}
        grouped = self.run[1] > MAX_SINGLE
        if grouped:
            t = self._extend_run(counts, line, mask)
        else:
            args = (self.warp, len(lanes), width, count, minimum)
            is_async_copy = self.plan.stages > 1 and not write and name in ("A", "B")
            kind = "st" if write else "copy" if is_async_copy else "ld"
            t = self._step((kind, target), args, line, mask, **counts)
        if write and name in GLOBAL:
            self.stored[self._cells(name, byte[lanes], width)[1]] = t
        elif write:
            self._fill(name, byte[lanes], width)
            self._show_pending(t, -1)
        elif not grouped:
            self._load(t, name, byte, mask, width)

    def _extend_run(self, counts: Mapping[str, int], line: int, mask: int) -> int:
        """Adds a request to the step of all further requests of a run; returns that step."""
        if self.run[1] == MAX_SINGLE + 1:
            self._step(("more", ""), (self.warp,), line, mask=mask)
        self.r.count(**counts)
        n = self.r.counts[-1]
        sectors, wavefronts = n["loaded"] + n["stored"], n["wavefronts"]
        self.r.args[-1] = (self.warp, self.run[1] - MAX_SINGLE, sectors, wavefronts, wavefronts - n["conflicts"])
        return self.r.now

    def _load(self, t: int, name: str, byte: np.ndarray, mask: int, width: int) -> None:
        """Records the values that lanes load."""
        lanes = lanes_of(mask)
        if name in GLOBAL:
            cells, visible = self._cells(name, byte[lanes], width)
            if name in "AB" and self.plan.stages > 1:  # cp.async, past the registers
                self.r.look(name, visible, at=t)
            else:
                self._to_lanes(t, name, cells, lanes)
            return
        tile = self._tile(name, byte[lanes])
        if self.plan.owner == "warp" and width == 16:
            at, lanes = ldmatrix(byte, mask, tile.name == "tile_b").ravel(), np.arange(LANES)
        else:
            at = _element_bytes(byte[lanes], width, tile.layout.item)
        stage, element = tile.find(at)
        visible = (element >= 0) & (stage < tile.visible_stages)
        self._to_lanes(t, tile.name, np.where(visible, tile.cells(stage, element), -1), lanes)

    def _barrier(self, line: int) -> None:
        self._show_pending(self._step(("barrier", self._others()), (self.warp, self.other_warps), line))

    def _end(self, line: int) -> None:
        kind = "cut" if self.terms > self.s.K else "end", self._others()
        t = self._step(kind, (self.warp, self.other_warps, self.s.K, self.terms), line)
        self._show_pending(t)
        self.stored[self.stored < 0] = t

    @property
    def other_warps(self) -> int:
        return -(-self.plan.threads // LANES) - 1

    def _others(self) -> str:
        return {0: "none", 1: "one"}.get(self.other_warps, "many")

    # -- cells --------------------------------------------------------------------------------------
    def _cells(self, name: str, byte: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cells of a matrix that lanes touch, -1 if not shown, and the visible ones of them."""
        item = ELEMENT_BYTES[self.s.dtype] if name in "AB" else WORD
        row, col = np.divmod(_element_bytes(byte, width, item) // item, self.s.K if name == "A" else self.s.N)
        rows, cols = {"A": (self.s.M, self.s.K), "B": (self.s.K, self.cols)}.get(name, (self.C_rows, self.C_cols))
        cells = np.where((row < rows) & (col < cols), row * cols + col, -1)
        return cells, cells[cells >= 0]

    def _to_lanes(self, t: int, source: str, cells: np.ndarray, lanes: np.ndarray) -> None:
        """Records values that lanes get: cells [lanes, values], in the order of the lanes."""
        cells = cells.reshape(len(lanes), -1)
        target = source[-1].lower() if source != "C0" else "c"  # of A and tile_a: a
        self.values_per_lane[target] = max(self.values_per_lane.get(target, 1), cells.shape[1])
        lane_cells = np.arange(cells.shape[1]) * LANES + lanes[:, None]
        visible = cells >= 0
        self.r.copy(target, source, cells[visible], lane_cells[visible], at=t)

    def _tile(self, buffer: str, byte: np.ndarray) -> Banks:
        """Returns the tile that a shared request touches."""
        return next(t for t in self.tiles if t.layout.buffer == buffer and (t.find(byte)[1] >= 0).any())

    def _fill(self, buffer: str, byte: np.ndarray, width: int) -> None:
        """Records elements of a tile that a warp stores, as pending."""
        tile = self._tile(buffer, byte)
        stage, element = tile.find(_element_bytes(byte, width, tile.layout.item))
        number = tile.filled[stage, element] * tile.stages + stage  # of the tile along K
        tile.filled[stage, element] += 1
        row, col = np.divmod(element, tile.layout.at.shape[1])
        k = number * self.plan.BK + (col if tile.name == "tile_a" else row)
        if tile.name == "tile_a":
            index = np.where((row < self.s.M) & (k < self.s.K), row * self.s.K + k, -1)
        else:
            index = np.where((k < self.s.K) & (col < self.cols), k * self.cols + col, -1)
        self.pending.append((tile, tile.cells(stage, element), index))

    def _show_pending(self, t: int, first: int = 0) -> None:
        for tile, cells, index in self.pending[first:]:
            visible = (
                cells < tile.visible_stages * tile.rows * tile.cols
            )  # stages that the loop does not reach are not shown
            self.r.copy(tile.name, tile.name[-1].upper(), index[visible], cells[visible], at=t)
        del self.pending[first:]


def ldmatrix(byte: np.ndarray, mask: int, transposed: bool) -> np.ndarray:
    """Returns the byte address of each value that each lane gets, int64[32 lanes, values]. Each lane gets two 16-bit values
    of each 8 x 8 matrix; its rows begin at the addresses of lanes 8j to 8j + 7 (PTX ISA, "ldmatrix")."""
    lane, half = np.arange(LANES)[:, None, None], np.arange(2)
    rows = byte.astype(np.int64)[: len(lanes_of(mask))].reshape(-1, 8)  # matrices, rows
    row, col = fragments.ldmatrix_position(lane, half, transposed)
    return (rows[np.arange(len(rows))[:, None], row] + 2 * col).reshape(LANES, -1)


def _element_bytes(byte: np.ndarray, width: int, item: int) -> np.ndarray:
    """Returns the first byte of each element that lanes touch; each lane requests `width` bytes."""
    return (byte.astype(np.int64)[:, None] + np.arange(0, width, item)).ravel()
