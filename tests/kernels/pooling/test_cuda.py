"""The pooling ladders on a real GPU: every rung at any shape and tile size, every preset, hard values, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.ladders import ladder_of
from kernels.machine.timing import Budget
from kernels.model.program import Launch
from kernels.model.verify import agrees, by_output, relative_error
from kernels.pooling import reference
from kernels.pooling.ladder import LADDERS as POOLING
from kernels.pooling.shape import MaxPoolShape
from kernels.records import availability
from kernels.runner import compare, inputs_of, rung_reference
from tests.helpers.needs import needs_torch
from tests.helpers.pooling import KINDS, hard
from tests.kernels.pooling.test_ladder import ALIGNED, OTHERS, PATCHES, RUNGS, WINDOWS, shapes_of

pytestmark = pytest.mark.gpu


def computed(rung, s, tiles=None, inputs=None) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns (outputs, inputs) of a rung, without a comparison with the reference."""
    program = rung.build(s, rung.check(s, tiles))
    inputs = inputs or inputs_of(ladder_of(rung.name), s, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    outputs = {b.name: np.array(session.fetch(b.name)) for b in program.outputs}
    session.close()
    return outputs, inputs


def run_and_verify(rung, s, tiles=None, inputs=None) -> None:
    outputs, inputs = computed(rung, s, tiles, inputs)
    expected = by_output(ladder_of(rung.name).reference(s, **inputs), tuple(outputs))
    for name, (ref, scale) in rung_reference(rung, s, rung.check(s, tiles), inputs, expected).items():
        error = relative_error(outputs[name], ref)
        assert agrees(outputs[name], ref, scale, rung.tolerance), f"{name} {rung.name} {s} {tiles} {error}"


@settings(max_examples=60)
@given(data=st.data())
def test_rungs_agree_at_any_shape_and_tile_sizes(data):
    name = data.draw(st.sampled_from(OTHERS))
    tiles = {t: data.draw(st.sampled_from(choices)) for t, choices in RUNGS[name].tiles.items()}
    shape = data.draw(shapes_of(name))
    if availability.runs(RUNGS[name], shape, tiles):
        run_and_verify(RUNGS[name], shape, tiles)


@settings(max_examples=40)
@given(data=st.data())
def test_patches_agree_at_any_plane(data):
    """Each window is compiled once."""
    name, window = data.draw(st.sampled_from(PATCHES)), data.draw(st.sampled_from(WINDOWS))
    run_and_verify(RUNGS[name], data.draw(shapes_of(name, st.just(window))))


@pytest.mark.parametrize("name", PATCHES)
def test_every_tile_set_of_a_patch_agrees(name):
    shape = ALIGNED[name[:3]].with_(N=3, C=5, H=31, W=44)
    for tiles in RUNGS[name].tile_sets(shape):
        run_and_verify(RUNGS[name], shape, tiles)
        run_and_verify(RUNGS[name], shape.with_(W=41), tiles)


@pytest.mark.parametrize(
    ("ladder", "key"),
    [(ladder, key) for ladder in POOLING for key in ladder.presets],
    ids=lambda of: getattr(of, "name", of),
)
def test_every_preset(ladder, key):
    """The reference is computed once: `compare` verifies every rung against it."""
    shape = ladder.presets[key].shape
    ours = [r.name for r in ladder.rungs if not r.library and availability.runs(r, shape, r.default_tiles)]
    results = compare(ours, shape, engine="cuda", measure=False)
    assert [result.rung for result in results] == ours


@pytest.mark.parametrize("name", [n for n in RUNGS if n.startswith("max-pool/")])
@pytest.mark.parametrize("kind", KINDS)
def test_ties_infinities_and_nan_follow_pytorchs_rule(name, kind):
    for shape in (
        MaxPoolShape(2, 3, 27, 28, 3, 3, stride=2, pad=1),
        MaxPoolShape(2, 3, 27, 29, 3, 3, stride=2, pad=1, ceil=1),
    ):
        x = hard(kind, shape.x_shape)
        out, _ = computed(RUNGS[name], shape, inputs={"x": x})
        y, index = reference.maxima(shape, x)
        np.testing.assert_array_equal(out["y"], y)
        np.testing.assert_array_equal(out["index"], index)


@pytest.mark.parametrize("ladder", POOLING, ids=lambda ladder: ladder.name)
def test_no_kernel_spills(ladder):
    for rung in ladder.rungs[:-1]:
        for preset in ladder.presets.values():
            for step in rung.build(preset.shape, rung.default_tiles).steps:
                assert isinstance(step, Launch)
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, preset.key)


# -- PyTorch -----------------------------------------------------------------------------------------
@needs_torch
@pytest.mark.parametrize("ladder", POOLING, ids=lambda ladder: ladder.name)
@settings(max_examples=12)
@given(data=st.data())
def test_pytorch_agrees(ladder, data):
    run_and_verify(ladder.rungs[-1], data.draw(shapes_of(ladder.name)))


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
def test_pytorch_chooses_the_same_indices(kind):
    shape = MaxPoolShape(2, 3, 27, 28, 3, 3, stride=2, pad=1, ceil=1)
    x = hard(kind, shape.x_shape)
    out, _ = computed(POOLING[0].rungs[-1], shape, inputs={"x": x})
    y, index = reference.maxima(shape, x)
    np.testing.assert_array_equal(out["y"], y)
    np.testing.assert_array_equal(out["index"], index)


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
@pytest.mark.parametrize("ladder", POOLING, ids=lambda ladder: ladder.name)
def test_pytorch_is_timed_in_both_modes(ladder, mode):
    """Hot samples are captured graphs. After them the output is still right."""
    rung, shape = ladder.rungs[-1], list(ladder.presets.values())[1].shape
    program = rung.build(shape, {})
    inputs = inputs_of(ladder, shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    out = np.array(session.verify_run())
    expected = by_output(ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs))
    ref, scale = expected[program.outputs[0].name]
    assert agrees(out, ref, scale, rung.tolerance)
    session.close()
