"""The ladder on instructions on a real GPU: exact at any shape and block size; tensor cores are not slower than FP32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.precision import reference
from kernels.precision.ladder import LADDER
from kernels.precision.presets import RATE_PRESETS
from kernels.precision.shape import RateShape
from kernels.records import availability
from kernels.runner import compare, seeded_inputs

pytestmark = pytest.mark.gpu
shapes = st.builds(RateShape, st.integers(1, 3000), st.integers(1, 300))


def assert_exact(rung, shape: RateShape, tiles) -> None:
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = seeded_inputs(program.of_role("input"))
    session = cuda.open(program, inputs)
    C = np.array(session.verify_run())
    session.close()
    np.testing.assert_array_equal(C, reference.rate(shape, **inputs)[0])


@settings(max_examples=60)
@given(data=st.data())
def test_every_rung_is_exact_at_any_shape(data):
    shape, rung = data.draw(shapes), data.draw(st.sampled_from(LADDER.rungs))
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        assert_exact(rung, shape, tiles)


@pytest.mark.parametrize("rung", LADDER.rungs, ids=lambda rung: rung.name)
@pytest.mark.parametrize("key", RATE_PRESETS)
def test_every_preset_is_exact(rung, key):
    shape = RATE_PRESETS[key].shape
    if not availability.runs(rung, shape, rung.default_tiles):
        pytest.skip("an older GPU")
    assert_exact(rung, shape, rung.default_tiles)


@pytest.mark.alone
def test_more_multiply_adds_of_an_instruction_are_faster():
    """Both kernels of tensor cores beat FP32 multiply-adds at the full shape, as 64 times the products must."""
    names = ("instruction-rate/ffma", "instruction-rate/mma-fp16", "instruction-rate/mma-int8")
    rows = {r.rung: r.measurement.median_ms for r in compare(names, RATE_PRESETS["rate-full"].shape, engine="cuda")}
    assert max(rows[name] for name in names[1:]) < rows[names[0]]
