"""The URL of the attention lesson: shape, rung on the stage, tile sizes. Also builds the scene.

The lesson on attention's backward pass has the same fields (`shape_fields`, `address_of`, `bounds`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import DTYPES, MASKS, AttentionShape, SelfAttentionShape
from kernels.i18n import cached, decimal, mark, tr
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Bound
from pages.parts import rung_address
from pages.parts import tiles as tile_sizes
from pages.parts.address import Choice, Field, Fix, Number, Values, fewest_resets
from visuals.attention import timeline
from visuals.attention.gpu_map import RUNGS as MAPPED
from visuals.attention.gpu_map import flash_map
from visuals.attention.inputs import KINDS, qkv
from visuals.attention.ring_plan import RINGS
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
def _elements(values: Values) -> int:
    """Returns the number of elements of Q and O; without variants K and V have as many."""
    return values["B"] * values["H"] * values["N"] * values["d"]


def _key_elements(values: Values) -> int:
    """Returns the number of elements of the larger of K and the mask."""
    keys = values["M"] or values["N"]
    mask = values["N"] * keys if values["mask"] != "none" else 0
    return max(values["B"] * (values["kv_heads"] or values["H"]) * keys * values["d"], mask)


def _fits(values: Values) -> bool:
    return _elements(values) <= MAX_ELEMENTS


def _fix_of(default: SelfAttentionShape) -> Fix:
    def fix(values: Values) -> Iterator[tuple[str, Values]]:
        if not _fits(values):
            rule = tr(
                "Q may have at most {most} elements on this page, but B*H*N*d is {count}",
                most=decimal(f"{MAX_ELEMENTS:,}"),
                count=decimal(f"{_elements(values):,}"),
            )
            yield rule, fewest_resets(values, default.params(), tuple(MAX), _fits)

    return fix


def _fix_variants(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rules of plain self-attention, then those of the variants, with the values to use instead."""
    yield from _fix_of(DEFAULT)(values)
    if values["kv_heads"] and values["H"] % values["kv_heads"]:
        rule = tr("H % kv_heads must be 0, got {H} % {heads}", H=values["H"], heads=values["kv_heads"])
        yield rule, {"kv_heads": 0}
    if (count := _key_elements(values)) > MAX_ELEMENTS:
        rule = tr(
            "K and the mask may have at most {most} elements on this page, but one has {count}",
            most=decimal(f"{MAX_ELEMENTS:,}"),
            count=decimal(f"{count:,}"),
        )
        yield rule, {"M": 0} if _key_elements(values | {"M": 0}) <= MAX_ELEMENTS else {"M": 0, "mask": "none"}


def address_of(
    ladder: Ladder,
    default: SelfAttentionShape,
    rung: str,
    fit: Callable[[Rung, Any], dict[str, int]] = tile_sizes.default_tiles_for,
) -> rung_address.Address:
    """Returns how a URL selects a shape, a rung of the ladder (`rung` if it names none) and tile sizes."""
    return rung_address.Address(ladder, shape_fields(default), rung, _fix_of(default), first=default, fit=fit)


ADDRESS = replace(
    address_of(LADDER, DEFAULT, DEFAULT_RUNG), shape=shape_fields(DEFAULT) | variant_fields(), fix=_fix_variants
)


def bounds(s: SelfAttentionShape) -> dict[str, Bound]:
    """Returns, for each number, the values that keep the page's rules while the others stay the same."""
    found = {"scale": Bound(-int(MAX_SCALE), int(MAX_SCALE))}
    elements = _elements(vars(s))
    for name, maximum in MAX.items():
        largest = MAX_ELEMENTS // (elements // getattr(s, name))
        rule = tr("Q may have at most {most} elements (B*H*N*d)", most=decimal(f"{MAX_ELEMENTS:,}"))
        found[name] = Bound(1, min(largest, maximum), why_high=rule if largest < maximum else "")
    return found


def variant_bounds(s: AttentionShape) -> dict[str, Bound]:
    """Returns the values of the variants' numbers that keep the page's rules while the other fields stay the same."""
    most = MAX_ELEMENTS // max(s.B * s.groups * s.d, s.N if s.mask != "none" else 0)
    rule = tr("K and the mask may have at most {most} elements", most=decimal(f"{MAX_ELEMENTS:,}"))
    keys, window = MAX_KEYS.values()
    return {
        "M": Bound(0, min(keys, most), why_high=rule if most < keys else ""),
        "window": Bound(0, window),
        "softcap": Bound(0, int(MAX_CAP)),
    }


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
        return attention_scene(s, rung, dict(tiles), {} if rung in RINGS else qkv(s, values)), note
    except RuleError as error:  # no compiler here for these tile sizes
        return None, f"{error}."


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    query, _ = ADDRESS.read(params)
    return required(scene(query.shape, query.rung.name, tuple(query.tiles.items()), valid_values(params.get(VALUES))))


def valid_values(name: str | None) -> str:
    return name if name is not None and name in KINDS else next(iter(KINDS))
