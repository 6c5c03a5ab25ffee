"""The kernels that share a channel, or the rows, among several blocks: one step for each block's part.

Partial results are those that the kernels stored in workspace, from the emulator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.norm.shape import EPS, NHWC
from visuals.norm.plan import Cells, Executed, Step, merged, rest, units, written

F = np.float32
MAX_PARTS = 12  # that are shown one by one


def _ranges(total: int, size: int) -> list[np.ndarray]:
    return [np.arange(first, min(first + size, total)) for first in range(0, total, size)]


def _part_size(run: Executed) -> int:
    """Returns how many numbers of a channel a part has."""
    if run.shape.layout == NHWC:
        return int(np.array(run.launches[0].args[-2]))
    width, names = run.defines(0)["WIDTH"], [a for a in run.launches[0].args if isinstance(a, str)]
    return int(np.array(run.launches[0].args[len(names) + 1])) * width


def _channels(run: Executed) -> np.ndarray:
    """Returns the channels that one block computes: one in NCHW, a tile of them in NHWC."""
    if run.shape.layout != NHWC:
        return np.array([0])
    defines = run.defines(0)
    return np.arange(min(run.shape.C, defines["TX"] * defines["WIDTH"]))


# -- batch norm in training ------------------------------------------------------------------------------
def split(run: Executed) -> Iterator[Step]:
    """Yields the steps of batch norm by several blocks per channel, in either layout."""
    nhwc = run.shape.layout == NHWC
    channels, ranges = _channels(run), _ranges(run.shape.count, _part_size(run))
    cells, parts = units(run.shape)[channels], len(ranges)
    partial = run.arrays["partial"].reshape(run.shape.C, parts, 2)
    for p, j in enumerate(ranges):
        own = (channels[:, None] * parts * 2 + 2 * p + np.arange(2)).ravel()
        args = (p, len(j), *(float(v) for v in partial[0, p]), len(channels), int(j[0]), int(j[-1]))
        kind = "part_nhwc" if nhwc else "part"
        yield Step(kind, args, None, {"x": cells[:, j].ravel()}, {"partial": (own, run.arrays["partial"][own])})
    done = (channels[:, None] * parts * 2 + np.arange(2 * parts)).ravel()
    if left := rest(run, {"partial": done}, ("partial",)):
        others = np.setdiff1d(np.arange(run.shape.C), channels)
        yield Step("other_parts", (len(others),), None, {"x": units(run.shape)[others].ravel()}, left)
    yield from _merge(run, partial, [len(j) for j in ranges])
    yield from _apply(run, "x", "y", channels, ranges)


def _merge(run: Executed, partial: np.ndarray, sizes: list[int]) -> Iterator[Step]:
    """Yields Chan's merges of the parts of channel 0, then the step that stores mean and 1 / std."""
    state = {name: np.zeros(1, F) for name in ("n", "mean", "M2")}
    for p, size in enumerate(sizes):
        of_part = {"n": np.array([size], F), "mean": partial[0, p, :1], "M2": partial[0, p, 1:]}
        joined = merged(state, of_part)
        numbers = [float(v[0]) for s in (state, of_part, joined) for v in s.values()]
        writes = {f"all_{name}": (np.array([0]), value) for name, value in joined.items()}
        totals = {name: float(value[0]) for name, value in joined.items()}
        reads = {"partial": 2 * p + np.arange(2)}
        yield Step("merge" if p else "merge_first", (p, *numbers), None, reads, writes, 1, totals)
        state = joined
    variance = float(state["M2"][0] / F(run.shape.count))
    args = (float(state["M2"][0]), float(run.shape.count), variance, float(run.arrays["invstd"][0]), EPS)
    writes = rest(run, {}, ("mean", "invstd"))
    yield Step("invstd_parts", args, None, {}, writes, 1, {"variance": variance})


def _apply(run: Executed, source: str, out: str, channels: np.ndarray, ranges: list[np.ndarray]) -> Iterator[Step]:
    """Yields the steps of the last launch, whose blocks begin with the last part; then those of the other channels."""
    launch, values, cells = len(run.launches) - 1, run.arrays[out], units(run.shape)[channels]
    reads, names = (source,) if source == "x" else (source, "x"), []
    for p in range(len(ranges) - 1, -1, -1):
        at = cells[:, ranges[p]].ravel()
        k = int(at[0])
        step = Step(
            f"apply_{out}",
            (p, *_example(run, k, int(channels[0]), out)),
            None,
            dict.fromkeys(reads, at),
            {out: (at, values[at])},
            launch,
        )
        names.append(step)
        yield step
    if left := rest(run, written(names), (out,)):
        yield Step("others", (run.shape.C - len(channels),), None, dict.fromkeys(reads, left[out][0]), left, launch)


