"""The steps of a GEMM scene, computed from the rung's plan: captions, writes, reads and counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernels.gemm.shape import GemmShape
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import Layout, Plan
from visuals.scene.arithmetic import apply_alpha_beta, matmul_in_kernel_order
from visuals.scene.parts import Write
from visuals.scene.recorder import Recorder
from visuals.scene.requests import mask_of

MAX_WHOLE = 48  # rows, columns and terms of matrices that are shown whole
MAX_SIDE, MAX_TERMS = 64, 16  # shown of the tile and the sums of a block of larger matrices
MAX_COPIED = 64 * 64 - 1  # cells of C that are written one by one
MAX_WARPS = 8  # with a step of their own for the store
FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Part:
    """What is shown: one block (x, y), rows and columns of C from (row, col) on, the first K terms."""

    block: tuple[int, int]
    row: int
    rows: int
    col: int
    cols: int
    K: int


def part_of(s: GemmShape, plan: Plan, block: tuple[int, int] = (0, 0)) -> Part:
    """Returns small matrices whole, else the tile of one block and the first terms of its sums."""
    if max(s.M, s.N, s.K) <= MAX_WHOLE:
        return Part(block, 0, s.M, 0, s.N, s.K)
    row, col = block[1] * plan.BM, block[0] * plan.BN
    tiles = max(2, MAX_TERMS // plan.BK)
    rows, cols = (min(a, b) for a, b in zip(side(plan), (s.M - row, s.N - col), strict=True))
    return Part(block, row, rows, col, cols, min(s.K, tiles * plan.BK))


def side(plan: Plan) -> tuple[int, int]:
    """Returns how many rows and columns of a block's tile are shown. All cells of the followed owner are among them."""
    rows, cols = int(plan.rows[0].max()) + 1, int(plan.cols[0].max()) + 1
    return min(plan.BM, max(MAX_SIDE, rows)), min(plan.BN, max(MAX_SIDE, cols))


