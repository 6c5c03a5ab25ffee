"""Tests of a convolution lesson's controls on a page of their own, without a browser."""

from functools import partial

import numpy as np
import pytest

from kernels.conv.presets import CONV_PADDING, CONV_PRESETS
from kernels.conv.shape import ConvShape
from pages.conv import address, controls
from tests.helpers.offenders import every
from tests.helpers.page_runner import open_page, open_part, texts
from visuals.conv import pictures
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import Part, gather_index


@pytest.fixture(autouse=True)
def no_links(monkeypatch):
    """Removes the preset links, which need the app's pages."""
    monkeypatch.setattr(controls, "presets", lambda *args: None)


def page():
    import streamlit as st

    from pages.conv import controls

    inputs, _ = controls.inputs("conv/im2col.py")
    st.session_state["got"] = inputs


open_at = partial(open_part, page)


def notes(at):
    return [html.value for html in at.get("html") if "kt-note" in html.value]


def test_default_is_the_toy_preset():
    at = open_at()
    inputs_read = at.session_state["got"]
    assert inputs_read.shape == CONV_PRESETS["toy"].shape and inputs_read.names() == ["sobel-x", "sobel-y"]
    assert not notes(at)


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_opens_from_its_link(key):
    at = open_at(**address.at_shape(address.DEFAULT, CONV_PRESETS[key].shape))
    assert at.session_state["got"].shape == CONV_PRESETS[key].shape
    assert not notes(at)


def test_invalid_parameters_are_named_and_escaped():
    at = open_at(N="abc", H="inf", R="99", picture="<script>alert(1)</script>", C="3")
    assert at.session_state["got"].shape == CONV_PRESETS["toy"].shape.with_(C=3)
    (text,) = notes(at)
    assert "N must be a whole number" in text and "&lt;script" in text and "<script" not in text


def test_field_bounds_allow_only_valid_shapes():
    at = open_at(H="9", W="7", R="5", S="3", dilation_h="2", pad_w="1", u="2")
    shape = at.session_state["got"].shape
    for field in at.number_input:
        if field.key == "seed":
            continue
        for value in (field.min, field.max):
            assert isinstance(shape.with_(**{field.key: int(value)}), ConvShape)
        beyond = int(field.max) + 1
        if beyond <= address.MAX[field.key]:
            with pytest.raises(ValueError, match="filter must fit"):
                shape.with_(**{field.key: beyond})


def test_fields_change_the_shape_and_the_other_bounds():
    at = open_at()
    at.number_input(key="R").set_value(8.0).run()
    assert at.session_state["got"].shape.R == 8
    assert at.number_input(key="H").min == 8
    at.number_input(key="pad_h").set_value(1.0).run()
    assert at.session_state["got"].shape == ConvShape(1, 1, 8, 8, 2, 8, 3, pad_h=1)
    assert at.number_input(key="H").min == 6
    assert not at.exception and not notes(at)


def test_two_conflicting_changes_at_once_are_corrected():
    at = open_at()
    at.number_input(key="R").set_value(8.0)
    at.number_input(key="H").set_value(4.0)
    at.run()
    assert not at.exception
    assert at.session_state["got"].shape == ConvShape(1, 1, 4, 8, 2, 3, 3)
    assert "filter must fit" in notes(at)[0]


# -- padding that differs at both ends -------------------------------------------------------------
def test_padding_after_the_input_is_read_from_the_link():
    at = open_at(H="1", W="64", R="1", S="5", pad_w="4", extra_w="-4")
    assert at.session_state["got"].shape == CONV_PADDING["signal-causal"].shape and not notes(at)
    assert at.number_input(key="extra_w").min == -4
    at.number_input(key="extra_w").set_value(2.0).run()
    assert at.session_state["got"].shape == ConvShape(1, 1, 1, 64, 2, 1, 5, pad=(0, 4), extra=(0, 2))


@every("key", CONV_PADDING)
def test_presets_of_padding_are_written_and_read(key):
    params = address.at_shape(address.DEFAULT, CONV_PADDING[key].shape)
    query, wrong = address.read(params)
    assert query.shape == CONV_PADDING[key].shape and not wrong
    assert ("extra_w" in params) == bool(query.shape.extra_w)


def test_a_link_with_equal_padding_has_no_new_parameter():
    params = address.at_shape(address.DEFAULT, CONV_PRESETS["resnet50-res3-3x3-n32"].shape)
    assert set(params) == {"N", "C", "H", "W", "K", "pad_h", "pad_w"}


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        (
            {"pad_w": "1", "extra_w": "-2"},
            "must not be negative, extra_w &gt;= -pad_w, but -2 &lt; -1: extra_w=0 is used",
        ),
        ({"extra_h": "9"}, "extra_h must be -8 to 8 on this page"),
        ({"extra_h": "1.5"}, "extra_h must be a whole number"),
        ({"R": "11", "pad_h": "2", "extra_h": "-2"}, "&lt;= H+2*pad_h+extra_h, but 11 &gt; 10: R=3 is used"),
    ],
)
def test_a_broken_rule_on_the_padding_is_named(params, rule):
    (text,) = notes(open_at(**params))
    assert rule in text


