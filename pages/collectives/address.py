"""The URL of the lesson on many GPUs: collective, algorithm, GPUs, elements on the stage, length in the strip. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ITEM, RING, CollectiveShape
from kernels.i18n import mark, tr
from pages.parts.address import Choice, Fields, Number, Values
from visuals.collectives.evidence import SIZES
from visuals.collectives.scene import collective_scene
from visuals.scene.scene import Scene

MAX_RANKS, MAX_ELEMENTS = 8, 64
REAL = "64 MiB"
_ALGORITHMS = tuple(dict.fromkeys([RING, *(name for names in ALGORITHMS.values() for name in names)]))


def _of_kind(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rule that the collective lacks the algorithm, and one that it has. Without a choice the ring is taken, or
    the first algorithm of a collective that has no ring (`algorithm`)."""
    kind, name = values["kind"], values["algorithm"]
    if name not in ALGORITHMS[kind] and name != RING:
        known = ", ".join(ALGORITHMS[kind])
        yield (
            tr("{kind} has the algorithms {known}, got {got}", kind=kind, known=known, got=name),
            {"algorithm": RING},
        )


FIELDS = Fields(
    "collectives",
    {
        "kind": Choice(ALL_REDUCE, tuple(ALGORITHMS)),
        "algorithm": Choice(RING, _ALGORITHMS),
        "ranks": Number(4, 2, MAX_RANKS, label=mark("GPUs"), width=142),
        "elements": Number(16, 1, MAX_ELEMENTS, label=mark("elements"), width=186),
        "bytes": Choice(REAL, tuple(SIZES), mark("length in the strip"), 230),
    },
    _of_kind,
)


def algorithm(values: Values) -> str:
    """Returns the algorithm that is shown: that of the URL, or the first one of a collective that has no ring."""
    known = ALGORITHMS[values["kind"]]
    return values["algorithm"] if values["algorithm"] in known else known[0]


def shape(values: Values) -> CollectiveShape:
    """Returns the collective on the stage."""
    return CollectiveShape(values["kind"], algorithm(values), int(values["ranks"]), int(values["elements"]))


def real(values: Values) -> CollectiveShape:
    """Returns the same collective at the length of the strip."""
    return shape(values).with_(elements=SIZES[values["bytes"]] // ITEM)


def scene(values: Values) -> Scene:
    return collective_scene(shape(values))


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    return scene(FIELDS.read(params)[0])
