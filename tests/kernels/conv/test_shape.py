from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PADDING, CONV_PRESETS
from kernels.conv.shape import ConvShape, parse_conv
from kernels.model.shape import INT_MAX, ShapeError
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes, layer_shapes

LIMITED = ("N", "C", "K", "H", "W", "R", "S", "u", "v", "pad_h", "pad_w", "extra_h", "extra_w")
PLAIN = {"N": 1, "C": 3, "H": 8, "W": 8, "K": 4, "R": 3, "S": 3}


def test_design_example():
    s = ConvShape(N=1, C=3, H=8, W=8, K=4, R=3, S=3, pad=1)
    assert (s.P, s.Q, s.CRS, s.PQ) == (8, 8, 27, 64)
    assert s.macs == 4 * 64 * 27 and s.flops == 2 * s.macs
    assert s.bytes == 4 * (3 * 64 + 4 * 27 + 4 * 64)


def test_one_number_equals_one_number_per_axis():
    both = ConvShape(**PLAIN, stride=(2, 1), pad=(0, 1), dilation=(1, 2))
    assert both == ConvShape(**PLAIN, u=2, v=1, pad_h=0, pad_w=1, dilation_h=1, dilation_w=2)
    assert (both.stride, both.pad, both.dilation) == ((2, 1), (0, 1), (1, 2))


@every(
    ("change", "rule"),
    [
        ({"R": 9}, r"dilation\*\(R-1\)\+1 <= H\+2\*pad_h, but 9 > 8"),
        ({"S": 5, "dilation": 2}, r"dilation\*\(S-1\)\+1 <= W\+2\*pad_w, but 9 > 8"),
        ({"C": 0}, r"C must be in 1 \.\. 2147483647, got 0"),
        ({"pad": -1}, "pad_h must be in 0"),
        ({"u": 0}, "u must be in 1"),
        ({"H": 2.5}, "H must be a whole number, got 2.5"),
        ({"H": float("nan")}, "H must be a whole number, got nan"),
        ({"H": True}, "H must be a whole number, got True"),
        ({"W": INT_MAX + 1}, "W must be in"),
        ({"W": INT_MAX, "pad": 1}, r"must stay below 2\^31"),
        ({"W": INT_MAX, "extra_w": 1}, r"W\+2\*pad_w\+extra_w must stay below 2\^31"),
        ({"pad": 1, "extra_w": -2}, "padding after the input must not be negative: extra_w >= -pad_w, but -2 < -1"),
        ({"extra": (-1, 0)}, "extra_h >= -pad_h, but -1 < 0"),
        ({"extra": 0.5}, "extra_h must be a whole number, got 0.5"),
        ({"R": 11, "pad": 1, "extra_h": -1}, r"dilation\*\(R-1\)\+1 <= H\+2\*pad_h\+extra_h, but 11 > 9"),
        ({"stride": (1, 2, 3)}, "stride takes one number or two"),
        ({"mode": "flip"}, "mode must be one of cross-correlation, convolution"),
    ],
)
def test_broken_rule_is_named(change, rule):
    with pytest.raises(ShapeError, match=rule):
        ConvShape(**(PLAIN | change))


def test_padding_may_differ_at_both_ends():
    """TensorFlow's SAME at stride 2, and a causal 1-D convolution with dilation 4."""
    same = ConvShape(1, 3, 224, 224, 32, 3, 3, stride=2, extra=1)
    assert (same.P, same.Q, same.pad, same.after) == (112, 112, (0, 0), (1, 1))
    causal = ConvShape(1, 1, 1, 64, 2, 1, 3, pad=(0, 8), extra=(0, -8), dilation=(1, 4))
    assert (causal.P, causal.Q, causal.after, causal.pad_widths) == (1, 64, (0, 0), ((0, 0), (8, 0)))
    assert str(causal) == "N1 C1 1x64 K2 1x3 pad 0,8 extra 0,-8 dilation 1,4"
    assert causal == parse_conv("N=1,C=1,H=1,W=64,K=2,R=1,S=3,pad_w=8,extra_w=-8,dilation_w=4")


def test_equal_padding_has_the_params_of_older_rows():
    older = {
        "N": 1,
        "C": 3,
        "H": 8,
        "W": 8,
        "K": 4,
        "R": 3,
        "S": 3,
        "u": 1,
        "v": 1,
        "pad_h": 1,
        "pad_w": 1,
        "dilation_h": 1,
        "dilation_w": 1,
        "mode": "cross-correlation",
    }
    assert ConvShape(**older).params() == older
    unequal = ConvShape(**older, extra_w=2)
    assert unequal.params() == older | {"extra_w": 2} and ConvShape(**unequal.params()) == unequal


