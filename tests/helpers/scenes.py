"""Small scenes with known numbers for tests and benchmarks. Together they use every feature of a scene."""

from __future__ import annotations

import re

import numpy as np

from kernels import sources
from visuals.scene.parts import Captions, Group, Lanes, MatMul, Read, Reading, Source, Tensor, Write
from visuals.scene.scene import Scene

TILE = 4
THREADS = np.arange(TILE * TILE)
ROW, COL = np.divmod(THREADS, TILE)

_PRODUCT = (
    "Each thread of block ({0}, {1}) starts its [sum](output) at 0.",
    "The block copies the square of [A](input) from column {2} on into shared memory.",
    "The block copies the square of [B](filter) from row {2} on into shared memory.",
    "k = {2}: thread (0, 0) adds {3} × {4}, its [sum](output) is now {5}.",
    "The block stores its {6} [sums](output) into C.",
    "The other blocks did the same at the same time: [C](output) is whole.",
)
_LINES = ("float sum", "tile_a[thread_row]", "tile_b[thread_row]", "sum +=", "C[(size_t)", "C[(size_t)")


def counted_otherwise(scene: Scene) -> list[str]:
    """Returns the captions with a count that contradicts the player's, which names step t "{step_name} {t + 1} of {steps}"."""
    count = re.compile(rf"\b{re.escape(scene.step_name)} (\d+) of (\d+)", re.IGNORECASE)
    captions = [scene.caption(t) for t in range(scene.steps)]
    return [
        text
        for t, text in enumerate(captions)
        for found in count.findall(text)
        if found != (str(t + 1), str(scene.steps))
    ]


