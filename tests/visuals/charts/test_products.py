"""What kernels on tensor cores are compared with: the fastest recorded product of their GPU and format."""

from dataclasses import replace

import pytest

from kernels import records
from kernels.ladders import find, ladder_of
from kernels.records import files
from visuals import units
from visuals.charts import products, roofline


def row_of(rung: str, **shape):
    found = find(rung)
    return records.recorded(rung, ladder_of(rung).shape(**shape), found.default_tiles, "cold")


SQUARE = {"M": 4096, "N": 4096, "K": 4096}


@pytest.mark.parametrize(
    ("rung", "shape", "expected"),
    [
        ("gemm/naive", SQUARE, ""),
        ("gemm/wgmma", SQUARE | {"dtype": "fp16"}, "FP16"),
        ("gemm/wgmma", SQUARE | {"dtype": "bf16"}, "BF16"),
        ("gemm/cublas-tf32", SQUARE, ""),  # rounds to TF32
        ("gemm/dp4a", SQUARE | {"dtype": "int8"}, ""),  # on other units
        ("gemm-8bit/wgmma-fp8", SQUARE | {"dtype": "fp8"}, "FP8"),
    ],
)
def test_the_format_is_that_of_the_factors_on_tensor_cores(rung, shape, expected):
    assert products.format_of(row_of(rung, **shape)) == expected


def test_a_convolution_in_fp16_has_its_format_by_its_ladder():
    row = next(row for _, row in files.read() if row["rung"] == "conv-fp16/halo")
    assert products.format_of(row) == "FP16"


def test_no_recorded_product_of_the_same_device_and_format_is_faster():
    row = row_of("gemm/mma-sync", **SQUARE, dtype="fp16")
    product = products.beside(row)
    assert product.format == "FP16" and product.row["device"] == row["device"]
    rates = [
        products.rate(other)
        for _, other in files.read()
        if other["rung"].startswith("gemm/")
        and other["shape"].get("dtype") == "fp16"
        and other["device"] == row["device"]
        and other["mode"] == "cold"
    ]
    assert product.flops_per_s == max(rates)


def test_a_device_without_recordings_has_none():
    assert products.beside(row_of("gemm/wgmma", **SQUARE, dtype="fp16") | {"device": "another"}) is None


def test_the_roofline_names_the_product():
    row = row_of("gemm/mma-sync", **SQUARE, dtype="fp16")
    product = products.beside(row)
    roof = replace(next(iter(roofline.recorded_roofs().values())), device=row["device"])
    (sentence,) = roofline.verdict([roofline.Dot(1, "Rung 1", row, "recorded")], [roof])
    share = units.share(products.rate(row) / product.flops_per_s)
    assert f": {share} of the fastest FP16 product recorded there, {product.text}. The peak of" in sentence
