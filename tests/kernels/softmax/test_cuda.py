"""The softmax ladder on a real GPU: every rung at any shape and tile size, hard rows, where exp overflows, PyTorch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import RefusedError
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import VerificationError, run, seeded_inputs
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from tests.helpers.needs import needs_torch
from tests.kernels.softmax.test_ladder import FINITE, RUNGS, SAFE, SPOILT, make_inputs

pytestmark = pytest.mark.gpu
LIBRARY = softmax_ladder.LIBRARY
shapes = st.builds(SoftmaxShape, st.integers(1, 300), st.one_of(st.integers(1, 40), st.integers(1, 6000)))


def computed(rung, s: SoftmaxShape, tiles=None, inputs=None):
    """Returns (y, x) of a rung, without a comparison with the reference."""
    program = rung.build(s, rung.check(s, tiles))
    inputs = inputs or seeded_inputs(program.of_role("input"))
    session = cuda.open(program, inputs)
    y = np.array(session.verify_run())
    session.close()
    return y, inputs


def run_and_verify(rung, s: SoftmaxShape, tiles=None, inputs=None) -> float:
    """Returns the relative error of a rung, with every element compared with the float64 reference."""
    y, inputs = computed(rung, s, tiles, inputs)
    ref, scale = softmax_ladder.reference(s, **inputs)
    error = relative_error(y, ref)
    assert agrees(y, ref, scale, rung.tolerance), f"{rung.name} {s} {tiles} {error}"
    return error


@settings(max_examples=80)
@given(data=st.data())
def test_every_rung_agrees_at_any_shape_and_tile_sizes(data):
    shape, rung = data.draw(shapes), data.draw(st.sampled_from(softmax_ladder.RUNGS))
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        run_and_verify(rung, shape, tiles)


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("kind", FINITE)
def test_hard_rows_stay_finite_and_right(name, kind):
    for n in (75, 1000):
        shape = SoftmaxShape(3, n)
        run_and_verify(RUNGS[name], shape, inputs=make_inputs(kind, shape))


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("case", SPOILT)
def test_infinities_and_nans_give_what_the_reference_gives(name, case):
    shape = SoftmaxShape(3, 300)
    inputs = seeded_inputs(RUNGS[name].build(shape, RUNGS[name].default_tiles).of_role("input"))
    inputs["x"][1, slice(None) if SPOILT[case] == -np.inf else 33] = SPOILT[case]
    y, _ = computed(RUNGS[name], shape, inputs=inputs)
    ref, _ = softmax_ladder.reference(shape, **inputs)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(ref))
    np.testing.assert_allclose(y, ref, rtol=2e-6)


def test_unsafe_kernel_overflows_where_exp_does_and_gets_no_time():
    unsafe, shape = RUNGS["softmax/unsafe"], SoftmaxShape(2, 3)
    x = np.array([[88.72, 0, 1], [88.73, 0, 1]], np.float32)
    y, _ = computed(unsafe, shape, inputs={"x": x})
    assert np.isfinite(y[0]).all() and np.isnan(y[1, 0]) and (y[1, 1:] == 0).all()
    with pytest.raises(VerificationError, match="nothing unverified gets a time"):
        run("softmax/unsafe", shape, {"x": x}, engine="cuda", measure=False)


@pytest.mark.parametrize("key", SOFTMAX_PRESETS)
def test_every_preset(key):
    shape = SOFTMAX_PRESETS[key].shape
    for rung in softmax_ladder.RUNGS:
        if availability.runs(rung, shape, rung.default_tiles):
            assert run_and_verify(rung, shape) < 2e-5, rung.name


def test_blocks_exchange_their_words_in_run_after_run():
    """Every launch takes the words of this launch, also after x has changed."""
    rung, shape = RUNGS["softmax/one-launch"], SoftmaxShape(4, 2**20)
    program = rung.build(shape, rung.default_tiles)
    session = cuda.open(program, seeded_inputs(program.of_role("input")))
    for seed in range(3):
        x = (9 * np.random.default_rng(seed).standard_normal((shape.M, shape.N))).astype(np.float32)
        session.put({"x": x})
        with session.stream:
            for _ in range(101):
                session.run()
        ref, scale = softmax_ladder.reference(shape, x)
        assert agrees(np.array(session.verify_run()), ref, scale, rung.tolerance)
    session.close()


def test_more_blocks_than_run_at_once_are_refused():
    rung, shape = RUNGS["softmax/one-launch"], SoftmaxShape(4, 2**20)
    program = rung.build(shape, rung.default_tiles)
    large = replace(program, steps=(replace(program.steps[0], grid=(2**20, 1, 1)),))
    with pytest.raises(RefusedError, match="the blocks of one_launch wait for each other"):
        cuda.open(large, seeded_inputs(program.of_role("input")))


def test_no_kernel_spills():
    shape = SoftmaxShape(1, 1)
    for rung in softmax_ladder.RUNGS:
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (step.name, tiles)


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@settings(max_examples=30)
@given(shape=shapes)
def test_pytorch_agrees(shape):
    run_and_verify(LIBRARY, shape)


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes_and_allocates_nothing(mode):
    """Hot samples are captured graphs. After them the output is still right."""
    shape = SoftmaxShape(2048, 1024)
    program = LIBRARY.build(shape, {})
    inputs = seeded_inputs(program.of_role("input"))
    session = cuda.open(program, inputs)
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    ref, scale = softmax_ladder.reference(shape, **inputs)
    assert agrees(np.array(session.verify_run()), ref, scale, LIBRARY.tolerance)
    assert session.memory.workspace == 0
    session.close()
