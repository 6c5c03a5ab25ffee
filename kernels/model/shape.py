"""Common parts of all shapes: checks of fields, and parsing from a command line."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Self, SupportsFloat, SupportsIndex, TypeVar

from kernels.i18n import tr
from kernels.model import numerals
from kernels.model.dtypes import SPELLINGS
from kernels.model.names import unknown_field
from kernels.model.row import Json

INT_MAX = 2**31 - 1
FLOAT_MAX = math.ldexp(2 - 2**-23, 127)  # the largest float32


Pair = int | tuple[int, int]  # (vertical, horizontal), or one number for both axes
AXES = {  # arguments that set a field of each axis
    "stride": ("u", "v"),
    "pad": ("pad_h", "pad_w"),
    "padding": ("pad_h", "pad_w"),
    "dilation": ("dilation_h", "dilation_w"),
    "extra": ("extra_h", "extra_w"),
    "output_pad": ("output_pad_h", "output_pad_w"),
}


class ShapeError(ValueError):
    """A shape that breaks a rule; the message names the rule and the values that break it."""


@dataclass(frozen=True)
class Fields:
    """Base class of the frozen dataclasses whose fields are checked one by one."""

    def _check(self, names: Iterable[str], check: Callable[..., int | float | str], *args: object) -> None:
        """Set each of these fields to the result of `check(name, value, *args)`."""
        for name in names:
            object.__setattr__(self, name, check(name, getattr(self, name), *args))

    def params(self) -> Json:
        """Returns every field by name, as in a link, a recording row or JSON."""
        return dict(vars(self))

    def with_(self, **changes) -> Self:
        set_anew = {field for name in changes for field in AXES.get(name, ())}
        kept = {name: value for name, value in self.params().items() if name not in set_anew}
        return type(self)(**(kept | changes))


@dataclass(frozen=True)
class Shape(Fields, ABC):
    """Base class of shapes: fields, and the work of the definition."""

    @property
    @abstractmethod
    def macs(self) -> int:
        """Multiply-adds of the definition, or another measure of the work."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """FLOPs of the definition."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Minimum traffic in bytes: each tensor once."""


S = TypeVar("S", bound=Shape)
T = TypeVar("T")


# -- fields: each returns the value to store, or raises ShapeError ---------------------------------------
def integer(name: str, value: object, minimum: int, maximum: int = INT_MAX) -> int:
    try:
        # A check against a protocol takes microseconds, and pages make thousands of shapes.
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, SupportsIndex)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ShapeError(tr("{name} must be a whole number, got {value}", name=name, value=repr(value))) from None
    if not minimum <= number <= maximum:
        raise ShapeError(
            tr(
                "{name} must be in {minimum} .. {maximum}, got {number}",
                name=name,
                minimum=minimum,
                maximum=maximum,
                number=number,
            )
        )
    return number


def factor(name: str, value: object, whole: bool = False) -> float:
    """Returns a finite float32. With `whole` it must be a whole number, because it multiplies whole numbers."""
    try:
        if type(value) is not float and (
            isinstance(value, (bool, str)) or not isinstance(value, (SupportsFloat, SupportsIndex))
        ):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ShapeError(tr("{name} must be a number, got {value}", name=name, value=repr(value))) from None
    if not abs(number) <= FLOAT_MAX:
        raise ShapeError(tr("{name} must be finite in float32, got {number}", name=name, number=number))
    if whole and not (number.is_integer() and abs(number) <= INT_MAX):
        raise ShapeError(tr("{name} must be a whole number if dtype is int8, got {number}", name=name, number=number))
    return number


def flag(name: str, value: object) -> int:
    try:
        known = value in (0, 1)
    except ValueError:  # an array
        known = False
    if not known:
        raise ShapeError(tr("{name} must be 0 or 1, got {value}", name=name, value=repr(value)))
    return int(value == 1)


def one_of(name: str, value: object, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ShapeError(
            tr("{name} must be one of {choices}, got {value}", name=name, choices=", ".join(choices), value=repr(value))
        )
    return value


def element_type(name: str, value: object, choices: Collection[str]) -> str:
    """Returns one of the choices, from its name here or in NumPy or PyTorch: "fp16", "half", np.float16, torch.float16."""
    text = value if isinstance(value, str) else getattr(value, "__name__", None) or getattr(value, "name", value)
    text = str(text).lower().removeprefix("torch.")
    return one_of(name, SPELLINGS.get(text, text), choices)


def pad_of(padding: T | None, pad: T, *others: object) -> T:
    """Returns `padding`, PyTorch's name of `pad`, or else `pad`. ShapeError if another field of the padding is set too."""
    if padding is None:
        return pad
    if any(other not in (0, None) for other in (pad, *others)):
        raise ShapeError(tr("padding sets pad and extra: give only one of them, got padding={got}", got=repr(padding)))
    return padding


def pair(name: str, value: object) -> tuple[object, object]:
    """Returns (vertical, horizontal) of a pair, or of one number for both axes."""
    if isinstance(value, (tuple, list)):
        if len(value) == 2:
            return value[0], value[1]
    elif not isinstance(value, str):
        return value, value
    raise ShapeError(
        tr("{name} takes one number or two (vertical, horizontal), got {value}", name=name, value=repr(value))
    )


def not_a_number(name: str, text: str, is_real: bool) -> str:
    """Returns the sentence about a text that is no number, or no whole number unless `is_real`."""
    if is_real:
        return tr("{name} must be a number, got {value}", name=name, value=repr(text))
    return tr("{name} must be a whole number, got {value}", name=name, value=repr(text))


# -- from a command line ---------------------------------------------------------------------------------
def parse(
    text: str,
    fields: Collection[str],
    needed: Iterable[str],
    text_fields: tuple[str, ...] = (),
    float_fields: tuple[str, ...] = (),
) -> Json:
    """Returns values by name from "NAME=VALUE,NAME=VALUE": those in `text_fields` as text, those in
    `float_fields` as floats, all
    others as whole numbers. ShapeError if the text is malformed or lacks one of `needed`."""
    params: dict[str, object] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (s.strip() for s in part.partition("="))
        if not equals:
            raise ShapeError(
                tr("expected NAME=VALUE with NAME among {names}; got {part}", names=" ".join(fields), part=repr(part))
            )
        if name not in fields:
            raise ShapeError(unknown_field(name, fields))
        if name in params:
            raise ShapeError(tr("{name} is given twice", name=name))
        is_real = name in float_fields
        read = numerals.real if is_real else numerals.whole
        params[name] = value if name in text_fields else read(value)
        if params[name] is None:
            raise ShapeError(not_a_number(name, value, is_real))
    check_complete(params, needed)
    return params


def check_complete(params: Collection[str], needed: Iterable[str]) -> None:
    """Raises ShapeError, which names those of `needed` that are missing."""
    if missing := [name for name in needed if name not in params]:
        raise ShapeError(tr("missing {names}", names=", ".join(missing)))


@dataclass(frozen=True)
class Bound:
    """The range of one control while all others stay; `why_low` and `why_high` name the rules that limit it."""

    low: float
    high: float
    why_low: str = ""
    why_high: str = ""
