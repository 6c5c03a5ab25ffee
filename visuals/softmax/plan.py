# ruff: noqa: E741  # l is the name of the paper
"""One row through a kernel of the softmax ladder, step by step, in the order of its threads.

What the registers hold is computed here as the kernel computes it, in float32, thread by thread; what comes out is
the kernel's own, from the emulator. A test holds the one to the other, and both to what the kernel stored on its way.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.program import Launch
from kernels.softmax.shape import SoftmaxShape
from visuals.scene.requests import LANES

BITS = (16, 8, 4, 2, 1)  # of a lane's number: whom it meets in a butterfly
State = dict[str, np.ndarray]  # "m", "l" or both: float32, one a thread
QUIET = {"over": "ignore", "invalid": "ignore", "divide": "ignore", "under": "ignore"}


@dataclass(frozen=True)
class Step:
    """What happens at once: its sentence, what is read and written by tensor (flat cells; their new values), which
    threads take part, and m and l of all that was met so far."""

    kind: str
    args: tuple[float, ...]
    active: np.ndarray
    reads: Mapping[str, np.ndarray] = field(default_factory=dict)
    writes: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    m: float = -np.inf
    l: float = 0.0


@dataclass(frozen=True)
class Ran:
    """A rung at one row, executed: its launch, what came out, what was counted."""

    launch: Launch
    output: np.ndarray  # float32 [n]
    counters: Counters


@lru_cache(maxsize=128)
def ran(rung: str, tiles: tuple[tuple[str, int], ...], row: bytes) -> Ran:
    """A rung of ours at a row (float32, its bytes) in the emulator."""
    x = np.frombuffer(row, np.float32).reshape(1, -1)
    found, shape = find(rung), SoftmaxShape(1, x.size)
    program = found.build(shape, found.check(shape, dict(tiles)))
    session = emulator.Session(program, {"x": x}, Options())
    with np.errstate(**QUIET):
        output = np.array(session.verify_run())
    (launch,) = program.steps
    return Ran(launch, output.ravel(), session.counters)


# -- the arithmetic ----------------------------------------------------------------------------------
def merge(a: State, b: State) -> State:
    """Two parts of a row as one, as the kernels do it: the larger m, the l of both added; where there are both, each l is
    rescaled to the larger m."""
    if "l" not in a:
        return {"m": np.fmax(a["m"], b["m"])}
    if "m" not in a:
        return {"l": a["l"] + b["l"]}
    m = np.fmax(a["m"], b["m"])
    base = np.where(m == -np.inf, np.float32(0), m)
    return {"m": m, "l": a["l"] * np.exp(a["m"] - base) + b["l"] * np.exp(b["m"] - base)}


def empty(threads: int, names: str) -> State:
    """Of no number at all."""
    return {n: np.full(threads, -np.inf if n == "m" else 0, np.float32) for n in names}


def part(state: State, at: np.ndarray) -> State:
    return {name: values[at] for name, values in state.items()}


def put(state: State, at: np.ndarray, values: State) -> State:
    """The state with those of some threads replaced."""
    new = {name: of.copy() for name, of in state.items()}
    for name in new:
        new[name][at] = values[name]
    return new


def together(state: State) -> dict[str, float]:
    """What all threads hold as one, in float64: m and l of all numbers met."""
    wide = {name: of.astype(np.float64) for name, of in state.items()}
    if "l" not in wide:
        return {"m": float(np.fmax.reduce(wide["m"]))}
    if "m" not in wide:
        return {"l": float(wide["l"].sum())}
    m = np.fmax.reduce(wide["m"])
    base = 0.0 if m == -np.inf else m
    return {"m": float(m), "l": float((wide["l"] * np.exp(wide["m"] - base)).sum())}


# -- a row's walk ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Walk:
    """A row x (float32 [n]) and its results y, walked by so many threads."""

    x: np.ndarray
    y: np.ndarray
    threads: int

    @property
    def turns(self) -> int:
        return -(-len(self.x) // self.threads)

    def at(self, turn: int) -> tuple[np.ndarray, np.ndarray]:
        """(elements, threads) of a turn."""
        j = np.arange(turn * self.threads, min(len(self.x), (turn + 1) * self.threads))
        return j, j - turn * self.threads

    def gather(self, names: str, number: int, m: float | None = None) -> Generator[Step, None, State]:
        """A pass in which each thread gathers m, l or both ("ml") of what it meets; the steps, and the state after them.
        `number` is the pass's, `m` the maximum where it is known: of l alone without it no exponent is made less."""
        state = empty(self.threads, names)
        for turn in range(self.turns):
            j, t = self.at(turn)
            before, x = part(state, t), self.x[j]
            met = {"m": x, "l": np.ones_like(x) if names == "ml" else np.exp(x - np.float32(m or 0))}
            met = {name: met[name] for name in names}
            after = merge(before, met)
            state = put(state, t, after)
            kind, args = gathered(names, x, t, before, after, met, m)
            said = (number, turn + 1, self.turns, int(j[0]), *args)
            writes, now = {n: (t, of) for n, of in after.items()}, {"m": m or 0.0} | together(state)
            yield Step(kind, said, t, {"x": j}, writes, **now)
        return state

    def tree(self, state: State, **known: float) -> Generator[Step, None, State]:
        """Shared memory: all threads store, then half of them merge with the other half, level by level; last all
        read cell 0. Row k of a tensor is what the same cells hold after level k."""
        T, every = self.threads, np.arange(self.threads)
        now = known | together(state)
        stored = {f"partial_{n}": (every, of) for n, of in state.items()}
        yield Step(f"store_{''.join(state)}", (T,), every, {}, stored, **now)
        half, level = T // 2, 0
        while half:
            t = np.arange(half)
            merged = merge(part(state, t), part(state, t + half))
            reads = {f"partial_{n}": level * T + np.arange(2 * half) for n in state}
            writes = {f"partial_{n}": ((level + 1) * T + t, of) for n, of in merged.items()}
            args = (half, half, T - half, *_example(state, merged, 0, half))
            kind = f"level_{''.join(state)}" if half > 1 else f"last_{''.join(state)}"
            yield Step(kind, args, t, reads, writes, **now)
            state, half, level = put(state, t, merged), half // 2, level + 1
        root = {f"partial_{n}": np.array([level * T]) for n in state}
        args = tuple(float(of[0]) for of in state.values())
        state = {n: np.full(T, of[0]) for n, of in state.items()}
        writes = {n: (every, of) for n, of in state.items()}
        yield Step(f"root_{''.join(state)}", args, every, root, writes, **now)
        return state

    def butterfly(self, state: State, **known: float) -> Generator[Step, None, State]:
        """Every lane merges with the lane whose number differs in one bit. Row k of a tensor: after exchange k."""
        T, every = self.threads, np.arange(self.threads)
        now = known | together(state)
        for row, bit in enumerate(BITS):
            merged = merge(state, part(state, every ^ bit))
            reads = dict.fromkeys(state, row * T + every)
            writes = {n: ((row + 1) * T + every, of) for n, of in merged.items()}
            args = (bit, *_example(state, merged, 0, bit))
            yield Step(f"swap_{''.join(state)}", args, every, reads, writes, **now)
            state = merged
        return state

    def result(self, number: int, m: np.ndarray, l: np.ndarray, kind: str = "write") -> Iterator[Step]:
        """The pass that writes y; m and l as each thread knows them."""
        for turn in range(self.turns):
            j, t = self.at(turn)
            nan = np.isnan(self.y[j])
            k = int(nan.argmax()) if nan.any() else int(np.argmax(self.y[j]))
            x, own_m, own_l = (float(of) for of in (self.x[j[k]], m[t[k]], l[t[k]]))
            top = float(np.exp(np.float32(x) - np.float32(own_m)))
            told = f"{kind}_nan" if nan.any() else f"{kind}_zero" if np.isinf(own_l) else kind
            args = (
                number, turn + 1, self.turns, int(j[0]), int(t[k]), x, own_m, own_l,
                top if nan.any() else float(self.y[j[k]]),
            )  # fmt: skip
            yield Step(told, args, t, {"x": j}, {"y": (j, self.y[j])}, m=float(m[0]), l=float(l[0]))


