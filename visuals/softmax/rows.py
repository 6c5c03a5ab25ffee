# ruff: noqa: E741  # l is the name of the paper
"""The state of the threads of a row, in float32 as in the kernels, and the steps that several kernels have in common."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from visuals.scene.requests import BITS

State = dict[str, np.ndarray]  # "m", "l" or both: float32, one a thread


def quiet() -> np.errstate:
    """Returns a context without warnings: infinities give NaN, which is correct."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")


@dataclass(frozen=True)
class Step:
    """One step: kind and numbers of its caption, the active threads, reads and writes by tensor (flat cells; new values), and
    m and l of all numbers read so far."""

    kind: str
    args: tuple[float, ...]
    active: np.ndarray
    reads: Mapping[str, np.ndarray] = field(default_factory=dict)
    writes: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    m: float = -np.inf
    l: float = 0.0


# -- the arithmetic ----------------------------------------------------------------------------------
def merge(a: State, b: State) -> State:
    """Returns two parts of a row combined, as the kernels do it: the larger m, the sum of l. With m and l each l is first
    rescaled to the larger m."""
    if "l" not in a:
        return {"m": np.fmax(a["m"], b["m"])}
    if "m" not in a:
        return {"l": a["l"] + b["l"]}
    m = np.fmax(a["m"], b["m"])
    base = np.where(m == -np.inf, np.float32(0), m)
    return {"m": m, "l": a["l"] * np.exp(a["m"] - base) + b["l"] * np.exp(b["m"] - base)}


def empty(threads: int, names: str) -> State:
    """Returns the initial state of so many threads: m = -inf, l = 0."""
    return {n: np.full(threads, -np.inf if n == "m" else 0, np.float32) for n in names}


def part(state: State, at: np.ndarray) -> State:
    return {name: values[at] for name, values in state.items()}


def put(state: State, at: np.ndarray, values: State) -> State:
    """Returns the state with the values of the threads `at` replaced."""
    updated = {name: array.copy() for name, array in state.items()}
    for name in updated:
        updated[name][at] = values[name]
    return updated


def totals(state: State) -> dict[str, float]:
    """Returns m and l of all threads combined, in float64."""
    wide = {name: values.astype(np.float64) for name, values in state.items()}
    if "l" not in wide:
        return {"m": float(np.fmax.reduce(wide["m"]))}
    if "m" not in wide:
        return {"l": float(wide["l"].sum())}
    m = np.fmax.reduce(wide["m"])
    base = 0.0 if m == -np.inf else m
    return {"m": float(m), "l": float((wide["l"] * np.exp(wide["m"] - base)).sum())}