def tiled(M: int = 8, N: int = 8, K: int = 6, blocks: int = 1) -> Scene:
    """Returns A x B with tiles in shared memory: the first `blocks` blocks step by step, then the rest in one step.

    If K is not a multiple of 4, the last tiles extend beyond the matrix.
    """
    rng = np.random.default_rng(7)
    A, B = (rng.normal(size=size).astype("f4") for size in ((M, K), (K, N)))
    C = np.zeros((M, N), "f4")
    kinds, args, upto = [], [], []
    copies = {"As": [], "Bs": [], "C": []}  # (step, cells, index)
    sums, reads = [], {"As": [], "Bs": []}

    def step(kind, *values, terms=0):
        kinds.append(kind)
        args.append((*values, *[0] * (7 - len(values))))
        upto.append(terms)
        return len(kinds) - 1

    def tile(matrix, row, col):
        """Returns the flat indices of a tile, -1 outside the matrix, and its values, 0 outside."""
        inside = (row + ROW < matrix.shape[0]) & (col + COL < matrix.shape[1])
        index = np.where(inside, (row + ROW) * matrix.shape[1] + col + COL, -1)
        return index, np.append(matrix.ravel(), np.float32(0))[index].reshape(TILE, TILE)

    block_origins = [(row, col) for row in range(0, M, TILE) for col in range(0, N, TILE)]
    for row, col in block_origins[:blocks]:
        block = (col // TILE, row // TILE)
        total = np.zeros((TILE, TILE), "f4")
        sums.append((step(0, *block), total))
        for first in range(0, K, TILE):
            (a, As), (b, Bs) = tile(A, row, first), tile(B, first, col)
            copies["As"].append((step(1, *block, first, terms=first), THREADS, a))
            copies["Bs"].append((step(2, *block, first, terms=first), THREADS, b))
            for k in range(TILE):
                total = total + As[:, k : k + 1] * Bs[k]  # float32
                pair = (As[0, k], Bs[k, 0], total[0, 0])
                t = step(3, *block, first + k, *pair, terms=min(first + k + 1, K))
                sums.append((t, total))
                reads["As"].append((t, THREADS[k == COL]))
                reads["Bs"].append((t, THREADS[k == ROW]))
        index, _ = tile(C, row, col)
        inside = index >= 0
        copies["C"].append((step(4, *block, 0, 0, 0, 0, inside.sum(), terms=K), index[inside], THREADS[inside]))
    other = np.setdiff1d(np.arange(C.size), np.concatenate([cells for _, cells, _ in copies["C"]]))
    writes = [_copies("As", "A", copies["As"]), _copies("Bs", "B", copies["Bs"])]
    writes += [_copies("C", "acc", copies["C"]), Write("acc", *_values(sums), cells=np.tile(THREADS, len(sums)))]
    if other.size:
        end, product = step(5, terms=K), (A.astype(float) @ B).astype("f4")
        writes.append(Write("C", np.array([end]), product.ravel()[other], cells=other))
    kind, steps, one_block = np.array(kinds), len(kinds), blocks == 1
    source = _source(kind)
    return Scene(
        key=f"tiled {M},{N},{K},{blocks}",
        title="tiled matrix product",
        tensors=(
            Tensor("A", "A", "left", "input", 1, M, K, A.ravel(), note=f"{M} × {K}"),
            Tensor("B", "B", "right", "filter", 1, K, N, B.ravel(), note=f"{K} × {N}"),
            Tensor("C", "C", "product", "output", 1, M, N, note=f"{M} × {N}"),
            Tensor("As", "As", "square of A", "workspace", 1, TILE, TILE),
            Tensor("Bs", "Bs", "square of B", "workspace", 1, TILE, TILE),
            Tensor("acc", "sum", "one sum a thread", "output", 1, TILE, TILE),
        ),
        groups=(
            Group((("A", "B", "C"),), "global", "global memory"),
            Group((("As", "Bs"),), "shared", f"shared memory of {'block (0, 0)' if one_block else 'the block'}"),
            Group((("acc",),), "registers", "registers of its threads"),
        ),
        steps=steps,
        step_name="step",
        order_name="explaining order",
        order_note="One block after the other, all its threads together.",
        writes=tuple(writes),
        captions=Captions(_PRODUCT, kind, np.array(args, float)),
        matmuls=(MatMul("A", "B", "C", upto=np.array(upto) if one_block else None),),
        reads=tuple(_reads(name, steps, events) for name, events in reads.items()),
        readings=(
            Reading("global loads", np.cumsum(np.isin(kind, (1, 2)) * TILE * TILE), "counted"),
            Reading("shared loads", np.cumsum((kind == 3) * 2 * TILE * TILE), "counted"),
            Reading("multiply-adds", np.cumsum((kind == 3) * TILE * TILE), "predicted"),
            Reading("sum of thread (0, 0)", _register_values(sums, steps), role="output"),
        ),
        source=source,
        lanes=Lanes(np.where(kind == 5, -1, 0), np.where(kind == 5, 0, 0xFFFF).astype(np.uint32)),
    )


def _copies(target: str, source: str, events: list) -> Write:
    steps, cells, index = zip(*events, strict=True)
    steps = np.repeat(steps, [len(c) for c in cells])
    return Write(target, steps, source=source, cells=np.concatenate(cells), index=np.concatenate(index))


def _values(events: list) -> tuple[np.ndarray, np.ndarray]:
    steps, values = zip(*events, strict=True)
    return np.repeat(steps, np.size(values[0])), np.concatenate([v.ravel() for v in values])


def _reads(name: str, steps: int, events: list) -> Read:
    count = np.zeros(steps + 1, int)
    for t, cells in events:
        count[t + 1] = len(cells)
    return Read(name, np.cumsum(count), np.concatenate([cells for _, cells in events]))


def _register_values(sums: list, steps: int) -> np.ndarray:
    """Returns thread (0, 0)'s sum after each step, float32[steps]. It stays until it is written again."""
    when = np.array([t for t, _ in sums])
    return np.array([v[0, 0] for _, v in sums])[np.searchsorted(when, np.arange(steps), side="right") - 1]


def _source(kind: np.ndarray) -> Source:
    lines = sources.text("teaching/14_sgemm_shared.cu").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('extern "C"'))
    lit = np.array([next(i + 1 for i, line in enumerate(lines) if mark in line) for mark in _LINES])
    notes = {int(lit[3]): "2 loads a thread"}
    return Source("14_sgemm_shared.cu", "\n".join(lines[first:]), lit[kind], first + 1, notes, "128 B shared")


