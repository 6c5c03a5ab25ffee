"""What the lesson on precision shows of trainings on the digits: curves, gradients, one weight, a trained net in INT8.

`python -m kernels.precision.record` trains again and writes measured.npz and measured.json, in about a minute on two cores.
Every number is of kernels.precision.mixed on the processor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from kernels.model.row import Row
from kernels.precision.formats import BF16, FP16, FP32
from kernels.precision.integer import accuracies, ranges
from kernels.precision.mixed import MixedTraining, Run, Scaling
from kernels.precision.quantize import Quantizer

ARRAYS, FACTS = (Path(__file__).with_name(f"measured.{end}") for end in ("npz", "json"))
STEPS = 150  # of a curve: five epochs of 30 steps
TERMS = 2**18  # 512 x 512: the pixels of a segmentation, whose loss is a mean over them
SLOW = 1e-4  # a rate whose updates are often smaller than half the distance between FP16 numbers
NET_STEPS = 300  # of the net that is quantised
SAMPLE = 4096  # gradients kept of a tensor
GRADIENT_STEPS = (1, 50, 150)
# The gradients of the outputs of three layers and of two matrices of weights, from the last layer to the first.
GRADIENTS = ("d fc1.y", "d conv2.y", "d conv1.y", "d fc1.W", "d conv2.w")
RUNS: Mapping[str, Run] = {
    "fp32": Run(FP32, terms=TERMS),
    "none": Run(FP16, terms=TERMS),
    "static": Run(FP16, Scaling(2.0**16), terms=TERMS),
    "dynamic": Run(FP16, Scaling(2.0**40, 20), terms=TERMS),
    "master": Run(FP16, rate=SLOW),
    "lost": Run(FP16, master=False, rate=SLOW),
    "lost_bf16": Run(BF16, master=False, rate=SLOW),
    "fp32_slow": Run(FP32, rate=SLOW),
}
WEIGHT, WEIGHT_STEPS = "fc1.W", 24  # one element of it is followed


@dataclass(frozen=True)
class Curve:
    """A run, step by step: loss, scale, whether its update was skipped, the share of zeros among the gradients of weights;
    and the accuracy after the last step."""

    loss: np.ndarray
    scale: np.ndarray
    skipped: np.ndarray
    zeros: np.ndarray
    accuracy: float


# -- reading ---------------------------------------------------------------------------------------
@cache
def _arrays() -> Mapping[str, np.ndarray]:
    with np.load(ARRAYS) as file:
        return dict(file)


@cache
def facts() -> Row:
    return json.loads(FACTS.read_text(encoding="utf-8"))


def curve(name: str) -> Curve:
    """Returns the curve of a run of RUNS."""
    parts = {part: _arrays()[f"{name} {part}"] for part in ("loss", "scale", "skipped", "zeros")}
    return Curve(**parts, accuracy=facts()["accuracy"][name])


def gradient(name: str, at: int) -> np.ndarray:
    """Returns gradients of a tensor of GRADIENTS at a step of GRADIENT_STEPS, without a loss scale: float32, at most
    SAMPLE of them at equal distances."""
    return _arrays()[f"gradient {name} {at}"]


def followed(name: str) -> np.ndarray:
    """Returns the followed weight of run "master" or "lost" before the first step and after each: float32."""
    return _arrays()[f"weight {name}"]


def activations(layer: str, calibration: str) -> Quantizer:
    """Returns the recorded quantizer of what a layer reads, by one of CALIBRATIONS."""
    scale, zero_point = facts()["ranges"][calibration][layer]
    return Quantizer(np.array([scale]), np.array([zero_point], np.int32))


def net() -> np.ndarray:
    """Returns the weights of the net that is quantised: the buffer of LeNet-5."""
    return _arrays()["net"]


# -- recording -------------------------------------------------------------------------------------
def run(name: str, steps: int) -> tuple[dict[str, np.ndarray], float]:
    """Returns the arrays of the first steps of a run, by name, and its accuracy after them."""
    training = MixedTraining(RUNS[name])
    points = [training.next() for _ in range(steps)]
    arrays = {
        f"{name} loss": np.array([p.loss for p in points], np.float32),
        f"{name} scale": np.array([p.scale for p in points], np.float64),
        f"{name} skipped": np.array([p.skipped for p in points]),
        f"{name} zeros": np.array([p.zeros for p in points], np.float32),
    }
    return arrays, training.accuracy()


def paths(name: str, steps: int) -> np.ndarray:
    """Returns the elements of WEIGHT in a run before the first step and after each: float32 [steps + 1, elements]."""
    training = MixedTraining(RUNS[name])
    found = [np.array(training.tensor(WEIGHT)).ravel()]
    for _ in range(steps):
        training.next()
        found.append(np.array(training.tensor(WEIGHT)).ravel())
    return np.array(found)


def weights() -> dict[str, np.ndarray]:
    """Returns one element of WEIGHT in the runs "master" and "lost": the one that moves furthest in FP32 among those
    that stay where they are in FP16, and whose every update is smaller than half the distance between FP16 numbers."""
    master, lost = paths("master", WEIGHT_STEPS), paths("lost", WEIGHT_STEPS)
    unit = distance(lost[0])
    small = np.abs(np.diff(master, axis=0)).max(axis=0) < 0.5 * unit
    stays = (lost == lost[0]).all(axis=0)
    at = int(np.where(small & stays, np.abs(master[-1] - master[0]) / unit, 0).argmax())
    return {"weight master": master[:, at], "weight lost": lost[:, at]}


def distance(w: np.ndarray) -> np.ndarray:
    """Returns the distance between FP16 numbers at each w: float64."""
    exponent = np.maximum(np.frexp(np.asarray(w, np.float64))[1] - 1, FP16.min_exponent)
    return np.ldexp(1.0, exponent - FP16.mantissa_bits)


def gradients() -> dict[str, np.ndarray]:
    """Returns the sampled gradients of an FP32 run, by name and step."""
    training, found = MixedTraining(Run(FP32)), {}
    for at in range(1, GRADIENT_STEPS[-1] + 1):
        training.next()
        if at in GRADIENT_STEPS:
            for name in GRADIENTS:
                values = training.tensor(name).ravel()
                found[f"gradient {name} {at}"] = np.array(values[:: max(1, -(-values.size // SAMPLE))])
    return found


def trained() -> np.ndarray:
    """Returns the weights of LeNet-5 after NET_STEPS steps in FP32."""
    training = MixedTraining(Run(FP32))
    for _ in range(NET_STEPS):
        training.next()
    return np.array(training.weights)


def write() -> None:
    """Write measured.npz and measured.json from new trainings."""
    arrays, accuracy = gradients() | weights(), {}
    for name in RUNS:
        found, accuracy[name] = run(name, STEPS)
        arrays |= found
        print(name, accuracy[name], flush=True)
    arrays["net"] = trained()
    np.savez_compressed(ARRAYS, allow_pickle=False, **arrays)
    found = {"accuracy": accuracy, "int8": accuracies(arrays["net"]), "ranges": ranges(arrays["net"])}
    FACTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
