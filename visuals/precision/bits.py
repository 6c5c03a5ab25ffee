"""A number as a format stores it, bit by bit: sign, exponent, mantissa, and the numbers next to it.

The bits come from kernels.precision.formats. A step is one decision: sign, exponent, the bits that fit, rounding, result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.precision.formats import FORMATS, Format, pattern, rounded
from kernels.precision.quantize import HIGH, LOW
from visuals.scene.parts import Group, Reading, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

INT8 = "INT8"
NAMES = (*FORMATS, INT8)
INT8_SCALE = 1 / 16
REST = 6  # bits shown beyond the mantissa
PLACES = 21  # cells of the number line from one neighbour, 0, to the next, 1
ORDER_NOTE = mark("A conversion instruction does all of this at once. The stage shows its decisions one by one.")
CAPTIONS = {
    "positive": mark("x = {0}. The sign bit is 0: x is not negative."),
    "negative": mark("x = {0}. The sign bit is 1: x is negative."),
    "zero": mark("x is 0. All bits of the exponent and of the mantissa are 0."),
    "exponent": mark(
        "x is at least 2^{0} and below 2^{1}, apart from its sign. So its exponent is {0}. The format stores {0} + {2} = {3}: {2} is its bias."
    ),
    "subnormal": mark(
        "x is below 2^{0}, the smallest normal number. The exponent is stored as 0, and no 1 is before the point: x becomes subnormal."
    ),
    "too_large": mark("x is 2^{0} or more. The largest exponent of this format is {1}."),
    "bits": mark("The first {0} bits after the point go into the mantissa. The 1 before the point is not stored."),
    "bits_subnormal": mark(
        "The first {0} bits after the point go into the mantissa. {1} of them are zeros in front: as many digits are lost."
    ),
    "exact": mark("No bit that is 1 is left over. x is stored exactly."),
    "down": mark("What is left over is {0} of the distance to the next number: less than half. It is dropped."),
    "up": mark(
        "What is left over is {0} of the distance to the next number: more than half. The mantissa is rounded up."
    ),
    "tie_down": mark(
        "What is left over is exactly half of the distance: a tie. The neighbour whose last bit is 0 is the lower one."
    ),
    "tie_up": mark(
        "What is left over is exactly half of the distance: a tie. The neighbour whose last bit is 0 is the upper one."
    ),
    "overflow": mark("The result is beyond the largest number, {0}. It becomes infinity: an overflow."),
    "overflow_nan": mark(
        "The result is beyond the largest number, {0}. This format has no infinity, so it becomes NaN."
    ),
    "underflow": mark("The result is 0. x is not larger than half of {0}, the smallest number: an underflow."),
    "result": mark("Stored is {0}. The error is {1}, that is {2} % of x."),
    "result_exact": mark("Stored is {0}. The error is 0."),
    "divide": mark("INT8 stores whole numbers. The scale here is {1}, so x / scale = {2} is stored for x = {0}."),
    "whole": mark("{0} is rounded to the nearest whole number: {1}."),
    "clamped": mark("{0} is rounded, then clamped to {1}: INT8 ends at −128 and 127."),
    "complement": mark("The bits of {0} in two's complement: the first bit counts −128."),
}


@dataclass(frozen=True)
class Parts:
    """x in a format: the exponent of its unit, x in units (rounded to nothing), the bits before and after rounding."""

    f: Format
    x: float

    @property
    def exponent(self) -> int:
        """Returns the exponent of |x|: 2^exponent <= |x|."""
        return math.frexp(self.x)[1] - 1

    @property
    def unit_exponent(self) -> int:
        """Returns the exponent that the stored number has: not below the smallest of a normal number."""
        return min(max(self.exponent, self.f.min_exponent), self.f.max_exponent)

    @property
    def units(self) -> float:
        """Returns |x| in units of its last mantissa bit."""
        return math.ldexp(abs(self.x), self.f.mantissa_bits - self.unit_exponent)

    @property
    def too_large(self) -> bool:
        return self.x != 0 and self.exponent > self.f.max_exponent

    @property
    def rest(self) -> float:
        return self.units - math.floor(self.units)

    @property
    def stored(self) -> float:
        return float(rounded(self.x, self.f))

    def significand(self, count: int) -> np.ndarray:
        """Returns the bits of |x| / 2^unit_exponent: the one before the point and `count` after it."""
        whole = math.floor(math.ldexp(self.units, count - self.f.mantissa_bits))
        return np.array([whole >> n & 1 for n in range(count, -1, -1)], np.float32)

    def neighbours(self) -> tuple[float, float]:
        """Returns the numbers of the format below and above |x|."""
        unit = math.ldexp(1.0, self.unit_exponent - self.f.mantissa_bits)
        low = math.floor(self.units) * unit
        return low, low + unit


def bits_scene(name: str, x: float) -> Scene:
    """Returns the scene of x in the format of that name (of NAMES)."""
    return _int8_scene(x) if name == INT8 else _float_scene(FORMATS[name], x)


# -- floating point --------------------------------------------------------------------------------------
def _float_scene(f: Format, x: float) -> Scene:
    p, r = Parts(f, x), _recorded(f, x)
    between = x != 0 and not p.too_large
    low, high = p.neighbours() if between else (0.0, 0.0)
    title = tr("{x} in {format}", x=f"{x:g}", format=f.name)
    readings = [
        Reading("x", np.full(r.steps, x, np.float32), role="input"),
        Reading(tr("distance to the next number"), np.full(r.steps, high - low, np.float32)),
    ]
    tensors, groups = _stored_tensors(f), [_stored_group(f)]
    if between:
        tensors = [_binary(p), *tensors, _line(low, high)]
        before, after = (
            Group((("x",),), "global", tr("before")),
            Group((("line",),), "global", tr("between two neighbours")),
        )
        groups = [before, *groups, after]
    return _scene(f"{f.name} {x!r}", title, tensors, groups, r, readings)


def _recorded(f: Format, x: float) -> Recorder:
    """Returns the decisions and the bits that each of them writes."""
    p, r = Parts(f, x), Recorder({name: (n, tr(text)) for n, (name, text) in enumerate(CAPTIONS.items())})
    bits = _bits(pattern(x, f), f.bits)
    exponent, mantissa = bits[1 : 1 + f.exponent_bits], bits[1 + f.exponent_bits :]
    r.step("negative" if np.signbit(x) else "positive", x)
    r.put("s", bits[:1])
    if x == 0:
        r.step("zero")
        r.put("e", exponent)
        r.put("m", mantissa)
    else:
        _exponent_step(r, p, exponent)
        if p.too_large:
            r.put("m", mantissa)
        else:
            _mantissa_steps(r, p, exponent, mantissa)
    _result_step(r, p)
    return r


def _stored_tensors(f: Format) -> list[Tensor]:
    exponent, mantissa = (tr("{n} bits", n=n) for n in (f.exponent_bits, f.mantissa_bits))
    return [
        Tensor("s", "s", tr("sign"), "workspace", 1, 1, 1),
        Tensor("e", "e", tr("exponent"), "filter", 1, 1, f.exponent_bits, note=exponent),
        Tensor("m", "m", tr("mantissa"), "output", 1, 1, f.mantissa_bits, note=mantissa),
    ]


def _stored_group(f: Format) -> Group:
    title = tr("{format}: {n} bits", format=f.name, n=f.bits)
    return Group((("s", "e", "m"),), "registers", title, aligned=True)


def _binary(p: Parts) -> Tensor:
    """Returns the bits of |x|, some more than the mantissa holds."""
    shown = p.f.mantissa_bits + REST
    note = tr("× 2^{exponent}, the first bit is before the point", exponent=p.unit_exponent)
    return Tensor("x", "x", tr("x in binary"), "input", 1, 1, 1 + shown, p.significand(shown), note=note)


def _line(low: float, high: float) -> Tensor:
    note = tr("from {low} to {high}", low=decimal(f"{low:.6g}"), high=decimal(f"{high:.6g}"))
    return Tensor("line", "line", tr("number line"), "input", 1, 1, PLACES, note=note, timed=True)


def _bits(pattern: int, count: int) -> np.ndarray:
    """Returns the bits of a pattern from the top: float32 of 0 and 1."""
    return np.array([pattern >> n & 1 for n in range(count - 1, -1, -1)], np.float32)


def _exponent_step(r: Recorder, p: Parts, stored: np.ndarray) -> None:
    f = p.f
    if p.too_large:
        r.step("too_large", p.exponent, f.max_exponent)
        r.put("e", stored)
        return
    below = p.exponent < f.min_exponent
    if below:
        r.step("subnormal", f.min_exponent)
        r.put("e", np.zeros(f.exponent_bits))
    else:
        r.step("exponent", p.exponent, p.exponent + 1, f.bias, p.exponent + f.bias)
        r.put("e", _bits(p.exponent + f.bias, f.exponent_bits))


def _mantissa_steps(r: Recorder, p: Parts, exponent: np.ndarray, mantissa: np.ndarray) -> None:
    """Records the bits that fit, then what rounding makes of the rest. A carry can change the exponent."""
    f = p.f
    kept = np.arange(f.mantissa_bits)
    zeros = p.unit_exponent - p.exponent - 1
    if zeros >= 0:
        r.step("bits_subnormal", f.mantissa_bits, min(zeros, f.mantissa_bits))
    else:
        r.step("bits", f.mantissa_bits)
    r.copy("m", "x", 1 + kept)
    r.look("x", 1 + kept)
    even = math.floor(p.units) % 2 == 0
    way = (
        "exact"
        if p.rest == 0
        else "down"
        if p.rest < 0.5
        else "up"
        if p.rest > 0.5
        else "tie_down"
        if even
        else "tie_up"
    )
    r.step(way, p.rest)
    r.look("x", np.arange(f.mantissa_bits + 1, f.mantissa_bits + 1 + REST))
    if way in ("up", "tie_up"):
        r.put("m", mantissa)
        if (
            exponent
            != _bits(p.unit_exponent + f.bias if math.floor(p.units) >> f.mantissa_bits else 0, f.exponent_bits)
        ).any():
            r.put("e", exponent)
    r.put("line", np.array([0.0, 1.0]), np.array([0, PLACES - 1]))
    if p.rest:
        r.put("line", [p.rest], [int(np.clip(round(p.rest * (PLACES - 1)), 1, PLACES - 2))])


def _result_step(r: Recorder, p: Parts) -> None:
    if not math.isfinite(p.stored):
        r.step("overflow" if p.f.infinities else "overflow_nan", p.f.max)
        return
    error = p.stored - p.x
    if p.stored == 0 and p.x != 0:
        r.step("underflow", p.f.tiny)
    elif error:
        r.step("result", p.stored, error, 100 * abs(error / p.x))
    else:
        r.step("result_exact", p.stored)
    if p.x != 0:
        r.look("line", np.array([PLACES - 1 if abs(p.stored) > p.neighbours()[0] else 0]))


# -- INT8 ------------------------------------------------------------------------------------------------
def _int8_scene(x: float) -> Scene:
    r = Recorder({name: (n, tr(text)) for n, (name, text) in enumerate(CAPTIONS.items())})
    units = x / INT8_SCALE
    q = int(np.clip(np.rint(units), LOW, HIGH))
    r.step("divide", x, INT8_SCALE, units)
    r.put("units", [units])
    r.step("whole" if LOW <= np.rint(units) <= HIGH else "clamped", units, q)
    r.put("q", [q])
    r.step("complement", q)
    r.put("bits", _bits(q & 0xFF, 8))
    stored = q * INT8_SCALE
    error = stored - x
    if error and x:
        r.step("result", stored, error, 100 * abs(error / x))
    else:
        r.step("result_exact", stored)
    r.put("back", [stored])
    tensors = [
        Tensor("x", "x", "x", "input", 1, 1, 1, np.array([x], np.float32)),
        Tensor("units", "units", tr("x / scale"), "workspace", 1, 1, 1),
        Tensor("q", "q", tr("whole number"), "output", 1, 1, 1),
        Tensor("bits", "bits", tr("8 bits"), "output", 1, 1, 8),
        Tensor("back", "back", tr("times scale"), "output", 1, 1, 1),
    ]
    groups = [Group((("x", "units", "q", "bits", "back"),), "registers", tr("INT8 with scale 1/16"), aligned=True)]
    return _scene(
        f"INT8 {x!r}",
        tr("{x} in {format}", x=f"{x:g}", format=INT8),
        tensors,
        groups,
        r,
        [
            Reading("x", np.full(r.steps, x, np.float32), role="input"),
            Reading(tr("distance to the next number"), np.full(r.steps, INT8_SCALE, np.float32)),
        ],
    )


def _scene(key: str, title: str, tensors: list, groups: list, r: Recorder, readings: list) -> Scene:
    captions = r.captions()
    missing = 4 - captions.args.shape[1]
    args = np.pad(captions.args, ((0, 0), (0, max(0, missing))))
    return Scene(
        key=f"bits {key}",
        title=title,
        tensors=tuple(tensors),
        groups=tuple(groups),
        steps=r.steps,
        step_name=tr("decision"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=type(captions)(captions.templates, captions.kind, args),
        readings=tuple(readings),
        finite=False,
    )
