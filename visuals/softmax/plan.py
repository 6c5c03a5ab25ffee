# ruff: noqa: E741  # l is the name of the paper
"""One row through a kernel of the softmax ladder, step by step, in the order of its threads.

The registers' values are computed here as in the kernel, in float32, thread by thread. The output is the kernel's, from
the emulator. A test compares both with each other and with the values that the kernel stored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels import sources
from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.program import Launch, RuleError, buffer_of
from kernels.softmax.shape import SoftmaxShape
from visuals.scene.requests import BITS, LANES
from visuals.softmax import long_rows
from visuals.softmax.rows import RowSteps, State, Step, quiet, totals


@dataclass(frozen=True)
class RunResult:
    """A rung executed at one row: its launches, output and counters."""

    launches: tuple[Launch, ...]
    output: np.ndarray  # float32 [n]
    counters: Counters

    def moved(self, op: str) -> int:
        """Returns the bytes of x that threads load ("ld"), or the bytes of y that they store ("st"). Of a rung that also moves
        parts of rows, only the lines that call the functions for rows are counted."""
        if all({"x", "y"}.issuperset(filter(buffer_of, launch.args)) for launch in self.launches):
            return self.counters.total[f"bytes_{op}"]
        text = {name.rpartition("/")[2]: sources.text(name).splitlines() for name in self._files}
        return sum(
            count[f"bytes_{op}"]
            for line, count in self.counters.lines.items()
            if line.file in text and long_rows.FUNCTIONS[op] in text[line.file][line.number - 1]
        )

    @property
    def _files(self) -> tuple[str, ...]:
        return tuple(launch.source for launch in self.launches)


@lru_cache(maxsize=128)
def run_rung(rung: str, tiles: tuple[tuple[str, int], ...], row: bytes) -> RunResult:
    """Run one of our rungs in the emulator at a row (bytes of float32). A grid may have any number of blocks: the code is
    the same. RuleError names a rule that the row breaks."""
    x = np.frombuffer(row, np.float32).reshape(1, -1)
    found, shape, sizes = find(rung), SoftmaxShape(1, x.size), dict(tiles)
    for rule in found.rules(shape, sizes):
        raise RuleError(rule)
    program = found.build(shape, sizes)
    session = emulator.Session(program, {"x": x}, Options())
    with quiet():
        output = np.array(session.verify_run())
    return RunResult(program.launches, output.ravel(), session.counted)


# -- the rungs ---------------------------------------------------------------------------------------
def unsafe(w: RowSteps) -> Iterator[Step]:
    state = yield from w.gather("l", 1)
    state = yield from w.tree(state, m=0.0)
    yield from w.result(2, np.zeros(w.threads, np.float32), state["l"], "unsafe")


def three_pass(w: RowSteps) -> Iterator[Step]:
    state = yield from w.gather("m", 1)
    m = (yield from w.tree(state))["m"]
    state = yield from w.gather("l", 2, float(m[0]))
    state = yield from w.tree(state, m=float(m[0]))
    yield from w.result(3, m, state["l"])


def online(w: RowSteps) -> Iterator[Step]:
    state = yield from w.gather("ml", 1)
    state = yield from w.tree(state)
    yield from w.result(2, state["m"], state["l"])


def warp_shuffle(w: RowSteps) -> Iterator[Step]:
    state = yield from w.gather("ml", 1)
    state = yield from w.butterfly(state)
    yield from w.result(2, state["m"], state["l"])


def registers(w: RowSteps) -> Iterator[Step]:
    """Yields the steps of softmax/registers. v [iterations, threads]: the row, -inf past its end; later its
    exponentials."""
    all_threads = np.arange(w.threads)
    v = yield from _loaded(w)
    state, cells = {"m": np.fmax.reduce(v, axis=0)}, np.arange(v.size)
    k = int(np.argmax(state["m"]))
    args = (w.iterations, k, float(state["m"][k]))
    yield Step("own_m", args, all_threads, {"values": cells}, {"m": (all_threads, state["m"])}, **totals(state))
    m = (yield from _reduce_block(w, state))["m"]
    v = np.exp(v - m)
    state, totals_now = {"l": v.sum(axis=0, dtype=np.float32)}, {"m": float(m[0])}
    args = (k, float(m[0]), float(v[0, k]), float(state["l"][k]))
    writes = {"values": (cells, v.ravel()), "l": (all_threads, state["l"])}
    yield Step("own_l", args, all_threads, {"values": cells}, writes, **totals_now | totals(state))
    l = (yield from _reduce_block(w, state, **totals_now))["l"]
    for iteration in range(w.iterations):
        j, t = w.at(iteration)
        nan = np.isnan(w.y[j])
        k = int(nan.argmax()) if nan.any() else int(np.argmax(w.y[j]))
        args = (iteration + 1, w.iterations, int(t[k]), float(v[iteration, t[k]]), float(l[t[k]]), float(w.y[j[k]]))
        kind = "put_nan" if nan.any() else "put"
        yield Step(
            kind, args, t, {"values": iteration * w.threads + t}, {"y": (j, w.y[j])}, **totals_now, l=float(l[0])
        )


def _loaded(w: RowSteps) -> Generator[Step, None, np.ndarray]:
    """Yields the loads of a row; returns its registers, float32 [iterations, threads]."""
    T, all_threads = w.threads, np.arange(w.threads)
    v = np.full((w.iterations, T), -np.inf, np.float32)
    for iteration in range(w.iterations):
        j, t = w.at(iteration)
        v[iteration, t] = w.x[j]
        kind, args = "load_rest" if len(j) < T else "load", (iteration + 1, w.iterations, int(j[0]), len(j), T - len(j))
        yield Step(kind, args, all_threads, {"x": j}, {"values": (iteration * T + all_threads, v[iteration].copy())})
    return v


def _reduce_block(w: RowSteps, state: State, **known: float) -> Generator[Step, None, State]:
    """Yields the steps that reduce one value over the block: butterflies, then the warps' values in shared memory. Returns
    the state."""
    T, all_threads, totals_now = w.threads, np.arange(w.threads), known | totals(state)
    state = yield from w.butterfly(state, **known)
    ((name, of),) = state.items()
    warps, shared = np.arange(T // LANES), f"warp_{name}"
    of = of[warps * LANES]
    yield Step(f"parts_{name}", (len(warps),), warps * LANES, {}, {shared: (warps, of)}, **totals_now)
    whole = np.fmax.reduce(of) if name == "m" else of.sum(dtype=np.float32)
    cells, values = (len(BITS) + 1) * T + all_threads, np.full(T, whole, np.float32)
    args = (len(warps), float(whole))
    yield Step(f"whole_{name}", args, all_threads, {shared: warps}, {name: (cells, values)}, **totals_now)
    return {name: values}


STEP_FUNCTIONS: dict[str, Callable[..., Iterator[Step]]] = {
    f.__name__.replace("_", "-"): f
    for f in (
        unsafe,
        three_pass,
        online,
        warp_shuffle,
        registers,
        long_rows.cluster,
        long_rows.split,
        long_rows.one_launch,
    )
}


def blocks_of(rung: str, tiles: Mapping[str, int]) -> int:
    """Returns how many blocks share a row, if x has no other."""
    return tiles.get(long_rows.BLOCKS.get(rung, ""), 1)


def threads_of(rung: str, tiles: Mapping[str, int]) -> int:
    """Returns how many threads share a row, if x has no other."""
    return tiles.get("BLOCK", LANES) * blocks_of(rung, tiles)


def steps_of(rung: str, tiles: Mapping[str, int], x: np.ndarray, y: np.ndarray) -> list[Step]:
    """Returns the steps of a rung ("softmax/online") at a row x, float32 [n]; y: the kernel's output."""
    threads, blocks = threads_of(rung, tiles), blocks_of(rung, tiles)
    row = long_rows.PartSteps(x, y, threads, blocks) if rung in long_rows.BLOCKS else RowSteps(x, y, threads)
    with quiet():
        return list(STEP_FUNCTIONS[rung.partition("/")[2]](row))
