"""The steps of flash attention, block by block and tile by tile: caption, writes, reads and bytes moved of each."""

# ruff: noqa: E741  # O is the name of the paper
from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from visuals.attention import flash_captions
from visuals.attention.flash_numbers import Tile, compute_block, stored_by
from visuals.attention.parts import MAX_WHOLE, grid
from visuals.attention.plan import Part, Plan
from visuals.scene.parts import Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import WORD


class FlashSteps:
    """The steps of the blocks that are followed."""

    def __init__(self, s: SelfAttentionShape, plan: Plan, part: Part, head: Mapping[str, np.ndarray]):
        self.s, self.plan, self.part, self.head = s, plan, part, head
        self.results, self.stored, self.hidden = [], {}, False
        for block in part.blocks:
            stored = self.stored[block] = stored_by(s, plan, head, block)
            first = block * plan.Br + part.first
            queries = range(first, min(first + part.rows, s.N))
            self.results.append(compute_block(s, plan, head, queries, part.tiles, stored))
        self.r = Recorder(flash_captions.templates_of(plan, s, self.results[0].factor))
        for w in self.results:
            self._block(w)
        self._others()

    @property
    def traced(self) -> bool:
        """Returns whether values are those that the emulator saw the kernel store."""
        return any(stored is not None for stored in self.stored.values())

    def _others(self) -> None:
        s, plan, part = self.s, self.plan, self.part
        blocks = -(-s.N // plan.Br)
        all_blocks = blocks * s.heads
        self.r.step("others" if all_blocks > len(part.blocks) else "end", all_blocks)
        for block in range(blocks) if s.N <= MAX_WHOLE else ():
            if block not in part.blocks:
                queries = range(block * plan.Br, min(block * plan.Br + plan.Br, s.N))
                self._store_block(compute_block(s, plan, self.head, queries))

    def _store_block(self, w) -> None:
        """Records what a block that is not followed stores."""
        self._store(w.q0, w.O)

    def more_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors of global memory beside Q, K, V and O."""
        return ()

    def _row_sums(self, w) -> None:
        """Records what a block stores of each row beside O."""

    # -- a block ------------------------------------------------------------------------------------
    def _block(self, w) -> None:
        s, plan, part, r = self.s, self.plan, self.part, self.r
        self.w, self.visible_tiles = w, w.tiles[: part.tiles]
        self.row = row = self._followed(self.visible_tiles)
        self.i = i = w.q0 + row
        self.q0 = w.q0 // plan.Br * plan.Br  # the block's first
        self.inside = min(plan.Br, s.N - self.q0)
        self._step(
            "start", self.q0, self.q0 + self.inside - 1, -(-s.N // plan.Br), i, read=self.inside * s.d * plan.word
        )
        at = w.q0 - part.queries.start
        query_cells = grid(range(at, at + len(w.Q)), range(part.cols), part.cols)
        if plan.halves:
            r.copy("Qs", "Q", query_cells)
        else:
            r.look("Q", grid(self._block_rows(), range(part.cols), part.cols))
            r.put("Qs", w.Q[:, : part.cols])
        for name, value in (("m", -np.inf), ("l", 0.0)):
            r.put(name, np.full(len(w.Q), value))
        r.put("o", np.zeros((len(w.Q), part.cols)))
        ahead = plan.stages - 1
        for n in range(min(ahead, len(self.visible_tiles))):
            self._fetch(n)
        if plan.halves:
            self._step("barrier", 1)
        for n, tile in enumerate(self.visible_tiles):
            self._tile(n, tile)
        self._rest()
        self._skip()
        last = w.last
        self._step("total", i, last.l[row])
        r.put("l", last.l)
        self._row_sums(w)
        queries = range(self.q0, self.q0 + self.inside)
        more_bytes = WORD * sum(self._visible_keys(q) + s.N for q in queries)
        args = i, last.O[row, 0], last.l[row], w.O[row, 0], self.inside * s.d, more_bytes
        self._step("store", *args, written=self.inside * s.d * plan.word)
        self._store(*self._whole_block(w))

    def _followed(self, visible_tiles: Sequence[Tile]) -> int:
        """Returns the row whose maximum changes most often: of several the first or, if causal, the last, with the most keys."""
        moves = np.sum(
            [later.m != tile.m for tile, later in itertools.pairwise(visible_tiles)] or [0 * visible_tiles[0].m], axis=0
        )
        rows = np.flatnonzero(moves == moves.max())
        return int(rows[-1 if self.s.causal else 0])

    def _block_rows(self) -> range:
        """Returns the rows of the block's queries in Q, O, S and P, as far as these are drawn."""
        drawn = self.part.queries
        return range(max(self.q0 - drawn.start, 0), min(self.q0 + self.inside, drawn.stop) - drawn.start)

    def _whole_block(self, w) -> tuple[int, np.ndarray]:
        """Returns the first of the block's queries that are drawn, and O of them all, also of those not followed."""
        rows = self._block_rows()
        first = self.part.queries.start + rows.start
        if len(rows) == len(w.O):
            return first, w.O
        stored = self.stored[self.q0 // self.plan.Br]
        queries = range(first, first + len(rows))
        return first, compute_block(self.s, self.plan, self.head, queries, None, stored).O

    def _visible_keys(self, i: int) -> int:
        return i + 1 if self.s.causal and i < self.s.N else self.s.N

    def _step(self, kind: str, *args: float, tile: Tile | None = None, **moved: int) -> None:
        """Records a step and its bytes of shared memory. `tile`: the one that exists now."""
        base = {"first-P": "P", "P-same": "P", "K-next": "K"}.get(kind, kind)
        self.r.step(kind, *args, shared=self._shared(base, tile and tile.j0), **moved)
        if tile:
            keys = range(tile.j0, min(tile.j0 + self.plan.Bc, self.part.keys))
            self.r.look("SP", grid(self._block_rows(), keys, self.part.keys))

    def _shared(self, kind: str, j0: int | None) -> int:
        """Returns bytes of shared memory. With mma.sync a warp takes part only if one of its queries sees the tile from j0 on."""
        plan, moved = self.plan, self.plan.traffic.get(kind, 0)
        if not plan.halves or j0 is None or kind not in ("scores", "O"):
            return moved
        warps = plan.threads // 32
        lasts = self.q0 + (np.arange(warps) + 1) * (plan.Br // warps) - 1
        return moved // warps * sum(j0 < self._visible_keys(int(i)) for i in lasts)

    # -- a tile -------------------------------------------------------------------------------------
    def _tile(self, n: int, tile: Tile) -> None:
        plan, previous = self.plan, self.w.tiles[n - 1] if n else None
        loads_K_early = plan.binary and not plan.halves  # K, while V is being loaded
        if plan.halves:
            self._fetch(n + plan.stages - 1)
        else:
            if not loads_K_early or n == 0:
                self._load("K", n)
            if loads_K_early:
                self._step("barrier", n + 1)
            self._load("V", n)
            if not loads_K_early:
                self._step("barrier", n + 1)
        self._scores(n, tile)
        self._maximum(tile, previous)
        if plan.halves and previous:
            self._shrink(tile, previous)
        self._exponents(tile, previous)
        self._sums(tile, previous)
        if not plan.halves and previous:
            self._shrink(tile, previous)
        if loads_K_early:
            self._step("barrier-done", n + 1, tile=tile)
            if n + 1 < len(self.visible_tiles):
                self._load("K", n + 1, "K-next")
        self._step("O", self.i, tile.shrunk[self.row, 0], tile.O[self.row, 0], tile=tile)
        self.r.look("Ps", np.arange(tile.P.size))
        self.r.look("Vs", self._stage(n))
        self.r.put("o", tile.O[:, : self.part.cols])
        if not loads_K_early:
            is_last = plan.halves and n + 1 == self.w.visited
            self._step("barrier-last" if is_last else "barrier-done", n + 1)

    def _fetch(self, n: int) -> None:
        """Records the loads of K and V of tile n, if it is shown."""
        if n < len(self.visible_tiles):
            self._load("K", n)
            self._load("V", n)

    def _stage(self, n: int) -> np.ndarray:
        """Returns the cells of Ks or Vs that contain tile n."""
        size = self.plan.Bc * self.part.cols
        return n % self.plan.stages * size + np.arange(size)

    def _load(self, name: str, n: int, kind: str = "") -> None:
        s, plan, cols = self.s, self.plan, self.part.cols
        j0 = n * plan.Bc
        inside = min(plan.Bc, s.N - j0)
        args = n + 1, self.w.visited, j0, j0 + inside - 1, inside * s.d, n % plan.stages
        self._step(kind or name, *args, read=inside * s.d * plan.word)
        key = j0 + np.arange(plan.Bc)[:, None]
        self.r.copy(f"{name}s", name, np.where(key < s.N, key * cols + np.arange(cols), -1), self._stage(n))

    def _scores(self, n: int, tile: Tile) -> None:
        candidates = np.isfinite(tile.scores[self.row]) & (tile.P[self.row] < 1)
        self.j = int(candidates.argmax() if candidates.any() else tile.P[self.row].argmax())
        self._step("scores", self.i, tile.j0 + self.j, tile.products[self.row, self.j], tile=tile)
        self.r.look("Qs", np.arange(len(self.w.Q) * self.part.cols))
        self.r.look("Ks", self._stage(n))
        self.r.put("s", tile.products)
        if (hidden := tile.hidden).any():
            self.hidden = True
            is_causal = hidden[:, : max(0, self.s.N - tile.j0)].any()
            self._step("mask-causal" if is_causal else "mask-end", self.s.N, tile=tile)
            self.r.put("s", tile.scores[hidden], np.flatnonzero(hidden))

    def _maximum(self, tile: Tile, previous: Tile | None) -> None:
        row, scale = self.row, self.w.factor if self.plan.halves else 1
        row_max = tile.scores[row].max()
        kind = "first-max" if previous is None else "max" if np.isfinite(row_max) else "max-hidden"
        self._step(
            kind, self.i, row_max * scale, previous.m[row] if previous else 0, tile.m[row], tile.shrink[row], tile=tile
        )
        self.r.look("s", np.arange(tile.P.size))
        self.r.put("m", tile.m)
        if self.plan.halves:
            self.r.put("shrink", tile.shrink)

    def _exponents(self, tile: Tile, previous: Tile | None) -> None:
        row, j, scale = self.row, self.j, self.w.factor if self.plan.halves else 1
        gap = 0 if previous is None else previous.m[row] - tile.m[row]
        kind = "first-P" if previous is None else "P" if gap else "P-same"
        args = tile.scores[row, j] * scale - tile.m[row], tile.P[row, j], gap, tile.shrink[row]
        self._step(kind, self.i, tile.j0 + j, *args, tile=tile)
        self.r.look("s", np.arange(tile.P.size))
        self.r.look("m", np.arange(len(self.w.Q)))
        if not self.plan.halves:
            self.r.put("shrink", tile.shrink)
        self.r.put("Ps", tile.P)

    def _sums(self, tile: Tile, previous: Tile | None) -> None:
        row = self.row
        before, p = previous.l[row] if previous else 0, tile.P[row].sum(dtype=np.float32)
        self._step("l" if previous else "first-l", self.i, before, tile.shrink[row], p, tile.l[row], tile=tile)
        self.r.look("shrink", np.arange(len(self.w.Q)))
        self.r.put("l", tile.l)

    def _shrink(self, tile: Tile, previous: Tile) -> None:
        self._step("shrink", self.i, previous.O[self.row, 0], tile.shrunk[self.row, 0], tile=tile)
        self.r.look("shrink", np.arange(len(self.w.Q)))
        self.r.put("o", tile.shrunk[:, : self.part.cols])

    # -- the end ------------------------------------------------------------------------------------
    def _rest(self) -> None:
        """Records one step for the tiles that are not shown."""
        s, plan, w = self.s, self.plan, self.w
        other_tiles = range(len(self.visible_tiles), w.visited)
        if not other_tiles:
            return
        keys = min(w.visited * plan.Bc, s.N)
        read = 2 * plan.word * (keys - other_tiles.start * plan.Bc) * s.d
        shared = sum(self._shared(kind, n * plan.Bc) for kind in plan.traffic if kind != "start" for n in other_tiles)
        kind = "rest" if len(other_tiles) > 1 else "rest-one"
        self.r.step(kind, len(other_tiles), keys - 1, read=read, shared=shared)
        for name, values in (("m", w.last.m), ("l", w.last.l), ("o", w.last.O[:, : self.part.cols])):
            self.r.put(name, values)

    def _skip(self) -> None:
        visited, tiles = self.w.visited, -(-self.s.N // self.plan.Bc)
        if visited < tiles:
            kind = "skip-one" if tiles - visited == 1 else "skip"
            self._step(kind, visited + 1, tiles, visited * self.plan.Bc, self.s.N - 1)

    def _store(self, q0: int, O: np.ndarray) -> None:
        first, cols = q0 - self.part.queries.start, self.part.cols
        self.r.put("O", O[:, :cols], grid(range(first, first + len(O)), range(cols), cols))
