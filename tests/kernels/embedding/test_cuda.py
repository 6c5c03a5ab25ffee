"""The ladders of an embedding on a real GPU: every preset, any shape and tile sizes, equal results in every run, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.embedding import ladder as embedding
from kernels.embedding.shape import TOKENS
from kernels.engines import cuda
from kernels.ladders import ladder_of
from kernels.machine.timing import Budget
from kernels.model.program import Launch
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import inputs_of
from tests.helpers.needs import needs_torch
from tests.kernels.embedding.test_ladder import OURS, RUNGS, SORTED

pytestmark = pytest.mark.gpu
LIBRARIES = (embedding.FORWARD_LIBRARY, embedding.BACKWARD_LIBRARY)
MAX_ELEMENTS = 2**24  # of dy in a preset here: its float64 reference takes a second
sizes = st.tuples(st.integers(1, 3000), st.integers(1, 2000), st.integers(1, 300), st.sampled_from(TOKENS))


def computed(rung, shape, tiles=None):
    """Returns (output, inputs) of a rung."""
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs_of(ladder_of(rung.name), shape, program)
    session = cuda.open(program, inputs)
    out = np.array(session.verify_run())
    session.close()
    return out, inputs


def assert_right(rung, shape, tiles=None) -> None:
    out, inputs = computed(rung, shape, tiles)
    ref, scale = ladder_of(rung.name).reference(shape, **inputs)
    error = relative_error(out, ref)
    assert agrees(out, ref, scale, rung.tolerance), f"{rung.name} {shape} {tiles} {error}"


@settings(max_examples=60)
@given(data=st.data())
def test_every_rung_agrees_at_any_shape_and_tile_sizes(data):
    rung = data.draw(st.sampled_from(OURS))
    shape = ladder_of(rung.name).shape(*data.draw(sizes))
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("d", [77, 768])
def test_every_set_of_tile_sizes(rung, d):
    shape = ladder_of(rung.name).shape(2003, 997, d, "zipf")
    for tiles in rung.tile_sets(shape):
        assert_right(rung, shape, tiles)


@pytest.mark.parametrize("ladder", embedding.LADDERS, ids=lambda ladder: ladder.name)
def test_every_preset(ladder):
    for preset in ladder.presets.values():
        if preset.shape.macs > MAX_ELEMENTS:
            continue
        for rung in ladder.rungs:
            if not rung.library and availability.runs(rung, preset.shape, rung.default_tiles):
                assert_right(rung, preset.shape)


@pytest.mark.parametrize("name", SORTED)
def test_sorted_sums_are_equal_in_every_run(name):
    shape = ladder_of(name).shape(5000, 300, 64, "zipf")
    first, _ = computed(RUNGS[name], shape)
    for _ in range(5):
        np.testing.assert_array_equal(computed(RUNGS[name], shape)[0], first)


def test_no_kernel_spills():
    for rung in OURS:
        shape = ladder_of(rung.name).shape(1, 1, 1)
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                assert isinstance(step, Launch)
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, tiles)


@needs_torch
@settings(max_examples=20)
@given(size=sizes, library=st.sampled_from(LIBRARIES))
def test_pytorch_agrees(size, library):
    assert_right(library, ladder_of(library.name).shape(*size))


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda rung: rung.name)
def test_pytorch_is_timed_in_both_modes(library, mode):
    """Hot samples are captured graphs."""
    shape = ladder_of(library.name).shape(1024, 5000, 64)
    program = library.build(shape, {})
    session = cuda.open(program, inputs_of(ladder_of(library.name), shape, program))
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    session.close()
