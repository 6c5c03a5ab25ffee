"""The ladders of cross-entropy on a real GPU: every preset, any shape and tile sizes, hard rows, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cross_entropy import ladder as ce
from kernels.engines import cuda
from kernels.ladders import ladder_of
from kernels.machine.timing import Budget
from kernels.model.program import Launch
from kernels.model.verify import agrees, by_output, relative_error
from kernels.records import availability
from kernels.runner import inputs_of, rung_reference
from tests.helpers.needs import needs_torch
from tests.kernels.cross_entropy.test_ladder import HARD, OURS, RUNGS, SAFE, given_inputs

pytestmark = pytest.mark.gpu
LIBRARIES = (ce.FORWARD_LIBRARY, ce.BACKWARD_LIBRARY, ce.STEP_LIBRARY)
MAX_ELEMENTS = 2**26  # of a preset here: its float64 reference takes a second
sizes = st.tuples(st.integers(1, 300), st.one_of(st.integers(1, 40), st.integers(1, 6000)))


def outputs_of(rung, shape, tiles=None, inputs=None) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs or inputs_of(ladder_of(rung.name), shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    outputs = {b.name: session.fetch(b.name) for b in program.outputs}
    session.close()
    return outputs, inputs


def assert_right(rung, shape, tiles=None, inputs=None) -> None:
    """Compares every output with the float64 reference."""
    outputs, inputs = outputs_of(rung, shape, tiles, inputs)
    reference = by_output(ladder_of(rung.name).reference(shape, **inputs), tuple(outputs))
    expected = rung_reference(rung, shape, rung.check(shape, tiles), inputs, reference)
    for name, (ref, scale) in expected.items():
        error = relative_error(outputs[name], ref)
        assert agrees(outputs[name], ref, scale, rung.tolerance), f"{name} {rung.name} {shape} {tiles} {error}"


@settings(max_examples=60)
@given(data=st.data())
def test_every_rung_agrees_at_any_shape_and_tile_sizes(data):
    rung = data.draw(st.sampled_from(OURS))
    shape = ladder_of(rung.name).shape(*data.draw(sizes))
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
def test_every_set_of_tile_sizes_at_a_ragged_shape(rung):
    shape = ladder_of(rung.name).shape(7, 5003)
    for tiles in rung.tile_sets(shape):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("kind", HARD)
def test_hard_rows_are_right(name, kind):
    shape = ladder_of(name).shape(3, 1003)
    x = HARD[kind](np.random.default_rng(5).standard_normal((3, 1003)))
    assert_right(RUNGS[name], shape, inputs=given_inputs(name, shape, x=x))


@pytest.mark.parametrize("ladder", ce.LADDERS, ids=lambda ladder: ladder.name)
def test_every_preset(ladder):
    for preset in ladder.presets.values():
        if preset.shape.elements > MAX_ELEMENTS:
            continue
        for rung in ladder.rungs:
            if availability.runs(rung, preset.shape, rung.default_tiles) and not rung.library:
                assert_right(rung, preset.shape)


def test_no_kernel_spills():
    for rung in OURS:
        shape = ladder_of(rung.name).shape(1, 1)
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                assert isinstance(step, Launch)
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, tiles)


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda rung: rung.name)
@pytest.mark.parametrize("size", [(1, 1), (5, 77), (256, 1000), (16, 50257)], ids=str)
def test_pytorch_agrees(library, size):
    assert_right(library, ladder_of(library.name).shape(*size))


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda rung: rung.name)
def test_pytorch_is_timed_in_both_modes(library, mode):
    """Hot samples are captured graphs. After them the output is still right."""
    shape = ladder_of(library.name).shape(512, 1000)
    program = library.build(shape, {})
    inputs = inputs_of(ladder_of(library.name), shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    session.close()
