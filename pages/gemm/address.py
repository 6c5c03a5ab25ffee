"""What the address of the GEMM lesson means: the shape, the rung that is watched, its tile sizes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import MOST_INT8_K, GemmShape
from kernels.ladders import LADDERS
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import Bound
from pages.parts import rung_address
from pages.parts.address import Choice, Number, Values, fewest_back
from pages.parts.rung_address import Asked as Asked
from pages.parts.rung_address import short as short

LADDER = LADDERS["gemm"]
DEFAULT = GEMM_PRESETS["square-64"].shape
DEFAULT_RUNG = "shared-tile"
SIZES, FACTORS = ("M", "N", "K"), ("alpha", "beta")
MOST = 65_536
MOST_ELEMENTS = 2**28  # of one matrix: 1 GiB in FP32
MOST_FACTOR = 1_000.0
MATRICES = (("A", "M", "K"), ("B", "K", "N"), ("C", "M", "N"))
FIELDS = {
    **{name: Number(getattr(DEFAULT, name), 1, MOST) for name in SIZES},
    **{name: Number(getattr(DEFAULT, name), -MOST_FACTOR, MOST_FACTOR, whole=False) for name in FACTORS},
    "dtype": Choice(DEFAULT.dtype, tuple(ELEMENT_BYTES)),
}


def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    for matrix, rows, cols in MATRICES:
        if values[rows] * values[cols] > MOST_ELEMENTS:
            back = fewest_back(values, DEFAULT.params(), SIZES, _fit)
            yield f"{matrix} may have {MOST_ELEMENTS:,} elements on this page, {rows}*{cols} is {values[rows] * values[cols]:,}", back  # fmt: skip
    if values["dtype"] == "int8":
        for name in FACTORS:
            if values[name] != int(values[name]):
                rule = f"{name} must be a whole number where dtype is int8, got {values[name]:g}"
                yield rule, {name: getattr(DEFAULT, name)}
        if values["K"] * abs(values["alpha"]) > MOST_INT8_K:
            rule = f"K*|alpha| <= {MOST_INT8_K} where dtype is int8 (sums stay in int32), got {values['K']}*{abs(values['alpha']):g}"
            yield rule, {"alpha": DEFAULT.alpha}


def _fit(values: Values) -> bool:
    """Whether no matrix is too large."""
    return all(values[rows] * values[cols] <= MOST_ELEMENTS for _, rows, cols in MATRICES)


ADDRESS = rung_address.Address(LADDER, FIELDS, DEFAULT_RUNG, _mend)
RUNGS = ADDRESS.rungs
read, write, able = ADDRESS.read, ADDRESS.write, ADDRESS.able
at_shape, at_rung, at_tiles = ADDRESS.at_shape, ADDRESS.at_rung, ADDRESS.at_tiles


def bounds(shape: GemmShape) -> dict[str, Bound]:
    """For each number the values that keep the page's rules with the others as they are."""
    M, N, K = shape.M, shape.N, shape.K
    found = {}
    for name, others in (("M", (N, K)), ("N", (M, K)), ("K", (M, N))):
        most = MOST_ELEMENTS // max(others)
        rule = f"no matrix of more than {MOST_ELEMENTS:,} elements"
        found[name] = Bound(1, min(most, MOST), why_high=rule if most < MOST else "")
    found |= {name: Bound(-int(MOST_FACTOR), int(MOST_FACTOR)) for name in FACTORS}
    if shape.dtype == "int8":
        rule = f"K*|alpha| <= {MOST_INT8_K} for int8"
        most = min(MOST_INT8_K // K, int(MOST_FACTOR))
        found["alpha"] = Bound(-most, most, rule, rule) if most < MOST_FACTOR else found["alpha"]
        most = MOST_INT8_K // max(1, int(abs(shape.alpha)))
        found["K"] = Bound(1, most, why_high=rule) if most < found["K"].high else found["K"]
    return found
