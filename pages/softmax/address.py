"""The URL of the softmax lesson: shape, rung on the stage, tile sizes, logits of the row on the stage.

Also builds the scene of that row. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.i18n import cached, tr, trn
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.rung import Rung
from kernels.model.shape import Bound
from kernels.softmax import ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from pages.parts import rules, rung_address
from pages.parts.address import MAX_TEXT_CHARS, Number
from visuals import units
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required
from visuals.softmax import inputs
from visuals.softmax.scene import MAX_THREADS, softmax_scene, visible_columns

LADDER = LADDERS["softmax"]
STAGE_RUNGS = LADDER.only(*(rung.name for rung in ladder.RUNGS))  # the rungs whose kernel can be shown on the stage
DEFAULT = SOFTMAX_PRESETS["softmax-40"].shape
DEFAULT_RUNG = "online"
MAX = {"M": 2**20, "N": 2**22}
MAX_ELEMENTS = 2**28  # of x: 1 GiB
LOGITS, NUMBERS = "logits", "numbers"  # URL parameters: the kind of logits, and the user's own numbers
MIN_ITERATIONS = 4  # minimum number of loop iterations of a row's threads at the default tile sizes
FIELDS = {name: Number(getattr(DEFAULT, name), 1, maximum) for name, maximum in MAX.items()}


RULE = rules.at_most(MAX_ELEMENTS, x="M*N")


def default_tiles_for(rung: Rung, shape: SoftmaxShape) -> dict[str, int]:
    """Returns precompiled tile sizes for a row: the defaults if its threads then run MIN_ITERATIONS loop iterations.

    Otherwise the largest BLOCK below the default with as many iterations, else the smallest. For a rung that keeps the
    row in registers: the fewest registers that hold it. For a rung of many blocks: its default grid, or the smallest that
    cuts each row."""
    n, defaults = shape.N, rung.default_tiles
    sets = [t for t in rung.tile_sets(shape.with_(N=1)) if not any(rung.rules(shape, t))]
    if "PER" in defaults:
        return min(sets, key=lambda t: (_threads(t) * t["PER"], _blocks(t)), default=defaults)
    if "BLOCKS" in defaults:
        if shape.elements >= MIN_ITERATIONS * _threads(defaults):
            return defaults
        return min(sets, key=lambda t: (ladder.splits_of(shape, t) == 1, _threads(t)))
    if "BLOCK" not in defaults or n >= MIN_ITERATIONS * defaults["BLOCK"]:
        return defaults
    smaller = [t for t in sets if t["BLOCK"] < defaults["BLOCK"]]
    busy = [t for t in smaller if n >= MIN_ITERATIONS * t["BLOCK"]]
    return max(busy, key=lambda t: t["BLOCK"]) if busy else min(smaller, key=lambda t: t["BLOCK"])


def _threads(tiles: Mapping[str, int]) -> int:
    """Returns how many threads share a row, or all rows of a grid of BLOCKS."""
    return tiles["BLOCK"] * tiles.get("CLUSTER", 1) * tiles.get("BLOCKS", 1)


def _blocks(tiles: Mapping[str, int]) -> int:
    """Returns what decides between equally many registers: the largest block, but of a cluster the first set."""
    return 0 if "CLUSTER" in tiles else -tiles["BLOCK"]


FIX = rules.fix(DEFAULT.params(), rules.Rule(RULE, tuple(MAX)))
ADDRESS = rung_address.Address(STAGE_RUNGS, FIELDS, DEFAULT_RUNG, FIX, first=DEFAULT, fit=default_tiles_for)


def bounds(s: SoftmaxShape) -> dict[str, Bound]:
    """Returns, for each extent, the values that keep the page's rule while the other stays the same."""
    return rules.bounds(FIELDS, s.params(), RULE)


# -- the row on the stage --------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """The numbers on the stage (bytes of float32), their source, and a note if the user's numbers were invalid."""

    bytes: bytes
    source: str
    custom: bool = False
    note: str = ""

    @property
    def x(self) -> np.ndarray:
        return np.frombuffer(self.bytes, np.float32)


def row(s: SoftmaxShape, name: str, numbers: str = "") -> Row:
    """Returns row 0 of x with the logits `name`, cut if too long to show; or the user's own numbers."""
    if name == inputs.OWN_NUMBERS:
        try:
            x = inputs.parse(numbers[:MAX_TEXT_CHARS] if numbers.strip() else inputs.DEFAULT_OWN_NUMBERS)
            source = trn("your own row of {n} number", "your own row of {n} numbers", x.size)
            return Row(x.tobytes(), source, custom=True)
        except inputs.LogitsError as error:
            stage_row = row(s, inputs.SMALL)
            return Row(
                stage_row.bytes,
                stage_row.source,
                note=tr("{rule}. Until then, the row is “{kind}”.", rule=error, kind=tr(inputs.SMALL)),
            )
    n = visible_columns(s.N)
    source = tr("row 0 of {rows}", rows=units.whole(s.M))
    if n < s.N:
        source = tr(
            "row 0 of {rows}, its first {n} of {columns} columns",
            rows=units.whole(s.M),
            n=units.whole(n),
            columns=units.whole(s.N),
        )
    return Row(inputs.row(name, n).tobytes(), source)


def logits_kind(name: str | None) -> str:
    return name if name in inputs.LOGITS else inputs.SMALL


def tiles_at(query: rung_address.Selection, n: int) -> dict[str, int]:
    """Returns the tile sizes for a row of n numbers: the page's if the rung can run the row with them, in no more blocks
    than the stage shows. Of a grid of BLOCKS, the row has as many blocks as each row of the page's shape."""
    row_only, tiles = SoftmaxShape(1, n), dict(query.tiles)
    splits = ladder.splits_of(query.shape, tiles) if "BLOCKS" in tiles else 0
    tiles |= {"BLOCKS": splits} if splits else {}
    if not any(query.rung.rules(row_only, tiles)):
        first = query.rung.build(row_only, tiles).launches[0]
        blocks, threads = math.prod(first.grid), math.prod(first.block)
        if blocks == 1 or blocks * threads <= MAX_THREADS:
            return tiles
    tiles = default_tiles_for(query.rung, row_only)
    return tiles | {"BLOCKS": min(splits, tiles["BLOCKS"])} if splits else tiles


@cached(MAX_CACHED_SCENES)
def _scene(rung: str, tiles: tuple[tuple[str, int], ...], stage_row: Row) -> Scene:
    return softmax_scene(rung, dict(tiles), stage_row.x, stage_row.source)


def scene(query: rung_address.Selection, stage_row: Row) -> tuple[Scene | None, str]:
    """Returns (scene of the selected rung, ""), or (None, reason).

    If a rule forbids the shape, the reason is "": the controls name the rule. The reason is given if the kernel would
    have to be compiled and there is no compiler."""
    if query.broken and not stage_row.custom:
        return None, ""
    try:
        return _scene(query.rung.name, tuple(tiles_at(query, stage_row.x.size).items()), stage_row), ""
    except RuleError as error:
        return None, str(error)


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    query, _ = ADDRESS.read(params)
    return required(scene(query, row(query.shape, logits_kind(params.get(LOGITS)), params.get(NUMBERS, ""))))
