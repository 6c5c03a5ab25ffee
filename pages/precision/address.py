"""The URL of the lesson on precision: the topic on the stage, its fields, the rung of the strip. All functions are pure.

Each topic has fields of its own. The strip measures the ladder on instructions, with the rung that computes in the topic's
format. In the topic on 8-bit products it measures their ladder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kernels.gemm.eight_bit.shape import EightBitShape
from kernels.i18n import cached, mark
from kernels.model.row import Row
from kernels.model.rung import Ladder
from kernels.model.shape import Bound, Shape
from kernels.precision import record
from kernels.precision.integer import CHANNEL, LAYERS, TENSOR
from kernels.precision.ladder import LADDER
from kernels.precision.presets import RATE_PRESETS
from kernels.precision.quantize import CALIBRATIONS
from pages.parts.address import Choice, Fields, Number, Values
from visuals.precision import activations, bits, curves, histogram, int8, products, sums, weight
from visuals.precision.instructions import SHAPE, instruction_scene
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

TOPIC = "topic"
BITS, GRADIENTS, SCALING, WEIGHTS, SUMS, INT8, INSTRUCTIONS, PRODUCTS = (
    "bits",
    "gradients",
    "scaling",
    "weights",
    "sums",
    "int8",
    "instructions",
    "products",
)
TITLES = {
    BITS: mark("a number"),
    GRADIENTS: mark("gradients"),
    SCALING: mark("loss scale"),
    WEIGHTS: mark("weights"),
    SUMS: mark("sums"),
    INT8: "INT8",
    INSTRUCTIONS: mark("instructions"),
    PRODUCTS: mark("8-bit products"),
}
MAX_X = 1e9
ONE, RUNS = "one", "runs"  # pictures of the topic on weights
OF_WEIGHTS, ACTIVATIONS = "weights", "activations"  # numbers that become INT8
FORMATS = ("FP16", *(name for name in bits.NAMES if name != "FP16"))
TENSORS = tuple(name.removeprefix("d ") for name in reversed(record.GRADIENTS))
KERNELS = tuple(rung.name.partition("/")[2] for rung in products.LADDER.rungs if not rung.library)
PROMOTED = "wgmma-fp8-promoted"
RUNGS = tuple(rung.name.partition("/")[2] for rung in LADDER.rungs)
FIELDS: Mapping[str, Row] = {
    BITS: {"format": Choice("FP16", FORMATS, width=158), "x": Number(0.1, -MAX_X, MAX_X, whole=False, width=150)},
    GRADIENTS: {
        "format": Choice("FP16", tuple(name for name in FORMATS if name != bits.INT8), width=158),
        "tensor": Choice(
            "conv1.y", ("conv1.y", *(name for name in TENSORS if name != "conv1.y")), mark("gradients of"), 200
        ),
        "at": Choice(record.GRADIENT_STEPS[-1], record.GRADIENT_STEPS[::-1], mark("training step"), 190),
    },
    SCALING: {},
    WEIGHTS: {"picture": Choice(ONE, (ONE, RUNS), width=140)},
    SUMS: {},
    INT8: {
        "numbers": Choice(OF_WEIGHTS, (OF_WEIGHTS, ACTIVATIONS), width=170),
        "layer": Choice("fc2", ("fc2", *(n for n in LAYERS if n != "fc2")), width=130),
        "output": Number(3, 0, 119, width=100),
        "scales": Choice(TENSOR, (TENSOR, CHANNEL), mark("one scale per"), 190),
        "calibration": Choice("extremes", tuple(CALIBRATIONS), width=190),
    },
    INSTRUCTIONS: {"rung": Choice("ffma", RUNGS, mark("instruction"), 200)},
    PRODUCTS: {"kernel": Choice(PROMOTED, (PROMOTED, *(name for name in KERNELS if name != PROMOTED)), width=250)},
}
# The rung that computes with a topic's numbers.
RUNG_OF_FORMAT = {"FP32": "ffma", "FP16": "hfma2", bits.INT8: "dp4a"}  # else the tensor cores'
RUNG_OF_TOPIC = {SUMS: "hfma2", INT8: "dp4a"}
TENSOR_CORE = "mma-fp16"
REAL = RATE_PRESETS["rate-full"].shape


def topic(params: Mapping[str, str]) -> str:
    """Returns the topic that the URL selects."""
    name = params.get(TOPIC)
    return name if name in TITLES else BITS


@cached(16)
def fields(topic: str) -> Fields:
    return Fields(f"precision {topic}", FIELDS[topic])


def bounds(topic: str, values: Values) -> dict[str, Bound]:
    """Returns the range of each number of a topic; that of an output depends on the layer."""
    found = fields(topic).bounds
    return found | {"output": Bound(0, outputs(values["layer"]) - 1)} if topic == INT8 else found


@cached(16)
def outputs(layer: str) -> int:
    """Returns the outputs of a layer of the trained net."""
    return int8.layer_weights(layer).shape[1]


def ladder(topic: str) -> Ladder:
    """Returns the ladder that the strip measures."""
    return products.LADDER if topic == PRODUCTS else LADDER


def stage_shape(topic: str, values: Values) -> Any:
    """Returns the small shape of the strip's rung."""
    if topic == PRODUCTS:
        return products.LADDER.shape(64, 64, 64, "fp8" if "fp8" in values["kernel"] else "int8")
    return STAGE_SHAPE


