"""The second act of im2col: the matrix product of filters and data matrix, and the reshape of its result.

The tiles are those of kernels/conv/cuda/03_gemm.cu. Block (i, j) computes columns i*TILE to i*TILE + TILE - 1 and rows
j*TILE to j*TILE + TILE - 1 of the output matrix, one sum per thread. Each pass of its loop is four steps: the block loads
one tile of both factors, waits at a barrier, multiplies the tiles, and waits at a second barrier. A library's product is
one step: its tiles are unknown.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr
from kernels.ladders import find
from kernels.model.program import Launch
from visuals.conv.im2col import captions
from visuals.conv.part import Part
from visuals.scene.parts import Read, Source, Tensor, Write
from visuals.scene.recorder import part_note, read_per_step
from visuals.scene.source import resources, source_of

FILE = "conv/03_gemm.cu"
BARRIER = "__syncthreads()"
MARKS = ("tile_a[thread_row][thread_col] =", BARRIER, "sum += tile_a", (BARRIER, 1), "*C = sum")
MARK_OF = {
    "complete": 1,
    "read": 3,
    "store": 4,
}  # index into MARKS by kind of step; tiles: 0 if they are loaded, else 2


NO_CELLS = np.zeros(0, int)


def no_cells() -> np.ndarray:
    return NO_CELLS


@dataclass(eq=False, slots=True)
class Step:
    """One step of the product. Cells are flat; `sums` are the values of the cells `at` of the sums."""

    kind: str  # of captions.KINDS
    args: tuple[int, ...] = ()
    w: np.ndarray = field(default_factory=no_cells)  # cells of the filters that are loaded or multiplied
    D: np.ndarray = field(default_factory=no_cells)  # cells of the data matrix that are loaded or multiplied
    at: np.ndarray = field(default_factory=no_cells)
    sums: np.ndarray = field(default_factory=no_cells)
    stores: np.ndarray = field(default_factory=no_cells)  # cells of the output matrix
    added: int = 0  # multiply-adds

    @property
    def loaded(self) -> int:
        """Returns the number of values that it reads from global memory."""
        return 0 if self.kind in captions.MULTIPLY else len(self.w) + len(self.D)

    @property
    def mark(self) -> int:
        """Returns the index in MARKS of the line that runs."""
        return MARK_OF.get(self.kind, 0 if self.loaded else 2)


@dataclass(frozen=True, eq=False)
class Product:
    """The product of w [K, CRS] and D [CRS, columns] in its part, as steps that begin at step `first`.

    `y` float32[K, columns] are the outputs of the kernel. `tile` is the kernel's TILE, 0 for a product that is one
    library call."""

    s: ConvShape
    part: Part
    w: np.ndarray
    D: np.ndarray
    y: np.ndarray
    tile: int
    first: int

    @cached_property
    def whole(self) -> bool:
        """Returns whether every column of the output matrix is shown."""
        return self.y.shape[1] == self.s.PQ

    @cached_property
    def columns(self) -> np.ndarray:
        """Returns int64[columns]: each visible column's number in the whole data matrix."""
        s, part = self.s, self.part
        return ((part.p + np.arange(part.P))[:, None] * s.Q + part.q + np.arange(part.Q)).ravel()

    @cached_property
    def steps(self) -> list[Step]:
        tiled = [step for block in self._blocks() for step in self._block(*block)] if self.tile else [self._call()]
        return [*tiled, Step("reshape")]

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the visible rows and columns of each block, blocks in the order of their columns."""
        yield from itertools.product(_runs(np.arange(len(self.w)) // self.tile), _runs(self.columns // self.tile))

    def _block(self, rows: np.ndarray, cols: np.ndarray) -> Iterator[Step]:
        crs, width = self.D.shape
        number = self.columns[cols]
        block = (int(number[0]) // self.tile, int(rows[0]) // self.tile)
        spread = self._place(rows, cols)
        total = np.zeros((len(rows), len(cols)))
        of_rows, of_cols = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
        w, D, y = self.w[of_rows].astype(np.float64), self.D[:, of_cols], self.y[of_rows, of_cols]
        whole_sums, first_last = self.part.C == self.s.C, (int(number[0]), int(number[-1]))
        complete, read = Step("complete", block), Step("read", block)
        for k in (k_tiles := self._k_tiles):
            of_k = slice(k[0], k[-1] + 1)
            total = total + w[:, of_k] @ D[of_k]
            last = whole_sums and k is k_tiles[-1]
            sums, at = y if last else total, spread
            if k is k_tiles[0] and self.whole:  # threads outside the matrix add zeros
                free = np.ones(self.shape[0] * self.shape[1], bool)
                free[spread] = False
                unused = np.flatnonzero(free)
                sums, at = np.append(sums, np.zeros(len(unused))), np.append(spread, unused)
            args = (*block, k[0], k[-1], *first_last)
            tiles = _cells(rows, k, crs), _cells(k, cols, width)
            yield Step(captions.LOAD[len(k) == 1], args, *tiles)
            yield complete
            added = len(rows) * len(k) * len(cols)
            yield Step(captions.MULTIPLY[len(cols) == 1], args, *tiles, at, np.ravel(sums), added=added)
            yield read
        if not whole_sums:
            yield Step("rest", at=spread, sums=y.ravel())
        yield Step("store", block, stores=_cells(rows, cols, width))

    @cached_property
    def _k_tiles(self) -> list[np.ndarray]:
        """Returns the rows of the data matrix in each pass of the loop."""
        return _runs(np.arange(len(self.D)) // self.tile)

    def _call(self) -> Step:
        whole, added = np.arange, len(self.w) * self.D.size
        return Step("library", (), whole(self.w.size), whole(self.D.size), stores=whole(self.y.size), added=added)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Returns the rows and columns of the sums: those of a block, or of all blocks if only a part is shown."""
        rows, cols = self.y.shape
        return (min(rows, self.tile), min(cols, self.tile)) if self.whole else (rows, cols)

    def _place(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Returns the cells of the sums that hold these elements of the output matrix, flat."""
        height, width = self.shape
        return _cells(rows % height, cols % width, width)

    # -- parts of the scene ---------------------------------------------------------------------------
    def tensors(self) -> tuple[Tensor, ...]:
        """Returns the output matrix and, for tiles, the sums in registers."""
        s, (rows, cols) = self.s, self.y.shape
        note = part_note((0, rows, s.K), (0, cols, s.PQ))
        if not self.whole:
            note = tr("{part} of {whole}", part=f"{rows} × {cols}", whole=decimal(f"{s.K:,} × {s.PQ:,}"))
        partial = (rows, cols) != (s.K, s.PQ)
        C = Tensor(
            "C",
            "C",
            tr("output matrix"),
            "output",
            1,
            rows,
            cols,
            None,
            (0, 0, 0),
            note,
            partial=partial,
            col_index=None if self.whole else self.columns,
        )
        if not self.tile:
            return (C,)
        return C, Tensor("sum", "sum", tr("sums"), "output", 1, *self.shape, note=tr("registers"))

    def writes(self) -> tuple[Write, ...]:
        """Returns the writes of the sums, their stores, and the reshape, which moves nothing."""
        steps, size = self.steps, self.y.size
        now = self.first + np.arange(len(steps))
        stored = np.empty(size, int)
        for t, step in zip(now, steps, strict=True):
            stored[step.stores] = t
        reshape = Write("y", now[-1:], source="C", index=np.arange(size), reshapes=True)
        if not self.tile:
            return Write("C", now[:1], self.y.ravel()), reshape
        rows, cols = np.divmod(np.arange(size), self.y.shape[1])
        height, width = self.shape
        place = rows % height * width + cols % width
        sums = Write(
            "sum",
            np.repeat(now, [len(step.at) for step in steps]),
            np.concatenate([step.sums for step in steps]).astype(np.float32),
            cells=np.concatenate([step.at for step in steps]),
        )
        return sums, Write("C", stored, source="sum", index=place), reshape

    def reads(self) -> tuple[Read, ...]:
        """Returns the tiles that each step loads, and nothing for the steps before."""
        before, steps = [NO_CELLS] * self.first, self.steps
        return tuple(read_per_step(name, [*before, *(getattr(step, name) for step in steps)]) for name in ("w", "D"))

    def source(self) -> Source:
        """Returns the kernel with its running line. A library's kernel has none that could be shown."""
        if not self.tile:
            name = "cublasSgemm" if self.s.N == 1 else "cublasSgemmStridedBatched"
            note = tr("cuBLAS is a library. The source of its kernels is not public.")
            return Source(
                "cuBLAS", f"{name}(filters, data_matrix, output);\n// {note}", np.array([1, 0]), since=self.first
            )
        rung = find("conv/im2col-gemm")
        launch = rung.build(self.s, rung.default_tiles | {"TILE": self.tile}).launch(1)
        assert isinstance(launch, Launch) and launch.source == FILE
        kinds = np.array([step.mark for step in self.steps])
        source = source_of(FILE, MARKS, kinds, detail=resources(launch), since=self.first)
        return replace(source, lines=np.append(source.lines[:-1], 0))  # no line runs for the reshape

    def captions(self) -> tuple[list[int], np.ndarray]:
        """Returns the kind of each step, an index into captions.KINDS, and its numbers int64[steps, 6]."""
        args = np.zeros((len(self.steps), 6), np.int64)
        for row, step in zip(args, self.steps, strict=True):
            row[: len(step.args)] = step.args
        return [captions.KINDS.index(step.kind) for step in self.steps], args


def _runs(groups: np.ndarray) -> list[np.ndarray]:
    """Returns the indices of each run of equal numbers."""
    return np.split(np.arange(len(groups)), np.flatnonzero(groups[1:] != groups[:-1]) + 1)


def _cells(rows: np.ndarray, cols: np.ndarray, width: int) -> np.ndarray:
    """Returns the flat cells of rows and columns of a matrix `width` columns wide."""
    return (rows[:, None] * width + cols).ravel()
