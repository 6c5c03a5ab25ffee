"""The address of a lesson as data: what ?N=1&H=8&picture=digit means, and how it is written.

A parameter that is missing means its usual value; so does one that breaks a rule, and then a note says
which rule. Only values that differ from the usual are written. Pure functions; each lesson has its Fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from kernels.model.shape import ShapeError

MOST_TEXT = 2_000
# What the stage writes of the moment it shows: at another shape it means nothing.
STAGE = ("step", "pin", "zoom", "loop")

Value = str | float | int | None
Values = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A number within what the page is ready to show; a whole one if `whole`."""

    usual: float
    least: float
    most: float
    whole: bool = True

    def take(self, name: str, value: Value) -> float:
        kind = "whole " if self.whole else ""
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ShapeError(f"{name} must be a {kind}number, got {shown(value)}") from None
        if math.isnan(number) or (self.whole and not (math.isinf(number) or number.is_integer())):
            raise ShapeError(f"{name} must be a {kind}number, got {shown(value)}")
        if not self.least <= number <= self.most:
            raise ShapeError(
                f"{name} must lie in {self.least:g} .. {self.most:g} on this page, got {shown(value)}"
            )
        return int(number) if self.whole else number


@dataclass(frozen=True)
class Choice:
    """One of `choices`, which are texts or whole numbers."""

    usual: str | int
    choices: tuple

    def take(self, name: str, value: Value) -> str | int:
        for choice in self.choices:
            if str(choice) == str(value):
                return choice
        raise ShapeError(f"{name} must be one of {', '.join(map(str, self.choices))}; got {shown(value)}")


@dataclass(frozen=True)
class Text:
    usual: str = ""

    def take(self, name: str, value: Value) -> str:
        if len(str(value)) > MOST_TEXT:
            raise ShapeError(f"{name} may have at most {MOST_TEXT} characters, got {len(str(value))}")
        return str(value)


Field = Number | Choice | Text


Mend = Callable[[Values], Iterable[tuple[str, Values]]]


def _no_rules(values: Values) -> Iterable[tuple[str, Values]]:
    return ()


@dataclass(frozen=True)
class Fields:
    """The parameters of one lesson by name. `mend` yields (a rule between fields that `values` break, the
    values to take instead); each is put in place before the next is asked for."""

    lesson: str
    of: Mapping[str, Field]
    mend: Mend = _no_rules

    @cached_property
    def usual(self) -> Values:
        return {name: field.usual for name, field in self.of.items()}

    def read(self, raw: Mapping[str, Value]) -> tuple[Values, list[str]]:
        """What `raw` (texts of an address, or the values of controls) asks for, and a note for every value
        that could not be taken."""
        values, notes = dict(self.usual), []
        for name, field in self.of.items():
            if raw.get(name) not in (None, ""):
                try:
                    values[name] = field.take(name, raw[name])
                except ShapeError as error:
                    notes.append(
                        f"{error}: {name}={field.usual} is used"
                        if field.usual != ""
                        else f"{error}: it is left out"
                    )
        for rule, instead in self.mend(values):
            notes.append(f"{rule}: " + " and ".join(f"{n}={v} is used" for n, v in instead.items()))
            values.update(instead)
        return values, notes

    def write(self, values: Mapping[str, Any]) -> dict[str, str]:
        """The parameters of the address that stand for them."""
        return {
            name: format(value, "g") if isinstance(value, float) else str(value)
            for name, value in values.items()
            if value != self.usual[name]
        }


def fewest_back(
    values: Values, usual: Values, names: Sequence[str], fits: Callable[[Values], bool]
) -> Values:
    """The fewest of `names` to set back to their usual values so that all fit, as the usual ones do."""
    for count in range(1, len(names) + 1):
        for some in combinations(names, count):
            back = {name: usual[name] for name in some}
            if fits(values | back):
                return back
    raise AssertionError("the usual values fit")


def presents(params: Mapping[str, str]) -> bool:
    """Whether the stage is to stand alone, as in a lecture hall."""
    return params.get("present") == "1"


def shown(text: object) -> str:
    """Foreign text as a message may carry it: short, quoted."""
    text = "".join(c if c.isprintable() else " " for c in str(text)[:25])
    return f"“{text if len(text) <= 24 else text[:23] + '…'}”"
