"""Shapes of pooling: PyTorch's output size, rules by name, text and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.model.shape import INT_MAX, ShapeError
from kernels.pooling.presets import AVG_PRESETS, GLOBAL_PRESETS, MAX_PRESETS
from kernels.pooling.shape import (
    AvgPoolShape,
    GlobalShape,
    MaxPoolShape,
    output_size,
    parse_avg,
    parse_global,
    parse_max,
)
from tests.helpers.offenders import every
from tests.helpers.pooling import avg_shapes, max_shapes

PLAIN = {"N": 1, "C": 3, "H": 8, "W": 8, "R": 3, "S": 3}


def test_the_stride_is_the_window_by_default():
    s = MaxPoolShape(**PLAIN)
    assert (s.u, s.v, s.P, s.Q) == (3, 3, 2, 2)
    assert MaxPoolShape(**PLAIN, stride=2, pad=1) == MaxPoolShape(**PLAIN, u=2, v=2, pad_h=1, pad_w=1)
    assert str(MaxPoolShape(**PLAIN, stride=(2, 1), pad=1, ceil=1)) == "N1 C3 8x8 window 3x3 stride 2,1 pad 1 ceil"


@every(
    ("extent", "window", "stride", "pad", "dilation", "ceil", "expected"),
    [
        (112, 3, 2, 1, 1, 0, 56),  # the stem of ResNet-50
        (5, 2, 2, 0, 1, 0, 2),
        (5, 2, 2, 0, 1, 1, 3),
        (4, 2, 2, 1, 1, 1, 3),
        (3, 2, 2, 1, 1, 1, 2),  # a third window would start beyond the input: it is left out
        (2, 3, 2, 0, 1, 1, 1),  # the only window extends beyond the input
        (7, 3, 2, 1, 2, 0, 3),
        (2, 3, 1, 0, 1, 0, 0),
    ],
)
def test_output_size(extent, window, stride, pad, dilation, ceil, expected):
    assert output_size(extent, window, stride, pad, dilation, ceil) == expected


@given(max_shapes())
def test_output_size_is_the_number_of_windows_that_the_rule_allows(s):
    """Counted one by one: without ceil mode a window ends inside the padding. With it, a window starts inside the input or
    the padding before it, and no more than one stride after the last that ends inside."""

    def count(extent, window, stride, pad, dilation):
        n = 0
        while True:
            start = n * stride - pad
            end = start + dilation * (window - 1) + 1
            fits = end <= extent + pad or (s.ceil and start < extent and end < extent + pad + stride)
            if not fits:
                return n
            n += 1

    assert count(s.H, s.R, s.u, s.pad_h, s.dilation_h) == s.P
    assert count(s.W, s.S, s.v, s.pad_w, s.dilation_w) == s.Q


@given(max_shapes())
def test_every_window_holds_a_pixel(s):
    for windows, window, stride, pad, dilation, extent in (
        (s.P, s.R, s.u, s.pad_h, s.dilation_h, s.H),
        (s.Q, s.S, s.v, s.pad_w, s.dilation_w, s.W),
    ):
        for i in range(windows):
            assert any(0 <= i * stride - pad + t * dilation < extent for t in range(window))


@every(
    ("change", "rule"),
    [
        ({"pad": 2}, r"pad_h <= R // 2, got 2 > 1"),
        ({"pad_w": 2}, r"pad_w <= S // 2, got 2 > 1"),
        ({"R": 9}, r"the window must fit the padded input: dilation_h\*\(R - 1\) \+ 1 <= H \+ 2\*pad_h, but 9 > 8"),
        ({"S": 9, "ceil": 1, "stride": 1}, r"\+ v - 1, but 9 > 8"),
        ({"dilation": 4}, r"but 9 > 8"),
        ({"H": 1, "R": 2, "pad": 1, "dilation": 2}, r"with padding, dilation_h <= H, got 2 > 1"),
        ({"C": 0}, r"C must be in 1 \.\. 2147483647, got 0"),
        ({"pad": -1}, "pad_h must be in 0"),
        ({"stride": 0}, "u must be in 1"),
        ({"ceil": 2}, "ceil must be 0 or 1, got 2"),
        ({"W": 2.5}, "W must be a whole number, got 2.5"),
        ({"W": INT_MAX}, r"W \+ 2\*pad_w \+ dilation_w\*\(S - 1\) \+ v must stay below 2\^31"),
        ({"stride": (1, 2, 3)}, "stride takes one number or two"),
    ],
)
def test_broken_rule_is_named(change, rule):
    with pytest.raises(ShapeError, match=rule):
        MaxPoolShape(**(PLAIN | change))


@pytest.mark.parametrize(
    ("change", "rule"), [({"pad": 2}, "pad_h <= R // 2"), ({"include_pad": -1}, "include_pad must be 0 or 1, got -1")]
)
def test_broken_rule_of_an_average_is_named(change, rule):
    with pytest.raises(ShapeError, match=rule):
        AvgPoolShape(**(PLAIN | change))


def test_a_window_larger_than_the_input_is_allowed_in_ceil_mode():
    s = AvgPoolShape(1, 1, 2, 2, 3, 3, stride=2, ceil=1)
    assert (s.P, s.Q) == (1, 1)


@given(max_shapes())
def test_max_shape_survives_params_and_text(s):
    assert MaxPoolShape(**s.params()) == s
    assert parse_max(",".join(f"{k}={v}" for k, v in s.params().items())) == s


@given(avg_shapes())
def test_average_shape_survives_params_and_text(s):
    assert AvgPoolShape(**s.params()) == s
    assert parse_avg(",".join(f"{k}={v}" for k, v in s.params().items())) == s


@pytest.mark.parametrize(
    ("parse", "text", "rule"),
    [
        (parse_max, "N=1,C=3", "missing H, W, R, S"),
        (parse_max, "N=1,C=3,H=8,W=8,R=3,S=3,include_pad=1", "no field 'include_pad'"),
        (parse_avg, "N=1,C=3,H=8,W=8,R=3,S=3,dilation=2", "no field 'dilation'"),
        (parse_global, "N=1,C=3,H=8", "missing W"),
        (parse_global, "N=1,C=3,H=8,W=0", "W must be in 1"),
    ],
)
def test_malformed_text_is_explained(parse, text, rule):
    with pytest.raises(ShapeError, match=rule):
        parse(text)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_bytes_count_every_tensor_once(N, C, H, W):
    s = MaxPoolShape(N, C, H, W, 1, 1)
    assert s.bytes == 4 * (math.prod(s.x_shape) + 2 * math.prod(s.y_shape))
    assert AvgPoolShape(N, C, H, W, 1, 1).bytes == 4 * (math.prod(s.x_shape) + math.prod(s.y_shape))
    assert GlobalShape(N, C, H, W).bytes == 4 * (N * C * H * W + N * C)


def test_presets_have_the_stated_sizes():
    stem = MAX_PRESETS["maxpool-resnet50"].shape
    assert (stem.P, stem.Q) == (56, 56)
    assert (AVG_PRESETS["avgpool-densenet"].shape.P, AVG_PRESETS["avgpool-inception"].shape.P) == (28, 35)
    sizes = [
        presets[key].shape.bytes
        for presets, key in (
            (MAX_PRESETS, "maxpool-large"),
            (AVG_PRESETS, "avgpool-large"),
            (GLOBAL_PRESETS, "gap-large"),
            (GLOBAL_PRESETS, "gap-small-planes"),
        )
    ]
    assert [round(n / 1e6) for n in sizes] == [308, 257, 206, 210]
