"""The Python API as a user of NumPy or PyTorch first calls it: names, shapes, arrays and masks."""

from __future__ import annotations

import re

import pytest

import kernels
from kernels import ConvShape, MaxPoolShape, RuleError, ShapeError, run, shape
from kernels.ladders import LADDERS, find, ladder_of
from kernels.model.names import closest_first, unknown


def listed(error: pytest.ExceptionInfo) -> list[str]:
    """Returns the names that an error lists."""
    return re.split(r"; there are: |\. | and \d+ more", str(error.value))[1].split(", ")


# -- names -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rung", "name", "first"),
    [
        ("gemm/naive", "sqare-64", "square-64"),
        ("gemm/naive", "4096", "square-4096"),
        ("conv/direct", "resnet-50-conv9", "resnet50-conv1-n1"),
        ("conv/direct", "Toyy", "toy"),
    ],
)
def test_an_unknown_preset_lists_the_presets_the_closest_first(rung, name, first):
    ladder = ladder_of(rung)
    for call in (lambda: run(rung, name), lambda: shape(rung, name)):
        with pytest.raises(ShapeError, match=f"no preset '{name}' of {ladder.name}") as error:
            call()
        names = listed(error)
        assert names[0] == first and set(names) == set(ladder.presets)


def test_an_unknown_rung_lists_the_rungs_of_its_ladder_the_closest_first():
    with pytest.raises(RuleError, match="no rung 'gemm/niave'") as error:
        run("gemm/niave", "square-8")
    assert listed(error)[0] == "gemm/naive" and set(listed(error)) == {r.name for r in LADDERS["gemm"].rungs}
    with pytest.raises(RuleError, match="no rung 'attention/flash2'") as error:
        find("attention/flash2")
    assert listed(error)[0] == "attention/flash"
    with pytest.raises(RuleError, match="no ladder 'maxpool'") as error:
        find("maxpool/direct")
    assert listed(error)[0] == "max-pool"


def test_other_unknown_names_list_the_closest_first():
    with pytest.raises(RuleError, match="no input 'bb'") as error:
        run("bias/scalar", "bias-toy", {"bb": 1}, engine="cpu")
    assert listed(error)[0] == "b"
    with pytest.raises(RuleError, match="no tile size 'BLOK' of gemm/naive") as error:
        run("gemm/naive", "square-8", engine="cpu", tiles={"BLOK": 8})
    assert listed(error)[0] == "BLOCK"


def test_names_with_the_same_end_are_all_listed():
    assert closest_first("a/fsat", ["b/slow", "a/fast", "b/fast"]) == ["a/fast", "b/fast", "b/slow"]
    assert closest_first("9" * 10_000, []) == []
    many = [f"name-{n}" for n in range(100)]
    assert unknown("preset", "name-77", many).startswith("no preset 'name-77'; there are: name-77, ")
    assert unknown("preset", "x", many).endswith(" and 70 more")


@pytest.mark.parametrize("ladder", LADDERS.values(), ids=lambda ladder: ladder.name)
def test_the_shape_class_of_every_ladder_is_exported_under_its_name(ladder):
    assert getattr(kernels, ladder.shape.__name__) is ladder.shape
    assert ladder.shape.__name__ in kernels.__all__


def test_everything_listed_is_exported():
    assert {"Budget", "VerificationError", "shape"} <= set(kernels.__all__) <= set(dir(kernels))


# -- shapes ----------------------------------------------------------------------------------------
def test_a_shape_is_made_from_a_preset_or_from_fields():
    assert shape("max-pool", "maxpool-toy") is LADDERS["max-pool"].presets["maxpool-toy"].shape
    assert shape("max-pool", N=1, C=3, H=8, W=8, R=2, S=2, pad=(1, 0)) == MaxPoolShape(1, 3, 8, 8, 2, 2, pad=(1, 0))
    assert shape("conv/direct", N=1, C=1, H=8, W=8, K=2, R=3, S=3) == ConvShape(1, 1, 8, 8, 2, 3, 3)
    assert run("gemm/naive", "square-8", engine="cpu", measure=False).shape == shape("gemm", "square-8")


@pytest.mark.parametrize("ladder", LADDERS.values(), ids=lambda ladder: ladder.name)
def test_every_ladder_makes_its_presets_from_their_fields(ladder):
    for preset in ladder.presets.values():
        assert shape(ladder.name, **preset.shape.params()) == preset.shape


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"N": 1, "stridee": 2}, "no field 'stridee' of max-pool; there are: stride, "),
        ({"N": 1, "kernel_size": 2}, "kernel_size is R and S here"),
        ({"N": 1, "ceil_mode": 1}, "ceil_mode is ceil here"),
        ({"N": 1, "in_features": 2}, r"no field 'in_features' of max-pool; [^.]*$"),
        ({"N": 1, "C": 2}, "missing H, W, R, S"),
        ({"N": 0, "C": 3, "H": 8, "W": 8, "R": 2, "S": 2}, r"N must be in 1 \.\. "),
    ],
)
def test_a_field_that_is_wrong_is_named(fields, message):
    with pytest.raises(ShapeError, match=message):
        shape("max-pool", **fields)


def test_a_shape_has_a_preset_or_fields():
    with pytest.raises(ShapeError, match=r"with_"):
        shape("gemm", "square-8", K=3)
    with pytest.raises(RuleError, match="no ladder 'maxpool'"):
        shape("maxpool", "maxpool-toy")
