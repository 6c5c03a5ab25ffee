"""The steps of the embedding scenes. All values are those of the emulator, launch by launch.

One plan serves both directions: row m of y or dy belongs to row tokens[m] of table or dtable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.embedding.ladder import SCAN
from visuals.scene.launch_scene import Arrays, Executed
from visuals.scene.parts import Number
from visuals.scene.recorder import Recorder

FLOAT = 4  # bytes, of an int32 too
MAX_ROWS = 8  # rows, tokens or blocks that have a step of their own


@dataclass(frozen=True)
class Links:
    """Which cells belong together: row m [d] of y and row tokens[m] [d] of the table."""

    tokens: np.ndarray
    d: int

    def of_row(self, m: int) -> np.ndarray:
        """Returns the cells of row m of y or dy."""
        return m * self.d + np.arange(self.d)

    def of_token(self, m: int) -> np.ndarray:
        """Returns the cells of the table's row that belongs to row m."""
        return int(self.tokens[m]) * self.d + np.arange(self.d)


@dataclass
class EmbeddingSteps:
    """Records the steps of a rung; `run`: the executed program."""

    r: Recorder
    run: Executed
    inputs: Arrays

    def __post_init__(self):
        self.tokens = self.inputs["tokens"]
        data = self.inputs["table" if "table" in self.inputs else "dy"]
        self.d, self.M = data.shape[1], len(self.tokens)
        self.links = Links(self.tokens, self.d)
        output = self.run.program.outputs[0]
        self.output, self.V = output.name, len(self.run.last.get("dtable", data))

    @property
    def tiles(self):
        return self.run.tiles

    def step(self, kind: str, *args: Number, **counts: int) -> None:
        self.r.step(kind, *map(float, args), warp=0, mask=0xFFFFFFFF, **counts)

    def put(self, name: str, launch: int, cells: np.ndarray | None = None) -> None:
        """Writes cells of a buffer, all by default, as they are after a launch."""
        array = self.run.after[launch][name].ravel()
        cells = np.arange(array.size) if cells is None else cells
        self.r.put(name, array[cells], cells)


