"""Rules between the fields of a lesson. From each the notes on a URL and the ranges of the number fields follow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from kernels.i18n import tr
from kernels.model.shape import Bound, ShapeError
from pages.parts.address import Field, Fix, Number, Values, fewest_resets
from visuals import units

Broken = Callable[[Values], str]  # the text of the rule that values break together; "" if they break none


@dataclass(frozen=True)
class Rule:
    """A rule, and the fields of which the fewest get their defaults if a URL breaks it."""

    broken: Broken
    resets: Sequence[str]


def fix(defaults: Values, *rules: Rule) -> Fix:
    """Returns the `fix` of Fields that keeps the rules one after another. The defaults keep all of them."""

    def fixed(values: Values) -> Iterator[tuple[str, Values]]:
        for rule in rules:
            if text := rule.broken(values):
                yield text, fewest_resets(values, defaults, rule.resets, lambda v, rule=rule: not rule.broken(v))

    return fixed


def at_most(most: int, **products: str) -> Broken:
    """Returns the rule that tensors have at most so many elements. `products` are their extents by name: C="M*N"."""

    def broken(values: Values) -> str:
        for tensor, product in products.items():
            if (count := prod(values[name] for name in product.split("*"))) > most:
                return tr(
                    "{tensor} may have at most {most} elements on this page, {product} is {count}",
                    tensor=tensor,
                    most=units.whole(most),
                    product=product,
                    count=units.whole(count),
                )
        return ""

    return broken


def of_shape(make: Callable[[Values], object]) -> Broken:
    """Returns the rules of a shape: `make(values)` raises ShapeError if one is broken."""

    def broken(values: Values) -> str:
        try:
            make(values)
        except ShapeError as error:
            return str(error)
        return ""

    return broken


def bounds(fields: Mapping[str, Field], values: Values, broken: Broken) -> dict[str, Bound]:
    """Returns the range of each number in which it keeps the rules while the other values, which keep them, stay."""
    return {
        name: bound(values[name], field, lambda number, name=name: broken(values | {name: number}))
        for name, field in fields.items()
        if isinstance(field, Number)
    }


def bound(now: int, field: Number, broken: Callable[[int], str]) -> Bound:
    """Returns the range of a number around `now`: rules allow all numbers between two bounds."""
    (low, why_low), (high, why_high) = (_last(now, end, broken) for end in (int(field.minimum), int(field.maximum)))
    return Bound(low, high, _short(why_low), _short(why_high))


def _last(valid: int, end: int, broken: Callable[[int], str]) -> tuple[int, str]:
    """Returns the number nearest to `end`, counted from `valid`, that keeps the rules, and the rule that the next one breaks."""
    if not (why := broken(end)):
        return end, ""
    while abs(end - valid) > 1:
        middle = int(valid + end) // 2
        if text := broken(middle):
            end, why = middle, text
        else:
            valid = middle
    return int(valid), why


def _short(rule: str) -> str:
    """Returns a rule without its last clause, which names the number that breaks it: "pad_h <= R // 2, got 2 > 1"."""
    return rule.rpartition(", ")[0] or rule
