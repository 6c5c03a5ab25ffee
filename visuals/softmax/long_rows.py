# ruff: noqa: E741  # l is the name of the paper
"""The steps of one row in several blocks: in a cluster that exchanges m and l, in parts over two launches, or in one
launch whose blocks exchange m and l through global memory.

Threads of all blocks are numbered through. A tensor of registers belongs to one block: m_1 is m of block 1. One of shared
memory has a row for each block. The values are computed here as in the kernels, in float32, thread by thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from visuals.scene.requests import BITS, LANES
from visuals.softmax.rows import RowSteps, State, Step, empty, example, merge, part, put, totals

FOUR = 4  # floats of a load
FUNCTIONS = {"ld": "load_four(", "st": "store_four("}  # that load x and store y
# By rung: the tile size that is the number of blocks of a row, if x has no other.
BLOCKS: Mapping[str, str] = {"softmax/cluster": "CLUSTER", "softmax/split": "BLOCKS", "softmax/one-launch": "BLOCKS"}
Writes = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Fours:
    """Columns of a row that all blocks load in one iteration, with the thread of each and its place among four."""

    cols: np.ndarray
    thread: np.ndarray
    place: np.ndarray

    @property
    def active(self) -> np.ndarray:
        """Returns the threads that have a column, each once."""
        return np.unique(self.thread)


@dataclass(frozen=True)
class PartSteps(RowSteps):
    """Yields the steps of a row whose parts have a block each. `threads`: of all `blocks`."""

    blocks: int = 1

    @property
    def block(self) -> int:
        return self.threads // self.blocks

    @property
    def length(self) -> int:
        """Returns the columns of a part: whole groups of four. The last parts may have fewer."""
        return FOUR * -(-len(self.x) // (FOUR * self.blocks))

    @property
    def iterations(self) -> int:
        return -(-self.length // (FOUR * self.block))

    def fours(self, iteration: int) -> Fours:
        """Returns the columns of an iteration: a thread has four, the threads of a block follow each other."""
        thread = np.arange(self.threads)
        block, own = np.divmod(thread, self.block)
        first = block * self.length + FOUR * (iteration * self.block + own)
        end = np.minimum((block + 1) * self.length, len(self.x))
        cols = first[:, None] + np.arange(FOUR)
        inside = cols < end[:, None]
        place = np.broadcast_to(np.arange(FOUR), cols.shape)
        return Fours(cols[inside], np.repeat(thread, FOUR)[inside.ravel()], place[inside])

    # -- tensors of one block ----------------------------------------------------------------------------
    def by_block(self, name: str, row: int, values: np.ndarray, threads: int = 0) -> Writes:
        """Returns the writes of one value per thread into row `row` of each block's tensor, of the first `threads` of a
        block or of all."""
        cells = row * self.block + np.arange(threads or self.block)
        return {f"{name}_{b}": (cells, of[: len(cells)]) for b, of in enumerate(values.reshape(self.blocks, -1))}

    def state_writes(self, row: int, state: State, threads: int = 0) -> Writes:
        return {t: w for name, values in state.items() for t, w in self.by_block(name, row, values, threads).items()}

    def of_warps(self) -> dict[str, np.ndarray]:
        """Returns the cells of shared memory in which the m and l of all warps are: a row for each block."""
        warps = np.arange(self.threads // LANES)
        return {"warp_m": warps, "warp_l": warps}

    # -- steps that several rungs have --------------------------------------------------------------------------
    def exchanges(self, state: State) -> Generator[Step, None, State]:
        """Yields the five exchanges of the lanes of each warp, in rows 1 to 5 of m and l. Returns the state."""
        every, now = np.arange(self.threads), totals(state)
        for row, bit in enumerate(BITS):
            merged = merge(state, part(state, every ^ bit))
            reads = {name: cells for name, (cells, _) in self.state_writes(row, state).items()}
            args = (bit, *example(state, merged, 0, bit))
            yield Step("swap_ml", args, every, reads, self.state_writes(row + 1, merged), **now)
            state = merged
        return state

    def stored_by_warps(self, kind: str, state: State) -> Generator[Step, None, State]:
        """Yields the step in which the first lane of each warp stores m and l. Returns them, one a warp."""
        heads = np.arange(0, self.threads, LANES)
        of_warp = part(state, heads)
        writes = {f"warp_{name}": (np.arange(len(heads)), values) for name, values in of_warp.items()}
        yield Step(kind, (self.blocks, len(heads)), heads, {}, writes, **totals(of_warp))
        return of_warp

    def stored_by_blocks(self, kind: str, of_warp: State) -> Generator[Step, None, State]:
        """Yields the step in which thread 0 of each block stores m and l of its warps together. Returns them, one a block."""
        warps = self.block // LANES
        parts = empty(self.blocks, "ml")
        for warp in range(warps):
            parts = merge(parts, part(of_warp, np.arange(warp, len(of_warp["m"]), warps)))
        every_part = np.arange(self.blocks)
        writes = {f"part_{name}": (every_part, values) for name, values in parts.items()}
        args = (self.blocks, float(parts["m"][0]), float(parts["l"][0]))
        yield Step(kind, args, every_part * self.block, self.of_warps(), writes, **totals(parts))
        return parts

    def spread(self, parts: State, lanes: np.ndarray) -> State:
        """Returns what each lane of these threads merges of the parts: lane k has part k, k + 32 and so on. The other
        threads have none."""
        state = empty(self.threads, "ml")
        count = len(parts["m"])
        for first in range(0, count, LANES):
            k = first + lanes % LANES
            at = lanes[k < count]
            state = put(state, at, merge(part(state, at), part(parts, k[k < count])))
        return state

    def merged(self, state: State, active: np.ndarray) -> State:
        """Returns the state after five exchanges of the lanes of the `active` threads, which are whole warps."""
        for bit in BITS:
            state = put(state, active, merge(part(state, active), part(state, active ^ bit)))
        return state

    def place(self, thread: int) -> tuple[int, int]:
        """Returns (thread in its block, block) for a caption."""
        block, own = divmod(int(thread), self.block)
        return own, block

    def best(self, cols: np.ndarray) -> int:
        """Returns which of these columns a caption names: the first NaN, else the largest result."""
        nan = np.isnan(self.y[cols])
        return int(nan.argmax()) if nan.any() else int(np.argmax(self.y[cols]))


def cluster(w: PartSteps) -> Iterator[Step]:
    """Yields the steps of softmax/cluster."""
    every = np.arange(w.threads)
    v, own = yield from _exponentials(w)
    state = yield from w.exchanges(own)
    parts = yield from w.stored_by_warps("cluster_ml", state)
    now = totals(parts)
    state = w.spread(parts, every)
    row = len(BITS) + 1
    k = int(np.argmax(parts["m"]))
    block, warp = divmod(k, w.block // LANES)
    args = (k % LANES, warp, block, float(parts["m"][k]), float(parts["l"][k]))
    yield Step("fetch_ml", args, every, w.of_warps(), w.state_writes(row, state), **now)
    reads = {name: cells for name, (cells, _) in w.state_writes(row, state).items()}
    state = w.merged(state, every)
    args = (float(state["m"][0]), float(state["l"][0]))
    yield Step("whole_ml", args, every, reads, w.state_writes(row + 1, state), m=args[0], l=args[1])
    yield from _stored(w, v, _factor(own, state), args)


def one_launch(w: PartSteps) -> Iterator[Step]:
    """Yields the steps of softmax/one-launch."""
    every = np.arange(w.threads)
    v, own = yield from _exponentials(w)
    state = yield from w.exchanges(own)
    of_warp = yield from w.stored_by_warps("block_ml", state)
    parts = yield from w.stored_by_blocks("store_words", of_warp)
    row, first_warps = len(BITS) + 1, every[every % w.block < LANES]
    state = w.spread(parts, every)
    k = int(np.argmax(parts["m"]))
    args = (w.blocks, k % LANES, k, float(parts["m"][k]), float(parts["l"][k]))
    stored = {f"part_{name}": np.arange(w.blocks) for name in parts}
    writes = w.state_writes(row, state, LANES)
    yield Step("load_words", args, first_warps, stored, writes, **totals(parts))
    reads = {name: cells for name, (cells, _) in writes.items()}
    state = w.merged(state, every)
    args = (float(state["m"][0]), float(state["l"][0]))
    yield Step("whole_words", args, every, reads, w.state_writes(row + 1, state), m=args[0], l=args[1])
    yield from _stored(w, v, _factor(own, state), args)


def _factor(own: State, of_row: State) -> np.ndarray:
    """Returns the factor of each thread's exponentials, float32 [threads]."""
    m = of_row["m"]
    return np.exp(own["m"] - np.where(m == -np.inf, np.float32(0), m)) / of_row["l"]