# -- forward ---------------------------------------------------------------------------------------------
def elements(s: EmbeddingSteps) -> None:
    block, size = s.tiles["BLOCK"], s.M * s.d
    blocks = -(-size // block)
    for n in range(min(blocks, MAX_ROWS)):
        cells = np.arange(n * block, min((n + 1) * block, size))
        m, value = int(cells[0]) // s.d, float(s.run.last["y"].ravel()[cells[0]])
        moved = FLOAT * cells.size
        s.step("element", n, cells[0], cells[-1], m, s.tokens[m], value, read=2 * moved, written=moved)
        rows = np.unique(cells // s.d)
        s.r.look("tokens", rows)
        s.r.copy("y", "table", s.tokens[cells // s.d] * s.d + cells % s.d, cells)
    done = min(blocks * block, MAX_ROWS * block)
    _copy_rest(s, np.arange(done, size))


def rows(s: EmbeddingSteps) -> None:
    for m in range(min(s.M, MAX_ROWS)):
        s.step("row", m, s.tokens[m], read=FLOAT * (s.d + 1), written=FLOAT * s.d)
        s.r.look("tokens", np.array([m]))
        s.r.copy("y", "table", s.links.of_token(m), s.links.of_row(m))
    _copy_rest(s, np.arange(min(s.M, MAX_ROWS) * s.d, s.M * s.d))


def _copy_rest(s: EmbeddingSteps, cells: np.ndarray) -> None:
    if cells.size:
        s.step("others_copy", len(np.unique(cells // s.d)), read=FLOAT * cells.size, written=FLOAT * cells.size)
        s.r.copy("y", "table", s.tokens[cells // s.d] * s.d + cells % s.d, cells)


# -- atomics ---------------------------------------------------------------------------------------------
def atomics(s: EmbeddingSteps) -> None:
    s.step("zero", written=FLOAT * s.V * s.d)
    s.put("dtable", 0)
    dtable, seen = np.zeros((s.V, s.d), np.float32), set()
    for m in range(min(s.M, MAX_ROWS)):
        token = int(s.tokens[m])
        dtable[token] += s.inputs["dy"][m]
        args = (m, token) if token in seen else (m, token, s.d)
        s.step("add_again" if token in seen else "add", *args, read=FLOAT * (s.d + 1), written=FLOAT * s.d)
        seen.add(token)
        s.r.look("tokens", np.array([m]))
        s.r.look("dy", s.links.of_row(m))
        last = s.M <= MAX_ROWS and m == s.M - 1
        values = s.run.last["dtable"] if last else dtable
        if last:
            s.r.put("dtable", values)
        else:
            s.r.put("dtable", dtable[token], s.links.of_token(m))
    if s.M > MAX_ROWS:
        s.step("others_add", s.M - MAX_ROWS, read=FLOAT * (s.M - MAX_ROWS) * (s.d + 1))
        s.put("dtable", 1)


# -- sort --------------------------------------------------------------------------------------------------
def sort(s: EmbeddingSteps) -> None:
    chunk = s.tiles["CHUNK"]
    counts = s.run.after[0]["counts"]
    s.step("clear", chunk, written=counts.nbytes)
    s.put("counts", 0)
    _rank(s, chunk, len(counts))
    _positions(s)
    _place(s, chunk)


def _rank(s: EmbeddingSteps, chunk: int, chunks: int) -> None:
    for n in range(min(chunks, MAX_ROWS // 2)):
        m = np.arange(n * chunk, min((n + 1) * chunk, s.M))
        s.step("chunk", n, m[0], m[-1], read=FLOAT * m.size, shared=FLOAT * m.size)
        s.r.copy("chunk", "tokens", m, m - m[0])
        s.step("rank", n, written=FLOAT * m.size)
        s.r.look("chunk", m - m[0])
        s.put("ranks", 1, m)
        s.put("counts", 1, n * s.V + np.unique(s.tokens[m]))
    if chunks > MAX_ROWS // 2:
        rest = np.arange(MAX_ROWS // 2 * chunk, s.M)
        s.step("others_rank", chunks - MAX_ROWS // 2, read=FLOAT * rest.size, written=FLOAT * rest.size)
        s.put("ranks", 1, rest)
        s.put("counts", 1, np.arange(MAX_ROWS // 2 * s.V, chunks * s.V))


def _positions(s: EmbeddingSteps) -> None:
    totals = s.run.after[2]["totals"]
    token, nbytes = int(totals.argmax()), s.run.after[2]["counts"].nbytes
    s.step("totals", token, totals[token], read=nbytes, written=nbytes + totals.nbytes)
    s.r.look("counts", np.arange(s.run.after[2]["counts"].size))
    s.put("earlier", 2)
    s.put("totals", 2)
    s.step("scan_lanes", SCAN["PER"], read=totals.nbytes)
    s.r.look("totals", np.arange(s.V))
    s.step("scan", token, s.run.after[3]["first"][token], written=totals.nbytes)
    s.put("first", 3)
    s.step("scan_end")


def _place(s: EmbeddingSteps, chunk: int) -> None:
    earlier, first, ranks = (s.run.after[3][name] for name in ("earlier", "first", "ranks"))
    order = s.run.after[4]["order"]
    position = np.empty(s.M, int)
    position[order] = np.arange(s.M)
    for m in range(min(s.M, MAX_ROWS)):
        n, token = m // chunk, int(s.tokens[m])
        s.step("place", n, m, token, first[token], earlier[n, token], ranks[m], read=4 * FLOAT, written=FLOAT)
        for name, cell in (("tokens", m), ("first", token), ("earlier", n * s.V + token), ("ranks", m)):
            s.r.look(name, np.array([cell]))
        s.put("order", 4, position[m : m + 1])
    if s.M > MAX_ROWS:
        rest = position[MAX_ROWS:]
        s.step("others_place", read=4 * FLOAT * rest.size, written=FLOAT * rest.size)
        s.put("order", 4, rest)


# -- sums --------------------------------------------------------------------------------------------------
def sorted_tokens(s: EmbeddingSteps) -> None:
    sort(s)
    first, totals, order = (s.run.after[4][name] for name in ("first", "totals", "order"))
    for token in range(min(s.V, MAX_ROWS)):
        count = int(totals[token])
        args = (token, count) if count else (token,)
        read = FLOAT * (count * (s.d + 1) + 2)
        s.step("token" if count else "token_none", *args, read=read, written=FLOAT * s.d)
        s.r.look("first", np.array([token]))
        s.r.look("totals", np.array([token]))
        _look_rows(s, np.arange(first[token], first[token] + count), order)
        s.put("dtable", 5, token * s.d + np.arange(s.d))
    if s.V > MAX_ROWS:
        s.step("others_token", s.V - MAX_ROWS, written=FLOAT * s.d * (s.V - MAX_ROWS))
        s.put("dtable", 5, np.arange(MAX_ROWS * s.d, s.V * s.d))


def _look_rows(s: EmbeddingSteps, positions: np.ndarray, order: np.ndarray) -> None:
    """Records that the last step reads positions of the order, and their rows of dy."""
    if positions.size:
        s.r.look("order", positions)
        s.r.look("dy", np.concatenate([s.links.of_row(int(m)) for m in order[positions]]))


def runs(s: EmbeddingSteps) -> None:
    sort(s)
    size = s.tiles["ROWS"]
    blocks = -(-s.M // size)
    for n in range(min(blocks, MAX_ROWS // 2)):
        _block_of_runs(s, n, np.arange(n * size, min((n + 1) * size, s.M)))
    if blocks > MAX_ROWS // 2:
        start = MAX_ROWS // 2 * size
        s.step("others_run", blocks - MAX_ROWS // 2, read=FLOAT * (s.M - start) * s.d)
        for whole, begin, token in _runs(s, np.arange(start, s.M)):
            _put_run(s, whole, begin, token)
    _join(s, size)


def _runs(s: EmbeddingSteps, positions: np.ndarray) -> list[tuple[bool, int, int]]:
    """Returns (is whole, first position, token) of each run of some positions."""
    size, token = s.tiles["ROWS"], s.tokens[s.run.after[4]["order"][positions]]
    heads = np.flatnonzero(np.diff(token, prepend=-1).astype(bool) | (positions % size == 0))
    lengths = np.diff(heads, append=len(positions))
    totals = s.run.after[4]["totals"]
    return [
        (bool(totals[token[h]] == n), int(positions[h]), int(token[h])) for h, n in zip(heads, lengths, strict=True)
    ]


def _put_run(s: EmbeddingSteps, whole: bool, begin: int, token: int) -> None:
    row = token if whole else begin
    s.put("dtable" if whole else "parts", 5, row * s.d + np.arange(s.d))


def _block_of_runs(s: EmbeddingSteps, n: int, positions: np.ndarray) -> None:
    order = s.run.after[4]["order"]
    s.step("run_rows", n, positions[0], positions[-1], read=2 * FLOAT * positions.size)
    s.r.look("order", positions)
    s.r.copy("row", "order", positions, positions - positions[0])
    s.r.look("tokens", order[positions])
    found = _runs(s, positions)
    ends = [begin for _, begin, _ in found[1:]] + [int(positions[-1]) + 1]
    for (whole, begin, token), end in zip(found, ends, strict=True):
        count = end - begin
        kind = "run_whole" if whole else "run_part"
        s.step(kind, n, token, count, read=FLOAT * count * s.d, written=FLOAT * s.d)
        _look_rows(s, np.arange(begin, end), order)
        _put_run(s, whole, begin, token)


def _join(s: EmbeddingSteps, size: int) -> None:
    first, totals = (s.run.after[4][name] for name in ("first", "totals"))
    for token in range(min(s.V, MAX_ROWS)):
        start, last = int(first[token]), int(first[token] + totals[token]) - 1
        blocks = last // size - start // size + 1 if totals[token] else 0
        kind = "join" if blocks > 1 else "join_ready" if blocks else "join_none"
        args = (token, blocks) if kind == "join" else (token,)
        written = 0 if kind == "join_ready" else FLOAT * s.d
        s.step(kind, *args, read=FLOAT * (2 + s.d * blocks * (blocks > 1)), written=written)
        s.r.look("first", np.array([token]))
        s.r.look("totals", np.array([token]))
        if kind == "join":
            heads = [start, *range((start // size + 1) * size, last + 1, size)]
            s.r.look("parts", np.concatenate([h * s.d + np.arange(s.d) for h in heads]))
        if kind != "join_ready":
            s.put("dtable", 6, token * s.d + np.arange(s.d))
    if s.V > MAX_ROWS:
        s.step("others_join", s.V - MAX_ROWS)
        s.put("dtable", 6, np.arange(MAX_ROWS * s.d, s.V * s.d))


STEPS: dict[str, Callable[[EmbeddingSteps], None]] = {
    "embedding/elements": elements,
    "embedding/rows": rows,
    "embedding-backward/atomics": atomics,
    "embedding-backward/sorted": sorted_tokens,
    "embedding-backward/runs": runs,
}
