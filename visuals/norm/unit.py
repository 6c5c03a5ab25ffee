"""The kernels that give a channel or a row to one block (or one warp), step by step.

The registers' values are computed here as in the kernel, in float32, thread by thread. The outputs are the kernel's, from
the emulator. A test compares both with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np

from kernels.norm.shape import EPS
from visuals.norm.parts import columns
from visuals.norm.plan import (
    Executed,
    State,
    Step,
    Unit,
    added,
    merged,
    numbers,
    part,
    put,
    rest,
    units,
    with_others,
    written,
    zeros,
)

F = np.float32
LANES = 32
NormSteps = Generator[Step, None, State]


# -- parts of a kernel -----------------------------------------------------------------------------------
def gather(
    u: Unit,
    kind: str,
    number: int,
    names: tuple[str, ...],
    update: Callable[[State, np.ndarray], tuple[State, tuple[float, ...]]],
    reads: tuple[str, ...] = ("x",),
) -> NormSteps:
    """Yields the iterations of a pass in which each thread updates its registers; returns them. `update` takes the
    registers of the active threads and their numbers, and returns the new ones and what the caption says of thread
    0."""
    state = zeros(u.threads, *names)
    for iteration in range(u.iterations):
        j, t = u.iteration(iteration)
        after, args = update(part(state, t), j)
        state = put(state, t, after)
        writes = {f"own_{name}": (t, values) for name, values in after.items()}
        taken = dict.fromkeys(reads, u.cells[j])
        so_far = _totals(state)
        yield Step(kind, (number, iteration + 1, u.iterations, *args), t, taken, writes, totals=so_far)
    return state


def _totals(state: State) -> dict[str, float]:
    """Returns what all threads have together, in float64: sums, or mean and M2."""
    if "M2" in state:
        wide = {name: values.astype(np.float64) for name, values in state.items()}
        n = wide["n"].sum()
        mean = (wide["n"] * wide["mean"]).sum() / n
        return {
            "n": float(n),
            "mean": float(mean),
            "M2": float((wide["M2"] + wide["n"] * (wide["mean"] - mean) ** 2).sum()),
        }
    return {name: float(values.sum(dtype=np.float64)) for name, values in state.items()}


def tree(u: Unit, state: State, what: str) -> NormSteps:
    """Yields the steps of a tree in shared memory: all threads store, then at each level half of them merge with the
    other half. Row k of a tensor: the same cells after level k. Returns the state: that of thread 0 is the result."""
    merge = merged if "M2" in state else added
    T, everyone = u.threads, np.arange(u.threads)
    stored = {f"shared_{name}": (everyone, values) for name, values in state.items()}
    yield Step(f"store_{what}", (T,), everyone, {}, stored)
    half, level = T // 2, 0
    while half:
        t = np.arange(half)
        joined = merge(part(state, t), part(state, t + half))
        reads = {f"shared_{name}": level * T + np.arange(2 * half) for name in state}
        writes = {f"shared_{name}": ((level + 1) * T + t, values) for name, values in joined.items()}
        args = (half, half, T - half, *numbers(state, 0), *numbers(state, half), *numbers(joined, 0))
        yield Step(f"level_{what}" if half > 1 else f"last_{what}", args, t, reads, writes)
        state, half, level = put(state, t, joined), half // 2, level + 1
    return state


def _root(u: Unit, state: State) -> dict[str, np.ndarray]:
    """Returns the cell of the tree that all threads read: cell 0 at the last level."""
    return {f"shared_{name}": np.array([(u.threads.bit_length() - 1) * u.threads]) for name in state}


def _stores(u: Unit, *names: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the writes of the unit's own cells of outputs with one number a unit."""
    return {name: (np.array([u.number]), np.array([u.scalar(name)])) for name in names}


def result(u: Unit, kind: str, number: int, out: str, reads: tuple[str, ...], describe: Callable) -> Iterator[Step]:
    """Yields the iterations that write y or dx. `describe(j)` returns what the caption says of number j."""
    values = u.of(out)
    for iteration in range(u.iterations):
        j, t = u.iteration(iteration)
        taken = dict.fromkeys(reads, u.cells[j])
        args = (number, iteration + 1, u.iterations, *describe(int(j[0])), float(values[j[0]]))
        yield Step(kind, args, t, taken, {out: (u.cells[j], values[j])})


