"""The URL of the GEMM lesson: shape, rung on the stage, tile sizes. Pure functions."""

from __future__ import annotations

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import MAX_INT8_K, GemmShape
from kernels.i18n import tr
from kernels.ladders import LADDERS
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import Bound
from pages.parts import rules, rung_address
from pages.parts.address import Choice, Field, Number, Values
from pages.parts.rules import Rule
from pages.parts.rung_address import short as short

LADDER = LADDERS["gemm"]
DEFAULT = GEMM_PRESETS["square-64"].shape
DEFAULT_RUNG = "shared-tile"
SIZES, FACTORS = ("M", "N", "K"), ("alpha", "beta")
MAX = 65_536
MAX_ELEMENTS = 2**28  # of one matrix: 1 GiB in FP32
MAX_FACTOR = 1_000.0
FIELDS: dict[str, Field] = {
    **{name: Number(getattr(DEFAULT, name), 1, MAX) for name in SIZES},
    **{name: Number(getattr(DEFAULT, name), -MAX_FACTOR, MAX_FACTOR, whole=False) for name in FACTORS},
    "dtype": Choice(DEFAULT.dtype, tuple(ELEMENT_BYTES)),
}


MATRICES = rules.at_most(MAX_ELEMENTS, A="M*K", B="K*N", C="M*N")


def _whole(name: str) -> Rule:
    def broken(values: Values) -> str:
        if values["dtype"] != "int8" or values[name] == int(values[name]):
            return ""
        return tr("{name} must be a whole number if dtype is int8, got {value}", name=name, value=f"{values[name]:g}")

    return Rule(broken, (name,))


def _sums(values: Values) -> str:
    if values["dtype"] != "int8" or values["K"] * abs(values["alpha"]) <= MAX_INT8_K:
        return ""
    return tr(
        "K*|alpha| must be at most {limit} if dtype is int8, so that sums fit in int32; got {K}*{alpha}",
        limit=MAX_INT8_K,
        K=values["K"],
        alpha=f"{abs(values['alpha']):g}",
    )


FIX = rules.fix(DEFAULT.params(), Rule(MATRICES, SIZES), *map(_whole, FACTORS), Rule(_sums, ("alpha",)))
ADDRESS = rung_address.Address(LADDER, FIELDS, DEFAULT_RUNG, FIX)
RUNGS = ADDRESS.rungs
read, write, supported = ADDRESS.read, ADDRESS.write, ADDRESS.supported_rungs
at_shape, at_rung, at_tiles = ADDRESS.at_shape, ADDRESS.at_rung, ADDRESS.at_tiles


def bounds(shape: GemmShape) -> dict[str, Bound]:
    """Returns, for each number, the values that keep the page's rules while the others stay the same."""
    return rules.bounds(FIELDS, shape.params(), lambda values: MATRICES(values) or _sums(values))