def softmax() -> Scene:
    """Returns softmax(x) with a running maximum m and a running sum l; the exponentials are never stored."""
    x = np.array([0.5, -1.25, 1.0625, 1.0625, 0.1, 2.75, -0.3, 2.5], "f4")
    n = x.size
    m = np.maximum.accumulate(x)
    total, previous = np.zeros(n, "f4"), (-np.inf, 0.0)
    for i in range(n):
        total[i] = previous[1] * np.exp(previous[0] - m[i]) + np.exp(x[i] - m[i])
        previous = m[i], total[i]
    y = np.exp(x - m[-1]) / total[-1]
    steps, last = np.arange(n), np.full(n, n - 1)
    return Scene(
        key="softmax",
        title="softmax in one pass",
        tensors=(
            Tensor("x", "x", "scores", "input", 1, 1, n, x),
            Tensor("e", "e", "exponentials", "workspace", 1, 1, n, note="never stored"),
            Tensor("m", "m", "running maximum", "workspace", 1, 1, 1),
            Tensor("l", "l", "running sum", "workspace", 1, 1, 1),
            Tensor("y", "y", "softmax", "output", 1, 1, n),
        ),
        groups=(Group((("x", "y"), ("e",))), Group((("m", "l"),), "registers", "registers")),
        steps=2 * n,
        step_name="score",
        order_name="explaining order",
        order_note="",
        writes=(
            Write("m", steps, m, cells=np.zeros(n, int)),
            Write("l", steps, total, cells=np.zeros(n, int)),
            Write("y", n + steps, y),
        ),
        reads=(Read("x", np.arange(2 * n + 1), np.tile(steps, 2)),),
        readings=(
            Reading("m, running maximum", m[np.append(steps, last)], role="workspace"),
            Reading("l, running sum", total[np.append(steps, last)], role="workspace"),
        ),
        captions=Captions(
            (
                "Score {0} is {1}: the [maximum](workspace) is now {2}, the [sum](workspace) {3}.",
                "exp({1} − {2}) / {3} gives [output](output) {0}: {4}. No exponential {{e}} was stored.",
            ),
            np.repeat((0, 1), n),
            np.concatenate(
                [np.stack([steps, x, m, total, 0 * x], axis=1), np.stack([steps, x, m[last], total[last], y], axis=1)]
            ),
        ),
    )


def big(cells: int = 20_000, moving: int = 200, steps: int = 100) -> Scene:
    """Returns two grids with `cells` cells in total; each step copies `moving` cells of one into the other."""
    half, rows = cells // 2, 100
    rng = np.random.default_rng(5)
    return Scene(
        key=f"big {cells},{moving},{steps}",
        title="many cells",
        tensors=(
            Tensor("x", "x", "source", "input", 1, rows, half // rows, rng.normal(size=half).astype("f4")),
            Tensor("D", "D", "copies", "workspace", 1, rows, half // rows),
        ),
        groups=(Group((("x",),)), Group((("D",),), "workspace")),
        steps=steps,
        step_name="step",
        order_name="",
        order_note="",
        writes=(
            Write(
                "D",
                np.repeat(np.arange(steps), moving),
                source="x",
                index=rng.integers(0, half, moving * steps),
                cells=np.arange(moving * steps) % half,
            ),
        ),
        captions=Captions(
            ("Step {0} copies {1} cells.",), np.zeros(steps, int), np.array([(t, moving) for t in range(steps)])
        ),
    )


def long(steps: int = 1_000) -> Scene:
    """Returns a picture whose 3 x 3 windows become columns of a matrix, one a step. `steps` must be a multiple of 25."""
    height, width = 25 + 2, steps // 25 + 2
    x = np.random.default_rng(11).random(height * width).astype("f4")
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(x.size).reshape(height, width), (3, 3))
    return Scene(
        key=f"long {steps}",
        title="long",
        tensors=(Tensor("x", "x", "x", "input", 1, height, width, x), Tensor("D", "D", "D", "workspace", 1, 9, steps)),
        groups=(Group((("x",), ("D",))),),
        steps=steps,
        step_name="step",
        order_name="in order",
        order_note="",
        writes=(Write("D", np.arange(steps), source="x", index=windows.reshape(steps, 9).T.ravel()),),
        captions=Captions(("Column {0}.",), np.zeros(steps, int), np.arange(steps)[:, None]),
    )
