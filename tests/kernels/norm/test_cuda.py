"""The norm ladders on a real GPU: every rung at any shape and tile size, hard numbers, every preset, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import Launch, UnsupportedError
from kernels.model.verify import agrees, by_output, relative_error
from kernels.norm.ladder import LADDERS
from kernels.records import availability
from kernels.runner import inputs_of, rung_reference
from tests.helpers.needs import needs_torch
from tests.kernels.norm.test_ladder import HARD, LADDER_OF, RUNGS, hard_inputs, layout_of, of_maps, shape_of

pytestmark = pytest.mark.gpu
ADDRESSES = 16  # bytes of local memory: some compilers keep an address or two there
LIBRARY = [(ladder, rung) for ladder in LADDERS for rung in ladder.rungs if rung.library]
PRESETS = [(ladder, key) for ladder in LADDERS for key in ladder.presets]
MAX_ELEMENTS = 2**24  # of a preset that is compared here: float64 references of more take seconds
extent = st.integers(1, 40)
maps = st.tuples(st.integers(1, 5), st.integers(1, 140), extent, extent, st.sampled_from(["nchw", "nhwc"]))
rows = st.tuples(st.integers(1, 300), st.one_of(st.integers(1, 40), st.integers(1, 6000)))


def computed(ladder, rung, shape, tiles=None, inputs=None):
    """Returns (outputs by name, inputs) of a rung, without a comparison with the reference."""
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs or inputs_of(ladder, shape, program)
    session = cuda.open(program, inputs)
    try:
        session.verify_run()
        return {b.name: np.array(session.fetch(b.name)) for b in program.outputs}, inputs
    finally:
        session.close()


def run_and_verify(ladder, rung, shape, tiles=None, inputs=None) -> None:
    """Compares every element of every output with the float64 reference."""
    out, inputs = computed(ladder, rung, shape, tiles, inputs)
    reference = by_output(ladder.reference(shape, **inputs), tuple(out))
    for name, (ref, scale) in rung_reference(rung, shape, tiles or {}, inputs, reference).items():
        error = relative_error(out[name], ref)
        assert agrees(out[name], ref, scale, rung.tolerance), f"{name} {rung.name} {shape} {tiles} {error}"


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=4)
@given(data=st.data())
def test_every_rung_agrees_at_any_shape_and_tile_sizes(name, data):
    ladder, rung = LADDER_OF[name], RUNGS[name]
    shape = shape_of(name, *data.draw(maps if of_maps(name) else rows))
    tiles = {tile: data.draw(st.sampled_from(choices)) for tile, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        run_and_verify(ladder, rung, shape, tiles)


@pytest.mark.parametrize("name", RUNGS)
def test_every_tile_set_at_a_ragged_shape(name):
    shape = shape_of(name, 3, 37, 7, 9, layout_of(name)) if of_maps(name) else shape_of(name, 13, 77)
    for tiles in RUNGS[name].tile_sets(shape):
        run_and_verify(LADDER_OF[name], RUNGS[name], shape, tiles)


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("name", RUNGS)
def test_hard_numbers_stay_finite_and_right(name, kind):
    shape = shape_of(name, 4, 8, 20, 20, layout_of(name)) if of_maps(name) else shape_of(name, 9, 500)
    tiles = {"PER": 32} if "warp" in name else None
    run_and_verify(LADDER_OF[name], RUNGS[name], shape, tiles, hard_inputs(kind, name, shape))


@pytest.mark.parametrize(("ladder", "key"), PRESETS, ids=lambda of: getattr(of, "name", of))
def test_every_preset(ladder, key):
    shape = ladder.presets[key].shape
    if shape.elements > MAX_ELEMENTS:
        pytest.skip("recordings compare it")
    for rung in ladder.rungs:
        if not rung.library and availability.runs(rung, shape, rung.default_tiles):
            run_and_verify(ladder, rung, shape)


def test_a_channel_of_a_large_layer():
    """64 images of 56 x 56 pixels: the sums of 200,704 numbers stay within the tolerance, in both layouts."""
    for ladder in LADDERS[:3]:
        for layout in ("nchw", "nhwc"):
            shape = ladder.shape(64, 8, 56, 56, layout)
            for rung in ladder.rungs:
                if not rung.library and availability.runs(rung, shape, rung.default_tiles):
                    run_and_verify(ladder, rung, shape)


@pytest.mark.parametrize("name", RUNGS)
def test_no_kernel_keeps_its_numbers_in_local_memory(name):
    for preset in LADDER_OF[name].presets.values():
        for tiles in RUNGS[name].tile_sets(preset.shape):
            for step in RUNGS[name].build(preset.shape, tiles).steps:
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes <= ADDRESSES, (name, step.entry, tiles)


def test_sums_of_partials_have_the_same_bits_in_each_run():
    ladder = next(lad for lad in LADDERS if lad.name == "layer-norm-backward")
    rung, shape = ladder.rung("layer-norm-backward/registers"), ladder.shape(500, 768)
    first, inputs = computed(ladder, rung, shape)
    again, _ = computed(ladder, rung, shape, inputs=inputs)
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])


# -- PyTorch ------------------------------------------------------------------------------------------
def run_library(ladder, rung, shape) -> None:
    try:
        run_and_verify(ladder, rung, shape)
    except UnsupportedError as e:
        pytest.skip(str(e))


@needs_torch
@pytest.mark.parametrize(("ladder", "rung"), LIBRARY, ids=lambda of: of.name)
@settings(max_examples=8)
@given(data=st.data())
def test_pytorch_agrees(ladder, rung, data):
    run_library(ladder, rung, ladder.shape(*data.draw(maps if ladder.name.startswith("batch") else rows)))


@needs_torch
@pytest.mark.parametrize(("ladder", "rung"), LIBRARY, ids=lambda of: of.name)
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes(ladder, rung, mode):
    """Hot samples are captured graphs. After them the outputs are still right."""
    shape = ladder.shape(8, 64, 28, 28) if ladder.name.startswith("batch") else ladder.shape(2048, 768)
    program = rung.build(shape, {})
    assert not any(isinstance(step, Launch) for step in program.steps)
    inputs = inputs_of(ladder, shape, program)
    session = cuda.open(program, inputs)
    try:
        session.verify_run()
        (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
        assert min(timing.samples_ms) > 0
        session.verify_run()
        for name, (ref, scale) in by_output(
            ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs)
        ).items():
            assert agrees(np.array(session.fetch(name)), ref, scale, rung.tolerance), name
    except UnsupportedError as e:
        pytest.skip(str(e))
    finally:
        session.close()
