"""The shape of a transposed convolution and the convolution whose input gradient it is."""

from __future__ import annotations

import pytest
from hypothesis import given

from kernels.conv.backward.transpose_shape import TransposeShape, parse_transpose
from kernels.model.shape import ShapeError
from tests.helpers.shapes import conv_shapes, transpose_shapes


@given(conv_shapes(max_extent=5))
def test_the_transposed_convolution_of_a_convolution_leads_back_to_it(s):
    s = s.with_(bias=0, relu=0, mode="cross-correlation")
    transposed = TransposeShape.of(s)
    assert transposed.conv == s
    assert (transposed.y_shape, transposed.x_shape) == (s.x_shape, s.y_shape)
    assert transposed.macs == s.macs


@given(transpose_shapes(max_extent=4))
def test_a_transposed_convolution_is_that_of_its_convolution(t):
    assert TransposeShape.of(t.conv) == t


def test_more_may_be_cut_off_at_the_end():
    """As a causal layer that doubles the samples does."""
    t = TransposeShape(1, 1, 1, 16, 2, 1, 4, stride=(1, 2), extra=(0, 2))
    assert (t.P, t.Q) == (1, 32) and str(t) == "N1 C1 1x16 K2 1x4 stride 1,2 extra 0,2"
    assert t.conv.after == (0, 2) and parse_transpose("N=1,C=1,H=1,W=16,K=2,R=1,S=4,v=2,extra_w=2") == t
    with pytest.raises(ShapeError, match="extra_w >= -pad_w, but -1 < 0"):
        t.with_(extra_w=-1)


def test_equal_cuts_have_the_params_of_older_rows():
    t = TransposeShape(1, 1, 3, 3, 2, 3, 3, stride=2, pad=1)
    assert not {"extra_h", "extra_w"} & t.params().keys() and TransposeShape(**t.params()) == t
