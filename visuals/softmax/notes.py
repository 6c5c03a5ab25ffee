"""Sentences about the figures of the softmax ladder, with their numbers; and the outcome of every rung at one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import LADDERS, find
from kernels.model.program import RuleError
from kernels.model.verify import agrees, relative_error
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from kernels.softmax import ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title
from visuals.softmax.runs import run_rung

UNSAFE, THREE, LIBRARY = "softmax/unsafe", "softmax/three-pass", ladder.LIBRARY.name
OVERFLOW = 88.72  # above it exp overflows float32, to two decimals
SUBNORMAL = -87.33  # below it exp in float32 keeps fewer digits
UNDERFLOW = -103.97  # below it exp is 0 in float32
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# -- the notes -------------------------------------------------------------------------------------------
def softmax_cost(s: SoftmaxShape) -> str:
    """Returns the bytes that each number of passes moves at this shape."""
    x = 4 * s.elements
    two, three = (units.bytes_((reads + ladder.WRITES) * x) for reads in (2, 3))
    return tr(
        "Three passes over x move {three}. Two passes move {two}. One pass moves {one}, the minimum. "
        "x has {x}, and y is written once in each kernel. These are the bytes that threads request. A row that is still in a "
        "cache is not loaded again from HBM (the GPU’s main memory). Then fewer passes save less.",
        three=three,
        two=two,
        one=units.bytes_(s.bytes),
        x=units.bytes_(x),
    )


def best_safe_kernel(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row of our safe kernels; None if there is none."""
    return fastest(row for name, row in rows.items() if name not in (UNSAFE, LIBRARY))


def softmax_gain(rows: Mapping[str, Row]) -> str:
    """Returns the speedup of fewer passes. `rows`: by rung name, of one device. "" if there is nothing to compare."""
    best, three_pass, library = best_safe_kernel(rows), rows.get(THREE), rows.get(LIBRARY)
    if not best or not three_pass:
        return ""
    name = title(best)
    if best is three_pass:
        sentences = [tr("Three passes are the fastest at this size. Fewer passes save no time.")]
    elif within_spread(best, three_pass):
        sentences = [tr("“{name}” and three passes take the same time: their spreads overlap.", name=name)]
    else:
        ratio = units.ratio(three_pass["median_ms"] / best["median_ms"])
        sentences = [tr("“{name}” is {ratio}× as fast as three passes.", name=name, ratio=ratio)]
    if library:
        speed = library["median_ms"] / best["median_ms"]
        fields = {
            "name": name,
            "library": tr(find(LIBRARY).title),
            "ratio": units.ratio(speed),
            "share": units.share(speed),
        }
        if fields["ratio"] == "1":
            sentences.append(tr("“{name}” is as fast as {library}.", **fields))
        elif speed > 1:
            sentences.append(tr("“{name}” is {ratio}× as fast as {library}.", **fields))
        else:
            sentences.append(tr("“{name}” reaches {share} of the speed of {library}.", **fields))
    return " ".join([*sentences, *_useful(best, three_pass, name)])


def _useful(best: Row, three_pass: Row, name: str) -> list[str]:
    """Returns sentences on the share of the time in which a copy moves the useful bytes: x read once, y written once."""
    ceilings = best.get("ceilings") or {}
    s = SoftmaxShape(**best["shape"])
    ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3 if ceilings else 0
    if ms * 1e3 <= ceilings.get("launch_us", 0):  # then launch overhead dominates
        return []
    fields = {
        "bytes": units.bytes_(s.bytes),
        "time": units.time_(ms),
        "share": units.share(ms / best["median_ms"]),
        "name": name,
        "three": units.share(ms / three_pass["median_ms"]),
    }
    sentences = [
        tr("A kernel’s share of its roof counts all bytes that it moves. Repeated reads count too."),
        tr("Useful bytes are only {bytes}: x read once, y written once. A copy of them takes {time}.", **fields),
    ]
    if best is three_pass:
        return [*sentences, tr("This is {share} of the time of three passes.", **fields)]
    return [
        *sentences,
        tr("This is {share} of the time of “{name}” and {three} of the time of three passes.", **fields),
    ]


