"""Records: measurements as rows. Recordings, made on named devices and shipped with the app, and the store of
this user's own (kernels.records.store)."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kernels.ladders import ladder_of
from kernels.records import nearest as records_nearest
from kernels.records.nearest import Near

FOLDER = Path(__file__).parent / "recordings"


@cache
def recordings() -> tuple[dict[str, Any], ...]:
    """Every row of every recording shipped with the app."""
    rows = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            rows += [json.loads(line) for line in file if line.strip()]
    return tuple(rows)


def recorded(rung: str, shape: Any, tiles: dict[str, int], mode: str = "cold") -> dict[str, Any] | None:
    """The recording of this rung at exactly this shape, tile sizes and mode; None where there is none."""
    return _by_setting().get(_setting(rung, shape.params(), tiles, mode))


@cache
def _by_setting() -> dict[tuple, dict[str, Any]]:
    """The first recording of each setting: pages ask for many at every turn of a control."""
    found: dict[tuple, dict[str, Any]] = {}
    for row_ in recordings():
        found.setdefault(_setting(row_["rung"], row_["shape"], row_["tiles"], row_["mode"]), row_)
    return found


def _setting(rung: str, params: dict, tiles: dict, mode: str) -> tuple:
    return rung, frozenset(params.items()), frozenset(tiles.items()), mode


def nearest(rung: str, shape: Any, tiles: dict[str, int], mode: str = "cold") -> Near | None:
    """The recording at this shape, else at the nearest, and in words which of the two: near.nearest tells how."""
    return _nearest(rung, shape, tuple(tiles.items()), mode)


@lru_cache(maxsize=512)
def _nearest(rung: str, shape: Any, tiles: tuple[tuple[str, int], ...], mode: str) -> Near | None:
    agree = records_nearest.agreeing(ladder_of(rung), vars(shape))
    return records_nearest.nearest(rung, shape, dict(tiles), mode, _by_kernel().get((rung, mode, agree), ()))


@cache
def _by_kernel() -> dict[tuple, list[dict[str, Any]]]:
    """The recordings that can speak of each other, together: a few of the hundreds."""
    found: dict[tuple, list[dict[str, Any]]] = {}
    for row_ in recordings():
        agree = records_nearest.agreeing(ladder_of(row_["rung"]), row_["shape"])
        found.setdefault((row_["rung"], row_["mode"], agree), []).append(row_)
    return found