def test_presets_of_padding_have_the_stated_outputs():
    for preset in CONV_PADDING.values():
        assert preset.key not in CONV_PRESETS | CONV_LAYER_PRESETS
        causal = preset.shape.pad_w == preset.shape.span_w - 1 and preset.shape.after[1] == 0
        assert causal == ("causal" in preset.key and "rows" not in preset.key)
        if causal:
            assert preset.shape.Q == preset.shape.W
    assert CONV_PADDING["signal"].shape.Q == 60


@settings(max_examples=20)
@given(conv_shapes())
def test_shape_survives_params_and_text(s):
    assert ConvShape(**s.params()) == s
    assert parse_conv(",".join(f"{k}={v}" for k, v in s.params().items())) == s


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("N=1,C=3", "missing H, W, K, R, S"),
        ("N=1,N=2", "N is given twice"),
        ("N=x", "N must be a whole number, got 'x'"),
        ("Z=1", "no field 'Z'; there are: N, C, H, W, K, R, S, "),
        ("N", "NAME=VALUE"),
    ],
)
def test_malformed_text_is_explained(text, rule):
    with pytest.raises(ShapeError, match=rule):
        parse_conv(text)


def test_presets_have_the_stated_sizes():
    paper = CONV_PRESETS["cudnn-paper"].shape
    assert (paper.K, paper.CRS, paper.PQ) == (2, 12, 4)
    conv1 = CONV_PRESETS["resnet50-conv1-n32"].shape
    assert (conv1.N, conv1.P, conv1.Q) == (32, 112, 112)
    assert CONV_PRESETS["lenet-conv1"].shape.P == 28
    stages = [p.shape for key, p in CONV_PRESETS.items() if "3x3" in key]
    assert len(stages) == 8 and len({s.flops // s.N for s in stages}) == 1  # ResNet's stages have the same FLOPs


def test_numpy_integers_are_whole_numbers():
    assert ConvShape(*np.array([1, 3, 8, 8, 4, 3, 3])) == ConvShape(**PLAIN)


# -- groups, bias, ReLU ----------------------------------------------------------------------------------
def test_groups_divide_maps_and_filters():
    s = ConvShape(2, 6, 8, 8, 9, 3, 2, groups=3, bias=1)
    assert (s.maps, s.filters, s.w_shape, s.CRS) == (2, 3, (9, 2, 3, 2), 12)
    assert s.macs == 2 * 9 * s.PQ * 12 and s.elements["w"] == 9 * 12 and s.elements["b"] == 9
    assert s.bytes == 4 * (2 * 6 * 64 + 9 * 12 + 9 + 2 * 9 * s.PQ)
    assert str(s) == "N2 C6 8x8 K9 3x2 groups 3 bias"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"groups": 2}, "C must be a multiple of groups, got 3 % 2"),
        ({"groups": 3}, "K must be a multiple of groups, got 4 % 3"),
        ({"groups": 0}, r"groups must be in 1 \.\. 2147483647, got 0"),
        ({"bias": 2}, "bias must be 0 or 1, got 2"),
        ({"relu": "yes"}, "relu must be 0 or 1, got 'yes'"),
    ],
)
def test_broken_rule_of_a_layer_is_named(change, rule):
    with pytest.raises(ShapeError, match=rule):
        ConvShape(**(PLAIN | change))


@settings(max_examples=20)
@given(layer_shapes())
def test_layer_survives_params_and_text(s):
    assert ConvShape(**s.params()) == s
    assert parse_conv(",".join(f"{k}={v}" for k, v in s.params().items())) == s


@settings(max_examples=20)
@given(conv_shapes())
def test_plain_shape_has_no_layer_params(s):
    """Older rows and links have the same params, so they refer to the same shape."""
    s = s.with_(pad_h=9, pad_w=9).with_(extra_h=0, extra_w=0)  # more padding: the filter fits without the extra
    assert list(s.params()) == "N C H W K R S u v pad_h pad_w dilation_h dilation_w mode".split()
    assert s == s.with_(groups=1, bias=0, relu=False) and s.params() == s.with_(bias=0).params()


def test_layer_presets_have_the_stated_sizes():
    for p in CONV_LAYER_PRESETS.values():
        assert ConvShape(**p.shape.params()) == p.shape and p.key not in CONV_PRESETS
    depthwise = CONV_LAYER_PRESETS["mobilenet-depthwise-n32"].shape
    assert depthwise.maps == depthwise.filters == 1 and depthwise.CRS == 9
    assert CONV_LAYER_PRESETS["resnext50-res2-grouped-n32"].shape.maps == 4
