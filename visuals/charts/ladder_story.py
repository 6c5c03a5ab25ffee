"""The sentences of a ladder whose rungs are compared with its first, the plainest: how much faster, and beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.beside import beside_copy, beside_library
from visuals.charts.story import Row, Story, extremes, fastest_library, recorded_at, title


def ladder_story(ladder: str, cost: Callable[[Any], str]) -> Story:
    """Returns the sentences of a ladder by name. `cost(shape)` says what a shape moves at least."""
    return Story(
        cost,
        lambda rows: gain(ladder, rows),
        lambda: examples(ladder),
        mark("Recorded speed-up of our fastest kernel over the plainest:"),
    )


def gain(ladder: str, rows: Mapping[str, Row]) -> str:
    """Returns how our fastest kernel compares with the plainest, with a library and with a copy. `rows`: by rung name, of
    one device. "" if there is nothing to compare."""
    plain, best = rows.get(LADDERS[ladder].rungs[0].name), best_own(rows)
    if not plain or not best:
        return ""
    library = fastest_library(rows.values())
    shape = LADDERS[ladder].shape(**best["shape"])
    sentences = (
        _speed(best, plain),
        beside_library(best, library) if library else "",
        beside_copy(shape, best),
    )
    return " ".join(filter(None, sentences))


def best_own(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row of our own kernels; None if there is none."""
    return fastest(row for name, row in rows.items() if not find(name).library)


def _speed(best: Row, plain: Row) -> str:
    fields = {"name": title(best), "plain": title(plain)}
    if best is plain:
        return tr("“{plain}” is the fastest of our kernels at this size.", **fields)
    if within_spread(best, plain):
        return tr("“{name}” and “{plain}” take the same time: their spreads overlap.", **fields)
    ratio = units.ratio(plain["median_ms"] / best["median_ms"])
    return tr("“{name}” is {ratio}× as fast as “{plain}”.", ratio=ratio, **fields)


def examples(ladder: str) -> list:
    """Returns (preset, text) of the largest and the smallest speed-ups over the plainest kernel, from the cold recordings at
    the default tile sizes."""
    rungs = [rung.name for rung in LADDERS[ladder].rungs]

    def gained(s: Any) -> float | None:
        rows = recorded_at(s, rungs)
        best = best_own(rows)
        return rows[rungs[0]]["median_ms"] / best["median_ms"] if best and rungs[0] in rows else None

    return extremes(gained, presets=LADDERS[ladder].presets)
