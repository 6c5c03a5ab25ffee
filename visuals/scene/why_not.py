"""Why a rung has no scene at a shape."""

from __future__ import annotations

from collections.abc import Container, Mapping

from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import RuleError
from kernels.model.shape import Shape
from visuals import units


def why_not(rung: str, shape: Shape, tiles: Mapping[str, int], scenes: Container[str]) -> str:
    """Returns the rule that a rung breaks at a shape, or why it is none of those in `scenes`; "" if it has a scene."""
    if rule := broken_rule(rung, shape, tiles):
        return rule
    if rung in scenes:
        return ""
    found = find(rung)
    if found.no_scene:
        return f"{units.named(tr(found.title), first=True)}: {tr(found.no_scene)}."
    return tr(
        "{title} is a kernel of {library}. Its source is not open, so its steps cannot be shown.",
        title=tr(found.title),
        library=found.library,
    )


def broken_rule(rung: str, shape: Shape, tiles: Mapping[str, int]) -> str:
    """Returns the rule that a rung breaks at a shape, as a sentence; "" if it can run."""
    try:
        find(rung).check(shape, tiles)
    except RuleError as e:
        return f"{str(e)[0].upper()}{str(e)[1:]}."
    return ""
