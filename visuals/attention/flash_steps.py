"""The steps of flash attention, block by block and tile by tile: what each of them says, writes, reads and moves."""

# ruff: noqa: E741  # O is the name of the paper
from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from kernels.attention.shape import AttentionShape
from visuals.attention import flash_captions
from visuals.attention.flash_numbers import Tile, stored_by, walk
from visuals.attention.parts import MOST_WHOLE, grid
from visuals.attention.plan import WORD, Part, Plan
from visuals.scene.recorder import Recorder


class Steps:
    """The steps of the blocks that are followed."""

    def __init__(self, s: AttentionShape, plan: Plan, part: Part, head: Mapping[str, np.ndarray]):
        self.s, self.plan, self.part, self.head = s, plan, part, head
        self.walks, self.traced, self.hidden = [], False, False
        for block in part.blocks:
            stored = stored_by(s, plan, head, block)
            first = block * plan.Br + part.first
            queries = range(first, min(first + part.rows, s.N))
            self.walks.append(walk(s, plan, head, queries, part.tiles, stored))
            self.traced |= stored is not None
        self.r = Recorder(flash_captions.said(plan, s.N, s.d, self.walks[0].factor))
        for w in self.walks:
            self._block(w)
        self._others()

    def _others(self) -> None:
        s, plan, part = self.s, self.plan, self.part
        blocks = -(-s.N // plan.Br)
        every = blocks * s.heads
        self.r.step("others" if every > len(part.blocks) else "end", every)
        for block in range(blocks) if s.N <= MOST_WHOLE else ():
            if block not in part.blocks:
                queries = range(block * plan.Br, min(block * plan.Br + plan.Br, s.N))
                self._store(queries.start, walk(s, plan, self.head, queries).O)

    # -- a block ------------------------------------------------------------------------------------
    def _block(self, w) -> None:
        s, plan, part, r = self.s, self.plan, self.part, self.r
        self.w, self.shown = w, w.tiles[: part.tiles]
        self.row = row = self._followed(self.shown)
        self.i = i = w.q0 + row
        self.q0 = w.q0 // plan.Br * plan.Br  # the block's first
        self.inside = min(plan.Br, s.N - self.q0)
        self._step(
            "start",
            self.q0,
            self.q0 + self.inside - 1,
            -(-s.N // plan.Br),
            i,
            read=self.inside * s.d * plan.word,
        )
        at = w.q0 - part.queries.start
        mine = grid(range(at, at + len(w.Q)), range(part.cols), part.cols)
        if plan.halves:
            r.copy("Qs", "Q", mine)
        else:
            r.look("Q", mine)
            r.put("Qs", w.Q[:, : part.cols])
        for name, value in (("m", -np.inf), ("l", 0.0)):
            r.put(name, np.full(len(w.Q), value))
        r.put("o", np.zeros((len(w.Q), part.cols)))
        ahead = plan.stages - 1
        for n in range(min(ahead, len(self.shown))):
            self._fetch(n)
        for n, tile in enumerate(self.shown):
            self._tile(n, tile)
        self._rest()
        self._skip()
        last = w.last
        self._step("total", i, last.l[row])
        r.put("l", last.l)
        queries = range(self.q0, self.q0 + self.inside)
        more = WORD * sum(self._seen(q) + s.N for q in queries)
        told = i, last.O[row, 0], last.l[row], w.O[row, 0], self.inside * s.d, more
        self._step("store", *told, written=self.inside * s.d * plan.word)
        self._store(w.q0, w.O)

    def _followed(self, shown: Sequence[Tile]) -> int:
        """The row whose maximum moves most often; of several the first or, if causal, the last, which sees most."""
        moves = np.sum(
            [later.m != tile.m for tile, later in itertools.pairwise(shown)] or [0 * shown[0].m], axis=0
        )
        rows = np.flatnonzero(moves == moves.max())
        return int(rows[-1 if self.s.causal else 0])

    def _seen(self, i: int) -> int:
        return i + 1 if self.s.causal and i < self.s.N else self.s.N

    def _step(self, kind: str, *args: float, tile: Tile | None = None, **moved: int) -> None:
        """A step, with what it moves in shared memory; `tile`: the one that exists now."""
        base = {"first P": "P", "P same": "P", "K next": "K"}.get(kind, kind)
        self.r.step(kind, *args, shared=self._shared(base, tile and tile.j0), **moved)
        if tile:
            first = self.w.q0 - self.part.queries.start
            keys = range(tile.j0, min(tile.j0 + self.plan.Bc, self.part.keys))
            self.r.look("SP", grid(range(first, first + len(self.w.Q)), keys, self.part.keys))

    def _shared(self, kind: str, j0: int | None) -> int:
        """Bytes of shared memory; of a tile of keys from j0 on warps of mma.sync take part that see one of them."""
        plan, moved = self.plan, self.plan.traffic.get(kind, 0)
        if not plan.halves or j0 is None or kind not in ("scores", "O"):
            return moved
        warps = plan.threads // 32
        lasts = self.q0 + (np.arange(warps) + 1) * (plan.Br // warps) - 1
        return moved // warps * sum(j0 < self._seen(int(i)) for i in lasts)

    # -- a tile -------------------------------------------------------------------------------------
    def _tile(self, n: int, tile: Tile) -> None:
        plan, old = self.plan, self.w.tiles[n - 1] if n else None
        next_early = plan.binary and not plan.halves  # K, while V is on its way
        if plan.halves:
            self._fetch(n + plan.stages - 1)
        else:
            if not next_early or n == 0:
                self._load("K", n)
            self._load("V", n)
        self._scores(n, tile)
        self._maximum(tile, old)
        if plan.halves and old:
            self._shrink(tile, old)
        self._exponents(tile, old)
        self._sums(tile, old)
        if not plan.halves and old:
            self._shrink(tile, old)
        if next_early and n + 1 < len(self.shown):
            self._load("K", n + 1, "K next")
        self._step("O", self.i, tile.shrunk[self.row, 0], tile.O[self.row, 0], tile=tile)
        self.r.look("Ps", np.arange(tile.P.size))
        self.r.look("Vs", self._stage(n))
        self.r.put("o", tile.O[:, : self.part.cols])

    def _fetch(self, n: int) -> None:
        """Both of a tile that is shown."""
        if n < len(self.shown):
            self._load("K", n)
            self._load("V", n)

    def _stage(self, n: int) -> np.ndarray:
        """Cells of Ks or Vs where tile n lies."""
        size = self.plan.Bc * self.part.cols
        return n % self.plan.stages * size + np.arange(size)

    def _load(self, name: str, n: int, kind: str = "") -> None:
        s, plan, cols = self.s, self.plan, self.part.cols
        j0 = n * plan.Bc
        inside = min(plan.Bc, s.N - j0)
        told = n + 1, self.w.visited, j0, j0 + inside - 1, inside * s.d, n % plan.stages
        self._step(kind or name, *told, read=inside * s.d * plan.word)
        key = j0 + np.arange(plan.Bc)[:, None]
        self.r.copy(f"{name}s", name, np.where(key < s.N, key * cols + np.arange(cols), -1), self._stage(n))

    def _scores(self, n: int, tile: Tile) -> None:
        below = np.isfinite(tile.scores[self.row]) & (tile.P[self.row] < 1)
        self.j = int(below.argmax() if below.any() else tile.P[self.row].argmax())
        self._step("scores", self.i, tile.j0 + self.j, tile.products[self.row, self.j], tile=tile)
        self.r.look("Qs", np.arange(len(self.w.Q) * self.part.cols))
        self.r.look("Ks", self._stage(n))
        self.r.put("s", tile.products)
        if (hidden := tile.hidden).any():
            self.hidden = True
            after = hidden[:, : max(0, self.s.N - tile.j0)].any()
            self._step("mask causal" if after else "mask end", self.s.N, tile=tile)
            self.r.put("s", tile.scores[hidden], np.flatnonzero(hidden))

    def _maximum(self, tile: Tile, old: Tile | None) -> None:
        row, by = self.row, self.w.factor if self.plan.halves else 1
        most = tile.scores[row].max()
        kind = "first max" if old is None else "max" if np.isfinite(most) else "max hidden"
        self._step(
            kind, self.i, most * by, old.m[row] if old else 0, tile.m[row], tile.shrink[row], tile=tile
        )
        self.r.look("s", np.arange(tile.P.size))
        self.r.put("m", tile.m)
        if self.plan.halves:
            self.r.put("shrink", tile.shrink)

    def _exponents(self, tile: Tile, old: Tile | None) -> None:
        row, j, by = self.row, self.j, self.w.factor if self.plan.halves else 1
        gap = 0 if old is None else old.m[row] - tile.m[row]
        kind = "first P" if old is None else "P" if gap else "P same"
        told = tile.scores[row, j] * by - tile.m[row], tile.P[row, j], gap, tile.shrink[row]
        self._step(kind, self.i, tile.j0 + j, *told, tile=tile)
        self.r.look("s", np.arange(tile.P.size))
        self.r.look("m", np.arange(len(self.w.Q)))
        if not self.plan.halves:
            self.r.put("shrink", tile.shrink)
        self.r.put("Ps", tile.P)

    def _sums(self, tile: Tile, old: Tile | None) -> None:
        row = self.row
        before, p = old.l[row] if old else 0, tile.P[row].sum(dtype=np.float32)
        self._step("l" if old else "first l", self.i, before, tile.shrink[row], p, tile.l[row], tile=tile)
        self.r.look("shrink", np.arange(len(self.w.Q)))
        self.r.put("l", tile.l)

    def _shrink(self, tile: Tile, old: Tile) -> None:
        self._step("shrink", self.i, old.O[self.row, 0], tile.shrunk[self.row, 0], tile=tile)
        self.r.look("shrink", np.arange(len(self.w.Q)))
        self.r.put("o", tile.shrunk[:, : self.part.cols])

    # -- the end ------------------------------------------------------------------------------------
    def _rest(self) -> None:
        """The tiles that are not shown."""
        s, plan, w = self.s, self.plan, self.w
        left = range(len(self.shown), w.visited)
        if not left:
            return
        keys = min(w.visited * plan.Bc, s.N)
        read = 2 * plan.word * (keys - left.start * plan.Bc) * s.d
        shared = sum(
            self._shared(kind, n * plan.Bc) for kind in plan.traffic if kind != "start" for n in left
        )
        self.r.step("rest", len(left), keys - 1, read=read, shared=shared)
        for name, values in (("m", w.last.m), ("l", w.last.l), ("o", w.last.O[:, : self.part.cols])):
            self.r.put(name, values)

    def _skip(self) -> None:
        visited, tiles = self.w.visited, -(-self.s.N // self.plan.Bc)
        if visited < tiles:
            kind = "skip one" if tiles - visited == 1 else "skip"
            self._step(kind, visited + 1, tiles, visited * self.plan.Bc, self.s.N - 1)

    def _store(self, q0: int, O: np.ndarray) -> None:
        first, cols = q0 - self.part.queries.start, self.part.cols
        self.r.put("O", O[:, :cols], grid(range(first, first + len(O)), range(cols), cols))
