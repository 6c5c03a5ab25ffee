"""The ladders of heads on a real GPU: every preset, any shape and tile sizes, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.heads import ladder as heads
from kernels.heads.shape import HeadsShape
from kernels.ladders import ladder_of
from kernels.machine.timing import Budget
from kernels.model.verify import by_output
from kernels.records import availability
from kernels.runner import inputs_of
from tests.helpers.needs import needs_torch
from tests.kernels.heads.test_ladder import OURS

pytestmark = pytest.mark.gpu
LIBRARIES = tuple(rung for ladder in heads.LADDERS for rung in ladder.rungs if rung.library)
MAX_ELEMENTS = 2**24  # in a preset here: its float64 reference takes a second
shapes = st.builds(
    HeadsShape,
    st.integers(1, 20),
    st.integers(1, 200),
    st.integers(1, 16),
    st.integers(1, 130),
    st.sampled_from([1, 3]),
)


def assert_right(rung, shape, tiles=None) -> None:
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs_of(ladder_of(rung.name), shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    expected = by_output(ladder_of(rung.name).reference(shape, **inputs), tuple(b.name for b in program.outputs))
    for name, (ref, _) in expected.items():
        np.testing.assert_array_equal(np.array(session.fetch(name)), ref, err_msg=f"{name} {rung.name} {shape}")
    session.close()


@settings(max_examples=60)
@given(data=st.data())
def test_every_rung_copies_every_number_at_any_shape_and_tile_sizes(data):
    rung, shape = data.draw(st.sampled_from(OURS)), data.draw(shapes)
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("d", [37, 64])
def test_every_set_of_tile_sizes(rung, d):
    shape = HeadsShape(3, 101, 5, d, 3)
    for tiles in rung.tile_sets(shape):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("ladder", heads.LADDERS, ids=lambda ladder: ladder.name)
def test_every_preset(ladder):
    for preset in ladder.presets.values():
        if preset.shape.macs <= MAX_ELEMENTS:
            for rung in ladder.rungs:
                if not rung.library:
                    assert_right(rung, preset.shape)


def test_no_kernel_spills():
    for rung in OURS:
        for shape in (HeadsShape(1, 2, 3, 4, 3), HeadsShape(1, 2, 3, 5)):
            for tiles in rung.tile_sets(shape):
                (step,) = rung.build(shape, tiles).steps
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, tiles)


@needs_torch
@settings(max_examples=20)
@given(shape=shapes, library=st.sampled_from(LIBRARIES))
def test_pytorch_agrees(shape, library):
    assert_right(library, shape)


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda rung: rung.name)
def test_pytorch_is_timed_in_both_modes(library, mode):
    """Hot samples are captured graphs."""
    shape = HeadsShape(8, 256, 12, 64, 3)
    program = library.build(shape, {})
    session = cuda.open(program, inputs_of(ladder_of(library.name), shape, program))
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    session.close()
