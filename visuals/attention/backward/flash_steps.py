"""The steps of flash attention's backward pass: of blocks that own keys, then of one that owns queries."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from visuals.attention.backward import captions
from visuals.attention.backward.numbers import Numbers, key_gradients, next_dQ, query_gradients
from visuals.attention.backward.plan import MAX_PASSING, MAX_TILE, Part, Plan, key_tiles, query_tiles, shown, tiles_of
from visuals.attention.parts import grid
from visuals.scene.recorder import Recorder
from visuals.scene.requests import WORD


class FlashBackwardSteps:
    """The steps of the followed blocks, and what the others leave in the part of global memory that is shown."""

    def __init__(self, s: AttentionBackwardShape, plan: Plan, part: Part, head: Mapping[str, np.ndarray]):
        self.s, self.plan, self.part, self.head = s, plan, part, head
        self.n = Numbers(s, head, plan.halves)
        self.r = Recorder(captions.templates_of(plan, s))
        self.tile_sizes = (*plan.key_kernel, *plan.query_kernel)
        self.rows_shown = min(max(plan.key_kernel[0], plan.query_kernel[0]), s.N, MAX_TILE)
        self.keys_shown = min(max(plan.key_kernel[1], plan.query_kernel[1]), s.N, MAX_TILE)
        self.dQ = np.zeros((len(part.queries), s.d), np.float32)  # in memory, while blocks add to it
        self._begin()
        for block in part.key_blocks:
            self._own_keys(block)
        self._other_keys()
        if not plan.atomic:
            self._own_queries()
            self._other_queries()

    # -- cells --------------------------------------------------------------------------------------
    def _global(self, name: str, rows: range) -> np.ndarray:
        """Returns the cells of some rows of a tensor of global memory."""
        first = (self.part.keys if name in ("K", "V", "dK", "dV") else self.part.queries).start
        cols = 1 if name in ("L", "D") else self.part.cols
        return grid(range(rows.start - first, rows.stop - first), range(cols), cols)

    def _copy(self, target: str, source: str, rows: range, size: int) -> None:
        """Records the copy of rows to a tile; elements beyond the matrix are zero, and older rows are overwritten."""
        index = np.full((size, self.part.cols), -1)
        index[: len(rows)] = self._global(source, rows)
        self.r.copy(target, source, index)

    def _put_square(self, name: str, values: np.ndarray) -> None:
        """Records a tile of P or dS, zero outside the tile that is shown."""
        full = np.zeros((self.rows_shown, self.keys_shown), np.float32)
        part = values[: self.rows_shown, : self.keys_shown]
        full[: part.shape[0], : part.shape[1]] = part
        self.r.put(name, full)

    def _put_sums(self, name: str, values: np.ndarray) -> None:
        size = self.rows_shown if name == "dq" else self.keys_shown
        values = values[:size, : self.part.cols]
        self.r.put(name, values, grid(range(len(values)), range(self.part.cols), self.part.cols))

    def _store(self, name: str, first: int, values: np.ndarray) -> None:
        """Records the store of rows from `first` on, as far as they are shown."""
        within = self.part.keys if name in ("dK", "dV") else self.part.queries
        rows = range(max(first, within.start), min(first + len(values), within.stop))
        if len(rows):
            self.r.put(name, values[rows.start - first : rows.stop - first, : self.part.cols], self._global(name, rows))

    def _in_memory(self, tile: range) -> range:
        """Returns the queries of a tile that global memory shows."""
        return range(max(tile.start, self.part.queries.start), min(tile.stop, self.part.queries.stop))

    def _inside(self, tile: range, kind: str) -> range:
        return shown(tile, self.part.queries if kind == "queries" else self.part.keys)

    # -- launches before ----------------------------------------------------------------------------
    def _begin(self) -> None:
        r, queries = self.r, self.part.queries
        r.step("dots", self.n.D[0])
        r.look("dO", self._global("dO", queries))
        r.look("O", self._global("O", queries))
        r.put("D", self.n.D[queries.start : queries.stop])
        if self.plan.atomic:
            r.step("zero")
            self._store("dQ", queries.start, self.dQ)

    # -- a block of keys ----------------------------------------------------------------------------
    def _own_keys(self, block: int) -> None:
        s, r, plan = self.s, self.r, self.plan
        size = plan.key_kernel[1]
        keys = range(block * size, min(block * size + size, s.N))
        self.keys, self.j = keys, keys.start
        visits = query_tiles(s, plan, keys)
        read = 2 * len(keys) * s.d * plan.word
        if visits[0].start:
            r.step("own-later", keys.start, keys.stop - 1, visits[0].start, read=read)
        else:
            r.step("own", keys.start, keys.stop - 1, s.N, read=read)
        for target in ("K", "V"):
            self._copy(f"{target}s", target, self._inside(keys, "keys"), self.keys_shown)
        self.dK, self.dV = np.zeros((2, len(keys), s.d), np.float32)
        self._put_sums("dv", self.dV)
        self._put_sums("dk", self.dK)
        drawn = [tile for tile in visits if len(self._inside(tile, "queries"))]
        drawn = drawn if len(drawn) <= MAX_PASSING + 1 else drawn[:MAX_PASSING]
        for tile in drawn:
            self._queries_pass(tile, first=tile == visits[0])
        self._more_queries(visits[len(drawn) :])
        dK, dV = self.n.stored(self.dK, self.n.scale), self.n.stored(self.dV)
        r.step("store", s.factor, keys.start, self.dK[0, 0], dK[0, 0], written=2 * len(keys) * s.d * plan.word)
        self._store("dK", keys.start, dK)
        self._store("dV", keys.start, dV)

    def _queries_pass(self, tile: range, first: bool) -> None:
        """Records the steps of one tile of queries. `first`: of the block's tiles; later ones need no barrier of their own
        on tensor cores."""
        s, r, n, plan = self.s, self.r, self.n, self.plan
        rows = self._inside(tile, "queries")
        r.step("load", tile.start, tile.stop - 1, read=2 * len(tile) * s.d * plan.word + 2 * WORD * len(tile))
        self._copy("Qs", "Q", rows, self.rows_shown)
        self._copy("dOs", "dO", rows, self.rows_shown)
        if first or not plan.halves:
            r.step("loaded", tile.start, tile.stop - 1)
        t = n.tile(tile, self.keys)
        i = self._followed(t.P)
        at = tile.start + i
        self._step_P("P", t, tile, self.keys, i, 0)
        if not plan.halves:
            r.step("P-there")
        self._step_dS("dS", t, tile, self.keys, i, 0)
        self._add(tile, t)
        r.step("sums", tile.start, tile.stop - 1, self.j, self.dV[0, 0], self.dK[0, 0])
        for name in ("Qs", "dOs", "Ps", "dSs"):
            r.look(name, np.arange(self.rows_shown * (self.keys_shown if name in ("Ps", "dSs") else self.part.cols)))
        self._put_sums("dv", self.dV)
        self._put_sums("dk", self.dK)
        r.step("dS-there" if plan.atomic else "used")
        if plan.atomic:
            self._add_dQ(tile, t, at)

    @staticmethod
    def _followed(P: np.ndarray) -> int:
        """Returns the first query of a tile that sees the tile's first key; 0 if none does."""
        seen = np.flatnonzero(P[:, 0])
        return int(seen[0]) if len(seen) else 0

    def _step_P(self, kind: str, t, queries: range, keys: range, i: int, j: int) -> None:
        L = self.head["L"][queries.start + i]
        exponent = t.sums[i, j] * self.n.scale - L
        self.r.step(kind, queries.start + i, keys.start + j, t.sums[i, j], exponent, t.P[i, j], L)
        self.r.look("L", self._global("L", self._inside(queries, "queries")))
        self.r.look("Qs", np.arange(self.rows_shown * self.part.cols))
        self.r.look("Ks", np.arange(self.keys_shown * self.part.cols))
        self._put_square("Ps", t.P)

    def _step_dS(self, kind: str, t, queries: range, keys: range, i: int, j: int) -> None:
        D = self.n.D[queries.start + i]
        self.r.step(kind, queries.start + i, keys.start + j, t.P[i, j], t.dP[i, j], D, t.dS[i, j])
        self.r.look("D", self._global("D", self._inside(queries, "queries")))
        self.r.look("dOs", np.arange(self.rows_shown * self.part.cols))
        self.r.look("Vs", np.arange(self.keys_shown * self.part.cols))
        self._put_square("dSs", t.dS)

    def _add(self, tile: range, t) -> None:
        self.dV = self.n.add_columns(self.dV, t.P, self.head["dO"][tile.start : tile.stop])
        self.dK = self.n.add_columns(self.dK, t.dS, self.head["Q"][tile.start : tile.stop])

    def _add_dQ(self, tile: range, t, at: int) -> None:
        """Records the step that adds this tile's part to dQ."""
        first = self.part.queries.start
        rows = self._in_memory(tile)
        before = self.dQ[rows.start - first : rows.stop - first]
        after = next_dQ(self.n, before, t.dS[: len(rows)], self.keys, atomic=True)
        i = min(at, rows.stop - 1) - rows.start
        part = WORD * len(tile) * self.s.d
        self.r.step("dQ", rows.start + i, before[i, 0], after[i, 0] - before[i, 0], after[i, 0], added=part)
        self.r.look("dSs", np.arange(self.rows_shown * self.keys_shown))
        self.r.look("Ks", np.arange(self.keys_shown * self.part.cols))
        self.dQ[rows.start - first : rows.stop - first] = after
        self._store("dQ", rows.start, after)

    def _more_queries(self, tiles: list[range]) -> None:
        """Records one step for all tiles that pass by after those shown one by one."""
        if not tiles:
            return
        for tile in tiles:
            t = self.n.tile(tile, self.keys)
            self._add(tile, t)
            rows = self._in_memory(tile)
            if self.plan.atomic and len(rows):
                first = self.part.queries.start
                place = slice(rows.start - first, rows.stop - first)
                self.dQ[place] = next_dQ(self.n, self.dQ[place], t.dS[: len(rows)], self.keys, atomic=True)
        count = tiles[-1].stop - tiles[0].start
        moved = {"read": count * (2 * self.s.d * self.plan.word + 2 * WORD)}
        if self.plan.atomic:
            moved["added"] = WORD * count * self.s.d
        args = tiles[0].start, tiles[-1].stop - 1, len(tiles[0]), self.j, self.dV[0, 0], self.dK[0, 0]
        self.r.step("more", *args, **moved)
        self._put_sums("dv", self.dV)
        self._put_sums("dk", self.dK)
        if self.plan.atomic:
            self._store("dQ", self.part.queries.start, self.dQ)

    def _other_keys(self) -> None:
        """Records the last step of the launch: what the other blocks of keys store, where it is shown."""
        s, plan, n = self.s, self.plan, self.n
        Br, Bc = plan.key_kernel
        blocks = -(-s.N // Bc)
        others = blocks * s.heads > len(self.part.key_blocks)
        kinds = ("all-others", "all") if plan.atomic else ("others", "only")
        self.r.step(kinds[0] if others else kinds[1], blocks * s.heads)
        for block, keys in enumerate(tiles_of(0, s.N, Bc)):
            if block not in self.part.key_blocks and len(self.part.keys) == s.N:
                dK, dV = key_gradients(n, keys, query_tiles(s, plan, keys))
                self._store("dK", keys.start, n.stored(dK, n.scale))
                self._store("dV", keys.start, n.stored(dV))
        if plan.atomic:
            for tile in tiles_of(0, s.N, Br):
                if len(rows := self._in_memory(tile)):
                    found = query_gradients(n, rows, key_tiles(s, tile, Bc), atomic=True)
                    self._store("dQ", rows.start, found)

    # -- a block of queries -------------------------------------------------------------------------
    def _own_queries(self) -> None:
        s, r, plan, n = self.s, self.r, self.plan, self.n
        Br, Bc = plan.query_kernel
        queries = range(self.part.query_block * Br, min(self.part.query_block * Br + Br, s.N))
        rows = self._inside(queries, "queries")
        read = 2 * len(queries) * s.d * plan.word + 2 * WORD * len(queries)
        r.step("q-own", queries.start, queries.stop - 1, read=read)
        self._copy("Qs", "Q", rows, self.rows_shown)
        self._copy("dOs", "dO", rows, self.rows_shown)
        self.dq, self.row = (
            np.zeros((len(queries), s.d), np.float32),
            queries.stop - 1 - queries.start if s.causal else 0,
        )
        self.row = min(self.row, self.rows_shown - 1)
        self._put_sums("dq", self.dq)
        for seen, tiles in self._runs(key_tiles(s, queries, Bc)):
            if seen:
                for tile in tiles:
                    self._keys_pass(queries, tile)
            else:
                self._more_keys(queries, tiles)
        dQ = n.stored(self.dq, n.scale)
        at = queries.start + self.row
        args = s.factor, at, self.dq[self.row, 0], dQ[self.row, 0]
        r.step("q-store", *args, written=len(queries) * s.d * plan.word)
        self._store("dQ", queries.start, dQ)

    def _runs(self, visits: list[range]) -> list[tuple[bool, list[range]]]:
        """Returns runs of tiles of keys in turn: whether they are shown one by one, and the tiles."""
        drawn = [tile for tile in visits if len(self._inside(tile, "keys"))]
        drawn = drawn if len(drawn) <= MAX_PASSING + 1 else drawn[:MAX_PASSING]
        return [(seen, list(tiles)) for seen, tiles in groupby(visits, lambda tile: tile in drawn)]

    def _keys_pass(self, queries: range, tile: range) -> None:
        s, r, n, plan = self.s, self.r, self.n, self.plan
        r.step("q-load", tile.start, tile.stop - 1, read=2 * len(tile) * s.d * plan.word)
        for target in ("K", "V"):
            self._copy(f"{target}s", target, self._inside(tile, "keys"), self.keys_shown)
        if tile.start == 0 or not plan.halves:
            r.step("q-loaded", tile.start, tile.stop - 1)
        t = n.tile(queries, tile)
        self._step_P("q-P", t, queries, tile, self.row, 0)
        self._step_dS("q-dS", t, queries, tile, self.row, 0)
        if not plan.halves:
            r.step("q-dS-there")
        self.dq = next_dQ(n, self.dq, t.dS, tile, atomic=False)
        r.step("q-dQ", tile.start, tile.stop - 1, queries.start + self.row, self.dq[self.row, 0])
        r.look("dSs", np.arange(self.rows_shown * self.keys_shown))
        r.look("Ks", np.arange(self.keys_shown * self.part.cols))
        self._put_sums("dq", self.dq)
        r.step("q-used")

    def _more_keys(self, queries: range, tiles: list[range]) -> None:
        if not tiles:
            return
        for tile in tiles:
            self.dq = next_dQ(self.n, self.dq, self.n.tile(queries, tile).dS, tile, atomic=False)
        count = sum(len(tile) for tile in tiles)
        at = queries.start + self.row
        args = tiles[0].start, tiles[-1].stop - 1, len(tiles[0]), at, self.dq[self.row, 0]
        self.r.step("q-more", *args, read=2 * count * self.s.d * self.plan.word)
        self._put_sums("dq", self.dq)

    def _other_queries(self) -> None:
        s, n, part = self.s, self.n, self.part
        Br, Bc = self.plan.query_kernel
        blocks = -(-s.N // Br)
        self.r.step("q-others" if blocks * s.heads > 1 else "q-only", blocks * s.heads)
        for block, queries in enumerate(tiles_of(0, s.N, Br)):
            rows = self._in_memory(queries)
            if block != part.query_block and len(rows):
                self._store("dQ", rows.start, query_gradients(n, rows, key_tiles(s, queries, Bc), atomic=False))
