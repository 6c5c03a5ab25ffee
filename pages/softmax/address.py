"""What the address of the softmax lesson means: the shape, the rung that is watched, its tile sizes, the logits of the
row on the stage; and the scene of that row. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.rung import Rung
from kernels.model.shape import Bound
from kernels.softmax import ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from pages.parts import rung_address
from pages.parts.address import MOST_TEXT, Number, Values, fewest_back
from pages.parts.kept import MOST_KEPT
from visuals.scene.scene import Scene
from visuals.softmax import inputs
from visuals.softmax.scene import shown, softmax_scene

LADDER = LADDERS["softmax"]
OURS = LADDER.only(*(rung.name for rung in ladder.RUNGS))  # those with a kernel to watch
DEFAULT = SOFTMAX_PRESETS["softmax-40"].shape
DEFAULT_RUNG = "online"
MOST = {"M": 2**20, "N": 2**22}
MOST_ELEMENTS = 2**28  # of x: 1 GiB
LOGITS, NUMBERS = "logits", "numbers"  # parameters: which logits, and those of the reader's own
TURNS = 4  # of a row's threads at least, where the tile sizes are to fit
FIELDS = {name: Number(getattr(DEFAULT, name), 1, most) for name, most in MOST.items()}


def _fit(values: Values) -> bool:
    return values["M"] * values["N"] <= MOST_ELEMENTS


def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    if not _fit(values):
        rule = f"x may have {MOST_ELEMENTS:,} elements on this page, M*N is {values['M'] * values['N']:,}"
        yield rule, fewest_back(values, DEFAULT.params(), tuple(MOST), _fit)


def fitting(rung: Rung, shape: SoftmaxShape) -> dict[str, int]:
    """Of the tile sizes that are compiled ahead the usual, where a row keeps their threads busy for some turns; else the
    largest with which it does, or the smallest. Where a row is to stay in registers, the fewest that hold it."""
    n, usual = shape.N, rung.default_tiles
    sets = [t for t in rung.tile_sets(shape.with_(N=1)) if not any(rung.rules(shape, t))]
    if "PER" in usual:
        return min(sets, key=lambda t: (t["BLOCK"] * t["PER"], -t["BLOCK"]), default=usual)
    if "BLOCK" not in usual or n >= TURNS * usual["BLOCK"]:
        return usual
    less = [t for t in sets if t["BLOCK"] < usual["BLOCK"]]
    busy = [t for t in less if n >= TURNS * t["BLOCK"]]
    return max(busy, key=lambda t: t["BLOCK"]) if busy else min(less, key=lambda t: t["BLOCK"])


ADDRESS = rung_address.Address(OURS, FIELDS, DEFAULT_RUNG, _mend, first=DEFAULT, fit=fitting)


def bounds(s: SoftmaxShape) -> dict[str, Bound]:
    """For each extent the values that keep the page's rule with the other as it is."""
    found = {}
    for name, most in MOST.items():
        room = MOST_ELEMENTS // (s.elements // getattr(s, name))
        rule = f"x, M*N, of no more than {MOST_ELEMENTS:,} elements"
        found[name] = Bound(1, min(room, most), why_high=rule if room < most else "")
    return found


# -- the row on the stage --------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """The numbers on the stage (float32, their bytes), what they are a part of, and what could not be taken as asked."""

    bytes: bytes
    of: str
    own: bool = False
    note: str = ""

    @property
    def x(self) -> np.ndarray:
        return np.frombuffer(self.bytes, np.float32)


def row(s: SoftmaxShape, name: str, numbers: str = "") -> Row:
    """Row 0 of x with the logits `name`, cut where it is too long to show; or the reader's own numbers."""
    if name == inputs.OWN:
        try:
            x = inputs.parse(numbers[:MOST_TEXT] if numbers.strip() else inputs.USUAL_OWN)
            return Row(x.tobytes(), f"your own row of {x.size}", own=True)
        except inputs.LogitsError as error:
            here = row(s, inputs.SMALL)
            return Row(here.bytes, here.of, note=f"{error}. Until then: {inputs.SMALL}.")
    n = shown(s.N)
    part = f", its first {n:,} columns of {s.N:,}" if n < s.N else ""
    return Row(inputs.row(name, n).tobytes(), f"row 0 of {s.M:,}{part}")


def kind(told: str | None) -> str:
    return told if told in inputs.LOGITS else inputs.SMALL


def tiles_at(asked: rung_address.Asked, n: int) -> dict[str, int]:
    """The tile sizes at which a row of n is played: those of the page where the rung can run it so."""
    fits = not any(asked.rung.rules(SoftmaxShape(1, n), asked.tiles))
    return dict(asked.tiles) if fits else fitting(asked.rung, SoftmaxShape(1, n))


@lru_cache(maxsize=MOST_KEPT)
def _scene(rung: str, tiles: tuple[tuple[str, int], ...], here: Row) -> Scene:
    return softmax_scene(rung, dict(tiles), here.x, here.of)


def scene(asked: rung_address.Asked, here: Row) -> tuple[Scene | None, str]:
    """The scene of the rung that is watched; None where a rule forbids its shape, which the controls say, or where its
    kernel would have to be compiled and there is no compiler, which is said."""
    if asked.broken and not here.own:
        return None, ""
    try:
        return _scene(asked.rung.name, tuple(tiles_at(asked, here.x.size).items()), here), ""
    except RuleError as error:
        return None, str(error)


def card(params: Mapping[str, str]) -> Scene:
    """What the page softmax.py plays at `params`, where the rung can run so."""
    asked, _ = ADDRESS.read(params)
    return scene(asked, row(asked.shape, kind(params.get(LOGITS)), params.get(NUMBERS, "")))[0]