def of_preset(shape: Shape) -> dict[str, str]:
    """Returns the URL parameters of a link to a preset of one of the two ladders."""
    if isinstance(shape, EightBitShape):
        return {"topic": PRODUCTS, "kernel": PROMOTED if shape.dtype == "fp8" else "wgmma-int8"}
    return {"topic": INSTRUCTIONS}


def rung(topic: str, values: Values) -> str:
    """Returns the name of the rung whose times the strip shows."""
    if topic == PRODUCTS:
        return f"{products.LADDER.name}/{values['kernel']}"
    if topic == INSTRUCTIONS:
        name = values["rung"]
    elif topic == BITS:
        name = RUNG_OF_FORMAT.get(values["format"], TENSOR_CORE)
    else:
        name = RUNG_OF_TOPIC.get(topic, TENSOR_CORE)
    return f"{LADDER.name}/{name}"


def computes_in(topic: str, values: Values) -> bool:
    """Returns whether the strip's rung computes in the format of the topic."""
    return values.get("format", "FP16") in RUNG_OF_FORMAT


def scene(topic: str, values: Values) -> Scene:
    return _scene(topic, tuple(values.items()))


def _instructions(values: Values) -> Scene:
    name = rung(INSTRUCTIONS, values)
    return instruction_scene(name, LADDER.rung(name).default_tiles)


def _gradients(values: Values) -> Scene:
    name = f"d {values['tensor']}"
    return histogram.histogram_scene(name, values["at"], record.gradient(name, values["at"]), values["format"])


def _int8(values: Values) -> Scene:
    layer = values["layer"]
    if values["numbers"] == ACTIVATIONS:
        return activations.activations_scene(layer, values["calibration"])
    return int8.int8_scene(layer, min(values["output"], outputs(layer) - 1), values["scales"])


def unused(values: Values) -> set[str]:
    """Returns the fields of a topic that its other values make meaningless."""
    if "numbers" not in values:
        return set()
    return {"output", "scales"} if values["numbers"] == ACTIVATIONS else {"calibration"}


SCENES: Mapping[str, Callable[[Values], Scene]] = {
    BITS: lambda values: bits.bits_scene(values["format"], values["x"]),
    GRADIENTS: _gradients,
    SCALING: lambda values: curves.curves_scene(curves.SCALING),
    WEIGHTS: lambda values: weight.weight_scene() if values["picture"] == ONE else curves.curves_scene(curves.WEIGHTS),
    SUMS: lambda values: sums.sums_scene(),
    INT8: _int8,
    INSTRUCTIONS: _instructions,
    PRODUCTS: lambda values: sums.fp8_scene(),
}


@cached(MAX_CACHED_SCENES)
def _scene(topic: str, items: tuple[tuple[str, object], ...]) -> Scene:
    return SCENES[topic](dict(items))


def curve(topic: str) -> Row | None:
    """Returns the curves of a topic's recorded trainings for the strip, or None."""
    names = {SCALING: curves.SCALING, WEIGHTS: curves.WEIGHTS}.get(topic)
    return curves.strip_curve(names) if names else None


def real(shape: Shape) -> Shape:
    """Returns the shape at which rates count."""
    return replace(shape, M=4096, N=4096, K=4096) if isinstance(shape, products.LADDER.shape) else REAL


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    found = topic(params)
    return scene(found, fields(found).read(params)[0])


STAGE_SHAPE = SHAPE
