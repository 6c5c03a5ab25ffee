"""Records: measurements as rows. Recordings were made on named devices and are shipped with the app. The store holds
this user's own (kernels.records.store)."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kernels.ladders import ladder_of
from kernels.records import nearest as nearest_module
from kernels.records.nearest import Match

FOLDER = Path(__file__).parent / "recordings"


@cache
def recordings() -> tuple[dict[str, Any], ...]:
    """Returns every row of every recording shipped with the app."""
    rows = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            rows += [json.loads(line) for line in file if line.strip()]
    return tuple(rows)


def recorded(rung: str, shape: Any, tiles: dict[str, int], mode: str = "cold") -> dict[str, Any] | None:
    """Returns the recording of this rung at exactly this shape, tile sizes and mode; None if there is none."""
    return _by_setting().get(_setting(rung, shape.params(), tiles, mode))


@cache
def _by_setting() -> dict[tuple, dict[str, Any]]:
    """Returns the first recording of each setting, as a table: pages look up many at every change of a control."""
    rows_by_key: dict[tuple, dict[str, Any]] = {}
    for row_ in recordings():
        rows_by_key.setdefault(_setting(row_["rung"], row_["shape"], row_["tiles"], row_["mode"]), row_)
    return rows_by_key


def _setting(rung: str, params: dict, tiles: dict, mode: str) -> tuple:
    return rung, frozenset(params.items()), frozenset(tiles.items()), mode


def nearest(rung: str, shape: Any, tiles: dict[str, int], mode: str = "cold") -> Match | None:
    """Returns the recording at this shape or at the nearest one, with a caption; see kernels.records.nearest."""
    return _nearest(rung, shape, tuple(tiles.items()), mode)


@lru_cache(maxsize=512)
def _nearest(rung: str, shape: Any, tiles: tuple[tuple[str, int], ...], mode: str) -> Match | None:
    fields = nearest_module.matching_fields(ladder_of(rung), vars(shape))
    return nearest_module.nearest(rung, shape, dict(tiles), mode, _by_kernel().get((rung, mode, fields), ()))


@cache
def _by_kernel() -> dict[tuple, list[dict[str, Any]]]:
    """Returns the recordings grouped by rung, mode and matching fields: a search reads a few of the hundreds."""
    rows_by_key: dict[tuple, list[dict[str, Any]]] = {}
    for row_ in recordings():
        fields = nearest_module.matching_fields(ladder_of(row_["rung"]), row_["shape"])
        rows_by_key.setdefault((row_["rung"], row_["mode"], fields), []).append(row_)
    return rows_by_key
