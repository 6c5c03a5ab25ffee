"""What the rate of tensor cores is compared with: the fastest matrix product recorded on the same GPU, in the same format.

The ceilings of a row have no peak of tensor cores. A product from memory is below that peak, and it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from kernels.ladders import find, ladder_of
from kernels.model.row import Row
from kernels.model.rung import FP32, TENSOR_CORES
from kernels.records import files
from visuals import units

LADDERS = ("gemm/", "gemm-8bit/")
FORMATS = {"fp16": "FP16", "bf16": "BF16", "fp8": "FP8", "int8": "INT8"}  # of the factors; sums have 32 bits

SIXTEEN_BITS = ("fp16", "bf16")  # here only tensor cores multiply them


class Product(NamedTuple):
    """The fastest cold recording of a matrix product in one format."""

    format: str  # as readers see it
    row: Row

    @property
    def flops_per_s(self) -> float:
        return rate(self.row)

    @property
    def text(self) -> str:
        """Returns the rate: "729 TFLOP/s"."""
        return units.rate(self.flops_per_s, 1e3)


def rate(row: Row) -> float:
    """Returns the operations of a row per second."""
    return row["flops"] / row["median_ms"] * 1e3


def row_units(row: Row) -> str:
    """Returns the units of a row's rung if they are not the FP32 units of the roof, else "". The cpu engine has no
    others."""
    return other_units(row["rung"], row["shape"]) if row["engine"] == "cuda" else ""


def other_units(rung: str, params: Row) -> str:
    """Returns the same for a rung on a GPU, at a shape with these parameters."""
    used = TENSOR_CORES if params.get("dtype") in SIXTEEN_BITS else find(rung).units
    return "" if used == FP32 else used


def format_of(row: Row) -> str:
    """Returns the format in which a row's kernel multiplies on tensor cores; "" if it does not, or in another format."""
    if row_units(row) != TENSOR_CORES:
        return ""
    dtype = row["shape"].get("dtype") or getattr(ladder_of(row["rung"]).shape(**row["shape"]), "dtype", "")
    return FORMATS.get(dtype, "")


def beside(row: Row) -> Product | None:
    """Returns the fastest recorded product of the device and the format of a row; None if there is none."""
    fastest = fastest_products().get((row["device"], format_of(row)))
    return Product(format_of(row), fastest) if fastest else None


@cache
def fastest_products() -> Mapping[tuple[str, str], Row]:
    """Returns by (device, format) the row of the fastest product."""
    found: dict[tuple[str, str], Row] = {}
    for _, row in files.read():
        if row["rung"].startswith(LADDERS) and row["mode"] == "cold" and (name := format_of(row)):
            key = row["device"], name
            if key not in found or rate(row) > rate(found[key]):
                found[key] = row
    return found
