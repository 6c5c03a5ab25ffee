"""What the figures of the softmax ladder say, in sentences with the numbers in them; and one row by every rung."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernels.ladders import LADDERS, find
from kernels.model.program import RuleError
from kernels.model.verify import agrees, relative_error
from kernels.softmax import ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, recorded_at
from visuals.softmax.plan import ran

UNSAFE, THREE, LIBRARY = "softmax/unsafe", "softmax/three-pass", ladder.LIBRARY.name
OVERFLOW = 88.72  # exp of what is larger is beyond float32, to two places


# -- the story -------------------------------------------------------------------------------------------
def softmax_cost(s: SoftmaxShape) -> str:
    """What each number of passes moves at this shape."""
    x = 4 * s.elements
    two, three = (units.bytes_((reads + ladder.WRITES) * x) for reads in (2, 3))
    return (
        f"x takes {units.bytes_(x)}, and y as much. Three passes and the result move {three}, two passes {two}, a row that is read "
        f"once {units.bytes_(s.bytes)}: the least there can be. These are the bytes that the threads ask for. A row that is "
        "still in a cache when it is read again does not come from HBM twice: then fewer passes save less."
    )


def best_own(rows: Mapping[str, Row]) -> Row | None:
    """The fastest of the safe kernels of ours."""
    own = [row for name, row in rows.items() if name not in (UNSAFE, LIBRARY)]
    return min(own, key=lambda row: row["median_ms"], default=None)


def softmax_gain(rows: Mapping[str, Row]) -> str:
    """What fewer passes buy, `rows` by rung name from one device; "" where there is nothing to compare."""
    best, three, library = best_own(rows), rows.get(THREE), rows.get(LIBRARY)
    if not best or not three:
        return ""
    name, told = find(best["rung"]).title, []
    if best is three:
        told.append("Three passes are the fastest here: fewer buy nothing, for the row is still in a cache.")
    elif _overlap(best, three):
        told.append(f"“{name}” and three passes cannot be told apart here: their spreads overlap.")
    else:
        told.append(
            f"“{name}” is {units.ratio(three['median_ms'] / best['median_ms'])} times as fast as three passes."
        )
    if library:
        share = units.share(library["median_ms"] / best["median_ms"])
        told.append(f"It reaches {share} of the speed of {find(LIBRARY).title}.")
    if ceilings := best.get("ceilings"):
        s = SoftmaxShape(**best["shape"])
        ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3
        told.append(
            f"A copy of x takes {units.time_(ms)} there: {units.share(ms / best['median_ms'])} of its time."
        )
    return " ".join(told)


def _overlap(row: Row, other: Row) -> bool:
    return row["p20_ms"] <= other["p80_ms"] and other["p20_ms"] <= row["p80_ms"]


@cache
def softmax_examples():
    """The presets at which fewer passes gain most and least, by the recordings made cold at the usual tile sizes."""

    def gained(s: SoftmaxShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS["softmax"].rungs])
        best = best_own(rows)
        return rows[THREE]["median_ms"] / best["median_ms"] if best and THREE in rows else None

    return extremes(gained, presets=SOFTMAX_PRESETS)


SOFTMAX = Story(
    softmax_cost, softmax_gain, softmax_examples, "our best kernel, times as fast as three passes, recorded:"
)


# -- a row by every rung -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outcome:
    """What a rung made of a row: x and y moved so many times (counted, and predicted of x), and how y turned out."""

    rung: str
    reads: float
    writes: float
    predicted: int
    words: str
    right: bool


def outcomes(x: np.ndarray, tiles: Mapping[str, Mapping[str, int]]) -> list[Outcome]:
    """Each rung of `tiles` (its name: its tile sizes) at a row x, float32 [n], executed in the emulator and held
    against float64."""
    shape = SoftmaxShape(1, x.size)
    (ref,), (scale,) = LADDERS["softmax"].reference(shape, x=x[None])
    told = []
    for name, sizes in tiles.items():
        try:
            done = ran(name, tuple(sizes.items()), np.ascontiguousarray(x).tobytes())
        except RuleError:  # no compiler here for these tile sizes: where the stage would stand it is said
            continue
        total = done.counters.total
        words, right = verdict(done.output, ref, scale, find(name).tolerance)
        told.append(
            Outcome(
                name,
                total["bytes_ld"] / x.nbytes,
                total["bytes_st"] / x.nbytes,
                ladder.reads(name),
                words,
                right,
            )
        )
    return told


def verdict(y: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> tuple[str, bool]:
    """How a result turned out against the float64 reference, in words, and whether it is right."""
    nan, must = np.isnan(y), np.isnan(ref)
    if must.any():
        same = bool((nan == must).all())
        return ("NaN, as the definition has it" if same else "not NaN where it must be"), same
    if nan.any():
        return f"NaN in {int(nan.sum())} of {y.size}", False
    if not agrees(y, ref, scale, tolerance):
        return f"wrong: it adds up to {float(y.sum(dtype=np.float64)):.3g}, not to 1", False
    return f"right, error {relative_error(y, ref):.0e}", True


def row_words(x: np.ndarray) -> str:
    """What there is in a row that decides which rungs get it right."""
    finite = x[np.isfinite(x)]
    if np.isnan(x).any() or (x == np.inf).any():
        return "A NaN or +∞ in a row makes all of it NaN: ∞ − ∞ has no value. Every rung says so, as NumPy and PyTorch do."
    if not finite.size:
        return "A row of nothing but −∞ has the maximum −∞, and −∞ − (−∞) has no value: all of it is NaN."
    largest = float(finite.max())
    told = f"The largest number is {units.ratio(largest) if largest >= 0 else f'{largest:.3g}'.replace('-', '−')}. "
    if largest > OVERFLOW:
        return (
            told
            + f"Beyond {OVERFLOW} exp overflows FP32 to ∞, and ∞ / ∞ is NaN. Less the maximum, no exponent is above 0."
        )
    if largest < -103:
        return (
            told
            + "exp of all of them is 0 in FP32, and 0 / 0 is NaN. Less the maximum, the largest has exp(0) = 1."
        )
    return (
        told
        + f"exp overflows FP32 beyond {OVERFLOW}: here even the unsafe kernel has nothing to fear, if the sum stays below 3.4·10³⁸."
    )