def _example(state: State, merged: State, a: int, b: int) -> tuple[float, ...]:
    """(thread, other, own m or l, the other's, what they become): with both, m then l of each."""
    told = [float(of[k]) for k in (a, b) for of in state.values()]
    return a, b, *told, *(float(of[a]) for of in merged.values())


def gathered(
    names: str, x: np.ndarray, t: np.ndarray, before: State, after: State, met: State, m: float | None
) -> tuple[str, tuple[float, ...]]:
    """Which sentence a turn of a pass gets and its numbers: of the thread with most to tell."""
    if names == "l":
        return _added(x, t, met["l"], after["l"], m)
    rise = np.where(after["m"] > before["m"], x, -np.inf)
    fresh = bool((before["m"] == -np.inf).all())
    k = int(np.argmax(rise if (rise > -np.inf).any() else x))
    grew = bool(after["m"][k] > before["m"][k])
    args = (int(t[k]), float(x[k]), float(before["m"][k]))
    if names == "m":
        return ("first" if fresh else "larger" if grew else "smaller"), (*args, float(after["m"][k]))
    with np.errstate(**QUIET):
        factor = float(np.exp(before["m"][k] - after["m"][k])) if before["m"][k] > -np.inf else 0.0
    args += (float(before["l"][k]), factor, float(after["l"][k]))
    if np.isnan(after["l"][k]):
        return "online_nan", args
    if fresh:
        return ("online_first" if grew else "online_masked"), args
    return ("online_grows" if grew else "online_stays"), args


def _added(
    x: np.ndarray, t: np.ndarray, grown: np.ndarray, after: np.ndarray, m: float | None
) -> tuple[str, tuple[float, ...]]:
    """The same where exponentials are added to l: of the one that is no finite number, else of the largest."""
    k = int(np.argmax(np.where(np.isfinite(grown), x, np.inf)))
    one = float(grown[k])
    if m is not None:
        return ("add" if np.isfinite(one) else "add_nan"), (int(t[k]), float(x[k]), m, one, float(after[k]))
    if not np.isfinite(one):
        return ("raw_nan" if np.isnan(one) else "raw_over"), (int(t[k]), float(x[k]))
    if not np.isfinite(after[k]):
        return "raw_sum_over", (int(t[k]), float(x[k]))
    return "raw", (int(t[k]), float(x[k]), one, float(after[k]))


