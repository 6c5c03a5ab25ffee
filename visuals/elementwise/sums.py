"""The sums of a bias gradient by blocks: registers, then a tree in shared memory, with every barrier a step.

The first block is shown in full. The other blocks do the same and take one step each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kernels.elementwise.shape import MapsShape
from kernels.i18n import mark, tr
from visuals.scene.parts import Tensor
from visuals.scene.program_traces import TracedProgram
from visuals.scene.recorder import Recorder

if TYPE_CHECKING:
    from visuals.elementwise.scene import Kinds

ACC, PARTIAL = "acc", "partial"  # one of each per launch, with its number
SPACES = {ACC: "registers", PARTIAL: "shared"}
LOAD, ADD, STORE, BARRIER, LEVEL, RESULT, OTHER = ("load", "add", "store", "barrier", "level", "result", "other")
_TEXTS = {
    LOAD: mark(
        "Block ({0}, {1}), round {2} of {3}: each active thread loads up to {4} elements and adds them to its "
        "[sum](workspace). Thread 0 now has {5}."
    ),
    STORE: mark("Each thread stores its [sum](workspace) in shared memory. Thread 0 stores {5}."),
    BARRIER: mark(
        "All threads of the block wait at a barrier: the sums of the others must be there before they are read."
    ),
    LEVEL: mark(
        "Level {2} of the tree: thread t of a channel adds the sum of thread t + {3}. Threads that add: {4}. "
        "[partial](workspace)[0] is now {5}."
    ),
    "atomic": mark(
        "The tree is done. Threads with a result: {4}. Each adds its sum to [db](filter) by one atomic addition. "
        "Channel {2} now has {5}."
    ),
    "row": mark(
        "The tree is done. Threads with a result: {4}. They store row {1} of the [sums](workspace). Channel {2} has {5}."
    ),
    "total": mark("The tree is done. Threads with a result: {4}. They store [db](filter). Channel {2} has {5}."),
    OTHER: mark("Block ({0}, {1}) does the same with its part. Its result for channel {2}: {5}."),
}
LIT = {
    LOAD: "sum_of_thread(dy",
    STORE: "sum_of_block(partial",
    BARRIER: "sum_of_block(partial",
    LEVEL: "sum_of_block(partial",
    OTHER: "sum_of_thread(dy",
}


def record(r: Recorder, kinds: Kinds, t: TracedProgram, s: MapsShape, n: int) -> dict[str, Tensor]:
    """Records the steps of launch n and returns its tensors of registers and shared memory, by name."""
    block = _Block(t, n)
    for number in range(len(t.launches[n].traces)):
        block.show(r, kinds, number)
    return block.tensors()


class _Block:
    """One launch: its blocks have `columns` channels and `rows` threads for each."""

    def __init__(self, t: TracedProgram, n: int):
        self.t, self.n, self.of = t, n, t.launches[n]
        source, target, _, columns, *_ = self.of.launch.args
        self.source, self.target = str(source), str(target)
        self.columns, self.threads = int(np.array(columns)), self.of.launch.block[0]
        self.rows, self.per = self.threads // self.columns, dict(self.of.launch.defines)["PER"]
        self.levels = math.ceil(math.log2(self.rows)) if self.rows > 1 else 0
        self.is_atomic = self.of.launch.entry == "bias_backward_block"

    def tensors(self) -> dict[str, Tensor]:
        acc, partial = f"{ACC}{self.n}", f"{PARTIAL}{self.n}"
        note = tr("one row per channel, one column per thread")
        return {
            acc: Tensor(acc, "sum", tr("sum"), "workspace", 1, self.columns, self.rows, note=note),
            partial: Tensor(
                partial,
                "partial",
                tr("partial"),
                "workspace",
                self.levels + 1,
                self.columns,
                self.rows,
                note=tr("one plane per level, all in the same cells of shared memory"),
                plane_name=tr("level"),
            ),
        }

    def cells(self, thread: np.ndarray, level: int = 0) -> np.ndarray:
        """Returns the cells of threads: row t % columns, column t / columns of a level."""
        return (level * self.columns + thread % self.columns) * self.rows + thread // self.columns

    def show(self, r: Recorder, kinds: Kinds, block: int) -> None:
        x, y = block % self.of.launch.grid[0], block // self.of.launch.grid[0]
        result = self.of.accesses(block, self.target, write=True)
        values = self._results(block, result)
        channel = int(result.element[0]) % len(self.t.arrays["db"])
        read = self.of.accesses(block, self.source, write=False)
        done = (x, y, channel, 0, len(result), values[0])
        if block:
            self._step(r, kinds, OTHER, *done, read=4 * len(read), written=self._written(result))
            r.look(self.source, read.element)
        else:
            self._loads(r, kinds, read, x, y)
            self._tree(r, kinds, x, y)
            kind = "atomic" if self.is_atomic else "row" if self.target == "sums" else "total"
            self._step(r, kinds, kind, *done, written=self._written(result))
        r.put(self.target, values, result.element)

    def _written(self, result) -> int:
        return 0 if self.is_atomic else 4 * len(result)

    def _step(self, r: Recorder, kinds: Kinds, kind: str, *args: float, **counts: int) -> None:
        line = LIT.get(kind) or ("atomicAdd(" if kind == "atomic" else "sums[blockIdx.y")
        r.step(kinds.number(kind, tr(_TEXTS[kind]), line), *args, **counts)

    def _results(self, block: int, result) -> np.ndarray:
        """Returns what is in the target afterwards: of an atomic addition the trace holds the value before it."""
        if not self.is_atomic:
            return result.value
        thread_sums = self.of.accesses(block, "partial", write=False)
        last = {int(t): v for t, v in zip(thread_sums.lane, thread_sums.value, strict=True)}
        return result.value + np.array([last[int(t)] for t in result.lane], np.float32)

    def _loads(self, r: Recorder, kinds: Kinds, read, x: int, y: int) -> None:
        """Records the rounds of loads: PER elements of each thread, added in their order."""
        order = _rank(read.lane)
        rounds = int(order.max()) // self.per + 1
        total = np.zeros(self.threads, np.float32)
        shown = np.arange(self.rows * self.columns)
        for n in range(rounds):
            for at in range(n * self.per, (n + 1) * self.per):
                now = order == at
                total[read.lane[now]] += read.value[now]
            now = order // self.per == n
            self._step(r, kinds, LOAD, x, y, n + 1, rounds, self.per, total[0], read=4 * int(now.sum()))
            r.look(self.source, read.element[now])
            r.put(f"{ACC}{self.n}", total[shown], self.cells(shown))

    def _tree(self, r: Recorder, kinds: Kinds, x: int, y: int) -> None:
        """Records the stores of the sums and the levels of the tree, as traced, with a barrier after each."""
        trace = self.of.traces[0]
        at = trace.write & (trace.buffer == trace.buffers.index("partial"))
        thread, value = trace.element[at].astype(int), trace.value[at]
        level_of = _rank(thread)  # a thread that adds at one level has added at each before
        rows, name = self.rows, f"{PARTIAL}{self.n}"
        shown = thread < self.rows * self.columns
        for level in range(self.levels + 1):
            now = (level_of == level) & shown
            half = (rows + 1) // 2
            first = value[now][thread[now] == 0][0]
            if level:
                self._step(r, kinds, LEVEL, x, y, level, half, int(now.sum()), first)
                rows = half
            else:
                self._step(r, kinds, STORE, x, y, 0, 0, 0, first)
            r.put(name, value[now], self.cells(thread[now], level))
            self._step(r, kinds, BARRIER, x, y)


def _rank(lanes: np.ndarray) -> np.ndarray:
    """Returns the how-manieth of its thread's accesses each one is, from 0."""
    order = np.argsort(lanes, kind="stable")
    starts = np.flatnonzero(np.diff(lanes[order], prepend=-1))
    rank = np.empty(len(lanes), int)
    rank[order] = np.arange(len(lanes)) - np.repeat(starts, np.diff(starts, append=len(lanes)))
    return rank
