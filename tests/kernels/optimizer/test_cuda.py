"""Optimisers on a real GPU: every rung at any list of tensors and tile size, at every preset, and ten steps of PyTorch's
own optimisers from the same start."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.verify import agrees, by_output
from kernels.optimizer import ladder as optimizer
from kernels.optimizer.shape import AdamShape, SgdShape
from kernels.runner import inputs_of, rung_reference
from tests.helpers import rung_runs
from tests.helpers.needs import needs_torch
from tests.kernels.optimizer.test_ladder import LIBRARIES, RUNGS, SHAPES

pytestmark = pytest.mark.gpu
ALL = RUNGS | LIBRARIES
PRESETS = [(name, key) for name, (ladder, _) in RUNGS.items() for key in ladder.presets]


def run_and_verify(name: str, shape, tiles=None) -> None:
    """Asserts that every array that a rung overwrites agrees with the float64 reference."""
    ladder, rung = ALL[name]
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs_of(ladder, shape, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    expected = by_output(ladder.reference(shape, **inputs), tuple(b.name for b in program.outputs))
    expected = rung_reference(rung, shape, tiles or {}, inputs, expected)
    for output, (ref, scale) in expected.items():
        assert agrees(session.fetch(output), ref, scale, rung.tolerance), f"{output} of {name} {shape} {tiles}"
    session.close()


@settings(max_examples=60)
@given(data=st.data())
def test_every_rung_agrees_at_any_list_and_tile_sizes(data):
    name = data.draw(st.sampled_from(list(RUNGS)))
    ladder, rung = RUNGS[name]
    shape = data.draw(SHAPES[ladder.name])
    run_and_verify(name, shape, data.draw(st.sampled_from(rung_runs.legal(rung, shape))))


@pytest.mark.parametrize(("name", "key"), PRESETS)
def test_every_preset(name, key):
    shape = ALL[name][0].presets[key].shape
    if shape.elements < 2**25:  # larger ones are verified when they are measured
        run_and_verify(name, shape)


def test_no_kernel_spills():
    for ladder, rung in RUNGS.values():
        shape = ladder.shape("5")
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, (rung.name, tiles)


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@pytest.mark.parametrize("name", LIBRARIES)
@settings(max_examples=10)
@given(data=st.data())
def test_pytorch_agrees(name, data):
    run_and_verify(name, data.draw(SHAPES[ALL[name][0].name]))


@needs_torch
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes(name, mode):
    ladder, rung = ALL[name]
    shape = ladder.presets[f"{ladder.name}-lenet"].shape
    program = rung.build(shape, {})
    session = cuda.open(program, inputs_of(ladder, shape, program))
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=0.2))
    assert min(timing.samples_ms) > 0
    session.close()


def torch_steps(torch, make, first: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Returns the weights after the steps of one of PyTorch's optimisers, in float64 on the processor."""
    w = torch.nn.Parameter(torch.tensor(first, dtype=torch.float64))
    chosen = make([w])
    for g in gradients:
        w.grad = torch.tensor(g, dtype=torch.float64)
        chosen.step()
    return w.detach().numpy()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("ladder", optimizer.LADDERS, ids=lambda ladder: ladder.name)
def test_ten_steps_are_those_of_pytorch_in_float64(ladder, weight_decay):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    first, gradients = rng.normal(size=64).astype(np.float32), rng.normal(size=(10, 64)).astype(np.float32)
    if ladder is optimizer.SGD:
        shapes = [SgdShape("64", weight_decay=weight_decay)] * 10
        expected = torch_steps(
            torch, lambda w: torch.optim.SGD(w, lr=0.01, momentum=0.9, weight_decay=weight_decay), first, gradients
        )
    else:
        shapes = [AdamShape("64", step=t, weight_decay=weight_decay) for t in range(1, 11)]
        expected = torch_steps(torch, lambda w: torch.optim.Adam(w, weight_decay=weight_decay), first, gradients)
    for rung in ladder.rungs[:3]:
        arrays = {b.name: np.zeros(64, np.float32) for b in rung.build(shapes[0], rung.default_tiles).in_place}
        arrays["w"] = first
        for shape, g in zip(shapes, gradients, strict=True):
            program = rung.build(shape, rung.default_tiles)
            inputs = {**arrays, "g": g} | optimizer.chunk_table(shape, {})
            session = cuda.open(program, inputs)
            session.verify_run()
            arrays = {b.name: session.fetch(b.name) for b in program.in_place}
            session.close()
        np.testing.assert_allclose(arrays["w"], expected, rtol=1e-5, atol=1e-6)
