"""Programs with several outputs, inputs that are overwritten, inputs in a range, and inputs that follow from others."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import ladders
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.memory.shape import AddShape
from kernels.model import values, verify
from kernels.model.program import INPUT, OUTPUT, Buffer, HostLoop, Program, RuleError
from kernels.model.rung import Cost, Ladder, Rung
from kernels.model.zero import zero
from kernels.runner import VerificationError, compare, inputs_of, run

S = AddShape(3, 5)


def take_largest(x, w, grown, index) -> None:
    """Adds 1 to w in place, and writes x + w and the index of the largest element of each row."""
    w += 1
    np.add(x, w, out=grown)
    index[...] = x.argmax(axis=1)


def program(change=take_largest) -> Program:
    buffers = (
        Buffer("x", INPUT, (S.M, S.N)),
        Buffer("w", INPUT, (S.M, S.N), in_place=True),
        Buffer("grown", OUTPUT, (S.M, S.N)),
        Buffer("index", OUTPUT, (S.M,), "int32"),
    )
    step = HostLoop("take", "gemm/cpu_loops.py", ("x", "w", "grown", "index"), change, lambda: None)
    return Program(buffers, (step,))


def reference(s, x, w):
    x, w = x.astype(np.float64), w.astype(np.float64)
    return {
        "grown": (x + w + 1, np.abs(x) + np.abs(w) + 1),
        "index": (x.argmax(axis=1), 0.0),
        "w": (w + 1, np.abs(w) + 1),
    }


def ladder(change=take_largest, **facts) -> Ladder:
    rung = Rung(
        "toy/take",
        "take",
        "",
        lambda s, tiles: program(change),
        lambda s, p: Cost(1, 1, 0),
        lambda s, tiles: (),
        1e-6,
        engines=("cpu",),
    )
    facts = {"reference": reference} | facts
    return Ladder("toy", AddShape, lambda text: S, rungs=(rung,), presets={}, engines=("cpu",), **facts)


@pytest.fixture
def toy(monkeypatch):
    """Returns a function that registers a ladder as "toy"."""

    def register(change=take_largest, **facts) -> Ladder:
        made = ladder(change, **facts)
        monkeypatch.setitem(ladders.LADDERS, "toy", made)
        return made

    return register


def test_every_output_is_compared_and_returned(toy):
    toy()
    result = run("toy/take", S, {"w": np.ones((S.M, S.N))}, engine="cpu", measure=False)
    assert list(result.outputs) == ["grown", "index", "w"]
    np.testing.assert_array_equal(result.output, result.outputs["grown"])
    assert 0 < result.error < 1e-6  # that of grown: index and w are exact


@pytest.mark.parametrize("name", ["grown", "index", "w"])
def test_a_fault_in_any_output_is_found(toy, name):
    def wrong(x, w, grown, index):
        take_largest(x, w, grown, index)
        array = {"grown": grown, "index": index, "w": w}[name]
        array.flat[-1] += 1

    toy(wrong)
    with pytest.raises(VerificationError, match=f"{name} of toy/take"):
        run("toy/take", S, engine="cpu", measure=False)


def test_an_output_without_a_reference_is_no_success(toy):
    made = toy()
    toy(reference=lambda s, **inputs: {"grown": made.reference(s, **inputs)["grown"]})
    with pytest.raises(VerificationError, match="computes"):
        run("toy/take", S, {"x": np.ones((S.M, S.N))}, engine="cpu", measure=False)


def test_an_input_in_place_is_set_anew_for_each_check():
    w = np.full((S.M, S.N), 4, np.float32)
    x = np.ones_like(w)
    session = cpu.Session(program(), {"x": x, "w": w})
    for _ in range(2):
        session.verify_run()
        session.run()
        np.testing.assert_array_equal(session.fetch("w"), 6)
    np.testing.assert_array_equal(w, 4)  # the caller's array is not changed


def test_the_emulator_sets_an_input_in_place_anew():
    buffer = Buffer("w", INPUT, (300,), in_place=True)
    session = emulator.Session(Program((buffer,), (zero("w", 299),)), {"w": np.ones(300, np.float32)}, Options())
    for _ in range(2):
        out = session.verify_run()
        assert not out[:299].any() and out[299] == 1
        session.memory.write("w", np.full(300, 7, np.float32))


def test_samples_of_a_program_in_place_are_timed(toy):
    toy()
    (result,) = compare(["toy/take"], S, engine="cpu")
    assert result.measurement.n > 0 and result.measurement.input_bytes == 2 * 4 * S.M * S.N


def test_whole_numbers_stay_below_their_bound():
    labels = Buffer("labels", INPUT, (1000,), "int32", below=7)
    drawn = values.random(np.random.default_rng(0), labels)
    assert set(drawn) == set(range(7))
    values.checked(labels, drawn)
    with pytest.raises(RuleError, match=r"0 .. 6"):
        values.checked(labels, drawn + 1)


def test_derived_inputs_follow_the_others(toy):
    made = toy(derive=lambda s, inputs: {"w": inputs["x"] * 2})
    arrays = inputs_of(made, S, program())
    np.testing.assert_array_equal(arrays["w"], arrays["x"] * 2)
    x = np.ones((S.M, S.N), np.float32)
    np.testing.assert_array_equal(run("toy/take", S, {"x": x}, engine="cpu", measure=False).output, x + 3)
    given = run("toy/take", S, {"x": x, "w": 0 * x}, engine="cpu", measure=False)
    np.testing.assert_array_equal(given.output, x + 1)


def test_whole_numbers_are_exact():
    assert verify.relative_error(np.array([3, 4], np.int32), np.array([3, 4])) == 0
    assert verify.agrees(np.array([3, 4], np.int32), np.array([3, 4]), 0.0, 1e-5)
    assert not verify.agrees(np.array([3, 5], np.int32), np.array([3, 4]), 0.0, 1e-5)
