"""Tile sizes of a rung at a shape: which combinations its rules allow, and which of them a sweep tries.

All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from kernels.ladders import find
from kernels.model.program import Launch
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from kernels.records import availability

Combination = dict[str, int]


@dataclass(frozen=True)
class SelectedRung:
    """The selected rung of a page, and all its tile sizes."""

    rung: Rung
    tiles: Mapping[str, int]

    def tiles_of(self, rung: Rung) -> Mapping[str, int]:
        """Returns the page's tile sizes for the selected rung, the defaults for the others."""
        return self.tiles if rung is self.rung else rung.default_tiles

    @property
    def rung_tiles(self) -> tuple[str, Mapping[str, int]]:
        """Returns the rung's name and tile sizes, for run.run_section."""
        return self.rung.name, self.tiles


def broken(rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> list[str]:
    """Returns why a rung cannot run a shape with these tile sizes."""
    return list(availability.reasons(rung, shape, tiles))


def legal(rung: Rung, shape: Shape) -> list[Combination]:
    """Returns every combination that the rung supports; the last tile size varies fastest."""
    if availability.missing_library(rung, shape):
        return []
    return [dict(zip(rung.tiles, values, strict=True)) for values in _legal(rung.name, shape)]


@lru_cache(maxsize=256)
def _legal(name: str, shape: Shape) -> tuple[tuple[int, ...], ...]:
    rung = find(name)
    combinations = product(*(sorted(choices) for choices in rung.tiles.values()))
    return tuple(v for v in combinations if not any(rung.rules(shape, dict(zip(rung.tiles, v, strict=True)))))


def choices(rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> dict[str, list[int]]:
    """Returns for each tile size its legal values while the others stay; always includes its current value."""
    return {
        name: [v for v in sorted(values) if v == tiles[name] or not broken(rung, shape, {**tiles, name: v})]
        for name, values in rung.tiles.items()
    }


def nearest(rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> Combination | None:
    """Returns the legal combination that changes the fewest sizes, then with the fewest doublings; None if none is legal."""

    def distance(other: Combination) -> tuple[int, float]:
        changed = [name for name in tiles if other[name] != tiles[name]]
        return len(changed), sum(abs(math.log2(other[n] / tiles[n])) for n in changed)

    return min(legal(rung, shape), key=distance, default=None)


def default_tiles_for(rung: Rung, shape: Shape) -> Combination:
    """Returns the default tile sizes unless they make all of C one block; then smaller ones, so that tiles are visible.

    These are the largest of the rung's sets with at least two blocks each way, else the smallest set.
    """
    return dict(zip(rung.tiles, _default_sizes(rung.name, shape), strict=True))


@lru_cache(maxsize=4096)  # a page needs them for each of its presets several times
def _default_sizes(name: str, shape: Shape) -> tuple[int, ...]:
    rung = find(name)
    sets = {tuple(tiles.values()): _blocks(rung, shape, tiles) for tiles in rung.tile_sets(shape)}
    default = tuple(rung.default_tiles.values())
    if sets.get(default) != (1, 1):
        return default
    several_blocks = [tiles for tiles, blocks in sets.items() if min(blocks) > 1]
    if several_blocks:
        return min(several_blocks, key=lambda t: math.prod(sets[t]))
    return min(sets, key=math.prod)


def _blocks(rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the blocks across and down of a rung's first launch; an empty tuple for a library call."""
    step = rung.build(shape, tiles).steps[0]
    return step.grid[:2] if isinstance(step, Launch) else ()


def sweep_candidates(rung: Rung, shape: Shape, tiles: Mapping[str, int], max_count: int) -> list[Combination]:
    """Returns at most `max_count` legal combinations.

    First come these tiles, the rung's own sets (each value of each size once), and these tiles with a single size
    changed. The others are spread evenly over all legal combinations.
    """
    all_legal = legal(rung, shape)
    one_changed = [{**tiles, name: v} for name, values in rung.tiles.items() for v in sorted(values)]
    chosen = _first([t for t in (dict(tiles), *rung.tile_sets(shape), *one_changed) if t in all_legal], max_count)
    chosen += _spread([t for t in all_legal if t not in chosen], max_count - len(chosen))
    return sorted(chosen, key=all_legal.index)


def _first(combinations: Sequence[Combination], max_count: int) -> list[Combination]:
    found: list[Combination] = []
    for combination in combinations:
        if combination not in found and len(found) < max_count:
            found.append(combination)
    return found


def _spread(items: Sequence[Combination], max_count: int) -> list[Combination]:
    """Returns at most `max_count` items, at even distances."""
    if max_count <= 0:
        return []
    return [items[i * len(items) // max_count] for i in range(max_count)] if len(items) > max_count else list(items)
