"""Elementwise layers as steps: what each warp of each launch reads and writes, from the traces of the emulator.

One plan serves both directions. `links` says which elements of x, b, y belong together: the forward pass reads x and b
and writes y, the backward pass reads dy and writes dx and db along the same links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kernels.elementwise import ladder
from kernels.elementwise.shape import (
    BITS,
    WORD,
    BiasShape,
    GeluBackwardShape,
    MapsShape,
    ReluBackwardShape,
    ReluShape,
    ResidualBackwardShape,
    ResidualShape,
)
from visuals.scene.program_traces import LANES, TracedLaunch, TracedProgram, rounded_inputs

GRADIENTS = {"dx": "x", "dy": "y", "db": "b", "da": "a"}  # a gradient lies where its tensor does
ELEMENTS, BALLOT, IDLE, LOAD, STORE, ZERO = "elements", "ballot", "idle", "load", "store", "zero"
SUMMED = (
    "bias_backward_block",
    "bias_backward_sums",
    "bias_backward_streaming",
)  # kernels whose blocks add up (visuals.elementwise.sums)


@dataclass
class Step:
    """What one step does. `reads`: elements by buffer; `writes`: (elements, values) by buffer; `element`: the first one;
    `iteration`: which float4 of its lanes."""

    launch: int
    kind: str
    block: int
    warp: int
    lanes: np.ndarray
    element: int = 0
    iteration: int = 0
    reads: dict[str, np.ndarray] = field(default_factory=dict)
    writes: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    read_bytes: int = 0
    written_bytes: int = 0


def channels(s: MapsShape) -> np.ndarray:
    """Returns int64 [elements]: the channel of each element, in the order of memory."""
    inner = s.inner if isinstance(s, BiasShape) else s.P * s.Q
    return np.arange(s.elements) // inner % s.C


def links(s: MapsShape) -> dict[str, np.ndarray]:
    """Returns, by tensor, the index that belongs to each element of y: the links of both directions."""
    same = np.arange(s.elements)
    return dict.fromkeys(("x", "y", "a", "mask", "sum"), same) | {
        "b": channels(s) if isinstance(s, BiasShape) else same
    }


def link_of(s: MapsShape, name: str) -> np.ndarray:
    """Returns the links of a tensor or of its gradient: they are the same."""
    return links(s)[GRADIENTS.get(name, name)]


def bits_of(words: np.ndarray) -> np.ndarray:
    """Returns the bits of uint32 words as float32 [words * 32]: a mask as a picture shows it."""
    return np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").astype(np.float32)


def as_forward(s: MapsShape, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the inputs of a backward pass with what the forward pass keeps, and dy last first. Both are of seed 0.

    The first seeded numbers are those of x in the forward pass. Other passes keep their inputs."""
    if isinstance(s, ReluBackwardShape):
        dy = inputs["dy"].ravel()[::-1].reshape(s.maps)
        return inputs | {"dy": dy} | ladder.kept_of(s, {"dy": dy})  # it takes x to be dy, last first
    if isinstance(s, GeluBackwardShape):
        return inputs | {"dy": inputs["dy"].ravel()[::-1].reshape(s.maps), "x": inputs["dy"]}
    if isinstance(s, ResidualBackwardShape):
        shape, rung = ResidualShape(**s.params()), ladder.RESIDUAL.rungs[0]
        seeded = rounded_inputs(ladder.RESIDUAL, shape, rung.build(shape, rung.default_tiles), 0, 0)
        y = np.maximum(seeded["a"] + seeded["b"], np.float32(0))
        return inputs | {"dy": inputs["dy"].ravel()[::-1].reshape(s.maps), "y": y}
    return inputs


def steps_of(t: TracedProgram, s: MapsShape, n: int) -> Iterator[Step]:
    """Yields the steps of launch n of a program, block by block and warp by warp."""
    of = t.launches[n]
    make = _zero if of.launch.entry == "zero" else _wide if of.launch.entry.endswith("float4") else _scalar
    for block in range(len(of.traces)):
        for warp in range(of.warps):
            yield from make(t, s, n, block, warp)


# -- one thread per element --------------------------------------------------------------------------
def _scalar(t: TracedProgram, s: MapsShape, n: int, block: int, warp: int) -> Iterator[Step]:
    of = t.launches[n]
    step = Step(n, ELEMENTS, block, warp, np.zeros(0, int))
    element = np.zeros(0, int)
    for position, name in enumerate(_buffers(of)):
        _add_reads(step, t, of, name, s)
        _add_writes(step, t, of, name, s)
        found = of.accesses(block, name, write=False, warp=warp), of.accesses(block, name, write=True, warp=warp)
        if position == 0:
            step.lanes, element = found[0].lane, found[0].element
    if not len(step.lanes):
        yield Step(n, IDLE, block, warp, step.lanes)
        return
    step.element = int(element[0])
    if of.launch.entry != "relu_bits":
        yield step
        return
    mask = {"mask": step.writes.pop("mask")}
    ballot = Step(n, BALLOT, block, warp, step.lanes, step.element, writes=mask, written_bytes=4)
    step.written_bytes -= 4
    yield from (step, ballot)


