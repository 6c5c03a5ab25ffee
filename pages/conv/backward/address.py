"""The URL of the lesson on convolution backward: the gradient, its shape, rung and tile sizes. Also builds the scene.

?gradient= selects a ladder: the gradient of the input, that of the filters, or transposed convolution. The fields of a
shape have the same names in all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import gcd

import numpy as np

from kernels.conv.backward.presets import BACKWARD_PADDING, BACKWARD_PRESETS
from kernels.conv.backward.transpose import PADDING as TRANSPOSE_PADDING
from kernels.conv.backward.transpose import PRESETS as TRANSPOSE_PRESETS
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import EXTRA_SINCE, ConvShape
from kernels.i18n import cached, mark, tr
from kernels.ladders import LADDERS, find
from kernels.model.preset import Preset
from kernels.model.program import INPUT, RuleError
from kernels.model.rung import Ladder
from kernels.model.shape import Bound
from kernels.runner import seeded_inputs
from pages.conv import address as conv_address
from pages.parts import rules, rung_address
from pages.parts.address import Field, Number, Values
from visuals.conv.backward import scene as scenes
from visuals.conv.watched import smaller, watched
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required
from visuals.scene.why_not import broken_rule, why_not

Shape = ConvShape | TransposeShape
GRADIENT = "gradient"  # the URL parameter
INPUT_GRADIENT, FILTERS, TRANSPOSED = "input", "filters", "transposed"
GRADIENTS = {INPUT_GRADIENT: "conv-dinput", FILTERS: "conv-dweight", TRANSPOSED: "conv-transpose"}
ABOUT = {
    INPUT_GRADIENT: mark("the gradient of each input pixel"),
    FILTERS: mark("the gradient of each filter tap"),
    TRANSPOSED: mark("the same computation as the gradient of the input, as an operation of its own"),
}
DEFAULT = BACKWARD_PRESETS["backward-stride-toy"].shape
TRANSPOSE_DEFAULT = TRANSPOSE_PRESETS["transpose-toy"].shape.with_(output_pad_h=0, output_pad_w=0)
MAX = conv_address.MAX | {"N": 128, "R": 16, "S": 16, "groups": 1024}
IMAGES = 2  # on the stage of a sum over images
MAX_OUTPUT_PAD = MAX["u"] - 1


def gradient(params: Mapping[str, str]) -> str:
    """Returns the gradient that the URL selects."""
    name = params.get(GRADIENT)
    return name if name in GRADIENTS else INPUT_GRADIENT


def note(params: Mapping[str, str]) -> list[str]:
    """Returns what is wrong with the gradient in the URL."""
    name = params.get(GRADIENT, INPUT_GRADIENT)
    if name in GRADIENTS:
        return []
    return [
        tr(
            "{name} must be one of {choices}: {value} is used",
            name=GRADIENT,
            choices=", ".join(GRADIENTS),
            value=INPUT_GRADIENT,
        )
    ]


def ladder(gradient: str) -> Ladder:
    return LADDERS[GRADIENTS[gradient]]


def presets(gradient: str) -> Mapping[str, Preset]:
    if gradient == TRANSPOSED:
        return TRANSPOSE_PRESETS | TRANSPOSE_PADDING
    return BACKWARD_PRESETS | BACKWARD_PADDING


# -- rules between the fields ----------------------------------------------------------------------
AXES = (
    ("extra_h", "output_pad_h", "pad_h", "R", "dilation_h", "u", "H"),
    ("extra_w", "output_pad_w", "pad_w", "S", "dilation_w", "v", "W"),
)


def _groups(values: Values) -> str:
    for name in "CK":
        if values[name] % values["groups"]:
            count = f"{values[name]} % {values['groups']}"
            return tr("{name} must be a multiple of groups, got {got}", name=name, got=count)
    return ""


def _axis(axis: tuple[str, ...], values: Values) -> str:
    """Returns the rule that the values of one axis break; "" if they break none."""
    return rules.of_shape(lambda v: TRANSPOSE_DEFAULT.with_(**{name: v[name] for name in axis}))(values)


GROUPS = rules.Rule(_groups, ("groups",))
TRANSPOSE_RULES = tuple(rules.Rule(partial(_axis, axis), axis) for axis in AXES)


def _fields(default: Shape) -> dict[str, Field]:
    """Returns the fields of a shape by name. Those of the other convolution lessons have the same limits."""
    known = {
        **conv_address.FIELDS.by_name,
        "groups": Number(1, 1, MAX["groups"]),
        "output_pad_h": Number(0, 0, MAX_OUTPUT_PAD),
        "output_pad_w": Number(0, 0, MAX_OUTPUT_PAD),
    }
    found = {}
    for name, value in {**default.params(), "groups": 1, **EXTRA_SINCE}.items():
        field = replace(known[name], default=value)
        found[name] = replace(field, maximum=MAX[name]) if name in MAX else field
    return found


def _default_tiles(rung, shape) -> dict[str, int]:
    return rung.default_tiles


def _address(gradient: str) -> rung_address.Address:
    transposed = gradient == TRANSPOSED
    default, own = (TRANSPOSE_DEFAULT, TRANSPOSE_RULES) if transposed else (DEFAULT, conv_address.RULES)
    fix = rules.fix({"groups": 1, **EXTRA_SINCE, **default.params()}, *own, GROUPS)
    return rung_address.Address(ladder(gradient), _fields(default), "direct", fix, fit=_default_tiles)


ADDRESSES = {gradient: _address(gradient) for gradient in GRADIENTS}


def bounds(s: Shape) -> dict[str, Bound]:
    """Returns, for each number, the values that keep the shape valid while the others stay the same."""
    fields = _fields(s)
    if isinstance(s, TransposeShape):
        numbers = {name: field for name, field in fields.items() if name != "groups"}
        values = {"groups": 1, **EXTRA_SINCE, **s.params()}
        found = rules.bounds(numbers, values, rules.of_shape(lambda v: TransposeShape(**v))) | conv_address.fixed_maps(
            s
        )
    else:
        found = conv_address.bounds(s, fields)
    return found | {"groups": Bound(1, gcd(s.C, s.K))}


# -- from one gradient to another ------------------------------------------------------------------
def at_gradient(selection: rung_address.Selection, gradient: str) -> dict[str, str]:
    """Returns the URL parameters of another gradient of the same convolution."""
    address, s = ADDRESSES[gradient], selection.shape
    if gradient == TRANSPOSED and isinstance(s, ConvShape):
        s = TransposeShape.of(s)
    elif gradient != TRANSPOSED and isinstance(s, TransposeShape):
        s = s.conv
    raw, _ = address.read(s.params())  # a field beyond the page's limit has its default
    name = rung_address.short(selection.rung)
    rung = address.rungs.get(name, address.rungs["direct"])
    other = address.write(rung_address.Selection(rung, rung.default_tiles, raw.shape))
    return other | ({} if gradient == INPUT_GRADIENT else {GRADIENT: gradient})


# -- the stage -------------------------------------------------------------------------------------
def shown(s: Shape, rung: str = "") -> Shape:
    """Returns the shape on the stage: fewer images, channels, filters and pixels, the rest unchanged. A sum over images has two."""
    if isinstance(s, TransposeShape):
        return TransposeShape.of(watched(s.conv))
    return watched(s, IMAGES if rung.startswith("conv-dweight") else 1)


# The file of a rung with several launches that shows its idea.
FILES = {
    "conv-dinput/gemm-atomics": "conv/22_col2im_atomics.cu",
    "conv-dinput/gemm-gather": "conv/23_col2im_gather.cu",
    "conv-dinput/winograd": "conv/30_dinput_winograd_filter.cu",
    "conv-dweight/winograd": "conv/31_dweight_winograd_gradient.cu",
    "conv-dweight/im2col-gemm": "conv/26_gemm_sum.cu",
    "conv-dweight/implicit-gemm-atomics": "conv/27_dweight_atomics.cu",
    "conv-transpose/gemm-atomics": "conv/22_col2im_atomics.cu",
    "conv-transpose/gemm-gather": "conv/23_col2im_gather.cu",
}


def scene(selection: rung_address.Selection, every_step: bool = False) -> tuple[Scene | None, str]:
    """Returns the scene of a rung at the part of its shape that is shown, and what the reader must know of it; (None,
    reason) if it has none."""
    return _scene(selection.shape, selection.rung.name, tuple(selection.tiles.items()), every_step)


@cached(MAX_CACHED_SCENES)
def _scene(s: Shape, rung: str, tiles: tuple[tuple[str, int], ...], every_step: bool) -> tuple[Scene | None, str]:
    part, sizes = shown(s, rung), dict(tiles)
    if reason := broken_rule(rung, s, sizes):  # the part has one group: it could break none
        return None, reason
    if reason := why_not(rung, part, sizes, scenes.SCENES) or scenes.why_not(part, rung, sizes):
        return None, reason
    try:
        found = scenes.backward_scene(rung, part, sizes, inputs(rung, part), every_step)
    except RuleError as error:  # no compiler here for these tile sizes
        return None, str(error)
    return found, smaller(s, part)


def inputs(rung: str, s: Shape) -> dict[str, np.ndarray]:
    """Returns small whole numbers for a rung's inputs, by name."""
    found = find(rung)
    arrays = seeded_inputs(found.build(s, found.default_tiles).of_role(INPUT))
    return {name: np.round(3 * array) for name, array in arrays.items()}


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    return required(scene(ADDRESSES[gradient(params)].read(params)[0]))
