"""Sentences about the figures of the softmax ladder, with their numbers; and the outcome of every rung at one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernels.ladders import LADDERS, find
from kernels.model.program import RuleError
from kernels.model.verify import agrees, relative_error
from kernels.records.statistics import fastest, within_spread
from kernels.softmax import ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, recorded_at
from visuals.softmax.plan import run_rung

UNSAFE, THREE, LIBRARY = "softmax/unsafe", "softmax/three-pass", ladder.LIBRARY.name
OVERFLOW = 88.72  # above it exp overflows float32, to two decimals


# -- the story -------------------------------------------------------------------------------------------
def softmax_cost(s: SoftmaxShape) -> str:
    """Returns the bytes that each number of passes moves at this shape."""
    x = 4 * s.elements
    two, three = (units.bytes_((reads + ladder.WRITES) * x) for reads in (2, 3))
    return (
        f"x takes {units.bytes_(x)}, and y as much. Three passes and the result move {three}, two passes {two}, a row that is read "
        f"once {units.bytes_(s.bytes)}: the least there can be. These are the bytes that the threads ask for. A row that is "
        "still in a cache when it is read again does not come from HBM twice: then fewer passes save less."
    )


def best_safe_kernel(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row of our safe kernels; None if there is none."""
    return fastest(row for name, row in rows.items() if name not in (UNSAFE, LIBRARY))


def softmax_gain(rows: Mapping[str, Row]) -> str:
    """Returns the speedup of fewer passes. `rows`: by rung name, of one device. "" if there is nothing to compare."""
    best, three_pass, library = best_safe_kernel(rows), rows.get(THREE), rows.get(LIBRARY)
    if not best or not three_pass:
        return ""
    name, sentences = find(best["rung"]).title, []
    if best is three_pass:
        sentences.append(
            "Three passes are the fastest here: fewer buy nothing, for the row is still in a cache."
        )
    elif within_spread(best, three_pass):
        sentences.append(f"“{name}” and three passes cannot be told apart here: their spreads overlap.")
    else:
        sentences.append(
            f"“{name}” is {units.ratio(three_pass['median_ms'] / best['median_ms'])} times as fast as three passes."
        )
    if library:
        share = units.share(library["median_ms"] / best["median_ms"])
        sentences.append(f"It reaches {share} of the speed of {find(LIBRARY).title}.")
    if ceilings := best.get("ceilings"):
        s = SoftmaxShape(**best["shape"])
        ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3
        sentences.append(
            f"A copy of x takes {units.time_(ms)} there: {units.share(ms / best['median_ms'])} of its time."
        )
    return " ".join(sentences)


@cache
def softmax_examples():
    """Returns (preset, text) of the largest and the smallest speedup of fewer passes, from the cold recordings at the
    default tile sizes."""

    def gained(s: SoftmaxShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS["softmax"].rungs])
        best = best_safe_kernel(rows)
        return rows[THREE]["median_ms"] / best["median_ms"] if best and THREE in rows else None

    return extremes(gained, presets=SOFTMAX_PRESETS)


SOFTMAX = Story(
    softmax_cost, softmax_gain, softmax_examples, "our best kernel, times as fast as three passes, recorded:"
)


# -- a row by every rung -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outcome:
    """A rung's result at a row: how often it read x (counted, and predicted) and wrote y, and whether y is right."""

    rung: str
    reads: float
    writes: float
    predicted: int
    verdict: str
    is_right: bool


def outcomes(x: np.ndarray, tiles: Mapping[str, Mapping[str, int]]) -> list[Outcome]:
    """Returns the outcome of each rung of `tiles` (name: tile sizes) at a row x, float32 [n], executed in the emulator and
    compared with float64. Rungs that cannot run are left out."""
    shape = SoftmaxShape(1, x.size)
    (ref,), (scale,) = LADDERS["softmax"].reference(shape, x=x[None])
    results = []
    for name, sizes in tiles.items():
        try:
            result = run_rung(name, tuple(sizes.items()), np.ascontiguousarray(x).tobytes())
        except RuleError:  # no compiler here for these tile sizes: the page says so in place of the scene
            continue
        total = result.counters.total
        words, right = verdict(result.output, ref, scale, find(name).tolerance)
        results.append(
            Outcome(
                name,
                total["bytes_ld"] / x.nbytes,
                total["bytes_st"] / x.nbytes,
                ladder.reads(name),
                words,
                right,
            )
        )
    return results


def verdict(y: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> tuple[str, bool]:
    """Returns how a result compares with the float64 reference, in words, and whether it is right."""
    nan, expected_nan = np.isnan(y), np.isnan(ref)
    if expected_nan.any():
        same = bool((nan == expected_nan).all())
        return ("NaN, as the definition has it" if same else "not NaN where it must be"), same
    if nan.any():
        return f"NaN in {int(nan.sum())} of {y.size}", False
    if not agrees(y, ref, scale, tolerance):
        return f"wrong: it adds up to {float(y.sum(dtype=np.float64)):.3g}, not to 1", False
    return f"right, error {relative_error(y, ref):.0e}", True


def row_sentence(x: np.ndarray) -> str:
    """Returns which numbers of a row decide whether a rung's result is right."""
    finite = x[np.isfinite(x)]
    if np.isnan(x).any() or (x == np.inf).any():
        return "A NaN or +∞ in a row makes all of it NaN: ∞ − ∞ has no value. Every rung says so, as NumPy and PyTorch do."
    if not finite.size:
        return "A row of nothing but −∞ has the maximum −∞, and −∞ − (−∞) has no value: all of it is NaN."
    largest = float(finite.max())
    text = f"The largest number is {units.ratio(largest) if largest >= 0 else f'{largest:.3g}'.replace('-', '−')}. "
    if largest > OVERFLOW:
        return (
            text
            + f"Beyond {OVERFLOW} exp overflows FP32 to ∞, and ∞ / ∞ is NaN. Less the maximum, no exponent is above 0."
        )
    if largest < -103:
        return (
            text
            + "exp of all of them is 0 in FP32, and 0 / 0 is NaN. Less the maximum, the largest has exp(0) = 1."
        )
    return (
        text
        + f"exp overflows FP32 beyond {OVERFLOW}: here even the unsafe kernel has nothing to fear, if the sum stays below 3.4·10³⁸."
    )
