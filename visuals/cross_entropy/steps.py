"""The steps of the cross-entropy scenes: one row in one block, then the other rows. m and l of each thread are computed here
in float32 as in the kernel; what is stored comes from the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.cross_entropy.cpu import LOWEST
from visuals.cross_entropy import plan
from visuals.cross_entropy.plan import Iteration
from visuals.scene.launch_scene import Arrays, Executed
from visuals.scene.parts import Number
from visuals.scene.recorder import Recorder
from visuals.scene.requests import LANES, mask_of

FLOAT = 4  # bytes
ROW = 0  # the row that is followed


@dataclass
class CrossEntropySteps:
    """Records the steps of a rung. x [M, N], labels [M]; `run`: the executed program."""

    r: Recorder
    run: Executed
    inputs: Arrays

    def __post_init__(self):
        self.x, self.labels = self.inputs["x"], self.inputs["labels"]
        self.M, self.N = self.x.shape
        self.block, self.loads = self.run.tiles["BLOCK"], self.run.tiles.get("LOADS", 1)
        self.label = int(self.labels[ROW])
        self.m = np.full(self.block, LOWEST, np.float32)
        self.l = np.zeros(self.block, np.float32)  # the names of the paper

    @property
    def warps(self) -> int:
        return self.block // LANES

    def step(self, kind: str, *args: Number, active: np.ndarray | None = None, **counts: int) -> None:
        """Adds a step. The lanes shown are those of warp 0."""
        threads = np.arange(LANES) if active is None else active[active < LANES]
        self.r.step(kind, *args, warp=0, mask=mask_of(threads), **counts)

    # -- reading a row -----------------------------------------------------------------------------------
    def start(self, kind: str, *more: float) -> None:
        """Adds the step in which all threads read the label of the row and its logit."""
        self.step(kind, self.label, float(self.x[ROW, self.label]), *more, read=(2 + len(more)) * FLOAT)
        self.r.look("labels", np.array([ROW]))
        self.r.look("x", np.array([self.label]))

    def find_max(self) -> None:
        for iteration in plan.one_by_one(self.N, self.block):
            np.maximum.at(self.m, iteration.thread, self.x[ROW, iteration.cols])
            example = self._example(iteration, self.x[ROW, iteration.cols])
            self._read("max", iteration, (*example, self.m[example[0]]), "m")

    def add_up(self) -> None:
        for iteration in plan.one_by_one(self.N, self.block):
            value = self.x[ROW, iteration.cols]
            np.add.at(self.l, iteration.thread, np.exp(value - self.m[iteration.thread]))
            example = self._example(iteration, value)
            self._read("sum", iteration, (*example, self.l[example[0]]), "l")

    def online(self, first: int, count: int, prefix: str = "") -> None:
        """Adds one read of `count` columns from element `first` on: groups of four, then single columns."""
        for iteration in plan.fours(first, count, self.block, self.loads):
            thread = self._merge(iteration)
            self._read(prefix + "fours", iteration, (thread, self.m[thread], self.l[thread]), "m", "l")
            self._keep(prefix, iteration)
        if iteration := plan.singles(first, count, self.block):
            thread = self._merge(iteration)
            args = (len(iteration.cols), thread, float(self.m[thread]), float(self.l[thread]))
            self.step(prefix + "singles", *args, active=iteration.active, read=FLOAT * len(iteration.cols))
            self._look(iteration, "m", "l")
            self._keep(prefix, iteration)

    def _merge(self, iteration: Iteration) -> int:
        """Adds columns to m and l of their threads, and returns a thread with the largest of them."""
        value, old = self.x[ROW, iteration.cols], self.m.copy()
        np.maximum.at(self.m, iteration.thread, value)
        self.l *= np.exp(old - self.m)
        np.add.at(self.l, iteration.thread, np.exp(value - self.m[iteration.thread]))
        return int(iteration.thread[int(value.argmax())])

    def _keep(self, prefix: str, iteration: Iteration) -> None:
        if prefix:
            self.r.copy("kept", "x", iteration.cols, iteration.cols)
            self.r.count(shared=FLOAT * len(iteration.cols))

    def _example(self, iteration: Iteration, value: np.ndarray) -> tuple[int, float]:
        k = int(value.argmax())
        return int(iteration.thread[k]), float(value[k])

    def _read(self, kind: str, iteration: Iteration, args: tuple, *names: str) -> None:
        read = FLOAT * len(iteration.cols)
        self.step(
            kind,
            int(iteration.cols.min()),
            int(iteration.cols.max()),
            *map(float, args),
            active=iteration.active,
            read=read,
        )
        self._look(iteration, *names)

    def _look(self, iteration: Iteration, *names: str) -> None:
        self.r.look("x", iteration.cols)
        for name in names:
            self.r.put(name, getattr(self, name)[iteration.active], iteration.active)

    # -- over the block ------------------------------------------------------------------------------------
    def reduce(self, names: str) -> None:
        """Adds the steps that merge m, l or both ("ml") of all threads: in warps, then over the block."""
        for merge_of in (self._over_warps, self._over_block):
            merge_of(names)

    def _over_warps(self, names: str) -> None:
        by_warp = [slice(w * LANES, (w + 1) * LANES) for w in range(self.warps)]
        merged = [self._merged(lanes, names) for lanes in by_warp]
        for lanes, values in zip(by_warp, merged, strict=True):
            self._set(lanes, names, values)
        self.step(f"exchange_{names}", *(merged[0][name] for name in names))
        for name in names:
            self.r.put(name, getattr(self, name))
        self.step(f"barrier_{names}", self.warps, active=np.array([0]), shared=FLOAT * self.warps * len(names))
        for name in names:
            self.r.copy(f"warp_{name}", name, np.arange(self.warps) * LANES)

    def _over_block(self, names: str) -> None:
        heads = slice(0, self.block, LANES)
        values = self._merged(heads, names)
        self._set(slice(None), names, values)
        self.step(f"merge_{names}", *(values[name] for name in names))
        self.r.count(shared=FLOAT * self.block * self.warps * len(names))
        for name in names:
            self.r.look(f"warp_{name}", np.arange(self.warps))
            self.r.put(name, getattr(self, name))

    def _merged(self, threads: slice, names: str) -> dict[str, float]:
        m = self.m[threads].max()
        scaled = self.l[threads] * np.exp(self.m[threads] - m)
        return {"m": float(m), "l": float(scaled.sum(dtype=np.float32))}

    def _set(self, threads: slice, names: str, values: dict[str, float]) -> None:
        for name in names:
            getattr(self, name)[threads] = values[name]

    # -- results -------------------------------------------------------------------------------------------
    def store(self, kind: str, *names: str) -> None:
        """Adds the step in which thread 0 stores numbers of the row."""
        values = [float(self.run.last[name][ROW]) for name in names]
        self.step(kind, *values, active=np.array([0]), written=FLOAT * len(names))
        for name, value in zip(names, values, strict=True):
            self.r.put(name, np.array([value]), np.array([ROW]))

    def gradient(self, kind: str, read: str) -> None:
        """Adds the steps that write dx of the row. `kind` begins their names; `read`: what they read, x or kept."""
        stored, counter = self.run.last["dx"][ROW], "read" if read == "x" else "shared"
        for iteration in plan.fours(ROW * self.N, self.N, self.block, self.loads):
            k = int(np.abs(stored[iteration.cols]).argmax())
            args = (
                iteration.cols.min(),
                iteration.cols.max(),
                iteration.thread[k],
                self.x[ROW, iteration.cols[k]],
                stored[iteration.cols[k]],
            )
            self._write_dx(f"{kind}_fours", iteration, args, read, counter)
        if iteration := plan.singles(ROW * self.N, self.N, self.block):
            args = len(iteration.cols), iteration.cols[-1], stored[iteration.cols[-1]]
            self._write_dx(f"{kind}_singles", iteration, args, read, counter)

    def _write_dx(self, kind: str, iteration: Iteration, args: tuple, read: str, counter: str) -> None:
        moved = FLOAT * len(iteration.cols)
        self.step(kind, *map(float, args), active=iteration.active, written=moved, **{counter: moved})
        self.r.look(read, iteration.cols)
        self.r.put("dx", self.run.last["dx"][ROW, iteration.cols], iteration.cols)

    def others(self, kind: str, *names: str, read: int = 0, rows: int | None = None) -> None:
        """Adds the step in which the other rows are written. `read`: bytes of a row that are read."""
        count = self.M - 1 if rows is None else rows
        if count < 1:
            return
        arrays = {name: self.run.last[name].reshape(self.M, -1)[1:] for name in names}
        written = sum(FLOAT * array.size for array in arrays.values())
        self.step(kind, count, read=read * (self.M - 1), written=written)
        for name, array in arrays.items():
            self.r.put(name, array, np.arange(array.shape[1], array.shape[1] + array.size))


# -- rungs -------------------------------------------------------------------------------------------------
def unfused(s: CrossEntropySteps) -> None:
    s.find_max()
    s.reduce("m")
    s.add_up()
    s.reduce("l")
    for iteration in plan.one_by_one(s.N, s.block):
        p, k = s.run.last["p"][ROW, iteration.cols], 0
        args = (
            int(iteration.cols[0]),
            int(iteration.cols[-1]),
            int(iteration.thread[k]),
            float(s.x[ROW, iteration.cols[k]]),
            float(p[k]),
        )
        moved = FLOAT * len(iteration.cols)
        s.step("softmax", *args, active=iteration.active, read=moved, written=moved)
        s.r.look("x", iteration.cols)
        s.r.put("p", p, iteration.cols)
    s.store("store_lse", "lse")
    s.others("others_p", "p", "lse", read=3 * FLOAT * s.N)
    _by_element(s, "log", "others_log", _log_step)
    label = s.label
    s.step("pick", label, float(s.run.last["loss"][0]), read=2 * FLOAT * s.M, written=FLOAT * s.M)
    s.r.look("log_p", np.arange(s.M) * s.N + s.labels)
    s.r.look("labels", np.arange(s.M))
    s.r.put("loss", s.run.last["loss"])


def _by_element(
    s: CrossEntropySteps, kind: str, others: str, write: Callable[[CrossEntropySteps, str, np.ndarray, int], None]
) -> None:
    """Adds the steps of a launch with a thread per element: the first two blocks, then the others."""
    blocks = -(-s.x.size // s.block)
    for block in range(min(blocks, 2)):
        write(s, kind, np.arange(block * s.block, min((block + 1) * s.block, s.x.size)), block)
    if blocks > 2:
        write(s, others, np.arange(2 * s.block, s.x.size), blocks - 2)


def _log_step(s: CrossEntropySteps, kind: str, cells: np.ndarray, number: int) -> None:
    p, log_p = (s.run.last[name].ravel() for name in ("p", "log_p"))
    args = (
        () if kind.startswith("others") else (int(cells[0]), int(cells[-1]), float(p[cells[0]]), float(log_p[cells[0]]))
    )
    s.step(kind, number, *args, active=cells[: s.block] - cells[0], read=FLOAT * cells.size, written=FLOAT * cells.size)
    s.r.look("p", cells)
    s.r.put("log_p", log_p[cells], cells)


def two_pass(s: CrossEntropySteps) -> None:
    s.start("start")
    s.find_max()
    s.reduce("m")
    s.add_up()
    s.reduce("l")
    s.store("store", "lse", "loss")
    s.others("others", "lse", "loss", read=FLOAT * (2 * s.N + 2))


def online(s: CrossEntropySteps) -> None:
    s.start("start")
    s.online(ROW * s.N, s.N)
    s.reduce("ml")
    s.store("store", "lse", "loss")
    s.others("others", "lse", "loss", read=FLOAT * (s.N + 2))


def split(s: CrossEntropySteps) -> None:
    splits = s.run.tiles["SPLITS"]
    length = (s.N - 1) // splits + 1
    s.step("start_part", splits, length)
    s.online(ROW, min(length, s.N))
    s.reduce("ml")
    parts = {name: s.run.last[name] for name in ("part_m", "part_l")}
    s.step("store_part", *(float(a[0, 0]) for a in parts.values()), active=np.array([0]), written=2 * FLOAT)
    for name, array in parts.items():
        s.r.put(name, array.ravel()[:1], np.array([0]))
    count = s.M * splits - 1
    s.step("others_part", count, read=FLOAT * (s.M * s.N - min(length, s.N)), written=2 * FLOAT * count)
    for name, array in parts.items():
        s.r.put(name, array.ravel()[1:], np.arange(1, array.size))
    _merge_parts(s, parts)


def _merge_parts(s: CrossEntropySteps, parts: Arrays) -> None:
    m, l = LOWEST, np.float32(0)  # noqa: E741
    for part in range(s.run.tiles["SPLITS"]):
        own_m, own_l = (array[ROW, part] for array in parts.values())
        new = max(m, own_m)
        m, l = new, l * np.exp(m - new) + own_l * np.exp(own_m - new)  # noqa: E741
        numbers = (float(value) for value in (own_m, own_l, m, l))
        s.step("merge_part", part, *numbers, active=np.array([0]), read=2 * FLOAT)
        for name, value in (("part_m", m), ("part_l", l)):
            s.r.look(name, np.array([part]))
            s.r.put(name[-1], np.array([value]), np.array([0]))
    args = s.label, float(s.x[ROW, s.label]), *(float(s.run.last[name][ROW]) for name in ("lse", "loss"))
    s.step("store_parts", *args, active=np.array([0]), read=2 * FLOAT, written=2 * FLOAT)
    for name in ("lse", "loss"):
        s.r.put(name, s.run.last[name][:1], np.array([ROW]))
    s.others("others_rows", "lse", "loss", read=FLOAT * (2 * s.run.tiles["SPLITS"] + 2))


def elements(s: CrossEntropySteps) -> None:
    _by_element(s, "element", "others_element", _element_step)


def _element_step(s: CrossEntropySteps, kind: str, cells: np.ndarray, number: int) -> None:
    dx, (row, col) = s.run.last["dx"].ravel(), divmod(int(cells[0]), s.N)
    args = (int(cells[0]), int(cells[-1]), row, col, float(s.x[row, col]), float(dx[cells[0]]))
    moved = FLOAT * cells.size
    s.step(kind, number, *args, active=cells[: s.block] - cells[0], read=moved, written=moved)
    s.r.look("x", cells)
    for name in ("labels", "lse", "g"):
        s.r.look(name, np.unique(cells // s.N))
    s.r.put("dx", dx[cells], cells)


def rows(s: CrossEntropySteps, start: str = "start_dx", lse: np.ndarray | None = None) -> None:
    saved = s.inputs["lse"] if lse is None else lse
    s.step(start, s.label, float(saved[ROW]), float(s.inputs["g"][ROW]), read=3 * FLOAT)
    for name in ("labels", "lse", "g"):
        s.r.look(name, np.array([ROW]))
    s.gradient("dx", "x")
    s.others("others_dx", "dx", read=FLOAT * (s.N + 3))


def pieces(s: CrossEntropySteps) -> None:
    """Adds a step for each of the first two blocks, then one for the others. A row has several blocks."""
    width = plan.FOUR * s.loads * s.block
    per_row = -(-(s.N + plan.FOUR - 1) // width)
    blocks, rest = s.M * per_row, np.ones(s.x.size, bool)
    for block in range(min(2, blocks)):
        row, number = divmod(block, per_row)
        iteration = plan.piece(row * s.N, s.N, number, s.block, s.loads)
        _piece_step(s, block, row, iteration)
        rest[row * s.N + iteration.cols] = False
    if blocks > 2:
        cells = np.flatnonzero(rest)
        moved = FLOAT * cells.size
        s.step("others_element", blocks - 2, read=moved + 3 * FLOAT * (blocks - 2), written=moved)
        s.r.put("dx", s.run.last["dx"].ravel()[cells], cells)


def _piece_step(s: CrossEntropySteps, block: int, row: int, iteration: Iteration) -> None:
    dx, cells = s.run.last["dx"].ravel(), row * s.N + iteration.cols
    k = int(np.abs(dx[cells]).argmax())
    args = (block, row, iteration.cols[0], iteration.cols[-1], iteration.thread[k], s.x.ravel()[cells[k]], dx[cells[k]])
    moved = FLOAT * cells.size
    s.step("piece", *map(float, args), active=iteration.active, read=moved + 3 * FLOAT, written=moved)
    s.r.look("x", cells)
    for name in ("labels", "lse", "g"):
        s.r.look(name, np.array([row]))
    s.r.put("dx", dx[cells], cells)


def two_kernels(s: CrossEntropySteps) -> None:
    online(s)
    rows(s, "start_second", s.run.last["lse"])


def fused(s: CrossEntropySteps) -> None:
    _step(s, "", "again", "x", 2)


def shared_row(s: CrossEntropySteps) -> None:
    _step(s, "kept_", "from", "kept", 1)


def _step(s: CrossEntropySteps, prefix: str, kind: str, read: str, reads: int) -> None:
    s.start("start_g", float(s.inputs["g"][ROW]))
    s.r.look("g", np.array([ROW]))
    s.online(ROW * s.N, s.N, prefix)
    s.reduce("ml")
    s.store("store_loss", "loss")
    s.gradient(kind, read)
    s.others("others_loss", "loss", "dx", read=FLOAT * (reads * s.N + 3))


STEPS: dict[str, Callable[[CrossEntropySteps], None]] = {
    "cross-entropy/unfused": unfused,
    "cross-entropy/two-pass": two_pass,
    "cross-entropy/online": online,
    "cross-entropy/split": split,
    "cross-entropy-backward/elements": elements,
    "cross-entropy-backward/rows": rows,
    "cross-entropy-backward/pieces": pieces,
    "cross-entropy-step/two-kernels": two_kernels,
    "cross-entropy-step/fused": fused,
    "cross-entropy-step/shared-row": shared_row,
}
