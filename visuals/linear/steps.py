"""The steps of the scenes of a fully connected layer: block (0, 0) step by step, then the other blocks. The sums of thread 0 are
computed here in float32 as in the kernel; what is stored comes from the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kernels.linear.ladder import DWEIGHT, LINEAR
from visuals.linear.captions import tile_names
from visuals.linear.plan import Product, add_products, thread_cells, tile_of
from visuals.scene.launch_scene import Arrays, Executed
from visuals.scene.parts import Number
from visuals.scene.recorder import Recorder

FLOAT = 4  # bytes
FULL = 0xFFFFFFFF  # all lanes of a warp


@dataclass
class LinearSteps:
    """Records the steps of a rung; `run`: the executed program."""

    r: Recorder
    run: Executed
    inputs: Arrays
    ladder: str
    product: Product
    written: set[int] = field(default_factory=set)  # cells of the result

    @property
    def tiles(self):
        return self.run.tiles

    @property
    def left(self) -> np.ndarray:
        return self.inputs[self.product.left].ravel()

    @property
    def right(self) -> np.ndarray:
        return self.inputs[self.product.right].ravel()

    def step(self, kind: str, *args: Number, mask: int = FULL, **counts: int) -> None:
        self.r.step(kind, *map(float, args), warp=0, mask=mask, **counts)

    def block_cells(self, rows: int, cols: int) -> np.ndarray:
        """Returns the results of block (0, 0) with so many rows and columns: flat cells, int64[n]."""
        p = self.product
        cells = tile_of(p.of_result, (0, 0), (rows, cols), (p.rows, p.cols))
        return cells[cells >= 0]

    def put_result(self, target: str, values: np.ndarray, cells: np.ndarray) -> int:
        """Writes those of the cells that are not yet written, and returns how many they are."""
        new = np.array([cell for cell in cells if cell not in self.written], int)
        self.written.update(new.tolist())
        if new.size:
            self.r.put(target, values[new], new)
        return new.size


# -- naive -----------------------------------------------------------------------------------------------
def naive(s: LinearSteps) -> None:
    p, side = s.product, s.tiles["BLOCK"]
    s.step("begin", min(side, p.rows) - 1, min(side, p.cols) - 1)
    s.r.put("sum", np.zeros(1))
    total = np.zeros((1, 1), np.float32)
    for first, stop in _terms(p.depth):
        term = np.arange(first, stop)
        at_left, at_right = p.of_left(np.zeros_like(term), term), p.of_right(term, np.zeros_like(term))
        total = add_products(total, s.left[at_left][None], s.right[at_right][:, None])
        value = float(total[0, 0])
        if stop - first == 1:
            args = first, s.left[at_left[0]], s.right[at_right[0]], value
            s.step("term", *args, mask=1, read=2 * FLOAT)
        else:
            s.step("terms", first, stop - 1, value, mask=1, read=2 * FLOAT * (stop - first))
        s.r.look(p.left, at_left)
        s.r.look(p.right, at_right)
        s.r.put("sum", total)
    _store_naive(s)


def _terms(depth: int) -> list[tuple[int, int]]:
    """Returns the terms that a step shows: the first three one by one, then the others together."""
    single = [(k, k + 1) for k in range(min(depth, 3))]
    return single + ([(3, depth)] if depth > 3 else [])


def _store_naive(s: LinearSteps) -> None:
    p, result = s.product, s.run.last[s.product.result].ravel()
    if s.ladder == LINEAR:
        s.step("store_one_bias", s.inputs["b"][0], result[0], mask=1, read=FLOAT, written=FLOAT)
        s.r.look("b", np.array([0]))
    else:
        s.step("store_one", result[0], mask=1, written=FLOAT)
    s.put_result(p.result, result, np.array([0]))
    if result.size > 1:
        others = result.size - 1
        s.step("rest", read=(2 * p.depth + (s.ladder == LINEAR)) * FLOAT * others, written=FLOAT * others)
        s.put_result(p.result, result, np.arange(result.size))
    if s.ladder == DWEIGHT:
        dy, db = s.inputs["dy"], s.run.last["db"]
        s.step("column", len(dy), db[0], read=dy.nbytes, written=db.nbytes)
        s.r.look("dy", np.arange(dy.size))
        s.r.put("db", db)


# -- tiles -------------------------------------------------------------------------------------------------
def tile(s: LinearSteps) -> None:
    p, t = s.product, s.tiles
    s.step("start", min(t["BM"], p.rows) - 1, min(t["BN"], p.cols) - 1, t["TM"], t["TN"])
    _loop(s, 0, p.depth)
    result = s.run.last[p.result].ravel()
    store = "store_bias" if s.ladder == LINEAR else "store"
    _store_block(s, store, p.result, result, {"db": s.run.last["db"]} if s.ladder == DWEIGHT else {})
    if len(s.written) < result.size:
        blocks = int(np.prod(s.run.launches[0].grid)) - 1
        s.step("others", blocks, written=FLOAT * (result.size - len(s.written)))
        s.put_result(p.result, result, np.arange(result.size))
        if s.ladder == DWEIGHT:
            s.r.put("db", s.run.last["db"])


def split(s: LinearSteps) -> None:
    p, t = s.product, s.tiles
    splits, length = t["SPLITS"], ((p.depth - 1) // t["BK"] // t["SPLITS"] + 1) * t["BK"]
    s.step("start_part", min(t["BM"], p.rows) - 1, min(t["BN"], p.cols) - 1, t["TM"], t["TN"], splits)
    _loop(s, 0, min(length, p.depth))
    parts = s.run.last[f"{p.result}_parts"].ravel()
    db_parts = s.run.last["db_parts"].ravel() if s.ladder == DWEIGHT else np.zeros(0, np.float32)
    _store_block(s, "store_part", f"{p.result}_parts", parts, {"db_parts": db_parts} if db_parts.size else {})
    others = int(np.prod(s.run.launches[0].grid)) - 1
    s.step("others_part", others, written=FLOAT * (parts.size - len(s.written) + db_parts.size))
    s.put_result(f"{p.result}_parts", parts, np.arange(parts.size))
    if db_parts.size:
        s.r.put("db_parts", db_parts)
    _add_parts(s, "add_bias" if s.ladder == LINEAR else "add", "add_rest", p.result)
    if s.ladder == DWEIGHT:
        _add_parts(s, "add_db", "add_db_rest", "db")


def _loop(s: LinearSteps, first: int, stop: int) -> None:
    """Adds the steps of the loop over tiles of the terms first to stop - 1, in the kernel's order."""
    t = s.tiles
    count, ahead = -(-(stop - first) // t["BK"]), t["STAGES"] - 1
    sums = np.zeros((t["TM"], t["TN"]), np.float32)
    columns = np.zeros(t["BM"], np.float32)
    s.r.put("sum", sums)
    for n in range(min(ahead, count)):
        _copy(s, n, count, first, stop)
    for n in range(count):
        s.step("wait", n + 1)
        s.step("barrier", n + 1)
        if n + ahead < count:
            _copy(s, n + ahead, count, first, stop)
        sums = _multiply(s, n, sums, first, stop)
        if s.ladder == DWEIGHT:
            columns = _add_columns(s, n, columns, first, stop)


def _copy(s: LinearSteps, n: int, count: int, first: int, stop: int) -> None:
    """Adds the copies of both factors' tile n to its stage of shared memory. Tiles have the term as their row."""
    t, p = s.tiles, s.product
    term = first + n * t["BK"]
    stage, ends = n % t["STAGES"], (t["BK"], stop)
    left = tile_of(lambda k, row: p.of_left(row, k), (term, 0), (ends[0], t["BM"]), (stop, p.rows))
    right = tile_of(p.of_right, (term, 0), (ends[0], t["BN"]), (stop, p.cols))
    orders = [
        "transposed" if is_transposed else "straight" for is_transposed in (p.left_transposed, p.right_transposed)
    ]
    for side, source, tile_name, index, order in zip(
        ("left", "right"), (p.left, p.right), tile_names(p), (left, right), orders, strict=True
    ):
        moved = FLOAT * int((index >= 0).sum())
        args = (n + 1, count, term) if side == "left" else (n + 1, count)
        s.step(f"copy_{side}_{order}", *args, read=moved, shared=moved)
        s.r.copy(tile_name, source, index.ravel(), stage * index.size + np.arange(index.size))


def _multiply(s: LinearSteps, n: int, sums: np.ndarray, first: int, stop: int) -> np.ndarray:
    """Adds the step in which thread 0 multiplies a pair of tiles, and returns its sums after it."""
    t, p = s.tiles, s.product
    rows, cols = thread_cells(t)
    term = first + n * t["BK"] + np.arange(t["BK"])
    left = _values(s.left, p.of_left, rows, term, (p.rows, stop))
    right = _values(s.right, p.of_right, term, cols, (stop, p.cols))
    sums = add_products(sums, left, right)
    count = t["TM"] * t["TN"]
    shared = FLOAT * t["BK"] * (t["TM"] + t["TN"])
    s.step("multiply", t["BK"], t["TM"], t["TN"], count, sums[0, 0], mask=1, shared=shared)
    stage, k = n % t["STAGES"], np.arange(t["BK"])[:, None]
    for name, side, own in zip(tile_names(p), (t["BM"], t["BN"]), (rows, cols), strict=True):
        s.r.look(name, stage * t["BK"] * side + k * side + own)
    s.r.put("sum", sums)
    return sums


def _values(array: np.ndarray, of, a: np.ndarray, b: np.ndarray, limit: tuple[int, int]) -> np.ndarray:
    """Returns the factors of(a, b) as the tiles hold them: zero outside."""
    a, b = np.meshgrid(a, b, indexing="ij")
    inside = (a < limit[0]) & (b < limit[1])
    return np.where(inside, array[np.where(inside, of(a, b), 0)], np.float32(0))


def _add_columns(s: LinearSteps, n: int, columns: np.ndarray, first: int, stop: int) -> np.ndarray:
    """Adds the step in which threads add up the columns of the tile of dy, and returns their sums after it."""
    t, p = s.tiles, s.product
    term = first + n * t["BK"] + np.arange(t["BK"])
    values = _values(s.left, p.of_left, np.arange(t["BM"]), term, (p.rows, stop))
    for k in range(t["BK"]):
        columns = columns + values[:, k]
    s.step("columns", t["BM"], columns[0], shared=FLOAT * t["BK"] * t["BM"])
    tile_name, size = tile_names(p)[0], t["BK"] * t["BM"]
    s.r.look(tile_name, n % t["STAGES"] * size + np.arange(size))
    s.r.put("column_sum", columns)
    return columns


def _store_block(s: LinearSteps, kind: str, target: str, result: np.ndarray, sums: Arrays) -> None:
    """Adds the stores of block (0, 0): those of thread 0, then the others, with the column sums `sums`."""
    p, t = s.product, s.tiles
    rows, cols = (own[own < limit] for own, limit in zip(thread_cells(t), (p.rows, p.cols), strict=True))
    own = p.of_result(rows[:, None], cols).ravel()
    s.step(kind, own.size, mask=1, written=FLOAT * own.size)
    s.put_result(target, result, own)
    if kind == "store_bias":
        s.r.look("b", cols)
    others = np.setdiff1d(s.block_cells(t["BM"], t["BN"]), own)
    if not others.size and not sums:
        return
    inside = min(t["BM"], p.rows)
    extra = FLOAT * inside * len(sums)
    s.step("block_db" if sums else "block", inside, written=FLOAT * others.size + extra)
    s.put_result(target, result, others)
    for name, array in sums.items():
        s.r.put(name, array[:inside], np.arange(inside))


def _add_parts(s: LinearSteps, kind: str, rest: str, name: str) -> None:
    """Adds the steps of a launch that adds the parts of `name`."""
    result, splits = s.run.last[name].ravel(), s.tiles["SPLITS"]
    parts = np.arange(splits) * result.size
    s.step(kind, splits, result[0], mask=1, read=FLOAT * splits, written=FLOAT)
    s.r.look(f"{name}_parts", parts)
    if kind == "add_bias":
        s.r.look("b", np.array([0]))
    s.r.put(name, result[:1], np.array([0]))
    if result.size > 1:
        others = result.size - 1
        s.step(rest, read=FLOAT * splits * others, written=FLOAT * others)
        s.r.look(f"{name}_parts", np.arange(splits * result.size))
        s.r.put(name, result[1:], np.arange(1, result.size))


STEPS: dict[str, Callable[[LinearSteps], None]] = {"naive": naive, "tile": tile, "split": split}
