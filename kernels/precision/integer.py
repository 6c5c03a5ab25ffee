"""The trained LeNet-5 in INT8: weights by tensor or by channel, activations by one of three calibrations.

Every matrix product is of whole numbers (kernels.precision.quantize.product). Biases, ReLU and pooling stay in FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.model.row import Json
from kernels.precision.quantize import CALIBRATIONS, Quantizer, by_channel, by_extremes, product
from kernels.training import step
from kernels.training.digits import Digits, load
from kernels.training.networks import LENET5

CALIBRATION_IMAGES = 256  # of the training images
TENSOR, CHANNEL = "tensor", "channel"
LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
Multiply = Callable[[str, np.ndarray, np.ndarray], np.ndarray]  # (layer, a [M, K], b [K, N]) -> [M, N]


def weights_of(flat: np.ndarray) -> dict[str, np.ndarray]:
    """Returns each weight of LeNet-5 from the buffer of all: "conv1.w", "fc1.b" ..."""
    graph = step.build(LENET5, 1, step.ON_CPU)
    return {view.name: view.cut(flat) for view in graph.views if view.of == step.WEIGHTS}


def matrix(weights: Mapping[str, np.ndarray], layer: str) -> np.ndarray:
    """Returns the weights of a layer as a matrix [inputs of a sum, outputs]."""
    found = weights[f"{layer}.w" if f"{layer}.w" in weights else f"{layer}.W"]
    return found.reshape(len(found), -1).T


def forward(flat: np.ndarray, images: np.ndarray, multiply: Multiply) -> np.ndarray:
    """Returns the outputs [n, 10], float64, for images [n, 1, 32, 32]; `multiply` computes each matrix product."""
    weights, x = weights_of(flat), images.astype(np.float64)
    for layer in LAYERS:
        b = weights[f"{layer}.b"]
        if layer.startswith("conv"):
            x = _pooled(np.maximum(_convolved(x, layer, matrix(weights, layer), multiply) + b[:, None, None], 0))
        else:
            x = multiply(layer, x.reshape(len(x), -1), matrix(weights, layer)) + b
            x = np.maximum(x, 0) if layer != LAYERS[-1] else x
    return x


def _convolved(x: np.ndarray, layer: str, w: np.ndarray, multiply: Multiply) -> np.ndarray:
    """Returns a convolution with filters of 5 x 5 by im2col: [n, C, H, W] -> [n, K, H - 4, W - 4]."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))  # [n, C, P, Q, 5, 5]
    n, _, P, Q = windows.shape[:4]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * P * Q, -1)
    return multiply(layer, rows, w).reshape(n, P, Q, -1).transpose(0, 3, 1, 2)


def _pooled(x: np.ndarray) -> np.ndarray:
    n, C, H, W = x.shape
    return x.reshape(n, C, H // 2, 2, W // 2, 2).max(axis=(3, 5))


def exact(layer: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b


@dataclass
class Inputs:
    """Keeps the left factor of each layer's product: what is calibrated."""

    by_layer: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, layer: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.by_layer[layer] = a
        return a @ b


@dataclass(frozen=True)
class Quantized:
    """Computes each product in INT8: the quantizer of each layer's activations, and how weights are scaled."""

    activations: Mapping[str, Quantizer]
    per: str  # TENSOR or CHANNEL

    def weights(self, b: np.ndarray) -> Quantizer:
        """Returns the symmetric quantizer of a matrix of weights [K, N]."""
        return by_channel(b, axis=1) if self.per == CHANNEL else by_extremes(b, symmetric=True)

    def __call__(self, layer: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return product(a, b, self.activations[layer], self.weights(b))


def calibrated(flat: np.ndarray, calibration: str, images: np.ndarray) -> dict[str, Quantizer]:
    """Returns the quantizer of each layer's activations from example images, with a zero point."""
    inputs = Inputs()
    forward(flat, images, inputs)
    return {layer: CALIBRATIONS[calibration](a, symmetric=False) for layer, a in inputs.by_layer.items()}


def ranges(flat: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Returns scale and zero point of each layer's activations, by calibration and layer."""
    images = load(LENET5.size)[0].images[:CALIBRATION_IMAGES]
    return {
        name: {layer: [float(q.scale[0]), int(q.zero_point[0])] for layer, q in calibrated(flat, name, images).items()}
        for name in CALIBRATIONS
    }


def accuracies(flat: np.ndarray, test: Digits | None = None) -> list[Json]:
    """Returns a row for FP32, then one for each choice of scales and calibration: its accuracy on the test images, and the
    relative error of the outputs."""
    training, own = load(LENET5.size)
    return list(_rows(flat, training.images[:CALIBRATION_IMAGES], test or own))


def _rows(flat: np.ndarray, examples: np.ndarray, test: Digits) -> Iterator[Json]:
    reference = forward(flat, test.images, exact)
    yield _row("", "", reference, reference, test)
    for calibration in CALIBRATIONS:
        activations = calibrated(flat, calibration, examples)
        for per in (TENSOR, CHANNEL):
            outputs = forward(flat, test.images, Quantized(activations, per))
            yield _row(per, calibration, outputs, reference, test)


def _row(per: str, calibration: str, outputs: np.ndarray, reference: np.ndarray, test: Digits) -> Json:
    right = int((outputs.argmax(axis=1) == test.labels).sum())
    error = float(np.linalg.norm(outputs - reference) / np.linalg.norm(reference))
    return {"per": per, "calibration": calibration, "right": right, "of": len(test), "error": error}
