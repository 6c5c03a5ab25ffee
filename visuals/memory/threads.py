"""Matrix add as a scene: the block, warp and lane that adds each element, as the emulator executed it.

Every block of the launch is traced; a step is one warp, with the elements that its lanes read and write.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.program import INPUT, OUTPUT, Launch, RuleError
from kernels.runner import seeded_inputs
from visuals.scene.parts import Captions, Group, Lanes, Reading, Source, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.requests import ORDER, ORDER_NOTE, mask_of, sectors
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of

MAX_BLOCKS, MAX_ELEMENTS = 64, 2_048
NOTE = mark("The picture shows one warp per step, block by block, as the emulator executed them.")
OWNERS = {"block": mark("block number"), "warp": mark("warp number"), "lane": mark("lane number")}


@dataclass(frozen=True)
class Traced:
    """A rung's only launch, executed whole: inputs, output, and every block's trace."""

    launch: Launch
    inputs: Mapping[str, np.ndarray]
    output: np.ndarray
    traces: tuple[BlockTrace, ...]
    counters: Counters

    @property
    def file(self) -> str:
        return self.launch.source.rpartition("/")[2]

    def block_of(self, number: int) -> tuple[int, int]:
        """Returns (x, y) of a block by its linear number."""
        return number % self.launch.grid[0], number // self.launch.grid[0]


def whole_numbers(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the inputs as small whole numbers, which a cell can print."""
    return {name: np.round(2 * values) for name, values in inputs.items()}


@lru_cache(maxsize=32)
def traced(rung: str, shape, tiles: tuple[tuple[str, int], ...] = (), seed: int = 0) -> Traced:
    """Run a rung of one launch in the emulator and trace every block. Raises RuleError if it has too many blocks."""
    found = find(rung)
    program = found.build(shape, found.check(shape, dict(tiles)))
    (launch,) = program.launches
    blocks = int(np.prod(launch.grid))
    if blocks > MAX_BLOCKS:
        raise RuleError(
            tr(
                "at most {most} blocks are traced, {kernel} launches {count} at {shape}",
                most=MAX_BLOCKS,
                kernel=rung,
                count=decimal(f"{blocks:,}"),
                shape=shape,
            )
        )
    inputs = whole_numbers(seeded_inputs(program.of_role(INPUT), seed))
    sessions = [emulator.Session(program, inputs, Options(trace_block=block)) for block in range(blocks)]
    outputs = [np.array(session.verify_run()) for session in sessions]
    assert outputs[-1].shape == program.of_role(OUTPUT)[0].shape
    traces = tuple(trace for session in sessions for trace in session.traced)
    return Traced(launch, inputs, outputs[-1], traces, sessions[-1].counted)


