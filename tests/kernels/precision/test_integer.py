"""The digits net in INT8: the same network as in training, whole numbers alone, its recorded accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.precision import integer, record
from kernels.precision.integer import (
    CHANNEL,
    LAYERS,
    TENSOR,
    Inputs,
    Quantized,
    calibrated,
    exact,
    forward,
    matrix,
    weights_of,
)
from kernels.precision.quantize import CALIBRATIONS
from kernels.training.digits import load
from kernels.training.inference import outputs

TRAINING, TEST = load(32)


def test_the_forward_pass_is_that_of_training():
    images = TEST.images[:5]
    expected = outputs("lenet5", {"weights": record.net()}, images)
    np.testing.assert_allclose(forward(record.net(), images, exact), expected, rtol=1e-4, atol=1e-4)


def test_the_left_factors_are_kept_for_calibration():
    inputs = Inputs()
    forward(record.net(), TEST.images[:2], inputs)
    sizes = {layer: a.shape for layer, a in inputs.by_layer.items()}
    assert sizes == {"conv1": (1568, 25), "conv2": (200, 150), "fc1": (2, 400), "fc2": (2, 120), "fc3": (2, 84)}


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_layer_in_int8_is_near_its_product(calibration):
    quantizers = calibrated(record.net(), calibration, TRAINING.images[:16])
    inputs = Inputs()
    forward(record.net(), TRAINING.images[:16], inputs)
    for layer in LAYERS:
        a, b = inputs.by_layer[layer], matrix(weights_of(record.net()), layer)
        expected = a @ b
        errors = [np.linalg.norm(Quantized(quantizers, per)(layer, a, b) - expected) for per in (TENSOR, CHANNEL)]
        assert max(errors) < 0.05 * np.linalg.norm(expected)


def test_a_range_of_another_layer_would_be_found():
    quantizers = calibrated(record.net(), "extremes", TRAINING.images[:16])
    images = TEST.images[:40]
    reference = forward(record.net(), images, exact)

    def error() -> float:
        found = forward(record.net(), images, Quantized(quantizers, CHANNEL))
        return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))

    assert error() < 0.05
    quantizers["fc1"] = quantizers["conv1"]  # of pixels, 0 to 1
    assert error() > 0.3


def test_the_recorded_ranges_and_accuracies_are_measured_again(monkeypatch):
    """A calibration takes a second, so both use the same three."""
    done: dict = {}

    def once(flat, name, images):
        key = name, images.tobytes()
        return done[key] if key in done else done.setdefault(key, calibrated(flat, name, images))

    monkeypatch.setattr(integer, "calibrated", once)
    found = integer.ranges(record.net())
    for name in CALIBRATIONS:
        for layer in LAYERS:
            assert found[name][layer] == pytest.approx(record.facts()["ranges"][name][layer], rel=1e-6)
            assert record.activations(layer, name).scale[0] == record.facts()["ranges"][name][layer][0]
    assert integer.accuracies(record.net()) == [
        row | {"error": pytest.approx(row["error"], rel=1e-6)} for row in record.facts()["int8"]
    ]
    assert len(done) == len(CALIBRATIONS)
