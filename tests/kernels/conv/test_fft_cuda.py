"""conv/fft on a GPU: every shape and tile size, presets, the workspace with cuFFT's work areas, both modes of timing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import fft as conv_fft
from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.libraries import cufft
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, WORKSPACE
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs
from tests.helpers.shapes import conv_shapes

pytestmark = pytest.mark.gpu
RUNG = conv_fft.RUNGS[0]
TILES = [{"FFT_TILE": t, "SPECTRA": n} for t in RUNG.tiles["FFT_TILE"] for n in RUNG.tiles["SPECTRA"]]
POOL_GRAIN = 512  # bytes: CuPy's pool allocates multiples of this
MOST_ERROR = 2e-6


def verified(s: ConvShape, tiles: dict):
    """Returns a session whose output was checked, its relative error, its program."""
    program = RUNG.build(s, RUNG.check(s, tiles))
    inputs = seeded_inputs(program.of_role(INPUT))
    session = cuda.open(program, inputs)
    out, ref = session.verify_run(), reference.conv(s, **inputs)[0]
    assert agrees(out, ref, RUNG.scale(s, tiles, inputs), RUNG.tolerance), (s, tiles)
    return session, relative_error(out, ref), program


@settings(max_examples=200)
@given(s=conv_shapes(max_extent=5), tiles=st.sampled_from(TILES), bias=st.integers(0, 1), relu=st.integers(0, 1))
def test_every_shape_and_tile(s, tiles, bias, relu):
    verified(s.with_(bias=bias, relu=relu), tiles)[0].close()


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset(key):
    s = CONV_PRESETS[key].shape
    tiles_run = 0
    for tile in RUNG.tiles["FFT_TILE"]:
        tiles = RUNG.default_tiles | {"FFT_TILE": tile}
        if availability.runs(RUNG, s, tiles):
            session, error, _ = verified(s, tiles)
            session.close()
            assert error < MOST_ERROR, tiles
            tiles_run += 1
    assert tiles_run


@pytest.mark.parametrize("tile", RUNG.tiles["FFT_TILE"])
@pytest.mark.parametrize("key", ["resnet50-res2-3x3-n1", "resnet50-res4-3x3-n32"])
def test_workspace_equals_prediction_plus_cufft_work_areas(key, tile):
    session, _, program = verified(CONV_PRESETS[key].shape, {"FFT_TILE": tile})
    shapes = {b.name: b.shape for b in program.of_role(WORKSPACE)}
    cufft_bytes = [cufft.workspace_bytes(shapes[f"{name}_padded"], inverse=name == "y") for name in "xwy"]
    sizes = [b.nbytes for b in program.of_role(WORKSPACE)] + cufft_bytes
    assert session.memory.workspace == sum(-(-n // POOL_GRAIN) * POOL_GRAIN for n in sizes)
    session.verify_run()  # the work areas are reused, not allocated again
    assert session.memory.workspace == sum(-(-n // POOL_GRAIN) * POOL_GRAIN for n in sizes)
    session.close()


@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_it_is_timed_in_both_modes(mode):
    """Hot samples are captured graphs: the transforms can be captured."""
    session, _, program = verified(CONV_PRESETS["resnet50-res4-3x3-n1"].shape, {})
    (timed,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    session.close()
    assert min(timed.samples_ms) > 0 and [name for name, _ in timed.parts_ms] == [s.name for s in program.steps]


def test_transform_equals_numpy():
    import cupy

    values = np.random.default_rng(0).standard_normal((3, 5, 14, 15)).astype("f4")
    source, spectra = cupy.empty(values.shape, "f4"), cupy.empty((3, 5, 14, 8, 2), "f4")
    source.set(values)
    cufft.forward(source, spectra)()
    expected = np.fft.rfft2(values.astype("f8")).view("f8").reshape(spectra.shape)  # real and imaginary part
    assert relative_error(spectra.get(), expected) < 1e-6