def touched(trace: BlockTrace, buffer: str, write: bool, warp: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (elements, lanes) of a warp's accesses to a buffer, in order."""
    at = (trace.write == write) & (trace.thread // 32 == warp)
    if buffer not in trace.buffers:
        return np.zeros(0, int), np.zeros(0, int)
    at &= trace.buffer == trace.buffers.index(buffer)
    return trace.element[at].astype(int), trace.thread[at].astype(int) % 32


def source_at(t: Traced, marks: Sequence[str], kind: Sequence[int]) -> Source:
    """Returns the launch's kernel. A step of kind n highlights the line with marks[n]. The margin has the launch's counts."""
    options = {"notes": margin(t.counters, t.file), "detail": resources(t.launch)}
    return source_of(t.launch.source, marks, np.array(kind, int), **options)


# -- add -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WarpStep:
    """One warp of one block: the elements its lanes add, the first lane's first; none if all are idle."""

    block: int
    warp: int
    elements: np.ndarray
    lanes: np.ndarray


def warp_steps(t: Traced) -> list[WarpStep]:
    """Returns every warp of every block, in order. Asserts that each reads the elements that it writes."""
    steps = []
    warps = -(-int(np.prod(t.launch.block)) // 32)
    for trace, warp in itertools.product(t.traces, range(warps)):
        elements, lanes = touched(trace, "C", write=True, warp=warp)
        for name in "AB":
            assert (touched(trace, name, write=False, warp=warp)[0] == elements).all()
        steps.append(WarpStep(trace.block, warp, elements, lanes))
    return steps


def add_scene(rung: str, shape, tiles: Mapping[str, int], seed: int = 0) -> Scene:
    """Returns the scene of an add/ rung: A, B and C, and for each element the block, warp and lane that added it. Raises
    RuleError above MAX_ELEMENTS elements."""
    if shape.elements > MAX_ELEMENTS:
        raise RuleError(
            tr(
                "at most {most} elements are shown, {shape} has {count}",
                most=decimal(f"{MAX_ELEMENTS:,}"),
                shape=shape,
                count=decimal(f"{shape.elements:,}"),
            )
        )
    t = traced(rung, shape, tuple(sorted(tiles.items())), seed)
    steps = warp_steps(t)
    M, N = shape.M, shape.N
    cells = np.concatenate([s.elements for s in steps])
    step_of = np.repeat(np.arange(len(steps)), [len(s.elements) for s in steps])
    lanes = np.concatenate([s.lanes for s in steps])
    owners = {"block": [s.block for s in steps], "warp": [s.warp for s in steps]}
    owner = {name: np.array(numbers)[step_of] for name, numbers in owners.items()} | {"lane": lanes}
    sectors_of = np.array([sectors(s.elements) for s in steps])
    return Scene(
        key=f"{rung} {shape.M},{shape.N} " + ",".join(f"{k}={v}" for k, v in sorted(tiles.items())),
        title=tr(find(rung).title),
        tensors=(
            Tensor("A", "A", "A", "input", 1, M, N, t.inputs["A"].ravel(), note=f"{M} × {N}"),
            Tensor("B", "B", "B", "filter", 1, M, N, t.inputs["B"].ravel(), note=f"{M} × {N}"),
            Tensor("C", "C", "C = A + B", "output", 1, M, N, note=f"{M} × {N}"),
            *(Tensor(name, name, tr(OWNERS[name]), "workspace", 1, M, N) for name in owner),
        ),
        groups=(
            Group((("A", "B", "C"),), "global", tr("global memory, row by row"), table=True),
            Group((tuple(owner),), "registers", tr("which thread adds each element"), table=True),
        ),
        steps=len(steps),
        step_name=tr("warp"),
        order_name=tr(ORDER),
        order_note=f"{tr(NOTE)} {tr(ORDER_NOTE)}",
        writes=(
            Write("C", step_of, t.output.ravel()[cells], cells=cells),
            *(Write(name, step_of, numbers.astype(np.float32), cells=cells) for name, numbers in owner.items()),
        ),
        reads=tuple(read_per_step(name, [s.elements for s in steps]) for name in "AB"),
        readings=(
            Reading(tr("elements added"), np.cumsum([len(s.elements) for s in steps]), "counted"),
            Reading(tr("sectors read"), np.cumsum(2 * sectors_of), "counted"),
            Reading(tr("sectors written"), np.cumsum(sectors_of), "counted"),
        ),
        captions=_add_captions(t, steps, sectors_of, N),
        source=source_at(t, ("C[i] = ", "return;"), [len(s.elements) == 0 for s in steps]),
        lanes=Lanes(np.array([s.warp for s in steps]), np.array([mask_of(s.lanes) for s in steps], np.uint32)),
    )


_VECTOR = mark("Block {0}, warp {1}: its first thread has i = {0} × {2} + {3} = {4}.")
_MATRIX = mark(
    "Block ({5}, {6}), warp {1}: its first active thread has row {7} and column {8}, so i = {7} × {9} + {8} = {4}."
)
_MOVED = mark(
    "Each active lane reads one float of [A](input) and one of [B](filter), and writes one of [C](output). Active lanes: "
    "{10}. Sectors (32 bytes) per matrix: {11}. Fewest possible: {12}."
)
_IDLE = mark("Block ({5}, {6}), warp {1}: its lanes have no elements. They return at the bounds check.")


def _add_captions(t: Traced, steps: list[WarpStep], sectors_of: np.ndarray, N: int) -> Captions:
    vector = t.launch.block[1] == 1
    args = np.zeros((len(steps), 13), np.int64)
    for n, (s, sectors_moved) in enumerate(zip(steps, sectors_of, strict=True)):
        args[n, [0, 1, 2]] = s.block, s.warp, t.launch.block[0]
        args[n, [5, 6]] = t.block_of(s.block)
        if len(s.elements):
            first = int(s.elements[0])
            args[n, [3, 4, 7, 8, 9]] = s.warp * 32 + s.lanes[0], first, first // N, first % N, N
            args[n, 10:] = len(s.elements), sectors_moved, -(-len(s.elements) * 4 // 32)
    kinds = np.array([0 if len(s.elements) else 1 for s in steps])
    added = f"{tr(_VECTOR if vector else _MATRIX)} {tr(_MOVED)}"
    return Captions((added, tr(_IDLE)), kinds, args)
