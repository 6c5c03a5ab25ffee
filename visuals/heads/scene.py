"""Rows of tokens to heads, and back, as scenes: each number keeps its value and gets another address.

Rows [N, T, parts, h, d] are drawn as a matrix, a token each row. The heads [N, h, T, d] of a part are planes, a head each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.heads.ladder import MERGE, SPLIT, width
from kernels.heads.shape import HeadsShape
from kernels.i18n import decimal, mark, tr
from kernels.model.program import RuleError
from visuals.scene.launch_scene import Arrays, StepKind, executed, launch_scene, recorder
from visuals.scene.parts import Group, Number, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import LANES, WORD, mask_of
from visuals.scene.scene import Scene

MAX_CELLS = 2048  # of the rows, shown
MAX_STEPS = 24  # of the first numbers; the others follow in one step
RUNGS = tuple(f"{ladder}/{name}" for ladder in (SPLIT, MERGE) for name in ("elements", "float4"))


@dataclass(frozen=True)
class Places:
    """Where number i of the rows is in the heads: in_heads of kernels/heads/cuda/heads.cuh, for all i at once."""

    s: HeadsShape

    @cached_property
    def index(self) -> tuple[np.ndarray, ...]:
        """Returns (sequence, token, part, head, number of the head) of each number, int64."""
        return np.unravel_index(np.arange(self.s.elements), self.s.rows_shape)

    @property
    def part(self) -> np.ndarray:
        return self.index[2]

    @cached_property
    def offset(self) -> np.ndarray:
        """Returns the place in the tensor of the part."""
        sequence, token, _, head, number = self.index
        return np.ravel_multi_index((sequence, head, token, number), self.s.heads_shape)

    def runs(self) -> Iterator[np.ndarray]:
        """Yields the numbers of each head of each token: d neighbours in both orders."""
        yield from np.arange(self.s.elements).reshape(-1, self.s.d)


def heads_scene(rung: str, s: HeadsShape, tiles: Mapping[str, int], inputs: Arrays) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name. Raises RuleError if the rung cannot run the shape, or if it
    is too large to show."""
    if s.elements > MAX_CELLS:
        most = decimal(f"{MAX_CELLS:,}")
        raise RuleError(tr("at most {most} numbers are shown, got {shape}", most=most, shape=s))
    run, found = executed(rung, s, tiles, inputs), kinds(rung, s)
    r = recorder(found)
    ladder, _, name = rung.partition("/")
    steps = HeadsSteps(s, r, ladder)
    if name == "elements":
        steps.elements(run.tiles["BLOCK"])
    else:
        steps.units(run.tiles["BLOCK"], run.tiles["PER"])
    tensors = steps.tensors(inputs)
    return launch_scene(
        rung, str(s), run, r, found, tensors, _groups(s, ladder, tensors), readings=r.readings("", tiles=False)
    )


# -- captions ----------------------------------------------------------------------------------------------
RUN = mark(
    "Threads {0} to {1} divide their index by d, then by h. All find token {2} and head {3}{part}. Their {4} numbers are row {2} of "
    "plane {5} of [{name}]({role})."
)
OTHERS = mark("The other threads copy the other {0} numbers in the same way.")
LOAD_ROW = mark(
    "Block {0}: load {1} of each thread. Threads read [x](input) one after another, {bytes} bytes each, and keep them in "
    "[v](input)."
)
STORE_HEAD = mark(
    "The threads with head {0}{part} store theirs: each token’s numbers become a row of plane {1} of [{name}](output)."
)
LOAD_HEAD = mark(
    "Load {1} of the threads with head {0}{part}: they read rows of plane {2} of [{name}](input), {bytes} bytes each, into "
    "[v](input)."
)
STORE_ROW = mark("Block {0}: the threads store load {1}. The stores of [y](output) are one after another.")
LINES = {  # by rung: kind of step, its line
    f"{SPLIT}/elements": {"run": "y[place.offset] = x[i]", "others": "y[place.offset] = x[i]"},
    f"{MERGE}/elements": {"run": "y[i] = x[place.offset]", "others": "y[i] = x[place.offset]"},
    f"{SPLIT}/float4": {
        "load": "v[k] = x[first",
        "store": "y[place.offset] = v[k]",
        "others": "y[place.offset] = v[k]",
    },
    f"{MERGE}/float4": {
        "load": "v[k] = x[place.offset]",
        "store": "y[first + k * BLOCK] = v[k]",
        "others": "y[first + k * BLOCK] = v[k]",
    },
}


