"""Both gradients and transposed convolution on a GPU: presets, any shape, every set of tile sizes, cuDNN, speed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import common as conv_common
from kernels.conv.backward.ladder import DINPUT, DWEIGHT
from kernels.conv.backward.transpose import TRANSPOSE
from kernels.conv.shape import ConvShape
from kernels.libraries import cudnn
from kernels.model.program import RuleError
from kernels.records import availability
from kernels.runner import compare, run
from tests.helpers.shapes import plain_layer_shapes, transpose_shapes

pytestmark = pytest.mark.gpu
LADDERS = {ladder.name: ladder for ladder in (DINPUT, DWEIGHT, TRANSPOSE)}
RAGGED = ConvShape(3, 6, 19, 17, 70, 3, 2, stride=(2, 1), pad=(2, 1), dilation=(1, 2), groups=2)
RES3 = DINPUT.presets["backward-resnet50-res3-3x3-n32"].shape


def ours(ladder, shape) -> list[str]:
    return [r.name for r in ladder.rungs if not r.library and availability.runs(r, shape, r.default_tiles)]


@pytest.mark.parametrize(("ladder", "key"), [(name, key) for name in LADDERS for key in LADDERS[name].presets])
def test_every_preset(ladder, key):
    """Includes cuDNN's rungs, some of which are refused. compare() verifies each element."""
    found, refused = LADDERS[ladder], []
    shape = found.presets[key].shape
    supported = [r.name for r in availability.supported_rungs(found, "cuda", shape)]
    results = compare(supported, shape, engine="cuda", measure=False, refused=lambda *reason: refused.append(reason))
    assert {r.rung for r in results} | {rung for rung, _ in refused} == set(supported)
    assert all("cudnn" in rung for rung, _ in refused), refused


@settings(max_examples=60)
@given(shape=plain_layer_shapes(max_extent=5), name=st.sampled_from(["conv-dinput", "conv-dweight"]), data=st.data())
def test_every_rung_agrees_at_any_shape(shape, name, data):
    rungs = [LADDERS[name].rung(rung) for rung in ours(LADDERS[name], shape)]
    tiles = {r.name: data.draw(st.sampled_from(list(r.tile_sets(shape))), r.name) for r in rungs}
    compare([r.name for r in rungs], shape, engine="cuda", tiles=tiles, measure=False)


@settings(max_examples=40)
@given(shape=transpose_shapes(max_extent=5))
def test_transposed_convolution_agrees_at_any_shape(shape):
    compare(ours(TRANSPOSE, shape), shape, engine="cuda", measure=False)


@pytest.mark.parametrize(
    "name", ["conv-dinput/implicit-gemm", "conv-dweight/implicit-gemm", "conv-dweight/implicit-gemm-atomics"]
)
def test_every_set_of_tile_sizes_at_a_ragged_shape(name):
    rung = LADDERS[name.partition("/")[0]].rung(name)
    for tiles in rung.tile_sets(RAGGED):
        run(name, RAGGED, engine="cuda", tiles=tiles, measure=False)


@pytest.mark.parametrize("name", ["conv-dinput/gemm-gather", "conv-dinput/implicit-gemm", "conv-dweight/implicit-gemm"])
def test_without_atomics_every_run_gives_the_same_bits(name):
    first, second = (run(name, RES3, engine="cuda", measure=False).output for _ in range(2))
    np.testing.assert_array_equal(first, second)


# -- cuDNN -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def library() -> cudnn.Cudnn:
    try:
        return cudnn.load()
    except RuleError as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("direction", [cudnn.BACKWARD_DATA, cudnn.BACKWARD_FILTER], ids=lambda d: d.name)
def test_listed_algorithms_are_known(library, direction):
    convolution = cudnn.Convolution(library, conv_common.struct(RES3), RES3.maps, direction)
    listed = convolution.ranked()
    assert {t.algorithm for t in listed} <= set(direction.algorithms) and any(t.supported for t in listed)


@pytest.mark.parametrize("ladder", [DINPUT, DWEIGHT], ids=lambda ladder: ladder.name)
def test_a_layer_has_several_algorithms(library, ladder):
    rungs = [rung.name for rung in ladder.rungs if rung.library]
    results = compare(rungs, RES3, engine="cuda", measure=False, refused=lambda *reason: None)
    assert len(results) >= 2
    exact = [r for r in results if not ladder.rung(r.rung).scale]
    assert exact and all(r.error < 5e-6 for r in exact)  # TF32 would be off by 1e-4 and more
