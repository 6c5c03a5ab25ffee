"""What the address of the GEMM lesson means: the shape, the rung that is watched, its tile sizes.

The shape that is read is always valid, and each tile size is one that the rung offers. Together they may
still break a rule of the rung: then the page names it (`Asked.broken`) and keeps what was asked. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from kernels.ladders import LADDERS
from kernels.presets import GEMM_PRESETS
from kernels.program import Rung
from kernels.shapes import ELEMENT_BYTES, MOST_INT8_K, Bound, GemmShape
from pages import _tiles
from pages._address import Choice, Fields, Number, Value, Values

LADDER = LADDERS["gemm"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
DEFAULT = GEMM_PRESETS["square-64"].shape
DEFAULT_RUNG = "shared-tile"
SIZES, FACTORS = ("M", "N", "K"), ("alpha", "beta")
MOST = 65_536
MOST_ELEMENTS = 2**28  # of one matrix: 1 GiB in FP32
MOST_FACTOR = 1_000.0
MATRICES = (("A", "M", "K"), ("B", "K", "N"), ("C", "M", "N"))


@dataclass(frozen=True)
class Asked(_tiles.Watched):
    """What the parameters ask for."""

    shape: GemmShape

    @property
    def broken(self) -> list[str]:
        """The rules that keep the rung from running so."""
        return _tiles.broken(self.rung, self.shape, self.tiles)

    def params(self) -> Values:
        return self.shape.params() | {"rung": short(self.rung)} | dict(self.tiles)


def short(rung: Rung) -> str:
    """Its name in the address: "register-tile-2d"."""
    return rung.name.partition("/")[2]


# -- reading -------------------------------------------------------------------------------------
def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    for matrix, rows, cols in MATRICES:
        if values[rows] * values[cols] > MOST_ELEMENTS:
            yield f"{matrix} may have {MOST_ELEMENTS:,} elements on this page, {rows}*{cols} is {values[rows] * values[cols]:,}", _fewest_back(values)  # fmt: skip
    if values["dtype"] == "int8":
        for name in FACTORS:
            if values[name] != int(values[name]):
                rule = f"{name} must be a whole number where dtype is int8, got {values[name]:g}"
                yield rule, {name: getattr(DEFAULT, name)}
        if values["K"] * abs(values["alpha"]) > MOST_INT8_K:
            rule = f"K*|alpha| <= {MOST_INT8_K} where dtype is int8 (sums stay in int32), got {values['K']}*{abs(values['alpha']):g}"
            yield rule, {"alpha": DEFAULT.alpha}


def _fewest_back(values: Values) -> Values:
    """The fewest extents to set back so that every matrix fits."""
    for count in range(1, 4):
        for names in combinations(SIZES, count):
            back = {name: getattr(DEFAULT, name) for name in names}
            if all((values | back)[r] * (values | back)[c] <= MOST_ELEMENTS for _, r, c in MATRICES):
                return back
    raise AssertionError("the default shape is valid")


@cache
def fields(rung: str) -> Fields:
    """The parameters of the lesson while `rung` (its short name) is watched."""
    of: dict[str, Any] = {name: Number(getattr(DEFAULT, name), 1, MOST) for name in SIZES}
    of |= {name: Number(getattr(DEFAULT, name), -MOST_FACTOR, MOST_FACTOR, whole=False) for name in FACTORS}
    of |= {"dtype": Choice(DEFAULT.dtype, tuple(ELEMENT_BYTES)), "rung": Choice(DEFAULT_RUNG, tuple(RUNGS))}
    tiles = RUNGS[rung].tiles.items()
    return Fields("gemm", of | {name: Choice(all_[0], tuple(sorted(all_))) for name, all_ in tiles}, _mend)


def watched(raw: Mapping[str, Value]) -> str:
    """The short name of the rung that is asked for."""
    return raw.get("rung") if raw.get("rung") in RUNGS else DEFAULT_RUNG


def of(values: Values) -> Asked:
    """What the values of all fields ask for."""
    rung = RUNGS[values["rung"]]
    shape = GemmShape(**{name: values[name] for name in (*SIZES, *FACTORS, "dtype")})
    return Asked(rung, {name: values[name] for name in rung.tiles}, shape)


def read(raw: Mapping[str, Value]) -> tuple[Asked, list[str]]:
    values, notes = fields(watched(raw)).read(raw)
    return of(values), notes


# -- writing -------------------------------------------------------------------------------------
def write(asked: Asked) -> dict[str, str]:
    return fields(short(asked.rung)).write(asked.params())


def at_shape(asked: Asked, shape: GemmShape) -> dict[str, str]:
    """The parameters for another shape: with the same rung and tile sizes where they can run it, else the
    nearest tile sizes, else the last kernel of the ladder that can. Tile sizes nobody chose are those that fit."""
    tiles = asked.tiles
    if tiles in (asked.rung.default_tiles, _tiles.fitting(asked.rung, asked.shape)):
        tiles = _tiles.fitting(asked.rung, shape)
    if _tiles.broken(asked.rung, shape, tiles):
        tiles = _tiles.nearest(asked.rung, shape, tiles)
    if tiles is None:
        return at_rung(replace(asked, shape=shape), last_that_runs(shape))
    return write(Asked(asked.rung, tiles, shape))


def at_rung(asked: Asked, rung: Rung) -> dict[str, str]:
    """The parameters for another rung, at the tile sizes that fit the shape."""
    return write(Asked(rung, _tiles.fitting(rung, asked.shape), asked.shape))


def at_tiles(asked: Asked, tiles: Mapping[str, int]) -> dict[str, str]:
    return write(replace(asked, tiles=tiles))


def able(shape: GemmShape) -> list[Rung]:
    """The rungs that run a shape at their usual tile sizes."""
    return [r for r in LADDER.rungs if not _tiles.broken(r, shape, r.default_tiles)]


def last_that_runs(shape: GemmShape) -> Rung:
    """The last rung with a kernel of our own, else the last of all, else the first of the ladder."""
    runs = able(shape)
    return next((r for r in reversed(runs) if not r.library), next(reversed(runs), LADDER.rungs[0]))


# -- bounds --------------------------------------------------------------------------------------
def bounds(shape: GemmShape) -> dict[str, Bound]:
    """For each number the values that keep the page's rules with the others as they are."""
    M, N, K = shape.M, shape.N, shape.K
    found = {}
    for name, others in (("M", (N, K)), ("N", (M, K)), ("K", (M, N))):
        most = MOST_ELEMENTS // max(others)
        rule = f"no matrix of more than {MOST_ELEMENTS:,} elements"
        found[name] = Bound(1, min(most, MOST), why_high=rule if most < MOST else "")
    found |= {name: Bound(-int(MOST_FACTOR), int(MOST_FACTOR)) for name in FACTORS}
    if shape.dtype == "int8":
        rule = f"K*|alpha| <= {MOST_INT8_K} for int8"
        most = min(MOST_INT8_K // K, int(MOST_FACTOR))
        found["alpha"] = Bound(-most, most, rule, rule) if most < MOST_FACTOR else found["alpha"]
        most = MOST_INT8_K // max(1, int(abs(shape.alpha)))
        found["K"] = Bound(1, most, why_high=rule) if most < found["K"].high else found["K"]
    return found
