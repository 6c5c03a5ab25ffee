"""The steps of a GEMM scene: what each of them says, writes, reads and counts, from the rung's plan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from kernels.gemm.shape import GemmShape
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import Layout, Plan
from visuals.scene.arithmetic import finished, sums_of
from visuals.scene.parts import Write
from visuals.scene.requests import mask_of

MOST_WHOLE = 48  # rows, columns and terms of matrices that stand on the stage whole
MOST_SIDE, MOST_TERMS = 64, 16  # of a block's tile and of its sums, elsewhere
MOST_COPIED = 64 * 64 - 1  # cells of C, to be told one by one
MOST_WARPS = 8  # that store one after the other
FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Part:
    """What is on the stage: one block (x, y), rows and columns of C from (row, col) on, the first K terms."""

    block: tuple[int, int]
    row: int
    rows: int
    col: int
    cols: int
    K: int


def part_of(s: GemmShape, plan: Plan, block: tuple[int, int] = (0, 0)) -> Part:
    """The whole matrices where they are small, else the tile of one block and the first terms of its sums."""
    if max(s.M, s.N, s.K) <= MOST_WHOLE:
        return Part(block, 0, s.M, 0, s.N, s.K)
    row, col = block[1] * plan.BM, block[0] * plan.BN
    tiles = max(2, MOST_TERMS // plan.BK)
    rows, cols = (min(a, b) for a, b in zip(side(plan), (s.M - row, s.N - col), strict=True))
    return Part(block, row, rows, col, cols, min(s.K, tiles * plan.BK))


def side(plan: Plan) -> tuple[int, int]:
    """Rows and columns of a block's tile that are shown: enough for all that the followed owner has."""
    rows, cols = int(plan.rows[0].max()) + 1, int(plan.cols[0].max()) + 1
    return min(plan.BM, max(MOST_SIDE, rows)), min(plan.BN, max(MOST_SIDE, cols))


