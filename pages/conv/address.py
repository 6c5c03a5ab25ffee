"""What the address of a convolution lesson means: its fields, their bounds, and the rule between them.

The shape that is read is always valid. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import MODES, ConvShape
from kernels.ladders import LADDERS
from kernels.model.rung import Ladder
from pages.parts.address import Choice, Fields, Number, Text, Value, Values, fewest_back
from visuals.conv.inputs import Inputs
from visuals.conv.pictures import CUSTOM, FILTERS, MOST_SEED, PICTURES, UPLOAD

# What each lesson compares: rungs of the ladder "conv".
RUNGS = {
    "im2col": ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"),
    "direct": ("conv/direct", "conv/direct-tiled", "conv/im2col-cublas", "conv/cudnn-implicit-precomp-gemm"),
    "implicit": (
        "conv/im2col-gemm", "conv/im2col-cublas", "conv/implicit-gemm-plain", "conv/implicit-gemm",
        "conv/cudnn-implicit-gemm", "conv/cudnn-implicit-precomp-gemm",
    ),
    "winograd": (
        "conv/implicit-gemm", "conv/winograd-2x2", "conv/winograd-4x4", "conv/winograd-nonfused",
        "conv/cudnn-winograd", "conv/cudnn-winograd-nonfused",
    ),
    "fft": ("conv/direct", "conv/implicit-gemm", "conv/fft", "conv/cudnn-fft", "conv/cudnn-fft-tiling"),
}  # fmt: skip
OWN = ("picture", "filter", "seed", "taps")  # the parameters that are not the shape's


def ladder(lesson: str) -> Ladder:
    """What a lesson compares."""
    return LADDERS["conv"].only(*RUNGS[lesson])


@dataclass(frozen=True)
class Asked:
    """What the parameters of a lesson ask for."""

    shape: ConvShape
    picture: str = "digit"
    filter: str = "sobel-x"
    seed: int = 0
    taps: str = ""  # of the custom filter, as visuals.conv.pictures.parse_taps reads them

    def params(self) -> dict[str, int | str]:
        return self.shape.params() | {name: getattr(self, name) for name in OWN}

    def inputs(self) -> Inputs:
        """Without what the reader alone has: taps and a picture of their own."""
        return Inputs(self.shape, self.picture, self.filter, self.seed)


DEFAULT = Asked(CONV_PRESETS["toy"].shape)
CHOICES = {"mode": MODES, "picture": (*PICTURES, UPLOAD), "filter": (*FILTERS, CUSTOM)}
# What a page is ready to show.
MOST = {"N": 64, "C": 1024, "H": 512, "W": 512, "K": 1024, "R": 11, "S": 11, "u": 8, "v": 8,
        "pad_h": 8, "pad_w": 8, "dilation_h": 8, "dilation_w": 8, "seed": MOST_SEED}  # fmt: skip
LEAST = {name: 0 if name in ("pad_h", "pad_w", "seed") else 1 for name in MOST}
# The fields of one axis that must fit each other; of two that could be set back, the first is.
AXES = (("R", "dilation_h", "H", "pad_h"), ("S", "dilation_w", "W", "pad_w"))


def fits(values: Values, usual: Values) -> Iterator[tuple[str, Values]]:
    """As Fields.mend: the filter must fit; what keeps it from that is set back to `usual`, which does."""
    for axis in AXES:
        span, room = _span_and_room(values, axis)
        if span > room:
            tap, dilation, size, pad = axis
            rule = f"the filter must fit the padded input, {dilation}*({tap}-1)+1 <= {size}+2*{pad}, but {span} > {room}"
            yield rule, fewest_back(values, usual, axis, partial(_fit, axis))


def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    yield from fits(values, DEFAULT.params())


def _span_and_room(values: Values, axis: tuple[str, ...]) -> tuple[int, int]:
    """What the filter takes along an axis, and what the padded input has."""
    tap, dilation, size, pad = (values[name] for name in axis)
    return dilation * (tap - 1) + 1, size + 2 * pad


def _fit(axis: tuple[str, ...], values: Values) -> bool:
    span, room = _span_and_room(values, axis)
    return span <= room


def _field(name: str, usual: int | str) -> Number | Choice | Text:
    if name in MOST:
        return Number(usual, LEAST[name], MOST[name])
    return Choice(usual, CHOICES[name]) if name in CHOICES else Text(usual)


FIELDS = Fields("conv", {name: _field(name, usual) for name, usual in DEFAULT.params().items()}, _mend)
NAMES = tuple(FIELDS.of)


def of(values: Mapping) -> Asked:
    """What the values of all fields, which keep every rule, ask for."""
    return Asked(
        ConvShape(**{name: value for name, value in values.items() if name not in OWN}),
        **{name: values[name] for name in OWN},
    )


def read(raw: Mapping[str, Value]) -> tuple[Asked, list[str]]:
    values, notes = FIELDS.read(raw)
    return of(values), notes


def write(asked: Asked) -> dict[str, str]:
    return FIELDS.write(asked.params())


@lru_cache(maxsize=512)  # every run draws the same dozen links
def at(asked: Asked, shape: ConvShape) -> dict[str, str]:
    """The parameters for another shape with the same picture and filters."""
    return write(replace(asked, shape=shape))
