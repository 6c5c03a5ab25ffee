"""The URL of the GEMM lesson: shape, rung on the stage, tile sizes. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import MAX_INT8_K, GemmShape
from kernels.i18n import decimal, tr
from kernels.ladders import LADDERS
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import Bound
from pages.parts import rung_address
from pages.parts.address import Choice, Number, Values, fewest_resets
from pages.parts.rung_address import short as short

LADDER = LADDERS["gemm"]
DEFAULT = GEMM_PRESETS["square-64"].shape
DEFAULT_RUNG = "shared-tile"
SIZES, FACTORS = ("M", "N", "K"), ("alpha", "beta")
MAX = 65_536
MAX_ELEMENTS = 2**28  # of one matrix: 1 GiB in FP32
MAX_FACTOR = 1_000.0
MATRICES = (("A", "M", "K"), ("B", "K", "N"), ("C", "M", "N"))
FIELDS = {
    **{name: Number(getattr(DEFAULT, name), 1, MAX) for name in SIZES},
    **{name: Number(getattr(DEFAULT, name), -MAX_FACTOR, MAX_FACTOR, whole=False) for name in FACTORS},
    "dtype": Choice(DEFAULT.dtype, tuple(ELEMENT_BYTES)),
}


def _fix(values: Values) -> Iterator[tuple[str, Values]]:
    for matrix, rows, cols in MATRICES:
        if values[rows] * values[cols] > MAX_ELEMENTS:
            back = fewest_resets(values, DEFAULT.params(), SIZES, _fits)
            rule = tr(
                "{matrix} may have at most {limit} elements on this page, {rows}*{cols} is {count}",
                matrix=matrix,
                limit=_count(MAX_ELEMENTS),
                rows=rows,
                cols=cols,
                count=_count(values[rows] * values[cols]),
            )
            yield rule, back
    if values["dtype"] == "int8":
        for name in FACTORS:
            if values[name] != int(values[name]):
                rule = tr(
                    "{name} must be a whole number if dtype is int8, got {value}", name=name, value=f"{values[name]:g}"
                )
                yield rule, {name: getattr(DEFAULT, name)}
        if values["K"] * abs(values["alpha"]) > MAX_INT8_K:
            rule = tr(
                "K*|alpha| must be at most {limit} if dtype is int8, so that sums fit in int32; got {K}*{alpha}",
                limit=MAX_INT8_K,
                K=values["K"],
                alpha=f"{abs(values['alpha']):g}",
            )
            yield rule, {"alpha": DEFAULT.alpha}


def _count(number: int) -> str:
    return decimal(f"{number:,}")


def _fits(values: Values) -> bool:
    """Returns whether all matrices are within the limit."""
    return all(values[rows] * values[cols] <= MAX_ELEMENTS for _, rows, cols in MATRICES)


ADDRESS = rung_address.Address(LADDER, FIELDS, DEFAULT_RUNG, _fix)
RUNGS = ADDRESS.rungs
read, write, supported = ADDRESS.read, ADDRESS.write, ADDRESS.supported_rungs
at_shape, at_rung, at_tiles = ADDRESS.at_shape, ADDRESS.at_rung, ADDRESS.at_tiles


def bounds(shape: GemmShape) -> dict[str, Bound]:
    """Returns, for each number, the values that keep the page's rules while the others stay the same."""
    M, N, K = shape.M, shape.N, shape.K
    found = {}
    for name, others in (("M", (N, K)), ("N", (M, K)), ("K", (M, N))):
        maximum = MAX_ELEMENTS // max(others)
        rule = tr("no matrix may have more than {limit} elements", limit=_count(MAX_ELEMENTS))
        found[name] = Bound(1, min(maximum, MAX), why_high=rule if maximum < MAX else "")
    found |= {name: Bound(-int(MAX_FACTOR), int(MAX_FACTOR)) for name in FACTORS}
    if shape.dtype == "int8":
        rule = tr("K*|alpha| must be at most {limit} for int8", limit=MAX_INT8_K)
        maximum = min(MAX_INT8_K // K, int(MAX_FACTOR))
        found["alpha"] = Bound(-maximum, maximum, rule, rule) if maximum < MAX_FACTOR else found["alpha"]
        maximum = MAX_INT8_K // max(1, int(abs(shape.alpha)))
        found["K"] = Bound(1, maximum, why_high=rule) if maximum < found["K"].high else found["K"]
    return found