def kinds(rung: str, s: HeadsShape) -> dict[str, StepKind]:
    """Returns the kinds of steps of a rung by name: those that name a part have one for each."""
    split, wide = rung.startswith(SPLIT), rung.endswith("float4")
    texts = {"run": RUN, "others": OTHERS}
    if wide:
        texts = {
            "load": LOAD_ROW if split else LOAD_HEAD,
            "store": STORE_HEAD if split else STORE_ROW,
            "others": OTHERS,
        }
    found = {}
    for kind, text in texts.items():
        for part, name in enumerate(s.names):
            role = "output" if split else "input"
            words = tr(" of {name}", name=name) if s.parts > 1 else ""
            filled = tr(text, part=words, name=name, role=role, bytes=WORD * width(s))
            found[f"{kind}{part}"] = StepKind(0, LINES[rung][kind], filled)
    return found


# -- steps -------------------------------------------------------------------------------------------------
class HeadsSteps:
    """Records the steps of a rung."""

    def __init__(self, s: HeadsShape, r: Recorder, ladder: str):
        self.s, self.r, self.split, self.places = s, r, ladder == SPLIT, Places(s)
        self.names, self.registers = s.names, (0, 0)  # rows and columns of v

    @property
    def rows_name(self) -> str:
        return "x" if self.split else "y"

    def elements(self, block: int) -> None:
        """Records a step for each head of each token: threads whose indices give the same."""
        places, done = self.places, 0
        for numbers in self.places.runs():
            if self.r.steps == MAX_STEPS:
                break
            i = int(numbers[0])
            sequence, token, part, head, _ = (int(axis[i]) for axis in places.index)
            row = sequence * self.s.T + token
            plane = sequence * self.s.h + head
            args = i, int(numbers[-1]), row, head, len(numbers), plane
            self.step(f"run{part}", numbers, block, *args)
            self._copy(numbers)
            done = int(numbers[-1]) + 1
        self._others(np.arange(done, self.s.elements))

    def _copy(self, numbers: np.ndarray) -> None:
        """Records the copies of some numbers between rows and heads, at the last step."""
        for part, name in enumerate(self.names):
            own = numbers[self.places.part[numbers] == part]
            if own.size:
                offset = self.places.offset[own]
                ends = ((name, offset), ("x", own)) if self.split else (("y", own), (name, offset))
                (target, cells), (source, index) = ends
                self.r.copy(target, source, index, cells)

    def _others(self, numbers: np.ndarray) -> None:
        if numbers.size:
            self.r.step("others0", numbers.size, read=WORD * numbers.size, written=WORD * numbers.size, warp=-1)
            self._copy(numbers)

    def step(self, kind: str, numbers: np.ndarray, block: int, *args: Number, **moved: int) -> None:
        """Records a step of the threads that have these numbers, or units; they are in one warp or in several."""
        threads = numbers % block
        warp = int(threads[0]) // LANES
        one = bool((threads // LANES == warp).all() and (numbers // block == numbers[0] // block).all())
        lanes = {"warp": warp, "mask": mask_of(threads % LANES)} if one else {"warp": -1}
        moved = moved or {"read": WORD * numbers.size, "written": WORD * numbers.size}
        self.r.step(kind, *args, **lanes, **moved)

    # -- several units of a thread ---------------------------------------------------------------------
    def units(self, block: int, per: int) -> None:
        """Records the loads and then the stores of each block, as far as they are shown."""
        unit = width(self.s)
        count = self.s.elements // unit
        columns = min(block, count) * unit
        self.registers = per, columns
        done = 0
        for first in range(0, count, block * per):
            if self.r.steps + 2 * per * (1 + len(self.names) * self.s.h) > MAX_STEPS and first:
                break
            iterations = [
                np.arange(at, min(at + block, count)) for at in range(first, min(first + block * per, count), block)
            ]
            for k, units in enumerate(iterations):
                self._one_side("load", first // (block * per), k, units, block, unit)
            for k, units in enumerate(iterations):
                self._one_side("store", first // (block * per), k, units, block, unit)
            done = int(iterations[-1][-1] + 1) * unit
        self._others(np.arange(done, self.s.elements))

    def _one_side(self, kind: str, number: int, k: int, units: np.ndarray, block: int, unit: int) -> None:
        """Records iteration k of a block's loads or stores: at once on the side of the rows, head by head on that of
        the heads."""
        numbers = units[:, None] * unit + np.arange(unit)
        cells = k * self.registers[1] + (units - units[0])[:, None] * unit + np.arange(unit)
        moved = "read" if kind == "load" else "written"
        if (kind == "load") == self.split:  # the rows
            self.step(f"{kind}0", units, block, number, k, **{moved: WORD * numbers.size})
            self._move(kind, self.rows_name, numbers, cells)
            return
        sequence, _, part, head, _ = (axis[numbers[:, 0]] for axis in self.places.index)
        for p, name in enumerate(self.names):
            for plane in np.unique((sequence * self.s.h + head)[part == p]):
                own = (part == p) & (sequence * self.s.h + head == plane)
                at = int(plane) % self.s.h
                args = (at, plane) if kind == "store" else (at, k, plane)
                self.step(f"{kind}{p}", units[own], block, *args, **{moved: WORD * int(own.sum()) * unit})
                self._move(kind, name, self.places.offset[numbers[own]], cells[own])

    def _move(self, kind: str, name: str, places: np.ndarray, cells: np.ndarray) -> None:
        if kind == "load":
            self.r.copy("v", name, places, cells.ravel())
        else:
            self.r.copy(name, "v", cells, places.ravel())

    # -- tensors ---------------------------------------------------------------------------------------
    def tensors(self, inputs: Arrays) -> tuple[Tensor, ...]:
        """Returns rows, heads and, if a thread keeps several units, its registers."""
        s, (rows, columns) = self.s, self.registers
        rows_role, heads_role = ("input", "output") if self.split else ("output", "input")
        size = s.N * s.T, s.parts * s.h * s.d
        note = tr("{tokens} tokens, {parts} × {h} × {d} numbers each", tokens=size[0], parts=s.parts, h=s.h, d=s.d)

        def values(name: str) -> np.ndarray | None:
            return inputs[name].ravel() if name in inputs else None

        found = [
            Tensor(
                self.rows_name, self.rows_name, self.rows_name, rows_role, 1, *size, values(self.rows_name), note=note
            )
        ]
        planes = tr("head") if s.N == 1 else tr("sequence and head")
        for name in s.names:
            found.append(Tensor(name, name, name, heads_role, s.N * s.h, s.T, s.d, values(name), plane_name=planes))
        if rows:
            note = tr("one row per load, {n} threads", n=columns // width(s))
            found.append(Tensor("v", "v", "v", "input", 1, rows, columns, note=note))
        return tuple(found)


def _groups(s: HeadsShape, ladder: str, tensors: tuple[Tensor, ...]) -> tuple[Group, ...]:
    rows, heads = ("x",), s.names
    in_global = (rows, heads) if ladder == SPLIT else (heads, ("y",))
    found = [Group(in_global, "global", tr("global memory"))]
    if any(tensor.name == "v" for tensor in tensors):
        found.append(Group((("v",),), "registers", tr("registers of one block")))
    return tuple(found)