def _example(run: Executed, k: int, channel: int, out: str) -> tuple[float, ...]:
    """Returns the numbers of a caption for cell k of y or dx."""
    of = {name: float(v[channel]) for name, v in run.arrays.items() if v.size == run.shape.C}
    x, value = float(run.arrays["x"][k]), float(run.arrays[out][k])
    if out == "y":
        return x, of["mean"], of["invstd"], of["gamma"], of["beta"], value
    n, xhat = run.shape.count, float((F(x) - F(of["mean"])) * F(of["invstd"]))
    factor = of["gamma"] * of["invstd"]
    return float(run.arrays["dy"][k]), xhat, of["dbeta"] / n, of["dgamma"] / n, factor, value


# -- the gradients of batch norm -------------------------------------------------------------------------
def backward_split(run: Executed) -> Iterator[Step]:
    """Yields the steps of the gradients of batch norm by several blocks per channel, in NCHW: two launches."""
    ranges = _ranges(run.shape.count, _part_size(run))
    cells, parts = units(run.shape)[0], len(ranges)
    partial = run.arrays["partial"].reshape(run.shape.C, parts, 2)
    for p, j in enumerate(ranges):
        own = 2 * p + np.arange(2)
        args = (p, len(j), *(float(v) for v in partial[0, p]))
        reads = {"dy": cells[j], "x": cells[j]}
        yield Step("part_gradients", args, None, reads, {"partial": (own, partial[0, p])})
    if left := rest(run, {"partial": np.arange(2 * parts)}, ("partial",)):
        at = units(run.shape)[1:].ravel()
        yield Step("other_parts", (run.shape.C - 1,), None, {"dy": at, "x": at}, left)
    beta, gamma = float(run.arrays["dbeta"][0]), float(run.arrays["dgamma"][0])
    writes = rest(run, {}, ("dgamma", "dbeta"))
    yield Step("sum_parts", (parts, beta, gamma), None, {"partial": np.arange(2 * parts)}, writes, 1)
    yield from _apply(run, "dy", "dx", np.array([0]), ranges)


def backward_split_nhwc(run: Executed, launches: int = 2) -> Iterator[Step]:
    """Yields the steps of the gradients of batch norm in NHWC: partial sums, one launch or two that add them, dx."""
    channels, ranges = _channels(run), _ranges(run.shape.count, _part_size(run))
    cells, C = units(run.shape)[channels], run.shape.C
    for p, j in enumerate(ranges):
        own, at = p * C + channels, cells[:, j].ravel()
        writes = {name: (own, run.arrays[name][own]) for name in ("partial_gamma", "partial_beta")}
        args = (p, len(j), *(float(run.arrays[n][own[0]]) for n in ("partial_beta", "partial_gamma")))
        yield Step("part_gradients", args, None, {"dy": at, "x": at}, writes)
    own = (np.arange(len(ranges))[:, None] * C + channels).ravel()
    if left := rest(run, {"partial_gamma": own, "partial_beta": own}, ("partial_gamma", "partial_beta")):
        at = units(run.shape)[np.setdiff1d(np.arange(C), channels)].ravel()
        yield Step("other_parts", (C - len(channels),), None, {"dy": at, "x": at}, left)
    yield from _column_sums(run, 1, launches)
    yield from _apply(run, "dy", "dx", channels, ranges)


def backward_one_sum(run: Executed) -> Iterator[Step]:
    return backward_split_nhwc(run, launches=1)


