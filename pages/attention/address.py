"""What the address of the attention lesson means: the shape, the rung that is watched, its tile sizes; and its scene."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import DTYPES, AttentionShape
from kernels.ladders import LADDERS
from kernels.model.shape import Bound
from pages.parts import rung_address
from pages.parts.address import Choice, Number, Values, fewest_back
from pages.parts.kept import MOST_KEPT
from visuals.attention.inputs import KINDS, qkv
from visuals.attention.scene import attention_scene, why_not
from visuals.scene.scene import Scene

LADDER = LADDERS["attention"]
DEFAULT = ATTENTION_PRESETS["attention-16"].shape
DEFAULT_RUNG = "flash"
MOST = {"B": 64, "H": 128, "N": 65_536, "d": 256}
MOST_ELEMENTS = 2**28  # of one tensor: 1 GiB in FP32
MOST_SCALE = 100.0
VALUES = "values"  # the parameter that says what the stage computes with
FIELDS = {
    **{name: Number(getattr(DEFAULT, name), 1, most) for name, most in MOST.items()},
    "causal": Choice(DEFAULT.causal, (0, 1)),
    "scale": Number(DEFAULT.scale, -MOST_SCALE, MOST_SCALE, whole=False),
    "dtype": Choice(DEFAULT.dtype, DTYPES),
}


# -- reading -------------------------------------------------------------------------------------
def _elements(values: Values) -> int:
    """Of Q, of K, of V and of O."""
    return values["B"] * values["H"] * values["N"] * values["d"]


def _fit(values: Values) -> bool:
    return _elements(values) <= MOST_ELEMENTS


def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    if not _fit(values):
        rule = f"Q may have {MOST_ELEMENTS:,} elements on this page, B*H*N*d is {_elements(values):,}"
        yield rule, fewest_back(values, DEFAULT.params(), tuple(MOST), _fit)


ADDRESS = rung_address.Address(LADDER, FIELDS, DEFAULT_RUNG, _mend, first=DEFAULT)


def bounds(s: AttentionShape) -> dict[str, Bound]:
    """For each number the values that keep the page's rules with the others as they are."""
    found = {"scale": Bound(-int(MOST_SCALE), int(MOST_SCALE))}
    every = _elements(s.params())
    for name, most in MOST.items():
        room = MOST_ELEMENTS // (every // getattr(s, name))
        rule = f"Q, B*H*N*d, of no more than {MOST_ELEMENTS:,} elements"
        found[name] = Bound(1, min(room, most), why_high=rule if room < most else "")
    return found


# -- the stage -----------------------------------------------------------------------------------
@lru_cache(maxsize=MOST_KEPT)
def scene(
    s: AttentionShape, rung: str, tiles: tuple[tuple[str, int], ...], values: str
) -> tuple[Scene | None, str]:
    """The scene of a rung with what `values` names; None where it has none, and then why."""
    if reason := why_not(s, rung, dict(tiles)):
        return None, reason
    return attention_scene(s, rung, dict(tiles), qkv(s, values)), ""


def card(params: Mapping[str, str]) -> Scene:
    """What the page attention.py plays at `params`, where the rung can run so."""
    asked, _ = ADDRESS.read(params)
    return scene(asked.shape, asked.rung.name, tuple(asked.tiles.items()), kind(params.get(VALUES)))[0]


def kind(told: str | None) -> str:
    return told if told in KINDS else next(iter(KINDS))