# -- the rungs ---------------------------------------------------------------------------------------
def unsafe(w: Walk) -> Iterator[Step]:
    state = yield from w.gather("l", 1)
    state = yield from w.tree(state, m=0.0)
    yield from w.result(2, np.zeros(w.threads, np.float32), state["l"], "unsafe")


def three_pass(w: Walk) -> Iterator[Step]:
    state = yield from w.gather("m", 1)
    m = (yield from w.tree(state))["m"]
    state = yield from w.gather("l", 2, float(m[0]))
    state = yield from w.tree(state, m=float(m[0]))
    yield from w.result(3, m, state["l"])


def online(w: Walk) -> Iterator[Step]:
    state = yield from w.gather("ml", 1)
    state = yield from w.tree(state)
    yield from w.result(2, state["m"], state["l"])


def warp_shuffle(w: Walk) -> Iterator[Step]:
    state = yield from w.gather("ml", 1)
    state = yield from w.butterfly(state)
    yield from w.result(2, state["m"], state["l"])


def registers(w: Walk) -> Iterator[Step]:
    """v [turns, threads] holds the row, -infinity past its end, then its exponentials."""
    every = np.arange(w.threads)
    v = yield from _loaded(w)
    state, held = {"m": np.fmax.reduce(v, axis=0)}, np.arange(v.size)
    k = int(np.argmax(state["m"]))
    args = (w.turns, k, float(state["m"][k]))
    yield Step("own_m", args, every, {"values": held}, {"m": (every, state["m"])}, **together(state))
    m = (yield from _of_block(w, state))["m"]
    v = np.exp(v - m)
    state, now = {"l": v.sum(axis=0, dtype=np.float32)}, {"m": float(m[0])}
    args = (k, float(m[0]), float(v[0, k]), float(state["l"][k]))
    writes = {"values": (held, v.ravel()), "l": (every, state["l"])}
    yield Step("own_l", args, every, {"values": held}, writes, **now | together(state))
    l = (yield from _of_block(w, state, **now))["l"]
    for turn in range(w.turns):
        j, t = w.at(turn)
        nan = np.isnan(w.y[j])
        k = int(nan.argmax()) if nan.any() else int(np.argmax(w.y[j]))
        args = (turn + 1, w.turns, int(t[k]), float(v[turn, t[k]]), float(l[t[k]]), float(w.y[j[k]]))
        kind = "put_nan" if nan.any() else "put"
        yield Step(kind, args, t, {"values": turn * w.threads + t}, {"y": (j, w.y[j])}, **now, l=float(l[0]))


def _loaded(w: Walk) -> Generator[Step, None, np.ndarray]:
    """The row as it comes into registers, float32 [turns, threads]."""
    T, every = w.threads, np.arange(w.threads)
    v = np.full((w.turns, T), -np.inf, np.float32)
    for turn in range(w.turns):
        j, t = w.at(turn)
        v[turn, t] = w.x[j]
        kind, args = "load_rest" if len(j) < T else "load", (turn + 1, w.turns, int(j[0]), len(j), T - len(j))
        yield Step(kind, args, every, {"x": j}, {"values": (turn * T + every, v[turn].copy())})
    return v


def _of_block(w: Walk, state: State, **known: float) -> Generator[Step, None, State]:
    """One value of all threads: butterflies, then what the warps' first lanes put into shared memory."""
    T, every, now = w.threads, np.arange(w.threads), known | together(state)
    state = yield from w.butterfly(state, **known)
    ((name, of),) = state.items()
    warps, shared = np.arange(T // LANES), f"warp_{name}"
    of = of[warps * LANES]
    yield Step(f"parts_{name}", (len(warps),), warps * LANES, {}, {shared: (warps, of)}, **now)
    whole = np.fmax.reduce(of) if name == "m" else of.sum(dtype=np.float32)
    cells, values = (len(BITS) + 1) * T + every, np.full(T, whole, np.float32)
    args = (len(warps), float(whole))
    yield Step(f"whole_{name}", args, every, {shared: warps}, {name: (cells, values)}, **now)
    return {name: values}


WALKS = {f.__name__.replace("_", "-"): f for f in (unsafe, three_pass, online, warp_shuffle, registers)}


def threads_of(rung: str, tiles: Mapping[str, int]) -> int:
    """How many threads share a row."""
    return tiles.get("BLOCK", LANES)


def steps(rung: str, tiles: Mapping[str, int], x: np.ndarray, y: np.ndarray) -> list[Step]:
    """Every step of a rung ("softmax/online") at a row x, float32 [n], y what the kernel made of it."""
    with np.errstate(**QUIET):
        return list(WALKS[rung.partition("/")[2]](Walk(x, y, threads_of(rung, tiles))))
