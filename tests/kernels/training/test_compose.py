"""Programs one after another on shared tensors."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, View
from kernels.softmax.shape import SoftmaxShape
from kernels.training.compose import Part, compose, live_bytes

S = SoftmaxShape(4, 6)
ONLINE = find("softmax/online").build(S, {"BLOCK": 32})


def chain(shape=(2, 2, 6)):
    """Returns softmax of softmax of x, the tensor between them in another shape."""
    tensors = (Buffer("x", INPUT, (4, 6)), Buffer("between", WORKSPACE, shape), Buffer("y", OUTPUT, (24,)))
    first = Part("first", ONLINE, {"x": "x", "y": "between"})
    second = Part("second", ONLINE, {"x": "between", "y": "y"})
    return compose(tensors, (first, second))


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("engine", [cpu, emulator], ids=["cpu", "emulator"])
def test_the_second_reads_what_the_first_wrote(engine):
    x = np.random.default_rng(0).standard_normal((4, 6), dtype=np.float32)
    session = engine.Session(chain(), {"x": x}, *([Options()] if engine is emulator else []))
    np.testing.assert_allclose(session.verify_run().reshape(4, 6), softmax(softmax(x.astype(float))), rtol=1e-5)


def test_steps_are_named_after_their_part():
    assert [step.name for step in chain().steps] == ["first: online", "second: online"]


def test_a_buffer_that_is_not_shared_is_workspace_of_its_part():
    part = Part("alone", ONLINE, {"x": "x"})
    program = compose((Buffer("x", INPUT, (4, 6)),), (part,))
    assert [(b.name, b.role) for b in program.buffers] == [("x", INPUT), ("alone.y", WORKSPACE)]


@pytest.mark.parametrize("shape", [(4, 5), (4, 7)])
def test_a_tensor_of_other_bytes_is_refused(shape):
    with pytest.raises(ValueError, match=r"first: y \[4, 6\] float32 cannot be between"):
        chain(shape)


def test_an_unknown_tensor_is_refused():
    with pytest.raises(ValueError, match="z, which is no tensor"):
        compose((), (Part("first", ONLINE, {"x": "z"}),))


def test_a_tensor_lives_from_its_first_use_to_its_last():
    assert live_bytes(chain()) == [{"between": 96}, {"between": 96}]


# -- views ------------------------------------------------------------------------------------------
def halves():
    """Returns softmax of the second half of x into the first half of y."""
    tensors = Buffer("x", INPUT, (48,)), Buffer("y", OUTPUT, (50,)), Buffer("t", WORKSPACE, (30,))
    views = View("x2", "x", 24, (4, 6)), View("y1", "y", 0, (24,)), View("middle", "t", 3, (4, 6))
    parts = Part("to", ONLINE, {"x": "x2", "y": "middle"}), Part("from", ONLINE, {"x": "middle", "y": "y1"})
    return compose(tensors, parts, views)


@pytest.mark.parametrize("engine", [cpu, emulator], ids=["cpu", "emulator"])
def test_a_step_reads_and_writes_a_part_of_a_buffer(engine):
    x = np.random.default_rng(0).standard_normal(48, dtype=np.float32)
    session = engine.Session(halves(), {"x": x}, *([Options()] if engine is emulator else []))
    for _ in range(2):  # a second check poisons the whole buffer again
        y = session.verify_run()
        np.testing.assert_allclose(
            y[:24].reshape(4, 6), softmax(softmax(x[24:].reshape(4, 6).astype(float))), rtol=1e-5
        )
        assert np.isnan(y[24:]).all()
        np.testing.assert_array_equal(session.fetch("y1"), y[:24])


def test_a_part_of_a_tensor_keeps_all_of_it():
    assert live_bytes(halves()) == [{"t": 120}, {"t": 120}]


def test_a_view_beyond_its_buffer_is_refused():
    tensors = (Buffer("x", INPUT, (24,)),)
    view = View("late", "x", 1, (24,))
    with pytest.raises((AssertionError, ValueError)):
        emulator.Session(compose(tensors, (), (view,)), {"x": np.zeros(24, np.float32)}, Options())
    with pytest.raises(ValueError, match="begins before"):
        View("early", "x", -1, (2,))
