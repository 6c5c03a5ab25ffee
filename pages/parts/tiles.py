"""Tile sizes of a rung at a shape: which combinations its rules allow, and which of them a sweep tries.

Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from kernels.ladders import find
from kernels.model.program import Launch
from kernels.model.rung import Rung
from kernels.records import availability

Combination = dict[str, int]


@dataclass(frozen=True)
class Watched:
    """The rung that a page shows, and all its tile sizes."""

    rung: Rung
    tiles: Mapping[str, int]

    def tiles_of(self, rung: Rung) -> Mapping[str, int]:
        """Those of the page for the rung that is watched, the usual for the others."""
        return self.tiles if rung is self.rung else rung.default_tiles

    @property
    def own(self) -> tuple[str, Mapping[str, int]]:
        """As _run.run_section takes it."""
        return self.rung.name, self.tiles


def broken(rung: Rung, shape: Any, tiles: Mapping[str, int]) -> list[str]:
    """The rules that keep a rung from running so, in its own words."""
    return list(availability.reasons(rung, shape, tiles))


def legal(rung: Rung, shape: Any) -> list[Combination]:
    """Every combination that the rung can run, the last tile size turning fastest."""
    if availability.missing_library(rung, shape):
        return []
    return [dict(zip(rung.tiles, values, strict=True)) for values in _legal(rung.name, shape)]


@lru_cache(maxsize=256)
def _legal(name: str, shape: Any) -> tuple[tuple[int, ...], ...]:
    rung = find(name)
    every = product(*(sorted(choices) for choices in rung.tiles.values()))
    return tuple(v for v in every if not any(rung.rules(shape, dict(zip(rung.tiles, v, strict=True)))))


def choices(rung: Rung, shape: Any, tiles: Mapping[str, int]) -> dict[str, list[int]]:
    """For each tile size the values it may be turned to while the others stay; its own value always."""
    return {
        name: [v for v in sorted(all_) if v == tiles[name] or not broken(rung, shape, {**tiles, name: v})]
        for name, all_ in rung.tiles.items()
    }


def nearest(rung: Rung, shape: Any, tiles: Mapping[str, int]) -> Combination | None:
    """The legal combination that changes the fewest sizes, then by the fewest doublings; None where none is legal."""

    def distance(other: Combination) -> tuple[int, float]:
        changed = [name for name in tiles if other[name] != tiles[name]]
        return len(changed), sum(abs(math.log2(other[n] / tiles[n])) for n in changed)

    return min(legal(rung, shape), key=distance, default=None)


def fitting(rung: Rung, shape: Any) -> Combination:
    """The usual tile sizes, or where all of C is one block of them: the largest of the rung's sets that leaves two
    blocks each way, the smallest set where none does. So the tiles are seen."""
    sets = {tuple(tiles.values()): _blocks(rung, shape, tiles) for tiles in rung.tile_sets(shape)}
    usual = tuple(rung.default_tiles.values())
    found = usual
    if sets.get(usual) == (1, 1):
        parted = [tiles for tiles, blocks in sets.items() if min(blocks) > 1]
        found = min(parted, key=lambda t: math.prod(sets[t])) if parted else min(sets, key=math.prod)
    return dict(zip(rung.tiles, found, strict=True))


def _blocks(rung: Rung, shape: Any, tiles: Mapping[str, int]) -> tuple[int, ...]:
    """Blocks across and down of a rung's first launch; none of a library's call."""
    step = rung.build(shape, tiles).steps[0]
    return step.grid[:2] if isinstance(step, Launch) else ()


def tried(rung: Rung, shape: Any, tiles: Mapping[str, int], most: int) -> list[Combination]:
    """At most so many legal combinations: these tiles, the rung's own choice of sets (each value of each size
    once), these tiles with a single size turned, then others spread evenly over all that are legal."""
    every = legal(rung, shape)
    turned = [{**tiles, name: v} for name, all_ in rung.tiles.items() for v in sorted(all_)]
    kept = _first([t for t in (dict(tiles), *rung.tile_sets(shape), *turned) if t in every], most)
    kept += _spread([t for t in every if t not in kept], most - len(kept))
    return sorted(kept, key=every.index)


def _first(combinations: Sequence[Combination], most: int) -> list[Combination]:
    found: list[Combination] = []
    for one in combinations:
        if one not in found and len(found) < most:
            found.append(one)
    return found


def _spread(items: Sequence[Combination], most: int) -> list[Combination]:
    """At most so many of them, evenly by place."""
    if most <= 0:
        return []
    return [items[i * len(items) // most] for i in range(most)] if len(items) > most else list(items)