def y_of(u: Unit, kind: str, number: int) -> Iterator[Step]:
    """Yields the iterations that write y; a norm without a mean and without beta is RMS norm."""
    x, gamma = u.of("x"), u.factor("gamma")
    if "mean" not in u.run.arrays:
        s = float(u.scalar("invrms"))
        yield from result(u, kind, number, "y", ("x",), lambda j: (float(x[j]), s, float(gamma[j])))
        return
    m, s, beta = float(u.scalar("mean")), float(u.scalar("invstd")), u.factor("beta")
    yield from result(u, kind, number, "y", ("x",), lambda j: (float(x[j]), m, s, float(gamma[j]), float(beta[j])))


# -- updates of the registers ----------------------------------------------------------------------------
def add_x(u: Unit):
    def update(before: State, j: np.ndarray):
        x = u.of("x")[j]
        after = {"sum": before["sum"] + x}
        return after, (float(x[0]), *numbers(before, 0), *numbers(after, 0))

    return update


def add_squares(u: Unit, m: np.float32 | None):
    """Returns the update of a pass over squared distances from m; without it over squares of x."""

    def update(before: State, j: np.ndarray):
        x = u.of("x")[j]
        distance = x if m is None else x - m
        after = {"squares": before["squares"] + distance * distance}
        args = (float(x[0]),) if m is None else (float(x[0]), float(m), float(distance[0]))
        return after, (*args, *numbers(before, 0), *numbers(after, 0))

    return update


def add_both(u: Unit):
    def update(before: State, j: np.ndarray):
        x = u.of("x")[j]
        after = {"sum": before["sum"] + x, "squares": before["squares"] + x * x}
        return after, (float(x[0]), float(x[0] * x[0]), *numbers(before, 0), *numbers(after, 0))

    return update


def add_welford(u: Unit):
    def update(before: State, j: np.ndarray):
        x = u.of("x")[j]
        n = before["n"] + F(1)
        distance = x - before["mean"]
        mean = before["mean"] + distance / n
        after = {"n": n, "mean": mean, "M2": before["M2"] + distance * (x - mean)}
        return after, (float(x[0]), float(distance[0]), *numbers(after, 0), float(x[0] - mean[0]))

    return update


# -- forward ---------------------------------------------------------------------------------------------
def two_pass(run: Executed) -> Iterator[Step]:
    """Yields the steps of three passes: mean, variance, result."""
    yield from with_others(run, _two_pass(Unit(run, run.tiles["BLOCK"])), reads=("x",))


def _two_pass(u: Unit) -> Iterator[Step]:
    everyone, n = np.arange(u.threads), float(u.n)
    state = yield from gather(u, "sum", 1, ("sum",), add_x(u))
    state = yield from tree(u, state, "sum")
    m = state["sum"][0] / F(u.n)
    yield Step("mean", (float(state["sum"][0]), n, float(m)), everyone, _root(u, state), totals={"mean": float(m)})
    state = yield from gather(u, "squares", 2, ("squares",), add_squares(u, m))
    state = yield from tree(u, state, "squares")
    yield _invstd(u, state, "squares", float(state["squares"][0] / F(u.n)))
    yield from y_of(u, "y", 3)


def _invstd(u: Unit, state: State, name: str, variance: float, kind: str = "invstd") -> Step:
    s = u.scalar("invstd")
    args = (float(state[name][0]), float(u.n), variance, float(s), EPS)
    totals = {"variance": variance}
    return Step(kind, args, np.arange(u.threads), _root(u, state), _stores(u, "mean", "invstd"), totals=totals)


def welford(run: Executed) -> Iterator[Step]:
    """Yields the steps of Welford's pass, Chan's merges, and the result."""
    yield from with_others(run, _welford(Unit(run, run.tiles["BLOCK"])), reads=("x",))


def _welford(u: Unit) -> Iterator[Step]:
    state = yield from gather(u, "welford", 1, ("n", "mean", "M2"), add_welford(u))
    state = yield from tree(u, state, "moments")
    yield _invstd(u, state, "M2", float(state["M2"][0] / F(u.n)), "invstd_moments")
    yield from y_of(u, "y", 2)