@dataclass
class GemmSteps:
    """The steps in order, in the recorder `r`, and all writes. The steps count values `read` from global and from `shared`
    memory, and multiply-adds (`added`)."""

    s: GemmShape
    plan: Plan
    part: Part
    A: np.ndarray
    B: np.ndarray
    C0: np.ndarray | None
    r: Recorder = field(default_factory=Recorder)
    writes: list[Write] = field(default_factory=list)

    def __post_init__(self):
        s, p, plan = self.s, self.part, self.plan
        rows, cols = slice(p.row, p.row + p.rows), slice(p.col, p.col + p.cols)
        A, B = self.A[rows], self.B[:, cols]
        self.visible = {"A": A[:, : p.K].astype(np.float32), "B": B[: p.K].astype(np.float32)}
        self.followed_cells = self._cells(plan.rows[0], plan.cols[0])
        self.sums_after: dict[int, np.ndarray] = {}
        save = lambda k, sums: self.sums_after.update({k: self._followed_sums(sums)})  # noqa: E731
        self.sums = matmul_in_kernel_order(A, B, plan.depth, s.dtype, save)
        C0 = self.C0[rows, cols] if s.beta and self.C0 is not None else None
        if C0 is not None:
            self.visible["C0"] = C0.astype(np.float32)
        self.C = apply_alpha_beta(s, self.sums, C0)
        self._start()
        self._loop()
        self._store()
        self.writes += [*self.r.copies(), *self.r.values()]

    @property
    def is_small(self) -> bool:
        """Whether so few cells are shown that they can be written one by one."""
        return self.C.size <= MAX_COPIED

    # -- cells --------------------------------------------------------------------------------------
    def _cells(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Returns cells of C as shown, int64[rows, cols], for rows and columns of the block's tile; -1 outside."""
        return self._flat(self._row_offset + rows, self.part.rows, self._col_offset + cols, self.part.cols)

    @property
    def _row_offset(self) -> int:
        return self.part.block[1] * self.plan.BM - self.part.row

    @property
    def _col_offset(self) -> int:
        return self.part.block[0] * self.plan.BN - self.part.col

    @staticmethod
    def _flat(row: np.ndarray, rows: int, col: np.ndarray, cols: int) -> np.ndarray:
        inside = (row < rows)[:, None] & (col < cols)
        return np.where(inside, row[:, None] * cols + col, -1)

    def _followed_sums(self, sums: np.ndarray) -> np.ndarray:
        """Returns the followed owner's sums, float32[TM, TN]; 0 for cells outside C."""
        return np.append(sums.ravel(), np.float32(0)).astype(np.float32)[self.followed_cells]

    def _inside(self) -> tuple[int, int]:
        """Returns how many rows and columns of the block's tile are inside C."""
        return self.plan.inside(self.s, self.part.block)

    # -- steps --------------------------------------------------------------------------------------
    def _start(self) -> None:
        s, plan, (x, y) = self.s, self.plan, self.part.block
        across, down = plan.grid(s)
        rows, cols = self._inside()
        row, col = y * plan.BM, x * plan.BN
        block = y * across + x
        t = self.r.step(gemm_plan.START, block, across * down, row, row + rows - 1, col, col + cols - 1)
        self.r.put("acc", 0 * self.followed_cells.astype(np.float32))
        if self.is_small:
            self.writes.append(Write("who", np.array([t]), plan.owners().ravel().astype(np.float32)))

    def _loop(self) -> None:
        s, plan, p = self.s, self.plan, self.part
        visible_tiles = -(-p.K // plan.BK)
        ahead = plan.stages - 1
        if plan.As:
            for tile in range(min(ahead, visible_tiles)):
                self._load(tile)
            if plan.syncs.early:
                self._wait(0)
        for tile in range(visible_tiles):
            if plan.syncs.wait and not plan.syncs.early:
                self._wait(tile)
            if plan.As and tile + ahead < visible_tiles:
                self._load(tile + ahead)
            if plan.syncs.read:
                self.r.step(gemm_plan.COMPLETE, tile + 1)
            terms = range(tile * plan.BK, min((tile + 1) * plan.BK, p.K), plan.depth)
            for k in terms:
                if plan.syncs.early and k == terms[-1] and self._waits_after(tile):
                    self._wait(tile + 1)
                self._multiply(tile, k)
            if plan.syncs.read:
                self.r.step(gemm_plan.READ, tile + 1)
        if p.K < s.K:
            self.r.step(gemm_plan.REST, s.K - 1, s.K - p.K, **self._counts(p.K, s.K))
            if plan.As:
                self.r.count(read=(s.K - p.K) * sum(self._inside()))
            self.r.put("acc", self._followed_sums(self.sums))
        for kind, mark in ((gemm_plan.WAIT_END, plan.syncs.wait_end), (gemm_plan.SPREAD, plan.syncs.spread)):
            if mark:
                self.r.step(kind)

    def _waits_after(self, tile: int) -> bool:
        """Returns whether threads wait before the last terms of a tile: for the next one, or for copies of zeros."""
        return bool(self.plan.syncs.wait_end) or (tile + 1) * self.plan.BK < self.s.K

    def _wait(self, tile: int) -> None:
        """Adds the wait for the copies of a tile and the barrier after it."""
        kinds = gemm_plan.WAIT, gemm_plan.COMPLETE
        if tile == 0:
            kinds = gemm_plan.WAIT_FIRST, gemm_plan.COMPLETE_FIRST
        elif tile == -(-self.s.K // self.plan.BK):
            kinds = gemm_plan.WAIT_LAST, gemm_plan.COMPLETE_LAST
        for kind in kinds:
            self.r.step(kind, tile + 1, tile)

    def _counts(self, start: int, stop: int) -> dict[str, int]:
        """Returns what the block reads and adds up for terms start to stop - 1; without the loads of tiles. The last tile may
        be padded with zeros."""
        plan, (rows, cols) = self.plan, self._inside()
        terms = stop - start
        if not plan.As:
            return {"read": 2 * rows * cols * terms, "added": rows * cols * terms}
        padded = -(-terms // plan.depth) * plan.depth
        shared = len(plan.rows) * (plan.TM + plan.TN) * padded
        return {"shared": shared, "added": plan.BM * plan.BN * padded}

    def _load(self, tile: int) -> None:
        s, plan, p = self.s, self.plan, self.part
        rows, cols = self._inside()
        k = np.arange(plan.BK) + tile * plan.BK
        tiles, last = -(-s.K // plan.BK), min(k[-1], s.K - 1)
        for kind, name, values in (
            (gemm_plan.LOAD_A_LATER if tile else gemm_plan.LOAD_A, "A", rows * (last - k[0] + 1)),
            (gemm_plan.LOAD_B_LATER if tile else gemm_plan.LOAD_B, "B", cols * (last - k[0] + 1)),
        ):
            t = self.r.step(kind, tile + 1, tiles, k[0], last, values, read=values)
            layout = self.layout(name)
            if name == "A":
                index = self._flat(self._row_offset + np.arange(len(layout.at)), p.rows, k, p.K)
            else:
                index = self._flat(k, p.K, self._col_offset + np.arange(layout.at.shape[1]), p.cols)
            first = tile % plan.stages * layout.rows * layout.cols
            order = np.argsort(layout.at.ravel(), kind="stable")
            cells = first + layout.at.ravel()[order]
            target = f"tile_{name.lower()}"
            whole_array = plan.stages == 1 and len(cells) == layout.rows * layout.cols
            if whole_array:  # the whole array: no list of cells is needed
                self.writes.append(Write(target, np.array([t]), source=name, index=index.ravel()[order]))
            else:
                self.r.copy(target, name, index.ravel()[order], cells)

    def layout(self, name: str) -> Layout:
        plan = self.plan
        assert plan.As and plan.Bs  # the kernel has tiles
        if name == "A":
            return plan.As.cut(side(plan)[0], plan.BK)
        return plan.Bs.cut(plan.BK, side(plan)[1])

    def _multiply(self, tile: int, k: int) -> None:
        plan, p = self.plan, self.part
        last = min(k + plan.depth, (tile + 1) * plan.BK)
        terms = np.arange(k, k + plan.depth)
        a, b = self._operands(tile, terms)
        args = [k, last - 1]
        if plan.TM * plan.TN == 1:
            args += [self._value(a, "A", k), self._value(b, "B", k), self.sums_after[k].item()]
        mask = mask_of(np.arange(min(32, plan.threads)))
        rows = cols = np.zeros(0, int)  # of the first warp, if it reads global memory
        if not plan.As:
            warp = self._owners_of_warp(0)
            rows, cols = (
                np.unique(of[warp][of[warp] + at < stop])
                for of, at, stop in ((plan.rows, self._row_offset, p.rows), (plan.cols, self._col_offset, p.cols))
            )
            args += [len(rows), len(cols)]
        counts = self._counts(k, min(last, self.s.K))
        self.r.step(gemm_plan.MULTIPLY, *args, warp=0, mask=mask, **counts)
        if not plan.As:
            self._look("A", self._flat(self._row_offset + rows, p.rows, terms, p.K))
            self._look("B", self._flat(terms, p.K, self._col_offset + cols, p.cols))
        self.r.copy("a", "tile_a" if plan.As else "A", a)
        self.r.copy("b", "tile_b" if plan.Bs else "B", b)
        self.r.put("acc", self.sums_after[k])

    def _operands(self, tile: int, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cells that the followed owner reads of tile_a [TM, depth] and tile_b [depth, TN], or of A and B; int64."""
        plan, p = self.plan, self.part
        rows, cols = plan.rows[0], plan.cols[0]
        if not plan.As:
            a = self._flat(self._row_offset + rows, p.rows, terms, p.K)
            return a, self._flat(terms, p.K, self._col_offset + cols, p.cols)
        As, Bs = self.layout("A"), self.layout("B")
        k = terms - tile * plan.BK
        stage = tile % plan.stages
        a = stage * As.rows * As.cols + As.at[rows[:, None], k]
        return a, stage * Bs.rows * Bs.cols + Bs.at[k[:, None], cols]

    def _value(self, cell: np.ndarray, name: str, k: int) -> float:
        """Returns the matrix element that thread 0 reads at term k."""
        row, col = self._row_offset + self.plan.rows[0, 0], self._col_offset + self.plan.cols[0, 0]
        return float(self.visible[name][(row, k) if name == "A" else (k, col)])

    def _look(self, name: str, cells: np.ndarray) -> None:
        self.r.look(name, cells[cells >= 0])

    def _owners_of_warp(self, warp: int) -> np.ndarray:
        return np.flatnonzero(self.plan.warp_of() == warp)

    def _store(self) -> None:
        plan, step_of = self.plan, np.full(self.C.size, -1)  # step of each cell
        own_cells = self.followed_cells[self.followed_cells >= 0]
        step_of[own_cells] = self.r.step(gemm_plan.STORE, warp=0, mask=1 if plan.owner == "thread" else FULL)
        warps = np.unique(plan.warp_of())
        single_warps = warps if len(warps) <= MAX_WARPS else warps[:1]
        for warp in single_warps:
            count, cells = self._cells_of_warps([warp])
            cells = cells[step_of[cells] < 0]
            if cells.size:
                step_of[cells] = self.r.step(gemm_plan.STORE_WARP, warp, count, warp=warp, mask=self._mask(warp))
        count, cells = self._cells_of_warps(warps[len(single_warps) :])
        if cells.size:
            step_of[cells] = self.r.step(gemm_plan.STORE_MORE, len(warps) - len(single_warps), count)
        if (step_of < 0).any():
            across, down = plan.grid(self.s)
            step_of[step_of < 0] = self.r.step(gemm_plan.OTHERS, across * down - 1)
        self._write_C(step_of, own_cells)

    def _write_C(self, step_of: np.ndarray, own_cells: np.ndarray) -> None:
        """Writes C. The followed owner's cells are copies of its sums if alpha is 1 and beta 0. Many cells are written as
        values only."""
        C, t = self.C.ravel(), int(step_of[own_cells[0]])
        if not self.is_small or self.s.alpha != 1 or self.s.beta:
            self.writes.append(Write("C", step_of, C))
            self.r.look("acc", np.arange(self.followed_cells.size), at=t)
            return
        self.r.copy("C", "acc", np.flatnonzero(self.followed_cells.ravel() >= 0), own_cells, at=t)
        others = np.setdiff1d(np.arange(C.size), own_cells)
        if others.size:
            self.writes.append(Write("C", step_of[others], C[others], cells=others))

    def _cells_of_warps(self, warps) -> tuple[int, np.ndarray]:
        """Returns how many cells of C some warps have, and those that are shown."""
        owners = np.isin(self.plan.warp_of(), warps)
        rows, cols = self.plan.rows[owners][:, :, None], self.plan.cols[owners][:, None, :]
        down, across = self._inside()
        inside = (rows < down) & (cols < across)
        row, col = self._row_offset + rows, self._col_offset + cols
        visible = inside & (row < self.part.rows) & (col < self.part.cols)
        return int(inside.sum()), (row * self.part.cols + col)[visible]

    def _mask(self, warp: int) -> int:
        return FULL if self.plan.owner == "warp" else mask_of(self._owners_of_warp(warp) % 32)
