"""The ladders of a fully connected layer on a real GPU: every preset, any shape and tile sizes, cuBLAS and PyTorch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.ladders import ladder_of
from kernels.linear import ladder as linear
from kernels.machine.timing import Budget
from kernels.model.program import Launch
from kernels.model.verify import agrees, by_output, relative_error
from kernels.records import availability
from kernels.runner import inputs_of
from tests.helpers.needs import needs_torch
from tests.kernels.linear.test_ladder import OURS

pytestmark = pytest.mark.gpu
CUBLAS, TORCH = ([rungs[n] for rungs in linear.LIBRARIES.values()] for n in (0, 1))
MAX_MACS = 2**31  # of a preset here: its float64 reference takes a second
sizes = st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 600))


def assert_right(rung, shape, tiles=None) -> None:
    """Compares every output with the float64 reference."""
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs_of(ladder_of(rung.name), shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    outputs = {b.name: session.fetch(b.name) for b in program.outputs}
    session.close()
    for name, (ref, scale) in by_output(ladder_of(rung.name).reference(shape, **inputs), tuple(outputs)).items():
        error = relative_error(outputs[name], ref)
        assert agrees(outputs[name], ref, scale, rung.tolerance), f"{name} {rung.name} {shape} {tiles} {error}"


@settings(max_examples=60)
@given(data=st.data())
def test_every_rung_agrees_at_any_shape_and_tile_sizes(data):
    rung = data.draw(st.sampled_from(OURS))
    shape = ladder_of(rung.name).shape(*data.draw(sizes))
    tiles = data.draw(st.sampled_from(list(rung.tile_sets(shape))))
    if availability.runs(rung, shape, tiles):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("size", [(131, 203, 397), (128, 256, 512)], ids=str)
def test_every_set_of_tile_sizes(rung, size):
    shape = ladder_of(rung.name).shape(*size)
    for tiles in rung.tile_sets(shape):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("ladder", linear.LADDERS, ids=lambda ladder: ladder.name)
def test_every_preset(ladder):
    for preset in ladder.presets.values():
        if preset.shape.macs > MAX_MACS:
            continue
        for rung in (*linear.OURS[ladder.name], linear.LIBRARIES[ladder.name][0]):
            if availability.runs(rung, preset.shape, rung.default_tiles):
                assert_right(rung, preset.shape)


def test_no_kernel_spills():
    for rung in OURS:
        shape = ladder_of(rung.name).shape(1, 1, 1)
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                assert isinstance(step, Launch)
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, tiles)


@settings(max_examples=20)
@given(size=sizes, rung=st.sampled_from(CUBLAS))
def test_cublas_agrees(size, rung):
    assert_right(rung, ladder_of(rung.name).shape(*size))


@needs_torch
@settings(max_examples=20)
@given(size=sizes, rung=st.sampled_from(TORCH))
def test_pytorch_agrees(size, rung):
    assert_right(rung, ladder_of(rung.name).shape(*size))


@pytest.mark.parametrize("mode", ["cold", "hot"])
@pytest.mark.parametrize("rung", [*CUBLAS, *[pytest.param(r, marks=needs_torch) for r in TORCH]], ids=lambda r: r.name)
def test_libraries_are_timed_in_both_modes(rung, mode):
    """Hot samples are captured graphs."""
    shape = ladder_of(rung.name).shape(256, 84, 120)
    program = rung.build(shape, {})
    session = cuda.open(program, inputs_of(ladder_of(rung.name), shape, program))
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    session.close()