@cached(16)
def softmax_examples():
    """Returns (preset, text) of the largest and the smallest speedup of fewer passes, from the cold recordings at the
    default tile sizes."""

    def gained(s: SoftmaxShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS["softmax"].rungs])
        best = best_safe_kernel(rows)
        return rows[THREE]["median_ms"] / best["median_ms"] if best and THREE in rows else None

    return extremes(gained, presets=SOFTMAX_PRESETS)


SOFTMAX = LadderNotes(
    softmax_cost,
    softmax_gain,
    softmax_examples,
    mark("Recorded speed-up of our fastest safe kernel over three passes:"),
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
        words, right = verdict(result.output, ref, scale, find(name).tolerance)
        results.append(
            Outcome(
                name, result.moved("ld") / x.nbytes, result.moved("st") / x.nbytes, ladder.reads(name), words, right
            )
        )
    return results


def verdict(y: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> tuple[str, bool]:
    """Returns how a result compares with the float64 reference, in words, and whether it is right."""
    nan, expected_nan = np.isnan(y), np.isnan(ref)
    if expected_nan.any():
        same = bool((nan == expected_nan).all())
        return (tr("NaN, as the definition says") if same else tr("wrong: it must be NaN")), same
    if nan.any():
        count, size = (decimal(f"{n:,}") for n in (int(nan.sum()), y.size))
        return tr("NaN in {count} of {size}", count=count, size=size), False
    if not agrees(y, ref, scale, tolerance):
        total = decimal(f"{float(y.sum(dtype=np.float64)):.3g}")
        return tr("wrong: the sum is {total}, not 1", total=total), False
    return tr("right, error {error}", error=_power(relative_error(y, ref, scale, tolerance))), True


def _power(error: float) -> str:
    """Format an error: 1.2e-7 -> "1·10⁻⁷"."""
    digit, exponent = f"{error:.0e}".split("e")
    return f"{digit}·10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if error else "0"


def outcomes_sentence(results: Sequence[Outcome]) -> str:
    """Returns how many kernels give the right result for a row."""
    right = sum(outcome.is_right for outcome in results)
    if right == len(results):
        return tr("All kernels give the right result for this row.")
    return trn(
        "{n} of {kernels} kernels gives the right result for this row.",
        "{n} of {kernels} kernels give the right result for this row.",
        right,
        kernels=len(results),
    )


def row_sentence(x: np.ndarray) -> str:
    """Returns which numbers of a row decide whether a rung's result is right."""
    finite = x[np.isfinite(x)]
    if np.isnan(x).any() or (x == np.inf).any():
        return tr(
            "A row with NaN or +∞ gives NaN (not a number) everywhere, because ∞ − ∞ has no value. The kernels that "
            "subtract the maximum return NaN, as NumPy and PyTorch do."
        )
    if not finite.size:
        return tr(
            "All numbers are −∞, so the maximum is −∞. −∞ − (−∞) has no value, so every result is NaN (not a number)."
        )
    largest = float(finite.max())
    text = units.ratio(largest) if largest >= 0 else decimal(f"{largest:.3g}".replace("-", "−"))
    fields = {"largest": text, "limit": decimal(str(OVERFLOW)), "underflow": decimal(str(UNDERFLOW).replace("-", "−"))}
    if largest > OVERFLOW:
        return tr(
            "The largest number is {largest}. Above {limit}, exp overflows FP32 and becomes ∞. ∞ / ∞ is NaN (not a number). "
            "If the maximum is subtracted first, no exponent is above 0.",
            **fields,
        )
    if largest < SUBNORMAL:
        return tr(
            "The largest number is {largest}. exp of every number is so small that FP32 keeps fewer digits. Below {underflow}, "
            "exp is 0, and 0 / 0 is NaN (not a number). If the maximum is subtracted first, the largest exponential is exp(0) = 1.",
            **fields,
        )
    return tr(
        "The largest number is {largest}. exp overflows FP32 only above {limit}. So the unsafe kernel is right too, if the sum "
        "stays below 3.4·10³⁸.",
        **fields,
    )
