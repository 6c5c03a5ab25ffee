"""The URL of the lesson on moving data: scenario, rows, its number; and its scene."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.i18n import cached, tr
from kernels.transfers.scenarios import MAX_N, MAX_ROWS, PIECES, SCENARIOS, Settings
from pages.parts.address import Choice, Fields, Number, Values
from visuals.scene.scene import MAX_CACHED_SCENES, Scene
from visuals.transfers.evidence import ROWS, TransferEvidence
from visuals.transfers.scene import transfer_scene

DEFAULT_N = 8


def _no_more_pieces_than_rows(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rule that there are more pieces than rows, and one piece instead."""
    if SCENARIOS[values["scenario"]].n == PIECES and values["n"] > values["rows"]:
        rows = int(values["rows"])
        yield (tr("{rows} rows can be cut into 1 to {rows} pieces, got {n}", rows=rows, n=int(values["n"])), {"n": 1})


FIELDS = Fields(
    "transfers",
    {
        "scenario": Choice("pinned", ("pinned", *(key for key in SCENARIOS if key != "pinned"))),
        "rows": Number(ROWS, 1, MAX_ROWS),
        "n": Number(DEFAULT_N, 1, MAX_N),
    },
    _no_more_pieces_than_rows,
)


def settings(values: Values) -> Settings:
    """Returns the settings at these values; a scenario without a number has 1."""
    row = SCENARIOS[values["scenario"]]
    return Settings(row.key, int(values["rows"]), int(values["n"]) if row.n else 1)


def usual(values: Values) -> Values:
    """Returns the values of their scenario with its usual number, and its usual rows if it has no others."""
    row = SCENARIOS[values["scenario"]]
    found = values | {"n": row.default_n if row.n else DEFAULT_N}
    return found | {"rows": ROWS} if settings(found | {"n": 1}).short else found


@cached(MAX_CACHED_SCENES)
def _predicted_or_recorded(s: Settings) -> Scene:
    return transfer_scene(TransferEvidence(s))


def scene(found: TransferEvidence) -> Scene:
    """Returns the scene of a scenario."""
    return transfer_scene(found) if found.measured else _predicted_or_recorded(found.settings)


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    return scene(TransferEvidence(settings(FIELDS.read(params)[0])))
