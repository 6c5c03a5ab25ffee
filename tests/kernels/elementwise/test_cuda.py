"""Elementwise layers on a real GPU: every rung at any shape and tile size, at every preset, PyTorch in both modes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.elementwise import ladder as elementwise
from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import Launch
from kernels.model.verify import agrees, by_output
from kernels.records import availability
from kernels.runner import inputs_of
from tests.helpers.needs import needs_torch
from tests.kernels.elementwise.test_ladder import RUNGS, shape_of

pytestmark = pytest.mark.gpu
ALL = {rung.name: (ladder, rung) for ladder in elementwise.LADDERS for rung in ladder.rungs}
LIBRARIES = [name for name, (_, rung) in ALL.items() if rung.library]
PRESETS = [(name, key) for name, (ladder, _) in RUNGS.items() for key in ladder.presets]
extents = st.tuples(st.integers(1, 5), st.integers(1, 200), st.integers(1, 40), st.integers(1, 40))


def run_and_verify(name: str, shape, tiles=None) -> None:
    """Asserts that every output of a rung agrees with the float64 reference."""
    ladder, rung = ALL[name]
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs_of(ladder, shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    expected = by_output(ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs))
    for output, (ref, scale) in expected.items():
        out = session.fetch(output)
        assert agrees(out, ref, scale, rung.tolerance), f"{output} of {name} {shape} {tiles}"
    session.close()


@settings(max_examples=80)
@given(data=st.data(), extents=extents)
def test_every_rung_agrees_at_any_shape_and_tile_sizes(data, extents):
    name = data.draw(st.sampled_from(list(RUNGS)))
    ladder, rung = RUNGS[name]
    shape = shape_of(ladder, data, extents)
    tiles = {tile: data.draw(st.sampled_from(choices)) for tile, choices in rung.tiles.items()}
    run_and_verify(name, shape, tiles)


@pytest.mark.parametrize(("name", "key"), PRESETS)
def test_every_preset(name, key):
    shape = ALL[name][0].presets[key].shape
    if shape.elements < 2**25:  # larger ones are verified when they are measured
        run_and_verify(name, shape)


def test_two_launches_give_the_same_bits_in_every_run():
    ladder, rung = RUNGS["bias-backward/two-launches"]
    shape = ladder.presets["bias-backward-res5-n32"].shape
    program = rung.build(shape, rung.default_tiles)
    session = cuda.open(program, inputs_of(ladder, shape, program))
    first = np.array(session.verify_run())
    for _ in range(20):
        np.testing.assert_array_equal(session.verify_run(), first)
    session.close()


def test_no_kernel_spills():
    for ladder, rung in RUNGS.values():
        shape = next(iter(ladder.presets.values())).shape
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                assert isinstance(step, Launch)
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, tiles)


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@pytest.mark.parametrize("name", LIBRARIES)
@settings(max_examples=10)
@given(data=st.data(), extents=extents)
def test_pytorch_agrees(name, data, extents):
    ladder, rung = ALL[name]
    shape = shape_of(ladder, data, extents)
    if availability.runs(rung, shape, {}):
        run_and_verify(name, shape)


@needs_torch
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes(name, mode):
    ladder, rung = ALL[name]
    shape = ladder.shape(4, 8, 64, 64)
    program = rung.build(shape, {})
    session = cuda.open(program, inputs_of(ladder, shape, program))
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=0.2))
    assert min(timing.samples_ms) > 0
    session.close()