def _column_sums(run: Executed, first: int, launches: int = 2) -> Iterator[Step]:
    """Yields the sums of the rows of partial_gamma and partial_beta, in one launch or two."""
    for n, name in enumerate(n for n in ("gamma", "beta") if f"partial_{n}" in run.arrays):
        values, partial = run.arrays[f"d{name}"], run.arrays[f"partial_{name}"]
        args = (partial.size // values.size, float(values[0]))
        reads = {f"partial_{name}": np.arange(partial.size)}
        yield Step(
            f"{'pair' if launches == 1 else 'sum'}_{name}",
            args,
            None,
            reads,
            {f"d{name}": (np.arange(values.size), values)},
            first + n % launches,
        )


# -- inference -------------------------------------------------------------------------------------------
def formula(run: Executed) -> Iterator[Step]:
    """Yields one step for each block: every thread computes one number."""
    vectors = ("gamma", "beta", "mean", "var")
    yield from _blocks(run, "formula", run.tiles["BLOCK"], 0, vectors)


def folded(run: Executed) -> Iterator[Step]:
    """Yields the fold of each channel, then one step for each block of the second launch."""
    C, values = run.shape.C, run.arrays["folded"]
    for channel in range(min(C, MAX_PARTS)):
        at = np.array([channel, C + channel])
        of = [float(run.arrays[name][channel]) for name in ("gamma", "var", "beta", "mean")]
        reads: dict[str, Cells] = dict.fromkeys(("gamma", "beta", "mean", "var"), np.array([channel]))
        args = (channel, *of, *(float(v) for v in values[at]))
        yield Step("fold", args, None, reads, {"folded": (at, values[at])})
    shown = np.arange(min(C, MAX_PARTS))
    if left := rest(run, {"folded": np.concatenate([shown, C + shown])}, ("folded",)):
        yield Step("fold_others", (C - len(shown),), None, {}, left)
    yield from _blocks(run, "scale_shift", 16 * run.tiles["BLOCK"], 1, ("folded",))


def _blocks(run: Executed, kind: str, size: int, launch: int, vectors: tuple[str, ...]) -> Iterator[Step]:
    y, x, done = run.arrays["y"], run.arrays["x"], []
    channel_of = np.empty(y.size, int)
    for channel, cells in enumerate(units(run.shape)):
        channel_of[cells] = channel
    ranges = _ranges(y.size, size)
    for block, at in enumerate(ranges[:MAX_PARTS]):
        k, channels = int(at[0]), np.unique(channel_of[at])
        c = int(channel_of[k])
        reads = {"x": at}
        for name in vectors:
            reads[name] = np.concatenate([channels, run.shape.C + channels]) if name == "folded" else channels
        of = (
            [float(run.arrays["folded"][i]) for i in (c, run.shape.C + c)]
            if "folded" in vectors
            else [float(run.arrays[name][c]) for name in vectors]
        )
        step = Step(
            kind,
            (block, len(ranges), float(x[k]), c, *of, float(y[k]), len(at)),
            None,
            reads,
            {"y": (at, y[at])},
            launch,
        )
        done.append(step)
        yield step
    if left := rest(run, written(done), ("y",)):
        others = len(ranges) - MAX_PARTS
        yield Step("other_blocks", (others,), None, {"x": left["y"][0]}, left, launch)


# -- rows ------------------------------------------------------------------------------------------------
def row_sums(run: Executed) -> Iterator[Step]:
    """Yields the steps of rows in registers: block b takes rows b, b + blocks, and so on. Then its sums are stored."""
    partials = [name for name in ("partial_gamma", "partial_beta") if name in run.arrays]
    N, blocks = run.shape.N, run.arrays["partial_gamma"].size // run.shape.N
    sums = {name: np.zeros((blocks, N), F) for name in partials}
    for row, cells in enumerate(units(run.shape)):
        block, xhat = row % blocks, _xhat(run, row)
        dy, writes = run.arrays["dy"][cells], {"dx": (cells, run.arrays["dx"][cells])}
        for name, total in sums.items():
            total[block] += dy * xhat if name == "partial_gamma" else dy
            writes[f"own_{name}"] = (block * N + np.arange(N), total[block].copy())
        term = float(dy[0] * xhat[0])
        args = (block, row, float(run.arrays["dx"][cells[0]]), term, float(sums["partial_gamma"][block, 0]))
        yield Step("row_of_block", args, None, {"dy": cells, "x": cells}, writes)
    stored = {name: (np.arange(blocks * N), run.arrays[name]) for name in partials}
    reads = {f"own_{name}": np.arange(blocks * N) for name in partials}
    yield Step("store_sums", (blocks,), None, reads, stored)
    yield from _column_sums(run, 1)


def _xhat(run: Executed, row: int) -> np.ndarray:
    x = run.arrays["x"][units(run.shape)[row]]
    if "mean" in run.arrays:
        return (x - run.arrays["mean"][row]) * run.arrays["invstd"][row]
    return x * run.arrays["invrms"][row]


WARPS = 8  # of a block of 27_ln_backward_columns.cu


def columns(run: Executed) -> Iterator[Step]:
    """Yields the steps of the launch by columns: eight rows at a time, then the sums of the warps."""
    M, N = run.shape.M, run.shape.N
    own = {name: np.zeros((WARPS, N), F) for name in ("dgamma", "dbeta")}
    for first in range(0, M, WARPS):
        rows = np.arange(first, min(first + WARPS, M))
        for row in rows.tolist():
            dy = run.arrays["dy"][units(run.shape)[row]]
            own["dgamma"][row % WARPS] += dy * _xhat(run, row)
            own["dbeta"][row % WARPS] += dy
        at = units(run.shape)[rows].ravel()
        writes = {f"warp_{name}": (np.arange(total.size), total.ravel().copy()) for name, total in own.items()}
        args = (first, int(rows[-1]), float(own["dgamma"][0, 0]), float(own["dbeta"][0, 0]))
        yield Step("rows_of_warps", args, None, {"dy": at, "x": at}, writes, 1)
    outputs = {name: (np.arange(N), run.arrays[name]) for name in own}
    reads = {f"warp_{name}": np.arange(WARPS * N) for name in own}
    args = (float(run.arrays["dgamma"][0]), float(run.arrays["dbeta"][0]))
    yield Step("sum_warps", args, None, reads, outputs, 1)
