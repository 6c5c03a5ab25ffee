"""The URL of the attention lesson: shape, rung on the stage, tile sizes. Also builds the scene.

The lesson on attention's backward pass has the same fields (`shape_fields`, `address_of`, `bounds`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import DTYPES, MASKS, AttentionShape, SelfAttentionShape
from kernels.i18n import cached, mark, tr
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Bound
from pages.parts import rules, rung_address
from pages.parts import tiles as tile_sizes
from pages.parts.address import Choice, Field, Number, Values
from pages.parts.rules import Rule
from visuals import units
from visuals.attention import timeline
from visuals.attention.gpu_map import RUNGS as MAPPED
from visuals.attention.gpu_map import flash_map
from visuals.attention.inputs import KINDS, qkv
from visuals.attention.ring import RINGS
from visuals.attention.scene import attention_scene, why_not
from visuals.gpu_map.scene import map_scene
from visuals.gpu_map.texts import DESCRIPTION, MAP, NO_MAP
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

LADDER = LADDERS["attention"]
DEFAULT = ATTENTION_PRESETS["attention-16"].shape
DEFAULT_RUNG = "flash"
MAX = {"B": 64, "H": 128, "N": 65_536, "d": 256}
MAX_KEYS = {"M": 65_536, "window": 65_536}  # 0: as many as queries, no window
MAX_CAP = 1000.0
MAX_ELEMENTS = 2**28  # of one tensor: 1 GiB in FP32
MAX_SCALE = 100.0
VALUES = "values"  # the URL parameter for the numbers on the stage
EXPLAINING = {"explaining": mark("the steps of the kernel with their values")}
TIMELINE = {"timeline": mark("the copies, waits, products and barriers of one block: what follows what")}

RING = {"ring": mark("who fills the stages of K and V and who reads them, in the emulator’s order")}


def shape_fields(default: SelfAttentionShape) -> dict[str, Field]:
    """Returns the fields of a shape by name, with their limits on the pages of attention."""
    return {
        **{name: Number(getattr(default, name), 1, maximum) for name, maximum in MAX.items()},
        "causal": Choice(default.causal, (0, 1)),
        "scale": Number(default.scale, -MAX_SCALE, MAX_SCALE, whole=False),
        "dtype": Choice(default.dtype, DTYPES),
    }


def variant_fields() -> dict[str, Field]:
    """Returns the fields of attention's variants by name."""
    return {
        **{name: Number(0, 0, maximum) for name, maximum in MAX_KEYS.items()},
        "kv_heads": Number(0, 0, MAX["H"]),
        "softcap": Number(0.0, 0, MAX_CAP, whole=False),
        "mask": Choice("none", MASKS),
    }


# -- reading -------------------------------------------------------------------------------------
QUERIES = rules.at_most(MAX_ELEMENTS, Q="B*H*N*d")  # without variants K and V have as many elements


def _keys(values: Values) -> str:
    """Returns the rule of the larger of K and the mask, if it is broken."""
    keys = values["M"] or values["N"]
    mask = values["N"] * keys if values["mask"] != "none" else 0
    count = max(values["B"] * (values["kv_heads"] or values["H"]) * keys * values["d"], mask)
    if count <= MAX_ELEMENTS:
        return ""
    return tr(
        "K and the mask may have at most {most} elements on this page, one has {count}",
        most=units.whole(MAX_ELEMENTS),
        count=units.whole(count),
    )


def _heads(values: Values) -> str:
    H, heads = values["H"], values["kv_heads"]
    return tr("H % kv_heads must be 0, got {H} % {heads}", H=H, heads=heads) if heads and H % heads else ""


def address_of(
    ladder: Ladder,
    default: SelfAttentionShape,
    rung: str,
    fit: Callable[[Rung, Any], dict[str, int]] = tile_sizes.default_tiles_for,
) -> rung_address.Address:
    """Returns how a URL selects a shape, a rung of the ladder (`rung` if it names none) and tile sizes."""
    kept = rules.fix(default.params(), Rule(QUERIES, tuple(MAX)))
    return rung_address.Address(ladder, shape_fields(default), rung, kept, first=default, fit=fit)


FIELDS = shape_fields(DEFAULT) | variant_fields()
FIX = rules.fix(
    {name: field.default for name, field in FIELDS.items()},
    Rule(QUERIES, tuple(MAX)),
    Rule(_heads, ("kv_heads",)),
    Rule(_keys, ("M", "mask")),
)
ADDRESS = replace(address_of(LADDER, DEFAULT, DEFAULT_RUNG), shape=FIELDS, fix=FIX)


def bounds(s: SelfAttentionShape) -> dict[str, Bound]:
    """Returns, for each number, the values that keep the page's rules while the others stay the same."""
    return rules.bounds(shape_fields(s), vars(s), QUERIES)


def variant_bounds(s: AttentionShape) -> dict[str, Bound]:
    """Returns the values of the variants' numbers that keep the page's rules while the other fields stay the same."""
    return rules.bounds(variant_fields(), vars(s), _keys)


# -- the stage -----------------------------------------------------------------------------------
def orders(rung: str) -> dict[str, str]:
    """Returns the orders in which a rung can be played, with a marked description of each."""
    if rung in RINGS:
        return RING
    return EXPLAINING | (TIMELINE if rung in timeline.RUNGS else {}) | ({MAP: DESCRIPTION} if rung in MAPPED else {})


@cached(MAX_CACHED_SCENES)
def scene(
    s: AttentionShape, rung: str, tiles: tuple[tuple[str, int], ...], values: str, order: str = "explaining"
) -> tuple[Scene | None, str]:
    """Returns the scene of a rung in one of its orders() and why it differs from the request; (None, reason) if the rung has
    no scene. `values` names the numbers to compute with."""
    note = ""
    if reason := why_not(s, rung, dict(tiles)):
        return None, reason
    if order == MAP:
        if found := flash_map(s, rung, dict(tiles)):
            return map_scene(found), ""
        note = tr(NO_MAP)
    if order == "timeline":
        try:
            return timeline.timeline_scene(s, rung, dict(tiles)), ""
        except RuleError as error:  # no compiler here for these tile sizes
            note = tr("{error}. The stage shows the explaining order instead.", error=error)
    try:
        return attention_scene(s, rung, dict(tiles), qkv(s, values)), note
    except RuleError as error:  # no compiler here for these tile sizes
        return None, f"{error}."


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    query, _ = ADDRESS.read(params)
    return required(scene(query.shape, query.rung.name, tuple(query.tiles.items()), valid_values(params.get(VALUES))))


def valid_values(name: str | None) -> str:
    return name if name is not None and name in KINDS else next(iter(KINDS))