def sums(run: Executed) -> Iterator[Step]:
    """Yields the steps of sums of x and x * x, and of the difference that loses digits."""
    yield from with_others(run, _sums(Unit(run, run.tiles["BLOCK"])), reads=("x",))


def _sums(u: Unit) -> Iterator[Step]:
    state = yield from gather(u, "both", 1, ("sum", "squares"), add_both(u))
    state = yield from tree(u, state, "both")
    m, square = state["sum"][0] / F(u.n), state["squares"][0] / F(u.n)
    yield _difference(u, state, m, square)
    yield from y_of(u, "y", 2)


LOST = 1e-3  # relative error of a variance from which on a caption says that digits are lost


def _difference(u: Unit, state: State, m: np.float32, square: np.float32) -> Step:
    """Returns the step that subtracts. The variance that it gives is that of the kernel, from the saved 1 / std."""
    exact = float(np.var(u.of("x").astype(np.float64)))
    s = u.scalar("invstd")
    variance = max(1 / float(s) ** 2 - EPS, 0.0)
    lost = abs(variance - exact) > LOST * exact
    args = (float(square), float(m), float(m * m), float(np.spacing(square)), variance, exact, float(s))
    kind = "difference_lost" if lost else "difference"
    writes = _stores(u, "mean", "invstd")
    totals = {"mean": float(m), "variance": variance}
    return Step(kind, args, np.arange(u.threads), _root(u, state), writes, totals=totals)


def rms_two_reads(run: Executed) -> Iterator[Step]:
    yield from with_others(run, _rms(Unit(run, run.tiles["BLOCK"])), reads=("x",))


def _rms(u: Unit) -> Iterator[Step]:
    state = yield from gather(u, "rms_squares", 1, ("squares",), add_squares(u, None))
    state = yield from tree(u, state, "squares")
    yield _invrms(u, state["squares"][0], _root(u, state))
    yield from y_of(u, "rms_y", 2)


def _invrms(u: Unit, total: np.float32, reads: dict) -> Step:
    square = float(total / F(u.n))
    args = (float(total), float(u.n), square, float(u.scalar("invrms")), EPS)
    return Step("invrms", args, np.arange(u.threads), reads, _stores(u, "invrms"), totals={"mean of x²": square})


# -- a row in registers ----------------------------------------------------------------------------------
def registers(run: Executed) -> Iterator[Step]:
    """Yields the steps of a row in the registers of a block, of layer norm or of RMS norm."""
    width = run.defines(0)["WIDTH"]
    yield from with_others(run, _in_registers(Unit(run, run.tiles["BLOCK"]), width, in_block=True), reads=("x",))


def warp(run: Executed) -> Iterator[Step]:
    """Yields the steps of a row in the registers of a warp."""
    yield from with_others(run, _in_registers(Unit(run, LANES), 1, in_block=False), reads=("x",))