def _exponentials(w: PartSteps) -> Generator[Step, None, tuple[np.ndarray, State]]:
    """Yields the loads of a row and the exponentials of each thread's numbers. Returns (values, m and l of each
    thread). values [4 iterations, threads of a block], of each block: its part of the row, -inf past its end; later its
    exponentials."""
    every = np.arange(w.threads)
    v = yield from _loaded(w)
    own = {"m": np.fmax.reduce(v, axis=0)}
    k = int(np.argmax(own["m"]))
    rows = {name: np.arange(v.shape[0] * w.block) for name in (f"values_{b}" for b in range(w.blocks))}
    now = totals(own)
    args = (*w.place(k), float(own["m"][k]))
    yield Step("own_max", args, every, rows, w.by_block("m", 0, own["m"]), **now)
    v = np.exp(v - np.where(own["m"] == -np.inf, np.float32(0), own["m"]))
    own["l"] = v.sum(axis=0, dtype=np.float32)
    writes = _value_writes(w, 0, v) | w.by_block("l", 0, own["l"])
    args = (*w.place(k), float(own["m"][k]), float(v[0, k]), float(own["l"][k]))
    yield Step("own_exp", args, every, rows, writes, **totals(own))
    return v, own


def _value_writes(w: PartSteps, row: int, v: np.ndarray) -> Writes:
    """Returns the writes of registers [n, threads] from register `row` on."""
    cells = row * w.block + np.arange(v.shape[0] * w.block)
    by_block = v.reshape(v.shape[0], w.blocks, w.block)
    return {f"values_{b}": (cells, by_block[:, b].ravel()) for b in range(w.blocks)}