@pytest.mark.parametrize(("extra", "label"), [((0, 0), []), ((0, -4), ["after +0/−4"]), ((1, 2), ["after +1/+2"])])
def test_the_popover_names_the_padding_after(extra, label):
    assert controls.padding_after(ConvShape(1, 1, 8, 8, 1, 3, 3, pad=4, extra=extra)) == label


@every("key", CONV_PADDING)
def test_a_causal_convolution_is_called_so(key):
    assert bool(controls.causal(CONV_PADDING[key].shape)) == ("causal" in key and "rows" not in key)
    assert not controls.causal(CONV_PADDING[key].shape.with_(pad_w=8, extra_w=0))


def test_custom_taps():
    at = open_at(filter="custom", taps="1 2 3\n4 5 6\n7 8 9")
    assert at.session_state["got"].w()[0, 0].ravel().tolist() == list(range(1, 10))
    at.text_area(key="taps").set_value("1 2").run()
    assert "R × S = 3 × 3 = 9 numbers, got 2" in notes(at)[0]
    assert (at.session_state["got"].w()[0, 0] == pictures.taps("sharpen", 3, 3)).all()


def test_uploaded_picture_is_not_part_of_a_link():
    at = open_at(picture="upload")
    assert "A link does not contain your own picture. The digit is shown instead." in notes(at)[0]
    assert at.session_state["got"].picture == "digit"


@every(
    "shape",
    [
        ConvShape(1, 1, 8, 8, 2, 3, 3),
        ConvShape(2, 5, 9, 7, 3, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(2, 1)),
        ConvShape(1, 3, 3, 3, 2, 2, 2, mode="convolution"),
    ],
)
@every("filter_", ["sobel-x", "blur", "random"])
def test_outputs_are_the_convolution(shape, filter_):
    inputs = Inputs(shape, "digit", filter_)
    x, w = inputs.x(1).astype(float), inputs.w().astype(float)
    if shape.flip:
        w = w[:, :, ::-1, ::-1]
    y = np.zeros((1, shape.K, shape.P, shape.Q))
    for p in range(shape.P):
        for q in range(shape.Q):
            for r in range(shape.R):
                for s in range(shape.S):
                    h = p * shape.u - shape.pad_h + r * shape.dilation_h
                    c = q * shape.v - shape.pad_w + s * shape.dilation_w
                    if 0 <= h < shape.H and 0 <= c < shape.W:
                        y[0, :, p, q] += w[:, :, r, s] @ x[0, :, h, c]
    assert outputs(inputs, shape.K, shape.P, shape.Q) == pytest.approx(y[0], rel=1e-6, abs=1e-5)
    assert outputs(inputs, 1, 2, 1, shape.P - 2, shape.Q - 1) == pytest.approx(y[0, :1, -2:, -1:], rel=1e-6, abs=1e-5)


HALF = ConvShape(2, 5, 9, 7, 3, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(2, 1))


def test_derived_sizes_are_those_of_each_algorithm():
    toy = CONV_PRESETS["toy"].shape
    assert controls.data_matrix(toy) == "data matrix <b>9×36</b> · copies per pixel up to <b>9</b>"
    assert controls.virtual_matrix(toy) == "data matrix <b>9×36</b>, not stored · <b>648</b> multiply-adds"
    assert controls.direct_work(toy) == "<b>648</b> multiply-adds · loads per pixel up to <b>18</b>"


@pytest.mark.parametrize("shape", [CONV_PRESETS["toy"].shape, HALF])
def test_work_of_direct_convolution_equals_the_count_of_its_threads(shape):
    index = gather_index(shape, Part(shape.C, shape.K, shape.P, shape.Q, shape.H, shape.W))
    loads = np.bincount(index[index >= 0]).max() * shape.K
    work = controls.direct_work(shape)
    assert f"<b>{index.size * shape.K * shape.N:,}</b> multiply-adds" in work and f"up to <b>{loads}</b>" in work


@pytest.mark.parametrize(("lesson", "says"), [("direct", "loads per pixel"), ("im2col", "copies per pixel")])
def test_lesson_shows_its_own_derived_sizes(lesson, says):
    html = texts(open_page(f"conv/{lesson}.py"))
    assert says in html and ("data matrix <b>" in html) == (lesson == "im2col")
