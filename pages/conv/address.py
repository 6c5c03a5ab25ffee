"""The URL of a convolution lesson: its fields, their bounds, and the rule between them.

The shape that is read is always valid. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import EXTRA_SINCE, MODES, ConvShape
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.model.rung import Ladder
from kernels.model.shape import Bound
from pages.parts import rules
from pages.parts.address import Choice, Field, Fields, Fix, Number, Text, Value, Values
from pages.parts.rules import Rule
from visuals.conv.inputs import Inputs
from visuals.conv.pictures import CUSTOM, FILTERS, MAX_SEED, PICTURES, UPLOAD

# The rungs of the ladder "conv" that each lesson compares.
RUNGS = {
    "im2col": ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"),
    "direct": ("conv/direct", "conv/direct-tiled", "conv/im2col-cublas", "conv/cudnn-implicit-precomp-gemm"),
    "implicit": (
        "conv/im2col-gemm",
        "conv/im2col-cublas",
        "conv/implicit-gemm-plain",
        "conv/implicit-gemm",
        "conv/cudnn-implicit-gemm",
        "conv/cudnn-implicit-precomp-gemm",
    ),
    "winograd": (
        "conv/implicit-gemm",
        "conv/winograd-2x2",
        "conv/winograd-4x4",
        "conv/winograd-nonfused",
        "conv/cudnn-winograd",
        "conv/cudnn-winograd-nonfused",
    ),
    "fft": (
        "conv/direct",
        "conv/implicit-gemm",
        "conv/fft",
        "conv/fft-tiled",
        "conv/cudnn-fft",
        "conv/cudnn-fft-tiling",
    ),
}
INPUT_FIELDS = ("picture", "filter", "seed", "taps")  # the parameters that are not part of the shape


def ladder(lesson: str) -> Ladder:
    return LADDERS["conv"].only(*RUNGS[lesson])


@dataclass(frozen=True)
class ConvQuery:
    """The shape, picture and filters that a lesson's URL selects."""

    shape: ConvShape
    picture: str = "digit"
    filter: str = "sobel-x"
    seed: int = 0
    taps: str = ""  # of the custom filter, as visuals.conv.pictures.parse_taps reads them

    def params(self) -> dict[str, int | str]:
        fields = {**EXTRA_SINCE, **self.shape.params()}
        return fields | {name: getattr(self, name) for name in INPUT_FIELDS}

    def inputs(self) -> Inputs:
        """Returns the inputs without the user's own taps and picture."""
        return Inputs(self.shape, self.picture, self.filter, self.seed)


DEFAULT = ConvQuery(CONV_PRESETS["toy"].shape)
CHOICES = {"mode": MODES, "picture": (*PICTURES, UPLOAD), "filter": (*FILTERS, CUSTOM)}
# The largest values that a page accepts.
MAX = {
    "N": 64,
    "C": 1024,
    "H": 512,
    "W": 512,
    "K": 1024,
    "R": 11,
    "S": 11,
    "u": 8,
    "v": 8,
    "pad_h": 8,
    "pad_w": 8,
    "extra_h": 8,
    "extra_w": 8,
    "dilation_h": 8,
    "dilation_w": 8,
    "seed": MAX_SEED,
}
MIN = dict.fromkeys(MAX, 1) | {"pad_h": 0, "pad_w": 0, "extra_h": -8, "extra_w": -8, "seed": 0}
# The fields of one axis, which limit each other. If resetting either of two is enough, the first is reset.
AXES = (("R", "dilation_h", "H", "pad_h", "extra_h"), ("S", "dilation_w", "W", "pad_w", "extra_w"))


def _broken_rule(axis: tuple[str, ...], values: Values) -> str:
    """Returns the rule that the values of one axis break; "" if they break none."""
    tap, dilation, size, pad, extra = axis
    taps, step, extent, before, more = (values[name] for name in axis)
    if more < -before:
        return tr(
            "The padding after the input must not be negative, {condition}, but {extra} < {pad}",
            condition=f"{extra} >= -{pad}",
            extra=more,
            pad=-before,
        )
    span, padded = step * (taps - 1) + 1, extent + 2 * before + more
    if span <= padded:
        return ""
    return tr(
        "The filter must fit the padded input, {condition}, but {span} > {size}",
        condition=f"{dilation}*({tap}-1)+1 <= {size}+2*{pad}" + (f"+{extra}" if more else ""),
        span=span,
        size=padded,
    )


RULES = tuple(Rule(partial(_broken_rule, axis), axis) for axis in AXES)


def fix(default: ConvShape) -> Fix:
    """Returns the Fields.fix of a lesson: the padding after the input is not negative, and the filter fits the padded input."""
    return rules.fix({**EXTRA_SINCE, **default.params()}, *RULES)


def bounds(s: ConvShape, fields: Mapping[str, Field]) -> dict[str, Bound]:
    """Returns, for each number of the shape, the values that keep it valid while the others stay the same."""
    values = {**EXTRA_SINCE, **s.params()}
    numbers = {name: field for name, field in fields.items() if name in values and name != "groups"}
    found = rules.bounds(numbers, values, rules.of_shape(lambda v: ConvShape(**v)))
    cut = {name: found[name] for name, pad in (("extra_h", s.pad_h), ("extra_w", s.pad_w)) if found[name].low == -pad}
    return found | {name: replace(bound, why_low="") for name, bound in cut.items()} | fixed_maps(s)


def fixed_maps(s: ConvShape | TransposeShape) -> dict[str, Bound]:
    """Returns the range of the maps of a shape with groups: a range has no gaps, so only the value itself is valid."""
    rule = "C % groups == 0, K % groups == 0"
    return {name: Bound(n, n, rule, rule) for name, n in (("C", s.C), ("K", s.K)) if s.groups > 1}


def _field(name: str, default: Any) -> Number | Choice | Text:
    if name in MAX:
        return Number(default, MIN[name], MAX[name])
    return Choice(default, CHOICES[name]) if name in CHOICES else Text(default)


FIELDS = Fields("conv", {name: _field(name, default) for name, default in DEFAULT.params().items()}, fix(DEFAULT.shape))
NAMES = tuple(FIELDS.by_name)


def query_of(values: Mapping) -> ConvQuery:
    """Returns the query of all fields' values, which must keep every rule."""
    return ConvQuery(
        ConvShape(**{name: value for name, value in values.items() if name not in INPUT_FIELDS}),
        **{name: values[name] for name in INPUT_FIELDS},
    )


def read(raw: Mapping[str, Value]) -> tuple[ConvQuery, list[str]]:
    values, notes = FIELDS.read(raw)
    return query_of(values), notes


def write(query: ConvQuery) -> dict[str, str]:
    return FIELDS.write(query.params())


@lru_cache(maxsize=512)  # every rerun draws the same dozen links
def at_shape(query: ConvQuery, shape: ConvShape) -> dict[str, str]:
    """Returns the URL parameters of another shape with the same picture and filters."""
    return write(replace(query, shape=shape))