def _in_registers(u: Unit, width: int, in_block: bool) -> Iterator[Step]:
    per_iteration = u.threads * width
    iterations = [np.arange(j, min(u.n, j + per_iteration)) for j in range(0, u.n, per_iteration)]
    for iteration, j in enumerate(iterations):
        args = (iteration + 1, len(iterations), len(j), width, int(j[-1] // width % u.threads) + 1)
        t = np.unique(j // width % u.threads)
        yield Step("load", args, t, {"x": u.cells[j]}, {"row": (j, u.of("x")[j])})
    if "mean" in u.run.arrays:
        total = yield from _reduce(u, "sum", u.of("x"), width, in_block)
        m = total / F(u.n)
        args = (float(total), float(u.n), float(m))
        yield Step("mean_registers", args, np.arange(u.threads), totals={"mean": float(m)})
        total = yield from _reduce(u, "squares", np.square(u.of("x") - m), width, in_block)
        variance = float(total / F(u.n))
        args = (float(total), float(u.n), variance, float(u.scalar("invstd")), EPS)
        yield Step(
            "invstd", args, np.arange(u.threads), {}, _stores(u, "mean", "invstd"), totals={"variance": variance}
        )
    else:
        total = yield from _reduce(u, "squares", np.square(u.of("x")), width, in_block)
        yield _invrms(u, total, {})
    yield from _put(u, iterations, width)


def _put(u: Unit, iterations: list[np.ndarray], width: int) -> Iterator[Step]:
    y, x, gamma = u.of("y"), u.of("x"), u.factor("gamma")
    rms = "mean" not in u.run.arrays
    for iteration, j in enumerate(iterations):
        k = int(j[0])
        known = (float(u.scalar("invrms")),) if rms else (float(u.scalar("mean")), float(u.scalar("invstd")))
        last = () if rms else (float(u.factor("beta")[k]),)
        args = (iteration + 1, len(iterations), float(x[k]), *known, float(gamma[k]), *last, float(y[k]))
        t = np.unique(j // width % u.threads)
        yield Step("rms_put" if rms else "put", args, t, {"row": j}, {"y": (u.cells[j], y[j])})


def _reduce(u: Unit, name: str, terms: np.ndarray, width: int, in_block: bool) -> Generator[Step, None, np.float32]:
    """Yields the steps that add terms [n] over the threads; returns the sum, float32."""
    thread = np.arange(u.n) // width % u.threads
    own = np.bincount(thread, terms.astype(np.float64), u.threads).astype(F)
    everyone, regs = np.arange(u.threads), f"own_{name}"
    yield Step(f"own_{name}", (float(own[0]),), everyone, {"row": np.arange(u.n)}, {regs: (everyone, own)})
    of_warp = own.reshape(-1, LANES).sum(axis=1, dtype=F)
    if in_block:
        warps, shared = np.arange(len(of_warp)), f"warp_{name}"
        yield Step(
            f"exchange_{name}", (len(warps), float(of_warp[0])), everyone, {regs: everyone}, {shared: (warps, of_warp)}
        )
        total = of_warp.sum(dtype=F)
        reads = {shared: warps}
    else:
        total, reads = of_warp[0], {regs: everyone}
    kind = f"{'whole' if in_block else 'lanes'}_{name}"
    yield Step(kind, (len(of_warp), float(total)), everyone, reads, {regs: (everyone, np.full(u.threads, total))})
    return total


# -- backward --------------------------------------------------------------------------------------------
def gradients(u: Unit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (dy, xhat, g) of the unit, float32 [n]; g = dy * gamma."""
    dy, x = u.of("dy"), u.of("x")
    centred = "mean" in u.run.arrays
    xhat = (x - u.scalar("mean")) * u.scalar("invstd") if centred else x * u.scalar("invrms")
    return dy, xhat, dy * u.factor("gamma")


def channel_backward(run: Executed) -> Iterator[Step]:
    """Yields the steps of the gradients of batch norm: two sums, then dx."""
    yield from with_others(run, _channel_backward(Unit(run, run.tiles["BLOCK"])), reads=("dy", "x"))


def _channel_backward(u: Unit) -> Iterator[Step]:
    dy, xhat, _ = gradients(u)

    def update(before: State, j: np.ndarray):
        after = {"sum_beta": before["sum_beta"] + dy[j], "sum_gamma": before["sum_gamma"] + dy[j] * xhat[j]}
        args = (float(dy[j[0]]), float(u.of("x")[j[0]]), float(xhat[j[0]]), *numbers(before, 0), *numbers(after, 0))
        return after, args

    state = yield from gather(u, "gradients", 1, ("sum_beta", "sum_gamma"), update, ("dy", "x"))
    state = yield from tree(u, state, "gradients")
    means = [float(state[name][0]) / u.n for name in ("sum_beta", "sum_gamma")]
    args = (*numbers(state, 0), float(u.n), *means)
    yield Step("saved_gradients", args, np.arange(u.threads), _root(u, state), _stores(u, "dgamma", "dbeta"))
    factor = float(u.scalar("gamma") * u.scalar("invstd"))
    yield from result(u, "dx", 2, "dx", ("dy", "x"), lambda j: (float(dy[j]), float(xhat[j]), *means, factor))


def row_backward(run: Executed) -> Iterator[Step]:
    """Yields the steps of dx of the first row; with atomic additions also those of its terms in dgamma and dbeta, then
    one step for each further row."""
    last = len(run.launches) - 1
    atomic = run.launches[last].entry.endswith("atomics")
    first = Unit(run, run.tiles["BLOCK"])
    steps = []
    sums = {name: np.zeros(run.shape.N, F) for name in ("dgamma", "dbeta") if name in run.arrays} if atomic else {}
    if atomic:
        for n, name in enumerate(sums):
            yield Step(f"zero_{name}", (run.shape.N,), None, {}, {name: (np.arange(run.shape.N), sums[name])}, n)
    launch = last if atomic else 0
    for step in _row_backward(first, sums, launch):
        steps.append(step)
        yield step
    yield from _further_rows(run, sums, launch, written(steps))


def _row_backward(u: Unit, sums: dict[str, np.ndarray], launch: int) -> Iterator[Step]:
    _, xhat, g = gradients(u)
    centred = "mean" in u.run.arrays

    def update(before: State, j: np.ndarray):
        grown = {"sum_g": g[j]} if centred else {}
        grown |= {"sum_gx": g[j] * xhat[j]}
        after = added(before, grown)
        return after, (float(g[j[0]]), float(xhat[j[0]]), *numbers(before, 0), *numbers(after, 0))

    names, what = (("sum_g", "sum_gx"), "row_gradients") if centred else (("sum_gx",), "rms_gradients")
    for step in _kept(state := {}, gather(u, what, 1, names, update, ("dy", "x"))):
        yield _at(step, launch)
    for step in _kept(state, tree(u, state, what)):
        yield _at(step, launch)
    means = [float(state[name][0]) / u.n for name in names]
    kind = "row_means" if centred else "rms_means"
    yield Step(kind, (*numbers(state, 0), float(u.n), *means), np.arange(u.threads), _root(u, state), launch=launch)
    yield from _row_dx(u, sums, launch, means)


def _kept(state: State, steps: NormSteps) -> Iterator[Step]:
    """Yields steps, and puts the registers that they return into `state`."""
    state |= yield from steps


def _at(step: Step, launch: int) -> Step:
    return Step(step.kind, step.args, step.active, step.reads, step.writes, launch, step.totals)


def _row_dx(u: Unit, sums: dict[str, np.ndarray], launch: int, means: list[float]) -> Iterator[Step]:
    dy, xhat, g = gradients(u)
    factor = float(u.scalar("invstd" if "mean" in u.run.arrays else "invrms"))
    kind = ("row_dx" if len(means) == 2 else "rms_dx") + ("_atomic" if sums else "")

    def describe(j: int) -> tuple[float, ...]:
        return (float(g[j]), float(xhat[j]), *means, factor)

    for step in result(u, kind, 2, "dx", ("dy", "x"), describe):
        j, more = np.flatnonzero(np.isin(u.cells, step.writes["dx"][0])), {}
        for name, total in sums.items():
            total[j] += dy[j] * xhat[j] if name == "dgamma" else dy[j]
            more[name] = (j, total[j].copy())
        k = int(j[0])
        extra = (k, float(dy[k] * xhat[k]), float(sums["dgamma"][k])) if sums else ()
        yield Step(kind, (*step.args, *extra), step.active, step.reads, dict(step.writes) | more, launch)


def _further_rows(run: Executed, sums: dict, launch: int, done: dict) -> Iterator[Step]:
    """Yields a step for each further row: its block writes dx and adds to the same sums. The last one leaves the sums as
    the kernel stored them."""
    found = units(run.shape)
    for row in range(1, len(found)):
        u = Unit(run, run.tiles["BLOCK"], row)
        dy, xhat, _ = gradients(u)
        writes = {"dx": (u.cells, u.of("dx"))}
        for name, total in sums.items():
            total += dy * xhat if name == "dgamma" else dy
            values = run.arrays[name] if row == len(found) - 1 else total.copy()
            writes[name] = (np.arange(run.shape.N), values)
        kind, args = "other_row", (row, float(u.of("dx")[0]))
        if sums:
            kind, args = "other_row_atomic", (*args, row + 1, float(writes["dgamma"][1][0]))
        yield Step(kind, args, None, {"dy": u.cells, "x": u.cells}, writes, launch)
    if len(found) == 1 and (left := rest(run, {}, tuple(sums))):
        yield Step("stored", (), None, {}, left, launch)


def rows_then_columns(run: Executed) -> Iterator[Step]:
    """Yields the steps of dx by rows, then those of dgamma and dbeta by columns."""
    yield from row_backward(run)
    yield from columns(run)
