"""Cases to measure, as text: a rung, a shape and tile sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.ladders import ladder_of
from kernels.model import numerals
from kernels.model.program import RuleError
from kernels.model.row import Row
from kernels.model.shape import Shape


@dataclass(frozen=True)
class Case:
    """A rung at a shape and with tile sizes, all of them: what a stage shows."""

    rung: str
    shape: Shape
    tiles: Mapping[str, int]

    def __str__(self) -> str:
        """Returns the case as `read_cases` reads it."""
        return "; ".join((self.rung, _assigned(self.shape.params()), _assigned(self.tiles)))


def read_cases(text: str) -> list[Case]:
    """Returns the cases in lines of "RUNG; SHAPE; TILES", such as "gemm/naive; M=16,N=16,K=16; BLOCK=8".

    Tile sizes that are left out are the defaults. RuleError or ShapeError names the rule that a line breaks.
    """
    cases = []
    for line in filter(None, map(str.strip, text.splitlines())):
        parts = [part.strip() for part in line.split(";")]
        if len(parts) not in (2, 3):
            raise RuleError(f"a case is RUNG; SHAPE; TILES, got {line!r}")
        name, shape, tiles = (*parts, "")[:3]
        ladder = ladder_of(name)
        parsed = ladder.shape_of(shape)
        cases.append(Case(name, parsed, ladder.rung(name).check(parsed, parse_tiles(tiles))))
    return cases


def _assigned(values: Row) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def parse_tiles(text: str) -> dict[str, int]:
    """Returns the tile sizes in "TILE=16,WM=2"; RuleError if the text is malformed."""
    tiles = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        number = numerals.whole(value)  # 0 is one of the sizes of the FFT's tile
        if number is None or number < 0:
            raise RuleError(f"tiles are NAME=NUMBER, got {part!r}")
        if name.strip() in tiles:
            raise RuleError(f"the tile size {name.strip()} is given twice")
        tiles[name.strip()] = number
    return tiles