def _loaded(w: PartSteps) -> Generator[Step, None, np.ndarray]:
    """Yields the loads of a row. Returns its registers, float32 [4 iterations, threads]."""
    every, v = np.arange(w.threads), np.full((FOUR * w.iterations, w.threads), -np.inf, np.float32)
    for iteration in range(w.iterations):
        f, row = w.fours(iteration), FOUR * iteration
        v[row + f.place, f.thread] = w.x[f.cols]
        writes = _value_writes(w, row, v[row : row + FOUR])
        args = (iteration + 1, w.iterations, w.blocks, w.length, len(f.active), w.threads - len(f.active))
        kind = "load_fours_rest" if args[-1] else "load_fours"
        yield Step(kind, args, every, {"x": f.cols}, writes)
    return v


def _stored(w: PartSteps, v: np.ndarray, factor: np.ndarray, m_l: tuple[float, float]) -> Iterator[Step]:
    for iteration in range(w.iterations):
        f, row = w.fours(iteration), FOUR * iteration
        k = w.best(f.cols)
        at = f.thread[k]
        args = (
            iteration + 1,
            w.iterations,
            *w.place(at),
            float(v[row + f.place[k], at]),
            float(factor[at]),
            float(w.y[f.cols[k]]),
        )
        kind = "put_own_nan" if np.isnan(args[-1]) else "put_own"
        cells = np.arange(row * w.block, (row + FOUR) * w.block)
        reads = {f"values_{b}": cells for b in range(w.blocks)}
        writes = {"y": (f.cols, w.y[f.cols])}
        yield Step(kind, args, f.active, reads, writes, m=m_l[0], l=m_l[1])


def split(w: PartSteps) -> Iterator[Step]:
    """Yields the steps of softmax/split: the first launch, then the second."""
    state = yield from _running(w)
    state = yield from w.exchanges(state)
    of_warp = yield from w.stored_by_warps("block_ml", state)
    parts = yield from w.stored_by_blocks("store_parts", of_warp)
    row, now = len(BITS) + 1, totals(parts)

    f = w.fours(0)
    yield Step("load_again", (), f.active, {"x": f.cols}, {}, **now)
    every = np.arange(w.threads)
    state = w.spread(parts, every)
    k = int(np.argmax(parts["m"]))
    args = (w.blocks, k % LANES, k, float(parts["m"][k]), float(parts["l"][k]))
    stored = {f"part_{name}": np.arange(w.blocks) for name in parts}
    yield Step("read_parts", args, every, stored, w.state_writes(row, state), **now)
    reads = {name: cells for name, (cells, _) in w.state_writes(row, state).items()}
    state = w.merged(state, every)
    args = (float(state["m"][0]), float(state["l"][0]))
    yield Step("whole_ml", args, every, reads, w.state_writes(row + 1, state), m=args[0], l=args[1])
    yield from _again(w, *args)


def _running(w: PartSteps) -> Generator[Step, None, State]:
    """Yields the iterations of the first read, in which each thread merges the columns that it loads. Returns the
    state."""
    state = empty(w.threads, "ml")
    for iteration in range(w.iterations):
        f = w.fours(iteration)
        for place in range(FOUR):
            now = f.place == place
            t, x = f.thread[now], w.x[f.cols[now]]
            state = put(state, t, merge(part(state, t), {"m": x, "l": np.ones_like(x)}))
        k = int(np.argmax(np.where(np.isnan(w.x[f.cols]), np.inf, w.x[f.cols])))
        t = f.thread[k]
        args = (
            iteration + 1,
            w.iterations,
            w.blocks,
            w.length,
            *w.place(t),
            float(state["m"][t]),
            float(state["l"][t]),
        )
        yield Step("part_fours", args, f.active, {"x": f.cols}, w.state_writes(0, state), **totals(state))
    return state


def _again(w: PartSteps, m: float, l: float) -> Iterator[Step]:
    """Yields the iterations of the second read: each writes y, then loads the columns of the next one."""
    for iteration in range(w.iterations):
        f = w.fours(iteration)
        k = w.best(f.cols)
        args = (iteration + 1, w.iterations, *w.place(f.thread[k]), float(w.x[f.cols[k]]), m, l, float(w.y[f.cols[k]]))
        kind = "again_nan" if np.isnan(args[-1]) else "again"
        yield Step(kind, args, f.active, {}, {"y": (f.cols, w.y[f.cols])}, m=m, l=l)
        if iteration + 1 < w.iterations:
            f = w.fours(iteration + 1)
            yield Step("load_next", (iteration + 2, w.iterations), f.active, {"x": f.cols}, {}, m=m, l=l)
