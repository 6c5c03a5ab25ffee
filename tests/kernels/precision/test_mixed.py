"""Training with rounded values: in FP32 it is the training of kernels.training; loss scale, master weights, recorded runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels.precision import record
from kernels.precision.formats import BF16, FP16, FP32, rounded
from kernels.precision.mixed import MixedTraining, Run, Scaling, to_format
from kernels.training import step
from kernels.training.loop import Settings, Training

BATCH = 20


def steps(run: Run, count: int):
    training = MixedTraining(run)
    return training, [training.next() for _ in range(count)]


def test_in_fp32_it_is_the_training_of_the_lesson_on_training():
    training = Training(Settings("lenet5", BATCH, "sgd", {"lr": 0.05}))
    expected = [point.loss for point in itertools.islice(training.run(1), 4)]
    mixed, points = steps(Run(FP32, batch=BATCH), 4)
    assert [point.loss for point in points] == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(mixed.weights, training.state().arrays["weights"])


def test_a_mean_over_more_terms_changes_no_bit_in_fp32():
    plain, points = steps(Run(FP32, batch=BATCH), 3)
    spread, others = steps(Run(FP32, batch=BATCH, terms=2**18), 3)
    assert points == others
    np.testing.assert_array_equal(plain.weights, spread.weights)


@pytest.mark.parametrize("f", [FP16, BF16], ids=lambda f: f.name)
def test_every_tensor_of_a_step_is_a_number_of_the_format(f):
    training, _ = steps(Run(f, batch=BATCH), 1)
    for name in ("conv1.y", "relu3.y", "fc3.y", "d fc3.y", "d conv2.y", "d conv1.y"):
        values = training.tensor(name)
        np.testing.assert_array_equal(values, rounded(values, f), err_msg=name)
    weights = training.weights  # kept in FP32
    assert (weights != rounded(weights, f)).any()


def test_without_master_weights_the_weights_are_numbers_of_the_format():
    training, _ = steps(Run(FP16, batch=BATCH, master=False), 2)
    np.testing.assert_array_equal(training.weights, rounded(training.weights, FP16))


def test_a_scale_that_overflows_is_halved_and_its_update_skipped():
    training = MixedTraining(Run(FP16, Scaling(2.0**40, 2), batch=BATCH))
    before = np.array(training.weights)
    point = training.next()
    assert point.skipped and point.scale == 2.0**40 and training.scale == 2.0**39
    np.testing.assert_array_equal(training.weights, before)
    while point.skipped:
        point = training.next()
    assert (training.weights != before).any() and np.isfinite(training.weights).all()


def test_a_dynamic_scale_grows_after_steps_without_an_overflow():
    _, points = steps(Run(FP16, Scaling(4.0, 2), batch=BATCH), 5)
    assert [point.scale for point in points] == [4, 4, 8, 8, 16] and not any(p.skipped for p in points)


def test_gradients_that_underflow_become_zero_and_a_scale_keeps_them():
    _, (lost,) = steps(Run(FP16, batch=BATCH, terms=2**20), 1)
    _, (kept,) = steps(Run(FP16, Scaling(2.0**20), batch=BATCH, terms=2**20), 1)
    assert lost.zeros > 0.9 > 0.6 > kept.zeros


def test_to_format_rounds_in_place():
    x = np.array([0.1, 70000.0, 1e-9], np.float32)
    to_format(x, FP16)
    np.testing.assert_array_equal(x, np.float32([np.float16(0.1), np.inf, 0]))


# -- what is recorded ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", record.RUNS)
def test_a_recorded_run_begins_as_it_is_recorded(name):
    arrays, _ = record.run(name, 2)
    found = record.curve(name)
    np.testing.assert_allclose(arrays[f"{name} loss"], found.loss[:2], rtol=2e-3)
    np.testing.assert_array_equal(arrays[f"{name} skipped"], found.skipped[:2])
    np.testing.assert_array_equal(arrays[f"{name} scale"], found.scale[:2])


def test_recorded_gradients_are_those_of_a_training_step():
    training, _ = steps(Run(FP32), 1)
    for name in record.GRADIENTS:
        values = training.tensor(name).ravel()
        sampled = values[:: max(1, -(-values.size // record.SAMPLE))]
        np.testing.assert_allclose(record.gradient(name, 1), sampled, rtol=1e-3, atol=1e-6 * np.abs(sampled).max())
        assert record.gradient(name, 150).size == sampled.size


def test_the_recorded_runs_say_what_the_lesson_says():
    losses = {name: record.curve(name).loss for name in record.RUNS}
    assert all(loss.shape == (record.STEPS,) for loss in losses.values())
    assert losses["none"][-30:].mean() > losses["none"][0]  # dies
    for name in ("fp32", "static", "dynamic"):
        assert losses[name][-30:].mean() < 0.3
    assert record.curve("dynamic").skipped.sum() > 0 and not record.curve("static").skipped.any()
    ends = [losses[name][-30:].mean() for name in ("fp32_slow", "master", "lost", "lost_bf16")]
    assert ends[0] == pytest.approx(ends[1], rel=0.01) and ends[1] < ends[2] < ends[3]


def test_the_followed_weight_loses_every_update_in_fp16():
    master, lost = record.followed("master"), record.followed("lost")
    assert len(master) == len(lost) == record.WEIGHT_STEPS + 1
    unit = float(record.distance(lost[0]))
    assert np.abs(np.diff(master.astype(np.float64))).max() < unit / 2
    assert (lost == lost[0]).all() and abs(master[-1] - master[0]) > 2 * unit
    assert unit == float(np.spacing(np.float16(abs(lost[0]))))


def test_the_weights_of_the_net_are_those_of_lenet():
    assert record.net().shape == MixedTraining(Run()).session.fetch(step.WEIGHTS).shape


def test_at_the_usual_loss_and_rate_fp16_learns_the_digits():
    """Even without weights in FP32. As the small print of the lesson says: its runs are hard on purpose."""
    _, points = steps(Run(FP16, master=False), 60)
    assert np.mean([point.loss for point in points[-15:]]) < 0.5 < 2 < points[0].loss