@dataclass
class Steps:
    """The steps as they come, and what each of them says, writes, reads and counts."""

    s: GemmShape
    plan: Plan
    part: Part
    A: np.ndarray
    B: np.ndarray
    C0: np.ndarray | None
    kinds: list[int] = field(default_factory=list)
    args: list[tuple] = field(default_factory=list)
    counts: list[tuple[int, int, int]] = field(default_factory=list)  # global, shared reads, multiply-adds
    lanes: list[tuple[int, int]] = field(default_factory=list)  # warp, mask
    writes: list[Write] = field(default_factory=list)
    copies: dict[tuple[str, str], list] = field(default_factory=lambda: defaultdict(list))
    held: list[tuple[int, np.ndarray]] = field(
        default_factory=list
    )  # the followed owner's sums from a step on
    reads: dict[str, list[tuple[int, np.ndarray]]] = field(default_factory=dict)

    def __post_init__(self):
        s, p, plan = self.s, self.part, self.plan
        rows, cols = slice(p.row, p.row + p.rows), slice(p.col, p.col + p.cols)
        A, B = self.A[rows], self.B[:, cols]
        self.shown = {"A": A[:, : p.K].astype(np.float32), "B": B[: p.K].astype(np.float32)}
        self.own = self._cells(plan.rows[0], plan.cols[0])
        self.after: dict[int, np.ndarray] = {}
        kept = lambda k, sums: self.after.update({k: self._owned(sums)})  # noqa: E731
        self.sums = sums_of(A, B, plan.depth, s.dtype, kept)
        C0 = self.C0[rows, cols] if s.beta else None
        if s.beta:
            self.shown["C0"] = C0.astype(np.float32)
        self.C = finished(s, self.sums, C0)
        self._start()
        self._loop()
        self._store()
        self._merged()

    @property
    def few(self) -> bool:
        """Whether so little is shown that cells can be told one by one."""
        return self.C.size <= MOST_COPIED

    # -- places -------------------------------------------------------------------------------------
    def _cells(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """int64[rows, cols]: cells of C as shown, for rows and columns of the block's tile; -1 outside."""
        return self._flat(self._down + rows, self.part.rows, self._across + cols, self.part.cols)

    @property
    def _down(self) -> int:
        return self.part.block[1] * self.plan.BM - self.part.row

    @property
    def _across(self) -> int:
        return self.part.block[0] * self.plan.BN - self.part.col

    @staticmethod
    def _flat(row: np.ndarray, rows: int, col: np.ndarray, cols: int) -> np.ndarray:
        inside = (row < rows)[:, None] & (col < cols)
        return np.where(inside, row[:, None] * cols + col, -1)

    def _owned(self, sums: np.ndarray) -> np.ndarray:
        """float32[TM, TN]: the followed owner's sums, 0 where its cells leave C."""
        return np.append(sums.ravel(), np.float32(0)).astype(np.float32)[self.own]

    def _inside(self) -> tuple[int, int]:
        """Rows and columns of the block's tile that lie in C."""
        s, plan, (x, y) = self.s, self.plan, self.part.block
        return min(plan.BM, s.M - y * plan.BM), min(plan.BN, s.N - x * plan.BN)

    # -- steps --------------------------------------------------------------------------------------
    def _step(self, kind: int, *args: float, counts=(0, 0, 0), warp: int = -1, mask: int = 0) -> int:
        self.kinds.append(kind)
        self.args.append(args)
        self.counts.append(counts)
        self.lanes.append((warp, mask))
        return len(self.kinds) - 1

    def _copy(self, target: str, t: int, source: str, index: np.ndarray, cells: np.ndarray) -> None:
        self.copies[target, source].append((t, cells.ravel(), index.ravel()))

    def _merged(self) -> None:
        """Writes into the same tensor from the same source as one: there are many."""
        for (target, source), told in self.copies.items():
            steps, cells, index = zip(*told, strict=True)
            steps = np.repeat(steps, [len(c) for c in cells])
            cells, index = np.concatenate(cells), np.concatenate(index)
            self.writes.append(Write(target, steps, source=source, index=index, cells=cells))
        steps, values = zip(*self.held, strict=True)
        cells = np.tile(np.arange(self.own.size), len(steps))
        values = np.concatenate([v.ravel() for v in values])
        self.writes.append(Write("acc", np.repeat(steps, self.own.size), values, cells=cells))

    def _start(self) -> None:
        s, plan, (x, y) = self.s, self.plan, self.part.block
        across, down = plan.grid(s)
        rows, cols = self._inside()
        row, col = y * plan.BM, x * plan.BN
        block = y * across + x + 1
        t = self._step(gemm_plan.START, block, across * down, row, row + rows - 1, col, col + cols - 1)
        self.held.append((t, 0 * self.own.astype(np.float32)))
        if self.few:
            self.writes.append(Write("who", np.array([t]), plan.owners().ravel().astype(np.float32)))

    def _loop(self) -> None:
        s, plan, p = self.s, self.plan, self.part
        shown = -(-p.K // plan.BK)
        ahead = plan.stages - 1
        if plan.As:
            for tile in range(min(ahead, shown)):
                self._load(tile)
        for tile in range(shown):
            if plan.As and tile + ahead < shown:
                self._load(tile + ahead)
            for k in range(tile * plan.BK, min((tile + 1) * plan.BK, p.K), plan.depth):
                self._multiply(tile, k)
        if p.K < s.K:
            _, shared, added = self._counts(p.K, s.K)
            read = (s.K - p.K) * sum(self._inside()) if plan.As else self._counts(p.K, s.K)[0]
            t = self._step(gemm_plan.REST, s.K - 1, s.K - p.K, counts=(read, shared, added))
            self.held.append((t, self._owned(self.sums)))

    def _counts(self, start: int, stop: int) -> tuple[int, int, int]:
        """(reads of global memory, reads of shared memory, multiply-adds) of the block for the terms start to
        stop - 1, of which the tile's last may be zeros."""
        plan, (rows, cols) = self.plan, self._inside()
        terms = stop - start
        if not plan.As:
            return 2 * rows * cols * terms, 0, rows * cols * terms
        padded = -(-terms // plan.depth) * plan.depth
        return 0, len(plan.rows) * (plan.TM + plan.TN) * padded, plan.BM * plan.BN * padded

    def _load(self, tile: int) -> None:
        s, plan, p = self.s, self.plan, self.part
        rows, cols = self._inside()
        k = np.arange(plan.BK) + tile * plan.BK
        tiles, last = -(-s.K // plan.BK), min(k[-1], s.K - 1)
        for kind, name, values in (
            (gemm_plan.LOAD_A, "A", rows * (last - k[0] + 1)),
            (gemm_plan.LOAD_B, "B", cols * (last - k[0] + 1)),
        ):
            t = self._step(kind, tile + 1, tiles, k[0], last, values, counts=(values, 0, 0))
            layout = self.layout(name)
            if name == "A":
                index = self._flat(self._down + np.arange(len(layout.at)), p.rows, k, p.K)
            else:
                index = self._flat(k, p.K, self._across + np.arange(layout.at.shape[1]), p.cols)
            first = tile % plan.stages * layout.rows * layout.cols
            order = np.argsort(layout.at.ravel(), kind="stable")
            cells = first + layout.at.ravel()[order]
            target = f"tile_{name.lower()}"
            alone = plan.stages == 1 and len(cells) == layout.rows * layout.cols
            if alone:  # a whole array: its index travels as a sum
                self.writes.append(Write(target, np.array([t]), source=name, index=index.ravel()[order]))
            else:
                self._copy(target, t, name, index.ravel()[order], cells)

    def layout(self, name: str) -> Layout:
        plan = self.plan
        if name == "A":
            return plan.As.cut(side(plan)[0], plan.BK)
        return plan.Bs.cut(plan.BK, side(plan)[1])

    def _multiply(self, tile: int, k: int) -> None:
        plan, p = self.plan, self.part
        last = min(k + plan.depth, (tile + 1) * plan.BK)
        terms = np.arange(k, k + plan.depth)
        a, b = self._operands(tile, terms)
        said = [k, last - 1]
        if plan.TM * plan.TN == 1:
            said += [self._value(a, "A", k), self._value(b, "B", k), self.after[k].item()]
        mask = mask_of(np.arange(min(32, plan.threads)))
        if not plan.As:
            warp = self._warp(0)
            rows, cols = (np.unique(of[warp][of[warp] + at < most]) for of, at, most in (
                (plan.rows, self._down, p.rows), (plan.cols, self._across, p.cols)))  # fmt: skip
            said += [len(rows), len(cols)]
        t = self._step(
            gemm_plan.MULTIPLY, *said, counts=self._counts(k, min(last, self.s.K)), warp=0, mask=mask
        )
        if not plan.As:
            self._note("A", t, self._flat(self._down + rows, p.rows, terms, p.K))
            self._note("B", t, self._flat(terms, p.K, self._across + cols, p.cols))
        self._copy("a", t, "tile_a" if plan.As else "A", a, np.arange(a.size))
        self._copy("b", t, "tile_b" if plan.Bs else "B", b, np.arange(b.size))
        self.held.append((t, self.after[k]))

    def _operands(self, tile: int, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64: cells of tile_a [TM, depth] and tile_b [depth, TN], or of A and B, that the followed owner reads."""
        plan, p = self.plan, self.part
        rows, cols = plan.rows[0], plan.cols[0]
        if not plan.As:
            a = self._flat(self._down + rows, p.rows, terms, p.K)
            return a, self._flat(terms, p.K, self._across + cols, p.cols)
        As, Bs = self.layout("A"), self.layout("B")
        k = terms - tile * plan.BK
        stage = tile % plan.stages
        a = stage * As.rows * As.cols + As.at[rows[:, None], k]
        return a, stage * Bs.rows * Bs.cols + Bs.at[k[:, None], cols]

    def _value(self, cell: np.ndarray, name: str, k: int) -> float:
        """What the one cell read holds: the matrix's own value."""
        row, col = self._down + self.plan.rows[0, 0], self._across + self.plan.cols[0, 0]
        return float(self.shown[name][(row, k) if name == "A" else (k, col)])

    def _note(self, name: str, t: int, cells: np.ndarray) -> None:
        self.reads.setdefault(name, []).append((t, np.unique(cells[cells >= 0])))

    def _warp(self, warp: int) -> np.ndarray:
        """The owners of a warp."""
        return np.flatnonzero(self.plan.warp_of() == warp)

    def _store(self) -> None:
        plan, when = self.plan, np.full(self.C.size, -1)  # step of each cell
        own = self.own[self.own >= 0]
        when[own] = self._step(gemm_plan.STORE, warp=0, mask=1 if plan.owner == "thread" else FULL)
        warps = np.unique(plan.warp_of())
        few = warps if len(warps) <= MOST_WARPS else warps[:1]
        for warp in few:
            count, cells = self._of_warps([warp])
            cells = cells[when[cells] < 0]
            if cells.size:
                when[cells] = self._step(gemm_plan.STORE_WARP, warp, count, warp=warp, mask=self._mask(warp))
        count, cells = self._of_warps(warps[len(few) :])
        if cells.size:
            when[cells] = self._step(gemm_plan.STORE_MORE, len(warps) - len(few), count)
        if (when < 0).any():
            across, down = plan.grid(self.s)
            when[when < 0] = self._step(gemm_plan.OTHERS, across * down - 1)
        self._write_C(when, own)

    def _write_C(self, when: np.ndarray, own: np.ndarray) -> None:
        """The followed owner's cells are copies of its sums where those are stored as they are; of many cells
        only the numbers are told."""
        C, t = self.C.ravel(), when[own[0]]
        if not self.few or self.s.alpha != 1 or self.s.beta:
            self.writes.append(Write("C", when, C))
            self._note("acc", t, np.arange(self.own.size))
            return
        self._copy("C", t, "acc", np.flatnonzero(self.own.ravel() >= 0), own)
        others = np.setdiff1d(np.arange(C.size), own)
        if others.size:
            self.writes.append(Write("C", when[others], C[others], cells=others))

    def _of_warps(self, warps) -> tuple[int, np.ndarray]:
        """Cells of C that warps hold: how many, and which of them are shown."""
        of = np.isin(self.plan.warp_of(), warps)
        rows, cols = self.plan.rows[of][:, :, None], self.plan.cols[of][:, None, :]
        down, across = self._inside()
        inside = (rows < down) & (cols < across)
        row, col = self._down + rows, self._across + cols
        shown = inside & (row < self.part.rows) & (col < self.part.cols)
        return int(inside.sum()), (row * self.part.cols + col)[shown]

    def _mask(self, warp: int) -> int:
        return FULL if self.plan.owner == "warp" else mask_of(self._warp(warp) % 32)
