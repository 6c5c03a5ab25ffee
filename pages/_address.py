"""The address of a lesson as data: what ?N=1&H=8&picture=digit means, and how it is written.

A parameter that is missing means its value in DEFAULT; so does one that breaks a rule, and then a
note says which rule. Only values that differ from DEFAULT are written. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from kernels.presets import CONV_PRESETS
from kernels.shapes import MODES, ConvShape, ShapeError
from visuals.pictures import CUSTOM, FILTERS, MOST_SEED, PICTURES, UPLOAD


@dataclass(frozen=True)
class Asked:
    """What the parameters of a lesson ask for."""

    shape: ConvShape
    picture: str = "digit"
    filter: str = "sobel-x"
    seed: int = 0
    taps: str = ""  # of the custom filter, as visuals.pictures.parse_taps reads them

    def params(self) -> dict[str, int | str]:
        return self.shape.params() | {
            name: getattr(self, name) for name in ("picture", "filter", "seed", "taps")
        }


DEFAULT = Asked(CONV_PRESETS["toy"].shape)
NAMES = tuple(DEFAULT.params())
CHOICES = {"mode": MODES, "picture": (*PICTURES, UPLOAD), "filter": (*FILTERS, CUSTOM)}
# What a page is ready to show.
MOST = {"N": 64, "C": 1024, "H": 512, "W": 512, "K": 1024, "R": 11, "S": 11, "u": 8, "v": 8,
        "pad_h": 8, "pad_w": 8, "dilation_h": 8, "dilation_w": 8, "seed": MOST_SEED}  # fmt: skip
LEAST = {name: 0 if name in ("pad_h", "pad_w", "seed") else 1 for name in MOST}
MOST_TEXT = 2_000
# What the stage writes of the moment it shows: at another shape it means nothing.
STAGE = ("step", "pin", "zoom", "loop")
# The fields of one axis that must fit each other; of two that could be set back, the first is.
AXES = (("R", "dilation_h", "H", "pad_h"), ("S", "dilation_w", "W", "pad_w"))

Value = str | float | int | None


def read(raw: Mapping[str, Value]) -> tuple[Asked, list[str]]:
    """What `raw` (texts of an address, or the values of controls) asks for, and a note for every value
    that could not be taken. The shape is always valid."""
    usual = DEFAULT.params()
    values, notes = dict(usual), []
    for name in NAMES:
        if raw.get(name) not in (None, ""):
            try:
                values[name] = _one(name, raw[name])
            except ShapeError as error:
                notes.append(
                    f"{error}: {name}={usual[name]} is used"
                    if usual[name] != ""
                    else f"{error}: it is left out"
                )
    for axis in AXES:
        back = _fewest_back(values, axis)
        if back:
            tap, dilation, size, pad = axis
            span, room = values[dilation] * (values[tap] - 1) + 1, values[size] + 2 * values[pad]
            notes.append(
                f"the filter must fit the padded input, {dilation}*({tap}-1)+1 <= {size}+2*{pad}, but {span} > {room}: "
                + " and ".join(f"{name}={usual[name]} is used" for name in back)
            )
            values.update({name: usual[name] for name in back})
    own = {name: values.pop(name) for name in ("picture", "filter", "seed", "taps")}
    return Asked(ConvShape(**values), **own), notes


def write(asked: Asked) -> dict[str, str]:
    """The parameters of the address that stand for it."""
    usual = DEFAULT.params()
    return {name: str(value) for name, value in asked.params().items() if value != usual[name]}


def at(asked: Asked, shape: ConvShape) -> dict[str, str]:
    """The parameters for another shape with the same picture and filters."""
    return write(replace(asked, shape=shape))


def presents(params: Mapping[str, str]) -> bool:
    """Whether the stage is to stand alone, as in a lecture hall."""
    return params.get("present") == "1"


def shown(text: object) -> str:
    """Foreign text as a message may carry it: short, quoted."""
    text = "".join(c if c.isprintable() else " " for c in str(text)[:25])
    return f"“{text if len(text) <= 24 else text[:23] + '…'}”"


def _one(name: str, value: Value) -> int | str:
    if name in MOST:
        return _whole(name, value)
    if name in CHOICES and value not in CHOICES[name]:
        raise ShapeError(f"{name} must be one of {', '.join(CHOICES[name])}; got {shown(value)}")
    if len(str(value)) > MOST_TEXT:
        raise ShapeError(f"{name} may have at most {MOST_TEXT} characters, got {len(str(value))}")
    return str(value)


def _whole(name: str, value: Value) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ShapeError(f"{name} must be a whole number, got {shown(value)}") from None
    if number != number or not (math.isinf(number) or number.is_integer()):
        raise ShapeError(f"{name} must be a whole number, got {shown(value)}")
    if not LEAST[name] <= number <= MOST[name]:
        raise ShapeError(f"{name} must lie in {LEAST[name]} .. {MOST[name]} on this page, got {shown(value)}")
    return int(number)


def _fewest_back(values: Mapping[str, int], axis: tuple[str, ...]) -> tuple[str, ...]:
    """The fewest fields of the axis to set back to their defaults so that the filter fits."""
    usual = DEFAULT.params()
    for count in range(len(axis) + 1):
        for names in combinations(axis, count):
            tap, dilation, size, pad = (usual[n] if n in names else values[n] for n in axis)
            if dilation * (tap - 1) + 1 <= size + 2 * pad:
                return names
    raise AssertionError("the default shape is valid")
