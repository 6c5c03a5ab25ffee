"""Training on the digits: it learns, stops, goes on, and names what is wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels.model.program import RuleError
from kernels.training import step
from kernels.training.inference import outputs, predicted
from kernels.training.loop import Diverged, Settings, Training, continued, step_of
from kernels.training.step import Memory

FAST = Settings("residual", 50, "sgd", {"lr": 0.1})


def losses(training: Training, count: int) -> list[float]:
    return [point.loss for point in itertools.islice(training.run(1000), count)]


@pytest.mark.parametrize(("network", "rate"), [("lenet5", 0.05), ("transformer", 0.03)])
def test_it_learns(network, rate):
    """The residual net learns in test_memory."""
    training = Training(Settings(network, 50, "sgd", {"lr": rate}))
    before = training.accuracy()
    points = list(training.run(2))
    assert [p.step for p in points] == list(range(1, 61)) and {p.epoch for p in points} == {0, 1}
    assert np.mean([p.loss for p in points[-10:]]) < 0.4 < 2 < points[0].loss
    assert before < 0.3 and training.accuracy() > 0.75


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(optimizer):
    settings = Settings("residual", 40, optimizer, {"lr": 0.01})
    whole = Training(settings)
    all_losses = losses(whole, 4)
    first = Training(settings)
    losses(first, 2)
    second = Training(settings, state=first.state())
    assert losses(second, 2) == all_losses[2:]
    for name, array in whole.state().arrays.items():
        np.testing.assert_array_equal(array, second.state().arrays[name], err_msg=name)


@pytest.mark.parametrize("memory", [Memory(), Memory(every=2, parts=4)])
def test_a_later_step_of_adam_is_what_a_new_graph_would_be(memory):
    settings = Settings("residual", 40, "adam", {"lr": 0.01}, memory=memory)
    first, later = step_of(settings, 0, "cpu"), step_of(settings, 6, "cpu")
    built = step.cached("residual", 40, cpu=True, optimizer="adam", factors=(("lr", 0.01), ("step", 7)), memory=memory)
    assert later[0].nodes == built[0].nodes and later[1].buffers == built[1].buffers
    for found, expected in zip(later[1].steps, built[1].steps, strict=True):
        assert (found.name, found.args) == (expected.name, expected.args)
    assert later[1].steps[:-1] == first[1].steps[:-1] and later[1].steps[-1] != first[1].steps[-1]


def test_a_state_is_a_copy():
    training = Training(FAST)
    losses(training, 1)
    state = training.state()
    kept = {name: a.copy() for name, a in state.arrays.items()}
    losses(training, 1)
    assert all(np.array_equal(state.arrays[name], a) for name, a in kept.items())
    assert any(not np.array_equal(training.state().arrays[name], a) for name, a in kept.items())


def test_a_rate_that_is_too_large_is_named():
    training = Training(Settings("residual", 20, "sgd", {"lr": 1e30}))
    rule = r"step 2: stem norm.y of stem norm is no finite number; a smaller learning rate may help"
    with pytest.raises(Diverged, match=rule):
        losses(training, 4)


def test_another_rate_may_go_on():
    training = Training(FAST)
    losses(training, 1)
    slower = continued(FAST, training.state(), factors={"lr": 0.0})
    before = slower.state().arrays["weights"]
    losses(slower, 1)
    np.testing.assert_array_equal(slower.state().arrays["weights"], before)
    assert slower.steps == 2


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"network": "alexnet"}, "network must be one of lenet5, residual, transformer, got alexnet"),
        ({"optimizer": "rprop"}, "optimizer must be one of sgd, adam, got rprop"),
        ({"batch": 0}, "batch must be in 1 .. 1500, got 0"),
        ({"batch": 1501}, "batch must be in 1 .. 1500, got 1501"),
    ],
)
def test_bad_settings_name_the_rule(changes, rule):
    with pytest.raises(RuleError, match=rule):
        Training(Settings(**({"network": "residual"} | changes)))


def test_the_images_of_an_epoch_come_once_in_an_order_of_its_own():
    training = Training(Settings("residual", 50))
    n = training.steps_per_epoch
    first, second = (np.concatenate([training._batch(e * n + k)[0] for k in range(n)]) for e in (0, 1))
    images = training.images.images
    assert not np.array_equal(first, second) and not np.array_equal(first, images)
    np.testing.assert_array_equal(
        np.sort(first.reshape(len(images), -1), axis=0), np.sort(images.reshape(len(images), -1), axis=0)
    )


def test_inference_uses_the_running_statistics():
    training = Training(FAST)
    losses(training, 3)
    arrays, images = dict(training.state().arrays), training.test.images[:30]
    whole = outputs("residual", arrays, images)
    # An image's outputs do not depend on the images beside it, as those of a batch's statistics would.
    np.testing.assert_allclose(outputs("residual", arrays, images[:7]), whole[:7], rtol=1e-4, atol=1e-5)
    assert predicted("residual", arrays, images).shape == (30,)
    arrays["running stem norm.mean"] = arrays["running stem norm.mean"] + 1
    assert np.abs(outputs("residual", arrays, images) - whole).max() > 0.01
