"""The shape of a transposed convolution and the convolution whose input gradient it is."""

from __future__ import annotations

from hypothesis import given

from kernels.conv.backward.transpose_shape import TransposeShape
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