# -- the steps of a row ------------------------------------------------------------------------------
@dataclass(frozen=True)
class RowSteps:
    """Yields the steps of a row x (float32 [n]) with results y, processed by so many threads."""

    x: np.ndarray
    y: np.ndarray
    threads: int

    @property
    def iterations(self) -> int:
        return -(-len(self.x) // self.threads)

    def at(self, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (elements, threads) of an iteration."""
        j = np.arange(iteration * self.threads, min(len(self.x), (iteration + 1) * self.threads))
        return j, j - iteration * self.threads

    def gather(self, names: str, number: int, m: float | None = None) -> Generator[Step, None, State]:
        """Yields the steps of a pass in which each thread computes m, l or both ("ml") of its numbers; returns the state.
        `number`: of the pass. `m`: the maximum if known; without it l alone sums exp(x), not exp(x - m)."""
        state = empty(self.threads, names)
        for iteration in range(self.iterations):
            j, t = self.at(iteration)
            before, x = part(state, t), self.x[j]
            incoming = {"m": x, "l": np.ones_like(x) if names == "ml" else np.exp(x - np.float32(m or 0))}
            incoming = {name: incoming[name] for name in names}
            after = merge(before, incoming)
            state = put(state, t, after)
            kind, args = describe_gathered(names, x, t, before, after, incoming, m)
            step_args = (number, iteration + 1, self.iterations, int(j[0]), *args)
            writes, totals_now = ({n: (t, values) for n, values in after.items()}, {"m": m or 0.0} | totals(state))
            yield Step(kind, step_args, t, {"x": j}, writes, **totals_now)
        return state

    def tree(self, state: State, **known: float) -> Generator[Step, None, State]:
        """Yields the steps of a tree in shared memory: all threads store, half of them merge with the other half at each level,
        then all read cell 0. Row k of a tensor: the same cells after level k. Returns the state."""
        T, all_threads = self.threads, np.arange(self.threads)
        totals_now = known | totals(state)
        stored = {f"partial_{n}": (all_threads, values) for n, values in state.items()}
        yield Step(f"store_{''.join(state)}", (T,), all_threads, {}, stored, **totals_now)
        half, level = T // 2, 0
        while half:
            t = np.arange(half)
            merged = merge(part(state, t), part(state, t + half))
            reads = {f"partial_{n}": level * T + np.arange(2 * half) for n in state}
            writes = {f"partial_{n}": ((level + 1) * T + t, values) for n, values in merged.items()}
            args = (half, half, T - half, *example(state, merged, 0, half))
            kind = f"level_{''.join(state)}" if half > 1 else f"last_{''.join(state)}"
            yield Step(kind, args, t, reads, writes, **totals_now)
            state, half, level = put(state, t, merged), half // 2, level + 1
        root = {f"partial_{n}": np.array([level * T]) for n in state}
        args = tuple(float(values[0]) for values in state.values())
        state = {n: np.full(T, values[0]) for n, values in state.items()}
        writes = {n: (all_threads, values) for n, values in state.items()}
        yield Step(f"root_{''.join(state)}", args, all_threads, root, writes, **totals_now)
        return state

    def butterfly(self, state: State, **known: float) -> Generator[Step, None, State]:
        """Yields the exchanges of a butterfly: every lane merges with the lane whose number differs in one bit. Row k of a
        tensor: after exchange k. Returns the state."""
        T, all_threads = self.threads, np.arange(self.threads)
        totals_now = known | totals(state)
        for row, bit in enumerate(BITS):
            merged = merge(state, part(state, all_threads ^ bit))
            reads = dict.fromkeys(state, row * T + all_threads)
            writes = {n: ((row + 1) * T + all_threads, values) for n, values in merged.items()}
            args = (bit, *example(state, merged, 0, bit))
            yield Step(f"swap_{''.join(state)}", args, all_threads, reads, writes, **totals_now)
            state = merged
        return state

    def result(self, number: int, m: np.ndarray, l: np.ndarray, kind: str = "write") -> Iterator[Step]:
        """Yields the steps of the pass that writes y. m, l: of each thread."""
        for iteration in range(self.iterations):
            j, t = self.at(iteration)
            nan = np.isnan(self.y[j])
            k = int(nan.argmax()) if nan.any() else int(np.argmax(self.y[j]))
            x, own_m, own_l = (float(of) for of in (self.x[j[k]], m[t[k]], l[t[k]]))
            numerator = float(np.exp(np.float32(x) - np.float32(own_m)))
            step_kind = f"{kind}_nan" if nan.any() else f"{kind}_zero" if np.isinf(own_l) else kind
            args = (
                number,
                iteration + 1,
                self.iterations,
                int(j[0]),
                int(t[k]),
                x,
                own_m,
                own_l,
                numerator if nan.any() else float(self.y[j[k]]),
            )
            yield Step(step_kind, args, t, {"x": j}, {"y": (j, self.y[j])}, m=float(m[0]), l=float(l[0]))


def example(state: State, merged: State, a: int, b: int) -> tuple[float, ...]:
    """Returns (thread a, thread b, values of a, values of b, merged values); m before l."""
    values = [float(array[k]) for k in (a, b) for array in state.values()]
    return a, b, *values, *(float(array[a]) for array in merged.values())


def describe_gathered(
    names: str, x: np.ndarray, t: np.ndarray, before: State, after: State, incoming: State, m: float | None
) -> tuple[str, tuple[float, ...]]:
    """Returns the kind of an iteration's caption and its numbers, those of an example thread."""
    if names == "l":
        return _describe_added(x, t, incoming["l"], before["l"], after["l"], m)
    risen = np.where(after["m"] > before["m"], x, -np.inf)
    is_first = bool((before["m"] == -np.inf).all())
    k = int(np.argmax(risen if (risen > -np.inf).any() else x))
    grew = bool(after["m"][k] > before["m"][k])
    args = (int(t[k]), float(x[k]), float(before["m"][k]))
    if names == "m":
        return ("first" if is_first else "larger" if grew else "smaller"), (*args, float(after["m"][k]))
    with quiet():
        factor = float(np.exp(before["m"][k] - after["m"][k])) if before["m"][k] > -np.inf else 0.0
    args += (float(before["l"][k]), factor, float(after["l"][k]))
    if np.isnan(after["l"][k]):
        return "online_nan", args
    if is_first:
        return ("online_first" if grew else "online_masked"), args
    return ("online_grows" if grew else "online_stays"), args


def _describe_added(
    x: np.ndarray, t: np.ndarray, grown: np.ndarray, before: np.ndarray, after: np.ndarray, m: float | None
) -> tuple[str, tuple[float, ...]]:
    """Returns the same for a pass that adds exponentials to l: the example is one that is not finite, else the largest."""
    k = int(np.argmax(np.where(np.isfinite(grown), x, np.inf)))
    one = float(grown[k])
    if m is not None:
        return ("add" if np.isfinite(one) else "add_nan"), (int(t[k]), float(x[k]), m, one, float(after[k]))
    if not np.isfinite(one):
        return ("raw_nan" if np.isnan(one) else "raw_over"), (int(t[k]), float(x[k]))
    if np.isfinite(before[k]) and not np.isfinite(after[k]):
        return "raw_sum_over", (int(t[k]), float(x[k]))
    kind = "raw" if np.isfinite(after[k]) else "raw_not_finite"
    return kind, (int(t[k]), float(x[k]), one, float(after[k]))
