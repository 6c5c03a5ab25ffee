"""The URL of the lesson on layers: the layer, the pass, the rung on the stage, the shape and tile sizes.

The layers themselves are rows of pages/layers/layers.py. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from kernels.elementwise.shape import FORMS, BiasShape
from kernels.i18n import cached, tr
from kernels.model.program import RuleError
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Bound, Shape, ShapeError
from pages.layers.layers import LAYERS, Layer, Pass
from pages.parts import rules
from pages.parts.address import Choice, Field, Fields, Number, Text, Values
from pages.parts.rung_address import Address, Selection
from visuals import units
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

LAYER, PASS = "layer", "pass"  # URL parameters
MAX_BYTES = 2**32  # that a shape may move at least
SMALL = 8192  # numbers: up to here the tile sizes are the smallest ones
FLOAT = 4  # bytes
EXTENTS = {
    "N": 2**20,
    "C": 2**16,
    "P": 4096,
    "Q": 4096,
    "H": 4096,
    "W": 4096,
    "M": 2**20,
    "K": 2**16,
    "V": 2**20,
    "d": 2**14,
    "T": 2**16,
    "B": 2**10,
    "h": 2**10,
}
WINDOWS = {"R": 32, "S": 32, "u": 32, "v": 32, "dilation_h": 32, "dilation_w": 32}
LIMITS = EXTENTS | WINDOWS
PADS = {"pad_h": 16, "pad_w": 16}
CHOICES = {
    "keep": ("y", "bytes", "bits"),
    "form": FORMS,
    "layout": ("nchw", "nhwc"),
    "ceil": (0, 1),
    "include_pad": (1, 0),
    "tokens": ("uniform", "zipf", "equal"),
    "parts": (1, 3),
    "causal": (0, 1),
}


# -- which layer, which pass ---------------------------------------------------------------------------
def read(params: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """Returns the names of the layer and of its pass, and a note for each that is not valid."""
    layer_fields = Fields("layers", {LAYER: Choice(next(iter(LAYERS)), tuple(LAYERS))})
    values, notes = layer_fields.read(params)
    passes = tuple(LAYERS[values[LAYER]].passes)
    of_layer, more = Fields("layers", {PASS: Choice(passes[0], passes)}).read(params)
    return values[LAYER], of_layer[PASS], [*notes, *more]


def write(layer: str, side: str) -> dict[str, str]:
    """Returns the URL parameters of a layer and a pass, without those at their default."""
    found = {} if layer == next(iter(LAYERS)) else {LAYER: layer}
    return found if side == next(iter(LAYERS[layer].passes)) else found | {PASS: side}


def of(layer: str, side: str) -> tuple[Layer, Pass]:
    return LAYERS[layer], LAYERS[layer].passes[side]


# -- shape, rung, tile sizes ---------------------------------------------------------------------------
@cache
def address(layer: str, side: str) -> Address:
    """Returns how the URL selects a shape, a rung and its tile sizes of one pass."""
    row, one = of(layer, side)
    stage = one.presets[one.stage].shape
    names = row.field_names
    fields = {name: _field(name, stage.params()[name]) for name in names}
    broken = rules.of_shape(partial(_checked, one.ladder, names))
    fix = rules.fix({name: stage.params()[name] for name in names}, rules.Rule(broken, names))
    own = one.ladder.only(*(rung.name for rung in one.ladder.rungs if not (rung.library or rung.no_scene)))
    return Address(own, fields, one.rung, fix, first=stage, fit=fit)


def _field(name: str, default: Any) -> Field:
    if name in CHOICES:
        return Choice(default, CHOICES[name])
    if isinstance(default, str):
        return Text(default)
    return Number(default, 0, PADS[name]) if name in PADS else Number(default, 1, LIMITS[name])


def _checked(ladder: Ladder, names: tuple[str, ...], values: Values) -> Shape:
    """Returns the shape of these values. ShapeError if it breaks a rule of the shape, or of this page."""
    shape = ladder.shape(**{name: values[name] for name in names})
    if shape.bytes > MAX_BYTES:
        fields = {"most": units.bytes_(MAX_BYTES), "bytes": units.bytes_(shape.bytes)}
        raise ShapeError(tr("a shape may move at most {most} on this page, this one moves {bytes}", **fields))
    return shape


def numbers(shape: Shape) -> int:
    """Returns how many 32-bit numbers a shape moves at least: the measure of its size."""
    return shape.bytes // FLOAT


def fit(rung: Rung, shape: Shape) -> dict[str, int]:
    """Returns the tile sizes for a shape, for a small one the smallest of the rung's sets: its tiles are visible."""
    sets = list(rung.tile_sets(shape)) if numbers(shape) <= SMALL else []
    return min(sets, key=lambda tiles: tuple(tiles.values()), default=rung.tiles_at(shape))


def bounds(layer: str, side: str, shape: Shape) -> dict[str, Bound]:
    """Returns, for each number of the shape, the values that keep every rule while the others stay."""
    row, one = of(layer, side)
    broken = rules.of_shape(partial(_checked, one.ladder, row.field_names))
    return rules.bounds(address(layer, side).shape, shape.params(), broken)


def across(layer: str, side: str, shape: Shape) -> dict[str, str]:
    """Returns the URL parameters of another pass of a layer at the same extents, with its first rung."""
    one = address(layer, side)
    values = one.fields[one.default_rung].defaults | {n: v for n, v in shape.params().items() if n in one.shape}
    selection = one.selection(values)
    return one.at_rung(selection, selection.rung)


# -- the two sizes -------------------------------------------------------------------------------------
def real(layer: str, side: str, shape: Shape) -> Shape:
    """Returns the real shape with the stage's window, layout and what is kept; without them if they do not fit it."""
    row, one = of(layer, side)
    found = one.presets[one.real].shape
    if isinstance(shape, BiasShape) and shape.layout == "nhwc" and shape.P == shape.Q == 1:
        found = one.presets[f"{one.ladder_name}-gpt2"].shape
    kept = {n: v for n, v in shape.params().items() if n in row.field_names and n not in EXTENTS and n not in row.text}
    try:
        return found.with_(**kept)
    except ShapeError:
        return found


def staged(layer: str, shape: Shape) -> Shape:
    """Returns the part of the shape that the stage shows: all of it if it is small."""
    row = LAYERS[layer]
    return row.part(shape) if numbers(shape) > row.most else shape


def scene(layer: str, side: str, selection: Selection) -> tuple[Scene | None, str]:
    """Returns (scene of the selected rung, ""), or (None, reason): "" if the controls name the broken rule."""
    if selection.broken:
        return None, ""
    part, rung = staged(layer, selection.shape), selection.rung
    tiles = selection.tiles if part == selection.shape else fit(rung, part)
    try:
        return _scene(layer, side, rung.name, part, tuple(tiles.items())), ""
    except RuleError as error:
        return None, str(error)


@cached(MAX_CACHED_SCENES)
def _scene(layer: str, side: str, rung: str, part: Shape, tiles: tuple[tuple[str, int], ...]) -> Scene:
    return LAYERS[layer].scene(rung, part, dict(tiles))


def readings(layer: str, side: str, rung: str, shape: Shape, tiles: Mapping[str, int]) -> list[float]:
    """Returns the counters of a scene after its last step."""
    found = _scene(layer, side, rung, shape, tuple(tiles.items()))
    return [float(reading.values[-1]) for reading in found.readings]


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    layer, side, _ = read(params)
    selection, _ = address(layer, side).read(params)
    return required(scene(layer, side, selection))