def _buffers(of: TracedLaunch) -> list[str]:
    return [a for a in of.launch.args if isinstance(a, str)]


def _itemsize(t: TracedProgram, name: str) -> int:
    return t.arrays[name].dtype.itemsize


def _add_reads(step: Step, t: TracedProgram, of: TracedLaunch, name: str, s: MapsShape) -> None:
    read = of.accesses(step.block, name, write=False, warp=step.warp)
    if len(read):
        step.reads[name] = _cells(t, name, read.element)
        step.read_bytes += _itemsize(t, name) * len(read)


def _add_writes(step: Step, t: TracedProgram, of: TracedLaunch, name: str, s: MapsShape) -> None:
    """Adds what the warp stores. Of an atomic addition the trace holds the value before it: the one after it is that plus
    the lane's element, in float32."""
    written = of.accesses(step.block, name, write=True, warp=step.warp)
    if not len(written):
        return
    cells, values = written.element, written.value
    if of.launch.entry == "bias_backward_atomics":
        added = of.accesses(step.block, "dy", write=False, warp=step.warp).value
        values = values + added
    else:
        step.written_bytes += _itemsize(t, name) * len(written)
    if name == "mask":
        cells = _cells(t, name, cells)
        values = _mask(t)[cells]
    step.writes[name] = cells, values


def _mask(t: TracedProgram) -> np.ndarray:
    mask = t.arrays["mask"]
    return bits_of(mask) if mask.dtype == np.uint32 else mask.ravel().astype(np.float32)


def _cells(t: TracedProgram, name: str, elements: np.ndarray) -> np.ndarray:
    """Returns the cells of a tensor on the stage: a word of a mask has 32."""
    if name == "mask" and t.arrays["mask"].dtype == np.uint32:
        return (WORD * np.unique(elements)[:, None] + np.arange(WORD)).ravel()
    return elements


# -- several float4 per thread -------------------------------------------------------------------------
def _wide(t: TracedProgram, s: MapsShape, n: int, block: int, warp: int) -> Iterator[Step]:
    of = t.launches[n]
    tiles = dict(of.launch.defines)
    loads, stores = [], []
    for iteration in range(tiles["PER"]):
        first = 4 * (tiles["BLOCK"] * (block * tiles["PER"] + iteration) + LANES * warp)
        stop = min(first + 4 * LANES, s.elements)
        if first < stop:
            load = Step(n, LOAD, block, warp, np.arange(-(-(stop - first) // 4)), first, iteration)
            store = Step(n, STORE, block, warp, load.lanes, first, iteration)
            _add_iteration(load, store, t, of, s, stop)
            loads.append(load)
            stores.append(store)
    yield from (*loads, *stores) if loads else (Step(n, IDLE, block, warp, np.zeros(0, int)),)


def _add_iteration(load: Step, store: Step, t: TracedProgram, of: TracedLaunch, s: MapsShape, stop: int) -> None:
    """Adds the accesses of one float4 of each lane: those of the trace that lie between the first element and `stop`. b is
    read when it is added."""
    for name in _buffers(of):
        per_element = WORD if name == "mask" and getattr(s, "keep", "") == BITS else 1
        for write, step in ((False, load), (True, store)):
            found = of.accesses(load.block, name, write, load.warp)
            if name == "b" and isinstance(s, BiasShape):
                here = channels(s)[load.element : stop]
                if not write:
                    store.reads[name] = np.unique(here)
                    store.read_bytes += 4 * len(here)
                continue
            at = (found.element * per_element >= load.element // per_element * per_element) & (
                found.element * per_element < stop
            )
            if not at.any():
                continue
            cells = _cells(t, name, found.element[at])
            size = _itemsize(t, name) * int(at.sum())
            if write:
                step.writes[name] = cells, _mask(t)[cells] if name == "mask" else found.value[at]
                step.written_bytes += size
            else:
                step.reads[name] = cells
                step.read_bytes += size


# -- zero ------------------------------------------------------------------------------------------
def _zero(t: TracedProgram, s: MapsShape, n: int, block: int, warp: int) -> Iterator[Step]:
    """Yields one step for the first warp of a block; the other warps of so few channels have nothing to do."""
    of = t.launches[n]
    if warp == 0:
        written = of.accesses(block, "db", write=True)
        yield Step(
            n,
            ZERO,
            block,
            -1,
            np.zeros(0, int),
            writes={"db": (written.element, written.value)},
            written_bytes=4 * len(written),
        )


def operation(ladder: str, s: MapsShape, entry: str) -> str:
    """Returns the name of what a launch computes per element, a key of captions.OPERATIONS."""
    entry = entry.removesuffix("_float4")
    if entry in ("relu_bytes", "relu_bits"):
        return entry
    if ladder == "relu" and isinstance(s, ReluShape):
        return {"y": "relu", "bytes": "relu_bytes", "bits": "relu_bits"}[s.keep]
    if isinstance(s, ReluShape):  # backward
        return {"y": "relu_backward", "bytes": "relu_backward_mask", "bits": "relu_backward_mask"}[s.keep]
    return {"relu": "relu_of_sum", "relu_backward": "mask_of_dy"}.get(entry, entry)
