"""Whether a rung can run a shape: its engines, its rules, then whether its library can be called on this machine.

Only a vendor's library says what it supports, when it is called on the machine that runs it. Without a GPU its
recorded answer stands in. No rule is taken from a manual.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels import engines
from kernels.i18n import tr
from kernels.machine import elsewhere
from kernels.model.program import RuleError, Tiles
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape
from kernels.records import unsupported


def reasons(rung: Rung, shape: Shape, tiles: Tiles, engine: str = "") -> Iterator[str]:
    """Yields each reason why a rung cannot run a shape at these tile sizes on this machine, with an engine if one is
    given. The engine's reason comes first."""
    if engine and (why := rung.why_not_on(engine)):
        yield why
    yield from rung.rules(shape, tiles)
    if reason := missing_library(rung, shape):
        yield reason


def runs(rung: Rung, shape: Shape, tiles: Tiles, engine: str = "") -> bool:
    """Returns whether nothing keeps a rung from a shape at these tile sizes on this machine, with an engine if one is
    given."""
    return not any(reasons(rung, shape, tiles, engine))


def supported_rungs(ladder: Ladder, engine: str, shape: Shape) -> list[Rung]:
    """Returns the rungs of a ladder that an engine can run at a shape, at their tile sizes for it."""
    return [r for r in ladder.rungs if runs(r, shape, r.tiles_at(shape), engine)]


def missing_library(rung: Rung, shape: Shape) -> str:
    """Returns why the library of a rung cannot be called here; "" if it can, or the rung needs none. A library that can
    be called reports itself whether it supports the shape (UnsupportedError)."""
    if not rung.find_library:
        return ""
    gpu = engines.load("cuda").status()
    if not gpu.ready:
        return unsupported.sentence(rung.name, shape) or _not_called(rung, gpu.text)
    if there := elsewhere.chosen():
        return _not_called(rung, why) if (why := there.rungs.get(rung.name, "")) else ""
    try:
        rung.find_library()
    except RuleError as e:
        return _not_called(rung, str(e))
    return ""


def _not_called(rung: Rung, reason: str) -> str:
    return tr("{library} was not called here: {reason}", library=rung.library, reason=reason)
