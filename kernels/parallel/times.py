"""The time of each node of a training step at any number of images, predicted from the recorded times on an H200.

A node's time has a fixed part and a part that grows with the images. Both follow from the times at two batches of
kernels/records/training.json, each node's launches timed inside one CUDA graph.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kernels
from kernels.model.row import Row
from kernels.optimizer.shape import AdamShape, SgdShape
from kernels.training.graph import UPDATE, Node

FILE = Path(kernels.__file__).parent / "records" / "training.json"
PLAIN = {"every": 0, "parts": 1}
ARRAYS = {"sgd": SgdShape.ARRAYS, "adam": AdamShape.ARRAYS}  # that an update reads or writes
RECORDED = "sgd"  # the optimiser of the rows that are used
UPDATE_NAME = "update"
WHOLE = (
    "linear-dweight/"  # rungs that take as long for a part of a layer: a few tiles cover it, and each reads all images
)


@cache
def rows(network: str) -> tuple[Row, ...]:
    """Returns the recorded rows of a network with the time of each node, by their batch; the newest of each batch. All are
    of SGD: `node_us` derives another optimiser's update from its."""
    found: dict[int, Row] = {}
    everything = json.loads(FILE.read_text("utf-8")) if FILE.exists() else []
    for row in sorted(everything, key=lambda row: row.get("date", "")):
        setting = row["network"], row["optimizer"], row["memory"]
        if setting == (network, RECORDED, PLAIN) and row.get("node_us"):
            found[row["batch"]] = row
    return tuple(found[batch] for batch in sorted(found))


def recorded(network: str) -> bool:
    """Returns whether two batches were recorded, which a prediction needs."""
    return len(rows(network)) > 1


@dataclass(frozen=True)
class Line:
    """Microseconds of a node: a fixed part and a part for each image."""

    fixed: float
    each: float

    def us(self, images: float) -> float:
        return self.fixed + self.each * images


def line(small: float, small_us: float, large: float, large_us: float) -> Line:
    """Returns the line through two times; neither part is below 0."""
    each = max(0.0, (large_us - small_us) / (large - small))
    fixed = large_us - each * large
    if fixed < 0:
        return Line(0.0, large_us / large)
    return Line(fixed, each)


@cache
def lines(network: str) -> dict[str, Line]:
    """Returns the line of each node by its name. KeyError if the network was not recorded at two batches."""
    found = rows(network)
    if len(found) < 2:
        raise KeyError(f"{network} was recorded at {len(found)} batches, two are needed")
    small, large = found[0], found[-1]
    return {
        name: line(small["batch"], small["node_us"][name], large["batch"], us) for name, us in large["node_us"].items()
    }


def node_us(network: str, node: Node, images: float, optimizer: str = "sgd", share: float = 1.0) -> float:
    """Returns the predicted microseconds of a node for so many images. `share`: the part of the node's work that this GPU
    does; the fixed part stays. An update grows with the arrays that its optimiser reads and writes. A sum of gradients
    takes as long as an update."""
    found = lines(network)
    name = node.name.partition(" part ")[0]
    if node.phase == UPDATE or name not in found:
        return found[UPDATE_NAME].us(0) * ARRAYS[optimizer] / ARRAYS[RECORDED]
    return found[name].us(images * share)


def device(network: str) -> str:
    """Returns the GPU of the recordings."""
    return str(rows(network)[-1]["device"])
