"""The URL parameters of a lesson as data: how ?N=1&H=8&picture=digit is read and written.

A missing parameter has its default value. So has a parameter that breaks a rule; then a note names the rule. Only
values that differ from the default are written. All functions are pure. Each lesson has its own Fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field as DataclassField
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, Protocol

from kernels.i18n import decimal, tr
from kernels.model.shape import Bound, ShapeError
from kernels.records.gpus import PARAM

MAX_TEXT_CHARS = 2_000
# Parameters that the stage writes about the moment it shows. They are valid for one shape only.
STAGE = ("step", "pin", "zoom", "loop", "size")
VIEW, STORY, EXPLORE = "view", "story", "explore"  # the parameter, and the modes of a lesson
CHAPTER = "chapter"  # of a story, from 1
LANGUAGE = "lang"
READER = (LANGUAGE, PARAM)  # what a reader chose for all pages: language, GPU

Value = str | float | int | None
Values = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A number between the limits of the page; an integer if `whole`. Its control changes it by `step`, and has the marked
    `label`, else the field's name, and a `width` in px."""

    default: float
    minimum: float
    maximum: float
    whole: bool = True
    step: float = 1.0
    label: str = ""
    width: int = 0

    def parse(self, name: str, value: Value) -> float:
        if value is None:
            raise self._no_number(name, value)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise self._no_number(name, value) from None
        if math.isnan(number) or (self.whole and not (math.isinf(number) or number.is_integer())):
            raise self._no_number(name, value)
        if not self.minimum <= number <= self.maximum:
            raise ShapeError(
                tr(
                    "{name} must be {low} to {high} on this page, got {value}",
                    name=name,
                    low=_plain(self.minimum),
                    high=_plain(self.maximum),
                    value=quoted(value),
                )
            )
        return int(number) if self.whole else number

    def _no_number(self, name: str, value: Value) -> ShapeError:
        fields = {"name": name, "value": quoted(value)}
        if self.whole:
            return ShapeError(tr("{name} must be a whole number, got {value}", **fields))
        return ShapeError(tr("{name} must be a number, got {value}", **fields))


def _plain(number: float) -> str:
    """Format a limit without a power of ten: 4194304.0 -> "4,194,304"."""
    return decimal(f"{number:,.0f}" if float(number).is_integer() else f"{number:g}")


@dataclass(frozen=True)
class Choice:
    """One of `choices`, which are strings or integers. `label` and `width` as of a Number."""

    default: str | int
    choices: tuple
    label: str = ""
    width: int = 0

    def parse(self, name: str, value: Value) -> str | int:
        for choice in self.choices:
            if str(choice) == str(value):
                return choice
        choices = ", ".join(map(str, self.choices))
        raise ShapeError(
            tr("{name} must be one of {choices}; got {value}", name=name, choices=choices, value=quoted(value))
        )


@dataclass(frozen=True)
class Text:
    default: str = ""

    def parse(self, name: str, value: Value) -> str:
        if len(str(value)) > MAX_TEXT_CHARS:
            fields = {"max": MAX_TEXT_CHARS, "n": len(str(value))}
            raise ShapeError(tr("{name} may have at most {max} characters, got {n}", name=name, **fields))
        return str(value)


class Field(Protocol):
    """A parameter: Number, Choice, Text, or one with a syntax of its own. All are dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, DataclassField]]

    @property
    def default(self) -> float | str: ...

    def parse(self, name: str, value: Value) -> float | str: ...


Fix = Callable[[Values], Iterable[tuple[str, Values]]]


def _no_rules(values: Values) -> Iterable[tuple[str, Values]]:
    return ()


@dataclass(frozen=True)
class Fields:
    """The parameters of one lesson by name.

    `fix` yields pairs: a rule between fields that the values break, and the values to use instead. Each replacement is
    applied before the next pair is computed.
    """

    lesson: str
    by_name: Mapping[str, Field]
    fix: Fix = _no_rules

    @cached_property
    def defaults(self) -> Values:
        return {name: field.default for name, field in self.by_name.items()}

    @cached_property
    def bounds(self) -> dict[str, Bound]:
        """Returns the limits of each number, without rules between fields."""
        return {n: Bound(f.minimum, f.maximum) for n, f in self.by_name.items() if isinstance(f, Number)}

    def read(self, raw: Mapping[str, Value]) -> tuple[Values, list[str]]:
        """Returns the values of all fields, and a note for every value of `raw` that is not valid.

        `raw` holds the strings of a URL or the values of controls.
        """
        values, notes = dict(self.defaults), []
        for name, field in self.by_name.items():
            if raw.get(name) not in (None, ""):
                try:
                    values[name] = field.parse(name, raw[name])
                except ShapeError as error:
                    notes.append(
                        _used(error, {name: field.default})
                        if field.default != ""
                        else tr("{problem}: it is left out", problem=error)
                    )
        for rule, replacement in self.fix(values):
            notes.append(_used(rule, replacement))
            values.update(replacement)
        return values, notes

    def write(self, values: Mapping[str, object]) -> dict[str, str]:
        """Returns the URL parameters for these values, without those at their default."""
        return {
            name: format(value, "g") if isinstance(value, float) else str(value)
            for name, value in values.items()
            if value != self.defaults[name]
        }


def text(value: Value) -> str:
    """Returns the value of a control as its URL parameter has it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def choice_notes(name: str, value: Value, choices: Sequence[str]) -> list[str]:
    """Returns a note if the value of a parameter is not one of its choices, whose first is used then."""
    return Fields("", {name: Choice(choices[0], tuple(choices))}).read({name: value})[1]


def _used(problem: object, values: Values) -> str:
    used = ", ".join(f"{name}={value}" for name, value in values.items())
    if len(values) == 1:
        return tr("{problem}: {value} is used", problem=problem, value=used)
    return tr("{problem}: {values} are used", problem=problem, values=used)


def fewest_resets(values: Values, defaults: Values, names: Sequence[str], fits: Callable[[Values], bool]) -> Values:
    """Returns default values for the fewest of `names` that make all values fit. The defaults themselves fit."""
    for count in range(1, len(names) + 1):
        for subset in combinations(names, count):
            reset = {name: defaults[name] for name in subset}
            if fits(values | reset):
                return reset
    raise AssertionError("the usual values fit")


def is_presented(params: Mapping[str, str]) -> bool:
    """Returns whether the stage is shown alone, as in a lecture hall."""
    return params.get("present") == "1"


def opens_story(params: Mapping[str, str], embedded: bool = False) -> bool:
    """Returns whether the URL of a lesson opens its story: with view=story, with a chapter, or without parameters.

    Any other parameter opens Explore, as in links from before there were stories. So does a frame without view.
    """
    if VIEW in params:
        return params[VIEW] == STORY
    return CHAPTER in params or not (embedded or set(params) - {*READER})


def quoted(text: object) -> str:
    """Returns foreign text for a message: printable, at most 24 characters, in quotation marks."""
    text = "".join(c if c.isprintable() else " " for c in str(text)[:25])
    return f"“{text if len(text) <= 24 else text[:23] + '…'}”"
