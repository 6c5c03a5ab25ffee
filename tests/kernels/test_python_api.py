"""The Python API as a user of NumPy or PyTorch first calls it: names, shapes, arrays and masks."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernels
from kernels import AttentionShape, ConvShape, MaxPoolShape, RuleError, ShapeError, run, shape
from kernels.ladders import LADDERS, find, ladder_of
from kernels.model import values
from kernels.model.names import closest_first, unknown
from kernels.model.program import INPUT, Buffer
from tests.helpers.fake_torch import FakeTensor
from tests.helpers.offenders import every


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


@every("ladder", LADDERS.values(), ids=lambda ladder: ladder.name)
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


@every("ladder", LADDERS.values(), ids=lambda ladder: ladder.name)
def test_every_ladder_makes_its_presets_from_their_fields(ladder):
    for preset in ladder.presets.values():
        assert shape(ladder.name, **preset.shape.params()) == preset.shape


@every(
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


# -- arrays ----------------------------------------------------------------------------------------
LARGEST = {"float16": 65504, "bfloat16": 3.38953139e38, "float32": 3.40282347e38, "float8_e4m3fn": 448}


@pytest.mark.parametrize("dtype", LARGEST)
def test_a_number_beyond_a_type_is_named_with_its_place_and_the_types_largest(dtype):
    b = Buffer("A", INPUT, (2, 3), dtype)
    array = np.zeros((2, 3))
    array[1, 2] = LARGEST[dtype]
    assert float(values.checked(b, array)[1, 2]) == pytest.approx(LARGEST[dtype], rel=1e-8)
    array[1, 1] = 1.1 * LARGEST[dtype]
    message = f"A[1, 1] is {array[1, 1]:.9g}, beyond {dtype}'s largest number, {LARGEST[dtype]:.9g}"
    with pytest.raises(RuleError, match=re.escape(message)):
        values.checked(b, array)


def test_70000_is_beyond_float16():
    A = np.ones((64, 64))
    A[3, 5] = 70000.0
    with pytest.raises(RuleError, match=r"input A .*A\[3, 5\] is 70000, beyond float16's largest number, 65504$"):
        run("gemm/wmma", "square-64-fp16", {"A": A}, engine="emulator")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_named_with_their_place(value):
    with pytest.raises(RuleError, match=rf"A must be finite in float16; A\[0, 1\] is {value:g}$"):
        values.checked(Buffer("A", INPUT, (2, 2), "float16"), [[0, value], [1e9, 0]])


@pytest.mark.parametrize(
    ("buffer", "value", "text"),
    [
        (Buffer("A", INPUT, (3,), "int8"), [0, 128, 400], r"-128 \.\. 127 \(int8\); A\[1\] is 128"),
        (Buffer("A", INPUT, (3,), "int32", below=5), [0, 1.5, 7], r"0 \.\. 4 \(int32\); A\[1\] is 1\.5"),
        (Buffer("A", INPUT, (3,), positive=True), [0, 1, -2], r"below 0; A\[2\] is -2"),
        (Buffer("A", INPUT, ()), np.inf, r"A\[\] is inf"),
    ],
)
def test_an_element_that_breaks_a_rule_is_named(buffer, value, text):
    with pytest.raises(RuleError, match=text):
        values.checked(buffer, value)


# -- tensors ---------------------------------------------------------------------------------------
@every("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@every("device", ["cpu", "cuda:0"])
def test_a_tensor_of_pytorch_is_an_array(dtype, device):
    array = np.random.default_rng(0).standard_normal((4, 5)).astype(dtype)
    b = Buffer("A", INPUT, array.shape, dtype)
    read = values.checked(b, FakeTensor(array, requires_grad=True, device=device))
    assert read.dtype == dtype and (read.view(np.uint8) == array.view(np.uint8)).all()


def test_a_tensor_that_cannot_be_read_is_named():
    class Meta(FakeTensor):
        def cpu(self):
            raise RuntimeError("Cannot copy out of meta tensor; no data!")

    with pytest.raises(RuleError, match="input A must be an array of numbers: Cannot copy out of meta tensor"):
        values.checked(Buffer("A", INPUT, (1,)), Meta(np.zeros(1)))


def test_a_kernel_computes_with_bfloat16_tensors():
    s = shape("gemm", "square-64-bf16")
    A = np.random.default_rng(0).standard_normal((64, 64)).astype("bfloat16")
    tensor, array = (run("gemm/wmma", s, {"A": a}, engine="emulator").output for a in (FakeTensor(A), A))
    np.testing.assert_array_equal(tensor, array)


# -- masks of attention ----------------------------------------------------------------------------
MASKED = AttentionShape(1, 2, 4, 8, M=6, mask="bool")
VISIBLE = np.tril(np.ones((4, 6), bool), 2)


def masked(mask: object, s: AttentionShape = MASKED) -> np.ndarray:
    return run("attention/flash-variants", s, {"mask": mask}, engine="cpu", measure=False).output


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_an_additive_mask_of_0_and_minus_infinity_is_the_boolean_one(dtype):
    additive = np.where(VISIBLE, 0, -np.inf).astype(dtype)
    np.testing.assert_array_equal(masked(additive), masked(VISIBLE))
    np.testing.assert_array_equal(masked(FakeTensor(additive)), masked(VISIBLE.astype(int)))
    assert (masked(np.full((4, 6), -np.inf)) == 0).all()


@pytest.mark.parametrize("given", [(1, 1, 4, 6), (1, 4, 6), (4, 6)])
def test_a_mask_broadcasts_as_in_pytorch(given):
    np.testing.assert_array_equal(masked(VISIBLE.reshape(given)), masked(VISIBLE))
    np.testing.assert_array_equal(masked(np.broadcast_to(VISIBLE, (1, 2, 4, 6))), masked(VISIBLE))
    row = VISIBLE[:1]
    np.testing.assert_array_equal(masked(row.reshape(1, 1, 1, 6)), masked(np.repeat(row, 4, 0)))
    bias = MASKED.with_(mask="bias")
    np.testing.assert_array_equal(masked(np.ones((1, 1, 4, 6)), bias), masked(np.ones((4, 6)), bias))


@pytest.mark.parametrize("given", [(2, 1, 4, 6), (1, 2, 4, 6), (6, 4), (1, 1, 1, 4, 7)])
def test_a_mask_that_differs_between_heads_is_refused_with_the_shapes_that_are_taken(given):
    with pytest.raises(RuleError, match=r"input mask must have shape \(4, 6\).*\(1, 1, 4, 6\) or \(1, 6\)") as error:
        masked(np.ones(given, bool))
    assert str(error.value).endswith(f"Got {given}")


@pytest.mark.parametrize(
    ("kind", "values_of_mask"),
    [
        ("bool", (0, -1e9)),
        ("bool", (0.5, -np.inf)),
        ("bool", (1, -np.inf)),
        ("bias", (0, -np.inf)),
        ("bool", (0, np.nan)),
    ],
)
def test_other_additive_masks_are_refused_with_the_masks_that_are_taken(kind, values_of_mask):
    with pytest.raises(RuleError, match=r'mask\[0, [03]\] is .*mask="bool" takes .*mask="bias" takes'):
        masked(np.where(VISIBLE, *values_of_mask), MASKED.with_(mask=kind))


def test_a_mask_for_a_shape_without_one_names_the_field():
    with pytest.raises(RuleError, match=r"no input 'attn_mask'; there are: Q, K, V\. .*mask=\"bool\""):
        run("attention/flash", "attention-toy", {"attn_mask": VISIBLE}, engine="emulator")
    with pytest.raises(RuleError, match=r"no input 'mask'; there are: x, w$"):
        run("conv/direct", "toy", {"mask": VISIBLE}, engine="emulator")


# -- spellings of NumPy and PyTorch ------------------------------------------------------------------
@every(
    ("spelling", "dtype"),
    [
        *((name, "fp16") for name in ("fp16", "FP16", "half", "float16", "torch.float16", np.float16, np.dtype("f2"))),
        *((name, "bf16") for name in ("bf16", "bfloat16", np.dtype("bfloat16"), np.dtype("bfloat16").type)),
        *((name, "fp32") for name in ("fp32", "float32", np.float32, np.single)),
        *((name, "int8") for name in ("int8", np.int8, np.dtype("i1"))),
    ],
)
def test_a_type_has_its_names_of_numpy_and_pytorch(spelling, dtype):
    assert shape("gemm", M=8, N=8, K=8, dtype=spelling) == shape("gemm", M=8, N=8, K=8, dtype=dtype)


@every("spelling", ["float", float, "double", np.float64, "i8", "float8_e5m2", np.zeros(2), {}])
def test_a_type_that_no_kernel_has_is_refused_with_those_there_are(spelling):
    with pytest.raises(ShapeError, match="dtype must be one of fp32, fp16, bf16, int8, got "):
        shape("gemm", M=8, N=8, K=8, dtype=spelling)
    assert shape("gemm-8bit", M=8, N=8, K=8, dtype="float8_e4m3fn").dtype == "fp8"


CONV = {"N": 1, "C": 1, "H": 9, "W": 8, "K": 2}


@pytest.mark.parametrize(("R", "S", "dilation"), [(3, 3, 1), (2, 4, 1), (3, 2, (2, 3)), (1, 1, 1)])
def test_padding_same_keeps_the_size_and_pads_the_end_more(R, S, dilation):
    s = ConvShape(**CONV, R=R, S=S, dilation=dilation, padding="same")
    assert (s.P, s.Q) == (s.H, s.W)
    for (before, after), span in zip(s.pad_widths, (s.span_h, s.span_w), strict=True):
        assert (before, before + after) == ((span - 1) // 2, span - 1)
    assert s == ConvShape(**CONV, R=R, S=S, dilation=dilation, pad="same") == ConvShape(**s.params())
    assert s.with_(padding="valid", extra=0) == ConvShape(**CONV, R=R, S=S, dilation=dilation)


def test_padding_is_pad():
    pool = {"N": 1, "C": 1, "H": 8, "W": 8, "R": 3, "S": 3}
    transposed = {"N": 1, "C": 1, "H": 4, "W": 4, "K": 1, "R": 3, "S": 3}
    ladder_fields = (
        ("conv", CONV | {"R": 3, "S": 3}),
        ("max-pool", pool),
        ("avg-pool", pool),
        ("conv-transpose", transposed),
    )
    for ladder, fields in ladder_fields:
        for value in (1, (1, 0)):
            s = shape(ladder, **fields, padding=value)
            assert s == shape(ladder, **fields, pad=value) == shape(ladder, **fields).with_(padding=value)
        assert LADDERS[ladder].parse(",".join(f"{k}={v}" for k, v in fields.items()) + ",padding=1").pad_h == 1
        with pytest.raises(ShapeError, match="padding sets pad"):
            shape(ladder, **fields, padding=1, pad=1)


@every(
    ("fields", "message"),
    [
        (
            {"padding": "same", "stride": 2},
            '"same" needs stride 1, as in PyTorch, got stride \\(2, 2\\): give pad and extra',
        ),
        ({"padding": "full"}, "padding must be one of same, valid, got 'full'"),
        ({"padding": "same", "extra": 1}, "padding sets pad and extra"),
        ({"padding": 1, "pad_h": 1}, "padding sets pad and extra"),
        ({"stride": "2"}, r"stride takes one number or two \(vertical, horizontal\), got '2'"),
        ({"padding": (1, 1, 1)}, "pad takes one number or two"),
    ],
)
def test_padding_that_is_not_exact_is_refused(fields, message):
    with pytest.raises(ShapeError, match=message):
        shape("conv", **CONV, R=3, S=3, **fields)


@pytest.mark.parametrize("name", ["stride", "pad", "dilation", "extra"])
def test_with_sets_both_axes(name):
    """with_ passed the fields u and v on, which hide stride."""
    s = ConvShape(**CONV, R=3, S=3)
    assert s.with_(**{name: 2}) == ConvShape(**CONV, R=3, S=3, **{name: 2}) != s


def test_a_type_object_of_pytorch_is_read_by_its_text():
    half = type("dtype", (), {"__str__": lambda self: "torch.float16"})()
    assert shape("attention", B=1, H=1, N=8, d=8, dtype=half).dtype == "fp16"


# -- sizes in multiples ------------------------------------------------------------------------------
MULTIPLES = [  # a rung, its preset, a field, the divisor
    ("gemm/wgmma", "square-4096-fp16", "N", 8),
    ("gemm/wgmma-ring", "square-4096-fp16", "K", 8),
    ("gemm/tf32x3", "square-4096", "K", 4),
    ("gemm-8bit/wgmma-int8", "8bit-4096-int8", "K", 16),
    ("gemm-8bit/wgmma-int8", "8bit-4096-int8", "N", 4),
    ("gemm-8bit/torch-int8", "8bit-4096-int8", "N", 8),
    ("attention/wgmma", "attention-toy-fp16", "d", 8),
    ("attention/flash-decode-ring", "attention-toy-fp16", "d", 8),
    ("attention-backward/flash-wgmma", "backward-toy-fp16", "d", 8),
    ("conv-fp16/mma", "fp16-toy", "C", 8),
    ("conv-fp16/mma", "fp16-toy", "K", 8),
]


@every("size", [2, 35])
@every(("rung", "preset", "field", "divisor"), MULTIPLES)
def test_a_size_that_is_no_multiple_names_the_nearest_that_are(rung, preset, field, divisor, size):
    variants = {"M": 40} if rung == "attention/flash-decode-ring" else {}
    plain = shape(rung, preset).with_(**variants)
    with pytest.raises(RuleError) as error:
        find(rung).check(plain.with_(**{field: size}), None)
    below = size // divisor * divisor
    sizes = f"{below}, {below + divisor}" if below else str(divisor)
    rule = f"{field} % {divisor} == 0, got {size} % {divisor} (nearest valid sizes: {sizes})"
    assert str(error.value).startswith(f"{rung} cannot run ") and str(error.value).endswith(rule)
    for valid in map(int, sizes.split(", ")):
        find(rung).check(plain.with_(**{field: valid}), None)


def test_docstrings_name_the_multiples():
    for rung, _, field, divisor in MULTIPLES:
        text = " ".join(str(ladder_of(rung).shape.__doc__).split())
        assert re.search(rf"\b{field}\b[^.]*in multiples of [^.]*\b{divisor}\b", text), (rung, field, divisor)
